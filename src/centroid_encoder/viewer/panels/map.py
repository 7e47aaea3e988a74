"""The map of a result, or of a training that runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QComboBox, QDialog, QLabel, QPushButton, QStackedWidget, QWidget
from superqt.utils import signals_blocked

from centroid_encoder.core.quality import class_centers
from centroid_encoder.pl._axes import panel_title
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.pl._regions import (
    center_regions,
    class_regions,
    panel_limits,
    plane_centers,
    plane_points,
)
from centroid_encoder.tl._result import QUERY, Regions, Result
from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.map.figure import Panel, Scene
from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.session.description import describe
from centroid_encoder.viewer.session.session import Session

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.core.reports import Frame
    from centroid_encoder.tl._centroid_encoder import Training

PANELS = {"both": ("train", "test"), "training": ("train",), "held-out": ("test",)}
REGIONS: dict[str, Regions | None] = {
    "Voronoi cells": "voronoi",
    "no regions": None,
    "decoder regions": "decoder",
}
"""The last one is for maps with a decoder."""


class MapPanel(QWidget):
    """Training and held-out cells over the regions of their classes.

    It is a part of the widget, or, after `pop_out`, a window of its own.
    """

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.canvas = MapCanvas()
        self.canvas.tools.addStretch()
        self.panels_box = self._add_box(
            "Cells of the map", PANELS, "Training cells, held-out cells, or both side by side"
        )
        self.panels_box.currentIndexChanged.connect(self._redraw)
        self.axes_box = self._add_box(
            "Components of the map", (), "The two components of the map that are drawn"
        )
        self.axes_box.currentIndexChanged.connect(self._redraw)
        self.axes_box.hide()
        self.regions_box = self._add_box(
            "Regions of the map",
            list(REGIONS)[:2],
            "Voronoi cells: places nearest to the center of a class. Decoder regions: places that "
            "the decoder of the model gives to a class",
        )
        self.regions_box.currentIndexChanged.connect(self._on_regions)
        self._empty = QLabel()
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setWordWrap(True)
        self._empty.setMargin(24)
        self._pages = QStackedWidget()
        self._pages.addWidget(self._empty)
        self._pages.addWidget(self.canvas)
        self._back = QPushButton("The map has a window of its own. Bring it back")
        self._back.clicked.connect(self.bring_back)
        self._back.hide()
        self._window: QDialog | None = None
        self.canvas.buttons["window"].clicked.connect(self._on_window)
        column(self, self._back, self._pages)
        self.class_names: list[str] = []
        """Classes that are drawn."""
        self._unfolds = False
        """Whether the map of a training that runs is drawn, in place of the session's."""
        self._limits: NDArray[np.floating] | None = None
        self._frame_colors: list[str] | None = None
        """Of the classes of that training, found once for all its frames."""
        self.canvas.selection_made.connect(session.select)
        self.canvas.cell_hovered.connect(self._on_hovered)
        session.result_changed.connect(self._on_result)
        session.regions_changed.connect(self._redraw)
        session.labels_changed.connect(self._redraw)
        session.hidden_changed.connect(self._on_hidden)
        session.framed.connect(self.show_frame)
        session.colors_changed.connect(self._on_colors)
        session.values_changed.connect(self._on_values)
        session.selection_changed.connect(self._on_selection)

    # -- its window ------------------------------------------------------------------------------

    def pop_out(self) -> None:
        """Show the map in a window of its own; closing that brings it back."""
        if self._window is None:
            self._window = QDialog(self, Qt.WindowType.Window)
            self._window.setWindowTitle("Centroid-Encoder: map")
            self._window.resize(900, 720)
            column(self._window, self._pages)
            self._window.finished.connect(self.bring_back)
            self._back.show()
            self._window.show()

    def bring_back(self) -> None:
        """Show the map here again."""
        window, self._window = self._window, None
        if window is not None:
            self._back.hide()
            layout = self.layout()
            assert layout is not None
            layout.addWidget(self._pages)
            self._pages.show()
            window.close()
            window.deleteLater()

    def _on_window(self) -> None:
        if self._window is None:
            self.pop_out()
        else:
            self.bring_back()

    # -- what is drawn ---------------------------------------------------------------------------

    def _add_box(self, name: str, items: Iterable[str], tip: str) -> QComboBox:
        box = QComboBox()
        box.setAccessibleName(name)
        box.addItems(list(items))
        box.setToolTip(tip)
        self.canvas.tools.addWidget(box)
        return box

    def show_frame(self, run: Training, frame: Frame, label_key: str) -> None:
        """Draw a live frame of a training."""
        if self._frame_colors is None:
            adata = self._session.adata
            there = adata is not None and label_key in adata.obs
            colors = label_colors(adata, label_key) if there else {}
            self._frame_colors = [colors.get(name, GREY) for name in run.classes]
        self._unfolds = True
        self.panels_box.setEnabled(True)
        self.class_names = [str(name) for name in run.classes]
        found, centers = frame
        embedding = self._plane(found)
        points = np.full((len(run.kept), 2), np.nan, dtype=np.float32)
        points[run.kept] = embedding
        codes, train, n_classes = run.codes[run.kept], run.train[run.kept], len(run.classes)
        if centers is None:
            centers = class_centers(found[train], codes[train], n_classes)
        places = self._plane(centers, centers=True)
        limits = self._steady(panel_limits(np.concatenate([embedding, places])))
        titles = {"train": "training cells", "test": "held-out cells"}
        masks = {"train": run.train, "test": run.held_out}
        unlabeled = run.kept & (run.codes < 0)
        panels = tuple(
            Panel(
                f"{titles[which]} (n = {masks[which].sum():,})",
                np.flatnonzero(masks[which] | unlabeled),
            )
            for which in self._which(bool(run.held_out.any()))
        )
        flat = self._session.regions is not None and found.shape[1] <= 2
        shapes = center_regions(centers, limits) if flat else []
        names = tuple(self.class_names)
        scene = Scene(points, run.codes, panels, shapes, limits, n_classes, names, places)
        self._show(scene, self._frame_colors)

    def _steady(self, limits: NDArray[np.floating]) -> NDArray[np.floating]:
        """Keep the axes still: they move only when cells leave them or huddle in the middle."""
        before = self._limits
        if before is not None:
            inside = (limits[0] >= before[0]).all() and (limits[1] <= before[1]).all()
            if inside and np.ptp(limits, axis=0).max() > 0.5 * np.ptp(before, axis=0).max():
                return before
            # Room for the frames to come.
            limits = limits.mean(axis=0) + 1.25 * (limits - limits.mean(axis=0))
        self._limits = limits
        return limits

    def _which(self, any_held_out: bool) -> tuple[str, ...]:
        return PANELS[self.panels_box.currentText()] if any_held_out else ("train",)

    def _on_result(self) -> None:
        """Show the session's map, or a text that says what to do next."""
        self._unfolds, self._limits, self._frame_colors = False, None, None
        result = self._session.result
        self._offer_decoder(result is not None and result.stored.has_decoder)
        if result is None:
            self.class_names = []
            self.canvas.map.clear()
            self._empty.setText(self._session.absence)
            self._pages.setCurrentWidget(self._empty)
        self._redraw()
        self._on_selection()

    def _offer_decoder(self, has_decoder: bool) -> None:
        """Offer decoder regions for a map with a decoder only."""
        *_, name = REGIONS
        index = self.regions_box.findText(name)
        if has_decoder and index < 0:
            self.regions_box.addItem(name)
        elif not has_decoder and index >= 0:
            if self.regions_box.currentIndex() == index:
                self.regions_box.setCurrentIndex(0)
            self.regions_box.removeItem(index)

    def _on_regions(self) -> None:
        self._session.choose_regions(REGIONS[self.regions_box.currentText()])

    def _on_colors(self) -> None:
        self._frame_colors = None
        if self._session.result is not None and not self._unfolds:
            self.canvas.map.set_colors(list(self._session.class_colors.values()))

    def _on_hidden(self) -> None:
        hidden = self._session.hidden
        shown = np.array([name not in hidden for name in self.class_names], dtype=bool)
        if len(shown) and not np.array_equal(shown, self.canvas.map.shown):
            self.canvas.map.set_shown(shown)

    def _on_selection(self) -> None:
        if self._session.result is not None and not self._unfolds:
            self.canvas.map.select(self._session.selected)

    def _on_values(self, values: tuple[NDArray[np.intp], list[str]] | None) -> None:
        if self._session.result is not None:
            self.canvas.map.set_values(values)

    def _on_hovered(self, row: int) -> None:
        self.canvas.show_tip(describe(self._session, row, predictions=not self._unfolds))

    def _redraw(self) -> None:
        adata, result = self._session.adata, self._session.result
        if adata is not None and result is not None and not self._unfolds:
            self._draw(adata, result)

    def _draw(self, adata: AnnData, result: Result) -> None:
        """Draw what is stored in an AnnData."""
        codes, n_classes = self._session.codes, len(self._session.classes)
        self.class_names = [str(name) for name in self._session.classes]
        split = result.split.to_numpy()
        points = self._plane(result.embedding)
        centers = self._plane(result.centers, centers=True)
        behind = self._behind(result)
        limits = panel_limits(np.concatenate([points[result.embedded], behind, centers]))
        # The map has no center of a class that was named by hand since.
        named = [points[result.embedded & (codes == i)] for i in range(len(centers), n_classes)]
        centers = np.vstack([centers, *(cells.mean(axis=0) for cells in named)])
        unlabeled = split == "unlabeled"
        self.panels_box.setEnabled(not result.is_query)
        shown = (QUERY,) if result.is_query else self._which(bool((split == "test").any()))
        also = f"\npale: reference cells (n = {len(behind):,})" if len(behind) else ""
        panels = tuple(
            Panel(
                panel_title(result, which, self._session.regions) + also,
                np.flatnonzero((split == which) | unlabeled),
            )
            for which in shown
        )
        shapes = class_regions(adata, result, self._session.regions, limits)
        names = tuple(self.class_names)
        scene = Scene(points, codes, panels, shapes, limits, n_classes, names, centers, behind)
        self._show(scene, list(self._session.class_colors.values()))

    def _behind(self, result: Result) -> NDArray[np.floating]:
        """Training cells, to be drawn behind new cells."""
        if not result.is_query:
            return np.empty((0, 2))
        others = result.embedded & (result.split != QUERY).to_numpy()
        if not others.any() and (reference := self._session.reference) is not None:
            result, others = reference, reference.embedded
        return self._plane(result.embedding[others])

    def _plane(
        self, points: NDArray[np.floating], *, centers: bool = False
    ) -> NDArray[np.floating]:
        """Two coordinates of points, or of centers, of any number of components."""
        n_components = points.shape[1]
        pairs = [(0, 1)] if n_components < 3 else list(combinations(range(n_components), 2))
        if self.axes_box.count() != len(pairs):
            with signals_blocked(self.axes_box):
                self.axes_box.clear()
                self.axes_box.addItems([f"components {i + 1}, {j + 1}" for i, j in pairs])
        # In space there are no regions.
        self.axes_box.setVisible(len(pairs) > 1)
        self.regions_box.setVisible(len(pairs) == 1)
        if n_components == 1:
            return plane_centers(points) if centers else plane_points(points)
        return points[:, pairs[self.axes_box.currentIndex()]]

    def _show(self, scene: Scene, colors: list[str]) -> None:
        self._pages.setCurrentWidget(self.canvas)
        self.canvas.map.show(scene, colors)
        self._on_hidden()
