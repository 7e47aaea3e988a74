"""Errors of held-out cells in two dimensions, for the centroid-encoder and common alternatives.

    python -m benchmarks.cells                        # six data sets, five splits, eight methods
    python -m benchmarks.cells pbmc3k --method LDA

The splits are five stratified folds. If the data come from several donors or technologies, each of
these is held out in turn instead. Counts are normalised to 10,000 for each cell (of paul15, to the
median), and their logarithms taken. The 2,000 features with the largest variance among the training
cells are used. Rivals get the first 50 principal components of the z-scores, as is usual for cells;
with all genes, most of them make more errors. Prints the mean errors, and adds the runs to a CSV
file, from which `python -m benchmarks.render` makes a table of docs/benchmarks.md. Data sets and
methods that the file has already are not run again. Needs the data folder.
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
"""Principal components that rivals get."""
RESULTS = Path(__file__).parent / "results" / "cells.csv"
SHOWN = (
    *("centroid-encoder", "centroid-encoder, bottleneck", "supervised UMAP", "RF-PHATE", "GMLVQ"),
    *("LDA", "UMAP", "PCA"),
)
"""Methods that run by default, in the order of the table."""


def evaluate(name: str, method: str) -> Iterator[dict[str, object]]:
    """Yield a row of results for each split."""
    for number, split in enumerate(splits(*load(name))):
        known, new = split.X, split.X_test
        start = time.process_time()
        if METHODS[method].kind != "centroid-encoder":
            axes = make_pipeline(StandardScaler(), PCA(min(N_AXES, *known.shape), random_state=0))
            known = axes.fit_transform(known)
            new = axes.transform(new)
        with warnings.catch_warnings():
            # Rivals warn about their settings; the effects are part of the errors.
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
    """Run what the file does not have yet, and print the mean errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"data sets; default: all of {', '.join(SETS)}"
    )
    parser.add_argument(
        "--method", action="append", choices=METHODS, help="default: the eight methods of the table"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="CSV file of the runs")
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
