"""Training and held-out cells over the regions of their classes: the figure of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from numpy.typing import NDArray
from pandas.api.types import is_list_like

from centroid_encoder.errors import check, check_name
from centroid_encoder.pl import _axes, _legend
from centroid_encoder.pl._axes import Save, check_save, finish, panel_axes, set_panel
from centroid_encoder.pl._colors import COLOR_MAP, Palette, color_map, store_colors, unlabeled_color
from centroid_encoder.pl._points import draw_cells, draw_dots
from centroid_encoder.pl._regions import Drawn, Plane, Points
from centroid_encoder.pl._values import Bound, Values
from centroid_encoder.tl import _result
from centroid_encoder.tl._check import check_choice
from centroid_encoder.tl._result import Result

Split = Literal["train", "test", "unused", "all"]

SPLITS = _result.TRAIN, _result.TEST, _result.UNUSED, _result.QUERY
"""Panels in order; those without cells are not drawn."""
ALL = "all"


def voronoi(
    adata: AnnData,
    *,
    key: str = "ce",
    color: str | Sequence[str] | None = None,
    groups: str | Sequence[str] | None = None,
    layer: str | None = None,
    use_raw: bool | None = None,
    gene_symbols: str | None = None,
    regions: Drawn | None = "soft",
    split: Split | None = None,
    mark_misplaced: bool = False,
    contours: bool = False,
    palette: Palette | None = None,
    cmap: str | Colormap | None = None,
    vmin: Bound | Sequence[Bound] = None,
    vmax: Bound | Sequence[Bound] = None,
    vcenter: Bound | Sequence[Bound] = None,
    na_color: str | None = None,
    size: float | None = None,
    alpha: float | None = None,
    frameon: bool | None = None,
    legend_loc: str | None = "right margin",
    legend_fontsize: float | str | None = None,
    legend_fontoutline: float | None = None,
    ncols: int = 4,
    title: str | Sequence[str] | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    return_fig: bool = False,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | list[Axes] | Figure | None:
    """Plot training and held-out cells over the regions of their classes.

    Both panels show the same regions, which come from the training cells alone; the held-out cells
    show how reliable the map is. The error in the title was computed by `ce.tl.centroid_encoder`,
    by the rule that `regions` draws. A cell lies at the mean of the class positions,
    weighted by its probabilities, plus its scatter within the classes. Cells near a border are
    therefore in doubt between two classes, and are not a subtype. The figure shows one or two
    components; ``sc.pl.embedding(adata, "ce", projection="3d")`` draws three.

    Arguments that `scanpy.pl.embedding` has, too, mean the same here.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`.
    key
        Name of the results, as given to `key_added`.
    color
        Column of ``adata.obs``, or variable, that gives the points their colours: one colour for
        each category, or dark to light for numbers. The 100 categories with the most cells have
        colours, and the others are grey. A list makes one panel with all cells for each entry.
        Default: the class.
    groups
        Categories of `color` that have colours; the cells of all others are grey. In a grid, these
        are categories of any of the columns.
    layer
        Layer to take the variable from. Default: ``adata.raw`` if it exists, else ``adata.X``.
    use_raw
        Take the variable from ``adata.raw``. Default: as in scanpy, True if there is one and no
        `layer` is given.
    gene_symbols
        Column of ``var`` with the names of the variables. Default: ``var_names``.
    regions
        ``"soft"``: Voronoi cells of the class centers, whose colours blend at their borders. The
        blend shows between which classes a place lies; only points are evidence of doubt.
        ``"voronoi"``: Voronoi cells of one colour, as in the paper; ``"decoder"``,
        with ``placement="bottleneck"``: the decisions of the model, with curved borders; None: no
        regions.
    split
        ``"train"``, ``"test"`` or ``"unused"`` for one panel; ``"all"`` for one panel with all
        cells, where held-out cells are rings. Default: a panel for each split that has cells.
        Training cells that were not judged are hollow. Cells that were placed by `ingest` have one
        panel with their predicted classes over the regions of the reference; unassigned cells are
        grey. Next to training cells in one table, the name of the labels says so.
    mark_misplaced
        Circle the cells that lie in the region of another class.
    contours
        Draw contour lines of each category, within which half and 90 % of its cells lie, instead
        of points. They show the structure within classes if there are 50,000 cells or more.
    palette
        Colours of the classes, or of the categories of `color`: a matplotlib colour map or its
        name, a list or cycler in category order, or a dict with one for every category. Default:
        ``adata.uns[f"{label_key}_colors"]``. If the one of the classes is missing, it is written,
        with colours that colour-blind people can distinguish.
    cmap
        Matplotlib colour map of numbers. Default: viridis.
    vmin, vmax, vcenter
        Ends and middle of the scale of numbers: a number, a percentile such as ``"p99"``, a
        function of the values, or a list with one of these for each entry of `color`.
    na_color
        Colour of the cells that have none by `color`. Default: a grey.
    size
        Area of a point in square points. Default: smaller with more cells.
    alpha
        Opacity of the points. Default: smaller for classes with more cells, so that their density
        is visible.
    frameon
        Draw the frame and the names of the components. Default: as set by
        `scanpy.set_figure_params`.
    legend_loc
        ``"right margin"``, ``"on data"``, a location of matplotlib such as ``"upper left"`` (for up
        to 12 entries; a longer legend is in the right margin), or None. With ``"on data"``, up to
        25 names are moved apart if they would overlap; of more names, those that fit are written.
    legend_fontsize, legend_fontoutline
        Font size of the names, and width in points of the outline of names on the data.
    ncols
        Number of panels in a row, if `color` is a list.
    title
        One title for each panel, instead of the default.
    ax
        Axes to draw on, one for each panel.
    return_fig
        Return the figure instead of the axes.
    show
        Show the figure and return None. Default: ``scanpy.settings.autoshow``, or False if `ax` is
        given or the figure is returned.
    save
        Path of the file to write, or True for a file ``"voronoi"`` in ``scanpy.settings.figdir``,
        with the suffix and the format of scanpy's settings.
    dpi
        Dots per inch of the file. Default: ``savefig.dpi`` of matplotlib, or 300 without a number.

    Returns
    -------
    Axes | list[Axes] | Figure | None
        The axes, a list if there are several panels; None if they were shown.

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
    is_grid, names = is_list_like(color), _listed(color)
    variable = {"layer": layer, "use_raw": use_raw, "gene_symbols": gene_symbols}
    _check(adata, names, variable, legend_loc, {"size": size, "alpha": alpha, "ncols": ncols})
    cmap = color_map(COLOR_MAP if cmap is None else cmap, "cmap")
    ends = [_listed(end, len(names)) for end in (vmin, vmax, vcenter)]
    for argument, end in zip(("vmin", "vmax", "vcenter"), ends, strict=True):
        text = f"{argument} needs an entry for each of the {len(names)} entries of color"
        check(len(end) == len(names), text, argument)
    if split is not None:
        check_choice("split", split, Split)
    path = check_save("voronoi", save, dpi, own=ax is None)
    plane = Plane(adata, key, regions, palette, names)
    is_line = plane.result.embedding.shape[1] == 1
    check(not (contours and is_line), "contours need a map with two components, not 1", "contours")
    splits = _splits(plane.result, split, is_grid)
    n_panels = len(names) * len(splits)
    titles = [None] * n_panels if title is None else _listed(title)
    text = f"title must have one entry for each of the {n_panels} panels"
    check(len(titles) == n_panels, text, "title")
    panels: list[tuple[Values, str]] = []
    for name, low, high, middle in zip(names, *ends, strict=True):
        values = plane.values(name, **variable)
        if groups is not None:
            values = values.of_groups(_listed(groups), strict=not is_grid)
        panels += [(values.on_scale(cmap, low, high, middle), panel) for panel in splits]
    dot = float(np.sqrt(size or np.clip(300 / np.sqrt(len(plane.points)), 1, 12)))
    axes = panel_axes(ax, n_panels, ncols if is_grid else n_panels)
    style: dict[str, Any] = {"size": dot, "alpha": alpha, "contours": contours}
    place: dict[str, Any] = {"loc": legend_loc, "size": legend_fontsize}
    for target, text, (values, panel) in zip(axes, titles, panels, strict=True):
        has_name = is_grid or panel == ALL
        default = values.name if has_name else _axes.panel_title(plane.result, panel, regions)
        set_panel(target, plane.result, plane.limits, frameon=frameon)
        _axes.write_title(target, text, default)
        style["grey"] = grey = na_color or unlabeled_color(target)
        rings = _draw_panel(target, plane, values, panel, mark_misplaced, **style)
        if legend_loc == "on data":
            on_data = _names_on_data(plane, values, panel)
            _legend.legend_on_data(
                target, *on_data, size=legend_fontsize, outline=legend_fontoutline
            )
        if is_grid or target is axes[-1]:  # The last panel has the legend of all.
            has_regions = not is_grid and plane.paths and not values.of_classes
            of_regions = plane.result.label_key, plane.of_class if has_regions else {}
            _legend.legends(target, values, of_regions, rings, grey, **place)
    if ax is None and is_grid:
        _axes.make_room(axes)
    store_colors(adata, plane.result, plane.colors)
    drawn = axes[0].figure if return_fig else axes if len(axes) > 1 else axes[0]
    show = False if return_fig and show is None else show
    return finish(drawn, show=show, path=path, dpi=dpi, own=ax is None)


def regions(
    adata: AnnData,
    *,
    key: str = "ce",
    regions: Drawn = "soft",
    palette: Palette | None = None,
    ax: Axes | None = None,
    show: bool = False,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Draw the regions of the classes alone, for the points of other plots.

    The axes have the limits of a panel of `voronoi`, and keep them:
    ``sc.pl.embedding(adata, "ce", ax=ce.pl.regions(adata))`` draws its points on the regions.

    Parameters
    ----------
    adata, key, regions, palette, save, dpi
        As in `voronoi`.
    ax
        Axes to draw on. Default: those of a new figure.
    show
        Show the figure and return None.

    Returns
    -------
    Axes | None
        The axes; None if they were shown.

    Raises
    ------
    KeyError, ValueError, OSError
        As in `voronoi`.
    """
    path = check_save("regions", save, dpi, own=ax is None)
    plane = Plane(adata, key, regions, palette)
    n_components = plane.result.embedding.shape[1]
    check(n_components == 2, f"regions need two components, not {n_components}")
    target: Any = panel_axes(ax, 1, 1)[0]
    set_panel(target, plane.result, plane.limits)
    plane.draw(target)
    store_colors(adata, plane.result, plane.colors)
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)


def _check(
    adata: AnnData,
    names: Sequence[Any],
    variable: Mapping[str, Any],
    legend_loc: str | None,
    numbers: Mapping[str, float | None],
) -> None:
    """Raise an error for arguments of wrong types and values, and for those without effect."""
    for name in names:
        check_name(name, "color", "one column of obs or one variable", str | None)
    check(names, "color has no entry", "color")
    has_variable = not all(name is None or name in adata.obs for name in names)
    for argument, value in variable.items():
        text = f"{argument} has no effect unless color is a variable; got {names[0]!r}"
        check(value is None or has_variable, text, argument)
    for name, number in numbers.items():
        fits = number is None or (isinstance(number, Real) and number > 0)
        check(fits, f"{name} must be a positive number; got {number!r}", name)
    places = ("right margin", "on data", *Legend.codes)
    text = f"legend_loc must be None or one of {', '.join(places)}; got {legend_loc!r}"
    check(legend_loc in (None, "none", *places), text, "legend_loc")


def _splits(result: Result, split: Split | None, is_grid: bool) -> list[str]:
    """Return the splits that have a panel."""
    wanted = [split] if split else [ALL] if is_grid else SPLITS
    found = [panel for panel in wanted if panel == ALL or (result.split == panel).any()]
    there = ", ".join(result.split.dropna().unique())
    text = f"nothing to draw: no cell is in the split {split or ' or '.join(SPLITS)}"
    check(found, f"{text}, only in {there}", "split")
    return found


def _draw_panel(
    ax: Any, plane: Plane, values: Values, panel: str, mark_misplaced: bool, **style: Any
) -> dict[str, str]:
    """Draw cells over the regions; return the names and the colours of the rings among them.

    `style` are the options of `draw_cells`.
    """
    shown, hollow, rings = _shown(plane.result, panel), plane.result.unjudged, dict[str, str]()
    if panel == ALL:
        hollow = hollow | (plane.result.split == _result.TEST).to_numpy()
        are_points = values.scale is None and not style["contours"]
        if are_points and (hollow & shown & values.known).any():
            rings["held out"] = "0.5"
    plane.draw(ax)
    draw_cells(ax, plane.points, shown, values, hollow, **style)
    if mark_misplaced:
        rings["misplaced"] = ink = plt.rcParams["text.color"]
        look = {"markeredgecolor": ink, "markeredgewidth": 0.8, "zorder": 2.5}
        points, size = plane.points[shown & plane.misplaced], style["size"] + 2.5
        draw_dots(ax, points, size, "none", alpha=1, **look)
    return rings


def _shown(result: Result, panel: str) -> NDArray[np.bool_]:
    """Return a mask of the cells in a panel."""
    if panel == ALL:
        return result.embedded
    return np.asarray(result.split.isin([panel, _result.UNLABELED]))


def _listed(value: Any, n: int = 1) -> list[Any]:
    """Return the entries of a list, or n times one value."""
    return list(value) if is_list_like(value) else [value] * n


def _names_on_data(plane: Plane, values: Values, panel: str) -> tuple[list[str], Points]:
    """Return names and their (n, 2) places: the centers of classes, the middles of categories."""
    names = values.colors or plane.of_class
    if values.colors is None or values.of_classes:
        places = plane.centers[[name in names for name in plane.of_class]]
    else:
        shown = _shown(plane.result, panel)
        middles = pd.DataFrame(plane.points[shown]).groupby(values.values[shown]).median()
        places = middles.reindex(range(len(names))).to_numpy()
    return [*map(str, names)], places
