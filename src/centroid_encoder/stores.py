"""Checks of zarr stores, and writing that replaces a whole store or nothing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from centroid_encoder.files import replacing_all, writing


def _group(folder: Path) -> Any:
    """Return the zarr group in a folder; None if the folder is no zarr store."""
    import zarr

    try:
        return zarr.open_group(folder, mode="r")
    except Exception:  # zarr raises many kinds of errors
        return None


def check_store(folder: Path) -> None:
    """Raise an OSError if a folder is no zarr store of an AnnData, or if it contains a link."""
    group = _group(folder)
    if group is None:
        raise OSError(f"{folder.name} cannot be read: it is a folder, but no zarr store")
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
    """Raise an OSError if a folder contains a link, which can lead to any file on the computer."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise OSError(f"{path} is a symbolic link; put a copy of its target in its place")


def check_store_target(path: str | os.PathLike[str]) -> tuple[Path, Literal[2, 3]]:
    """Check that a store may be written; return its folder and the version of its zarr format.

    If there is a store at `path`, it is the version of this store, and otherwise the version that
    anndata writes. A ValueError is raised if the name does not end in ``.zarr``, and an OSError if
    the folder around it is missing, or if `path` exists and is no store of an AnnData.
    """
    import zarr
    from anndata import settings

    path = Path(path)
    if path.suffix.lower() != ".zarr":
        raise ValueError(f"the name must end in .zarr; got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; choose another, or make it")
    path = Path(os.path.realpath(path))
    if path.exists():
        group = _group(path)
        if group is None or group.attrs.get("encoding-type") != "anndata":
            raise FileExistsError(f"{path} is no zarr store of an AnnData; choose another name")
        return path, group.metadata.zarr_format
    with warnings.catch_warnings():
        # anndata 0.13 always writes version 3, and warns that the setting is deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        version = getattr(settings, "zarr_write_format", 3)
    return path, 2 if version == 2 or zarr.__version__.startswith("2.") else 3


@contextmanager
def replacing_folder(folder: Path, within: Path) -> Iterator[Path]:
    """Yield a name in `within` for a new folder, which is renamed to `folder` at the end."""
    with writing(folder), replacing_all([folder], within) as (new,):
        yield new
