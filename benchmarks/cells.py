"""Errors of held-out cells in the plane: the centroid-encoder and what single-cell labs use.

    python -m benchmarks.cells                        # six data sets, five splits, eight methods
    python -m benchmarks.cells pbmc3k --method LDA

Five stratified folds; where there are donors or technologies, each is held out in turn. The 2,000
features of largest variance are chosen on the training cells; counts are normalised to 10,000 and
logarithms taken. Rivals get the first 50 principal components of the z-scores, as is the custom
with cells: with all genes, most of them have more errors. Prints the mean errors, and adds the runs
to a CSV file, from which `python -m benchmarks.render` makes a table of docs/benchmarks.md. Needs
the data folder.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.cell_sets import SETS, load, splits
from benchmarks.methods import METHODS
from benchmarks.parts import append

N_AXES = 50
RESULTS = Path(__file__).parent / "results" / "cells.csv"
SHOWN = (
    *("centroid-encoder", "centroid-encoder, bottleneck", "supervised UMAP", "RF-PHATE", "GMLVQ"),
    *("LDA", "UMAP", "PCA"),
)


def evaluate(name: str, method: str) -> Iterator[dict[str, object]]:
    """Yield the errors of each split."""
    for number, split in enumerate(splits(*load(name))):
        known, new = split.X, split.X_test
        start = time.process_time()
        if METHODS[method].kind != "centroid-encoder":
            axes = make_pipeline(StandardScaler(), PCA(min(N_AXES, *known.shape), random_state=0))
            known = axes.fit_transform(known)
            new = axes.transform(new)
        with warnings.catch_warnings():
            # Rivals warn of effects of their settings, which the errors show.
            warnings.simplefilter("ignore")
            found = METHODS[method].run("cells", known, split.codes, new, number)
        yield {
            "set": name,
            "method": method,
            "split": number,
            "n_train": len(split.codes),
            "n_test": len(split.truth),
            "knn_error": np.mean(found["knn"] != split.truth),
            "voronoi_error": np.mean(found["voronoi"] != split.truth),
            "balanced_knn_error": 1 - balanced_accuracy_score(split.truth, found["knn"]),
            "seconds": time.process_time() - start,
        }


def main() -> None:
    """Run what is not in the file, and print the mean errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # An empty list of choices is all of them.
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--method", action="append", choices=METHODS, help="default: eight")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path: Path = arguments.results
    there = pd.read_csv(path) if path.exists() else pd.DataFrame({"set": [], "method": []})
    done = set(zip(there["set"], there["method"], strict=True))
    for name in arguments.sets or SETS:
        for method in arguments.method or SHOWN:
            if (name, method) in done:
                continue
            rows = list(evaluate(name, method))
            for row in rows:
                append(path, row)
            table = pd.DataFrame(rows)[["knn_error", "voronoi_error", "balanced_knn_error"]]
            errors = ", ".join(f"{text} {100 * x:.1f} %" for text, x in table.mean().items())
            print(f"{name}, {method}: {errors}", flush=True)


if __name__ == "__main__":
    main()
