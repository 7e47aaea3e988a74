"""Reading of ``.h5ad`` files and zarr stores, and writing of all results or none."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from centroid_encoder.files import check_space, replacing_all, writing
from centroid_encoder.stores import check_store

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._run import Results

Write = Callable[[Path], object]
KINDS = (None, "", "anndata", "array", "csr_matrix", "csc_matrix")
"""Kinds of the whole file and of X; older versions of anndata wrote none."""


def read_cells(path: Path) -> AnnData:
    """Read a ``.h5ad`` file or a ``.zarr`` store, whose matrices stay on disk, or a table.

    An OSError is raised if it may not be read, is damaged or of another kind, or contains a link.
    """
    import anndata as ad
    import h5py

    from centroid_encoder.errors import InputError
    from centroid_encoder.tl._reference import check_links, unreadable
    from centroid_encoder.tl._table import is_table, read_table

    if is_table(path):
        return read_table(path)
    if path.is_dir():
        check_store(path)
    try:
        if path.is_dir():
            return _read_store(path)
        with h5py.File(path) as file:
            check_links(file)
            X = file.get("X")
            for part in filter(None, (file, X)):
                if (kind := part.attrs.get("encoding-type")) not in KINDS:
                    raise InputError(f"{part.name} is of the unknown kind {kind}")
            if isinstance(X, h5py.Group) and not {"data", "indices", "indptr"} <= set(X):
                raise InputError("a part of the sparse matrix X is missing")
            # A table of anndata 0.6 or earlier, or without X, cannot be backed and extended.
            is_old = any(isinstance(file.get(x), h5py.Dataset) for x in ("obs", "obsm", "uns"))
        adata = ad.read_h5ad(path, backed=None if is_old or X is None else "r")
        if X is not None and adata.X.shape != adata.shape:
            raise InputError(f"X is of shape {adata.X.shape}, but obs and var of {adata.shape}")
        return adata
    except PermissionError as error:
        raise PermissionError(f"{path} may not be read") from error
    # h5py, zarr and anndata raise many kinds of errors for damaged files.
    except Exception as error:
        raise OSError(unreadable(path, error)) from error


def _read_store(path: Path) -> AnnData:
    """Read a zarr store; X, that of ``raw``, layers, obsm and obsp stay on disk."""
    import zarr
    from anndata.experimental import read_dispatched
    from anndata.io import sparse_dataset

    def read(func: Callable[[Any], Any], name: str, part: Any, *, iospec: Any) -> Any:
        name = name.strip("/")
        if name in ("X", "raw/X") or name.startswith(("layers/", "obsm/", "obsp/")):
            if iospec.encoding_type in ("csr_matrix", "csc_matrix"):
                return sparse_dataset(part)
            if iospec.encoding_type == "array":
                return part
        return func(part)

    # Consolidated metadata can list missing arrays, which would be read as zeros.
    store = zarr.open_group(path, mode="r", use_consolidated=False)
    # This raises a KeyError if one of the two is missing. AnnData would create a new one.
    store["obs"], store["var"]
    return cast("AnnData", read_dispatched(store, read))


def with_results(source: Path, adata: AnnData, results: Results) -> Write:
    """Return a function that writes a copy of `source` with the results of a job in `adata`."""
    import anndata as ad
    import h5py
    import zarr
    from anndata.io import write_elem

    from centroid_encoder.tl._size import size_of
    from centroid_encoder.tl._writable import writable, writable_frame

    def put(target: Any) -> None:
        # The input may contain nullable strings, which anndata writes only on request.
        with ad.settings.override(allow_write_nullable_strings=True):
            write_elem(target, "obs", writable_frame(adata.obs, "obs"))
            for slot in ("obsm", "uns"):
                if slot not in target:
                    write_elem(target, slot, {})
                for key, value in results.get(slot, {}).items():
                    if value is not None:
                        write_elem(target[slot], key, value)
        for key in set(target["uns"]) - set(adata.uns):  # such as colours of an earlier result
            del target["uns"][key]

    def write(new: Path) -> None:
        if source.is_dir():
            try:
                shutil.copytree(source, new)
            except shutil.Error as error:  # It lists all files that were not copied.
                raise OSError(error.args[0][0][-1]) from error
            store = zarr.open_group(new, mode="r+", use_consolidated=False)
            put(store)
            zarr.consolidate_metadata(store.store)
        elif not adata.isbacked:
            writable(adata).write_h5ad(new)
        else:
            check_space(new.parent, source.stat().st_size + size_of({**results, "obs": adata.obs}))
            shutil.copyfile(source, new)
            with h5py.File(new, "a") as file:
                put(file)

    return write


def write_all(files: Mapping[Path, Write]) -> None:
    """Write all files or, after an error, none; the first one is renamed last."""
    with replacing_all(files) as news, warnings.catch_warnings():
        text = "Consolidated metadata|zarr v3 auto|Writing zarr v2"
        warnings.filterwarnings("ignore", text)
        for new, (path, write) in zip(news, files.items(), strict=True):
            with writing(path):
                write(new)
