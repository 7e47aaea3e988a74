"""Reading ``.h5ad`` files and zarr stores, and writing several, all of them or none."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from centroid_encoder.files import check_space, flush, replacing_all, writing
from centroid_encoder.stores import check_store, check_store_target

if TYPE_CHECKING:
    from anndata import AnnData

Write = Callable[[Path], object]


def read_cells(path: Path, *, matrix: bool = True) -> AnnData:
    """Read a ``.h5ad`` file or a ``.zarr`` store, without its matrix if that can wait.

    Raises
    ------
    OSError
        If the file may not be read, is damaged, or of another kind, or if a store contains a link.
    """
    import anndata as ad

    from centroid_encoder.tl._containers import check_links, unreadable

    if path.is_dir():
        check_store(path)
    try:
        if path.is_dir():
            import zarr

            # What its summary says is there may be gone, and would be read as zeros.
            store = zarr.open_group(path, mode="r", use_consolidated=False)
            return ad.read_zarr(store) if matrix else _without_matrix(store)
        import h5py

        with h5py.File(path) as file:
            check_links(file)
        return ad.read_h5ad(path, backed=None if matrix else "r")
    except PermissionError as error:
        raise PermissionError(f"{path} may not be read") from error
    # h5py, zarr and anndata raise many kinds of errors for damaged files.
    except Exception as error:
        raise OSError(unreadable(path, error)) from error


def _without_matrix(store: Any) -> AnnData:
    """Read a zarr store; X, that of ``raw``, layers, obsm and obsp stay where they are."""
    from anndata import AnnData
    from anndata.experimental import read_dispatched
    from anndata.io import sparse_dataset

    def read(func: Callable[[Any], Any], name: str, part: Any, *, iospec: Any) -> Any:
        if iospec.encoding_type == "anndata":
            # AnnData would make what is gone.
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


def identity(path: Path) -> bytes:
    """Tell a file or store from what may once have that name: sizes and times of its files."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    told = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return repr(told).encode()


def with_results(
    source: Path, output: Path, adata: AnnData, *, obsm: list[str], uns: list[str]
) -> Write:
    """Return what writes a copy of the input with the results that `adata` holds now.

    All else is copied as it is, compression included, and never read; but where one of the two is a
    file and the other a zarr store, it is read and written part by part.

    Parameters
    ----------
    source
        File or store that `adata` was read from.
    output
        What it will be in the end: its ending says whether that is a store.
    adata
        Annotated data with results.
    obsm, uns
        Their keys; the columns of ``adata.obs`` are written in any case.
    """

    def write(beside: Path) -> None:
        from anndata import settings
        from anndata.io import write_elem

        results = adata.obs.memory_usage(deep=True).sum() + sum(adata.obsm[k].nbytes for k in obsm)
        check_space(beside.parent, _size(source) + results)
        # The input may hold nullable strings, so the output may as well.
        with (
            settings.override(allow_write_nullable_strings=True),
            _zarr_copy(source, beside, output)
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
    """Return what writes an AnnData that is in no file yet; `output` is as for `with_results`."""

    def write(beside: Path) -> None:
        import h5py
        from anndata.io import write_elem

        from centroid_encoder.tl._containers import size_of

        check_space(beside.parent, size_of(adata))
        if not is_store(output):
            with h5py.File(beside, "w") as file:
                write_elem(file, "/", adata)
            return
        import zarr

        _, version = check_store_target(output)
        with _zarr_quiet():
            group = zarr.open_group(beside, mode="w", zarr_format=version)
            write_elem(group, "/", adata)
            zarr.consolidate_metadata(group.store)

    return write


def is_store(path: Path) -> bool:
    """Whether a name is that of a zarr store."""
    return path.suffix.lower() == ".zarr"


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    return sum(part.stat().st_size for part in [path, *path.rglob("*")] if part.is_file())


@contextmanager
def _hdf5_copy(source: Path, path: Path) -> Iterator[Any]:
    import h5py

    if source.is_dir():
        import zarr

        with h5py.File(path, "w") as file:
            _copy_parts(zarr.open_group(source, mode="r"), file)
            yield file
    else:
        shutil.copyfile(source, path)
        with h5py.File(path, "r+") as file:
            yield file


@contextmanager
def _zarr_copy(source: Path, beside: Path, output: Path) -> Iterator[Any]:
    import h5py
    import zarr

    with _zarr_quiet():
        if source.is_dir():
            shutil.copytree(source, beside)
            group = zarr.open_group(beside, mode="r+", use_consolidated=False)
        else:
            _, version = check_store_target(output)
            group = zarr.open_group(beside, mode="w", zarr_format=version)
            with h5py.File(source, "r") as file:
                _copy_parts(file, group)
        yield group
        zarr.consolidate_metadata(group.store)


@contextmanager
def _zarr_quiet() -> Iterator[None]:
    """Without what zarr and AnnData say to their developers."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Consolidated metadata|zarr v3 auto|Writing zarr v2", Warning
        )
        yield


def _copy_parts(source: Any, target: Any) -> None:
    """Copy an AnnData between a file and a store, one part after the other."""
    from anndata.io import read_elem, write_elem

    for name, value in source.attrs.items():
        target.attrs[name] = value
    for name in source:
        write_elem(target, name, read_elem(source[name]))


def write_all(files: Mapping[Path, Write]) -> None:
    """Write several files, all of them or none.

    Parameters
    ----------
    files
        For each path, the function that writes a new file. The first one takes its place last.

    Raises
    ------
    OSError
        If a file cannot be written; those that were there are as they were.
    """
    with replacing_all(files) as news:
        for new, (path, write) in zip(news, files.items(), strict=True):
            with writing(path):
                if is_store(path):
                    check_store_target(path)
                else:
                    new.touch()
                write(new)
                # Writing takes long: all of it happens before the first file is renamed.
                flush(new)
