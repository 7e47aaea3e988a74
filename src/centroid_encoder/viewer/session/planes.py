"""Pictures of the cells that were made without labels: two columns of ``obsm``, or components."""

from __future__ import annotations

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.errors import check
from centroid_encoder.pl._values import read_values
from centroid_encoder.tl._matrix import in_memory
from centroid_encoder.tl._positions import numbers

Plane = str | tuple[str, str]
"""Name of a representation, or of two columns."""
COMPONENTS = "principal components"
LIKED = ("X_umap", "X_tsne", "X_pca")
"""Representations of scanpy in the order in which they are preferred."""
MAX_VALUES = 100_000_000
"""Largest number of values whose components are computed."""


def representations(adata: AnnData) -> list[str]:
    """Return the representations of at least two columns without those of maps, the liked first."""
    own = [name for name in adata.obsm if f"{name.removeprefix('X_')}_split" in adata.obs]
    names = [str(name) for name in adata.obsm if name not in own]
    names = [name for name in names if _plane(adata.obsm[name]) is not None]
    return sorted(names, key=lambda name: LIKED.index(name) if name in LIKED else len(LIKED))


def first_plane(adata: AnnData) -> str | None:
    """Return the representation that is shown without labels, or `COMPONENTS`; None for neither."""
    known = [name for name in representations(adata) if name in LIKED]
    n_values = getattr(adata.X, "nnz", adata.n_obs * adata.n_vars)
    computable = adata.X is not None and min(adata.shape) > 1 and n_values <= MAX_VALUES
    return next(iter(known), COMPONENTS if computable else None)


def plane_of(adata: AnnData, plane: Plane) -> NDArray[np.floating] | None:
    """(n_obs, 2) places of the cells; None if the representation has been deleted.

    They are the first two columns of a representation, or two columns of ``obs`` or variables of X.
    Raises a KeyError if there is no such column, and a ValueError if it does not hold numbers.
    """
    if isinstance(plane, str):
        found = _plane(adata.obsm.get(plane))
        # Images have their first row at the top.
        return found if found is None or not plane.startswith("spatial") else found * [1, -1]
    columns = [read_values(adata, name) for name in plane]
    for one in columns:
        check(one.colors is None, f"{one.name!r} does not hold numbers; choose another column")
    return np.column_stack([np.asarray(one.values, dtype=np.float64) for one in columns])


def title_of(plane: Plane) -> str:
    """Return the name of a plane, and what is known of it."""
    name = plane.removeprefix("X_") if isinstance(plane, str) else " and ".join(plane)
    return f"{name}\nmade without labels: no error is known"


def components(adata: AnnData) -> NDArray[np.floating]:
    """(n_obs, 2) first principal components of X, whose columns are scaled if it is dense.

    Cells with missing values have none.
    """
    # Imported here, since it is slow.
    from sklearn.decomposition import PCA

    X, is_narrow = in_memory(adata.X), adata.n_vars <= 1000
    if sparse.issparse(X):
        solver = "covariance_eigh" if is_narrow else "arpack"
        return np.asarray(PCA(2, svd_solver=solver, random_state=0).fit_transform(X))
    X = np.asarray(X, dtype=np.float32)
    there = np.isfinite(X).all(axis=1)
    found = np.full((len(X), 2), np.nan)
    if there.sum() > 1:
        values = X[there] - X[there].mean(axis=0)
        values /= np.where(values.std(axis=0) > 0, values.std(axis=0), 1)
        solver = "covariance_eigh" if is_narrow else "randomized"
        found[there] = PCA(2, svd_solver=solver, random_state=0).fit_transform(values)
    return found


def _plane(values: object) -> NDArray[np.floating] | None:
    found = numbers(values)
    return None if found is None or found.shape[1] < 2 else found[:, :2]
