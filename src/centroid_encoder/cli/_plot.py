"""``centroid-encoder plot``: a command for every figure of `pl`."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from centroid_encoder import pl
from centroid_encoder._parameters import plain, summary
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_h5ad, write_all
from centroid_encoder.cli._session import session


@click.group()
def plot() -> None:
    """Draw what the other commands have found."""


def _add(figure: str) -> None:
    """Add the command that draws one figure."""
    name = figure.replace("_", "-")
    help_ = plain(summary(f"pl.{figure}"))

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
    @click.option("--dpi", type=click.IntRange(1), default=200, help="Dots per inch.")
    @options.reporting
    def draw(
        input_file: Path, output: Path, dpi: int, as_json: bool, quiet: bool, **arguments: Any
    ) -> None:
        with session("plot", as_json=as_json, quiet=quiet) as work:
            import matplotlib.pyplot as plt

            # Windows are an error where there is no screen.
            plt.switch_backend("agg")
            adata = read_h5ad(input_file, matrix=False)
            with closing(adata.file):
                getattr(pl, figure)(adata, show=False, save=False, **arguments)
            drawn = plt.gcf()
            save = partial(drawn.savefig, format=output.suffix[1:].lower(), dpi=dpi)
            write_all({output: partial(save, bbox_inches="tight")})
            plt.close(drawn)
        work.report([], [output], figure=name, input=input_file, output=output)


for figure in pl.__all__:
    _add(figure)
