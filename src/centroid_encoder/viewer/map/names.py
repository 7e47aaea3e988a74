"""Names of the classes on a panel of the map, and what else has to be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from centroid_encoder.pl._legend import move_apart, wrapped

MANY = 20
"""Classes whose names are written unless the user wants otherwise: more hide the map."""
RIM = 4
"""Pixels between a name and the rim of its panel, at 96 dots per inch: at the rim itself, the first
letter looks as if it were cut off."""


def write_names(
    ax: Any, names: Sequence[str], centers: NDArray[np.floating], *, ink: str, halo: str
) -> list[Any]:
    """Write names at the centers of their classes, moved apart where they would overlap.

    All of a name stays in its panel; of one that is too long for that, "…" stands for the rest.

    Parameters
    ----------
    ax
        Axes with the limits and the place that they will be drawn with.
    names
        (M,) names.
    centers
        (M, 2) centers; what lies out of view, or is NaN, gets no name.
    ink, halo
        Colour of the letters, and of what keeps them readable over points.

    Returns
    -------
    list
        The artists; ``remove`` takes one off the axes.
    """
    (x_min, x_max), (y_min, y_max) = ax.get_xlim(), ax.get_ylim()
    x, y = centers.T
    seen = np.flatnonzero((x > x_min) & (x < x_max) & (y > y_min) & (y < y_max))
    if not len(seen):
        return []
    page = (ax.get_position().extents * np.tile(ax.figure.bbox.size, 2)).reshape(2, 2)
    pixel = ax.figure.dpi / 96
    # In a small panel, large letters would hide the cells.
    size = float(np.clip((page[1, 0] - page[0, 0]) / pixel / 33, 6, 9))
    page += np.array([[RIM], [-RIM]]) * pixel
    room = page[1, 0] - page[0, 0]
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
    texts = [ax.annotate(wrapped(names[i]), centers[i], centers[i], **style) for i in seen.tolist()]
    for i, text in zip(seen.tolist(), texts, strict=True):
        width = text.get_window_extent().width
        if width > room:
            longest = max(map(len, text.get_text().split("\n")))
            text.set_text(wrapped(names[i], int(longest * room / width)))
    extents = np.array([text.get_window_extent().extents for text in texts])
    middles, sizes = (extents[:, 2:] + extents[:, :2]) / 2, extents[:, 2:] - extents[:, :2]
    moved = move_apart(middles, sizes, page)
    for text, place in zip(texts, ax.transData.inverted().transform(moved), strict=True):
        text.set_position(place)
    leads = np.abs(moved - middles).max(axis=1) > sizes[:, 1]
    arrow = {"arrowstyle": "-", "color": ink, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
    lines = [
        ax.annotate("", centers[i], text.get_position(), arrowprops=arrow, zorder=3.9)
        for i, text, lead in zip(seen, texts, leads, strict=True)
        if lead
    ]
    return [*texts, *lines]


def explain_dots(ax: Any, text: str, place: float, *, color: str) -> None:
    """Write what pale dots are, so many inches above a panel; an empty text takes that away."""
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    if not text:
        return
    dot: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 4, "mew": 0, "alpha": 0.6}
    ax.legend(
        [Line2D([], [], color=color, **dot)],
        [text],
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        bbox_transform=ax.transAxes + ScaledTranslation(0, place, ax.figure.dpi_scale_trans),
        fontsize=8,
        labelcolor=color,
        frameon=False,
        borderpad=0,
        borderaxespad=0.1,
        handletextpad=0,
    )
