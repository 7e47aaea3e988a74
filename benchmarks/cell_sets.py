"""Data sets of cells, and their splits into training and held-out cells.

All methods are compared on the same splits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold

from benchmarks import datasets

N_FOLDS = 5
N_FEATURES = 2000
"""Largest number of features that are used."""
MIN_CLASS_SIZE = 5
"""Smallest number of training cells of a class; smaller classes are left out of a split."""
SETS: dict[str, tuple[str, str, str | None]] = {
    "pbmc3k": ("pbmc3k/pbmc3k_annotated.h5ad", "classified", None),
    "pbmc_3tech": ("pbmc_3tech/pbmc_3tech.h5ad", "cell_type", "donor"),
    "paul15": ("paul15/paul15_240genes.h5ad", "celltype", None),
    "pbmc68k_reduced": ("", "bulk_labels", None),
    "vectra_6plex": ("vectra_6plex/cells.h5ad", "phenotype", None),
    "scimap_example": ("scimap_example/example_data.h5ad", "phenotype", None),
}
"""File in the data folder, label column, and column of donors (or None) of each data set.

scanpy ships the data set without a file.
"""


class Split(NamedTuple):
    """Training and held-out cells. Class indices refer to the sorted classes in training."""

    X: NDArray[np.float32]
    """(n_train, d) training cells, with the features of largest variance among these cells."""
    codes: NDArray[np.intp]
    """(n_train,) class indices of the training cells."""
    X_test: NDArray[np.float32]
    """(n_test, d) held-out cells, with the same features."""
    truth: NDArray[np.intp]
    """(n_test,) class indices of the held-out cells."""
    train: NDArray[np.intp]
    """(n_train,) rows of the training cells in the data set."""
    test: NDArray[np.intp]
    """(n_test,) rows of the held-out cells in the data set."""
    kept: NDArray[np.intp]
    """(d,) columns of the features in the data set."""


def load(name: str) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any] | None]:
    """Return the (n, d) features, the (n,) labels and the (n,) donors, if any, of a data set."""
    path, label_key, group_key = SETS[name]
    adata = datasets.read_h5ad(path) if path else pbmc68k()
    X = adata.X if isinstance(adata.X, np.ndarray) else adata.X.toarray()
    X = np.nan_to_num(X.astype(np.float32))
    if name == "paul15":
        X = datasets.log_normalized(X)
    groups = None if group_key is None else adata.obs[group_key].astype(str).to_numpy()
    return X, adata.obs[label_key].astype(str).to_numpy(), groups


def pbmc68k() -> AnnData:
    """Return the 700 blood cells that scanpy ships."""
    import scanpy as sc

    return sc.datasets.pbmc68k_reduced()


def splits(X: NDArray[np.float32], y: NDArray[Any], groups: NDArray[Any] | None) -> Iterator[Split]:
    """Yield five stratified folds, or one split for each group, which is then held out."""
    folds: Any = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    if groups is not None:
        folds = LeaveOneGroupOut()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        for train, test in folds.split(y, y, groups):
            names, counts = np.unique(y[train], return_counts=True)
            known = names[counts >= MIN_CLASS_SIZE]
            train, test = train[np.isin(y[train], known)], test[np.isin(y[test], known)]
            kept = np.sort(np.argsort(-X[train].var(axis=0))[:N_FEATURES])
            classes, codes = np.unique(y[train], return_inverse=True)
            truth = np.searchsorted(classes, y[test])
            yield Split(
                X[np.ix_(train, kept)], codes, X[np.ix_(test, kept)], truth, train, test, kept
            )
