"""The paper's figure: class regions beneath training and held-out cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import PathPatch
from numpy.typing import NDArray

from centroid_encoder.errors import InputError, check_name
from centroid_encoder.pl._axes import Save, figure_writer, finish, fit_figure, panel_title
from centroid_encoder.pl._colors import Palette, class_colors, store_colors, unlabeled_color
from centroid_encoder.pl._legend import legend_beside, legend_on_data
from centroid_encoder.pl._points import Coloring, read_coloring
from centroid_encoder.pl._regions import (
    REGION_ALPHA,
    Shapes,
    add_image,
    class_regions,
    paint_image,
    panel_limits,
    plane_centers,
    plane_points,
    region_paths,
)
from centroid_encoder.tl._result import QUERY, UNASSIGNED, Regions, Result, read_result

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

Split = Literal["train", "test"]
LegendLoc = Literal["right margin", "on data"]

PANEL = 5.0
"""Side of a panel in inches."""


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

    Both panels show the same regions, which come from the training cells alone; how well the
    held-out cells fall into them is what can be believed of the picture. The error in the title is
    the one that `ce.tl.centroid_encoder` counted, by the rule whose regions are drawn. A cell lies
    at the mean of the class positions, weighted by its probabilities, plus its scatter within the
    classes: a clump towards a border is doubt between two classes, not a subtype.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`.
    key
        Name of the results, as given to `key_added`.
    color
        Column of ``adata.obs``, or variable, by which the points are coloured over the regions of
        their classes: categories in their own colours, numbers from dark to light. Default: by
        class.
    layer
        Layer to take the variable from. Default: ``adata.raw`` where it exists, else ``adata.X``.
    use_raw
        Take the variable from ``adata.raw``. Default: as scanpy, if there is one and no `layer` is
        given.
    regions
        ``"voronoi"``: cells of the class centers, straight-edged; ``"decoder"``: where the model
        decides for a class, which with ``placement="bottleneck"`` is curved, and else the same;
        None: no regions.
    split
        ``"train"`` or ``"test"`` for one panel. Default: both, where cells were held out. Cells
        that `ingest` has sent through a map have one panel of their own: predicted classes over
        the reference's regions, unassigned cells grey.
    mark_misplaced
        Circle the cells that lie in another class's region.
    palette
        Colours of the classes: a matplotlib colour map, a list in category order, or a dict.
        Default: ``adata.uns[f"{label_key}_colors"]``, which is written if it is missing, with
        colours that the colour-blind can tell apart.
    legend_loc
        ``"right margin"``, ``"on data"`` or None. Classes without a region are named as such in
        the margin.
    size
        Area of a point in square points. Default: the smaller, the more cells there are.
    title
        One title for each panel, in place of the default.
    ax
        Axes to draw on, one for each panel; three-dimensional ones for three components.
    show
        Show the figure and return None. Default: as ``scanpy.settings.autoshow`` says, unless
        `ax` is given.
    save
        A path, as a :class:`~pathlib.Path` or as a string with a folder or a format in it, is where
        the figure is written. True, or a string such as ``"_first"`` or ``".png"``, writes to
        ``scanpy.settings.figdir`` under ``"voronoi"`` plus that string, as in scanpy; so does a
        string that begins with ``_``, ``-`` or ``.``.
    dpi
        Dots per inch of the file. Default: that of matplotlib's settings, or 200; in vector
        formats, where it is that of the points, at least 300.

    Returns
    -------
    Axes | list[Axes] | None
        None if shown; else the axes, a list where there are two panels.

    Raises
    ------
    KeyError
        If there is no result under that key, if a column that belongs to it is gone, or if there is
        nothing named `color`.
    ValueError
        If the embedding has more than three components, if the labels are no longer those it was
        made with, or if an argument is not valid.
    OSError
        If the file to save to cannot be written, such as for want of its folder.
    """
    check_name(color, "color", "a column of obs or of a variable (a figure shows one)", str | None)
    check_name(layer, "layer", "an entry of layers", str | None)
    if (layer is not None or use_raw is not None) and (color is None or color in adata.obs):
        name = "use_raw" if layer is None else "layer"
        raise InputError(f"{name} has no effect unless color is a variable; got {color!r}", name)
    write = figure_writer("voronoi", save, dpi, own=ax is None)
    result = read_result(adata, key)
    _check(result, regions, split, legend_loc)
    panels = (
        [split] if split else [p for p in ("train", "test", QUERY) if (result.split == p).any()]
    )
    if not panels:
        raise InputError(
            "none of these cells was trained on, held out or ingested: nothing to draw"
        )
    titles = [title] if isinstance(title, str) else title
    if titles is None:
        titles = [panel_title(result, panel, regions) for panel in panels]
    if len(titles) != len(panels):
        text = f"title must have one entry for each of the {len(panels)} panels"
        raise InputError(text, "title")
    coloring = None
    if color is not None and color != result.label_key:
        coloring = read_coloring(adata, color, layer=layer, use_raw=use_raw)
    colors = class_colors(adata, result, palette)
    points = plane_points(result.embedding)
    # Of a class that no cell is taken for, nothing else may be there.
    inside = points if result.is_query else np.vstack([points, plane_centers(result.centers)])
    limits = panel_limits(inside, equal=result.embedding.shape[1] > 1)
    shapes = class_regions(adata, result, regions, limits)

    axes = _axes(ax, len(panels), result.embedding.shape[1])
    area = size or np.clip(400 / np.sqrt(len(points)), 0.5, 24)
    for target, panel, text in zip(axes, panels, titles, strict=True):
        _decorate(target, result, limits, text)
        _fill(target, shapes, limits, [colors[name] for name in result.classes])
        shown = result.split.isin([panel, "unlabeled"]).to_numpy()
        if coloring is None:
            _draw_cells(
                target, points, shown, result.codes, [colors[c] for c in result.classes], area
            )
        elif coloring.colors is None:
            unknown = np.where(np.isfinite(coloring.values), len(points), -1)
            _draw_cells(target, points, shown, unknown, [], area)
            coloring.draw_points(target, points, shown, area)
        else:
            _draw_cells(target, points, shown, coloring.values, [*coloring.colors.values()], area)
        if mark_misplaced:
            misplaced = result.misplaced(regions or "decoder") & (result.split == panel)
            _dots(
                target,
                points[misplaced],
                np.sqrt(area) + 2.5,
                color="none",
                markeredgecolor=plt.rcParams["text.color"],
                markeredgewidth=0.8,
                zorder=2.5,
            )
        if legend_loc == "on data":
            legend_on_data(target, list(map(str, result.classes)), plane_centers(result.centers))
    beyond = None
    if coloring is not None:
        beyond = _explain(axes[-1], coloring, legend_loc)
    if legend_loc == "right margin" and (coloring is None or len(shapes)):
        has_region = _has_region(shapes, len(result.classes))
        entries = {
            f"{name}{'' if has else ' (no region)'}": colors[name]
            for name, has in zip(result.classes, has_region, strict=True)
        }
        if coloring is None:
            entries |= _grey_entries(result, entries, unlabeled_color(axes[-1]))
        legend_beside(
            axes[-1],
            result.label_key,
            entries,
            marked=mark_misplaced,
            beyond=beyond,
            regions=coloring is not None,
        )
    if ax is None:
        fit_figure(axes[0].figure)
    store_colors(adata, result, colors)
    drawn = axes if len(axes) > 1 else axes[0]
    return finish(drawn, show=show, write=write, own=ax is None)


