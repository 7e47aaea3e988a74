"""Reading ``.h5ad`` files and zarr stores that may be damaged, or from a stranger.

HDF5 follows links into other files, and both it and zarr make whatever size of array is declared.
That is found out before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from centroid_encoder.errors import InputError
from centroid_encoder.stores import check_store
from centroid_encoder.tl._stored import colors_key

if TYPE_CHECKING:
    import h5py
    import zarr
    from anndata import AnnData

RESULTS = ("obs", "obsm", "uns")
"""Slots that results are read from and written to."""
LARGE = 2**26
"""Bytes that may be read of any file or store, however small it is."""
COMPRESSED = 100
"""Bytes that may be read for each byte of a file or store."""
SMALLEST = 16
"""Bytes that a group or an array takes at least in a file."""


def check_contained(parent: h5py.Group, names: Iterable[str]) -> None:
    """Check that parts of an HDF5 file are in that file, and no larger than it can hold.

    Parameters
    ----------
    parent
        Group that has them.
    names
        Their names; those that are not there are passed over.

    Raises
    ------
    InputError
        If one of them, or anything in it, is a link, in another file, or declared larger than
        the file tells of. The message says where it is.
    """
    import h5py

    file_size = parent.file.id.get_filesize()
    most = LARGE + COMPRESSED * file_size
    waiting = [(parent, name) for name in names if parent.get(name, getlink=True) is not None]
    visited = n_bytes = 0
    while waiting:
        group, name = waiting.pop()
        where = f"{group.name.rstrip('/')}/{name}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise InputError(
                "{} is a link, and what it leads to is not read; put a copy in its place", where
            )
        node = group[name]
        visited += 1
        if visited > file_size // SMALLEST:
            # Groups may hold each other.
            raise InputError("{} is damaged: it is nested without end", where)
        if isinstance(node, h5py.Group):
            waiting += [(node, inner) for inner in node]
        elif isinstance(node, h5py.Dataset):
            if node.external or node.is_virtual:
                raise InputError("{} is in another file, which is not read", where)
            n_bytes += _size(node, file_size, most)
        if n_bytes > most:
            raise InputError("{} is damaged: the file is too small for its size", where)


def check_store_sizes(store: zarr.Group, folder: Path) -> None:
    """Check that the `RESULTS` of a zarr store are no larger than its folder can hold.

    Parameters
    ----------
    store
        The store, opened without consolidated metadata.
    folder
        Where it is.

    Raises
    ------
    InputError
        If one of them is declared larger than that; the message says where it is.
    """
    import zarr

    for name in [name for name in RESULTS if name in store]:
        files = [folder / name, *(folder / name).rglob("*")]
        most = LARGE + COMPRESSED * sum(file.stat().st_size for file in files)
        part: Any = store[name]
        inner = part.members(max_depth=None) if isinstance(part, zarr.Group) else [("", part)]
        for where, node in inner:
            most -= node.nbytes if isinstance(node, zarr.Array) else 0
            if most < 0:
                raise InputError(
                    "{}/{} is damaged: the store is too small for its size", name, where
                )


def _size(array: h5py.Dataset, file_size: int, most: int) -> int:
    """Bytes that an array takes in memory; more than `most` if it is larger than what is stored."""
    import h5py

    size: int = (array.size or 0) * array.id.get_type().get_size()
    filtered = array.id.get_create_plist().get_nfilters()
    if not filtered and array.id.get_storage_size() < size:
        return most + 1
    if size > most or h5py.check_string_dtype(array.dtype) is None or not array.shape:
        return size
    # Many texts may be one and the same in the file. A part of them is not too large.
    step = max(64, LARGE // max(file_size, 1))
    flat = array if array.ndim == 1 else ()
    for start in range(0, len(flat), step):
        size += sum(map(len, np.ravel(flat[start : start + step]).tolist()))
        if size > most:
            break
    return size


def read_carrier(path: Path, key: str) -> AnnData:
    """Read of a ``.h5ad`` file only what belongs to a map: itself, its labels and their colours.

    Raises
    ------
    InputError
        If the file is no ``.h5ad`` file, or if one of these parts is damaged or not in the file.
    PermissionError
        If the file may not be read.
    """
    import h5py
    import pandas as pd
    from anndata import AnnData

    try:
        file = h5py.File(path)
    except PermissionError:
        raise
    # h5py raises many kinds of errors for files that are none of its own.
    except Exception as error:
        raise InputError(unreadable(path.name, error)) from error
    uns: dict[str, Any] = {}
    obs = pd.DataFrame()
    with file:
        for map_ in _read(file, "uns", key):
            uns[key] = map_
            params = map_.get("params") if isinstance(map_, dict) else None
            label_key = str(params.get("label_key")) if isinstance(params, dict) else ""
            for labels in _read(file, "obs", label_key):
                obs = pd.DataFrame({label_key: labels})
            for colors in _read(file, "uns", colors_key(label_key)):
                uns[colors_key(label_key)] = colors
    obs.index = obs.index.astype(str)
    return AnnData(obs=obs, uns=uns)


def read_carrying_store(path: Path) -> AnnData:
    """Read the cells and maps of a zarr store, without its matrices.

    Raises
    ------
    OSError
        If it is no store of an AnnData, or if it contains a link.
    InputError
        If it is damaged.
    """
    import zarr
    from anndata import AnnData
    from anndata.io import read_elem

    check_store(path)
    try:
        store: Any = zarr.open_group(path, mode="r", use_consolidated=False)
        check_store_sizes(store, path)
        return AnnData(obs=read_elem(store["obs"]), uns=read_elem(store["uns"]))
    # zarr and anndata raise many kinds of errors for what they cannot read.
    except Exception as error:
        raise InputError(unreadable(path.name, error)) from error


def _read(file: h5py.File, slot: str, name: str) -> list[Any]:
    """Read ``slot[name]``; nothing if it is not there."""
    import h5py
    from anndata.io import read_elem

    where = f"{Path(file.filename).name}: {slot}[{name!r}]"
    try:
        if slot not in file or not name or "/" in name:
            return []
        if not isinstance(file.get(slot, getlink=True), h5py.HardLink):
            raise InputError("{} is a link, and what it leads to is not read", slot)
        if not isinstance(file[slot], h5py.Group) or name not in file[slot]:
            return []
        check_contained(file[slot], [name])
        return [read_elem(file[slot][name])]
    # h5py and anndata raise many kinds of errors for damaged files.
    except Exception as error:
        raise InputError(unreadable(where, error)) from error


def unreadable(what: str | Path, error: Exception) -> str:
    """Say in one line why a file, a store or a part of one cannot be read."""
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if not isinstance(error, InputError):
        reason = f"it is damaged, incomplete, or no AnnData file ({reason})"
    return f"{what} cannot be read: {reason}"
