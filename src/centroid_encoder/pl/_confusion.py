"""Confusion matrix: which classes are taken for which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, PowerNorm, to_rgb
from matplotlib.font_manager import FontProperties
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from centroid_encoder.errors import InputError
from centroid_encoder.pl._axes import Save, figure_writer, finish, fit_figure, write_title
from centroid_encoder.pl._colors import unlabeled_color
from centroid_encoder.tl._result import (
    StoredCrossValidation,
    fold_words,
    read_held_out,
    read_result,
)

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

Order = Literal["similar", "category"]

LONGEST_NAME = 30
LONGEST_ON_PAGE = 22
"""Letters of a class's name, in a figure of its own and among others; longer names lose their
middle."""
SMALLEST_FONT = 5.5
"""In points; text that would have to be smaller is left out."""
SHARE_TICKS = (0, 1, 5, 10, 25, 50, 100)
"""In per cent."""


def confusion(
    adata: AnnData,
    *,
    key: str = "ce",
    counts: bool = False,
    order: Order = "similar",
    title: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot which classes are taken for which, by networks that had not seen the cell's label.

    A row is a class, with the number of its cells; its squares say to which classes they were
    given. From the out-of-fold labels where there has been a cross-validation, else from the
    held-out cells. The scale is that of the square root, so that rare confusions are seen, too.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.cross_validate` or `ce.tl.centroid_encoder`.
    key
        Name of the results, as given to `key_added`.
    counts
        Show numbers of cells in place of shares of the class.
    order
        ``"similar"``: classes that are taken for each other stand side by side; ``"category"``: as
        in the label column.
    title
        In place of the default.
    ax, show, save, dpi
        As in `voronoi`.

    Returns
    -------
    Axes | None
        None if shown; else the axes of the squares.

    Raises
    ------
    KeyError
        If there is no result under that key, or if a column that belongs to it is gone.
    ValueError
        If no cell was held out, if the labels are no longer those of the result, or if an argument
        is not valid.
    """
    write = figure_writer("confusion", save, dpi, own=ax is None)
    if order not in get_args(Order):
        raise InputError(f"order must be one of {get_args(Order)}; got {order!r}", "order")
    table, classes, words = _read(adata, key)
    places = _similar(table) if order == "similar" else np.arange(len(table))
    table, names = table[np.ix_(places, places)], [str(classes[i]) for i in places]
    size = table.sum(axis=1, keepdims=True)
    shares = np.divide(table, size, out=np.full(table.shape, np.nan), where=size > 0)
    values = np.where(size > 0, table, np.nan) if counts else 100 * shares

    target: Any = _new_axes(len(names)) if ax is None else ax
    norm = PowerNorm(0.5, 0, max(np.nanmax(values), 1) if counts else 100)
    image = target.imshow(
        np.ma.masked_invalid(values), cmap=_colormap(target), norm=norm, interpolation="none"
    )
    target.grid(visible=False)
    write_title(target, title, _title(table, words))
    target.set_xlabel("predicted class")
    target.set_ylabel("true class (number of cells)")
    _colorbar(target, image, counts=counts)
    longest = LONGEST_NAME if ax is None else LONGEST_ON_PAGE
    _name_classes(target, [_shortened(name, longest) for name in names], size[:, 0])
    _annotate(target, image, table, counts=counts)
    if ax is None:
        fit_figure(target.figure)
    return finish(target, show=show, write=write, own=ax is None)


def _read(adata: AnnData, key: str) -> tuple[NDArray[np.int64], pd.Index, str]:
    """(M, M) cells by true and predicted class, the classes, and what was counted."""
    stored = StoredCrossValidation.read(adata, key)
    if stored is not None:
        # Counted on all cells, also where `adata` is a selection of them.
        table, words = stored.confusion, f"out-of-fold labels, {fold_words(stored)}"
        return table, stored.classes, f"{words}, n = {table.sum():,}"
    cells, classes = read_held_out(adata, key), read_result(adata, key).classes
    table = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(table, (cells.own, cells.predicted), 1)
    n = len(cells.own)
    return table, classes, f"{cells.words}, n = {n:,}" + (f" of {cells.n:,}" * (n < cells.n))


def _title(table: NDArray[np.int64], words: str) -> str:
    n = table.sum()
    return f"{words}\n{100 * np.trace(table) / n:.1f} % right" if n else words


