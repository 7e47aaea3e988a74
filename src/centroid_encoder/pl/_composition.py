"""Composition: which share of each image, donor or other group each class has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np

from centroid_encoder.errors import InputError
from centroid_encoder.pl._axes import Save, figure_writer, finish, fit_figure, write_title
from centroid_encoder.pl._colors import Palette, label_colors
from centroid_encoder.tl._composition import composition as composition_of

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

BAR, WIDTH = 0.28, 4.6
"""Height of a bar with its gap, and width of the axes, in inches; for letters of ten points."""
ENTRIES = 20
"""Classes in a column of the legend."""
MOST = 1000
"""Groups that are drawn."""


def composition(
    adata: AnnData,
    group_key: str,
    *,
    label_key: str | None = None,
    key: str = "ce",
    counts: bool = False,
    palette: Palette | None = None,
    title: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot which classes each image, donor or other group is made of: a bar for each group.

    The numbers are those of `ce.tl.composition`, which a table for a spreadsheet is made of.

    Parameters
    ----------
    adata
        Annotated data.
    group_key
        Column of ``adata.obs`` with the groups.
    label_key
        Column of ``adata.obs`` with the classes; ``"ce_label"``, say, for those that are predicted.
        Default: the labels of the map.
    key
        Name of the map, as given to `key_added`. Only without a `label_key`.
    counts
        Show numbers of cells in place of shares of the group.
    palette
        As in `voronoi`.
    title
        In place of the default.
    ax, show, save, dpi
        As in `voronoi`.

    Returns
    -------
    Axes | None
        None if shown; else the axes of the bars.

    Raises
    ------
    KeyError
        If there is no such column or map.
    ValueError
        If no cell has both a group and a label, if there are too many groups, or if an argument is
        not valid.
    """
    write = figure_writer("composition", save, dpi, own=ax is None)
    table = composition_of(adata, group_key, label_key=label_key, key=key)
    label_key = str(table.columns.name)
    numbers = table.to_numpy(dtype=np.float64)
    if not numbers.sum():
        raise InputError(f"no cell has both a group in obs[{group_key!r}] and a label")
    if len(table) > MOST:
        text = f"group_key: obs[{group_key!r}] has {len(table)} groups, too many for bars"
        raise InputError(text, "group_key")
    sizes = numbers.sum(axis=1)
    if not counts:
        numbers = 100 * numbers / np.maximum(sizes, 1)[:, None]
    colors = label_colors(adata, label_key, palette)
    target: Any = _new_axes(len(table)) if ax is None else ax
    at = np.arange(len(table))
    left = np.zeros(len(table))
    for name, widths in zip(table.columns, numbers.T, strict=True):
        target.barh(at, widths, left=left, height=0.8, color=colors[name], label=str(name))
        left += widths
    names = [f"{name} ({int(n):,})" for name, n in zip(table.index, sizes, strict=True)]
    target.set_yticks(at, names, parse_math=False)
    target.tick_params(axis="y", length=0)
    target.set_ylim(len(table) - 0.5, -0.5)
    target.set_xlim(0, max(left.max(), 1) if counts else 100)
    target.set_xlabel("cells" if counts else "share of the cells (%)")
    target.grid(visible=False)
    for side in ("top", "right", "left"):
        target.spines[side].set_visible(False)
    write_title(target, title, f"{label_key} by {group_key}, n = {int(sizes.sum()):,}")
    legend = target.legend(
        loc="upper left",
        bbox_to_anchor=(1.02, 1),
        ncols=int(np.ceil(len(table.columns) / ENTRIES)),
        frameon=False,
        fontsize="small",
        borderaxespad=0,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    if ax is None:
        fit_figure(target.figure)
    return finish(target, show=show, write=write, own=ax is None)


def _new_axes(n_groups: int) -> Any:
    letters = plt.rcParams["font.size"] / 10
    width, height = WIDTH * letters, max(BAR * n_groups, 3 * BAR) * letters
    figure = plt.figure(figsize=(width + 3, height + 2))
    size = width / (width + 3), height / (height + 2)
    return figure.add_axes((1.5 / (width + 3), 1 / (height + 2), *size))
