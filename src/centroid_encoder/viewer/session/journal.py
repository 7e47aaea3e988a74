"""Labels of cells as CSV: for other programs, and in the user data folder against a crash.

A journal has a line for each label that was given, removed (empty) or given again, so that a step
adds only the lines of its cells. Lines with the cell `CLASSES` hold all classes as JSON, in order.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from platformdirs import user_data_path

from centroid_encoder.errors import check
from centroid_encoder.tl._positions import positions

FOLDER = "CENTROID_ENCODER_JOURNALS"
"""Environment variable with another folder for the journals."""
COLUMNS = ["cell", "label"]
CLASSES = "#classes"


def journal_path(adata: AnnData, column: str) -> Path:
    """Return the file with the labels that were given to these cells in a column.

    Its name depends on the positions of the cells, too: many tables have the same cell names.
    """
    digest = hashlib.blake2b("\n".join([column, *adata.obs_names]).encode(), digest_size=16)
    if (found := positions(adata)) is not None:
        digest.update(np.round(np.nan_to_num(found[1]), 1).astype("<f4").tobytes())
    folder = os.environ.get(FOLDER) or user_data_path("centroid-encoder") / "journals"
    return Path(folder) / f"{digest.hexdigest()}.csv"


def note_labels(labels: pd.Series, classes: Sequence[Sequence[str]], path: Path) -> None:
    """Add labels, empty for removed ones, and all classes to a journal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([] if file.tell() else [COLUMNS])
        writer.writerows([*labels.items(), (CLASSES, json.dumps(classes))])


def read_journal(path: Path) -> tuple[pd.Series, list[list[str]]]:
    """Return the last labels of all cells of a journal, and its last classes."""
    text = path.read_text(encoding="utf-8-sig")
    # A crash may have cut the last line.
    table = _table(io.StringIO(text[: text.rfind("\n") + 1]), path.name)
    labels = table.drop_duplicates("cell", keep="last").set_index("cell")["label"]
    classes = json.loads(labels.pop(CLASSES)) if CLASSES in labels else []
    return labels[labels != ""], classes


def read_labels(path: Path) -> pd.Series:
    """Read the labels of cells; cells without one are left out.

    A ValueError if the file has other columns, a cell twice, or no label.
    """
    table = _table(path, path.name)
    twice = table["cell"].duplicated()
    if twice.any():
        cell = table["cell"][twice].iloc[0]
        raise ValueError(f"{path.name} has the cell {cell!r} twice; keep one row for each cell")
    labels = table.set_index("cell")["label"].str.strip()
    check((labels != "").any(), f"{path.name} has no labelled cell")
    return labels[labels != ""]


def _table(file: Path | io.StringIO, name: str) -> pd.DataFrame:
    """Read the columns of a CSV file as text."""
    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is no CSV file: {error}") from error
    for column in COLUMNS:
        text = f"{name} has no column {column!r}; it must have the columns 'cell' and 'label'"
        check(column in table, text)
    return table
