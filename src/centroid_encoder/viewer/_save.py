"""Save tables, models and figures: completely, or not at all."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from anndata import AnnData
from anndata.io import write_elem

from centroid_encoder import tl
from centroid_encoder.files import check_space, check_target, replacing, writing
from centroid_encoder.pl._axes import FORMATS, write_figure
from centroid_encoder.stores import check_no_links, check_store_target, replacing_folder
from centroid_encoder.tl._reference import size_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from centroid_encoder.viewer.data.tables import Table

StrPath = str | os.PathLike[str]

_PARTS = ("uns", "obsm", "varm", "obsp", "varp", "layers")


def save_h5ad(adata: AnnData, path: StrPath) -> None:
    """Write a ``.h5ad`` file that holds all of `adata`, which itself stays as it is.

    Parameters
    ----------
    adata
        Annotated data; may be a view, or backed by another file.
    path
        File to write; its folder must exist. A file of that name is replaced once the new one is
        complete, and keeps its permissions.

    Raises
    ------
    ValueError
        If the name does not end in ``.h5ad``, if `adata` reads its matrix from this very file, or
        if it holds something that such a file cannot; the message says where.
    OSError
        If there is no such folder, if it may not be written to, or if the disk is full.
    """
    path = check_target(path, ".h5ad")
    if adata.isbacked and path.exists() and os.path.samefile(path, adata.filename):
        raise ValueError(
            f"the table reads its matrix from {path.name} itself, which can thus not be replaced; "
            "choose another name"
        )
    with writing(path), replacing(path, size_of(adata)) as beside, h5py.File(beside, "w") as file:
        _write(file, adata)


def save_zarr(adata: AnnData, path: StrPath) -> None:
    """Write a ``.zarr`` store, which is a folder, that holds all of `adata`, which stays as it is.

    Parameters
    ----------
    adata
        Annotated data; may be a view.
    path
        Folder to write. A store of an AnnData of that name is replaced once the new one is
        complete, and keeps its permissions and its version of the format.

    Raises
    ------
    ValueError
        If the name does not end in ``.zarr``, or if `adata` holds something that a store cannot;
        the message says where.
    OSError
        If there is no such folder around it, if what has that name is no store of an AnnData, if
        it may not be written to, or if the disk is full.
    """
    import zarr

    path, version = check_store_target(path)
    with replacing_folder(path, path.parent) as new:
        _write_zarr(new, adata, version)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Consolidated metadata", UserWarning)
            zarr.consolidate_metadata(new)


def save_table(table: Table) -> None:
    """Update a table of a SpatialData object in its zarr store; everything else there stays.

    The new table is written beside the old one, which is moved away only when the new one is
    complete, and back if that cannot take its place.

    Raises
    ------
    ValueError
        If the object is not in a zarr store in a folder, if its table is no longer this one, or if
        it holds something that a store cannot; the message says where.
    OSError
        If the store may not be written to, or if the disk is full.
    """
    import zarr

    folder, store = _on_disk(table)
    if not folder.exists():
        # Nothing to lose: SpatialData knows best what a new table needs.
        with writing(store):
            table.sdata.write_element(table.table_name)
    else:
        check_no_links(store / "tables")
        with replacing_folder(folder, store) as new:
            before = zarr.open_group(folder, mode="r")
            group = _write_zarr(new, table.adata, before.metadata.zarr_format)
            _annotate(group, before.attrs, table.adata)
    if table.sdata.has_consolidated_metadata():
        table.sdata.write_consolidated_metadata()


def _write_zarr(folder: Path, adata: AnnData, version: Any) -> Any:
    """Write an AnnData into a new store, in this version of the format."""
    import zarr

    check_space(folder.parent, size_of(adata))
    group = zarr.open_group(folder, mode="w", zarr_format=version)
    with warnings.catch_warnings():
        # AnnData to its users about zarr; napari would show it to ours.
        warnings.filterwarnings("ignore", "zarr v3 autosharding|Writing zarr v2", UserWarning)
        _write(group, adata)
    # `group` itself has none of the attributes that AnnData has written.
    return zarr.open_group(folder, mode="r+")


def save_model(adata: AnnData, key: str, path: StrPath) -> None:
    """Write the map that `tl.centroid_encoder` stored under `key` as ``.safetensors``.

    Raises
    ------
    KeyError
        If there is no map under that key.
    ValueError
        If the name does not end in ``.safetensors``, or if what is stored is not a complete map.
    OSError
        If there is no such folder, if it may not be written to, or if the disk is full.
    """
    path = check_target(path, ".safetensors")
    model = tl.fitted_model(adata, key, device="cpu")
    with writing(path):
        model.save(path)


def save_figure(figure: Figure, path: StrPath, *, dpi: int | None = None) -> None:
    """Write a figure in the format that its name ends in.

    Raises
    ------
    ValueError
        If matplotlib cannot write such a format.
    OSError
        If there is no such folder, if it may not be written to, or if the disk is full.
    """
    path = check_target(path, *(f".{name}" for name in FORMATS))
    with writing(path), replacing(path) as beside:
        write_figure(figure, beside, kind=path.suffix[1:].lower(), dpi=dpi)


def _on_disk(table: Table) -> tuple[Path, Path]:
    """Folders of the table and of its store."""
    sdata, name = table.sdata, str(table.table_name)
    path = getattr(sdata, "path", None)
    if path is None:
        raise ValueError(
            "this SpatialData object is in memory only; write it once with sdata.write(…), or save "
            "the table as .h5ad"
        )
    store = Path(path)
    if not (store / "tables").is_dir():
        raise ValueError(
            f"{path} is not a zarr store in a folder of this computer; save the table as .h5ad"
        )
    if name not in sdata.tables or sdata.tables[name] is not table.adata:
        raise ValueError(
            f"sdata.tables[{name!r}] is no longer the table that was chosen here; choose it again, "
            "or save this one as .h5ad"
        )
    return store / "tables" / name, store


def _annotate(group: Any, before: Mapping[str, Any], adata: AnnData) -> None:
    """Put SpatialData's own attributes on a table, as they were or as the table says now."""
    group.attrs.update(
        {name: value for name, value in before.items() if not name.startswith("encoding-")}
    )
    annotated = adata.uns.get("spatialdata_attrs")
    for name in ("region", "region_key", "instance_key"):
        if annotated is not None:
            value = annotated.get(name)
            group.attrs[name] = value.tolist() if isinstance(value, np.ndarray) else value


