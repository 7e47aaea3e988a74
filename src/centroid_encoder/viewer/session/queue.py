"""Cells that are suggested for labelling by hand, and the predictions for all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder import tl
from centroid_encoder.errors import check
from centroid_encoder.tables import colors_key, obs_key
from centroid_encoder.tl._result import UNASSIGNED, StoredMap
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
            how = "unsure" if self.runner_up_probability >= DOUBT else "least sure"
            return f"{how}: {first}, else {self.runner_up} {100 * self.runner_up_probability:.0f} %"
        if self.reason == "novel":
            return f"novel: unlike all labelled cells; perhaps {first}"
        text = "typical of cells without labels"
        # A map of so few labels has no reliable probabilities.
        return text if self.label is None else f"{text}; perhaps {self.label}"


class Queue:
    """Suggested cells that are labelled or skipped one by one.

    `cells` are the suggested cells. `place` is the index of the present one, and their number at
    the end. `skipped` are rows that are not suggested again.
    """

    def __init__(self) -> None:
        self.cells: list[Suggestion] = []
        self.place = 0
        self.skipped: set[int] = set()
        self._trail: list[int] = []
        """Places of the cells that were skipped, or labelled while they were the present one."""

    @property
    def current(self) -> Suggestion | None:
        """The present cell; None at the end."""
        return self.cells[self.place] if self.place < len(self.cells) else None

    @property
    def text(self) -> str:
        """The number of the present cell, and why it is suggested; empty at the end."""
        if (current := self.current) is None:
            return ""
        return f"{self.place + 1:,} of {len(self.cells):,} · {current.text}"

    def is_open(self, place: int, codes: Codes) -> bool:
        """Whether a cell has no label and was not skipped; `codes` are those of the labelling."""
        row = self.cells[place].row
        return codes[row] < 0 and row not in self.skipped

    def page(self, size: int) -> range:
        """Places of the page with the present cell."""
        start = self.place // size * size
        return range(start, min(start + size, len(self.cells)))

    def renew(self, found: Iterable[Suggestion], keep: int) -> None:
        """Replace the cells from the place `keep` on by as many others; at the end, add cells.

        A novel cell keeps its place; in a queue that is made anew after each answer, it would
        always be the tenth. Cells that stay have the probabilities of `found`.
        """
        found = list(found)
        now = {cell[:3]: cell for cell in found}
        cells = [now.get(cell[:3], cell) for cell in self.cells]
        kept = {i: cell for i, cell in enumerate(cells) if i < keep or cell.reason == "novel"}
        known = {cell.row for cell in kept.values()}
        self.cells = [cell for cell in found if cell.row not in known]
        for place, cell in kept.items():
            self.cells.insert(place, cell)
        if keep < len(cells):
            del self.cells[len(cells) :]

    def propose(self, labels: pd.Series) -> None:
        """Propose the classes that a live map predicts, (n_obs,), where none is proposed."""
        for place, cell in enumerate(self.cells):
            is_known = cell.label in labels.cat.categories
            if not is_known and pd.notna(label := labels.iloc[cell.row]):
                self.cells[place] = cell._replace(label=str(label))

    def skip(self, codes: Codes) -> None:
        """Go on to the next cell, without a label for this one."""
        if (current := self.current) is not None:
            self.skipped.add(current.row)
            self._pass(codes)

    def back(self) -> int | None:
        """Go back to the cell before; return its row, whose label is to be taken back."""
        if not self._trail:
            return None
        self.place = self._trail.pop()
        row = self.cells[self.place].row
        self.skipped.discard(row)
        return row

    def follow(self, codes: Codes) -> None:
        """Go on if the present cell has a label, and back to the last one if its label is gone."""
        if self._trail and self.is_open(self._trail[-1], codes):
            self.place = self._trail.pop()
        elif self.place < len(self.cells) and not self.is_open(self.place, codes):
            self._pass(codes)

    def _pass(self, codes: Codes) -> None:
        """Go to the next open cell or, after the last one, to the first."""
        self._trail.append(self.place)
        places = [*range(self.place + 1, len(self.cells)), *range(self.place)]
        open_ = (place for place in places if self.is_open(place, codes))
        self.place = next(open_, len(self.cells))


def suggestions(
    session: Session,
    skipped: Iterable[int],
    features: dict[str, Any],
    seen: Sequence[Suggestion] = (),
) -> Callable[[], list[Suggestion]]:
    """Return a function that suggests cells; it can run in a thread, as it has all it needs.

    The map is the live map, whose features are its own; without one, `features` are arguments of a
    training. No cell that has a label by hand, or was skipped, is suggested. The suggestions `seen`
    come last, with the probabilities of the live map.
    """
    labeling, draft, adata = session.labeling, session.draft, session.adata
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
        new = [Suggestion(int(row), *cell) for row, cell in zip(rows, cells, strict=True)]
        return new if draft is None else [*new, *_judged(source, seen)]

    return suggest


def _judged(draft: AnnData, seen: Sequence[Suggestion]) -> list[Suggestion]:
    """Return suggestions whose label is a class of a live map, with its probabilities."""
    # Imported here, since they import PyTorch.
    from centroid_encoder.tl._cells import read_new_cells
    from centroid_encoder.tl._fitted_model import fitted_model

    model, stored = fitted_model(draft, DRAFT_KEY, device="cpu"), StoredMap.read(draft, DRAFT_KEY)
    classes = pd.Index(model.classes_.tolist())
    seen = [cell for cell in seen if cell.label in classes]
    if not seen or stored is None:
        return []
    cells, _ = read_new_cells(draft, model, stored.source)
    shown = cells.imputed(cells.X[[cell.row for cell in seen]])
    shares, at = shown.judge()[1], np.arange(len(seen))
    own = classes.get_indexer([cell.label for cell in seen])
    others = shares.copy()
    others[at, own] = -1
    second = others.argmax(axis=1)
    found = zip(seen, shares[at, own], classes[second], shares[at, second], strict=True)
    return [Suggestion(*cell[:3], float(p), str(name), float(q)) for cell, p, name, q in found]


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
    session.columns_changed.emit()
    # The cells may be coloured by this column.
    session.shown_changed.emit()
    counts = adata.obs[column].value_counts().reindex(names)
    n = int(np.count_nonzero(labels.notna()))
    cells = ", ".join(f"{name} {n_cells:,}" for name, n_cells in counts.items())
    text = f"Written to the column {column!r}: {cells}. {n:,} of these labels are by hand."
    return column, text
