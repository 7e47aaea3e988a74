"""What surrounds the work of a command: its log, its warnings and its errors."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from centroid_encoder.cli._face import face, words
from centroid_encoder.errors import Message

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._jobs import Job

EXPECTED = (KeyError, TypeError, ValueError, ArithmeticError, OSError, RuntimeError, MemoryError)
"""What `tl`, `pl` and the writing of files raise about data; all else is a bug and keeps its
traceback."""


@dataclass
class Session:
    """A command at work."""

    quiet: bool
    warnings: list[str] = field(default_factory=list)

    def warn(self, message: Message) -> None:
        """Write a warning to stderr, and keep it for the results."""
        text = message.words(face)
        self.warnings.append(text)
        _say(f"Warning: {text}")

    def run(self, job: Job, adata: AnnData) -> None:
        """Do a job and write its results into an AnnData."""
        from centroid_encoder.tl._jobs import drain

        drain(job, progress=not self.quiet, tell=self.warn)
        job.write(adata)


@contextmanager
def session(*, quiet: bool) -> Iterator[Session]:
    """Send all that is said meanwhile to stderr.

    Raises
    ------
    click.ClickException
        In place of what `tl` and `pl` raise about data: one line, exit status 1.
    """
    done = Session(quiet)
    logger = logging.getLogger("centroid_encoder")
    handler = _Stderr(logging.WARNING if quiet else logging.INFO)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        # stdout is for results, whatever a library wants to tell.
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.showwarning = lambda message, *_, **__: done.warn(Message(str(message)))
            yield done
    except EXPECTED as error:
        raise click.ClickException(words(error)) from error
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _say(record.getMessage())


def _say(text: str) -> None:
    """Write to stderr, above the progress bar."""
    # Imported only now: once it is there, it no longer hears of `main`'s setting.
    from tqdm import tqdm

    tqdm.write(text, file=sys.stderr)
