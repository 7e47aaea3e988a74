"""Give the selected cells another label."""

from __future__ import annotations

from qtpy.QtWidgets import QLabel, QWidget

from centroid_encoder.viewer.panels.fields import Choice, button, side_by_side
from centroid_encoder.viewer.session.session import Session


class LabelRow(QWidget):
    """A box with the classes, or the name of a new one, and a button that labels the selection.

    The labels go into those that are given by hand now, or into a copy of the chosen column.
    """

    def __init__(self, session: Session, text: str) -> None:
        super().__init__()
        self._session = session
        self.label_box = Choice("New label", "A class, or the name of a new one")
        self.label_box.setEditable(True)
        self.label_box.setInsertPolicy(Choice.InsertPolicy.NoInsert)
        self.label_button = button(
            "Label",
            "Give the selected cells this label, in a new column; the original stays as it is",
            lambda: session.label_selected(self.label_box.currentText()),
        )
        self.setLayout(side_by_side(QLabel(text), (self.label_box, 1), self.label_button))
        session.shown_changed.connect(self._offer)
        session.selection_changed.connect(self._offer)
        self._offer()

    def _offer(self) -> None:
        """Offer labels; the text stays, unless the labels are those of another column."""
        session, box, labels = self._session, self.label_box, self._session.new_labels
        can = session.editable is not None and bool(session.selected.any())
        self.label_button.setEnabled(can)
        # While labelling by hand, the keys label the selection.
        self.setVisible(bool(session.selected.any()) and session.labeling is None)
        text, before = box.currentText(), {box.itemText(i) for i in range(box.count())}
        box.offer([(name, name) for name in labels], None)
        box.setCurrentText(text if before & set(labels) else "".join(labels[:1]))
