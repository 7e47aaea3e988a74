"""What surrounds the work of a command: its log, its warnings and its errors."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import click

from centroid_encoder.cli._words import as_options, in_words

EXPECTED = (KeyError, TypeError, ValueError, ArithmeticError, OSError, RuntimeError, MemoryError)
"""What `tl`, `pl` and the writing of files raise about data; all else is a bug and keeps its
traceback."""


@contextmanager
def session(*, quiet: bool) -> Iterator[list[str]]:
    """Send all that is said meanwhile to stderr; yields the warnings, a list that fills.

    Raises
    ------
    click.ClickException
        In place of what `tl` and `pl` raise about data: one line, exit status 1.
    """
    logger = logging.getLogger("centroid_encoder")
    handler = _Stderr(logging.WARNING if quiet else logging.INFO)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        # stdout is for results, whatever a library wants to tell.
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.showwarning = lambda message, *_, **__: logger.warning("%s", message)
            yield handler.warnings
    except EXPECTED as error:
        raise click.ClickException(in_words(error)) from error
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Stderr(logging.Handler):
    """Prints messages above the progress bar and remembers warnings."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = as_options(record.getMessage())
        if record.levelno >= logging.WARNING:
            self.warnings.append(text)
            text = f"Warning: {text}"
        # Once imported, it no longer hears of `main`'s setting.
        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr)
