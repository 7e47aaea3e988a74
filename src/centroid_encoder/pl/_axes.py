"""Axes, titles, saving and showing of figures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from centroid_encoder.errors import check
from centroid_encoder.files import check_target, replacing
from centroid_encoder.pl._regions import Points
from centroid_encoder.tl import _result
from centroid_encoder.tl._result import QUERY, TEST, TRAIN, Result
from centroid_encoder.tl._summary import (
    doubt_words,
    expected_words,
    group_words,
    range_words,
    unjudged_words,
)

T = TypeVar("T")
Save = str | os.PathLike[str] | bool | None

PANEL, GAP = 5.0, 0.25
"""Side of a panel, and gap between panels in a grid, in inches."""
FORMATS = frozenset(FigureCanvasBase.filetypes)
"""Endings of the files that matplotlib can write, without the dot."""
RULES: dict[str | None, tuple[str, str]] = {
    "soft": ("voronoi", "Voronoi"),
    "voronoi": ("voronoi", "Voronoi"),
    "decoder": ("decoder", "decoder"),
    None: ("knn", "5-NN"),
}
"""Decision rule of each kind of regions: its name in stored errors, and its name in titles."""


def new_axes(width: float, height: float) -> Any:
    """Return axes of a size in inches, which grows with the font; it is exact for ten points.

    The axes fill the figure, until `finish` enlarges it to hold their texts.
    """
    size = np.multiply((width, height), plt.rcParams["font.size"] / 10)
    return plt.figure(figsize=tuple(size)).add_axes((0, 0, 1, 1))


def panel_axes(ax: Axes | Sequence[Axes] | None, n_panels: int, n_columns: int) -> list[Any]:
    """Return the axes given, or rows of new ones."""
    if ax is None:
        n_rows, n_columns = -(-n_panels // n_columns), min(n_columns, n_panels)
        made = plt.figure().subplots(n_rows, n_columns, squeeze=False).ravel().tolist()
        for spare in made[n_panels:]:
            spare.remove()
        _set_gaps(made[0], 2.2 * plt.rcParams["font.size"] / 72, 0)
        return made[:n_panels]
    axes: list[Any] = np.asarray(ax, dtype=object).ravel().tolist()
    text = f"ax must hold {n_panels} axes, one for each panel; got {len(axes)}"
    advice = ". Choose one panel with split" if n_columns == n_panels and n_panels > 1 else ""
    check(len(axes) == n_panels, text + advice, "ax")
    return axes


def make_room(axes: list[Any]) -> None:
    """Move panels apart, so that each has room for its legend; `finish` enlarges the figure."""
    figure = axes[0].figure
    figure.draw_without_rendering()
    beyond = [ax.get_tightbbox().extents - ax.get_window_extent().extents for ax in axes]
    left, bottom, right, top = np.abs(beyond).max(axis=0) / figure.dpi
    _set_gaps(axes[0], left + right + GAP, bottom + top + GAP)


def _set_gaps(ax: Any, width: float, height: float) -> None:
    """Set the gaps between the panels of a grid in inches; its figure is as large as they are."""
    grid = ax.get_subplotspec().get_gridspec()
    size = np.add((width, height), PANEL) * (grid.ncols, grid.nrows) - (width, height)
    ax.figure.set_size_inches(size)
    grid.update(left=0, right=1, bottom=0, top=1, wspace=width / PANEL, hspace=height / PANEL)


def set_panel(ax: Any, result: Result, limits: Points, *, frameon: bool | None = True) -> None:
    """Write the names of the components, and set the limits."""
    from scanpy import settings

    frameon = getattr(settings, "_frameon", True) if frameon is None else frameon
    name, is_plane = "CE" if result.key == "ce" else result.key, result.embedding.shape[1] == 2
    ax.set(xticks=[], yticks=[], xlabel=f"{name}1", ylabel=f"{name}2" if is_plane else "")
    ax.set(xlim=limits[:, 0], ylim=limits[:, 1], aspect="equal" if is_plane else "auto")
    ax.set_axisbelow(False)  # Nothing between regions and points, which thus are one raster.
    if not frameon:
        ax.set_axis_off()


def write_title(ax: Any, title: str | None, default: str) -> None:
    """Write a title or, without one, the default, in which "$" does not mark a formula."""
    text = default if title is None else title
    ax.set_title(text, fontsize="medium", parse_math=title is not None)


def panel_title(result: Result, panel: str, regions: str | None) -> str:
    """Return the title of a panel: the kind and number of its cells, and the held-out error.

    The error is that of the rule whose `regions` are drawn, or the 5-NN error without regions.
    """
    if panel == QUERY:
        query = (result.split == QUERY).to_numpy()
        n_unassigned = int(result.unassigned.sum())
        also = f", {n_unassigned:,} unassigned" if n_unassigned else ""
        expected = expected_words(result.stored, n := int(query.sum()))
        return "\n".join(filter(None, (f"query cells (n = {n:,}{also})", expected)))
    stored, (rule, name) = result.stored, title_rule(result, regions)
    errors = stored.errors(panel)
    n_unjudged = int(errors["n_unjudged"]) if errors["n_unjudged"] > 0 else 0
    words = count_words(int(errors["n"]) + n_unjudged, int((result.split == panel).sum()))
    if panel == TEST and np.isfinite(errors["panel_error"]):
        text = f"held-out cells ({words})\ncross-validated error of such feature panels"
        return f"{text} {100 * errors['panel_error']:.1f} %"
    kind = {TRAIN: "training cells", TEST: "held-out", _result.UNUSED: "unused cells:"}[panel]
    if n_unjudged:
        words += f"; hollow: {unjudged_words(errors)}"
    by_group = stored.held_out == _result.BY_GROUP
    by_group = by_group and panel == (TEST if (result.split == TEST).any() else TRAIN)
    if panel == TRAIN and not by_group:
        return f"{kind} ({words})"
    errors = stored.errors(_result.BY_GROUP) if by_group else errors
    groups, (few, repeated) = group_words(errors, stored.params), doubt_words(errors)
    more = [range_words(errors, f"{rule}_error"), groups] if groups or by_group else []
    of_all = f"of {errors['n']:,} cells" if by_group else ""
    more = [*filter(None, [of_all, *more, few])]
    error = f"{100 * errors[f'{rule}_error']:.1f} %"
    if by_group:
        text = f"{kind.removesuffix(' cells')} cells ({words})\n{name} error for a new"
        text += f" {stored.params['group_key']} {error}\n({', '.join(more)})"
    else:
        text = f"{kind} {name} error {error} ({', '.join([words, *more])})"
    if repeated:
        text += f"\n{repeated}"
    elif errors[_result.NO_BETTER] == 1:  # NaN if it was not computed
        largest = 100 * errors[f"{_result.LARGEST}_error"]
        text += f"\nno better than naming the largest class ({largest:.1f} %)"
    return text


def title_rule(result: Result, regions: str | None) -> tuple[str, str]:
    """Return the entry of `RULES` whose error is in the title of a map.

    A map of more than two components has no regions.
    """
    return RULES[regions if result.embedding.shape[1] <= 2 else None]


def count_words(n: int, n_shown: int) -> str:
    """Return the number of cells and, if it differs, the number of those that are shown."""
    return f"n = {n:,}" if n_shown == n else f"of all {n:,} cells, {n_shown:,} shown"


def check_save(name: str, save: Save, dpi: float | None, *, own: bool) -> Path | None:
    """Return the path of the file that a figure is saved to, after checks; None for no file.

    `name` is the name of the plot, and of its file in scanpy's figure folder. `own` is whether this
    package makes the figure; ``scanpy.settings.autosave`` applies only to such figures.
    """
    from scanpy import settings

    fits = dpi is None or (isinstance(dpi, Real) and dpi > 0)
    check(fits, f"dpi must be positive; got {dpi!r}", "dpi")
    if save is None:
        save = own and settings.autosave
    if save is False:
        check(dpi is None, f"dpi={dpi!r} has no effect without save", "dpi")
        return None
    if save is True:
        folder = Path(settings.figdir)
        folder.mkdir(parents=True, exist_ok=True)
        save = folder / f"{name}{settings.plot_suffix}.{settings.file_format_figs}"
    return check_target(Path(save).expanduser(), *(f".{ending}" for ending in sorted(FORMATS)))


def write_figure(figure: Figure, path: Path, *, kind: str, dpi: float | None) -> None:
    """Write a figure in one of the `FORMATS`, by default with 300 dots per inch.

    Fonts are of Type 42, because journals and drawing programs refuse those of Type 3, which are
    matplotlib's default in PDF. Texts of an SVG are texts.
    """
    if dpi is None:
        chosen = plt.rcParams["savefig.dpi"]
        dpi = 300 if chosen == "figure" else chosen
    fonts: dict[str, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}
    params: Any = plt.rcParams
    before = {name: params[name] for name in fonts}
    # `rc_context` would also restore what another thread has changed meanwhile.
    params.update(fonts)
    try:
        figure.savefig(path, format=kind, dpi=dpi, bbox_inches="tight")
    finally:
        params.update(before)


def finish(
    drawn: T, *, show: bool | None, path: Path | None, dpi: float | None, own: bool
) -> T | None:
    """Save and show axes, a list of axes, or a figure. Return them, or None if they were shown.

    A figure that this package makes (`own`) is shown if ``scanpy.settings.autoshow`` is set, and is
    closed after it was saved. `path` is the result of `check_save`.
    """
    from scanpy import settings

    first: Any = drawn[0] if isinstance(drawn, list) else drawn
    # `figure.figure` is the whole figure if the axes are in a subfigure.
    figure = first.figure.figure
    if own and figure.get_layout_engine() is None:
        # The figure becomes as large as its axes and their texts; the axes keep their size. The
        # extents are copied, because they change with the size of the figure.
        inner = [ax.get_window_extent().frozen() for ax in figure.axes]
        outer = figure.get_tightbbox().padded(0.1)
        figure.set_size_inches(outer.width, outer.height)
        for ax, box in zip(figure.axes, inner, strict=True):
            left, bottom = box.x0 / figure.dpi - outer.x0, box.y0 / figure.dpi - outer.y0
            size = box.width / figure.dpi / outer.width, box.height / figure.dpi / outer.height
            ax.set_position((left / outer.width, bottom / outer.height, *size))
    if path is not None:
        with replacing(path) as beside:
            write_figure(figure, beside, kind=path.suffix[1:].lower(), dpi=dpi)
    shown = own and settings.autoshow if show is None else show
    if shown:
        plt.show()
    if path is not None and own:
        plt.close(figure)
    return None if shown else drawn
