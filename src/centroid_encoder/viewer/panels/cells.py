"""The card of the selected cells, the tabs of the images, and the colours."""

from __future__ import annotations

from functools import partial

import numpy as np
from napari.components import ViewerModel
from numpy.typing import NDArray
from qtpy.QtCore import QModelIndex, Qt
from qtpy.QtWidgets import QTabBar, QWidget
from superqt.utils import signals_blocked

from centroid_encoder.viewer.data.columns import name_of
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.panels.colors import ColorRow
from centroid_encoder.viewer.panels.effects import EffectsPanel
from centroid_encoder.viewer.panels.fields import button, column, side_by_side
from centroid_encoder.viewer.panels.label_menu import LabelMenu
from centroid_encoder.viewer.panels.map import describe
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.strip import Caption, Strip
from centroid_encoder.viewer.panels.tissue import Tissue
from centroid_encoder.viewer.panels.why import WhyPanel
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import CONTENT, State

N_PICTURES = 4


class CellsPanel(QWidget):
    """The card of the selection; `tissue` shows it in the layers of the cells.

    The parent lays out `colors`, the controls of the colours, and `images`, the images of the
    table.
    """

    def __init__(self, session: Session, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self.tissue = Tissue(session, viewer, self)
        self.colors = ColorRow(session)
        self.color_box, self.gate = self.colors.box, self.colors.gate
        # The user may choose the same colours again, after deleting their layer.
        self.color_box.activated.connect(self.tissue.paint)
        self.images = ImageTabs(session, self.tissue)
        self.selection_text, self.unseen_text = Message(wraps=False), Message()
        tip = "Move the camera to the selected cells"
        self.show_button = button("Zoom to", tip, partial(self.tissue.zoom, steady=False))
        tip = "Give the selected cells a label, in a copy of the column; the original stays"
        self.label_button = button("Label as", tip, LabelMenu(session, self))
        self.why = WhyPanel(session, viewer)
        self.some = Strip(session, viewer, N_PICTURES)
        """Pictures of a few of the selected cells."""
        self.some.hide()
        self.some.clicked.connect(self._on_picture)
        self.effects = EffectsPanel(session, self.show_column)
        cells = side_by_side((self.selection_text, 1), self.label_button, self.show_button)
        seen = side_by_side((self.effects.view, 5), (self.some, 4))
        column(self, cells, self.unseen_text, self.why, self.effects, seen)
        session.show_in(self.show_state)

    def show_state(self, before: State, now: State) -> None:
        """Describe the selected cells, and offer what can be done with them."""
        if now.mode != "Explore" or not now.differs(before, "links", "group", "mode", *CONTENT):
            return
        rows = np.flatnonzero(now.selected)
        self.selection_text.say(self._composition(rows))
        self._show_pictures(rows)
        unseen = self._session.catalog.unseen(rows)
        self.unseen_text.say(unseen)
        self.show_button.setVisible(len(rows) > 0 and not unseen)
        self.label_button.setVisible(len(rows) > 0 and self._session.editable is not None)

    def show_column(self, name: str) -> None:
        """Colour the cells by a column of ``obs`` or a variable."""
        self.color_box.choose(("", name))

    def _show_pictures(self, rows: NDArray[np.intp]) -> None:
        """Show pictures of a few of several cells, at random."""
        session = self._session
        joined = [join.joined[rows] for join in session.catalog.joins.values()]
        rows = rows[np.logical_or.reduce(joined)] if joined and len(rows) > 1 else rows[:0]
        rows = np.random.default_rng(0).permutation(rows)[:N_PICTURES]
        self.some.setVisible(len(rows) > 0 and self.some.has_images)
        if self.some.isHidden():
            return
        classes = [*map(str, session.class_colors), "no label"]
        colors = [*session.class_colors.values(), GREY]
        captions = [Caption(classes[i], colors[i], True) for i in session.shown_codes[rows]]
        tips = [" · ".join(describe(session, row, session.state.drawn)) for row in rows.tolist()]
        self.some.show_cells(rows.tolist(), captions, tips)

    def _on_picture(self, index: QModelIndex) -> None:
        """Select a cell whose picture was clicked, and show it in its image."""
        self._session.select(np.array([self.some.rows[index.row()]]), zoom=True)

    def _composition(self, rows: NDArray[np.intp]) -> str:
        """Describe the selected cells: one by what is known of it, several by their classes."""
        session = self._session
        if len(rows) == 0:
            return "No cell selected"
        if len(rows) == 1:
            return " · ".join(describe(session, int(rows[0]), session.state.drawn))
        names = [str(name) for name in session.class_colors]
        counts = np.bincount(session.shown_codes[rows] + 1, minlength=len(names) + 1)
        order = np.argsort(-counts[1:], kind="stable")
        parts = [f"{counts[i + 1]:,} {names[i]}" for i in order if counts[i + 1]]
        parts += [f"{counts[0]:,} without a label"] * bool(counts[0] and names)
        return f"{len(rows):,} cells selected" + (f": {', '.join(parts)}" if parts else "")


class ImageTabs(QTabBar):
    """A tab for each image of the table, with the number of selected cells in it."""

    def __init__(self, session: Session, tissue: Tissue) -> None:
        super().__init__()
        self._session, self._tissue = session, tissue
        self.setAccessibleName("Images")
        self.setExpanding(False)
        # Otherwise long names would move the tabs of other images out of sight.
        self.setElideMode(Qt.TextElideMode.ElideMiddle)
        self.setDrawBase(False)
        self.currentChanged.connect(self._on_chosen)
        self.hide()
        session.show_in(self.show_state)

    def show_state(self, before: State, now: State) -> None:
        """Show other images, other numbers of cells, and which image is shown."""
        if not now.differs(before, "cells", "links", "tables", "columns", "group", "looks"):
            return
        catalog, adata = self._session.catalog, now.adata
        images = [image for image in catalog.images() if image.value is not None]
        self.setVisible(bool(images))
        name = catalog.image_column
        if not images or adata is None or name is None or len(now.selected) != adata.n_obs:
            with signals_blocked(self):
                while self.count():  # A tab would keep a table that was closed.
                    self.removeTab(0)
            return
        counts = adata.obs[name][now.selected].map(name_of).value_counts()
        shown = []
        with signals_blocked(self):
            while self.count() <= len(images):
                self.addTab("all")
            while self.count() > len(images) + 1:
                self.removeTab(self.count() - 1)
            for i, image in enumerate(images, start=1):
                self.setTabData(i, image)
                n, is_open = int(counts.get(image.name, 0)), image.link is not None
                self.setTabText(i, f"{image.name}: {n:,}" if n else image.name)
                self.setTabEnabled(i, is_open)
                of_all = f"{image.name}: {image.n_cells:,} cells, {n:,} of them selected"
                self.setTabToolTip(i, of_all if is_open else f"{of_all}; not open")
                if image.link is not None and image.link.layer.visible:
                    shown.append(i)
            self.setCurrentIndex(shown[0] if len(shown) == 1 else 0)

    def _on_chosen(self, place: int) -> None:
        self._tissue.show_image(self.tabData(place))
