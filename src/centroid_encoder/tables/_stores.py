"""Opening of AnnData files, and writing that replaces a whole zarr store or nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from centroid_encoder.errors import InputError, UnreadableError, check
from centroid_encoder.files import replacing_all, writing


def is_lazy(X: Any) -> bool:
    """Return whether a matrix is not in memory."""
    # Arrays of dask, h5py and zarr have `chunks`; sparse matrices in files have `to_memory`.
    return hasattr(X, "chunks") or hasattr(X, "to_memory")


def _holds_anndata(folder: Path) -> bool:
    """Return whether a folder is the zarr store of an AnnData."""
    import zarr

    try:
        return zarr.open_group(folder, mode="r").attrs.get("encoding-type") == "anndata"
    except Exception:  # zarr raises many kinds of errors
        return False


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a ``.h5ad`` file or the zarr store of an AnnData for reading; links are refused."""
    import h5py
    import zarr

    if path.is_dir():
        text = f"{path.name} cannot be read: it is a folder, but no zarr store of an AnnData"
        groups = [x.parent for x in path.glob("tables/*/*") if x.name in (".zgroup", "zarr.json")]
        if tables := sorted(f"tables/{group.name}" for group in groups):
            text = f"{path.name} is a store of SpatialData; open it with napari-spatialdata, or one"
            text += f" of its tables here: {', '.join(tables)}"
        check(_holds_anndata(path), text, kind=UnreadableError)
        check_no_links(path)
        # Consolidated metadata can list missing arrays, which would be read as zeros.
        yield zarr.open_group(path, mode="r", use_consolidated=False)
        return
    with h5py.File(path) as file:
        check_links(file)
        yield file


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise an UnreadableError that names the file for any error of a damaged or locked file."""
    try:
        yield
    except PermissionError as error:
        raise PermissionError(f"{path} may not be read") from error
    except UnreadableError:
        raise
    # h5py, zarr and anndata raise many kinds of errors for damaged files.
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if "unable to lock file" in str(error):
            reason = "another program has locked it, or its disk has no locks; close it there, or"
            reason = f"{reason} set the environment variable HDF5_USE_FILE_LOCKING=FALSE"
        elif not isinstance(error, InputError):
            reason = f"it is damaged, incomplete, or no AnnData file ({reason})"
        raise UnreadableError(f"{path.name} cannot be read: {reason}") from error


def check_links(file: Any) -> None:
    """Raise an InputError for a link in ``obs``, ``obsm`` or ``uns`` of an HDF5 file, or a loop.

    HDF5 would follow a link, and read or write another file. A group with two names may hold
    itself; reading it would end in a RecursionError, after which h5py's lock stays locked.
    """
    import h5py

    def find_link(name: str, link: object) -> str | None:
        part = file[name] if isinstance(link, h5py.HardLink) else None
        if isinstance(part, h5py.Group) and h5py.h5o.get_info(part.id).rc > 1:
            return name
        if name.split("/")[0] not in ("obs", "obsm", "uns"):
            return None
        outside = isinstance(part, h5py.Dataset) and (part.external or part.is_virtual)
        return name if part is None or outside else None

    # HDF5 would replace the message of an error that `find_link` raises.
    found = file.visititems_links(find_link)
    check(found is None, f"/{found} is a link; put a copy of its target in its place")


def check_no_links(folder: Path) -> None:
    """Raise an UnreadableError if a folder has a link, which can lead to any file on the disk."""
    for path in folder.rglob("*"):
        text = f"{path} is a symbolic link; put a copy of its target in its place"
        check(not path.is_symlink(), text, kind=UnreadableError)


def check_store_target(path: str | os.PathLike[str]) -> Path:
    """Check that a store may be written, and return its folder.

    A ValueError is raised if the name does not end in ``.zarr``, and an OSError if the folder
    around it is missing, or if `path` exists and is no store of an AnnData.
    """
    path = Path(path)
    check(path.suffix.lower() == ".zarr", f"the name must end in .zarr; got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; choose another, or make it")
    path = Path(os.path.realpath(path))
    if path.exists() and not _holds_anndata(path):
        raise FileExistsError(f"{path} is no zarr store of an AnnData; choose another name")
    return path


@contextmanager
def replacing_folder(folder: Path, within: Path) -> Iterator[Path]:
    """Yield a name in `within` for a new folder, which is renamed to `folder` at the end."""
    with writing(folder), replacing_all([folder], within) as (new,):
        yield new
