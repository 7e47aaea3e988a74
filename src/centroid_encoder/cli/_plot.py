"""``centroid-encoder plot``: a command for each figure of `pl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from centroid_encoder import pl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_cells
from centroid_encoder.cli._report import Results, Session, reporting

plot = click.Group("plot", help="Draw the results of the other commands.")


def _add(name: str, text: str, *own: options.Decorator, key: str = "ce") -> None:
    """Add the command for a figure of `pl`, with its description and its own options.

    `key` is the default name of the results.
    """

    @plot.command(name.replace("_", "-"), help=text, short_help=text)
    @options.input_file
    @options.output(".png", ".pdf", ".svg")
    @options.together(*own)
    @click.option("--key", default=key, help="Name of the results, as given to --key-added.")
    # Beyond these limits, matplotlib fails: letters would be too small, or images too large.
    @click.option("--dpi", type=click.IntRange(10, 2400), show_default="300", help="Dots per inch.")
    @reporting
    def draw(session: Session, input_file: Path, output: Path, **arguments: Any) -> Results:
        import matplotlib as mpl

        options.check_outputs([output], [input_file])
        # A backend with windows would fail without a screen.
        mpl.use("agg")
        if arguments.get("regions") == "none":
            arguments["regions"] = None
        with read_cells(input_file) as adata:
            getattr(pl, name)(adata, show=False, save=output, **arguments)
        document = {"figure": name.replace("_", "-"), "input": input_file, "output": output}
        return Results({}, [f"Wrote {output}"], document)


REGIONS = click.option(
    "--regions",
    type=click.Choice(["soft", "voronoi", "decoder", "none"]),
    default="soft",
    help="Regions: Voronoi cells, soft or of one colour each, or decisions of the decoder.",
)

_add(
    "voronoi",
    "Plot training and held-out cells over the regions of their classes.",
    click.option("--color", help="Column of obs or variable for the colours. Default: the class."),
    click.option("--layer", help="Layer of the variable. Default: raw where it exists, else X."),
    click.option("--use-raw/--no-use-raw", default=None, help="Take the variable from raw."),
    REGIONS,
    click.option(
        "--split",
        type=click.Choice(["train", "test", "unused", "all"]),
        help="Cells to show; all of them in one panel. Default: a panel for each split.",
    ),
    click.option("--contours", is_flag=True, help="Draw contour lines instead of points."),
    click.option("--mark-misplaced", is_flag=True, help="Circle cells in other classes' regions."),
)
_add("regions", "Plot the regions of the classes alone.", REGIONS)
_add(
    "confusion",
    "Plot true classes against those predicted by networks that have not seen the cells.",
    click.option("--counts", is_flag=True, help="Show numbers of cells instead of shares."),
    click.option(
        "--order",
        type=click.Choice(["similar", "category"]),
        default="similar",
        help="Order of the classes: confused ones side by side, or as in the label column.",
    ),
)
_add(
    "calibration",
    "Plot how often predictions are right, against their confidence: a reliability diagram.",
    click.option("--n-bins", default=10, help="Number of points, from 1 to 1000."),
)
_add(
    "feature_panel",
    "Plot the held-out error of three judges against the number of features.",
    click.option("--balanced", is_flag=True, help="Give every class the same weight."),
    key="feature_panel",
)
_add("permutation_test", "Plot the out-of-fold error and the errors with shuffled labels.")
_add("reliability", "Plot the map and all measures of its errors on one page.", REGIONS)
_add("history", "Plot the losses, the validation error and the stages of the training.")
