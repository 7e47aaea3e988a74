"""Legends beside a panel, names of classes on it, and colour bars."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import BboxBase
from numpy.typing import NDArray

from centroid_encoder.pl._colors import unlabeled_color
from centroid_encoder.pl._regions import REGION_ALPHA
from centroid_encoder.pl._values import Values

MAX_ENTRIES = 100  # classes in a legend; the colours of more cannot be distinguished
MAX_ROWS = 25  # rows of a legend, before another column is added


def legends(
    ax: Any,
    values: Values,
    regions: tuple[str, Mapping[object, str]] | None,
    *,
    loc: str | None,
    marked: bool,
    rings: bool,
    **style: Any,
) -> None:
    """Add the legends of a panel of `voronoi`; the last one explains circles and rings.

    `regions` are the name and the colours of the classes if the points have other colours.
    """
    if loc is None or loc == "none":
        return
    regions = regions if loc == "right margin" else None
    marks: dict[str, Any] = {"marked": marked, "rings": rings}
    has_points = loc != "on data" and bool(values.colors)
    if has_points:
        also = marks if regions is None else {}
        legend_beside(ax, values.name, values.colors or {}, values.grey, loc=loc, **also, **style)
    if regions is not None:
        legend_beside(ax, regions[0], regions[1], regions=True, **marks, **style)
    elif not has_points and (marked or rings):
        legend_beside(ax, "", {}, **marks, **style)


def legend_beside(
    ax: Any,
    title: str,
    colors: Mapping[object, str],
    grey: Sequence[str] = (),
    *,
    marked: bool = False,
    regions: bool = False,
    rings: bool = False,
    grey_color: str | None = None,
    loc: str = "right margin",
    size: float | str | None = None,
) -> None:
    """Add a legend to the right of a panel, and of a legend or colour bar that is already there.

    Another `loc` of matplotlib puts it inside. `size` is the size of the letters.

    It has the first `MAX_ENTRIES` names, the number of the others, and the `grey` entries. `marked`
    adds an entry for the circles around misplaced cells, and `rings` one for held-out cells. With
    `regions`, the colours are those of regions instead of points.
    """
    handles = [
        _dot(name, to_rgba(color, REGION_ALPHA), color, "s") if regions else _dot(name, color)
        for name, color in list(colors.items())[:MAX_ENTRIES]
    ]
    if len(colors) > MAX_ENTRIES:
        handles.append(_dot(f"… and {len(colors) - MAX_ENTRIES} more", "none"))
    handles += [_dot(name, grey_color or unlabeled_color(ax)) for name in grey]
    if rings:
        handles.append(_dot("held out", "none", "0.5"))
    if marked:
        handles.append(_dot("misplaced", "none", plt.rcParams["text.color"]))
    first = ax.get_legend()
    there = [*ax.child_axes, *([] if first is None else [first])]
    right = max([ax.bbox.x1, *(artist.get_tightbbox().x1 for artist in there)])
    size = size or "small"
    style: dict[str, Any] = {"fontsize": size, "title_fontsize": size, "frameon": False}
    style |= {"alignment": "left", "borderaxespad": 1, "handletextpad": 0.3, "columnspacing": 1}
    if loc == "right margin":
        beside = (right - ax.bbox.x0) / ax.bbox.width
        style |= {"loc": "center left", "bbox_to_anchor": (beside, 0.5)}
    else:
        style |= {"loc": loc, "frameon": True}
    legend = ax.legend(
        handles,
        # Labels are given, because matplotlib omits handles whose labels begin with an underscore.
        [handle.get_label() for handle in handles],
        title=title,
        ncols=-(-len(handles) // MAX_ROWS),
        **style,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    if first is not None:
        # The new legend has replaced the first one, which is added again.
        ax.add_artist(first)
        first.set_clip_on(False)


def _dot(name: object, color: Any, edge: Any = "none", marker: str = "o") -> Line2D:
    style = {"marker": marker, "markersize": 6, "markerfacecolor": color, "mec": edge}
    label = textwrap.fill(str(name), 50)
    return Line2D([], [], linestyle="none", color=color, label=label, **style)


def color_bar(ax: Any, name: str, mappable: ScalarMappable, *, height: float = 0.6) -> Any:
    """Add a colour bar to the right of a panel, and return it.

    `height` is a share of the panel's height.
    """
    # An inset stays at the panel in every layout.
    place = ax.inset_axes((1.035, 0.5 - height / 2, 0.035, height))
    bar = ax.figure.colorbar(mappable, cax=place)
    bar.set_label(name, fontsize="small", parse_math=False)
    bar.ax.tick_params(labelsize="small")
    bar.outline.set_linewidth(0.5)
    return bar


def legend_on_data(
    ax: Any,
    names: Sequence[str],
    centers: NDArray[np.floating],
    *,
    size: float | str | None = None,
    outline: float | None = None,
) -> None:
    """Write names over the (M, 2) centers of their classes, moved apart if they would overlap.

    `size` is that of the letters, and `outline` the width of their outline, in points.
    """
    there = np.isfinite(centers).all(axis=1)
    names, centers = [names[i] for i in np.flatnonzero(there).tolist()], centers[there]
    ink = plt.rcParams["text.color"]
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontweight": "bold", "zorder": 4}
    style |= {"clip_on": True, "in_layout": False, "parse_math": False}
    width = 2.5 if outline is None else outline
    style["path_effects"] = [withStroke(linewidth=width, foreground=ax.get_facecolor())]
    ax.apply_aspect()
    texts = [
        ax.text(*place, wrapped(name), **style) for place, name in zip(centers, names, strict=True)
    ]
    # Smaller letters, if the names would overlap.
    for smaller in [size] if size else ["small", "x-small", "xx-small", 4][len(names) > 12 :]:
        for text in texts:
            text.set_fontsize(smaller)
        extents = np.reshape([text.get_window_extent().extents for text in texts], (-1, 4))
        middles, sizes = (extents[:, 2:] + extents[:, :2]) / 2, extents[:, 2:] - extents[:, :2]
        ends, has_line = move_apart(middles, sizes, ax.get_window_extent())
        apart = np.abs(ends[:, None] - ends) >= (sizes[:, None] + sizes) / 2
        if (apart.any(axis=2) | np.eye(len(texts), dtype=bool)).all():
            break
    ends = ax.transData.inverted().transform(ends)
    for text, center, end, line in zip(texts, centers, ends, has_line, strict=True):
        text.set_position(end)
        if line:
            ax.plot(*np.stack([center, end]).T, color=ink, linewidth=0.6, zorder=3)


def wrapped(name: str) -> str:
    """Break a long name into up to four lines of similar length; "…" replaces what does not fit."""
    n_lines = min(len(name) // 24 + 1, 4)
    return textwrap.fill(name, len(name) // n_lines + 6, max_lines=4, placeholder=" …")


def move_apart(
    places: NDArray[np.floating], sizes: NDArray[np.floating], page: BboxBase
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """Move rectangles up and down until none overlap, as far as they fit on the page.

    `places` holds their (n, 2) middles, and `sizes` their (n, 2) widths and heights. Returns the
    (n, 2) new middles, and an (n,) mask of the rectangles that no longer cover their old ones.
    """
    half = sizes / 2
    low, high = page.min + half, np.maximum(page.min + half, page.max - half)
    middles = np.clip(places, low, high)
    # Smallest distances of two middles without overlap, with two pixels between the lines.
    least = half[:, None] + half + [0, 2]
    are_near = np.abs(middles[:, None, 0] - middles[:, 0]) < least[..., 0]
    np.fill_diagonal(are_near, False)
    # Names at the same height need a direction to move in.
    order = np.arange(len(middles))
    tie = np.sign(order[:, None] - order)
    for _ in range(200):
        away = middles[:, None, 1] - middles[:, 1]
        push = np.where(are_near, np.maximum(least[..., 1] - np.abs(away), 0), 0)
        if not push.any():
            break
        direction = np.where(away == 0, tie, np.sign(away))
        middles[:, 1] += 0.3 * (push * direction).sum(axis=1)
        middles = np.clip(middles, low, high)
    return middles, (np.abs(middles - places) > half).any(axis=1)
