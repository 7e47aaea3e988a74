"""Names of the classes on a panel of the map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from centroid_encoder.pl._legend import move_apart, wrapped


def write_names(
    ax: Any, names: Sequence[str], centers: NDArray[np.floating], *, ink: str, halo: str
) -> list[Any]:
    """Write names at the centers of their classes, moved apart where they would overlap.

    Parameters
    ----------
    ax
        Axes with their final limits and place.
    names
        (M,) names.
    centers
        (M, 2) centers; those out of view get no name.
    ink, halo
        Colour of the letters, and of their outline, which keeps them readable over points.

    Returns
    -------
    list
        The artists.
    """
    low, high = np.transpose([ax.get_xlim(), ax.get_ylim()])
    seen = np.flatnonzero(((centers > low) & (centers < high)).all(axis=1)).tolist()
    page = np.reshape(ax.get_position().extents * np.tile(ax.figure.bbox.size, 2), (2, 2))
    # In a small panel, large letters would hide the cells.
    size = float(np.clip(np.ptp(page[:, 0]) / ax.figure.dpi * 3, 6, 9))
    style: dict[str, Any] = {
        "ha": "center",
        "va": "center",
        "fontsize": size,
        "fontweight": "bold" if size > 7 else "normal",
        "color": ink,
        "path_effects": [withStroke(linewidth=size / 4, foreground=halo)],
        "parse_math": False,
        "zorder": 4,
    }
    texts = [ax.text(*centers[i], wrapped(names[i]), **style) for i in seen]
    if not texts:
        return []
    extents = np.array([text.get_window_extent().extents for text in texts])
    middles, sizes = (extents[:, 2:] + extents[:, :2]) / 2, extents[:, 2:] - extents[:, :2]
    rim = 4 * ax.figure.dpi / 96
    moved = move_apart(middles, sizes, page + np.array([[rim], [-rim]]))
    places = ax.transData.inverted().transform(moved)
    for text, place in zip(texts, places, strict=True):
        text.set_position(place)
    # The halo of a name hides a short line.
    ends = list(np.stack([centers[seen], places], axis=1))
    lines = LineCollection(ends, color=ink, lw=0.6, zorder=3.9)
    ax.add_collection(lines, autolim=False)
    return [*texts, lines]
