"""The command line: the tools and plots for pipelines, from files to files.

Nothing heavy is imported before a command runs, so that ``--help`` is quick.
"""

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
    leaves nothing. Progress goes to stderr, what was found to stdout, as sentences or with --json
    as one JSON document.

    Exit status: 0 all well, 1 the data cannot be used or a file not written, 2 the command is not
    understood, 130 interrupted.
    """


for command in (fit, cross_validate, ingest, plot):
    cli.add_command(command)


def main() -> None:
    """Run the command line."""
    # In a notebook, Ctrl-C keeps the best state. A pipeline wants all or nothing, also when the
    # scheduler ends it.
    for number in (signal.SIGINT, signal.SIGTERM):
        # A signal that is ignored, as in a shell's background, stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    if not sys.stderr.isatty():
        # In a log, each update of a progress bar is a new line.
        os.environ.setdefault("TQDM_MININTERVAL", "5")
    try:
        cli(prog_name="centroid-encoder")
    except _Stopped as stopped:
        click.echo("Interrupted", err=True)
        sys.exit(128 + stopped.number)


class _Stopped(BaseException):
    """A signal to end has arrived; not a KeyboardInterrupt, which a training takes for a wish."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped(number)
