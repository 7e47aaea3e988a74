"""The command line: the tools and plots for pipelines, from files to files.

Nothing heavy is imported before a command runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Self

import click

from centroid_encoder import __version__
from centroid_encoder.cli._cross_validate import cross_validate
from centroid_encoder.cli._fit import fit
from centroid_encoder.cli._ingest import ingest
from centroid_encoder.cli._measure import measure
from centroid_encoder.cli._plot import figures

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["cli", "main"]

NOT_PRINTED = 3
"""Exit status where all is done but the results, or a help, could not be printed."""


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
    understood, 3 all files are written but the results could not be printed, 129, 130 or 143
    interrupted. That nobody reads stdout to its end is no error.
    """


for command in (measure, fit, cross_validate, ingest, figures):
    cli.add_command(command)


def main() -> NoReturn:
    """Run the command line."""
    _open_standard_files()
    out, _ = _Stream.replace("stdout"), _Stream.replace("stderr")
    # In a notebook, Ctrl-C keeps the best state. A pipeline wants all or nothing, also when the
    # scheduler ends it or the terminal is closed.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # A signal that is ignored, as in a shell's background, stays ignored.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    if not sys.stderr.isatty():
        # In a log, each update of a progress bar is a new line.
        os.environ.setdefault("TQDM_MININTERVAL", "5")
    try:
        status = _run()
    except _Stopped as stopped:
        status = _interrupted(stopped)
    sys.stdout.flush()
    lost = None if out is None else out.error
    if status == 0 and lost is not None and lost.errno != errno.EPIPE:
        text = f"Error: stdout could not be written: {lost.strerror}. The files are complete."
        click.echo(text, err=True)
        status = NOT_PRINTED
    sys.exit(status)


def _run() -> int:
    """Run what the arguments say, and return the exit status."""
    try:
        cli(prog_name="centroid-encoder")
    except SystemExit as end:
        return int(end.code or 0)
    except _Stopped as stopped:
        return _interrupted(stopped)
    return 0


def _interrupted(stopped: _Stopped) -> int:
    click.echo("Interrupted", err=True)
    return 128 + stopped.number


def _open_standard_files() -> None:
    """Open what was closed: else a file of data gets its number, and messages go into the data."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115


class _Stream(io.FileIO):
    """stdout or stderr; that nothing can be written there any more does not end the work."""

    error: OSError | None = None
    """Why something was not written."""

    @classmethod
    def replace(cls, name: str) -> Self | None:
        """Put one in the place of ``sys.stdout`` or ``sys.stderr``, unless others have done so."""
        old = getattr(sys, name)
        if old is not getattr(sys, f"__{name}__"):
            return None
        stream = cls(old.fileno(), "w", closefd=False)
        # A name that this terminal cannot show is no reason to fail.
        text = io.TextIOWrapper(
            io.BufferedWriter(stream), old.encoding, "backslashreplace", line_buffering=True
        )
        setattr(sys, name, text)
        return stream

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.error = self.error or error
            return len(memoryview(data))


class _Stopped(BaseException):
    """A signal to end has arrived; not a KeyboardInterrupt, which a training takes for a wish."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped(number)
