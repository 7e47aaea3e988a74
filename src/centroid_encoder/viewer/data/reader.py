"""Read tables of cells, and show an .h5ad file as a Points layer with its AnnData."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
from anndata import AnnData
from npe2.types import FullLayerData
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from centroid_encoder.errors import issue_warning
from centroid_encoder.tables import is_table, opened, read_with_notices, reading
from centroid_encoder.tl._positions import numbers, positions

COLOR = "#8f9aa8"
"""Colour of the points: visible on napari's dark and light canvas."""


def get_reader(path: str | Sequence[str]) -> Callable[..., list[FullLayerData]] | None:
    """Return `read` if all paths are ``.h5ad`` files, else None: a reader hook of napari."""
    paths = [path] if isinstance(path, str) else path
    return read if all(str(one).lower().endswith(".h5ad") for one in paths) else None


def read(path: str | Sequence[str]) -> list[FullLayerData]:
    """Read ``.h5ad`` files as one Points layer each; see `read_table` and `points_layer`."""
    layers = []
    for one in map(Path, [path] if isinstance(path, str) else path):
        adata, notice = read_table(one)
        if notice:
            issue_warning(notice, stacklevel=2)
        layers.append(points_layer(adata, one.stem, one))
    return layers


def points_layer(adata: AnnData, name: str, path: Path | None = None) -> FullLayerData:
    """Return cells as a Points layer.

    Cells lie at ``obsm["spatial"]``, or else at their place in the first two-dimensional
    embedding, as scanpy draws it. Cells without coordinates are left out. The feature ``"cell"``
    has the names of the cells, ``metadata["adata"]`` the AnnData, and ``metadata["path"]`` its
    file. Raises a ValueError if there are no coordinates.
    """
    place = positions(adata)
    found = (numbers(value) for value in adata.obsm.values())
    # The second axis of an embedding points up in a plot and down in napari.
    flat = (one[:, ::-1] * [-1, 1] for one in found if one is not None and one.shape[1] == 2)
    places = place[1] if place is not None else next(flat, None)
    if places is None:
        raise ValueError(
            f"{name} has no coordinates to draw its {adata.n_obs:,} cells at: neither "
            'positions under "spatial" nor a two-dimensional embedding. Open it in the '
            "Centroid-Encoder widget instead, which does not need coordinates"
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


def _point_size(points: NDArray[np.floating]) -> float:
    """Return the diameter at which neighbouring cells just touch."""
    some = points[:: max(1, len(points) // 2000)]
    distance = np.asarray(cKDTree(points).query(some, k=[2])[0])
    apart = distance[(distance > 0) & np.isfinite(distance)]
    return float(np.median(apart)) if len(apart) else 1.0


def read_table(path: Path) -> tuple[AnnData, str]:
    """Read a table of cells into memory; return it, and sentences on what the user should know.

    The path is a ``.h5ad`` file, the folder of a ``.zarr`` store, or a file that `ce.read_table`
    reads. Cells of the same name get different names.

    Raises an OSError if the file is damaged or of another kind.
    """
    notices: list[str] = []
    with reading(path), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Observation names are not unique")
        if is_table(path):
            adata, notices = read_with_notices(path)
        else:
            with opened(path) as store:
                adata = ad.read_zarr(store) if path.is_dir() else ad.read_h5ad(path)
    repeated = int(adata.obs_names.duplicated().sum())
    if repeated:
        adata.obs_names_make_unique()
        notices.append(
            f'{path.name} has several cells of the same name; "-1", "-2", … was appended to '
            f"{repeated:,} name{'s' * (repeated != 1)}"
        )
    return adata, ". ".join(notices)
