"""Reading maps from ``.h5ad`` files and zarr stores that may be damaged, or from a stranger."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from centroid_encoder.errors import InputError
from centroid_encoder.stores import check_store
from centroid_encoder.tl._stored import colors_key

if TYPE_CHECKING:
    import h5py
    from anndata import AnnData

RESULTS = ("obs", "obsm", "uns")
"""Slots that results are read from and written to."""


def check_links(file: h5py.File) -> None:
    """Check that the `RESULTS` of an HDF5 file lie in that file.

    HDF5 follows links, and would read and write other files through them.

    Raises
    ------
    InputError
        If a part is a link, or its numbers are in another file; the message names it.
    """
    import h5py

    def leads_out(name: str, link: object) -> str | None:
        if name.split("/")[0] not in RESULTS:
            return None
        part = file[name] if isinstance(link, h5py.HardLink) else None
        inside = not isinstance(part, h5py.Dataset) or not (part.external or part.is_virtual)
        return None if part is not None and inside else name

    # An error within HDF5's own loop would lose its message.
    found = file.visititems_links(leads_out)
    if found is not None:
        raise InputError("/{} is a link; put a copy of its target in its place", found)


def read_carrier(path: Path, key: str) -> AnnData:
    """Read from a ``.h5ad`` file or a zarr store a map, its labels and their colours.

    Raises
    ------
    InputError
        If it is no such file, or if one of these parts is damaged.
    OSError
        If it may not be read, or if it is a store with a link, or of another kind.
    """
    import h5py
    import pandas as pd
    from anndata import AnnData
    from anndata.io import read_elem

    if path.is_dir():
        check_store(path)
    uns, obs = {}, pd.DataFrame()
    try:
        with _opened_store(path) if path.is_dir() else h5py.File(path) as file:
            if isinstance(file, h5py.File):
                check_links(file)
            if key and key in file.get("uns", {}):
                uns[key] = read_elem(file["uns"][key])
                label_key = str(uns[key]["params"]["label_key"])
                if label_key in file["obs"]:
                    obs = pd.DataFrame({label_key: read_elem(file["obs"][label_key])})
                if colors_key(label_key) in file["uns"]:
                    uns[colors_key(label_key)] = read_elem(file["uns"][colors_key(label_key)])
    except PermissionError:
        raise
    # h5py, zarr and anndata raise many kinds of errors for damaged files.
    except Exception as error:
        raise InputError(unreadable(path.name, error)) from error
    obs.index = obs.index.astype(str)
    return AnnData(obs=obs, uns=uns)


def _opened_store(path: Path) -> AbstractContextManager[Any]:
    import zarr

    # A summary may name parts that are gone, which would be read as zeros.
    return nullcontext(zarr.open_group(path, mode="r", use_consolidated=False))


def size_of(adata: AnnData) -> int:
    """Return about how many bytes an AnnData takes in a file."""
    slots = (adata.layers, adata.obsm, adata.obsp)
    arrays = [adata.X, *(array for slot in slots for array in slot.values())]
    # A stored value of a sparse matrix has an index.
    sizes = [12 * a.nnz if hasattr(a, "nnz") else getattr(a, "nbytes", 0) for a in arrays]
    return int(sum(sizes) + adata.obs.memory_usage(deep=True).sum())


def unreadable(what: str | Path, error: Exception) -> str:
    """Return one line on why a file, a store or a part of one cannot be read."""
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if not isinstance(error, InputError):
        reason = f"it is damaged, incomplete, or no AnnData file ({reason})"
    return f"{what} cannot be read: {reason}"
