"""The map of a reference: an AnnData, an estimator, or a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import read_elem
from sklearn.utils.validation import check_is_fitted

from centroid_encoder.errors import InputTypeError, check
from centroid_encoder.estimator import CentroidEncoder, load
from centroid_encoder.stores import opened, reading
from centroid_encoder.tl import _result
from centroid_encoder.tl._cells import Source
from centroid_encoder.tl._fitted_model import fitted_model


@dataclass
class Reference:
    """A map, and the properties of its reference that are copied to the results of a query."""

    model: CentroidEncoder
    origin: str
    """Name of the reference."""
    categories: pd.Index
    """Classes in the order of the categories of the label column."""
    label_key: str | None = None
    """Label column of the training; None for a map alone."""
    source: Source | None = None
    """Where the values of the training cells are; None for a map alone."""
    colors: list[str] | None = None
    """Colours of `categories`."""
    loadings: pd.DataFrame | None = None
    """Loadings of the PCA whose components the map takes, see `loadings_of`."""


def read_reference(
    reference: AnnData | CentroidEncoder | str | os.PathLike[str], key: str, device: str | None
) -> Reference:
    """Read the map of a reference; errors are those of `tl.ingest`."""
    if isinstance(reference, AnnData):
        return _of_anndata(reference, key, device, "an AnnData")
    if isinstance(reference, CentroidEncoder):
        return _of_model(reference, "a CentroidEncoder")
    if not isinstance(reference, str | os.PathLike):
        text = "reference must be an AnnData with a map, a CentroidEncoder or a path; got"
        raise InputTypeError(f"{text} {type(reference).__name__}", parameter="reference")
    path = Path(reference)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if path.is_file() and path.suffix.lower() != ".h5ad":
        return _of_model(load(path, device=device or "auto"), path.name)
    with reading(path), opened(path) as file:
        # Only the map, its labels and their colours, and loadings of a PCA are read.
        obs, uns = read_elem(file["obs"]), file.get("uns", {})
        wanted = {_result.plain_key(key), *map(_result.colors_key, obs)}.intersection(uns)
        uns = {name: read_elem(uns[name]) for name in wanted}
        parts = {name: read_elem(file[name]) for name in ("var", "varm") if name in file}
        adata = AnnData(obs=obs, uns=uns, **parts)
    return _of_anndata(adata, key, device, path.name)


def _of_model(model: CentroidEncoder, origin: str) -> Reference:
    check_is_fitted(model)
    return Reference(model, origin, pd.Index(model.classes_.tolist()))


def _of_anndata(adata: AnnData, key: str, device: str | None, origin: str) -> Reference:
    stored = _result.read_map(adata, key)
    known = _of_model(fitted_model(adata, key, device=device or "auto"), origin)
    # The labels of ingested cells are predictions of a map that was trained on other labels.
    known.label_key = stored.params.get("reference_label_key", stored.label_key)
    known.source, known.loadings = stored.source, loadings_of(adata, stored.source.use_rep)
    if stored.label_key in adata.obs:
        found = _result.label_categories(adata.obs[stored.label_key])
        given = adata.uns.get(_result.colors_key(stored.label_key), ())
        if known.categories.isin(found).all():
            used = found.isin(known.categories)
            known.categories = found[used]
            if len(given) >= len(found):
                known.colors = [str(given[i]) for i in np.flatnonzero(used)]
    return known


def loadings_of(adata: AnnData, use_rep: str | None) -> pd.DataFrame | None:
    """Return the loadings of a PCA of scanpy, a row for each feature; None if there are none."""
    name = "PCs" if use_rep == "X_pca" else use_rep
    if name not in adata.varm:
        return None
    # They may be NaN for features that took no part in the PCA.
    loadings = pd.DataFrame(adata.varm[name], adata.var_names).fillna(0.0)
    return loadings[~loadings.index.duplicated()]


def check_space(adata: AnnData, use_rep: str, known: Reference, *, is_chosen: bool) -> None:
    """Raise an InputError unless ``obsm[use_rep]`` has the axes of the reference.

    If both have loadings of a PCA, these must be equal. Otherwise the user must have chosen
    `use_rep`, since columns without names cannot be compared.
    """
    own, theirs, where = loadings_of(adata, use_rep), known.loadings, f"obsm[{use_rep!r}]"
    if own is None or theirs is None:
        text = (
            f"{where} has no names of columns, so that its axes may differ from those of the "
            "reference; if they are the same (one model or one PCA made both), pass "
            f"use_rep={use_rep!r}"
        )
        check(is_chosen, text, "use_rep")
        return
    names = own.index.intersection(theirs.index)
    mine, others = own.loc[names].to_numpy(), theirs.loc[names].to_numpy()
    equal = mine.shape == others.shape and others.any() and np.allclose(mine, others, atol=1e-5)
    text = (
        f"{where} comes from another PCA than that of the reference, so that its axes differ; "
        "project these cells by the loadings of the reference (the help of ce.tl.ingest has an "
        "example), and delete their own loadings from varm"
    )
    check(equal, text, "use_rep")
