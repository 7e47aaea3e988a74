"""Legends beside a panel, names of classes on it, and colour bars."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgba
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.transforms import BboxBase
from numpy.typing import NDArray

from centroid_encoder.pl._regions import REGION_ALPHA
from centroid_encoder.pl._values import MAX_CATEGORIES, Values

MAX_ROWS = 25  # rows of a legend, before another column is added
MAX_INSIDE = 12  # entries of a legend within a panel; more would cover it
N_STEPS = 200  # in which names are moved apart
MOST_LETTERS, FEWER_LETTERS = 50, 25  # in a name, in one column and in several


def legends(
    ax: Any,
    values: Values,
    regions: tuple[str, Mapping[object, str]],
    marks: Mapping[str, str],
    grey: str,
    *,
    loc: str | None,
    size: float | str | None,
) -> None:
    """Add the colour bar or legends of a panel of `voronoi`; the last one explains rings.

    `regions` are the name and the colours of the classes if the points have other colours, `marks`
    the names and colours of rings, and `grey` is the colour of cells without a value. `loc` and
    `size` are those of `voronoi`.
    """
    if values.scale is not None:
        color_bar(ax, values.name, values.scale)
    if loc is None or loc == "none":
        return
    found: list[tuple[str, list[Line2D]]] = []
    if values.colors and loc != "on data":
        greys = [_dot(name, grey) for name in values.grey]
        found.append((values.name, [*_dots(values.colors, "o"), *greys]))
    if regions[1] and loc == "right margin":
        found.append((regions[0], _dots(regions[1], "s")))
    if not found:
        found.append(("", []))
    found[-1][1].extend(_dot(name, "none", color) for name, color in marks.items())
    for title, handles in found:
        if handles:
            _add_legend(ax, title, handles, "lower right" if loc == "on data" else loc, size)


def _dots(colors: Mapping[object, str], marker: str) -> list[Line2D]:
    """Return the entries of up to `MAX_CATEGORIES` names, and one with the number of others."""
    dots = []
    for name, color in list(colors.items())[:MAX_CATEGORIES]:
        face, edge = (color, "none") if marker == "o" else (to_rgba(color, REGION_ALPHA), color)
        dots.append(_dot(name, face, edge, marker))
    more = len(colors) - MAX_CATEGORIES
    return dots + [_dot(f"… and {more} more", "none")] * (more > 0)


def _dot(name: object, color: Any, edge: Any = "none", marker: str = "o") -> Line2D:
    style = {"marker": marker, "markersize": 6, "markerfacecolor": color, "mec": edge}
    return Line2D([], [], linestyle="none", color=color, label=str(name), **style)


def _add_legend(
    ax: Any, title: str, handles: list[Line2D], loc: str, size: float | str | None
) -> None:
    """Add a legend within a panel or, also if it is long, to the right of all that is there."""
    first, size, n_columns = ax.get_legend(), size or "small", -(-len(handles) // MAX_ROWS)
    # A legend that is higher than its panel would make the panel smaller in a constrained layout.
    row = 1.5 * FontProperties(size=size).get_size_in_points() * ax.figure.dpi / 72
    if n_columns == 1 and (len(handles) + 3) * row > ax.bbox.height:
        n_columns = 2
    style: dict[str, Any] = {"fontsize": size, "title_fontsize": size, "loc": loc}
    if loc == "right margin" or len(handles) > MAX_INSIDE:
        there = [*ax.child_axes, *([] if first is None else [first])]
        right = max([ax.bbox.x1, *(artist.get_tightbbox().x1 for artist in there)])
        beside = (right - ax.bbox.x0) / ax.bbox.width
        style |= {"loc": "center left", "bbox_to_anchor": (beside, 0.5), "frameon": False}
    # Labels are given, because matplotlib omits handles whose labels begin with an underscore.
    n = MOST_LETTERS if n_columns == 1 else FEWER_LETTERS
    style |= {"labels": [shortened(str(handle.get_label()), n) for handle in handles]}
    style |= {"alignment": "left", "borderaxespad": 1, "handletextpad": 0.3, "columnspacing": 1}
    legend = ax.legend(handles=handles, title=title, ncols=n_columns, **style)
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    if first is not None:
        # The new legend has replaced the first one, which is added again.
        ax.add_artist(first)
        first.set_clip_on(False)


def shortened(name: str, n: int) -> str:
    """Return a name of at most n letters, with "…" instead of the middle of a longer one."""
    return name if len(name) <= n else f"{name[: n - n // 3 - 1]}…{name[-(n // 3) :]}"


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

    More than `MAX_ROWS` names are shortened and not moved; those without room are left out.
    `size` is that of the letters, and `outline` the width of their outline, in points.
    """
    there = np.isfinite(centers).all(axis=1)
    names, centers = [names[i] for i in np.flatnonzero(there).tolist()], centers[there]
    are_many = len(names) > MAX_ROWS
    names = [shortened(name, FEWER_LETTERS) if are_many else wrapped(name) for name in names]
    ink = plt.rcParams["text.color"]
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontweight": "bold", "zorder": 4}
    style |= {"clip_on": True, "in_layout": False, "parse_math": False}
    width = 2.5 if outline is None else outline
    style["path_effects"] = [withStroke(linewidth=width, foreground=ax.get_facecolor())]
    ax.apply_aspect()
    texts = [ax.text(*place, name, **style) for place, name in zip(centers, names, strict=True)]
    # Smaller letters, if the names would overlap.
    for smaller in [size] if size else ["small", "x-small", "xx-small"][2 * are_many :]:
        for text in texts:
            text.set_fontsize(smaller)
        extents = np.reshape([text.get_window_extent().extents for text in texts], (-1, 4))
        middles, sizes = (extents[:, 2:] + extents[:, :2]) / 2, extents[:, 2:] - extents[:, :2]
        n_steps = 0 if are_many else N_STEPS
        ends, has_line = move_apart(middles, sizes, ax.get_window_extent(), n_steps)
        apart = (np.abs(ends[:, None] - ends) >= (sizes[:, None] + sizes) / 2).any(axis=2)
        if (apart | np.eye(len(texts), dtype=bool)).all():
            break
    ends, kept = ax.transData.inverted().transform(ends), list[int]()
    for i, (text, center, end) in enumerate(zip(texts, centers, ends, strict=True)):
        if not apart[i, kept].all():
            text.remove()
            continue
        kept.append(i)
        text.set_position(end)
        if has_line[i]:
            ax.plot(*np.stack([center, end]).T, color=ink, linewidth=0.6, zorder=3)


def wrapped(name: str) -> str:
    """Break a long name into up to four lines of similar length; "…" replaces what does not fit."""
    n_lines = min(len(name) // 24 + 1, 4)
    return textwrap.fill(name, len(name) // n_lines + 6, max_lines=4, placeholder=" …")


def move_apart(
    places: NDArray[np.floating],
    sizes: NDArray[np.floating],
    page: BboxBase,
    n_steps: int = N_STEPS,
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
    for _ in range(n_steps):
        away = middles[:, None, 1] - middles[:, 1]
        push = np.where(are_near, np.maximum(least[..., 1] - np.abs(away), 0), 0)
        if not push.any():
            break
        direction = np.where(away == 0, tie, np.sign(away))
        middles[:, 1] += 0.3 * (push * direction).sum(axis=1)
        middles = np.clip(middles, low, high)
    return middles, (np.abs(middles - places) > half).any(axis=1)
