"""List the cells that may be mislabelled, and count which classes are confused."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder import tl
from centroid_encoder.errors import CentroidEncoderWarning
from centroid_encoder.tables import cv_key, obs_key
from centroid_encoder.tl._result import TEST, Regions, Result, StoredCrossValidation
from centroid_encoder.viewer.session.corrections import are_right
from centroid_encoder.viewer.session.session import Session

NOTHING = (
    "Train a map or check the labels first. Cells that may be mislabelled are then listed here."
)
NO_LABELS = "These cells have no labels to check: the map has predicted their classes."
Found = tuple[str, str, pd.DataFrame]
CELL = ("cell", "Name of the cell; a click goes to it")
LABEL = ("label", "Label of the cell")


@dataclass(frozen=True, eq=False)
class Source:
    """A way to find cells that may be mislabelled."""

    name: str
    columns: dict[str, tuple[str, str]]
    """Header and tooltip of each shown column."""
    found: str
    """Column with the class that the cell may belong to."""


REGIONS = Source(
    "map regions",
    {
        "cell": CELL,
        "label": LABEL,
        "region": ("lies in", "Class in whose region the cell lies"),
        "split": (
            "split",
            "train: the cell shaped the map; test: it was held out; unused: neither",
        ),
        "depth": (
            "depth",
            "0 on the border to the region of its own class, 1 at the center of the other class",
        ),
    },
    found="region",
)
OUT_OF_FOLD = Source(
    "out of fold",
    {
        "cell": CELL,
        "label": LABEL,
        "predicted": ("predicted", "Class predicted by a network that has not seen the cell"),
        "confidence": ("probability", "Probability of the predicted class"),
        "own": ("of label", "Probability of the cell's own label"),
    },
    found="predicted",
)
SOURCES = (REGIONS, OUT_OF_FOLD)


def available(session: Session) -> list[Source]:
    """Return the sources that have a result."""
    result = session.state.result
    has_labels = result is not None and (
        not result.is_query or "compared_with" in result.stored.params
    )
    sources = [REGIONS] if has_labels else []
    return sources if session.state.check is None else [*sources, OUT_OF_FOLD]


def list_cells(session: Session, source: Source) -> tuple[str, pd.DataFrame]:
    """Return a sentence on the cells that may be mislabelled, and their list, the worst first.

    The index of the list is the row of each cell in the AnnData. Cells whose label was corrected
    by hand or found right are left out; ``attrs["n_decided"]`` is their number. Raises a KeyError
    or ValueError if a part of the result was deleted.
    """
    adata, result, check = session.adata, session.state.result, session.state.check
    if adata is None or source not in available(session):
        is_query = result is not None and result.is_query
        return NO_LABELS if is_query else NOTHING, pd.DataFrame(columns=list(source.columns))
    # The search takes long, and corrections do not change what is found.
    if source is REGIONS:
        found = session.of(_in_regions, adata, result, session.misplaced_by)
    else:
        found = session.of(_out_of_fold, adata, check, session.state.key)
    summary, label_key, cells = found
    rows = adata.obs_names.get_indexer(cells.index)
    now = adata.obs[session.corrected(label_key)].iloc[rows].astype(str)
    is_open = (cells["label"].astype(str) == now).to_numpy()
    is_open = is_open & ~are_right(adata, label_key)[rows]
    if n_decided := int((~is_open).sum()):
        summary += f" Decided: {n_decided:,}."
    cells = cells.rename_axis("cell").reset_index().set_index(rows)[list(source.columns)]
    cells.attrs["n_decided"] = n_decided
    return summary, cells[is_open]


def _in_regions(adata: AnnData, result: Result, regions: Regions) -> Found:
    """Return a sentence, the label column, and the cells in the region of another class."""
    label_key = result.stored.params.get("compared_with", result.label_key)
    cells = tl.misplaced(adata, key=result.key, regions=regions)
    kind = "Voronoi cell" if regions == "voronoi" else "decoder region"
    n = int((result.codes >= 0).sum())
    if result.stored.compared is not None:
        n = int(result.stored.compared["n"].sum())
    summary = f"{len(cells):,} of {n:,} labelled cells lie in the {kind} of another class."
    return summary, label_key, cells


def _out_of_fold(adata: AnnData, check: StoredCrossValidation, key: str) -> Found:
    """Return a sentence, the label column, and the cells that a check found."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CentroidEncoderWarning)
        cells = tl.mislabeled(adata, key=key)
    summary = (
        f"For {len(cells):,} of {int(check.quality['n']):,} cells, the label looks wrong to "
        "networks that have not seen the cell."
    )
    for text in (str(warning.message) for warning in caught):
        summary += f" {text[0].upper()}{text[1:]}."
    return summary, check.label_key, cells


def confusion(session: Session) -> tuple[str, pd.Index, NDArray[np.intp], NDArray[np.intp]]:
    """Return a sentence, the classes, and each cell's class and predicted class.

    Both are (n_obs,) indices; −1 for cells that are not counted. Counted are the cells that no
    network has seen: with a check all cells, without one those that are held out.
    """
    adata, result, check = session.adata, session.state.result, session.state.check
    if adata is not None and check is not None:
        labels, found = (
            check.classes.get_indexer(adata.obs[name].astype(object))
            for name in (check.label_key, obs_key(cv_key(session.state.key), "label"))
        )
        counted = (labels >= 0) & (found >= 0)
        text, classes = "Each row is a label, each column a prediction out of fold.", check.classes
    elif result is not None and not result.is_query:
        labels, found, classes = result.codes, result.predicted, result.classes
        counted = (result.split == TEST).to_numpy() & (labels >= 0) & (found >= 0)
        text = "Each row is a label, each column a predicted class; held-out cells."
    else:
        return NOTHING, pd.Index([]), *2 * (np.empty(0, dtype=np.intp),)
    return text, classes, np.where(counted, labels, -1), np.where(counted, found, -1)
