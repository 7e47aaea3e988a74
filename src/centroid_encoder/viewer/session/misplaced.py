"""Cells that may be mislabelled: the ways to find them, and what is listed of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder import tl

if TYPE_CHECKING:
    from centroid_encoder.viewer.session.session import Session

UNLIKELY = 0.05
"""Out-of-fold probability of its own label up to which a cell is listed."""
NOTHING = "Train a map first, or check the labels: cells that may be mislabelled are listed here."
NO_LABELS = (
    "These cells have no labels that could be wrong: their classes are those that the map predicts."
)


@dataclass(frozen=True)
class Column:
    """A column of the list."""

    header: str
    tip: str


@dataclass(frozen=True, eq=False)
class Source:
    """One way to find cells that may be mislabelled."""

    name: str
    """What the user chooses."""
    tip: str
    columns: dict[str, Column]
    """What is shown, by the name of the column of the data frame."""
    found: str
    """Column with the class that the cell may really be of."""
    sorted_by: str | None
    """Column that the worst come first by; None for the order of the data frame."""
    is_there: Callable[[Session], bool]
    """Whether the session has what it takes."""
    list_cells: Callable[[Session], tuple[str, pd.DataFrame, str]]
    """Label column, cells worst first under their names, and a sentence on them."""


@dataclass(frozen=True)
class Listing:
    """The cells that a source finds."""

    summary: str | Exception
    """A sentence on them, or what is wrong."""
    cells: pd.DataFrame
    rows: NDArray[np.intp]
    """(n_listed,) row of each cell in the AnnData."""
    labels: pd.Categorical | None = None
    """(n_obs,) labels after relabelling, where these are the labels that are relabelled."""


def list_misplaced(session: Session, source: Source) -> Listing:
    """List the cells that may be mislabelled, or say why there are none to list.

    Parameters
    ----------
    session
        What to look at.
    source
        How to find them; it must be there.
    """
    nothing = pd.DataFrame(columns=list(source.columns)[1:])
    if session.adata is None or not source.is_there(session):
        has_query = session.result is not None and session.result.is_query
        return Listing(NO_LABELS if has_query else NOTHING, nothing, np.empty(0, dtype=np.intp))
    try:
        label_key, cells, summary = source.list_cells(session)
    except (KeyError, ValueError) as error:
        return Listing(error, nothing, np.empty(0, dtype=np.intp))
    relabeling = session.relabeling
    # Relabelling of another column says nothing about these labels.
    same = relabeling is not None and label_key in (relabeling.label_key, relabeling.column)
    return Listing(
        summary,
        cells,
        session.adata.obs_names.get_indexer(cells.index),
        relabeling.labels if relabeling is not None and same else None,
    )


def _by_region(session: Session) -> tuple[str, pd.DataFrame, str]:
    """Cells that lie in another class's region of the map."""
    assert session.adata is not None
    assert session.result is not None
    result, regions = session.result, session.misplaced_by
    cells = tl.misplaced(session.adata, key=result.key, regions=regions)
    kind = "Voronoi cell" if regions == "voronoi" else "decoder region"
    summary = (
        f"{len(cells):,} of {int((result.codes >= 0).sum()):,} labelled cells lie in another "
        f"class's {kind}."
    )
    return result.label_key, cells, summary


def _out_of_fold(session: Session) -> tuple[str, pd.DataFrame, str]:
    """Cells whose own label networks that have not seen them find improbable."""
    assert session.adata is not None
    assert session.check is not None
    cells = tl.mislabeled(session.adata, key=session.key, max_own=UNLIKELY)
    summary = (
        f"{len(cells):,} of {int(session.check.quality['n']):,} labels are given a probability "
        f"of {100 * UNLIKELY:.0f} % or less by networks that have not seen the cell."
    )
    return session.check.label_key, cells, summary


CELL = Column("cell", "Name of the cell; a click goes to it")
LABEL = Column("label", "Class that the cell is labelled as")

REGIONS = Source(
    name="map regions",
    tip="Cells that lie in another class's region of the map",
    columns={
        "cell": CELL,
        "label": LABEL,
        "region": Column("lies in", "Class in whose region the cell lies"),
        "split": Column("split", "train: the cell shaped the map; test: it was held out"),
        "depth": Column(
            "depth",
            "How far in: 0 on the border of its own class's region, 1 at the other class's center",
        ),
    },
    found="region",
    sorted_by="depth",
    is_there=lambda session: session.result is not None and not session.result.is_query,
    list_cells=_by_region,
)
OUT_OF_FOLD = Source(
    name="out of fold",
    tip="Cells that networks which have not seen them take for another class; press Check labels",
    columns={
        "cell": CELL,
        "label": LABEL,
        "predicted": Column(
            "predicted", "Class that a network which has not seen the cell takes it for"
        ),
        "confidence": Column("probability", "Probability of the predicted class"),
        "own": Column("of its label", "Probability of the class that the cell is labelled as"),
    },
    found="predicted",
    # By how many times more probable the predicted class is than the label's.
    sorted_by=None,
    is_there=lambda session: session.check is not None,
    list_cells=_out_of_fold,
)
SOURCES = (REGIONS, OUT_OF_FOLD)
