"""The classes that are shown: colours, numbers of cells and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from centroid_encoder.tl._result import Result
    from centroid_encoder.viewer.session.session import Session


@dataclass(frozen=True)
class ClassRow:
    """One class."""

    name: str
    color: str
    n: int
    """Number of its cells."""
    error: float
    """Held-out error by the rule in the title of the map; NaN where it is not known."""
    out_of_fold: float = np.nan
    """Cross-validated error by the same rule; NaN where it is not known."""


def class_rows(session: Session, image: object = None) -> list[ClassRow]:
    """Return the classes of the map, or, without one, of the labels that are chosen.

    Parameters
    ----------
    session
        What to look at.
    image
        The image whose cells are counted; None for all.
    """
    adata, label_key = session.adata, session.label_key
    if adata is None or label_key is None:
        return []
    result, column = session.result, session.catalog.image_column
    rule, _ = session.rule
    counted = np.ones(adata.n_obs, dtype=bool)
    if image is not None and column is not None:
        counted = (adata.obs[column].astype(str) == str(image)).to_numpy()
    if result is None:
        counts = adata.obs[session.corrected(label_key)][counted].value_counts()
        n_cells = {name: int(counts.get(name, 0)) for name in session.class_colors}
        held_out: dict[object, float] = {}
    else:
        codes = session.codes[(session.codes >= 0) & counted]
        in_class = np.bincount(codes, minlength=len(session.classes))
        n_cells = dict(zip(session.classes, map(int, in_class), strict=True))
        held_out = _held_out_errors(result, rule)
    out_of_fold = _out_of_fold_errors(session, rule)
    return [
        ClassRow(
            str(name),
            color,
            n_cells[name],
            held_out.get(name, np.nan),
            out_of_fold.get(str(name), np.nan),
        )
        for name, color in session.class_colors.items()
    ]


def _held_out_errors(result: Result, rule: str) -> dict[object, float]:
    """Error of each class; empty for cells that were not trained on."""
    stored = result.stored
    if stored.quality is None:
        return {}
    errors = stored.quality["per_class"][f"test_{rule}_error"].tolist()
    return dict(zip(stored.classes, errors, strict=True))


def _out_of_fold_errors(session: Session, rule: str) -> dict[str, float]:
    """Error of each class; empty if other labels were checked than those that are shown."""
    check = session.check
    if check is None or check.label_key != session.shown_labels:
        return {}
    per_class = check.per_class
    return dict(zip(per_class["class"], per_class[f"{rule}_error"].astype(float), strict=True))
