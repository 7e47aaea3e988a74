"""Training and held-out cells over the regions of their classes: the figure of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from pandas.api.types import is_scalar

from centroid_encoder.errors import InputError, check, check_name
from centroid_encoder.pl import _regions
from centroid_encoder.pl._axes import (
    Save,
    arrange,
    check_save,
    finish,
    panel_axes,
    panel_title,
    set_panel,
    write_title,
)
from centroid_encoder.pl._colors import Palette, class_colors, store_colors
from centroid_encoder.pl._legend import color_bar, legend_on_data, legends
from centroid_encoder.pl._points import Look, draw_cells, draw_circles, medians
from centroid_encoder.pl._regions import Drawn, RegionPatches
from centroid_encoder.pl._values import Bound, Values, read_values
from centroid_encoder.tl import _result
from centroid_encoder.tl._check import check_choice
from centroid_encoder.tl._result import Result

Split = Literal["train", "test", "unused", "all"]

SPLITS = _result.TRAIN, _result.TEST, _result.UNUSED, _result.QUERY
"""Panels in order; those without cells are not drawn."""
ALL = "all"
COLOR_MAP = "viridis"  # perceptually uniform, and the same for colour-blind people


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
        grey.
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
    one = color is None or isinstance(color, str)
    names: list[Any] = [color] if color is None or isinstance(color, str) else list(color)
    variable: dict[str, Any] = {"layer": layer, "use_raw": use_raw, "gene_symbols": gene_symbols}
    _check_colors(adata, names, variable)
    _check_look(cmap, legend_loc, {"size": size, "alpha": alpha, "ncols": ncols})
    if split is not None:
        check_choice("split", split, Split)
    path = check_save("voronoi", save, dpi, own=ax is None)
    result = _result.read_result(adata, key)
    _regions.check_drawn(result, regions)
    n_components = result.embedding.shape[1]
    if contours and n_components == 1:
        raise InputError("contours need a map with two components, not 1", "contours")
    advice = "train with n_components=2, or draw them with sc.pl.embedding"
    check(n_components <= 2, f"this figure shows two components, not {n_components}; {advice}")
    panels = [(i, panel) for i in range(len(names)) for panel in _splits(result, split, one)]
    title = [title] if isinstance(title, str) else title
    text = f"title must have one entry for each of the {len(panels)} panels"
    check(title is None or len(title) == len(panels), text, "title")
    by_class = [name in (None, result.label_key) for name in names]
    colors = class_colors(adata, result, palette if any(by_class) else None)
    of_class = {name: colors[name] for name in result.classes}
    wanted: list[Any] = [] if groups is None else [groups] if is_scalar(groups) else list(groups)
    ends = {"vmin": vmin, "vmax": vmax, "vcenter": vcenter}
    kinds: list[tuple[Values, Normalize | None]] = []
    for i, name in enumerate(names):
        if by_class[i]:
            values = _class_values(result, of_class)
        else:
            values = read_values(adata, name, **variable, palette=palette)
            values = values.checked(result.embedded)
            values = values if palette else _like_classes(values, of_class)
        # In a grid, groups are those of any column.
        known = wanted if one else [x for x in wanted if str(x) in values.names]
        values = values.of_groups(known) if known else values
        is_number = values.colors is None
        kinds.append((values, values.norm(**_ends(ends, i, len(names))) if is_number else None))
    points = _regions.plane_points(result.embedding)
    centers = _regions.plane_centers(result.centers)
    # The limits include the centers, since a class may have no cell near its center.
    inside = points if result.is_query else np.vstack([points, centers])
    limits = _regions.panel_limits(inside, equal=n_components > 1)
    patches = RegionPatches(adata, result, regions, limits, list(of_class.values()))
    area = size or float(np.clip(300 / np.sqrt(len(points)), 1, 12))
    look = Look(area, alpha, cmap or COLOR_MAP, na_color, contours)
    axes = panel_axes(ax, len(panels), len(panels) if one else ncols)
    for k, (target, (i, panel)) in enumerate(zip(axes, panels, strict=True)):
        values, norm = kinds[i]
        text = panel_title(result, panel, regions) if one and panel != ALL else values.name
        set_panel(target, result, limits, frameon=frameon)
        write_title(target, title[k] if title else None, text)
        patches.draw(target)
        shown = result.split.isin([panel, _result.UNLABELED]).to_numpy()
        rings = result.unjudged
        if panel == ALL:
            shown, rings = result.embedded, rings | (result.split == _result.TEST).to_numpy()
        draw_cells(target, points, shown, values, norm, rings, look)
        if mark_misplaced:
            misplaced = result.misplaced(_regions.decided_by(result, regions)) & shown
            draw_circles(target, points[misplaced], area)
        if legend_loc == "on data":
            middles, named = centers, list(map(str, result.classes))
            if by_class[i]:
                there = [name in (values.colors or ()) for name in result.classes]
                middles, named = centers[there], [named[j] for j in np.flatnonzero(there)]
            elif values.colors is not None:
                middles, named = medians(points, shown, values), list(map(str, values.colors))
            legend_on_data(target, named, middles, size=legend_fontsize, outline=legend_fontoutline)
        if one and target is not axes[-1]:
            continue  # The last panel has the legend of all.
        if norm is not None:
            color_bar(target, values.name, ScalarMappable(norm, look.cmap))
        has_rings = panel == ALL and norm is None and not contours
        legends(
            target,
            values,
            (result.label_key, of_class) if one and not by_class[i] and patches.paths else None,
            marked=mark_misplaced,
            rings=has_rings and bool((rings & shown & values.known).any()),
            grey_color=na_color,
            loc=legend_loc,
            size=legend_fontsize,
        )
    if ax is None and not one:
        arrange(axes, ncols)
    store_colors(adata, result, colors)
    if return_fig and show is None:
        show = False
    drawn = axes if len(axes) > 1 else axes[0]
    found = finish(drawn, show=show, path=path, dpi=dpi, own=ax is None)
    return axes[0].figure if return_fig and found is not None else found


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
    result = _result.read_result(adata, key)
    _regions.check_drawn(result, regions)
    if result.embedding.shape[1] != 2:
        raise InputError(f"regions need two components, not {result.embedding.shape[1]}")
    colors = class_colors(adata, result, palette)
    limits = _regions.panel_limits(np.vstack([result.embedding, result.centers]))
    target: Any = panel_axes(ax, 1, 1)[0]
    set_panel(target, result, limits)
    of_class = [colors[name] for name in result.classes]
    RegionPatches(adata, result, regions, limits, of_class).draw(target)
    store_colors(adata, result, colors)
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)


def _check_colors(adata: AnnData, names: Sequence[Any], variable: Mapping[str, Any]) -> None:
    """Raise an error for names of wrong types, and for arguments without effect."""
    for name in names:
        check_name(name, "color", "one column of obs or one variable", str | None)
    check(names, "color has no entry", "color")
    if all(name is None or name in adata.obs for name in names):
        for argument, value in variable.items():
            text = f"{argument} has no effect unless color is a variable; got {names[0]!r}"
            check(value is None, text, argument)


def _check_look(
    cmap: str | Colormap | None, legend_loc: str | None, numbers: Mapping[str, float | None]
) -> None:
    """Raise an error for unknown colour maps and places, and for numbers that are not positive."""
    if cmap is not None and not isinstance(cmap, Colormap) and cmap not in mpl.colormaps:
        raise InputError(f"cmap {cmap!r} is no matplotlib colour map", "cmap")
    for name, number in numbers.items():
        if number is not None and not (isinstance(number, Real) and number > 0):
            raise InputError(f"{name} must be a positive number; got {number!r}", name)
    places = ("right margin", "on data", *Legend.codes)
    text = f"legend_loc must be None or one of {', '.join(places)}; got {legend_loc!r}"
    check(legend_loc in (None, "none", *places), text, "legend_loc")


def _splits(result: Result, split: Split | None, one: bool) -> list[str]:
    """Return the splits that have a panel."""
    wanted = [split] if split else SPLITS if one else [ALL]
    found = [panel for panel in wanted if panel == ALL or (result.split == panel).any()]
    there = ", ".join(result.split.dropna().unique())
    text = f"nothing to draw: no cell is in the split {split or ' or '.join(SPLITS)}"
    check(found, f"{text}, only in {there}", "split")
    return found


def _class_values(result: Result, of_class: dict[object, str]) -> Values:
    """Return the class of each cell as values."""
    grey = []
    if (result.split == _result.UNLABELED).any():
        grey.append("no label" if "unlabeled" in map(str, result.classes) else "unlabeled")
    if ((result.split == _result.QUERY) & (result.codes < 0)).any():
        grey.append(_result.UNASSIGNED)
    return Values(result.label_key, result.codes, of_class, grey)


def _like_classes(values: Values, of_class: Mapping[object, str]) -> Values:
    """Give categories that are classes, such as predicted ones, the colours of the classes."""
    same = {str(name): color for name, color in of_class.items()}
    if not values.names or not values.names.keys() <= same.keys():
        return values
    return replace(values, colors={name: same[text] for text, name in values.names.items()})


def _ends(ends: Mapping[str, Any], i: int, n: int) -> dict[str, Bound]:
    """Return the ends of the scale of entry i of n, from single ends or lists."""
    found = {}
    for name, end in ends.items():
        is_list = isinstance(end, Sequence) and not isinstance(end, str)
        if is_list and len(end) != n:
            raise InputError(f"{name} needs an entry for each of the {n} entries of color", name)
        found[name] = end[i] if is_list else end
    return found
