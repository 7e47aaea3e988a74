"""The selected cells, the layers that show them, and what the colours of these stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.overlay import LayerLink
from centroid_encoder.viewer.panels.message import Lines
from centroid_encoder.viewer.session.session import Session

if TYPE_CHECKING:
    from napari.components import ViewerModel

NO_COLORS = "as it was"


class CellsPanel(QWidget):
    """The selected cells, and the layers of the session's links."""

    def __init__(
        self, session: Session, viewer: ViewerModel, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._viewer = viewer
        self._links: list[LayerLink] = []
        self._colored: colorings.Colors | None = None
        self._mode = NO_COLORS

        self.color_box = QComboBox()
        self.color_box.setToolTip("What the colours of the layer's cells stand for")
        self.color_text = Lines()
        self.selection_text = QLabel()
        self.show_button = QPushButton("Zoom to")
        self.show_button.setToolTip("Move the camera to the selected cells")
        self.clear_button = QPushButton("Clear")
        self.clear_button.setToolTip("Select no cells")
        coloring = QHBoxLayout()
        coloring.addWidget(QLabel("Colour layer by"))
        coloring.addWidget(self.color_box, stretch=1)
        selection = QHBoxLayout()
        selection.addWidget(self.selection_text, stretch=1)
        selection.addWidget(self.show_button)
        selection.addWidget(self.clear_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(coloring)
        layout.addWidget(self.color_text)
        layout.addLayout(selection)
        self.color_box.currentIndexChanged.connect(self._recolor)
        self.show_button.clicked.connect(self.zoom)
        self.clear_button.clicked.connect(self.clear)
        session.table_changed.connect(self.unlink)
        session.links_changed.connect(self.link)
        session.result_changed.connect(self._offer_colorings)
        session.check_changed.connect(self._offer_colorings)
        session.label_key_changed.connect(self._recolor)
        session.regions_changed.connect(self._recolor)
        session.colors_changed.connect(self._recolor)
        session.selection_changed.connect(self._on_selection)
        session.zoom_requested.connect(self.zoom)

    @property
    def linked(self) -> bool:
        """Whether there is a layer in which the cells are seen."""
        return bool(self._links)

    def unlink(self) -> None:
        """Leave the layers as they were."""
        self._colored = None
        for link in self._links:
            link.close()
        self._links = []

    def zoom(self) -> None:
        """Move the camera to the selected cells."""
        for link in self._links:
            link.show(np.flatnonzero(self._session.selected))

    def clear(self) -> None:
        """Select no cells."""
        self._session.select(np.empty(0, dtype=np.intp))

    def link(self) -> None:
        """Show the cells in the layers of the session's links."""
        self.unlink()
        self._links = [
            LayerLink(self._viewer, link.layer, join) for link, join in self._session.links.items()
        ]
        for link in self._links:
            link.picked.connect(self._on_picked)
        self._offer_colorings()
        self._on_selection()

    def _on_picked(self, rows: NDArray[np.intp]) -> None:
        self._session.select(rows)

    def _on_selection(self) -> None:
        chosen = np.flatnonzero(self._session.selected)
        for link in self._links:
            link.highlight(chosen)
        some = bool(len(chosen))
        unit = "cell" if len(chosen) == 1 else "cells"
        self.selection_text.setText(
            f"{len(chosen):,} {unit} selected" if some else "No cell selected"
        )
        self.clear_button.setEnabled(some)
        self.show_button.setEnabled(some and self.linked)

    def _offer_colorings(self) -> None:
        """Offer what the colours can stand for; keep what is chosen, where that is possible."""
        before, subject = self.color_box.currentText(), self._subject
        offered = [colorings.LABEL] if subject is None else colorings.offered(subject)
        modes = [NO_COLORS, *offered]
        with signals_blocked(self.color_box):
            self.color_box.clear()
            self.color_box.addItems(modes)
            self.color_box.setCurrentText(before if before in modes else NO_COLORS)
        self.color_box.setEnabled(self.linked)
        self._recolor()

    def _recolor(self) -> None:
        """Give the layers the colours that are chosen; if they cannot be had, their own."""
        if self._session.reread():
            return
        colors, mode, subject = None, self.color_box.currentText(), self._subject
        try:
            if self._links and mode != NO_COLORS and subject is not None and subject.label_key:
                colors = colorings.color_cells(mode, subject)
        except KeyError as error:
            self._session.failed.emit(error)
        if colors is None:
            for link in self._links:
                link.uncolor()
        elif mode != self._mode or not colors.looks_like(self._colored):
            for link in self._links:
                link.color(mode, colors.codes, colors.colors)
        self._mode, self._colored = mode, colors
        self.color_text.setText("" if colors is None else colors.meaning)
        self.color_text.setVisible(bool(self.color_text.text()))

    @property
    def _subject(self) -> colorings.Subject | None:
        """The cells of the table that is chosen."""
        session = self._session
        if session.adata is None:
            return None
        return colorings.Subject(
            session.adata, session.label_key, session.result, session.misplaced_by, session.key
        )
