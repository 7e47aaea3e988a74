"""Log, warnings, errors and results of a command."""

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
import pandas as pd
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from centroid_encoder import __version__
from centroid_encoder.cli._files import Write, write_all
from centroid_encoder.cli._options import check_outputs
from centroid_encoder.tl._run import run_job

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._measure import Measurement
    from centroid_encoder.tl._run import Job

EXPECTED = (KeyError, TypeError, ValueError, ArithmeticError, OSError, RuntimeError, MemoryError)
"""Errors about data and files, which are printed in one line; others keep their traceback."""


class Results(NamedTuple):
    """Results of a command."""

    files: Mapping[Path, Write]
    """Files to write, as for `write_all`."""
    sentences: Iterable[str]
    """Text for stdout."""
    document: dict[str, Any]
    """Text for stdout with ``--json``."""


def reporting(command: Callable[..., Results]) -> Callable[..., None]:
    """Give a command a `Session`, write the files that it returns, and print its results.

    An error about data becomes one line on stderr, with exit status 1. With ``--json``, stdout has
    its text and the parameter at fault as well.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
    @click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors on stderr.")
    @wraps(command)
    def run(*, as_json: bool, quiet: bool, overwrite: bool = False, **options: Any) -> None:
        check_outputs(options, overwrite=overwrite)
        work = Session(quiet=quiet)
        # The command path is "centroid-encoder plot voronoi", for example.
        name = click.get_current_context().command_path.split()[1]
        head = {"command": name, "version": __version__}
        try:
            with work.on_stderr():
                files, sentences, document = command(work, **options)
                write_all(files)
        except EXPECTED as error:
            if as_json:
                parameter = getattr(error, "parameter", None)
                found = {"error": _text(error), "parameter": parameter, "warnings": work.warnings}
                click.echo(as_line(head | found))
            raise click.ClickException(_text(error)) from error
        if as_json:
            click.echo(as_line({**head, **document, "warnings": work.warnings}))
        else:
            for line in (*sentences, *(f"Wrote {path}" for path in files)):
                click.echo(line)

    return run


def _text(error: BaseException) -> str:
    """Return the text of an error in one line."""
    # A plain KeyError quotes its text.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


class Session:
    """Progress and warnings of a command.

    Parameters
    ----------
    quiet
        Whether only warnings and errors are printed on stderr.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.warnings: list[str] = []

    @contextmanager
    def on_stderr(self) -> Iterator[None]:
        """Redirect all output to stderr: stdout is for results alone."""
        logger = logging.getLogger("centroid_encoder")
        level = logger.level
        logger.setLevel(logging.WARNING if self._quiet else logging.INFO)
        try:
            with (
                logging_redirect_tqdm([logger]),
                warnings.catch_warnings(),
                redirect_stdout(sys.stderr),
            ):
                warnings.showwarning = lambda message, *_, **__: self.warn(message)
                yield
        finally:
            logger.setLevel(level)

    def warn(self, message: object) -> None:
        """Write a warning to stderr, above the progress bar, and keep it for the results."""
        self.warnings.append(str(message))
        tqdm.write(f"Warning: {message}", file=sys.stderr)

    def run(self, job: Job, adata: AnnData) -> None:
        """Run a job and write its results into an AnnData."""
        run_job(job, progress=not self._quiet, warn=self.warn)
        job.write(adata)

    def measured(self, job: Measurement) -> AnnData:
        """Measure cells and return their table."""
        run_job(job, progress=not self._quiet, warn=self.warn)
        return job.table()


def as_line(document: Mapping[str, Any]) -> str:
    """Return results as one line of JSON.

    Tables become lists of rows; NaN and infinity, which JSON lacks, become null.
    """
    text = json.dumps(document, default=_plain)
    return json.dumps(json.loads(text, parse_constant=lambda _: None))


def _plain(value: Any) -> Any:
    """Convert tables, arrays, NA and paths to types of JSON."""
    if isinstance(value, pd.DataFrame):
        return value.to_dict("records")
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if value is pd.NA else str(value)
