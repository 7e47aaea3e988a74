"""The command line: the tools and plots for pipelines, from files to files."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from centroid_encoder import __version__
from centroid_encoder.cli._cross_validate import cross_validate
from centroid_encoder.cli._fit import fit
from centroid_encoder.cli._ingest import ingest
from centroid_encoder.cli._measure import measure
from centroid_encoder.cli._plot import plot

__all__ = ["cli", "main"]


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    }
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Turn labelled cells into a picture you can believe: a supervised map of a .h5ad file.

    Results are written beside their target and renamed once they are complete; a failure or Ctrl-C
    leaves nothing. Progress goes to stderr, results to stdout, as sentences or with --json as one
    JSON document.

    Exit status: 0 success, 1 the data cannot be used or a file cannot be written, 2 wrong usage.
    """


for command in (measure, fit, cross_validate, ingest, plot):
    cli.add_command(command)


def main() -> None:
    """Run the command line."""
    # In a notebook, Ctrl-C keeps the best state of a training. A command writes all or nothing,
    # also when a scheduler ends it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    if not sys.stderr.isatty():
        # Log files keep every update of a progress bar.
        os.environ.setdefault("TQDM_MININTERVAL", "5")
    cli(prog_name="centroid-encoder")


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