def _write(store: Any, adata: AnnData) -> None:
    """Write an AnnData into an open HDF5 file or zarr group."""
    # AnnData's own writers turn strings to categories in the caller's table, make a copy of a view,
    # and close a backed file: here this happens to a shell that shares all else.
    shell = AnnData(
        obs=adata.obs.copy(),
        var=adata.var.copy(),
        **{part: _part(adata, part) for part in _PARTS},
    )
    try:
        shell.strings_to_categoricals()
        write_elem(store, "/", shell)
        # The shell would read a matrix that is on disk into memory.
        for part in ("X", "raw"):
            if getattr(adata, part) is not None:
                write_elem(store, part, getattr(adata, part))
    except (OSError, RuntimeError):
        raise
    except Exception as error:  # AnnData raises many kinds.
        entries = _entries(shell, adata.raw)
        unwritable = [where for where, value in entries if not _can_hold(store, value)]
        if not unwritable:
            raise
        raise ValueError(
            f"a saved table cannot hold {', '.join(unwritable[:5])}"
            f"{' …' if len(unwritable) > 5 else ''}; change or delete it, then save again"
        ) from error


def _entries(adata: AnnData, raw: Any) -> Iterator[tuple[str, Any]]:
    """All that an AnnData consists of but matrices, as (where it is, itself)."""
    frames = {"obs": adata.obs, "var": adata.var}
    if raw is not None:
        frames["raw.var"] = raw.var
    for name, frame in frames.items():
        for i, column in enumerate(frame.columns):
            yield f"{name}[{column!r}]", frame.iloc[:, [i]]
    for part in _PARTS:
        yield from _leaves(part, _part(adata, part))


def _part(adata: AnnData, part: str) -> dict[Any, Any]:
    found = dict(getattr(adata, part))
    if part == "layers":
        found.pop(None, None)  # anndata 0.13 counts X among the layers, by the name None.
    return found


def _leaves(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield f"{where} ({type(value).__name__})", value
        return
    for key, item in value.items():
        if isinstance(key, str):
            yield from _leaves(f"{where}[{key!r}]", item)
        else:
            yield f"{where} with the key {key!r}, which is no string", {key: None}


def _can_hold(store: Any, value: Any) -> bool:
    """Whether a value can be written; into the file or group that is given up anyway."""
    try:
        write_elem(store, "probe", value)
    except Exception:  # As above.
        return False
    return True
