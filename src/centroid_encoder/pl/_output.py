"""Saving and showing figures in scanpy's way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_or_show(
    name: str, figure: Figure, *, show: bool | None, save: str | Path | bool | None
) -> bool:
    """Save and show a figure as its arguments and ``scanpy.settings`` say; return if it was shown.

    `save` is a :class:`~pathlib.Path` to write to, or True or a string to be appended to `name` in
    scanpy's figure folder.
    """
    from scanpy import settings

    if isinstance(save, Path):
        figure.savefig(save)
    elif save:
        suffix = save if isinstance(save, str) else ""
        if not Path(suffix).suffix:
            suffix += f".{settings.file_format_figs}"
        folder = Path(settings.figdir)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{name}{suffix}")
    if settings.autoshow if show is None else show:
        plt.show()
        return True
    return False
