"""Review cells that may be mislabelled: change their labels, or find them right."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from qtpy.QtCore import QEvent, QModelIndex, QObject, Qt
from qtpy.QtGui import QKeyEvent, QKeySequence
from qtpy.QtWidgets import QPushButton, QSizePolicy, QStackedWidget, QToolButton, QWidget

from centroid_encoder.errors import InputError
from centroid_encoder.tl._result import LARGEST, StoredCrossValidation, fold_words
from centroid_encoder.tl._summary import (
    group_words,
    permutation_words,
    range_words,
    unjudged_words,
)
from centroid_encoder.viewer.panels.fields import Choice, button, column, side_by_side
from centroid_encoder.viewer.panels.label_menu import LabelMenu
from centroid_encoder.viewer.panels.message import Message, gist, sentence
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.misplaced import (
    REGIONS,
    Source,
    available,
    confusion,
    list_cells,
)
from centroid_encoder.viewer.session.provenance import by_image
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State

LEAST = 63
"""Least height of the list or the evidence in pixels: a low card shows the button below it."""
SPLITS = {"train": "training", "test": "held out", "unused": "unused"}
"""What a map has used a cell for, in words."""
ERRORS = {
    "voronoi": "in the region of another class",
    "decoder": "in the region of another class",
    "knn": "whose nearest five cells are of another class",
}
"""The error by each rule, in words."""


class MisplacedTable(QWidget):
    """Sortable list of cells that may be mislabelled, worst first, or the confused classes.

    `source` is how the listed cells were found; with None, classes are compared. `summary` is the
    sentence below the list. `found` is the result of a check, and `doubts` are its warnings. A
    decided cell leaves the list, and the next one is selected. The parent connects `train_button`.
    After a click on a cell, the `evidence` on it takes the place of the list; `place_button` shows
    its place in the list, and brings the list back.
    """

    def __init__(self, session: Session, evidence: QWidget | None = None) -> None:
        super().__init__()
        self._session = session
        self.source: Source | None = REGIONS
        self._wanted: Source | None = REGIONS
        self.view = TableView("Cells to review")
        self.model = self.view.frame
        self._keep_order()
        self.view.setSortingEnabled(True)
        self.view.selectionModel().selectionChanged.connect(self._on_row)
        self.view.clicked.connect(self._on_click)
        self.view.installEventFilter(self)
        self.evidence = evidence
        self.pages = QStackedWidget()
        self.pages.setMinimumHeight(LEAST)
        self.pages.addWidget(self.view)
        if evidence is not None:
            evidence.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            evidence.installEventFilter(self)
            self.pages.addWidget(evidence)
        self.place_button = QToolButton()
        self.place_button.clicked.connect(self.turn)
        self.source_box = Choice("Found by", "How the cells were found", self.choose)
        self.summary = Message()
        self.label_button = QToolButton()
        self.label_button.setObjectName("change")
        self.label_button.setToolTip(
            "Give the selected cells this label, in a copy of the column (Enter). The arrow opens "
            "a menu of all labels"
        )
        self.label_button.setPopupMode(QToolButton.ToolButtonPopupMode.MenuButtonPopup)
        self.label_button.setMenu(LabelMenu(session, self))
        self.label_button.clicked.connect(self.change)
        # A long name of a class does not make the dock wider.
        policy = QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed
        self.label_button.setSizePolicy(*policy)
        tip = "Keep the labels of the selected cells, and take them off the list (K)"
        self.right_button = button("Label is right", tip, session.confirm_selected)
        self.train_button = QPushButton("Train on corrections")
        self.train_button.setToolTip("Train a map on the corrected labels")
        # The list has the height; the tooltip and the log have all of the result.
        self.found, self.doubts = Message(wraps=False), Message()
        self.decisions = QWidget()
        self.decisions.setLayout(side_by_side((self.label_button, 1), self.right_button))
        self.decisions.installEventFilter(self)
        above = side_by_side((self.source_box, 1), self.place_button, (self.decisions, 2))
        below = side_by_side((self.summary, 1), self.train_button)
        below.setAlignment(self.train_button, Qt.AlignmentFlag.AlignTop)
        # What one decides with comes first, since a low card shows no more.
        layout = column(self, above, self.pages, below, self.found, self.doubts)
        # The pages take the height that is left, and a spacer takes it while they are hidden.
        layout.setStretchFactor(self.pages, 1)
        layout.addStretch()
        self.view.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
        card = self.sizePolicy()
        card.setVerticalStretch(1)
        self.setSizePolicy(card)
        session.show_in(self.show_state)
        self._on_cells()

    def show_state(self, before: State, now: State) -> None:
        """List the cells of another map or check again, and those that are still open."""
        is_other = now.differs(before, "result", "check", "cells", "regions")
        is_due = is_other or now.differs(before, "label_key", "labeling", "labels")
        if now.labeling is None and is_due:
            self._on_cells(is_other=is_other)
        elif now.differs(before, "group"):
            self._on_selection()

    def choose(self, source: Source | None) -> None:
        """Choose how cells are found; the choice is kept while there is no such result."""
        self._wanted = source
        self._on_cells()

    def say_verdict(self, message: Message) -> None:
        """Say what is most important in the result of a check, since the list hides the rest."""
        found, doubts = self.found.text(), self.doubts.text()
        text = " ".join(gist(text) for text in (found, doubts) if text)
        message.say(text, "warning" if doubts else "info", f"{found} {doubts}")

    def turn(self) -> None:
        """Show the evidence in place of the list, or the list again."""
        is_list = self.pages.currentWidget() is self.view
        shown = (self.evidence if is_list and self._current >= 0 else None) or self.view
        self.pages.setCurrentWidget(shown)
        shown.setFocus()

    def change(self) -> None:
        """Give the selected cells the proposed label, and go on to the next one."""
        if name := self._proposed:
            self._session.label_selected(name)
        else:
            self.label_button.showMenu()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Decide by keys: Enter changes the label, K keeps it, Ctrl+Z undoes the last step."""
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            acts = {Qt.Key.Key_K: self._session.confirm_selected}
            if watched is not self.decisions:  # There, Enter is that of a button.
                acts |= {Qt.Key.Key_Return: self.change, Qt.Key.Key_Enter: self.change}
            if watched is self.evidence:
                acts |= {Qt.Key.Key_Up: partial(self._step, -1)}
                acts |= {Qt.Key.Key_Down: partial(self._step, 1)}
            act = acts.get(Qt.Key(event.key())) if self._current >= 0 else None
            if event.matches(QKeySequence.StandardKey.Undo):
                act = self._session.undo
            elif event.matches(QKeySequence.StandardKey.Redo):
                act = self._session.redo
            if act is not None:
                act()
                return True
        return bool(super().eventFilter(watched, event))

    def _step(self, by: int) -> None:
        """Select the next cell of the list, or the one before."""
        self.view.selectRow(min(max(self._current + by, 0), len(self.model.table) - 1))

    @property
    def _current(self) -> int:
        """The selected row of the list; −1 for none."""
        rows = [index.row() for index in self.view.selectionModel().selectedRows()]
        return rows[0] if rows and self.source is not None else -1

    @property
    def _proposed(self) -> str:
        """The class that the selected cells may belong to; empty if it is no label."""
        column = self.view.currentIndex().column()
        name: object = ""
        if self._current >= 0 and self.source is not None:
            name = self.model.table[self.source.found].iloc[self._current]
        elif self.source is None and column > 0:
            name = self.model.headerData(column, Qt.Orientation.Horizontal)
        return str(name) if name in self._session.new_labels else ""

    def _on_cells(self, *, is_other: bool = True) -> None:
        """List the cells again, in the order that the user has chosen, or compare the classes.

        Those of another map or check are other cells; otherwise, the next cell follows a decided
        one, and a cell comes back whose decision is undone.
        """
        found, doubts = verdict(self._session)
        self.found.say(found)
        self.doubts.say(doubts, "warning")
        there = available(self._session)
        entries: list[tuple[str, Source | None]] = [(source.name, source) for source in there]
        entries += [("classes that are confused", None)] * bool(there)
        is_there = self._wanted in dict(entries).values()
        source = self._wanted if is_there else next(iter(there), REGIONS)
        self.source_box.offer(entries, source)
        if source is not self.source:
            self.source = source
            self.pages.setCurrentWidget(self.view)
            self._keep_order()
        self.view.setSortingEnabled(source is not None)
        if source is None:
            self._show_confusion()
        else:
            self._show_cells(source, is_other)
        self._on_selection()
        if self._current < 0:
            self.pages.setCurrentWidget(self.view)
        corrected = self._session.corrected(self._session.label_key)
        self.train_button.setVisible(corrected != self._session.label_key)

    def _show_cells(self, source: Source, is_other: bool) -> None:
        try:
            summary, cells = list_cells(self._session, source)
        except (KeyError, ValueError) as error:
            summary, cells = sentence(error), pd.DataFrame(columns=list(source.columns))
        self.summary.say(summary)
        self.pages.setVisible(len(cells) > 0)
        if "split" in cells:
            cells = cells.assign(split=cells["split"].map(SPLITS))
        before, place = self.model.table.index, self._current
        classes = [i for i, name in enumerate(source.columns) if name in ("label", source.found)]
        self.view.set_table(cells, list(source.columns.values()), classes)
        header = self.view.horizontalHeader()
        self.model.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())
        if not is_other and place >= 0 and self._session.state.mode == "Review":
            now, row = self.model.table.index, before[place]
            # Go back to a cell that is open again, or keep the cell, or go on to the next one.
            row = next(iter(now.difference(before, sort=False)), row)
            self.view.selectRow(now.get_loc(row) if row in now else min(place, len(now) - 1))

    def _show_confusion(self) -> None:
        """Count the cells of each label and each predicted class."""
        text, classes, labels, found = confusion(self._session)
        names, counted = list(map(str, classes)), labels >= 0
        counts = np.zeros((len(names), len(names)), dtype=int)
        np.add.at(counts, (labels[counted], found[counted]), 1)
        self.summary.say(f"{text} A click selects the cells.")
        self.pages.setVisible(len(names) > 0)
        table = pd.DataFrame(counts, columns=range(1, len(names) + 1)).astype(object)
        table = table.where(counts > 0, "")
        table.insert(0, 0, names)
        self.view.set_table(table, [("", ""), *((name, name) for name in names)], [0])

    def _on_click(self, index: QModelIndex) -> None:
        """Select the cells of a field of the confused classes, or show the evidence on a cell."""
        row, column = index.row(), index.column()
        if self.source is None and column > 0:
            _, classes, labels, found = confusion(self._session)
            how = f"label {classes[row]}, predicted {classes[column - 1]}"
            rows = np.flatnonzero((labels == row) & (found == column - 1))
            self._session.select(rows, how=how)
        elif self.source is not None and len(self.view.selectionModel().selectedRows()) == 1:
            self.turn()

    def _keep_order(self) -> None:
        """Keep the order of a list, worst first, until the user sorts it."""
        self.view.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.DescendingOrder)

    def _on_selection(self) -> None:
        """Offer the proposed label for the selected cells."""
        can = self._session.editable is not None and bool(self._session.state.selected.any())
        self.label_button.setText(f"Change to {self._proposed or '…'}")
        for one in (self.label_button, self.right_button):
            one.setEnabled(can)
        n, place = len(self.model.table), self._current + 1
        n_decided = self.model.table.attrs.get("n_decided", 0)
        text = f"{place:,} of {n:,}" if place else f"{n:,}"
        self.place_button.setText(text + f" ✓{n_decided:,}" * bool(n_decided))
        tip = f"{n_decided:,} decided. Show the list, or the evidence on the selected cell"
        self.place_button.setToolTip(tip)
        self.place_button.setVisible(self.source is not None and n > 0)

    def _on_row(self) -> None:
        chosen = [index.row() for index in self.view.selectionModel().selectedRows()]
        if chosen and self.source is not None:
            self._session.select(self.model.table.index[chosen].to_numpy(), zoom=True)


