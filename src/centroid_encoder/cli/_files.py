"""Reading ``.h5ad`` files and zarr stores, and writing several files, all of them or none."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import anndata as ad
import h5py
from anndata import AnnData
from anndata.experimental import read_dispatched
from anndata.io import read_elem, sparse_dataset, write_elem

from centroid_encoder.files import check_space, replacing_all, writing
from centroid_encoder.stores import check_store, check_store_target
from centroid_encoder.tl._reference import check_links, size_of, unreadable

Write = Callable[[Path], object]


def read_cells(path: Path, *, matrix: bool = True) -> AnnData:
    """Read a ``.h5ad`` file or a ``.zarr`` store, without its matrix if that can wait.

    Raises
    ------
    OSError
        If the file may not be read, is damaged, or of another kind, or if a store contains a link.
    """
    if path.is_dir():
        check_store(path)
    try:
        if path.is_dir():
            import zarr

            # Consolidated metadata may list arrays that are gone; they would be read as zeros.
            store = zarr.open_group(path, mode="r", use_consolidated=False)
            return ad.read_zarr(store) if matrix else _without_matrix(store)
        with h5py.File(path) as file:
            check_links(file)
        return ad.read_h5ad(path, backed=None if matrix else "r")
    except PermissionError as error:
        raise PermissionError(f"{path} may not be read") from error
    # h5py, zarr and anndata raise many kinds of errors for damaged files.
    except Exception as error:
        raise OSError(unreadable(path, error)) from error


def _without_matrix(store: Any) -> AnnData:
    """Read a zarr store; X, that of ``raw``, layers, obsm and obsp stay on disk."""

    def read(func: Callable[[Any], Any], name: str, part: Any, *, iospec: Any) -> Any:
        if iospec.encoding_type == "anndata":
            # A KeyError if one of the two is missing; AnnData would make a new one.
            part["obs"], part["var"]
            return AnnData(**{key: read_dispatched(part[key], read) for key in part})
        name = name.strip("/")
        if name in ("X", "raw/X") or name.startswith(("layers/", "obsm/", "obsp/")):
            if iospec.encoding_type in ("csr_matrix", "csc_matrix"):
                return sparse_dataset(part)
            if iospec.encoding_type == "array":
                return part
        return func(part)

    return cast("AnnData", read_dispatched(store, read))


def with_results(
    source: Path, output: Path, adata: AnnData, *, obsm: list[str], uns: list[str]
) -> Write:
    """Return a function that writes a copy of the input with the results in `adata`.

    The rest of the input is copied as it is, with its compression. Between a file and a zarr store
    it is read and written part by part.

    Parameters
    ----------
    source
        File or store that `adata` was read from.
    output
        Its name in the end, whose ending chooses between a file and a store.
    adata
        Annotated data with results.
    obsm, uns
        Keys to write. All columns of ``adata.obs`` are written.
    """

    def write(beside: Path) -> None:
        results = adata.obs.memory_usage(deep=True).sum() + sum(adata.obsm[k].nbytes for k in obsm)
        check_space(beside.parent, _size(source) + results)
        # The input may hold nullable strings, so the output may as well.
        with (
            ad.settings.override(allow_write_nullable_strings=True),
            _new_store(beside, output, source)
            if is_store(output)
            else _hdf5_copy(source, beside) as copy,
        ):
            write_elem(copy, "obs", adata.obs)
            for slot, keys in (("obsm", obsm), ("uns", uns)):
                if slot not in copy:
                    write_elem(copy, slot, {})
                for key in keys:
                    write_elem(copy[slot], key, getattr(adata, slot)[key])

    return write


def whole(adata: AnnData, output: Path) -> Write:
    """Return a function that writes an AnnData; `output` is as for `with_results`."""

    def write(beside: Path) -> None:
        check_space(beside.parent, size_of(adata))
        with _new_store(beside, output) if is_store(output) else h5py.File(beside, "w") as target:
            write_elem(target, "/", adata)

    return write


def is_store(path: Path) -> bool:
    """Whether a name is that of a zarr store."""
    return path.suffix.lower() == ".zarr"


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    return sum(part.stat().st_size for part in [path, *path.rglob("*")] if part.is_file())


@contextmanager
def _hdf5_copy(source: Path, path: Path) -> Iterator[h5py.File]:
    """Yield a copy of a file or store as a new file."""
    if not source.is_dir():
        shutil.copyfile(source, path)
    with h5py.File(path, "a") as file:
        if source.is_dir():
            import zarr

            _copy_parts(zarr.open_group(source, mode="r"), file)
        yield file


@contextmanager
def _new_store(beside: Path, output: Path, source: Path | None = None) -> Iterator[Any]:
    """Yield a new zarr store, which is a copy of `source` if that is given."""
    import zarr

    with warnings.catch_warnings():
        text = "Consolidated metadata|zarr v3 auto|Writing zarr v2"
        warnings.filterwarnings("ignore", text, Warning)
        if source is not None and source.is_dir():
            shutil.copytree(source, beside)
            group = zarr.open_group(beside, mode="r+", use_consolidated=False)
        else:
            _, version = check_store_target(output)
            group = zarr.open_group(beside, mode="w", zarr_format=version)
            if source is not None:
                with h5py.File(source, "r") as file:
                    _copy_parts(file, group)
        yield group
        zarr.consolidate_metadata(group.store)


def _copy_parts(source: Any, target: Any) -> None:
    """Copy an AnnData between a file and a store, one part after the other."""
    target.attrs.update(source.attrs)
    for name in source:
        write_elem(target, name, read_elem(source[name]))


def write_all(files: Mapping[Path, Write]) -> None:
    """Write several files, all of them or none.

    Parameters
    ----------
    files
        For each path, a function that writes a new file. The first one is renamed last.

    Raises
    ------
    OSError
        If a file cannot be written; the old files are then as they were.
    """
    with replacing_all(files) as news:
        for new, (path, write) in zip(news, files.items(), strict=True):
            with writing(path):
                if is_store(path):
                    check_store_target(path)
                else:
                    new.touch()
                write(new)
