"""Where suspect cells come from, and how their table looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Source:
    """One way to find cells that may be mislabelled."""

    name: str
    """What the user chooses."""
    tip: str
    headers: dict[str, str]
    """What stands above each column of the data frame."""
    tips: dict[str, str]
    found: str
    """Column with the class that the cell may really be of."""
    sorted_by: str | None
    """Column that the worst come first by; None for the order of the data frame."""


CELL = "Name of the cell; a click goes to it"
LABEL = "Class that the cell is labelled as"

REGIONS = Source(
    name="map regions",
    tip="Cells that lie in another class's region of the map",
    headers={
        "cell": "cell",
        "label": "label",
        "region": "lies in",
        "split": "split",
        "depth": "depth",
    },
    tips={
        "cell": CELL,
        "label": LABEL,
        "region": "Class in whose region the cell lies",
        "split": "train: the cell shaped the map; test: it was held out",
        "depth": "How far in: 0 on the border of its own class's region, 1 at the other class's "
        "center",
    },
    found="region",
    sorted_by="depth",
)
OUT_OF_FOLD = Source(
    name="out of fold",
    tip="Cells that networks which have not seen them take for another class; press Check labels",
    headers={
        "cell": "cell",
        "label": "label",
        "predicted": "predicted",
        "confidence": "probability",
        "own": "of its label",
    },
    tips={
        "cell": CELL,
        "label": LABEL,
        "predicted": "Class that a network which has not seen the cell takes it for",
        "confidence": "Probability of the predicted class",
        "own": "Probability of the class that the cell is labelled as",
    },
    found="predicted",
    # By how many times more probable the predicted class is than the label's.
    sorted_by=None,
)
SOURCES = (REGIONS, OUT_OF_FOLD)