def _check(result: Result, regions: str | None, split: str | None, legend_loc: str | None) -> None:
    for name, value, choices in (
        ("regions", regions, ("voronoi", "decoder", None)),
        ("split", split, ("train", "test", None)),
        ("legend_loc", legend_loc, ("right margin", "on data", None)),
    ):
        if value not in choices:
            raise InputError(f"{name} must be one of {choices}; got {value!r}", name)
    if split is not None and (result.split == QUERY).any():
        text = "split is for cells that were trained on; these were ingested"
        raise InputError(text, "split")
    if split == "test" and not (result.split == "test").any():
        text = "no cell was held out (test_size=0): there is no test panel"
        raise InputError(text, "split")
    if result.embedding.shape[1] > 3:
        raise InputError(
            f"the embedding has {result.embedding.shape[1]} components; this figure shows up to "
            "three (train with n_components=2, or see sc.pl.embedding)"
        )


def _grey_entries(result: Result, names: Mapping[str, str], grey: str) -> dict[str, str]:
    """Entries of a legend for the cells that have no class."""
    entries = {}
    if (result.split == "unlabeled").any():
        entries["no label" if "unlabeled" in names else "unlabeled"] = grey
    if ((result.split == QUERY) & (result.codes < 0)).any():
        entries[UNASSIGNED] = grey
    return entries


