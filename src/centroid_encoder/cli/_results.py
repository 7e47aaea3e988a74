"""What a command found, on stdout: sentences, or one JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from centroid_encoder import __version__


def print_results(
    command: str,
    *,
    as_json: bool,
    sentences: Iterable[str] = (),
    written: Iterable[Path],
    **results: Any,
) -> None:
    """Print sentences and which files there are now, or the results as one JSON document.

    The document is one line, which begins with command and version.
    """
    if as_json:
        document = {"command": command, "version": __version__, **results}
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
