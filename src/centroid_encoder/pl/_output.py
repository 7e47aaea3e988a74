"""Saving and showing figures in scanpy's way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
"""Dots per inch in files, unless ``rcParams["savefig.dpi"]`` says otherwise."""


def save_or_show(
    name: str, figure: Figure, *, show: bool | None, save: str | Path | bool | None, own: bool
) -> bool:
    """Save and show a figure as its arguments and ``scanpy.settings`` say; return if it was shown.

    Parameters
    ----------
    name
        Name of the plot, with which the file's name begins.
    figure
        What to save.
    show
        None shows where ``scanpy.settings.autoshow`` says so and the figure is our `own`.
    save
        :class:`~pathlib.Path` to write to, or True or a string to be appended to `name` in
        scanpy's figure folder; None saves where ``scanpy.settings.autosave`` says so.
    own
        Whether we made the figure; saved, it is then closed.
    """
    from scanpy import settings

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
    return shown


def _path(name: str, save: str | bool, figure: Figure, settings: Any) -> Path:
    name += save if isinstance(save, str) else ""
    if Path(name).suffix[1:] not in figure.canvas.get_supported_filetypes():
        name += f"{settings.plot_suffix}.{settings.file_format_figs}"
    folder = Path(settings.figdir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
