"""``centroid-encoder plot``: every figure of `pl` that stands for itself."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_h5ad, write_all
from centroid_encoder.cli._results import print_json, print_lines
from centroid_encoder.cli._session import session

REGIONS = click.option(
    "--regions",
    type=click.Choice(["voronoi", "decoder", "none"]),
    default="voronoi",
    help="Cells of the classes' centers, where the model decides for a class, or none.",
)


@click.group()
def plot() -> None:
    """Draw what the other commands have found."""


def _figure(name: str, help_: str, *own: options.Decorator) -> None:
    """Add the command that draws one figure; `own` are the options that only it has."""

    @plot.command(name, help=help_, short_help=help_)
    @options.input_file
    @options.target(
        "-o",
        "--output",
        suffixes=(".png", ".pdf", ".svg"),
        required=True,
        help="The .png, .pdf or .svg to write. A file of that name is replaced.",
    )
    @options.together(*own)
    @click.option("--key", default="ce", help="Name under which the results are stored.")
    @click.option("--dpi", type=click.IntRange(1), default=200, help="Dots per inch.")
    @options.reporting
    def draw(
        input_file: Path, output: Path, dpi: int, as_json: bool, quiet: bool, **arguments: Any
    ) -> None:
        if arguments.get("regions") == "none":
            arguments["regions"] = None
        with session(quiet=quiet) as warnings:
            import matplotlib.pyplot as plt

            from centroid_encoder import pl

            # Where there is no screen, a window would be an error.
            plt.switch_backend("agg")
            adata = read_h5ad(input_file, matrix=False)
            with closing(adata.file):
                getattr(pl, name.replace("-", "_"))(adata, show=False, save=False, **arguments)
            figure = plt.gcf()
            save = partial(figure.savefig, format=output.suffix[1:].lower(), dpi=dpi)
            write_all({output: partial(save, bbox_inches="tight")})
            plt.close(figure)
        if as_json:
            print_json("plot", figure=name, input=input_file, output=output, warnings=warnings)
        else:
            print_lines([], [output])


_figure(
    "voronoi",
    "Training and held-out cells over the regions of their classes.",
    REGIONS,
    click.option("--split", type=click.Choice(["train", "test"]), help="One panel only."),
    click.option("--mark-misplaced", is_flag=True, help="Circle cells in another class's region."),
)
_figure(
    "confusion",
    "Which classes are taken for which.",
    click.option("--counts", is_flag=True, help="Numbers of cells in place of shares."),
    click.option(
        "--order",
        type=click.Choice(["similar", "category"]),
        default="similar",
        help="Classes that are taken for each other side by side, or as in the label column.",
    ),
)
_figure(
    "calibration",
    "How often a prediction is right against how confident it is.",
    click.option("--n-bins", type=click.IntRange(1), default=10, help="Number of points."),
)
_figure("permutation-test", "The error among those that shuffled labels give.")
_figure("reliability", "The map on one page with what says how far it can be believed.", REGIONS)
_figure("history", "Loss and validation error over the epochs.")
