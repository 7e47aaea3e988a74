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
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import datasets
from benchmarks.methods import METHODS
from benchmarks.parts import append

N_FOLDS = 5
N_FEATURES = 2000
N_AXES = 50
LEAST = 5
"""Training cells of a class; smaller classes are left out."""
RESULTS = Path(__file__).parent / "results" / "cells.csv"
SETS: dict[str, tuple[str, str, str | None]] = {
    "pbmc3k": ("pbmc3k/pbmc3k_annotated.h5ad", "classified", None),
    "pbmc_3tech": ("pbmc_3tech/pbmc_3tech.h5ad", "cell_type", "donor"),
    "paul15": ("paul15/paul15_240genes.h5ad", "celltype", None),
    "pbmc68k_reduced": ("", "bulk_labels", None),
    "vectra_6plex": ("vectra_6plex/cells.h5ad", "phenotype", None),
    "scimap_example": ("scimap_example/example_data.h5ad", "phenotype", None),
}
"""File, which scanpy brings along if there is none, label column, and column of the donors."""
SHOWN = (
    *("centroid-encoder", "centroid-encoder, bottleneck", "supervised UMAP", "RF-PHATE", "GMLVQ"),
    *("LDA", "UMAP", "PCA"),
)


def load(name: str) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any] | None]:
    """Return the features, the labels and the donors of a data set."""
    path, label_key, group_key = SETS[name]
    adata = datasets.read_h5ad(path) if path else _pbmc68k()
    X = adata.X if isinstance(adata.X, np.ndarray) else adata.X.toarray()
    X = np.nan_to_num(X.astype(np.float32))
    if name == "paul15":
        X = np.log1p(1e4 * X / X.sum(axis=1, keepdims=True))
    groups = None if group_key is None else adata.obs[group_key].astype(str).to_numpy()
    return X, adata.obs[label_key].astype(str).to_numpy(), groups


def _pbmc68k() -> AnnData:
    import scanpy as sc

    return sc.datasets.pbmc68k_reduced()


def splits(
    y: NDArray[Any], groups: NDArray[Any] | None
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield training and test cells, of the classes that training has."""
    folds: Any = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    if groups is not None:
        folds = LeaveOneGroupOut()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        for train, test in folds.split(y, y, groups):
            names, counts = np.unique(y[train], return_counts=True)
            known = names[counts >= LEAST]
            yield train[np.isin(y[train], known)], test[np.isin(y[test], known)]


def evaluate(name: str, method: str) -> Iterator[dict[str, object]]:
    """Yield the errors of each split."""
    X, y, groups = load(name)
    for number, (train, test) in enumerate(splits(y, groups)):
        kept = np.sort(np.argsort(-X[train].var(axis=0))[:N_FEATURES])
        classes, codes = np.unique(y[train], return_inverse=True)
        truth = np.searchsorted(classes, y[test])
        known, new = X[np.ix_(train, kept)], X[np.ix_(test, kept)]
        start = time.process_time()
        if METHODS[method].kind != "centroid-encoder":
            axes = make_pipeline(StandardScaler(), PCA(min(N_AXES, *known.shape), random_state=0))
            known = axes.fit_transform(known)
            new = axes.transform(new)
        with warnings.catch_warnings():
            # Rivals warn of effects of their settings, which the errors show.
            warnings.simplefilter("ignore")
            found = METHODS[method].run("cells", known, codes, new, number)
        yield {
            "set": name,
            "method": method,
            "split": number,
            "n_train": len(train),
            "n_test": len(test),
            "knn_error": np.mean(found["knn"] != truth),
            "voronoi_error": np.mean(found["voronoi"] != truth),
            "balanced_knn_error": 1 - balanced_accuracy_score(truth, found["knn"]),
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