def _explain(ax: Any, coloring: Coloring, legend_loc: LegendLoc | None) -> Any:
    """Say beside a panel what the colours of the points mean; return the bar or the legend."""
    if coloring.colors is None:
        return coloring.draw_bar(ax)
    if legend_loc is None:
        return None
    entries = {str(name): color for name, color in coloring.colors.items()}
    if (coloring.values < 0).any():
        entries["none"] = unlabeled_color(ax)
    return legend_beside(ax, coloring.name, entries, marked=False)


def _axes(ax: Axes | Sequence[Axes] | None, n_panels: int, n_components: int) -> list[Any]:
    if ax is None:
        return _new_axes(n_panels, "3d" if n_components == 3 else None)
    axes = list(ax) if isinstance(ax, Sequence | np.ndarray) else [ax]
    if len(axes) != n_panels:
        raise InputError(
            f"ax must hold {n_panels} axes, one for each panel; got {len(axes)}. Choose one panel "
            "with split",
            "ax",
        )
    if n_components == 3 and not all(hasattr(target, "get_zlim") for target in axes):
        raise InputError("three components need three-dimensional axes (projection='3d')")
    return axes


def _new_axes(n_panels: int, projection: str | None) -> list[Any]:
    # Placed in inches, so that panels have one size and are aligned.
    gap = 2.2 * plt.rcParams["font.size"] / 72
    figure = plt.figure(figsize=(n_panels * (PANEL + gap), PANEL))
    width = figure.get_figwidth()
    boxes = ((i * (PANEL + gap) / width, 0, PANEL / width, 1) for i in range(n_panels))
    return [figure.add_axes(box, projection=projection) for box in boxes]


def _fill(ax: Axes, shapes: Shapes, limits: NDArray[np.floating], colors: Sequence[str]) -> None:
    paint_image(add_image(ax), shapes, limits, colors, REGION_ALPHA)
    for outline, color in zip(region_paths(shapes, len(colors)), colors, strict=True):
        if len(outline):
            ax.add_patch(PathPatch(outline, facecolor=color, alpha=REGION_ALPHA, linewidth=0))
            # Borders in the colour of the page separate regions in light and in dark figures.
            border = ax.get_facecolor()
            ax.add_patch(PathPatch(outline, facecolor="none", edgecolor=border, linewidth=1))


def _has_region(shapes: Shapes, n_classes: int) -> list[bool]:
    """Whether each class has a region; True for all if no regions are drawn."""
    if isinstance(shapes, np.ndarray):
        return [bool((shapes == code).any()) for code in range(n_classes)]
    return [len(shape) > 0 for shape in shapes] or [True] * n_classes


def _draw_cells(
    ax: Any,
    points: NDArray[np.floating],
    shown: NDArray[np.bool_],
    codes: NDArray[np.intp],
    colors: list[str],
    area: float,
) -> None:
    """Draw the cells that are shown in the colours of their codes, those of code −1 in grey."""
    grey = points[shown & (codes < 0)]
    _dots(ax, grey, np.sqrt(area), color=unlabeled_color(ax), zorder=1.5)
    # One Line2D a class is by far the fastest way to draw many points; the smallest class on top.
    counts = np.bincount(codes[shown & (codes >= 0)], minlength=len(colors))[: len(colors)]
    for code in np.argsort(-counts, kind="stable"):
        _dots(ax, points[shown & (codes == code)], np.sqrt(area), color=colors[code], zorder=2)


def _dots(ax: Any, points: NDArray[np.floating], size: float, **style: Any) -> None:
    style = {"markeredgewidth": 0, "markersize": size} | style
    ax.plot(*points.T, linestyle="none", marker="o", rasterized=True, **style)


def _decorate(ax: Any, result: Result, limits: NDArray[np.floating], title: str) -> None:
    ax.set_title(title, fontsize="medium")
    name = "CE" if result.key == "ce" else result.key
    n_components = result.embedding.shape[1]
    for i, (axis, (low, high)) in enumerate(zip("xyz", limits.T, strict=False)):
        ax.set(**{f"{axis}lim": (low, high), f"{axis}ticks": []})
        if i < n_components:
            ax.set(**{f"{axis}label": f"{name}{i + 1}"})
    if n_components == 2:
        ax.set_aspect("equal")
    if n_components == 3:
        # There are no numbers on the axes, so their names can come closer.
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.labelpad = -10
        ax.set_box_aspect((1, 1, 1))
