"""Labels of cells as CSV: for other programs, and in the user data folder against a crash."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from platformdirs import user_data_path

from centroid_encoder.files import replacing
from centroid_encoder.viewer.data.columns import coordinates

FOLDER = "CENTROID_ENCODER_JOURNALS"
"""Environment variable with another folder for the journals."""
COLUMNS = ["cell", "label"]


def journal_path(adata: AnnData, column: str) -> Path:
    """Return the file with the labels that were given to these cells in a column.

    Its name depends on the positions of the cells, too: many tables have the same cell names.
    """
    digest = hashlib.blake2b("\n".join([column, *adata.obs_names]).encode(), digest_size=16)
    if (found := coordinates(adata)) is not None:
        digest.update(np.round(np.nan_to_num(found[1]), 1).astype("<f4").tobytes())
    folder = os.environ.get(FOLDER) or user_data_path("centroid-encoder") / "journals"
    return Path(folder) / f"{digest.hexdigest()}.csv"


def write_labels(labels: pd.Series, path: Path) -> None:
    """Write the labels of cells; the file is replaced as a whole or not at all."""
    with replacing(path) as beside:
        labels.rename_axis(COLUMNS[0]).rename(COLUMNS[1]).to_csv(beside)


def read_labels(path: Path) -> pd.Series:
    """Read the labels of cells; cells without one are left out.

    A ValueError if the file has other columns, a cell twice, or no label.
    """
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is no CSV file: {error}") from error
    if missing := [name for name in COLUMNS if name not in table]:
        raise ValueError(
            f"{path.name} has no column {missing[0]!r}; it must have the columns 'cell' and 'label'"
        )
    twice = table["cell"].duplicated()
    if twice.any():
        cell = table["cell"][twice].iloc[0]
        raise ValueError(f"{path.name} has the cell {cell!r} twice; keep one row for each cell")
    labels = table.set_index("cell")["label"].str.strip()
    if (labels == "").all():
        raise ValueError(f"{path.name} has no labelled cell")
    return labels[labels != ""]
