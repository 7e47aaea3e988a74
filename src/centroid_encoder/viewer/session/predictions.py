"""The predictions of the live map for all cells, in a column of their own."""

from __future__ import annotations

import numpy as np
import pandas as pd

from centroid_encoder.tl._result import UNASSIGNED, colors_key, obs_key
from centroid_encoder.viewer.session.draft import DRAFT_KEY, error_text, held_out_error
from centroid_encoder.viewer.session.labeling import NEW_COLOR
from centroid_encoder.viewer.session.session import Session

SUFFIX = "_predicted"
MIN_CONFIDENCE = 0.5
FEW = 5
"""The predictions of a class with fewer labels are doubtful."""


def weak_classes(session: Session) -> str:
    """Name the classes with fewer than `FEW` labels, and the held-out error; empty without any."""
    labeling, draft = session.labeling, session.draft
    if labeling is None or draft is None:
        return ""
    counts = labeling.adata.obs[labeling.column].value_counts()
    few = [f"{name} ({n})" for name, n in counts.items() if 0 < n < FEW]
    error = error_text(*held_out_error(draft, labeling.adata.obs[labeling.column]))
    text = f"Fewer than {FEW} labels: {', '.join(few)}. Live map: {error}."
    return f"{text} Press Apply to all once more to write these predictions." if few else ""


def apply_to_all(session: Session, min_confidence: float = MIN_CONFIDENCE) -> tuple[str, str]:
    """Write labels by hand and, for all other cells, those of the live map.

    Returns the name of the column and a text that describes it.

    The column is that of the labels with the ending ``"_predicted"``. Cells with a confidence below
    `min_confidence` are ``"unassigned"``. A column that was written here before is replaced. A
    ValueError if there is no live map of these cells and classes, or another column of that name.
    """
    adata, labeling, draft = session.adata, session.labeling, session.draft
    if adata is None or labeling is None or draft is None:
        raise ValueError("there is no live map yet")
    column, classes = f"{labeling.column}{SUFFIX}", [one.name for one in labeling.classes]
    # Marks a column of predictions.
    mark = f"{column}_by_live_map"
    if column in adata.obs and mark not in adata.uns:
        raise ValueError(f"there is another column obs[{column!r}] already; rename it first")
    found, labels = draft.obs[obs_key(DRAFT_KEY, "label")], adata.obs[labeling.column]
    if not (set(found.dropna()) <= set(classes) and draft.obs_names.equals(adata.obs_names)):
        raise ValueError("the live map is older than the classes; wait until it is trained anew")
    confidence = draft.obs[obs_key(DRAFT_KEY, "confidence")].to_numpy()
    is_sure = found.notna() & (confidence >= min_confidence)
    predicted = found.astype(object).where(is_sure, UNASSIGNED)
    values = labels.astype(object).where(labels.notna(), predicted)
    names = list(dict.fromkeys([*classes, UNASSIGNED]))
    adata.obs[column] = pd.Categorical(values, names)
    adata.uns[colors_key(column)] = [*(one.color for one in labeling.classes), NEW_COLOR][
        : len(names)
    ]
    adata.uns[mark] = {"min_confidence": min_confidence}
    session.columns_changed.emit()
    # The cells may be coloured by this column.
    session.shown_changed.emit()
    counts = adata.obs[column].value_counts().reindex(names)
    n = int(np.count_nonzero(labels.notna()))
    cells = ", ".join(f"{name} {n_cells:,}" for name, n_cells in counts.items())
    text = f"Written to obs[{column!r}]: {cells}. {n:,} of these labels are by hand."
    return column, text
