"""What all figures share: their axes, their titles, and how they are saved and shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import matplotlib.pyplot as plt

from centroid_encoder.tl._stored import QUERY, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

DPI = 200
"""Dots per inch in files, unless ``rcParams["savefig.dpi"]`` says otherwise."""


def new_axes(width: float, height: float) -> Any:
    """Return axes in a figure of that size in inches where letters are of ten points.

    With larger letters it is larger: the title is to fit.
    """
    letters = plt.rcParams["font.size"] / 10
    return plt.subplots(figsize=(width * letters, height * letters), layout="constrained")[1]


def write_title(ax: Any, title: str | None, default: str) -> None:
    """Write a title, or our own; a column named "$x$" in it is not taken for a formula."""
    if title is None:
        ax.set_title(default, fontsize="medium", parse_math=False)
    else:
        ax.set_title(title, fontsize="medium")


def panel_title(result: Result, panel: str) -> str:
    """What a panel of an embedding shows, and for held-out cells how much of it is right."""
    if panel == QUERY:
        query = (result.split == QUERY).to_numpy()
        n_unassigned = int((query & (result.codes < 0)).sum())
        also = f", {n_unassigned:,} unassigned" if n_unassigned else ""
        return f"query cells (n = {int(query.sum()):,}{also})"
    errors = result.stored.errors(panel)
    n = count_words(errors["n"], int((result.split == panel).sum()))
    if panel == "train":
        return f"training cells ({n})"
    text = f"held-out 5-NN error {100 * errors['knn_error']:.1f} % ({n})"
    if errors["at_chance"]:
        text += f"\nno better than chance ({100 * errors['chance_error']:.1f} %)"
    return text


def count_words(n: int, n_shown: int) -> str:
    """How many cells were counted; in a selection of cells there are fewer than that."""
    return f"n = {n:,}" + (f", {n_shown:,} shown" if n_shown != n else "")


def finish(
    name: str, drawn: T, *, show: bool | None, save: str | Path | bool | None, own: bool
) -> T | None:
    """Save and show a figure as its arguments and ``scanpy.settings`` say.

    Parameters
    ----------
    name
        Name of the plot, with which the file's name begins.
    drawn
        What the plot returns: axes, a list of axes, or a figure.
    show
        None shows where ``scanpy.settings.autoshow`` says so and the figure is our `own`.
    save
        :class:`~pathlib.Path` to write to, or True or a string to be appended to `name` in
        scanpy's figure folder; None saves where ``scanpy.settings.autosave`` says so.
    own
        Whether we made the figure; saved, it is then closed.

    Returns
    -------
    T | None
        None if the figure was shown; else `drawn`.
    """
    from scanpy import settings

    first: Any = drawn[0] if isinstance(drawn, list) else drawn
    figure = first.figure
    if save is None:
        save = own and bool(settings.autosave)
    if save:
        path = save if isinstance(save, Path) else _path(name, save, figure, settings)
        dpi = plt.rcParams["savefig.dpi"]
        figure.savefig(path, dpi=DPI if dpi == "figure" else dpi, bbox_inches="tight")
    shown = own and bool(settings.autoshow) if show is None else show
    if shown:
        plt.show()
    if save and own:
        plt.close(figure)
    return None if shown else drawn


def _path(name: str, save: str | bool, figure: Figure, settings: Any) -> Path:
    name += save if isinstance(save, str) else ""
    if Path(name).suffix[1:] not in figure.canvas.get_supported_filetypes():
        name += f"{settings.plot_suffix}.{settings.file_format_figs}"
    folder = Path(settings.figdir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
