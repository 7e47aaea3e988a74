"""A menu of the labels that the selected cells can be given."""

from __future__ import annotations

from functools import partial

from qtpy.QtWidgets import QInputDialog, QMenu, QWidget

from centroid_encoder.viewer.session.session import Session


class LabelMenu(QMenu):
    """Gives the selected cells a class, a new class, or no label."""

    def __init__(self, session: Session, parent: QWidget) -> None:
        super().__init__(parent)
        self._session = session
        self.aboutToShow.connect(self._offer)

    def _offer(self) -> None:
        self.clear()
        for name in self._session.new_labels:
            self.addAction(name, partial(self._session.label_selected, name))
        self.addAction("New class …", self._ask)
        self.addAction("No label", partial(self._session.label_selected, ""))

    def _ask(self) -> None:
        name, is_given = QInputDialog.getText(self, "New class", "Name of the class")
        if is_given and name.strip():
            self._session.label_selected(name)
