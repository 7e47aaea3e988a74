"""``centroid-encoder plot``: a command for every figure of `pl`."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Any

import click
import matplotlib.pyplot as plt

from centroid_encoder import pl
from centroid_encoder._signature import plain
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_cells
from centroid_encoder.cli._session import Results, Session, reporting
from centroid_encoder.pl._axes import write_figure

plot = click.Group("plot", help="Draw the results of the other commands.")


def _add(figure: str) -> None:
    """Add the command that draws one figure."""
    name = figure.replace("_", "-")
    help_ = plain((getdoc(getattr(pl, figure)) or "").partition("\n")[0])

    @plot.command(name, help=help_, short_help=help_)
    @options.input_file
    @options.target(
        "-o",
        "--output",
        suffixes=(".png", ".pdf", ".svg"),
        required=True,
        help="The .png, .pdf or .svg to write. A file of that name is replaced.",
    )
    @options.of(f"pl.{figure}")
    @reporting
    def draw(
        work: Session, input_file: Path, output: Path, dpi: int | None, **arguments: Any
    ) -> Results:
        # Without a screen, a backend with windows would fail.
        plt.switch_backend("agg")
        adata = read_cells(input_file, matrix=False)
        with closing(adata.file):
            getattr(pl, figure)(adata, show=False, save=False, **arguments)
        kind = output.suffix[1:].lower()
        write = partial(write_figure, plt.gcf(), kind=kind, dpi=dpi)
        return Results({output: write}, [], {"figure": name, "input": input_file, "output": output})


for figure in pl.__all__:
    _add(figure)
