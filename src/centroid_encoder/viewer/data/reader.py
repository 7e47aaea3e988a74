"""Read tables of cells, and show an .h5ad file as a Points layer with its AnnData."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from anndata import AnnData
from napari.layers import Image, Labels
from npe2.types import FullLayerData
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from centroid_encoder.errors import issue_warning
from centroid_encoder.tables import is_table, opened, read_with_notices, reading
from centroid_encoder.tl._positions import numbers, positions
from centroid_encoder.viewer.data.columns import named, whole_numbers

FRAMES = ("frame", "frames", "frameindex", "framenumber", "timepoint", "timeframe")
"""Names of the column with the frame of each cell, in lower case."""
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

    Cells lie at ``obsm["spatial"]``, in a movie also at their frame, or else at their place in the
    first two-dimensional embedding, as scanpy draws it. Cells without coordinates are left out. The
    feature ``"cell"`` has the names of the cells, ``metadata["adata"]`` the AnnData, and
    ``metadata["path"]`` its file. Raises a ValueError if there are no coordinates.
    """
    place, in_movie = positions(adata), frames(adata)
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
    points = together = places[drawn]
    if place is not None and in_movie is not None:
        at = in_movie[1][drawn]
        together = points[at == at[0]]
        # The third position of a movie of planes is the same for all cells.
        is_flat = points.shape[1] > 2 and (points[:, 0] == points[0, 0]).all()
        points = np.column_stack([at, points[:, int(is_flat) :]])
    options = {
        "name": name,
        "features": pd.DataFrame({"cell": np.asarray(adata.obs_names)[drawn]}),
        "metadata": {"adata": adata} | ({} if path is None else {"path": path}),
        "size": _point_size(together),
        "face_color": COLOR,
        "border_width": 0,
    }
    return points, options, "points"


def frames(adata: AnnData) -> tuple[str, NDArray[np.floating]] | None:
    """Return the column with the frame of each cell in a movie, and its whole numbers, or None."""
    for name in named(adata.obs, FRAMES):
        with suppress(ValueError):
            at = whole_numbers(adata.obs[name], name)
            if at.notna().all() and at.nunique() > 1:
                return str(name), at.to_numpy(float)
    return None


def place_on(image: Image | Labels, adata: AnnData, ndim: int) -> tuple[dict[str, Any], str]:
    """Return the place of the points of a table on an image, and sentences on what was assumed.

    Points whose positions are known in pixels have the place of the image. All others have its
    unit.
    """
    n = min(ndim, image.ndim)
    place: dict[str, Any] = {"units": [*["pixel"] * (ndim - n), *image.units[-n:]]}
    where, in_movie = (positions(adata) or ("",))[0], frames(adata)
    measured, spacing = adata.uns.get("measure"), None
    if re.search(r"(?<![a-z])(px|pix(el)?s?)(?![a-z])", where, re.IGNORECASE):
        spacing = np.ones(1)
    elif isinstance(measured, Mapping) and "spacing" in measured and where.startswith("obsm"):
        several = np.unique(np.atleast_2d(measured["spacing"]), axis=0)
        spacing = several[0] if len(several) == 1 else None
    said = []
    if spacing is None:
        text = f"The unit of the positions in {where} is not known: they are drawn in the world"
        said.append(f"{text} coordinates of {image.name}, in {image.units[-1]}s.")
    else:
        place |= {"scale": np.ones(ndim), "translate": np.zeros(ndim)}
        for key in ("scale", "translate"):
            place[key][-n:] = getattr(image, key)[-n:]
        spacing = spacing[-(ndim - (in_movie is not None)) :]
        place["scale"][-len(spacing) :] /= spacing
        if image.ndim == ndim:
            place |= {key: getattr(image, key) for key in ("rotate", "shear", "affine")}
    if in_movie is not None:
        text = f"The frames are those of the column {in_movie[0]!r}"
        said.append(f"{text}, and the first one is 0.")
    return place, " ".join(said)


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
