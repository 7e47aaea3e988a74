"""The command line: the tools and plots for pipelines, from files to files."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Self

import click

from centroid_encoder import __version__

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["cli", "main"]

COMMANDS = {
    "measure": "Measure the cells of a label image: a table to begin with.",
    "fit": "Train a map on labelled cells.",
    "cross-validate": "Find out how much of a map is real.",
    "ingest": "Place new cells with a map.",
    "plot": "Draw the results of the other commands.",
}
"""Commands, each in a module of its own, and their help in one line."""
NOT_PRINTED = 3
"""Exit status if all files are written but the results could not be printed."""


class _Commands(click.Group):
    """Group that imports a command, and with it torch, only when the command is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{__name__}._{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Turn labelled cells into a picture you can believe: a supervised map of a .h5ad file.

    Results are written beside their target and renamed once they are complete; a failure or Ctrl-C
    leaves nothing. Progress goes to stderr, results to stdout, as sentences or with --json as one
    JSON document.

    Exit status: 0 success, 1 the data cannot be used or a file cannot be written, 2 wrong usage, 3
    all files are written but the results could not be printed, 129, 130 or 143 interrupted. A
    closed pipe after stdout is no error.
    """


def main() -> NoReturn:
    """Run the command line."""
    _open_standard_files()
    out, _ = _Stream.replace("stdout"), _Stream.replace("stderr")
    # In a notebook, Ctrl-C keeps the best state. A command writes all or nothing, also when a
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
    """Run the command and return its exit status."""
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
    """Open closed standard files: a file of data would get the number of stderr, and its text."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115


class _Stream(io.FileIO):
    """stdout or stderr. An error when it is written to does not end the work."""

    error: OSError | None = None
    """The first error."""

    @classmethod
    def replace(cls, name: str) -> Self | None:
        """Replace ``sys.stdout`` or ``sys.stderr``, unless it has been replaced already."""
        old = getattr(sys, name)
        if old is not getattr(sys, f"__{name}__"):
            return None
        stream = cls(old.fileno(), "w", closefd=False)
        # The terminal may lack letters of a name.
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
    """A signal to end has arrived. At a KeyboardInterrupt, a training would keep its best state."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped(number)
