"""Which cells are selected, what the layer's colours stand for, and the link that shows both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.overlay import LayerLink
from centroid_encoder.viewer.panels.message import Lines

if TYPE_CHECKING:
    from anndata import AnnData
    from napari.components import ViewerModel
    from napari.layers import Labels, Points

    from centroid_encoder.tl._stored import Regions, Result
    from centroid_encoder.viewer.data.join import Join

NO_COLORS = "as it was"


class CellsPanel(QWidget):
    """The selected cells and the layer that they are seen in.

    Attributes
    ----------
    selected
        (n_obs,) mask of the selected cells.
    linked
        Whether there is a layer.
    """

    mode_changed = Signal()
    """The user chose what the colours stand for; `recolor` shows it."""
    clear_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.selected: NDArray[np.bool_] = np.empty(0, dtype=bool)
        self._link: LayerLink | None = None
        self._colored: colorings.Coloring | None = None

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
        self.color_box.currentIndexChanged.connect(lambda _: self.mode_changed.emit())
        self.show_button.clicked.connect(self.zoom)
        self.clear_button.clicked.connect(self.clear_requested)

    # -- the layer -------------------------------------------------------------------------------

    @property
    def linked(self) -> bool:
        """Whether there is a layer in which the cells are seen."""
        return self._link is not None

    def link(
        self,
        viewer: ViewerModel,
        layer: Labels | Points,
        join: Join,
        picked: Callable[[NDArray[np.intp]], None],
    ) -> None:
        """Show the cells in a layer; `picked` is called with those that are picked there."""
        self.unlink()
        self._link = LayerLink(viewer, layer, join, picked)

    def unlink(self) -> None:
        """Leave the layer as it was."""
        self._colored = None
        if self._link is not None:
            self._link.close()
            self._link = None

    # -- selection -------------------------------------------------------------------------------

    def select(self, rows: NDArray[np.intp], mode: str, n_obs: int) -> None:
        """Select cells.

        Parameters
        ----------
        rows
            Which.
        mode
            ``"replace"``, ``"add"`` or ``"remove"``.
        n_obs
            Number of cells there are.
        """
        if mode == "replace" or len(self.selected) != n_obs:
            self.selected = np.zeros(n_obs, dtype=bool)
        self.selected[rows] = mode != "remove"
        chosen = np.flatnonzero(self.selected)
        if self._link is not None:
            self._link.highlight(chosen)
        some = bool(len(chosen))
        unit = "cell" if len(chosen) == 1 else "cells"
        self.selection_text.setText(
            f"{len(chosen):,} {unit} selected" if some else "No cell selected"
        )
        self.clear_button.setEnabled(some)
        self.show_button.setEnabled(some and self.linked)

    def zoom(self) -> None:
        """Move the camera to the selected cells."""
        if self._link is not None:
            self._link.show(np.flatnonzero(self.selected))

    # -- colours ---------------------------------------------------------------------------------

    def offer_colorings(self, modes: list[str]) -> None:
        """Offer what the colours can stand for besides the layer's own; keep what is chosen."""
        before = self.color_box.currentText()
        modes = [NO_COLORS, *modes]
        blocked = self.color_box.blockSignals(True)
        self.color_box.clear()
        self.color_box.addItems(modes)
        self.color_box.setCurrentText(before if before in modes else NO_COLORS)
        self.color_box.blockSignals(blocked)
        self.color_box.setEnabled(self.linked)

    def recolor(
        self,
        adata: AnnData | None,
        label_key: str | None,
        result: Result | None,
        regions: Regions,
        key: str,
    ) -> None:
        """Give the layer the colours that are chosen; if they cannot be had, its own.

        Raises
        ------
        KeyError
            If what they stand for has been deleted.
        """
        mode = self.color_box.currentText()
        meaning = ""
        try:
            if self._link is None:
                return
            if mode == NO_COLORS or adata is None or label_key is None:
                self._uncolor(self._link)
                return
            try:
                chosen = colorings.coloring(mode, adata, label_key, result, regions, key)
                if not chosen.looks_like(self._colored):
                    self._link.color(chosen.name, chosen.codes, chosen.colors)
                self._colored, meaning = chosen, chosen.meaning
            except Exception:  # Raised again: the layer must not keep half a colouring.
                self._uncolor(self._link)
                raise
        finally:
            self.color_text.setText(meaning)
            self.color_text.setVisible(bool(meaning))

    def _uncolor(self, link: LayerLink) -> None:
        self._colored = None
        link.uncolor()
