"""``centroid-encoder plot``: a command for each figure of `pl` that can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from centroid_encoder import pl
from centroid_encoder._signature import description, parameters
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_cells
from centroid_encoder.cli._report import Results, Session, reporting

plot = click.Group("plot", help="Draw the results of the other commands.")


def _add(function: str) -> None:
    """Add the command for a figure of `pl`."""
    name, text = function.replace("_", "-"), description(f"pl.{function}")

    output = options.output(".png", ".pdf", ".svg")
    own = [options.input_file, output, *options.of(f"pl.{function}")]

    @plot.command(name, params=own, help=text, short_help=text.partition("\n")[0])
    @reporting
    def draw(session: Session, input: Path, output: Path, **arguments: Any) -> Results:
        import matplotlib as mpl

        # A backend with windows would fail without a screen.
        mpl.use("agg")
        with read_cells(input) as adata:
            getattr(pl, function)(adata, show=False, save=output, **arguments)
        return Results({}, [f"Wrote {output}"], {"figure": name})


for function in pl.__all__:
    if "save" in parameters(f"pl.{function}"):
        _add(function)
