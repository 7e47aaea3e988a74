"""Lists of cells that may be mislabelled."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from centroid_encoder import tl
from centroid_encoder.viewer.session.session import Session

UNLIKELY = 0.05
"""Out-of-fold probability of its own label up to which a cell is listed."""
NOTHING = "Train a map first, or check the labels: cells that may be mislabelled are listed here."
NO_LABELS = (
    "These cells have no labels that could be wrong: their classes are those that the map predicts."
)
CELL = ("cell", "Name of the cell; a click goes to it")
LABEL = ("label", "Label of the cell")


@dataclass(frozen=True, eq=False)
class Source:
    """A way to find cells that may be mislabelled."""

    name: str
    tip: str
    columns: dict[str, tuple[str, str]]
    """Header and tooltip of each column that is shown."""
    found: str
    """Column with the class that a cell may belong to."""


REGIONS = Source(
    "map regions",
    "Cells that lie in another class's region of the map",
    {
        "cell": CELL,
        "label": LABEL,
        "region": ("lies in", "Class in whose region the cell lies"),
        "split": ("split", "train: the cell shaped the map; test: it was held out"),
        "depth": (
            "depth",
            "How far in: 0 on the border of its own class's region, 1 at the other class's center",
        ),
    },
    found="region",
)
OUT_OF_FOLD = Source(
    "out of fold",
    "Cells for which networks that have not seen them predict another class; press Check labels",
    {
        "cell": CELL,
        "label": LABEL,
        "predicted": ("predicted", "Class predicted by a network that has not seen the cell"),
        "confidence": ("probability", "Probability of the predicted class"),
        "own": ("of its label", "Probability of the cell's own label"),
    },
    found="predicted",
)
SOURCES = (REGIONS, OUT_OF_FOLD)


def available(session: Session) -> list[Source]:
    """Return the ways to find cells for which there is a result."""
    is_trained = session.result is not None and not session.result.is_query
    known = {REGIONS: is_trained, OUT_OF_FOLD: session.check is not None}
    return [source for source in SOURCES if known[source]]


def list_cells(session: Session, source: Source) -> tuple[str, pd.DataFrame]:
    """Return a sentence on the cells that may be mislabelled, and their list, worst first.

    The index of the list is their rows in the AnnData. A label that was corrected by hand is shown
    as ``"before → after"``. A KeyError or ValueError if a part of the result is gone.
    """
    adata, result, check = session.adata, session.result, session.check
    if adata is not None and source is REGIONS and result is not None and not result.is_query:
        regions, label_key = session.misplaced_by, result.label_key
        cells = tl.misplaced(adata, key=result.key, regions=regions)
        kind = "Voronoi cell" if regions == "voronoi" else "decoder region"
        n = int((result.codes >= 0).sum())
        summary = f"{len(cells):,} of {n:,} labelled cells lie in another class's {kind}."
    elif adata is not None and source is OUT_OF_FOLD and check is not None:
        label_key = check.label_key
        cells = tl.mislabeled(adata, key=session.key, max_own=UNLIKELY)
        summary = (
            f"{len(cells):,} of {int(check.quality['n']):,} labels are given a probability "
            f"of {100 * UNLIKELY:.0f} % or less by networks that have not seen the cell."
        )
    else:
        is_query = result is not None and result.is_query
        return NO_LABELS if is_query else NOTHING, pd.DataFrame(columns=list(source.columns))
    rows = adata.obs_names.get_indexer(cells.index)
    before = cells["label"].astype(str)
    after = adata.obs[session.corrected(label_key)].iloc[rows].astype(str)
    cells["label"] = before.where(before == after, before + " → " + after)
    return summary, cells.rename_axis("cell").reset_index().set_index(rows)[list(source.columns)]
