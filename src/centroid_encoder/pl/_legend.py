"""Names of the classes: beside the panels, or on the cells."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from centroid_encoder.pl._regions import REGION_ALPHA

MAX_ENTRIES = 100
"""Of more classes the colours cannot be told apart, and a legend is of no use."""


def legend_beside(
    ax: Any,
    title: str,
    entries: Mapping[str, Any],
    *,
    marked: bool,
    beyond: Any = None,
    regions: bool = False,
) -> Any:
    """Put a legend to the right of a panel, in as many columns as its height asks for.

    Parameters
    ----------
    ax
        The panel.
    title
        What the classes are.
    entries
        Colour of each name, in order.
    marked
        Explain the circle around misplaced cells as well.
    beyond
        Legend or axes, beside the panel, to the right of which it is put.
    regions
        Show the colours as those of regions rather than of points.

    Returns
    -------
    Legend
    """

    def dot(name: str, color: Any, edge: Any = "none", marker: str = "o") -> Line2D:
        name = textwrap.fill(name, 50)
        style = {"marker": marker, "markersize": 6, "markerfacecolor": color, "mec": edge}
        return Line2D([], [], linestyle="none", color=color, label=name, **style)

    names = list(entries)
    handles = [
        dot(name, to_rgba(entries[name], REGION_ALPHA), entries[name], "s")
        if regions
        else dot(name, entries[name])
        for name in names[:MAX_ENTRIES]
    ]
    if len(names) > MAX_ENTRIES:
        handles.append(dot(f"… and {len(names) - MAX_ENTRIES} more", "none"))
    if marked:
        handles.append(dot("misplaced", "none", plt.rcParams["text.color"]))
    font = FontProperties(size="small")
    height = ax.get_window_extent().height / ax.figure.dpi * 72
    rows = max(1, int(height / (1.5 * font.get_size_in_points())) - 2)
    left = 1.0
    if beyond is not None:
        left = (beyond.get_tightbbox().x1 - ax.bbox.x0) / ax.bbox.width
        if beyond is ax.get_legend():
            # A second legend would take its place.
            ax.add_artist(beyond)
            beyond.set_clip_on(False)
    legend = ax.legend(
        handles,
        # matplotlib leaves out handles with a label that begins with an underscore.
        [handle.get_label() for handle in handles],
        title=title,
        prop=font,
        title_fontproperties=font,
        loc="center left",
        bbox_to_anchor=(left, 0.5),
        borderaxespad=1,
        ncols=-(-len(handles) // rows),
        frameon=False,
        alignment="left",
        handletextpad=0.3,
        columnspacing=1,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    return legend


def legend_on_data(ax: Any, names: Sequence[str], centers: NDArray[np.floating]) -> None:
    """Write each name over the center of its class; names that would overlap move apart.

    Parameters
    ----------
    ax
        Two- or three-dimensional axes, with their final limits.
    names
        (M,) names.
    centers
        (M, 2) or (M, 3) points.
    """
    texts = [
        ax.text(
            *center,
            wrapped(name),
            ha="center",
            va="center",
            fontsize="small" if len(names) <= 12 else "x-small",
            fontweight="bold",
            path_effects=[withStroke(linewidth=2.5, foreground=ax.get_facecolor())],
            clip_on=True,
            in_layout=False,
            parse_math=False,
            zorder=4,
        )
        for name, center in zip(names, centers, strict=True)
    ]
    if centers.shape[1] == 3:
        return  # The user turns it, and names overlap in other ways.
    ax.apply_aspect()
    extents = np.array([text.get_window_extent().extents for text in texts])
    middles, sizes = (extents[:, 2:] + extents[:, :2]) / 2, extents[:, 2:] - extents[:, :2]
    moved = ax.transData.inverted().transform(
        move_apart(middles, sizes, np.reshape(ax.get_window_extent().extents, (2, 2)))
    )
    color = plt.rcParams["text.color"]
    for text, center, position, size in zip(texts, centers, moved, sizes, strict=True):
        text.set_position(position)
        gap = ax.transData.transform([center, position])
        if np.hypot(*(gap[1] - gap[0])) > size[1] / 2:
            ax.plot(*np.stack([center, position]).T, color=color, linewidth=0.6, zorder=3)


def wrapped(name: str, widest: int | None = None) -> str:
    """Break a long name into up to four lines of similar length.

    Parameters
    ----------
    name
    widest
        Letters that a line may have; what does not fit then is left out, which "…" tells.
    """
    n_lines = min(len(name) // 24 + 1, 4)
    width = len(name) // n_lines + 6
    if widest is not None:
        width = max(min(width, widest), 4)
    return textwrap.fill(name, width, max_lines=4, placeholder=" …")


def move_apart(
    middles: NDArray[np.floating], sizes: NDArray[np.floating], page: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Move (n, 2) rectangles up and down until none overlap, as far as the page allows."""
    half = sizes / 2
    low, high = page[0] + half, np.maximum(page[0] + half, page[1] - half)
    middles = np.clip(middles, low, high)
    reach = half[:, None] + half + [0, 2]
    # Names at the same place need a direction to move in.
    order = np.arange(len(middles))
    tie = np.sign(order[:, None] - order)
    for _ in range(200):
        away = middles[:, None] - middles
        overlap = reach - np.abs(away)
        np.fill_diagonal(overlap[..., 0], 0)
        push = np.where((overlap > 0).all(axis=2), overlap[..., 1], 0)
        if not push.any():
            break
        direction = np.where(away[..., 1] == 0, tie, np.sign(away[..., 1]))
        middles[:, 1] += 0.3 * (push * direction).sum(axis=1)
        middles = np.clip(middles, low, high)
    return middles
