"""Save tables, models and figures, completely or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem
from matplotlib.figure import Figure

from centroid_encoder import tl
from centroid_encoder.errors import InputError, check
from centroid_encoder.files import check_target, replacing, writing
from centroid_encoder.pl._axes import FORMATS, write_figure
from centroid_encoder.tables import (
    check_no_links,
    check_store_target,
    check_zarr,
    embedding_key,
    replacing_folder,
    size_of,
    writable,
)
from centroid_encoder.viewer.data.tables import Table


def save_h5ad(adata: AnnData, path: Path, without: Collection[str] = ()) -> None:
    """Write a ``.h5ad`` file; `without` are parts to leave out, as in `writable`."""
    path = check_target(path, ".h5ad")
    copy = writable(adata, without)
    with writing(path), replacing(path, size_of(copy)) as beside:
        copy.write_h5ad(beside, convert_strings_to_categoricals=False)


def save_zarr(adata: AnnData, path: Path, without: Collection[str] = ()) -> None:
    """Write a ``.zarr`` store; an existing one is replaced only if it holds an AnnData."""
    path, copy = check_store_target(path), writable(adata, without)
    check_zarr(copy)
    with replacing_folder(path, path.parent) as new, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata|zarr v3 auto|Writing zarr v2")
        copy.write_zarr(new, convert_strings_to_categoricals=False)


def save_csv(adata: AnnData, key: str, path: Path) -> None:
    """Write ``obs``, a dense ``X`` and the embedding of the result `key` as a ``.csv`` file."""
    path = check_target(path, ".csv")
    table = adata.obs.copy()
    if isinstance(adata.X, np.ndarray):
        values = adata.to_df()
        table = table.join(values[values.columns.difference(table.columns, sort=False)])
    for i, places in enumerate(np.asarray(adata.obsm.get(embedding_key(key), [])).T):
        table[f"{key}_{i + 1}"] = places
    save_frame(table, path)


def save_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a data frame as a ``.csv`` file."""
    path = check_target(path, ".csv")
    with writing(path), replacing(path) as beside:
        frame.to_csv(beside)


def save_table(table: Table, without: Collection[str] = ()) -> None:
    """Replace a table of a SpatialData object in its zarr store.

    spatialdata cannot replace an element on disk, so anndata writes the table.

    Raises
    ------
    ValueError
        If the object is not in a zarr store in a folder, or if its table is no longer this one.
    OSError
        If the store cannot be written to.
    """
    import zarr

    sdata, name = table.sdata, str(table.table_name)
    store = Path(sdata.path) if getattr(sdata, "path", None) is not None else None
    text = "this table is not in a zarr store in a folder of this computer; write the object once"
    if store is None or not (store / "tables" / name).is_dir():
        raise InputError(f"{text} with sdata.write(…), or save the table as .h5ad")
    is_there = name in sdata.tables and sdata.tables[name] is table.adata
    text = f"sdata.tables[{name!r}] is no longer the table that was chosen here; choose it again,"
    check(is_there, f"{text} or save this one as .h5ad")
    folder = store / "tables" / name
    check_no_links(store / "tables")
    before, copy = zarr.open_group(folder, mode="r"), writable(table.adata, without)
    check_zarr(copy, before.metadata.zarr_format)
    with replacing_folder(folder, store) as new:
        group = zarr.open_group(new, mode="w", zarr_format=before.metadata.zarr_format)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "zarr v3 autosharding|Writing zarr v2", UserWarning)
            write_elem(group, "/", copy)
        # Open it again: `group` lacks the attributes that anndata has written.
        group = zarr.open_group(new, mode="r+")
        annotated = table.adata.uns.get("spatialdata_attrs", {})
        # A list of regions may be stored as an array.
        attrs = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in annotated.items()}
        own = {k: v for k, v in before.attrs.items() if not k.startswith("encoding-")}
        group.attrs.update(own | attrs)
    if sdata.has_consolidated_metadata():
        sdata.write_consolidated_metadata()


def save_model(adata: AnnData, key: str, path: Path) -> None:
    """Write the map `key` as ``.safetensors``; raise a KeyError if there is none."""
    path = check_target(path, ".safetensors")
    model = tl.fitted_model(adata, key, device="cpu")
    with writing(path):
        model.save(path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file extension."""
    path = check_target(path, *(f".{name}" for name in FORMATS))
    with writing(path), replacing(path) as beside:
        write_figure(figure, beside, kind=path.suffix[1:].lower(), dpi=None)
