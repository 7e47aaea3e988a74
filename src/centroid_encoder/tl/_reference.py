"""The map of a reference: an AnnData, an estimator, or a file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import read_elem
from sklearn.utils.validation import check_is_fitted

from centroid_encoder.errors import InputTypeError, check
from centroid_encoder.estimator import CentroidEncoder, load
from centroid_encoder.tables import colors_key, opened, plain_key, reading
from centroid_encoder.tl import _result
from centroid_encoder.tl._fitted_model import fitted_model


def read_reference(
    reference: AnnData | CentroidEncoder | str | os.PathLike[str], key: str, device: str | None
) -> tuple[CentroidEncoder, str, AnnData | None]:
    """Read the map of a reference and its name; errors are those of `tl.ingest`.

    Returns also an AnnData with the stored map, its labels and colours, and loadings of PCAs; None
    for a map alone.
    """
    if isinstance(reference, CentroidEncoder):
        check_is_fitted(reference)
        return reference, "a CentroidEncoder", None
    origin = "an AnnData"
    if not isinstance(reference, AnnData):
        text = "reference must be an AnnData with a map, a CentroidEncoder or a path; got"
        is_path = isinstance(reference, str | os.PathLike)
        check(is_path, f"{text} {type(reference).__name__}", "reference", InputTypeError)
        path = Path(reference)
        if not path.exists():
            raise FileNotFoundError(f"there is no file {str(path)!r}")
        origin = path.name
        if path.is_file() and path.suffix.lower() != ".h5ad":
            return load(path, device=device or "auto"), origin, None
        with reading(path), opened(path) as file:
            # Cells are not read.
            obs, uns = read_elem(file["obs"]), file.get("uns", {})
            wanted = {plain_key(key), *map(colors_key, obs)}.intersection(uns)
            uns = {name: read_elem(uns[name]) for name in wanted}
            parts = {name: read_elem(file[name]) for name in ("var", "varm") if name in file}
            reference = AnnData(obs=obs, uns=uns, **parts)
    return fitted_model(reference, key, device=device or "auto"), origin, reference


def categories_of(
    reference: AnnData, label_key: str, classes: pd.Index
) -> tuple[pd.Index, list[str] | None]:
    """Return the classes in the order of the label column, and their colours, if it has some."""
    if label_key not in reference.obs:
        return classes, None
    found = _result.label_categories(reference.obs[label_key])
    colors = list(map(str, reference.uns.get(colors_key(label_key), ())))
    if not classes.isin(found).all():
        return classes, None
    used = np.flatnonzero(found.isin(classes))
    return found[used], [colors[i] for i in used] if len(colors) >= len(found) else None


def loadings_of(adata: AnnData, use_rep: str | None) -> pd.DataFrame | None:
    """Return the loadings of a PCA of scanpy, a row for each feature; None if there are none."""
    name = "PCs" if use_rep == "X_pca" else use_rep
    if name not in adata.varm:
        return None
    # They may be NaN for features that took no part in the PCA.
    loadings = pd.DataFrame(adata.varm[name], adata.var_names).fillna(0.0)
    return loadings[~loadings.index.duplicated()]


def check_space(
    adata: AnnData, use_rep: str, reference: AnnData, trained_on: str | None, *, is_chosen: bool
) -> None:
    """Raise an InputError unless ``obsm[use_rep]`` has the axes of the representation `trained_on`.

    If both have loadings of a PCA, these must be equal. Otherwise the user must have chosen
    `use_rep`, since columns without names cannot be compared.
    """
    own, theirs = loadings_of(adata, use_rep), loadings_of(reference, trained_on)
    where = f"obsm[{use_rep!r}]"
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