def _similar(table: NDArray[np.int64]) -> NDArray[np.intp]:
    """(M,) order in which classes that are taken for each other are neighbours."""
    n = len(table)
    if n < 3:
        return np.arange(n)
    size = table.sum(axis=1, keepdims=True)
    shares = table / np.maximum(size, 1)
    distances = 1 - (shares + shares.T) / 2
    # Classes that are never confused keep the order of their categories.
    place = np.arange(n)
    distances += 1e-3 * np.abs(place[:, None] - place) / n
    np.fill_diagonal(distances, 0)
    order = leaves_list(linkage(squareform(distances), "average", optimal_ordering=True))
    # The direction is arbitrary: take the one in which the categories rise.
    if np.dot(order, place - place.mean()) < 0:
        order = order[::-1]
    # Classes without cells come last.
    return np.asarray(order[np.argsort(size[order, 0] == 0, kind="stable")], dtype=np.intp)


def _new_axes(n_classes: int) -> Any:
    # Wide enough for the title in any font size, but at most as wide as a page.
    side = np.clip(0.42 * n_classes, 2.6 * plt.rcParams["font.size"] / 10, 8)
    figure = plt.figure(figsize=(side + 3, side + 3))
    return figure.add_axes((1.5 / (side + 3),) * 2 + (side / (side + 3),) * 2)


def _colormap(ax: Any) -> Colormap:
    """From the colour of the page to blue."""
    page = ax.get_facecolor()
    blues = ("#6baed6", "#08306b") if sum(to_rgb(page)) > 1.5 else ("#2171b5", "#deebf7")
    colormap = LinearSegmentedColormap.from_list("confusion", [page, *blues])
    return colormap.with_extremes(bad=unlabeled_color(ax))


def _colorbar(ax: Any, image: ScalarMappable, *, counts: bool) -> None:
    # As an inset it is as high as the squares in every layout.
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.03, 0, 0.04, 1)))
    if not counts:
        bar.set_ticks(SHARE_TICKS)
    bar.set_label("cells" if counts else "share of the true class (%)", fontsize="small")
    bar.ax.tick_params(labelsize="small")
    bar.outline.set_linewidth(0.5)


def _name_classes(ax: Any, names: list[str], sizes: NDArray[np.int64]) -> None:
    """Write the names of the classes beside their rows and columns, or of as many as fit."""
    font, step = _points("small"), 1
    letters = max(map(len, names))
    ax.tick_params(length=2)
    # In a layout that adapts, long names make the squares smaller, and so the room for names.
    for _ in range(3):
        pitch = _pitch(ax, len(names))
        font = max(min(font, pitch / 1.15), SMALLEST_FONT)
        step = max(step, int(np.ceil(1.15 * font / pitch)))
        upright = 0.65 * font * (letters + 1) < step * pitch
        at = np.arange(0, len(names), step)
        style: dict[str, Any] = {"fontsize": font, "parse_math": False}
        ax.set_yticks(at, [f"{names[i]} ({sizes[i]:,})" for i in at], **style)
        ax.set_xticks(at, [names[i] for i in at], rotation=0 if upright else 90, **style)
        if ax.figure.figure.get_layout_engine() is None:
            break


def _annotate(ax: Any, image: Any, table: NDArray[np.int64], *, counts: bool) -> None:
    """Write the values onto the squares that are not empty, unless they are too small for it."""
    texts = {
        (i, j): f"{table[i, j]:,}" if counts else _percent(table[i, j], table[i].sum())
        for i, j in np.argwhere(table)
    }
    pitch = _pitch(ax, len(table))
    longest = max(map(len, texts.values()), default=1)
    font = min(_points("small"), 0.6 * pitch, 0.9 * pitch / (0.7 * longest))
    if font < SMALLEST_FONT:
        return
    for (i, j), text in texts.items():
        red, green, blue, _ = image.to_rgba(image.get_array()[i, j])
        light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
        color = "black" if light else "white"
        ax.text(j, i, text, ha="center", va="center", fontsize=font, color=color)
    # The squares are large enough for lines between them.
    ax.set_xticks(np.arange(len(table) - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(len(table) - 1) + 0.5, minor=True)
    ax.grid(which="minor", color=unlabeled_color(ax), linewidth=0.4)
    ax.tick_params(which="minor", length=0)


def _percent(part: int, whole: int) -> str:
    """Round a share to per cent: 0 only for none, and 100 only for all."""
    percent = 100 * part / whole
    if percent < 0.5:
        return "<1"
    return ">99" if percent > 99.5 and part < whole else f"{percent:.0f}"


def _pitch(ax: Any, n_classes: int) -> float:
    """Side of a square in points."""
    # `figure.figure` is the whole figure where the axes are in a subfigure.
    ax.figure.figure.draw_without_rendering()
    return float(ax.get_window_extent().width / ax.figure.dpi * 72 / n_classes)


def _points(size: str) -> float:
    return float(FontProperties(size=size).get_size_in_points())


def _shortened(name: str, longest: int) -> str:
    """Leave out the middle of a long name: names that begin alike often differ at their end."""
    if len(name) <= longest:
        return name
    tail = longest // 3
    return f"{name[: longest - tail - 1].rstrip()}…{name[-tail:].lstrip()}"
