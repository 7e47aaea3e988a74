"""What surrounds the work of a command: its log, its warnings, its errors and its results."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from centroid_encoder import __version__
from centroid_encoder.cli._face import words
from centroid_encoder.cli._files import Write, write_all
from centroid_encoder.cli._options import check_outputs

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._measure import Measurement
    from centroid_encoder.tl._run import Job

EXPECTED = (KeyError, TypeError, ValueError, ArithmeticError, OSError, RuntimeError, MemoryError)
"""What `tl`, `pl` and the writing of files raise about data; all else is a bug and keeps its
traceback."""


class Results(NamedTuple):
    """What a command returns."""

    files: Mapping[Path, Write]
    """What is to be written, as for `write_all`."""
    sentences: Iterable[str]
    """What was found."""
    document: dict[str, Any]
    """The same for ``--json``."""


def reporting(command: Callable[..., Results]) -> Callable[..., None]:
    """Give a command a `Session`, write the files that it returns, and print its results.

    What `tl` and `pl` raise about data becomes one line, with exit status 1.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
    @click.option(
        "-q", "--quiet", is_flag=True, help="Say nothing on stderr but warnings and errors."
    )
    @wraps(command)
    def run(*, as_json: bool, quiet: bool, overwrite: bool = False, **options: Any) -> None:
        check_outputs(options, overwrite=overwrite)
        work = Session(quiet=quiet)
        try:
            with work.on_stderr():
                files, sentences, document = command(work, **options)
                write_all(files)
        except EXPECTED as error:
            raise click.ClickException(words(error)) from error
        if as_json:
            name = command.__name__.replace("_", "-")
            document = {"command": name, "version": __version__, **document}
            click.echo(as_line({**document, "warnings": work.warnings}))
        else:
            for line in (*sentences, *(f"Wrote {path}" for path in files)):
                click.echo(line)

    return run


class Session:
    """A command at work.

    Parameters
    ----------
    quiet
        Whether it says nothing on stderr but warnings and errors.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.warnings: list[str] = []

    @contextmanager
    def on_stderr(self) -> Iterator[None]:
        """Send all that is said meanwhile to stderr: stdout is for results alone."""
        # Imported only now, since it reads the setting that `main` makes when it is imported.
        from tqdm.contrib.logging import logging_redirect_tqdm

        logger = logging.getLogger("centroid_encoder")
        level = logger.level
        logger.setLevel(logging.WARNING if self._quiet else logging.INFO)
        try:
            with (
                logging_redirect_tqdm([logger]),
                warnings.catch_warnings(),
                redirect_stdout(sys.stderr),
            ):
                warnings.showwarning = lambda message, *_, **__: self.warn(str(message))
                yield
        finally:
            logger.setLevel(level)

    def warn(self, message: str) -> None:
        """Write a warning to stderr, above the progress bar, and keep it for the results."""
        from tqdm import tqdm

        self.warnings.append(message)
        tqdm.write(f"Warning: {self.warnings[-1]}", file=sys.stderr)

    def run(self, job: Job, adata: AnnData) -> None:
        """Do a job and write its results into an AnnData."""
        from centroid_encoder.tl._run import run_job

        run_job(job, progress=not self._quiet, warn=self.warn)
        job.write(adata)

    def measured(self, job: Measurement) -> AnnData:
        """Measure cells and return their table."""
        from centroid_encoder.tl._run import run_job

        run_job(job, progress=not self._quiet, warn=self.warn)
        return job.table()


def as_line(document: Mapping[str, Any]) -> str:
    """Return what `tl` stores as one line of JSON.

    Tables become lists of rows; what is not a finite number, which JSON does not know, null.
    """
    text = json.dumps(document, default=_plain)
    return json.dumps(json.loads(text, parse_constant=lambda _: None))


def _plain(value: Any) -> Any:
    """What JSON knows for what it does not: tables, arrays, NA and paths."""
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        return value.to_dict("records")
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if value is pd.NA else str(value)
