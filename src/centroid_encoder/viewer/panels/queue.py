"""Suggested cells, labelled one by one, and the predictions of the live map for all others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from anndata import AnnData
from napari.components import ViewerModel
from qtpy.QtCore import QModelIndex
from qtpy.QtWidgets import QDoubleSpinBox, QLabel, QWidget

from centroid_encoder.tables import obs_key
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.panels.fields import button, column, side_by_side
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.keys import Keys
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.strip import N_THUMBNAILS, Caption, Strip
from centroid_encoder.viewer.session.draft import DRAFT_KEY
from centroid_encoder.viewer.session.labeling import Codes, Labeling
from centroid_encoder.viewer.session.queue import (
    MIN_CONFIDENCE,
    Queue,
    Suggestion,
    apply_to_all,
    suggestions,
    weak_classes,
)
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.task import Task

SEARCHING = "Looking for cells whose labels help most …"
NONE_LEFT = "There is no other cell to suggest."


class QueuePanel(QWidget):
    """The queue of a labelling; its present cell is selected and shown in the image.

    `applied` is called with the column that the predictions were written to.

    `strip` shows a page of the queue if there are images; the parent lays out `suggest_button`.
    Without a live map, cells are compared by the features of `form`.
    """

    def __init__(
        self,
        session: Session,
        form: TrainingForm,
        viewer: ViewerModel,
        keys: Keys,
        applied: Callable[[str], object],
    ) -> None:
        super().__init__()
        self._session = session
        self._form = form
        self._applied = applied
        self.queue = Queue()
        self._labeling: Labeling | None = None
        self._draft: AnnData | None = None
        self._task: Task | None = None
        """The search that runs."""
        self._warned = ""
        """The doubts that the user has read."""
        self._again = False
        """Whether to search once more after it."""
        tip = "Show the cells whose labels would improve the live map most, one after the other"
        self.suggest_button = button("Suggest", tip, self.suggest)
        self.strip = Strip(session, viewer)
        tip = "Give all unlabelled cells of the strip their proposed labels, in one step"
        self.agree_button = button("Agree to all", tip, self.agree)
        self.text = Message()
        tip = (
            "Write a column with your labels and, for all other cells, the predictions of the live "
            "map. A column that this button wrote before is replaced"
        )
        self.apply_button = button("Apply to all", tip, self.apply)
        self.confidence_box = QDoubleSpinBox()
        self.confidence_box.setRange(0, 1)
        self.confidence_box.setSingleStep(0.05)
        self.confidence_box.setValue(MIN_CONFIDENCE)
        tip = "Cells with a confidence below this value become unassigned"
        self.confidence_box.setToolTip(tip)
        self.confidence_box.setAccessibleName("Least confidence")
        least = QLabel("from confidence"), self.confidence_box
        applying = self.agree_button, self.apply_button, *least
        column(self, self.strip, self.text, side_by_side(*applying))
        keys.acts |= {"accept": self.accept, "skip": self.skip, "back": self.back}
        self.strip.clicked.connect(self._on_picture)
        session.shown_changed.connect(self._on_shown)
        session.catalog.listed.connect(self._show)

    @property
    def is_searching(self) -> bool:
        """Whether a thread looks for cells."""
        return self._task is not None

    @property
    def _codes(self) -> Codes:
        labeling = self._session.labeling
        return np.empty(0, dtype=np.intp) if labeling is None else labeling.codes

    @property
    def _colors(self) -> dict[str, str]:
        """Colours of the classes by name; the class of a proposal may have been renamed."""
        labeling = self._session.labeling
        return {} if labeling is None else {one.name: one.color for one in labeling.classes}

    def suggest(self) -> None:
        """Look for cells to label, and show the one that comes first."""
        self._search()
        if self.queue.current is not None:
            self._look()

    def accept(self) -> None:
        """Give the cell the proposed label; show it first if another one is selected."""
        current = self.queue.current
        if current is None or not self._looks():
            self._look()
        elif current.label in self._colors:
            self._session.change_labels(lambda labels: labels.assign([current.row], current.label))

    def skip(self) -> None:
        """Go on to the next cell."""
        if self.queue.current is not None:
            self.queue.skip(self._codes)
            self._on_moved()

    def back(self) -> None:
        """Go back to the last cell, and take its label back."""
        row = self.queue.back()
        if row is None:
            return
        if self._codes[row] >= 0:
            place = self.queue.place
            self._session.change_labels(lambda labels: labels.assign([row], None))
            # The change of the label may have moved the queue to an earlier cell.
            self.queue.place = place
        self._on_moved()

    def agree(self) -> None:
        """Label all open cells of the strip as proposed."""
        agreed = [self.queue.cells[place] for place in self._proposed]
        if agreed:
            rows, names = zip(*((cell.row, cell.label) for cell in agreed), strict=True)
            self._session.change_labels(lambda labels: labels.assign(rows, names))

    def go_to(self, place: int) -> None:
        """Show another cell of the strip."""
        self.queue.place = place
        self._look()
        self._show()

    def _on_picture(self, index: QModelIndex) -> None:
        self.go_to(self._page[index.row()])

    def apply(self) -> None:
        """Write the labels of the live map into a column; first say which classes are doubtful."""
        warning = weak_classes(self._session)
        if warning and warning != self._warned:
            self._warned = warning
            self._session.say(warning, "warning")
            return
        try:
            column, text = apply_to_all(self._session, self.confidence_box.value())
        except ValueError as error:
            self._session.say(error, "error")
        else:
            self._session.say(text)
            self._applied(column)

    def _on_shown(self) -> None:
        """Follow the labels, and make the rest of the queue again with another live map."""
        labeling, draft = self._session.labeling, self._session.draft
        if labeling is not self._labeling:
            # Drop the queue of another labelling.
            if self._task is not None:
                self._task.cancel()
            self.queue, self._task, self._again = Queue(), None, False
            self.text.say("")
        is_new, self._labeling, self._draft = draft is not self._draft, labeling, draft
        if labeling is None or not labeling.is_there:
            return
        if is_new and draft is not None and self.queue.cells:
            self.queue.propose(draft.obs[obs_key(DRAFT_KEY, "label")])
            self._search()
        # Go on when the cell was labelled, and back when that was undone.
        before = self.queue.place
        self.queue.follow(self._codes)
        if self.queue.place != before:
            self._on_moved()
        else:
            self._show()

    def _on_moved(self) -> None:
        if self.queue.current is None:
            self._search()
        else:
            self._look()
        self._show()

    def _look(self) -> None:
        """Select the cell of the queue, and show it in its image."""
        if (current := self.queue.current) is not None:
            self._session.select(np.array([current.row]), zoom=True)

    def _looks(self) -> bool:
        """Whether the cell of the queue alone is selected."""
        current, selected = self.queue.current, np.flatnonzero(self._session.selected)
        return current is not None and selected.tolist() == [current.row]

    def _search(self) -> None:
        """Look for cells in a thread."""
        self._again = self.is_searching
        if self.is_searching or self._session.labeling is None:
            return
        queue, parameters = self.queue, self._form.parameters()
        find = suggestions(self._session, queue.skipped, parameters, queue.cells)
        self._task = Task(lambda _: find(), self._on_found, self)
        self._show()

    def _on_found(self, found: list[Suggestion], error: Exception | None) -> None:
        self._task = None
        had_cell = self.queue.current is not None
        if error is not None:
            self._again = False
            self.text.say(error, "error")
        else:
            # Keep the cells that the user sees.
            keep = self._page.stop if self._has_strip else self.queue.place + had_cell
            self.queue.renew(found, keep)
            self.queue.follow(self._codes)
        self._show()
        if not had_cell and self.queue.current is not None:
            self._look()
        if self._again:
            self._search()

    @property
    def _page(self) -> range:
        return self.queue.page(N_THUMBNAILS)

    @property
    def _has_strip(self) -> bool:
        is_joined = bool(self._session.catalog.joins)
        return is_joined and self.strip.has_images and self.queue.current is not None

    @property
    def _proposed(self) -> list[int]:
        """Places in the page of cells without a label whose proposal is a class."""
        queue, codes, colors = self.queue, self._codes, self._colors
        return [x for x in self._page if queue.is_open(x, codes) and queue.cells[x].label in colors]

    def _show_strip(self, colors: dict[str, str]) -> None:
        """Show the page of the queue, with the labels of now or the proposals."""
        queue, codes, names = self.queue, self._codes, list(colors)
        cells, captions = [queue.cells[place] for place in self._page], []
        for cell in cells:
            code, name = codes[cell.row], cell.label or "?"
            if is_given := bool(code >= 0):
                name = names[code]
            text = "skipped" if cell.row in queue.skipped and not is_given else name
            captions.append(Caption(text, colors.get(text, GREY), is_given))
        rows, tips = [cell.row for cell in cells], [cell.text for cell in cells]
        self.strip.show_cells(rows, captions, tips, queue.place - self._page.start)

    def _show(self) -> None:
        """Show where the queue is, and what can be done."""
        session, queue, colors = self._session, self.queue, self._colors
        if session.labeling is None:
            return
        current = queue.current
        if current is not None:
            self.text.say(queue.text)
        elif self.is_searching:
            self.text.say(SEARCHING)
        elif queue.cells and self.text.kind != "error":
            self.text.say(NONE_LEFT)
        self.setVisible(session.draft is not None or bool(self.text.text()))
        self.apply_button.setEnabled(session.draft is not None)
        has_strip = self._has_strip
        self.strip.setVisible(has_strip)
        self.agree_button.setVisible(has_strip)
        if has_strip:
            self._show_strip(colors)
            self.agree_button.setEnabled(bool(self._proposed))