def verdict(session: Session) -> tuple[str, str]:
    """Return sentences on the result of a cross-validation, and its warnings."""
    adata, check = session.adata, session.state.check
    if check is None or adata is None:
        return "", ""
    doubts = " ".join(map(sentence, check.warnings))
    try:
        of_images = StoredCrossValidation.read(adata, by_image(session.state.key))
        is_grouped = check.params.get("group_key") is not None
        if of_images is not None and (is_grouped or of_images.label_key != check.label_key):
            of_images = None
        found = " ".join(_sentences(check, of_images, session.rule))
        if of_images is not None:
            # Leave out the warning that the error on new images is likely to be larger.
            answered = f"group_key={of_images.params['group_key']!r}"
            left = [text for text in check.warnings if answered not in text]
            doubts = " ".join(map(sentence, left))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # An `InputError` names the damaged entry of uns; all others come from its values.
        named = isinstance(error, InputError)
        text = sentence(error) if named else f"The stored check is damaged: {error!r}."
        return "", f"{text} Press Check labels to make it again."
    return found, doubts


def _sentences(
    check: StoredCrossValidation, of_images: StoredCrossValidation | None, rule: tuple[str, str]
) -> Iterator[str]:
    """Yield sentences on the result, and on that with whole images held out, if there is one."""
    quality, name = check.quality, f"{check.label_key}: held-out cells {ERRORS[rule[0]]}"
    if of_images is None:
        yield f"{name}: {_error(check, rule)}."
    else:
        yield (
            f"{name}, on images that the networks have seen: {_error(check, rule)}; on images that "
            f"they have not seen: {_error(of_images, rule)}. Quote the second for new images."
        )
    if quality["n_unjudged"]:
        yield sentence(unjudged_words(quality))
    text = f"Error of always predicting the largest class: {_percent(quality[f'{LARGEST}_error'])}"
    if np.isfinite(quality["input_knn_error"]):
        error = _percent(quality["input_knn_error"])
        text += f"; of the nearest five cells by all features: {error}"
    yield f"{text}."
    if check.permutation is not None:
        words = permutation_words(check.permutation).replace("\n", ", ")
        yield f"Probability of the own class against shuffled labels: {words}."


def _error(check: StoredCrossValidation, rule: tuple[str, str]) -> str:
    """Return the error by a rule with its interval and the number of folds; see `Session.rule`."""
    error = f"{rule[0]}_error"
    words = [range_words(check.quality, error).replace(" ", "\u00a0"), fold_words(check)]
    words += [group_words(check.quality, check.params), f"n = {int(check.quality['n']):,}"]
    words = [text.replace("n = ", "n\u00a0=\u00a0") for text in words if text]
    return f"{_percent(check.quality[error])} ({', '.join(words)})"


def _percent(share: float) -> str:
    # A no-break space keeps the number and its sign on one line.
    return f"{100 * share:.1f}\u00a0%"
