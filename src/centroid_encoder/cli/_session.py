"""What surrounds the work of a command: its log, its warnings, its errors and its results."""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from centroid_encoder import __version__
from centroid_encoder.cli._face import face, words
from centroid_encoder.errors import Message

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._jobs import Job

EXPECTED = (KeyError, TypeError, ValueError, ArithmeticError, OSError, RuntimeError, MemoryError)
"""What `tl`, `pl` and the writing of files raise about data; all else is a bug and keeps its
traceback."""


@contextmanager
def session(command: str, *, as_json: bool, quiet: bool) -> Iterator[Session]:
    """Send all that is said meanwhile to stderr.

    Raises
    ------
    click.ClickException
        In place of what `tl` and `pl` raise about data: one line, exit status 1.
    """
    # Imported only now, since it reads the setting that `main` makes when it is imported.
    from tqdm.contrib.logging import logging_redirect_tqdm

    work = Session(command, as_json=as_json, quiet=quiet)
    logger = logging.getLogger("centroid_encoder")
    level = logger.level
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        # stdout is for results alone; what libraries print goes to stderr.
        with (
            logging_redirect_tqdm([logger]),
            warnings.catch_warnings(),
            redirect_stdout(sys.stderr),
        ):
            warnings.showwarning = lambda message, *_, **__: work.warn(Message(str(message)))
            yield work
    except EXPECTED as error:
        raise click.ClickException(words(error)) from error
    finally:
        logger.setLevel(level)


class Session:
    """A command at work.

    Parameters
    ----------
    command
        Its name.
    as_json
        Whether its results are printed as JSON.
    quiet
        Whether it says nothing on stderr but warnings and errors.
    """

    def __init__(self, command: str, *, as_json: bool, quiet: bool) -> None:
        self._command, self._as_json, self._quiet = command, as_json, quiet
        self._warnings: list[str] = []

    def warn(self, message: Message) -> None:
        """Write a warning to stderr, above the progress bar, and keep it for the results."""
        from tqdm import tqdm

        self._warnings.append(message.words(face))
        tqdm.write(f"Warning: {self._warnings[-1]}", file=sys.stderr)

    def run(self, job: Job, adata: AnnData) -> None:
        """Do a job and write its results into an AnnData."""
        from centroid_encoder.tl._jobs import drain

        drain(job, progress=not self._quiet, tell=self.warn)
        job.write(adata)

    def report(self, sentences: Iterable[str], written: Iterable[Path], **results: Any) -> None:
        """Print sentences and which files there are now, or the results as one line of JSON."""
        if self._as_json:
            document = {"command": self._command, "version": __version__, **results}
            document["warnings"] = self._warnings
            click.echo(json.dumps(plain(document), allow_nan=False))
            return
        for sentence in sentences:
            click.echo(sentence)
        for path in written:
            click.echo(f"Wrote {path}")


def plain(value: Any) -> Any:
    """Return what JSON knows for what `tl` stores; what is not a finite number becomes None.

    Tables become lists of rows.
    """
    import numpy as np
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        return plain(value.to_dict("records"))
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
