"""Suggested cells, labelled one by one, and the predictions of the live map for all others."""

from __future__ import annotations

import numpy as np
from magicgui.widgets import FloatSpinBox
from napari.components import ViewerModel
from qtpy.QtWidgets import QLabel, QWidget

from centroid_encoder.tables import obs_key
from centroid_encoder.viewer.latest import Latest
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.panels.fields import button, column, side_by_side
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.strip import N_THUMBNAILS, Caption, Strip
from centroid_encoder.viewer.session.draft import DRAFT_KEY
from centroid_encoder.viewer.session.labeling import Codes
from centroid_encoder.viewer.session.queue import (
    MIN_CONFIDENCE,
    Queue,
    Suggestion,
    apply_to_all,
    suggestions,
    weak_classes,
)
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State

SEARCHING = "Looking for cells whose labels help most …"
NONE_LEFT = "There is no other cell to suggest."


class QueuePanel(QWidget):
    """The queue of a labelling; its present cell is selected and shown in the image.

    `queue` is the queue, and `current` the present cell. `strip` shows the next cells if there are
    images; the parent lays out `suggest_button`. Without a live map, cells are compared by the
    features of `form`.
    """

    def __init__(self, session: Session, form: TrainingForm, viewer: ViewerModel) -> None:
        super().__init__()
        self._session, self._form = session, form
        self.queue = Queue()
        self._row = -1
        """Row of the cell that was shown last; −1 for none."""
        self._searching = Latest(self)
        tip = "Show the cells whose labels would improve the live map most, one after the other"
        self.suggest_button = button("Suggest", tip, self.suggest)
        self.strip = Strip(session, viewer)
        self.text = Message(wraps=False)
        tip = (
            "Write a column with your labels and, for all other cells, the predictions of the live "
            "map. A column that this button wrote before is replaced"
        )
        self.apply_button = button("Apply to all", tip, self.apply)
        tip = "Cells with a confidence below this value become unassigned"
        self.confidence_box = FloatSpinBox(value=MIN_CONFIDENCE, max=1, step=0.05, tooltip=tip)
        self.confidence_box.native.setAccessibleName("Least confidence")
        least = QLabel("from confidence"), self.confidence_box.native
        row = side_by_side(self.apply_button, *least)
        row.addStretch()
        column(self, self.text, self.strip, row)
        self.strip.clicked.connect(lambda index: self.go_to(index.row()))
        session.show_in(self.show_state)

    @property
    def is_searching(self) -> bool:
        """Whether a thread looks for cells."""
        return self._searching.is_due

    @property
    def _codes(self) -> Codes:
        labeling = self._session.state.labeling
        return np.empty(0, dtype=np.intp) if labeling is None else labeling.codes

    @property
    def current(self) -> Suggestion | None:
        """The present cell; None at the end."""
        return next(iter(self.queue.open(self._codes)), None)

    @property
    def _colors(self) -> dict[str, str]:
        """Colours of the classes by name; the class of a proposal may have been renamed."""
        labeling = self._session.state.labeling
        return {} if labeling is None else {one.name: one.color for one in labeling.classes}

    def suggest(self) -> None:
        """Look for cells to label, and show the one that comes first."""
        self._search()
        self._look()

    def accept(self) -> None:
        """Give the cell the proposed label; show it first if another one is selected."""
        current, selected = self.current, np.flatnonzero(self._session.state.selected)
        if current is None or selected.tolist() != [current.row]:
            self._look()
        elif (name := current.label) in self._colors:
            self._session.change_labels(lambda labels: labels.assign([current.row], name))

    def skip(self) -> None:
        """Go on to the next cell."""
        if (current := self.current) is not None:
            self.queue = self.queue.skip(current.row)
            self._follow()

    def go_to(self, place: int) -> None:
        """Show another cell of the strip."""
        self.queue = self.queue.begin_with(self.queue.open(self._codes)[place], self._codes)
        self._follow()

    def apply(self) -> None:
        """Write the labels of the live map into a column; first say which classes are doubtful."""
        warning = weak_classes(self._session)
        if warning and warning != self._session.state.message[0]:
            self._session.say(warning, "warning")
            return
        try:
            column, text = apply_to_all(self._session, self.confidence_box.value)
        except ValueError as error:
            self._session.say(error, "error")
        else:
            self._session.say(text)
            self._session.set(coloring=("", column))

    def show_state(self, before: State, now: State) -> None:
        """Follow the labels, and look for other cells with another live map."""
        if now.differs(before, "labeling"):
            self._searching.drop()
            self.queue, self._row = Queue(), -1
            self.text.say("")
        if now.labeling is None or not now.labeling.is_there:
            return
        if now.differs(before, "draft") and now.draft is not None and self.queue.cells:
            self._search()
        if now.differs(before, "labels", "draft"):
            self._follow()
        elif now.differs(before, "tables"):
            self._show()

    def _follow(self) -> None:
        """Go on when the cell was labelled or skipped, and back when that was undone."""
        row = -1 if self.current is None else self.current.row
        if row != self._row:
            self._row = row
            self._search() if row < 0 else self._look()
        self._show()

    def _look(self) -> None:
        """Select the present cell, and show it in its image."""
        if (current := self.current) is not None:
            self._session.select(np.array([current.row]), zoom=True)

    def _search(self) -> None:
        """Look for cells in a thread."""
        if self._session.state.labeling is not None:
            find = suggestions(self._session, self.queue.skipped, self._form.parameters())
            self._searching.request(find, self._on_found)
            self._show()

    def _on_found(self, found: list[Suggestion], error: Exception | None) -> None:
        if error is not None:
            self.text.say(error, "error")
        else:
            draft, proposals = self._session.state.draft, None
            if draft is not None:
                names = [obs_key(DRAFT_KEY, "label"), obs_key(DRAFT_KEY, "confidence")]
                proposals = draft.obs[names]
            self.queue = self.queue.renewed(found, self._codes, proposals)
            if found:
                self._follow()
        self._show()

    def _show(self) -> None:
        """Show where the queue is, and what can be done."""
        now, cells = self._session.state, self.queue.open(self._codes)[:N_THUMBNAILS]
        if now.labeling is None:
            return
        if cells:
            self.text.say(self.queue.text(self._codes))
        elif self.is_searching:
            self.text.say(SEARCHING)
        elif self.queue.cells and self.text.kind != "error":
            self.text.say(NONE_LEFT)
        self.setVisible(now.draft is not None or bool(self.text.text()))
        self.apply_button.setEnabled(now.draft is not None)
        is_joined = bool(self._session.catalog.joins)
        self.strip.setVisible(is_joined and self.strip.has_images and bool(cells))
        if not self.strip.isHidden():
            colors, names = self._colors, [cell.label or "?" for cell in cells]
            captions = [Caption(name, colors.get(name, GREY), is_given=False) for name in names]
            self.strip.show_cells([x.row for x in cells], captions, [x.text for x in cells], 0)
