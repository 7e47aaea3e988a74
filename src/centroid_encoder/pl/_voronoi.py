"""Training and held-out cells over the regions of their classes: the figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgba
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from centroid_encoder.errors import InputError, check_name
from centroid_encoder.pl import _regions
from centroid_encoder.pl._axes import Save, check_save, finish, panel_title
from centroid_encoder.pl._colors import Palette, class_colors, store_colors, unlabeled_color
from centroid_encoder.pl._legend import color_bar, legend_beside, legend_on_data
from centroid_encoder.pl._regions import REGION_ALPHA, Points
from centroid_encoder.pl._values import Values, read_values
from centroid_encoder.tl import _result
from centroid_encoder.tl._read import check_choice
from centroid_encoder.tl._result import Regions, Result

Split = Literal["train", "test", "unused"]
LegendLoc = Literal["right margin", "on data"]

PANEL = 5.0  # side of a panel in inches
SPLITS = _result.TRAIN, _result.TEST, _result.UNUSED, _result.QUERY
"""Panels in order; those without cells are not drawn."""
COLOR_MAP = "viridis"  # perceptually uniform, and the same for colour-blind people


def voronoi(
    adata: AnnData,
    *,
    key: str = "ce",
    color: str | None = None,
    layer: str | None = None,
    use_raw: bool | None = None,
    regions: Regions | None = "voronoi",
    split: Split | None = None,
    mark_misplaced: bool = False,
    palette: Palette | None = None,
    legend_loc: LegendLoc | None = "right margin",
    size: float | None = None,
    title: str | Sequence[str] | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | list[Axes] | None:
    """Plot training and held-out cells over the regions of their classes.

    Both panels show the same regions, which come from the training cells alone; the held-out cells
    show how reliable the map is. The error in the title was computed by `ce.tl.centroid_encoder`,
    by the rule that `regions` draws. A cell lies at the mean of the class positions,
    weighted by its probabilities, plus its scatter within the classes. Cells near a border are
    therefore in doubt between two classes, and are not a subtype. The figure shows one or two
    components; ``sc.pl.embedding(adata, "ce", projection="3d")`` draws three.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`.
    key
        Name of the results, as given to `key_added`.
    color
        Column of ``adata.obs``, or variable, that gives the points their colours: one colour for
        each category, or dark to light for numbers. The 100 categories with the most cells have
        colours, and the others are grey. Default: the class.
    layer
        Layer to take the variable from. Default: ``adata.raw`` if it exists, else ``adata.X``.
    use_raw
        Take the variable from ``adata.raw``. Default: as in scanpy, True if there is one and no
        `layer` is given.
    regions
        ``"voronoi"``: Voronoi cells of the class centers, with straight borders; ``"decoder"``,
        with ``placement="bottleneck"``: the decisions of the model, with curved borders; None: no
        regions.
    split
        ``"train"``, ``"test"`` or ``"unused"`` for one panel. Default: all that have cells.
        Training cells that were not judged are hollow. Cells that were placed by `ingest` have one
        panel with their predicted classes over the regions of the reference; unassigned cells are
        grey.
    mark_misplaced
        Circle the cells that lie in the region of another class.
    palette
        Colours of the classes: a matplotlib colour map, a list in category order, or a dict with
        a colour for every category. Default: ``adata.uns[f"{label_key}_colors"]``. If it is
        missing, it is written, with colours that colour-blind people can distinguish.
    legend_loc
        ``"right margin"``, ``"on data"`` or None.
    size
        Area of a point in square points. Default: smaller with more cells.
    title
        One title for each panel, instead of the default.
    ax
        Axes to draw on, one for each panel.
    show
        Show the figure and return None. Default: ``scanpy.settings.autoshow``, or False if `ax` is
        given.
    save
        Path of the file to write, or True for a file ``"voronoi"`` in ``scanpy.settings.figdir``,
        with the suffix and the format of scanpy's settings.
    dpi
        Dots per inch of the file. Default: ``savefig.dpi`` of matplotlib, or 300 without a number.

    Returns
    -------
    Axes | list[Axes] | None
        The axes, a list if there are two panels; None if they were shown.

    Raises
    ------
    KeyError
        If there is no result with this key, if a column of the result is missing, or if `color` is
        neither a column nor a variable.
    ValueError
        If the embedding has more than two components, if the labels have changed since the
        training, or if an argument is not valid.
    OSError
        If the file cannot be written, for example because its folder is missing.
    """
    check_name(color, "color", "one column of obs or one variable", str | None)
    if (layer is not None or use_raw is not None) and (color is None or color in adata.obs):
        name = "use_raw" if layer is None else "layer"
        raise InputError(f"{name} has no effect unless color is a variable; got {color!r}", name)
    if split is not None:
        check_choice("split", split, Split)
    if legend_loc is not None:
        check_choice("legend_loc", legend_loc, LegendLoc)
    path = check_save("voronoi", save, dpi, own=ax is None)
    result = _result.read_result(adata, key)
    result.check_regions(regions)
    if (n_components := result.embedding.shape[1]) > 2:
        advice = "train with n_components=2, or draw them with sc.pl.embedding"
        raise InputError(f"this figure shows two components, not {n_components}; {advice}")
    panels = [p for p in ([split] if split else SPLITS) if (result.split == p).any()]
    if not panels:
        wanted, found = split or " or ".join(SPLITS), ", ".join(result.split.dropna().unique())
        raise InputError(
            f"nothing to draw: no cell is in the split {wanted}, only in {found}", "split"
        )
    title = [title] if isinstance(title, str) else title
    titles = title or [panel_title(result, panel, regions) for panel in panels]
    if len(titles) != len(panels):
        text = f"title must have one entry for each of the {len(panels)} panels"
        raise InputError(text, "title")
    colors = class_colors(adata, result, palette)
    of_class = {name: colors[name] for name in result.classes}
    grey = []
    if (result.split == _result.UNLABELED).any():
        grey.append("no label" if "unlabeled" in map(str, result.classes) else "unlabeled")
    if ((result.split == _result.QUERY) & (result.codes < 0)).any():
        grey.append(_result.UNASSIGNED)
    values = Values(result.label_key, result.codes, of_class, grey)
    if color is not None and color != result.label_key:
        values = read_values(adata, color, layer=layer, use_raw=use_raw)
    points = _regions.plane_points(result.embedding)
    centers = _regions.plane_centers(result.centers)
    # The limits include the centers, since a class may have no cell near its center.
    inside = points if result.is_query else np.vstack([points, centers])
    limits = _regions.panel_limits(inside, equal=n_components > 1)
    paths = _regions.class_regions(adata, result, regions, limits)

    axes = _axes(ax, len(panels))
    area = size or np.clip(400 / np.sqrt(len(points)), 0.5, 24)
    for target, panel, text in zip(axes, panels, titles, strict=True):
        _draw_regions(target, result, limits, text, paths, list(of_class.values()))
        shown = result.split.isin([panel, _result.UNLABELED]).to_numpy()
        _draw_cells(target, points, shown, values, area, result.unjudged)
        if mark_misplaced:
            decided = regions or result.decided_by
            misplaced = result.misplaced(decided) & (result.split == panel)
            ring = {"markeredgecolor": plt.rcParams["text.color"], "markeredgewidth": 0.8}
            _dots(target, points[misplaced], np.sqrt(area) + 2.5, "none", zorder=2.5, **ring)
        if legend_loc == "on data":
            legend_on_data(target, list(map(str, result.classes)), centers)
    last, by_class, in_margin = axes[-1], values.colors is of_class, legend_loc == "right margin"
    if values.colors is None:
        color_bar(last, values.name, ScalarMappable(values.norm, COLOR_MAP))
    elif in_margin or (legend_loc is not None and not by_class):
        marked = mark_misplaced and by_class
        legend_beside(last, values.name, values.colors, values.grey, marked=marked)
    if in_margin and not by_class and paths:
        classes = result.label_key, of_class
        legend_beside(last, *classes, marked=mark_misplaced, regions=True)
    store_colors(adata, result, colors)
    drawn = axes if len(axes) > 1 else axes[0]
    return finish(drawn, show=show, path=path, dpi=dpi, own=ax is None)


def _axes(ax: Axes | Sequence[Axes] | None, n_panels: int) -> list[Any]:
    """Return the axes given, or a row of new ones."""
    if ax is None:
        gap = 2.2 * plt.rcParams["font.size"] / 72
        size = n_panels * PANEL + (n_panels - 1) * gap, PANEL
        grid = {"left": 0, "right": 1, "bottom": 0, "top": 1, "wspace": gap / PANEL}
        return list(plt.subplots(1, n_panels, figsize=size, squeeze=False, gridspec_kw=grid)[1][0])
    axes: list[Any] = np.asarray(ax, dtype=object).ravel().tolist()
    if len(axes) != n_panels:
        text = f"ax must hold {n_panels} axes, one for each panel; got {len(axes)}"
        raise InputError(f"{text}. Choose one panel with split", "ax")
    return axes


def _draw_regions(
    ax: Any, result: Result, limits: Points, title: str, paths: Sequence[Path], colors: list[str]
) -> None:
    """Draw the regions, the title and the names of the components."""
    ax.set_title(title, fontsize="medium")
    name, is_plane = "CE" if result.key == "ce" else result.key, result.embedding.shape[1] == 2
    ax.set(xticks=[], yticks=[], xlabel=f"{name}1", ylabel=f"{name}2" if is_plane else "")
    ax.set(xlim=limits[:, 0], ylim=limits[:, 1], aspect="equal" if is_plane else "auto")
    for path, color in zip(paths, colors, strict=False):
        if len(path):
            # Borders have the colour of the page, which can be light or dark.
            style = {"facecolor": to_rgba(color, REGION_ALPHA), "edgecolor": ax.get_facecolor()}
            ax.add_patch(PathPatch(path, linewidth=1, **style))


def _draw_cells(
    ax: Any,
    points: Points,
    shown: NDArray[np.bool_],
    values: Values,
    area: float,
    hollow: NDArray[np.bool_],
) -> None:
    """Draw cells in the colours of their values; those without a value are grey and below."""
    grey, known = points[shown & ~values.known], np.flatnonzero(shown & values.known)
    _dots(ax, grey, np.sqrt(area), unlabeled_color(ax), zorder=1.5)
    points, found, hollow = points[known], values.values[known], hollow[known]
    if values.colors is None:
        order = np.argsort(found, kind="stable")  # the largest values are on top
        style = {"s": area, "linewidths": 0, "rasterized": True, "zorder": 2}
        x, y = points[order].T
        ax.scatter(x, y, c=found[order], cmap=COLOR_MAP, norm=values.norm, **style)
        return
    # One Line2D for each class is by far the fastest way to draw many points. The smallest class is
    # on top.
    colors = list(values.colors.values())
    for code in np.argsort(-np.bincount(found, minlength=len(colors)), kind="stable"):
        of_class = found == code
        _dots(ax, points[of_class & ~hollow], np.sqrt(area), colors[code], zorder=2)
        rim = {"markeredgecolor": colors[code], "markeredgewidth": max(0.6, np.sqrt(area) / 6)}
        _dots(ax, points[of_class & hollow], np.sqrt(area), "none", zorder=2, **rim)


def _dots(ax: Any, points: Points, size: float, color: str, **style: Any) -> None:
    style = {"markeredgewidth": 0} | style
    ax.plot(*points.T, "o", markersize=size, color=color, rasterized=True, **style)
