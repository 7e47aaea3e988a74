"""Cells that are suggested for labelling by hand, and the predictions for all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from centroid_encoder import tl
from centroid_encoder.errors import check
from centroid_encoder.tables import colors_key, obs_key
from centroid_encoder.tl._result import UNASSIGNED
from centroid_encoder.viewer.session.draft import DRAFT_KEY, error_text, held_out_error, sharing
from centroid_encoder.viewer.session.labeling import Codes
from centroid_encoder.viewer.session.session import Session

N_CELLS = 20
"""Cells that are suggested at a time."""
FEATURES = ("use_rep", "layer", "use_raw", "mask_var")
"""Arguments of a training that are also those of a suggestion without a map."""
DONE, IMAGE = "done", "image"
"""Columns that mark cells not to be suggested, and that name their images."""
SUFFIX = "_predicted"
UNASSIGNED_COLOR = "#d3d3d3"
MIN_CONFIDENCE = 0.5
FEW = 5
"""The predictions of a class with fewer labels are doubtful."""
DOUBT = 0.1
"""Probability of another class from which on the map is unsure."""
SURE = 0.95
"""Probability of a class above which no cell is called unsure."""


class Suggestion(NamedTuple):
    """A cell to be labelled: its row in the table, and the row of `tl.suggest`."""

    row: int
    reason: str
    label: str | None = None
    """The proposal: the most probable class; None without a map."""
    probability: float = np.nan
    runner_up: str | None = None
    runner_up_probability: float = np.nan

    @property
    def text(self) -> str:
        """Why the cell is suggested, and what it may be."""
        first = f"{self.label} {100 * self.probability:.0f} %"
        if self.reason == "unsure":
            if not self.runner_up_probability >= DOUBT:
                return first if self.probability > SURE else f"least sure: {first}"
            return (
                f"unsure: {first}, else {self.runner_up} {100 * self.runner_up_probability:.0f} %"
            )
        if self.reason == "novel":
            return f"novel: unlike all labelled cells; perhaps {first}"
        text = "typical of cells without labels"
        # A map of so few labels has no reliable probabilities.
        return text if self.label is None else f"{text}; perhaps {self.label}"


@dataclass(frozen=True)
class Queue:
    """Suggested cells in their order, and the rows of those that the user has skipped.

    A cell is open if it has no label and was not skipped; the first open cell is the present one.
    The `codes` of the methods are those of the labelling.
    """

    cells: tuple[Suggestion, ...] = ()
    skipped: frozenset[int] = frozenset()

    def open(self, codes: Codes) -> list[Suggestion]:
        """Return the open cells."""
        return [x for x in self.cells if codes[x.row] < 0 and x.row not in self.skipped]

    def text(self, codes: Codes) -> str:
        """Return the number of the present cell, and why it is suggested; empty at the end."""
        if not (left := self.open(codes)):
            return ""
        place = self.cells.index(left[0]) + 1
        return f"{place:,} of {len(self.cells):,} · {left[0].text}"

    def skip(self, row: int) -> Queue:
        """Return the queue without a cell, which is not suggested again."""
        return replace(self, skipped=self.skipped | {row})

    def begin_with(self, cell: Suggestion, codes: Codes) -> Queue:
        """Return the queue in which an open cell comes before all other open ones."""
        at, others = self.cells.index(self.open(codes)[0]), [x for x in self.cells if x != cell]
        return replace(self, cells=(*others[:at], cell, *others[at:]))

    def renewed(
        self, found: Iterable[Suggestion], codes: Codes, proposals: pd.DataFrame | None
    ) -> Queue:
        """Return a queue with other cells after the present one; at the end, with more cells.

        A novel cell keeps its place; in a queue that is made anew after each answer, it would
        always be the tenth. Cells that stay get the class and the confidence of `proposals`, the
        two columns of a live map.
        """
        left, n = self.open(codes), len(self.cells)
        keep = self.cells.index(left[0]) + 1 if left else n
        kept = {i: x for i, x in enumerate(self.cells) if i < keep or x.reason == "novel"}
        known = {cell.row for cell in kept.values()}
        cells = [cell for cell in found if cell.row not in known]
        for place, cell in kept.items():
            if proposals is not None and pd.notna(proposals.iat[cell.row, 0]):
                label, probability = proposals.iloc[cell.row]
                cell = Suggestion(*cell[:2], str(label), float(probability))
            cells.insert(place, cell)
        return replace(self, cells=tuple(cells[:n] if left else cells))


def suggestions(
    session: Session, skipped: Iterable[int], features: dict[str, Any]
) -> Callable[[], list[Suggestion]]:
    """Return a function that suggests cells; it can run in a thread, as it has all it needs.

    The map is the live map, whose features are its own; without one, `features` are arguments of a
    training. No cell that has a label by hand, or was skipped, is suggested.
    """
    labeling, draft, adata = session.state.labeling, session.state.draft, session.adata
    if labeling is None or adata is None:
        raise RuntimeError("the labelling has ended")
    # Skipped cells count as labelled: the user has seen their part of the data.
    done = labeling.codes >= 0
    done[list(skipped)] = True
    obs = pd.DataFrame({DONE: pd.Series(done, adata.obs_names).map({True: DONE})}, adata.obs_names)
    image_column = session.catalog.image_column
    if image_column is not None:
        obs[IMAGE] = adata.obs[image_column].to_numpy()
    chosen = {name: value for name, value in features.items() if name in FEATURES}
    uns = {} if draft is None else {DRAFT_KEY: draft.uns[DRAFT_KEY]}
    source = sharing(adata if draft is None else draft, obs, uns)
    # Imported here, not in the thread: scikit-learn must not be imported in two threads at once.
    call = partial(
        tl.suggest,
        source,
        DRAFT_KEY,
        N_CELLS,
        image_key=None if image_column is None else IMAGE,
        label_key=DONE,
        **(chosen if draft is None else {}),
    )

    def suggest() -> list[Suggestion]:
        found = call()
        rows = source.obs_names.get_indexer(found.index)
        # Missing classes become None.
        found = found.astype({"reason": str, "label": object, "runner_up": object})
        found[["label", "runner_up"]] = found[["label", "runner_up"]].replace({np.nan: None})
        cells = found.itertuples(index=False, name=None)
        return [Suggestion(int(row), *cell) for row, cell in zip(rows, cells, strict=True)]

    return suggest


def weak_classes(session: Session) -> str:
    """Name the classes with fewer than `FEW` labels, and the held-out error; empty without any."""
    labeling, draft = session.state.labeling, session.state.draft
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
    adata, labeling, draft = session.adata, session.state.labeling, session.state.draft
    if adata is None or labeling is None or draft is None:
        raise ValueError("there is no live map yet")
    column, classes = f"{labeling.column}{SUFFIX}", [one.name for one in labeling.classes]
    # Marks a column of predictions.
    mark = f"{column}_by_live_map"
    is_free = column not in adata.obs or mark in adata.uns
    check(is_free, f"there is another column {column!r} already; rename it first")
    found, labels = draft.obs[obs_key(DRAFT_KEY, "label")], adata.obs[labeling.column]
    is_new = set(found.dropna()) <= set(classes) and draft.obs_names.equals(adata.obs_names)
    check(is_new, "the live map is older than the classes; wait until it is trained anew")
    confidence = draft.obs[obs_key(DRAFT_KEY, "confidence")].to_numpy()
    is_sure = found.notna() & (confidence >= min_confidence)
    predicted = found.astype(object).where(is_sure, UNASSIGNED)
    values = labels.astype(object).where(labels.notna(), predicted)
    names = list(dict.fromkeys([*classes, UNASSIGNED]))
    adata.obs[column] = pd.Categorical(values, names)
    adata.uns[colors_key(column)] = [*(one.color for one in labeling.classes), UNASSIGNED_COLOR][
        : len(names)
    ]
    adata.uns[mark] = {"min_confidence": min_confidence}
    # The cells may be coloured by this column.
    session.wrote()
    counts = adata.obs[column].value_counts().reindex(names)
    n = int(np.count_nonzero(labels.notna()))
    cells = ", ".join(f"{name} {n_cells:,}" for name, n_cells in counts.items())
    text = f"Written to the column {column!r}: {cells}. {n:,} of these labels are by hand."
    return column, text
