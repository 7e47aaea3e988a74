"""AnnData in zarr stores, which are folders: whether there is one, and whole ones or none."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from centroid_encoder.files import flush, replacing_all, writing


def check_store(folder: Path) -> None:
    """Check that a folder is a zarr store of an AnnData, with no symbolic link in it.

    Raises
    ------
    OSError
        If it is anything else; the message says what.
    """
    try:
        import zarr
    except ModuleNotFoundError as error:
        raise OSError("to read a .zarr, zarr is needed: pip install zarr") from error
    try:
        group = zarr.open_group(folder, mode="r")
    except Exception as error:  # zarr raises many kinds.
        raise OSError(f"{folder.name} cannot be read: it is a folder, but no zarr store") from error
    if group.attrs.get("encoding-type") == "anndata":
        check_no_links(folder)
        return
    tables = sorted(f"tables/{table.name}" for table in folder.glob("tables/*/"))
    if tables:
        raise OSError(
            f"{folder.name} is a store of SpatialData; open it with napari-spatialdata, or one of "
            f"its tables here: {', '.join(tables)}"
        )
    raise OSError(f"{folder.name} is a zarr store, but not of an AnnData; is it one of images?")


def check_no_links(folder: Path) -> None:
    """Check that no symbolic link is in a folder, which may itself be reached through one.

    A link can lead to any file of the computer, whose content would be read and copied.

    Raises
    ------
    OSError
        If there is a link; the message names it.
    """
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise OSError(f"{path} is a symbolic link; put a copy of its target in its place")


def check_store_target(path: str | os.PathLike[str]) -> tuple[Path, Literal[2, 3]]:
    """Check what can be checked before a store is written.

    Returns
    -------
    tuple[Path, Literal[2, 3]]
        The folder, behind links, and the version of the format: that of the store which is there,
        else what AnnData writes.

    Raises
    ------
    ValueError
        If its name does not end in ``.zarr``.
    OSError
        If there is no such folder around it, or if what has that name is no store of an AnnData.
    """
    path = Path(path)
    if path.suffix.lower() != ".zarr":
        raise ValueError(f"the name must end in .zarr; got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; choose another, or make it")
    path = Path(os.path.realpath(path))
    try:
        exists = path.exists()
    except OSError as error:
        raise OSError(f"{path.name[:30]!r}… is no name of a folder: {error.strerror}") from error
    if not exists:
        return path, _version_of_new_stores()
    version = _version_of_anndata(path)
    if version is None:
        raise FileExistsError(f"{path} is no zarr store of an AnnData; choose another name")
    return path, version


def _version_of_new_stores() -> Literal[2, 3]:
    """Return the version of zarr's format that anndata writes."""
    import zarr
    from anndata import settings

    with warnings.catch_warnings():
        # anndata 0.13 writes version 3 and deprecates the setting, which chose it before.
        warnings.simplefilter("ignore", DeprecationWarning)
        version = getattr(settings, "zarr_write_format", 3)
    return 2 if version == 2 or zarr.__version__.startswith("2.") else 3


@contextmanager
def replacing_folder(folder: Path, within: Path) -> Iterator[Path]:
    """Yield a name in `within` for a new folder, which takes the place of `folder` at the end."""
    with writing(within), replacing_all([folder], within) as (new,):
        yield new
        flush(new)


def _version_of_anndata(folder: Path) -> Literal[2, 3] | None:
    """Version of the format of a store of an AnnData; None for anything else."""
    import zarr

    try:
        group = zarr.open_group(folder, mode="r")
    except Exception:  # Of whatever kind, it is none.
        return None
    return group.metadata.zarr_format if group.attrs.get("encoding-type") == "anndata" else None
