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


def read_cells(path: Path) -> AnnData:
    """Read a ``.h5ad`` file or a ``.zarr`` store, whose matrices stay on disk, or a table.

    An OSError is raised if it may not be read, is damaged or of another kind, or contains a link.
    """
    import anndata as ad
    import h5py

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
        return ad.read_h5ad(path, backed="r")
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
    from centroid_encoder.tl._table import is_table
    from centroid_encoder.tl._writable import writable

    def put(target: Any) -> None:
        # The input may contain nullable strings, which anndata writes only on request.
        with ad.settings.override(allow_write_nullable_strings=True):
            write_elem(target, "obs", adata.obs)
            for slot in ("obsm", "uns"):
                if slot not in target:
                    write_elem(target, slot, {})
                for key, value in results.get(slot, {}).items():
                    if value is not None:
                        write_elem(target[slot], key, value)
        for key in set(target["uns"]) - set(adata.uns):  # such as colours of an earlier result
            del target["uns"][key]

    def write(new: Path) -> None:
        if is_table(source):
            writable(adata).write_h5ad(new)
        elif source.is_dir():
            try:
                shutil.copytree(source, new)
            except shutil.Error as error:  # It lists all files that were not copied.
                raise OSError(error.args[0][0][-1]) from error
            store = zarr.open_group(new, mode="r+", use_consolidated=False)
            put(store)
            zarr.consolidate_metadata(store.store)
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
