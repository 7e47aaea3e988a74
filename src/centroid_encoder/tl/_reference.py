"""The map that new cells go through, whatever carries it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.errors import InputError, InputTypeError, Problem, Setting
from centroid_encoder.estimator import CentroidEncoder, load
from centroid_encoder.tl._containers import read_carrier
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._stored import colors_key, label_categories, read_map

if TYPE_CHECKING:
    from anndata import AnnData


@dataclass(frozen=True)
class Reference:
    """A map and what is known of the cells it was trained on."""

    model: CentroidEncoder
    origin: str
    classes: pd.Index
    """Classes in the order in which they are stored."""
    params: Mapping[str, Any]
    """What `centroid_encoder` was called with; empty for a map alone."""
    colors: list[str] | None = None
    """A colour for each class."""

    def setting(self, name: str) -> str | None:
        """What `centroid_encoder` was called with; a query that carries a map knows as well."""
        value = self.params.get(f"reference_{name}", self.params.get(name))
        return None if value is None else str(value)


def read_reference(
    reference: AnnData | CentroidEncoder | str | os.PathLike[str], key: str, device: str | None
) -> Reference:
    """Read a map from what carries it.

    Raises
    ------
    TypeError
        If nothing of that kind carries a map.
    FileNotFoundError
        If there is no such file.
    KeyError
        If there is no map under that key.
    ValueError
        If a file is damaged, or a map not complete or not fitted.
    """
    from anndata import AnnData

    if isinstance(reference, AnnData):
        return _carried(reference, key, device, "an AnnData")
    if isinstance(reference, CentroidEncoder):
        return _alone(reference, "a CentroidEncoder")
    if not isinstance(reference, str | os.PathLike):
        raise InputTypeError(
            "{} must be an AnnData with a map, a CentroidEncoder or a path; got {}",
            Setting("reference"),
            type(reference).__name__,
        )
    path = Path(reference)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    if path.is_file() and path.suffix.lower() != ".h5ad":
        return _alone(load(path, device=device or "auto"), path.name)
    # A file may hold a million cells, and only the map is needed.
    carrier = read_carrier(path, key)
    try:
        return _carried(carrier, key, device, path.name)
    except (Problem, InvalidStateError, MemoryError):
        raise
    # Damaged parts of a map may have any type.
    except Exception as error:
        raise InputError(
            "{}: uns[{!r}] is damaged ({}: {})", path.name, key, type(error).__name__, error
        ) from error


def _carried(adata: AnnData, key: str, device: str | None, origin: str) -> Reference:
    stored = read_map(adata, key)
    model = fitted_model(adata, key, device=device or "auto")
    params, classes, label_key = stored.params, stored.classes, stored.label_key
    colors = None
    if label_key in adata.obs and colors_key(label_key) in adata.uns:
        categories = label_categories(adata.obs[label_key])
        named = dict(zip(categories, map(str, adata.uns[colors_key(label_key)]), strict=False))
        if set(classes) <= set(named):
            colors = [named[name] for name in classes]
    return Reference(model, origin, classes, params, colors)


def _alone(model: CentroidEncoder, origin: str) -> Reference:
    check_is_fitted(model)
    return Reference(model, origin, pd.Index(model.classes_.tolist()), {})
