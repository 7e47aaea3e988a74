"""The map of a reference: an AnnData, an estimator, or a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.errors import InputError, InputTypeError, MissingKeyError, check_name
from centroid_encoder.estimator import CentroidEncoder, load
from centroid_encoder.stores import check_store
from centroid_encoder.tl import _result
from centroid_encoder.tl._fitted_model import fitted_model

if TYPE_CHECKING:
    import h5py
    from anndata import AnnData


@dataclass(frozen=True)
class Reference:
    """A map, and the data of its training cells that a query takes over."""

    model: CentroidEncoder
    origin: str
    """Name of the reference."""
    classes: pd.Index
    """Sorted classes."""
    categories: pd.Index
    """Classes in the order of the categories of the label column."""
    source: Mapping[str, str]
    """Arguments of the training that name its labels and its matrix; empty for a map alone."""
    colors: list[str] | None = None
    """Colours of `categories`."""


def read_reference(
    reference: AnnData | CentroidEncoder | str | os.PathLike[str], key: str, device: str | None
) -> Reference:
    """Read the map of a reference; errors are those of `tl.ingest`."""
    from anndata import AnnData

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
    if path.is_dir():
        check_store(path)
    try:
        carrier = _read_map_only(path, key)
        return _of_anndata(carrier, key, device, path.name)
    except (InvalidStateError, MissingKeyError, PermissionError):
        raise
    # h5py, zarr and anndata raise many types of errors for damaged files.
    except Exception as error:
        raise InputError(unreadable(path.name, error)) from error


def _of_anndata(adata: AnnData, key: str, device: str | None, origin: str) -> Reference:
    stored, model = _result.read_map(adata, key), fitted_model(adata, key, device=device or "auto")
    classes, label_key, params = stored.classes, stored.label_key, stored.params
    categories, colors = classes, None
    if label_key in adata.obs:
        found = _result.label_categories(adata.obs[label_key])
        given = adata.uns.get(_result.colors_key(label_key), ())
        if classes.isin(found).all():
            categories = found[found.isin(classes)]
            if len(given) >= len(found):
                colors = [str(given[i]) for i in np.flatnonzero(found.isin(classes))]
    # A query that carries a map has the arguments of its training as well.
    names = ("label_key", "use_rep", "layer", "use_raw")
    values = {name: params.get(f"reference_{name}", params.get(name)) for name in names}
    source = {name: str(value) for name, value in values.items() if value is not None}
    return Reference(model, origin, classes, categories, source, colors)


def _of_model(model: CentroidEncoder, origin: str) -> Reference:
    check_is_fitted(model)
    classes = pd.Index(model.classes_.tolist())
    return Reference(model, origin, classes, classes, {})


def _read_map_only(path: Path, key: str) -> AnnData:
    """Read a map, its labels and their colours from a ``.h5ad`` file or a zarr store."""
    import h5py
    from anndata import AnnData
    from anndata.io import read_elem

    uns, obs = {}, pd.DataFrame()
    if path.is_dir():
        import zarr

        # Consolidated metadata may list parts that are gone, which zarr would read as zeros.
        opened: Any = nullcontext(zarr.open_group(path, mode="r", use_consolidated=False))
    else:
        opened = h5py.File(path)
    with opened as file:
        if isinstance(file, h5py.File):
            check_links(file)
        if key and key in file.get("uns", {}):
            uns[key] = read_elem(file["uns"][key])
            label_key = str(uns[key]["params"]["label_key"])
            if label_key in file["obs"]:
                obs = pd.DataFrame({label_key: read_elem(file["obs"][label_key])})
            colors_key = _result.colors_key(label_key)
            if colors_key in file["uns"]:
                uns[colors_key] = read_elem(file["uns"][colors_key])
    obs.index = obs.index.astype(str)
    return AnnData(obs=obs, uns=uns)


def check_links(file: h5py.File) -> None:
    """Raise an InputError for a link in ``obs``, ``obsm`` or ``uns`` of an HDF5 file.

    HDF5 follows links, and would read and write other files.
    """
    import h5py

    def find_link(name: str, link: object) -> str | None:
        if name.split("/")[0] not in ("obs", "obsm", "uns"):
            return None
        part = file[name] if isinstance(link, h5py.HardLink) else None
        outside = isinstance(part, h5py.Dataset) and (part.external or part.is_virtual)
        return name if part is None or outside else None

    # An error that is raised within HDF5's loop would lose its message.
    if (found := file.visititems_links(find_link)) is not None:
        raise InputError(f"/{found} is a link; put a copy of its target in its place")


def unreadable(what: str | Path, error: Exception) -> str:
    """Return one line on why a file or a store cannot be read."""
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if not isinstance(error, InputError):
        reason = f"it is damaged, incomplete, or no AnnData file ({reason})"
    return f"{what} cannot be read: {reason}"


def size_of(adata: AnnData) -> int:
    """Return about how many bytes an AnnData takes in a file."""
    slots = (adata.layers, adata.obsm, adata.obsp)
    arrays = [adata.X, *(array for slot in slots for array in slot.values())]
    # A stored value of a sparse matrix has an index.
    sizes = [12 * a.nnz if hasattr(a, "nnz") else getattr(a, "nbytes", 0) for a in arrays]
    return int(sum(sizes) + adata.obs.memory_usage(deep=True).sum())


def check_free(adata: AnnData, key: str) -> None:
    """Raise a ValueError if another tool has written under the names of the result `key`."""
    check_name(key, "key", "a result")
    if key == "ce" or _result.StoredMap.read(adata, key) is not None:
        return
    for slot, name in (("uns", key), ("obsm", _result.embedding_key(key))):
        if name in getattr(adata, slot):
            text = f"{slot}[{name!r}] exists already and is no result of centroid-encoder; choose"
            raise InputError(f"{text} another key_added, or delete it first", "key_added")
