"""``centroid-encoder plot``: a command for every figure of `pl`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from centroid_encoder import pl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_cells
from centroid_encoder.cli._report import Results, Session, reporting

plot = click.Group("plot", help="Draw the results of the other commands.")


def _add(name: str, text: str, *own: options.Decorator) -> None:
    """Add the command that draws the figure of this name, with options of its own."""

    @plot.command(name.replace("_", "-"), help=text, short_help=text)
    @options.input_file
    @options.output(".png", ".pdf", ".svg")
    @options.together(*own)
    @click.option("--key", default="ce", help="Name of the results, as given to --key-added.")
    # Letters smaller than a dot, and images larger than matplotlib makes, would fail.
    @click.option("--dpi", type=click.IntRange(10, 2400), show_default="300", help="Dots per inch.")
    @reporting
    def draw(session: Session, input_file: Path, output: Path, **arguments: Any) -> Results:
        import matplotlib as mpl

        options.check_outputs([output], [input_file])
        # Without a screen, a backend with windows would fail.
        mpl.use("agg")
        if arguments.get("regions") == "none":
            arguments["regions"] = None
        adata = read_cells(input_file)
        with closing(adata.file):
            getattr(pl, name)(adata, show=False, save=output, **arguments)
        document = {"figure": name.replace("_", "-"), "input": input_file, "output": output}
        return Results({}, [f"Wrote {output}"], document)


COUNTS = click.option("--counts", is_flag=True, help="Show numbers of cells, not their shares.")
REGIONS = click.option(
    "--regions",
    type=click.Choice(["voronoi", "decoder", "none"]),
    default="voronoi",
    help="Regions of the classes: Voronoi cells of the centers, or by the errors of the decoder.",
)

_add(
    "voronoi",
    "Plot training and held-out cells over the regions of their classes.",
    click.option("--color", help="Column of obs or variable for the colours. Default: the class."),
    click.option("--layer", help="Layer of the variable. Default: raw where it exists, else X."),
    click.option("--use-raw/--no-use-raw", default=None, help="Take the variable from raw."),
    REGIONS,
    click.option(
        "--split", type=click.Choice(["train", "test"]), help="Cells to show. Default: both."
    ),
    click.option("--mark-misplaced", is_flag=True, help="Circle cells in other classes' regions."),
)
_add(
    "composition",
    "Plot the classes in each image, donor or other group: a bar for each group.",
    click.option("--group-key", required=True, help="Column of obs with the groups."),
    click.option("--label-key", help="Column of obs with the classes. Default: that of the map."),
    COUNTS,
)
_add(
    "confusion",
    "Plot which classes are taken for which, by networks that had not seen the cell's label.",
    COUNTS,
    click.option(
        "--order",
        type=click.Choice(["similar", "category"]),
        default="similar",
        help="Order of the classes: similar ones side by side, or as in the label column.",
    ),
)
_add(
    "calibration",
    "Plot how often a prediction is right against how confident it is: a reliability diagram.",
    click.option("--n-bins", default=10, help="Number of points, from 1 to 1000."),
)
_add("permutation_test", "Plot the out-of-fold error among the errors that shuffled labels give.")
_add("reliability", "Put the map and the measures of its errors on one page.", REGIONS)
_add("history", "Plot the training loss, the validation loss and error, and the stages.")
