"""The command line: tools and plots that read and write files, for pipelines."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from centroid_encoder import __version__
from centroid_encoder.cli._measure import measure
from centroid_encoder.cli._plot import plot
from centroid_encoder.cli._tools import COMMANDS

__all__ = ["cli", "main"]


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(commands=[measure, *COMMANDS, plot], context_settings=SETTINGS)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Train a supervised map of labelled cells in a .h5ad file, and measure its errors.

    Results are written to a temporary file, which is renamed when it is complete. A failure or
    Ctrl-C changes no file. Progress goes to stderr, and results go to stdout: as sentences, or with
    --json as one JSON document.

    Exit status: 0 success, 1 the data cannot be used or a file cannot be written, 2 wrong usage.
    """


def main() -> None:
    """Run the command line."""
    # In a notebook, Ctrl-C keeps the best state of a training. A command must write all or nothing,
    # also if a scheduler ends it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    # The files are the result: streams that cannot be written must not change it, or the status.
    for name in ("stdin", "stdout", "stderr"):  # in this order, so that each gets its own number
        stream: Any = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
        elif name != "stdin":
            for method in ("write", "flush"):
                setattr(stream, method, partial(_attempt, getattr(stream, method), name))
    if not sys.stderr.isatty():
        # Fewer updates, because a log file keeps every state of a progress bar.
        os.environ.setdefault("TQDM_MININTERVAL", "5")
    cli(prog_name="centroid-encoder")


def _attempt(method: Callable[..., int | None], name: str, *text: str) -> int | None:
    """Call a method of a stream; if this fails, the stream leads nowhere from then on."""
    try:
        return method(*text)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), getattr(sys, f"__{name}__").fileno())
        if not isinstance(error, BrokenPipeError):  # The reader of a pipe may stop when it likes.
            print(f"Warning: {name} cannot be written: {error.strerror}", file=sys.stderr)
        return method(*text)
