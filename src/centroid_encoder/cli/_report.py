"""Log, warnings, errors and results of a command."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from centroid_encoder import __version__
from centroid_encoder.cli._files import Write
from centroid_encoder.cli._options import paths_of
from centroid_encoder.files import replacing_all, writing

EXPECTED = (KeyError, TypeError, ValueError, ArithmeticError, OSError, RuntimeError, MemoryError)
"""Errors about data and files, which are printed in one line; others have a traceback."""


class Results(NamedTuple):
    """Results of a command."""

    files: Mapping[Path | None, Write]  # files to write; None for none
    sentences: Iterable[str]  # text for stdout
    document: dict[str, Any]  # text for stdout with ``--json``


@dataclass
class Session:
    """Progress and warnings of a command."""

    quiet: bool  # whether only warnings and errors are printed on stderr
    warnings: list[str] = field(default_factory=list)

    def warn(self, message: object) -> None:
        """Write a warning to stderr, above the progress bar, and store it for the JSON document."""
        if str(message) in self.warnings:  # several parts of a figure read one result
            return
        self.warnings.append(str(message))
        tqdm.write(f"Warning: {message}", file=sys.stderr)


def reporting(command: Callable[..., Results]) -> Callable[..., None]:
    """Return a command that is called with a `Session`, and whose results are written and printed.

    An error about data is printed in one line on stderr, with exit status 1. With ``--json``, its
    text and the name of the wrong parameter are printed on stdout as well.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
    @click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors on stderr.")
    @wraps(command)
    def run(*, as_json: bool, quiet: bool, overwrite: bool | None = None, **options: Any) -> None:
        session, context = Session(quiet), click.get_current_context()
        paths = paths_of(context.command, options, overwrite)
        # The command path is "centroid-encoder plot voronoi", for example.
        head = {"command": context.command_path.split()[1], "version": __version__}
        logger = logging.getLogger("centroid_encoder")
        level = logger.level
        logger.setLevel(logging.WARNING if quiet else logging.INFO)
        try:
            # Only results go to stdout.
            with (
                logging_redirect_tqdm([logger]),
                warnings.catch_warnings(),
                redirect_stdout(sys.stderr),
            ):
                warnings.showwarning = lambda message, *_, **__: session.warn(message)
                results, sentences, document = command(session, **options)
                files = {path: write for path, write in results.items() if path is not None}
                text = "Consolidated metadata|zarr v3 auto|Writing zarr v2"
                warnings.filterwarnings("ignore", text)
                # The first file is renamed last.
                with replacing_all(files) as news:
                    for new, (path, write) in zip(news, files.items(), strict=True):
                        with writing(path):
                            write(new)
        except EXPECTED as error:
            text = " ".join(str(error).split()) or type(error).__name__
            if as_json:
                parameter = getattr(error, "parameter", None)
                found = {"error": text, "parameter": parameter, "warnings": session.warnings}
                click.echo(as_line(head | found))
            raise click.ClickException(text) from error
        finally:
            logger.setLevel(level)
        if as_json:
            click.echo(as_line({**head, **paths, **document, "warnings": session.warnings}))
        else:
            for line in (*sentences, *(f"Wrote {path}" for path in files)):
                click.echo(line)

    return run


def as_line(document: Mapping[str, Any]) -> str:
    """Return results as one line of JSON.

    Tables become lists of rows; NaN and infinity, which JSON lacks, become null.
    """
    text = json.dumps(document, default=_plain)
    return json.dumps(json.loads(text, parse_constant=lambda _: None))


def _plain(value: Any) -> Any:
    """Convert tables, arrays and paths to types of JSON."""
    if hasattr(value, "to_dict"):
        return value.to_dict("records")
    return value.tolist() if hasattr(value, "tolist") else str(value)
