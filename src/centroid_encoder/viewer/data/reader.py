"""Read tables of cells; an .h5ad file with positions becomes a Points layer with its AnnData."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from npe2.types import FullLayerData
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from centroid_encoder.errors import CentroidEncoderWarning, InputError
from centroid_encoder.stores import check_store
from centroid_encoder.tl._reference import check_links, unreadable
from centroid_encoder.viewer.data.columns import coordinates, numbers
from centroid_encoder.viewer.data.tables import features_to_anndata

RESULTS = "ce_"
"""What the columns of results begin with in a ``.csv``."""
COLOR = "#8f9aa8"
"""Visible on napari's dark and light canvas."""


def get_reader(path: str | Sequence[str]) -> Callable[..., list[FullLayerData]] | None:
    """Return `read` for paths of ``.h5ad`` files, else None, as napari expects."""
    paths = [path] if isinstance(path, str) else path
    return read if all(str(one).lower().endswith(".h5ad") for one in paths) else None


def read(path: str | Sequence[str]) -> list[FullLayerData]:
    """Read ``.h5ad`` files as one Points layer each; see `read_adata` and `points_layer`."""
    paths = [path] if isinstance(path, str) else path
    return [points_layer(read_adata(one), one.stem, one) for one in map(Path, paths)]


def points_layer(adata: AnnData, name: str, path: Path | None = None) -> FullLayerData:
    """Return cells as a Points layer.

    Cells lie at ``obsm["spatial"]``, or else where scanpy draws them in the first embedding of two
    dimensions. Cells without coordinates are left out, since napari cannot draw them. The feature
    ``"cell"`` of a point is the name of its cell.

    The AnnData is attached to the layer as ``metadata["adata"]``, and the file it came from as
    ``metadata["path"]``. A ValueError if there is nothing to draw.
    """
    places = _places(adata)
    if places is None:
        raise ValueError(
            f"{name} has no coordinates to draw its {adata.n_obs:,} cells at: neither "
            'obsm["spatial"] nor an embedding of two dimensions. Open it in the Centroid-Encoder '
            "widget instead, which needs none"
        )
    drawn = np.isfinite(places).all(axis=1)
    points = places[drawn]
    options = {
        "name": name,
        "features": pd.DataFrame({"cell": np.asarray(adata.obs_names)[drawn]}),
        "metadata": {"adata": adata} | ({} if path is None else {"path": path}),
        "size": _point_size(points),
        "face_color": COLOR,
        "border_width": 0,
    }
    return points, options, "points"


def _places(adata: AnnData) -> NDArray[np.floating] | None:
    """(n_obs, 2 or 3) in napari's order, the last axis first; None if there are none."""
    place = coordinates(adata)
    if place is not None:
        return place[1]
    for embedding in map(numbers, adata.obsm.values()):
        if embedding is not None and embedding.shape[1] == 2:
            # In a plot, the second axis points upwards; in napari, downwards.
            return embedding[:, ::-1] * [-1, 1]
    return None


def _point_size(points: NDArray[np.floating]) -> float:
    """Diameter with which neighbouring cells just touch."""
    some = points[:: max(1, len(points) // 2000)]
    distance = np.asarray(cKDTree(points).query(some, k=[2])[0])
    apart = distance[(distance > 0) & np.isfinite(distance)]
    return float(np.median(apart)) if len(apart) else 1.0


def read_adata(path: Path) -> AnnData:
    """Read a table of cells into memory; see `Reading`. Renamed cells are counted in a warning."""
    job = Reading(path)
    adata = job.run()
    if job.notice:
        warnings.warn(job.notice, CentroidEncoderWarning, stacklevel=2)
    return adata


@dataclass
class Reading:
    """The reading of a table of cells into memory, as a job."""

    path: Path
    """A ``.h5ad`` file, the folder of a ``.zarr`` store, or a ``.csv`` file with one row per cell:
    a first column of unique texts is the names of the cells, measurements become ``X``, and all
    other columns ``obs``; see `features_to_anndata`."""
    adata: AnnData | None = None
    """The cells, after `run`, with names that distinguish them."""
    notice: str = ""
    """A sentence on cells that were renamed; empty without any."""

    def run(self, _: object = None) -> AnnData:
        """Read the file. An OSError if it is damaged or of another kind."""
        if self.path.is_dir():
            check_store(self.path)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Observation names are not unique")
                adata = self.adata = _read(self.path)
        # h5py and anndata raise errors of many kinds for a damaged file.
        except Exception as error:
            raise OSError(unreadable(self.path.name, error)) from error
        if repeated := int(adata.obs_names.duplicated().sum()):
            self.notice = (
                f'Cells of {self.path.name} share their names; to tell them apart, "-1", "-2", … '
                f"was appended to {repeated:,} of them"
            )
            adata.obs_names_make_unique()
        return adata


def _read(path: Path) -> AnnData:
    if path.is_dir():
        import zarr

        return ad.read_zarr(zarr.open_group(path, mode="r", use_consolidated=False))
    if path.suffix.lower() != ".csv":
        with h5py.File(path) as file:
            check_links(file)
        return ad.read_h5ad(path)
    frame = pd.read_csv(path)
    names = frame.iloc[:, 0]
    has_names = not pd.api.types.is_numeric_dtype(names) and names.is_unique
    # A map that was saved with the cells is no measurement of them.
    results = [name for name in frame if str(name).startswith(RESULTS)]
    features = frame.iloc[:, int(has_names) :].drop(columns=results)
    adata = features_to_anndata(features, of_labels=False)
    if not adata.n_vars:
        raise InputError("it has no column of numbers to learn from")
    for name in results:
        adata.obs[name] = frame[name].to_numpy()
    if has_names:
        adata.obs_names = names.astype(str).rename(None)
    return adata
