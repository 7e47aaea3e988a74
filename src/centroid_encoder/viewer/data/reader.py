"""Reader for .h5ad files: cells become points, and the AnnData rides along."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from centroid_encoder.stores import check_store
from centroid_encoder.tl._reference import check_links, unreadable
from centroid_encoder.viewer.data.positions import coordinates, numbers

if TYPE_CHECKING:
    from anndata import AnnData
    from npe2.types import FullLayerData

COLOR = "#8f9aa8"
"""Shows on napari's dark canvas and on the light one."""
PART = 2**24
"""Bytes of a file that are read at once."""


class RepeatedNames(UserWarning):
    """Cells were given other names."""


def get_reader(path: str | Sequence[str]) -> Callable[..., list[FullLayerData]] | None:
    """Return `read` if it can take these paths, as napari asks it."""
    paths = [path] if isinstance(path, str) else path
    return read if all(str(one).lower().endswith(".h5ad") for one in paths) else None


def read(path: str | Sequence[str]) -> list[FullLayerData]:
    """Read ``.h5ad`` files as one Points layer each.

    Parameters
    ----------
    path
        One path, or several.

    Returns
    -------
    list
        Layers as napari takes them; see `points_layer`.

    Raises
    ------
    OSError
        If a file is not a complete ``.h5ad`` file.
    ValueError
        If the cells of a file have no coordinates.
    """
    paths = [path] if isinstance(path, str) else path
    return [_read_one(Path(one)) for one in paths]


def points_layer(adata: AnnData, name: str, path: Path | None = None) -> FullLayerData:
    """Return cells as a Points layer.

    Cells lie at ``obsm["spatial"]``, or else where scanpy draws them in the first embedding of two
    dimensions. Cells without coordinates are left out, since napari cannot draw them: which cell a
    point is, its feature ``"cell"`` says, never its position.

    Parameters
    ----------
    adata
        Cells with unique names. It is attached to the layer as ``metadata["adata"]``.
    name
        Name of the layer.
    path
        File it came from, attached as ``metadata["path"]``.

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    coordinates = _coordinates(adata)
    if coordinates is None:
        raise ValueError(
            f"{name} has no coordinates to draw its {adata.n_obs:,} cells at: neither "
            'obsm["spatial"] nor an embedding of two dimensions. Open it in the Centroid-Encoder '
            "widget instead, which needs none"
        )
    drawn = np.isfinite(coordinates).all(axis=1)
    points = coordinates[drawn]
    features = pd.DataFrame({"cell": np.asarray(adata.obs_names)[drawn]})
    metadata = {"adata": adata} if path is None else {"adata": adata, "path": path}
    options = {
        "name": name,
        "features": features,
        "metadata": metadata,
        "size": _point_size(points),
        "face_color": COLOR,
        "border_width": 0,
    }
    return points, options, "points"


def _read_one(path: Path) -> FullLayerData:
    return points_layer(read_adata(path), path.stem, path)


def read_adata(path: Path, progress: Callable[[float], None] | None = None) -> AnnData:
    """Read a ``.h5ad`` file or a ``.zarr`` store into memory, with names that tell cells apart.

    Parameters
    ----------
    path
        The file, or the folder of the store.
    progress
        Called often, with the share of a file that is read, or 0 where that is not known. An
        `InterruptedError` that it raises ends the reading.

    Raises
    ------
    OSError
        If the file is damaged or of another kind.
    """
    if path.is_dir():
        check_store(path)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Observation names are not unique")
            adata = _read(path, progress or (lambda _: None))
    except InterruptedError:
        raise
    # Whatever a damaged file makes h5py and anndata stumble over, the user can only do one thing.
    except Exception as error:
        raise OSError(unreadable(path.name, error)) from error
    repeated = int(adata.obs_names.duplicated().sum())
    if repeated:
        warnings.warn(
            f'Cells of {path.name} share their names; to tell them apart, "-1", "-2", … was '
            f"appended to {repeated:,} of them",
            RepeatedNames,
            stacklevel=2,
        )
        adata.obs_names_make_unique()
    return adata


def _read(path: Path, progress: Callable[[float], None]) -> AnnData:
    if not path.is_dir():
        with h5py.File(path) as file:
            check_links(file)
        with _Watched(path, progress) as watched:
            return ad.read_h5ad(watched)
    import zarr
    from zarr.storage import LocalStore

    class WatchedStore(LocalStore):
        """A store that tells of each part that is read."""

        async def get(self, *args: Any, **kwargs: Any) -> Any:
            progress(0.0)
            return await super().get(*args, **kwargs)

    watched_store = WatchedStore(path, read_only=True)
    store = zarr.open_group(watched_store, mode="r", use_consolidated=False)
    return ad.read_zarr(store)


class _Watched(io.FileIO):
    """A file that tells how much of it is read, which HDF5 reads as it would any other."""

    def __init__(self, path: Path, progress: Callable[[float], None]) -> None:
        super().__init__(path)
        self._progress = progress
        self._size = max(1, path.stat().st_size)

    def readinto(self, buffer: Any) -> int:
        """Read in parts: a matrix is asked for at once."""
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view):
            self._progress(self.tell() / self._size)
            n = super().readinto(view[done : done + PART])
            if not n:
                break
            done += n
        return done


def _coordinates(adata: AnnData) -> NDArray[np.floating] | None:
    """(n_obs, 2 or 3) in napari's order, the last axis first; None if there are none."""
    place = coordinates(adata)
    if place is not None:
        return place[1]
    for key in adata.obsm:
        embedding = numbers(adata.obsm[key])
        if embedding is not None and embedding.shape[1] == 2:
            # In a plot, the second axis points upwards; in napari, downwards.
            return embedding[:, ::-1] * [-1, 1]
    return None


def _point_size(points: NDArray[np.floating]) -> float:
    """Diameter with which cells of usual closeness just touch."""
    some = points[:: max(1, len(points) // 2000)]
    distance = np.asarray(cKDTree(points).query(some, k=[2])[0])
    apart = distance[(distance > 0) & np.isfinite(distance)]
    return float(np.median(apart)) if len(apart) else 1.0
