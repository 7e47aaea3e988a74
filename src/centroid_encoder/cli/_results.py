"""What a command found, on stdout: sentences, or one JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from centroid_encoder import __version__
from centroid_encoder.cli._words import as_options


def print_json(command: str, **results: Any) -> None:
    """Print one JSON document in one line, which begins with command and version."""
    document = {"command": command, "version": __version__, **results}
    click.echo(json.dumps(plain(document), allow_nan=False))


def print_lines(sentences: Iterable[str], written: Iterable[Path]) -> None:
    """Print sentences, and which files there are now."""
    for sentence in sentences:
        click.echo(as_options(sentence))
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
