"""What all figures share: their axes, their titles, and how they are saved and shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import matplotlib.pyplot as plt
from matplotlib.backend_bases import FigureCanvasBase

from centroid_encoder.errors import InputError
from centroid_encoder.files import check_target, replacing
from centroid_encoder.tl._result import QUERY, Regions, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
Save = str | os.PathLike[str] | bool | None
Writer = Callable[["Figure"], None]

FORMATS = frozenset(FigureCanvasBase.filetypes)
"""Endings of the files that matplotlib writes, without the dot."""
VECTOR = {"eps", "pdf", "pgf", "ps", "svg", "svgz"}
RULES_IN_WORDS: dict[Regions | None, tuple[str, str]] = {
    "voronoi": ("voronoi", "Voronoi"),
    "decoder": ("decoder", "decoder"),
    None: ("knn", "5-NN"),
}
"""The rule that regions show, as errors are stored and as readers know it."""

DPI = 200
"""Dots per inch in files, unless ``rcParams["savefig.dpi"]`` says otherwise."""
VECTOR_DPI = 300
"""The fewest dots per inch of what is rasterised in vector files: what journals ask for."""


def new_axes(width: float, height: float) -> Any:
    """Return axes in a figure of that size in inches where letters are of ten points.

    With larger letters it is larger: the title is to fit.
    """
    letters = plt.rcParams["font.size"] / 10
    return plt.subplots(figsize=(width * letters, height * letters), layout="constrained")[1]


def fit_figure(figure: Any) -> None:
    """Make a figure as large as its axes with all that is written around them.

    The axes keep their size in inches. Nothing else would: a layout makes them smaller.
    """
    # Frozen, since they change with the size of the figure.
    inner = [ax.get_window_extent().frozen() for ax in figure.axes]
    outer = figure.get_tightbbox().padded(0.1)
    dots = figure.dpi
    figure.set_size_inches(outer.width, outer.height)
    for ax, box in zip(figure.axes, inner, strict=True):
        left, bottom = box.x0 / dots - outer.x0, box.y0 / dots - outer.y0
        size = box.width / dots / outer.width, box.height / dots / outer.height
        ax.set_position((left / outer.width, bottom / outer.height, *size))


def write_title(ax: Any, title: str | None, default: str) -> None:
    """Write a title, or our own; a column named "$x$" in it is not taken for a formula."""
    if title is None:
        ax.set_title(default, fontsize="medium", parse_math=False)
    else:
        ax.set_title(title, fontsize="medium")


def panel_title(result: Result, panel: str, regions: Regions | None) -> str:
    """What a panel of an embedding shows, and for held-out cells how much of it is right.

    The error is that of the rule whose `regions` are drawn; without any, that of five neighbours.
    """
    if panel == QUERY:
        query = (result.split == QUERY).to_numpy()
        n_unassigned = int((query & (result.codes < 0)).sum())
        also = f", {n_unassigned:,} unassigned" if n_unassigned else ""
        return f"query cells (n = {int(query.sum()):,}{also})"
    errors = result.stored.errors(panel)
    n = count_words(errors["n"], int((result.split == panel).sum()))
    if panel == "train":
        return f"training cells ({n})"
    if regions == "decoder" and not result.stored.has_decoder:
        regions = "voronoi"
    rule, name = RULES_IN_WORDS[regions if result.embedding.shape[1] <= 2 else None]
    text = f"held-out {name} error {100 * errors[f'{rule}_error']:.1f} % ({n})"
    if errors["at_chance"]:
        text += f"\nno better than chance ({100 * errors['chance_error']:.1f} %)"
    return text


def count_words(n: int, n_shown: int) -> str:
    """How many cells were counted; in a selection of cells there are fewer than that."""
    return f"n = {n:,}" + (f", {n_shown:,} shown" if n_shown != n else "")


def figure_writer(name: str, save: Save, dpi: float | None, *, own: bool) -> Writer | None:
    """Check where a figure is to be saved, and return what saves it there; None if it is not.

    Parameters
    ----------
    name
        Name of the plot, with which the file's name begins in scanpy's figure folder.
    save, dpi
        As in `voronoi`.
    own
        Whether the figure is ours: only such a one is saved where ``scanpy.settings.autosave`` says
        so.

    Raises
    ------
    ValueError
        If there is no such format, or if `dpi` is no positive number or nothing is saved.
    OSError
        If there is no such folder, or if the file may not be replaced.
    """
    from scanpy import settings

    if dpi is not None and not dpi > 0:
        raise InputError(f"dpi must be positive; got {dpi!r}", "dpi")
    if save is None:
        save = own and bool(settings.autosave)
    if not save:
        if dpi is not None:
            raise InputError(f"dpi={dpi!r} has no effect without save", "dpi")
        return None
    ending = f"{settings.plot_suffix}.{settings.file_format_figs}"
    if save is True or (isinstance(save, str) and _is_suffix(save)):
        name += "" if save is True else save
        if Path(name).suffix[1:] not in FORMATS:
            name += ending
        folder = Path(settings.figdir)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
    else:
        path = Path(save).expanduser()
        path = path if path.suffix else path.with_name(f"{path.name}.{settings.file_format_figs}")
    check_target(path, *(f".{name}" for name in FORMATS))

    def write(figure: Figure) -> None:
        with replacing(path) as beside:
            write_figure(figure, beside, kind=path.suffix[1:].lower(), dpi=dpi)

    return write


def _is_suffix(save: str) -> bool:
    """Whether scanpy's habit is meant, an ending of the file's name, rather than a path."""
    has_folder = any(sign and sign in save for sign in (os.sep, os.altsep))
    return not has_folder and (save[0] in "._-" or Path(save).suffix[1:].lower() not in FORMATS)


def write_figure(figure: Figure, path: Path, *, kind: str, dpi: float | None) -> None:
    """Write a figure in one of the `FORMATS`, with letters that stay letters.

    Journals and drawing programs refuse fonts of Type 3, which are matplotlib's default in PDF.
    """
    if dpi is None:
        chosen = plt.rcParams["savefig.dpi"]
        dpi = DPI if chosen == "figure" else chosen
        if kind in VECTOR:
            dpi = max(dpi, VECTOR_DPI)
    with plt.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}):
        figure.savefig(path, format=kind, dpi=dpi, bbox_inches="tight")


def finish(drawn: T, *, show: bool | None, write: Writer | None, own: bool) -> T | None:
    """Save and show a figure.

    Parameters
    ----------
    drawn
        What the plot returns: axes, a list of axes, or a figure.
    show
        None shows where ``scanpy.settings.autoshow`` says so and the figure is our `own`.
    write
        From `figure_writer`.
    own
        Whether we made the figure; saved, it is then closed.

    Returns
    -------
    T | None
        None if the figure was shown; else `drawn`.
    """
    from scanpy import settings

    first: Any = drawn[0] if isinstance(drawn, list) else drawn
    # `figure.figure` is the whole figure where the axes are in a subfigure.
    figure = first.figure.figure
    if write is not None:
        write(figure)
    shown = own and bool(settings.autoshow) if show is None else show
    if shown:
        plt.show()
    if write is not None and own:
        plt.close(figure)
    return None if shown else drawn
