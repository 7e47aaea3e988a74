"""Confusion matrix of true and predicted classes."""

from __future__ import annotations

from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.font_manager import FontProperties
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import confusion_matrix

from centroid_encoder.pl._axes import Save, check_save, finish, new_axes, write_title
from centroid_encoder.pl._colors import unlabeled_color
from centroid_encoder.pl._legend import FEWER_LETTERS, color_bar, shortened
from centroid_encoder.tables import cv_key
from centroid_encoder.tl import _result
from centroid_encoder.tl._check import check_choice
from centroid_encoder.tl._evaluation import read_held_out

Order = Literal["similar", "category"]

MIN_FONT = 5.5  # size of the smallest text in points
SMALL = FontProperties(size="small")


def confusion(
    adata: AnnData,
    *,
    key: str = "ce",
    title: str | None = None,
    counts: bool = False,
    order: Order = "similar",
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot true against predicted classes, predicted by networks that had not seen the labels.

    A row is a class, with the number of its cells. Its squares are the classes that were predicted
    for these cells. The predictions are those of a cross-validation (out-of-fold) if there is one,
    and otherwise those of the held-out cells. Colours follow the square root, so that rare
    confusions are visible. Return values and errors are as in `voronoi`.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.cross_validate`, or after a training with held-out cells.
    counts
        Show numbers of cells instead of shares of the class.
    order
        ``"similar"``: classes that are confused with each other are neighbours; ``"category"``: the
        order of the label column.
    key, title, ax, show, save, dpi
        As in `voronoi`.
    """
    path = check_save("confusion", save, dpi, own=ax is None)
    check_choice("order", order, Order)
    table, classes, words = _read(adata, key)
    places = _similar(table) if order == "similar" else np.arange(len(table))
    table, names = table[np.ix_(places, places)], [str(classes[i]) for i in places]
    # The middle is left out, because names with the same beginning often have different ends.
    names = [shortened(name, FEWER_LETTERS) for name in names]
    size = table.sum(axis=1, keepdims=True)
    shares = np.divide(100 * table, size, out=np.full(table.shape, np.nan), where=size > 0)
    values = np.where(size > 0, table, np.nan) if counts else shares

    side = float(np.clip(0.42 * len(names), 2.6, 8))
    target: Any = new_axes(side, side) if ax is None else ax
    norm = PowerNorm(0.5, 0, max(np.nanmax(values), 1) if counts else 100)
    blues = mpl.colormaps["Blues"].with_extremes(bad=unlabeled_color(target))
    image = target.imshow(values, cmap=blues, norm=norm, interpolation="none")
    target.grid(visible=False)
    n = table.sum()
    write_title(target, title, f"{words}\n{100 * np.trace(table) / n:.1f} % right" if n else words)
    target.set(xlabel="predicted class", ylabel="true class (number of cells)")
    label = "cells" if counts else "share of the true class (%)"
    bar = color_bar(target, label, image, height=1)
    if not counts:
        bar.set_ticks((0, 1, 5, 10, 25, 50, 100))
    pitch = _name_classes(target, names, size[:, 0])
    texts = {
        (i, j): f"{table[i, j]:,}" if counts else _percent(shares[i, j])
        for i, j in np.argwhere(table)
    }
    _write_values(target, image, texts, pitch)
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)


def _read(adata: AnnData, key: str) -> tuple[NDArray[np.int64], pd.Index, str]:
    """Return (M, M) cells by true and predicted class, the classes, and a title."""
    stored = _result.StoredCrossValidation.read(adata, key)
    if stored is not None:
        # The counts are those of all cells, even if `adata` is a selection of them.
        _result.own_cells(adata, cv_key(key), stored)
        table, words = stored.confusion, _result.out_of_fold_words(stored)
        return table, stored.classes, f"{words}, n = {table.sum():,}"
    cells, classes = read_held_out(adata, key), _result.read_result(adata, key).classes
    table = confusion_matrix(cells.own, cells.predicted, labels=range(len(classes)))
    n, n_all = len(cells.own), cells.quality["n"]
    return table, classes, f"{cells.words}, n = {n:,}" + (f" of {n_all:,}" * (n < n_all))


def _similar(table: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return an (M,) order of the classes in which those that are often confused are neighbours."""
    size = table.sum(axis=1, keepdims=True)
    shares = table / np.maximum(size, 1)
    # Classes that are never confused are in the order of their categories.
    place = np.arange(len(table))
    distances = 1 - (shares + shares.T) / 2 + 1e-3 * np.abs(place[:, None] - place) / len(table)
    np.fill_diagonal(distances, 0)
    order = leaves_list(linkage(squareform(distances), "average", optimal_ordering=True))
    # The direction is arbitrary; in the one that is chosen, the categories rise.
    if np.dot(order, place - place.mean()) < 0:
        order = order[::-1]
    # Classes without cells are last.
    return np.asarray(order[np.argsort(size[order, 0] == 0, kind="stable")], dtype=np.intp)


def _name_classes(ax: Any, names: list[str], sizes: NDArray[np.int64]) -> float:
    """Write as many names of classes as there is room for; return a square's side in points."""
    rows = [f"{name} ({n:,})" for name, n in zip(names, sizes, strict=True)]
    ax.tick_params(length=2)
    pitch = 0.0
    # Twice, because in a constrained layout the names make the squares smaller.
    for _ in range(2):
        # `figure.figure` is the whole figure if the axes are in a subfigure.
        ax.figure.figure.draw_without_rendering()
        pitch = float(ax.get_window_extent().width / ax.figure.dpi * 72 / len(names))
        font = np.clip(pitch / 1.15, MIN_FONT, SMALL.get_size_in_points())
        step = int(np.ceil(1.15 * font / pitch))
        rotation = 0 if 0.65 * font * (max(map(len, names)) + 1) < step * pitch else 90
        style: dict[str, Any] = {"ticks": range(0, len(names), step), "fontsize": font}
        ax.set_yticks(labels=rows[::step], parse_math=False, **style)
        ax.set_xticks(labels=names[::step], parse_math=False, rotation=rotation, **style)
    return pitch


def _write_values(ax: Any, image: Any, texts: dict[tuple[int, int], str], pitch: float) -> None:
    """Write values onto their squares, unless the squares are too small."""
    longest = max(map(len, texts.values()), default=1)
    font = min(SMALL.get_size_in_points(), 0.6 * pitch, 1.28 * pitch / longest)
    if font < MIN_FONT:
        return
    for (i, j), text in texts.items():
        luminance = np.dot(image.to_rgba(image.get_array()[i, j])[:3], (0.3, 0.59, 0.11))
        color = "black" if luminance > 0.5 else "white"
        ax.text(j, i, text, ha="center", va="center", fontsize=font, color=color)


def _percent(share: float) -> str:
    """Round a share to whole per cent; only 0 becomes "0", and only 100 becomes "100"."""
    if share < 0.5:
        return "<1"
    return ">99" if 99.5 < share < 100 else f"{share:.0f}"
