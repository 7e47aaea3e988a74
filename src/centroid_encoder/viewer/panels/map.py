"""The map of a result, or of a training that runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QComboBox, QLabel, QStackedLayout, QVBoxLayout, QWidget

from centroid_encoder.pl._axes import panel_title
from centroid_encoder.pl._regions import panel_limits, region_outlines
from centroid_encoder.tl._stored import QUERY, Regions, Result
from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.map.figure import Panel, Scene, live_outlines
from centroid_encoder.viewer.session.session import Session

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.core.regions import Region
    from centroid_encoder.core.training import Report
    from centroid_encoder.tl._centroid_encoder import Training

PANELS = {"both": ("train", "test"), "training": ("train",), "held-out": ("test",)}
REGIONS: dict[str, Regions | None] = {
    "Voronoi cells": "voronoi",
    "decoder regions": "decoder",
    "no regions": None,
}


class MapPanel(QWidget):
    """Training and held-out cells over the regions of their classes."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.canvas = MapCanvas()
        self.canvas.tools.addStretch()
        self.panels_box = self._add_box(
            PANELS, "Training cells, held-out cells, or both side by side"
        )
        self.panels_box.currentIndexChanged.connect(self._redraw)
        self.regions_box = self._add_box(
            REGIONS,
            "Voronoi cells: which class's center is nearest. Decoder regions: for which class the "
            "model itself decides",
        )
        self.regions_box.currentIndexChanged.connect(self._on_regions)
        self._empty = QLabel()
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setWordWrap(True)
        self._empty.setMargin(24)
        self._stack = QStackedLayout()
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self.canvas)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(self._stack)
        self.class_names: list[str] = []
        """Classes that are drawn."""
        self._unfolds = False
        """Whether the map of a training that runs is drawn, in place of the session's."""
        self._limits: NDArray[np.floating] | None = None
        self.canvas.selection_made.connect(session.select)
        self.canvas.cell_hovered.connect(self._on_hovered)
        session.result_changed.connect(self._on_result)
        session.regions_changed.connect(self._redraw)
        session.colors_changed.connect(self._on_colors)
        session.selection_changed.connect(self._on_selection)

    def _add_box(self, items: Iterable[str], tip: str) -> QComboBox:
        box = QComboBox()
        box.addItems(list(items))
        box.setToolTip(tip)
        self.canvas.tools.addWidget(box)
        return box

    def show_report(self, run: Training, report: Report, colors: list[str]) -> None:
        """Draw a frame of a training that runs, until the session has another result."""
        assert report.embedding is not None
        self._unfolds = True
        self.panels_box.setEnabled(True)
        self.class_names = [str(name) for name in run.classes]
        points = np.full((len(run.kept), 2), np.nan, dtype=np.float32)
        points[run.kept] = report.embedding
        limits = self._steady(panel_limits(report.embedding))
        names = {"train": "training cells", "test": "held-out cells"}
        masks = {"train": run.train, "test": run.held_out}
        unlabeled = run.kept & (run.codes < 0)
        panels = tuple(
            Panel(
                f"{names[which]} (n = {masks[which].sum():,})",
                np.flatnonzero(masks[which] | unlabeled),
            )
            for which in self._which(bool(run.held_out.any()))
        )
        outlines: list[Region] = []
        if self._session.regions is not None:
            kept, n_classes = run.kept, len(run.classes)
            embedding, codes, train = report.embedding, run.codes[kept], run.train[kept]
            outlines = live_outlines(embedding, codes, train, n_classes, limits)
        scene = Scene(points, run.codes, panels, outlines, limits, len(run.classes))
        self._show(scene, colors, detailed=False)

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
        self._unfolds, self._limits = False, None
        if self._session.result is None:
            self.class_names = []
            self.canvas.map.clear()
            self._empty.setText(self._session.absence)
            self._stack.setCurrentWidget(self._empty)
        self._redraw()
        self._on_selection()

    def _on_regions(self) -> None:
        self._session.choose_regions(REGIONS[self.regions_box.currentText()])

    def _on_colors(self) -> None:
        if self._session.result is not None and not self._unfolds:
            self.canvas.map.set_colors(list(self._session.class_colors.values()))

    def _on_selection(self) -> None:
        if self._session.result is not None and not self._unfolds:
            self.canvas.map.select(self._session.selected)

    def _on_hovered(self, row: int) -> None:
        self.canvas.show_tip(self._session.describe(row, predictions=not self._unfolds))

    def _redraw(self) -> None:
        adata, result = self._session.adata, self._session.result
        if adata is not None and result is not None and not self._unfolds:
            self._draw(adata, result)

    def _draw(self, adata: AnnData, result: Result) -> None:
        """Draw what is stored in an AnnData."""
        self.class_names = [str(name) for name in result.classes]
        split = result.split.to_numpy()
        limits = panel_limits(result.embedding[result.embedded])
        unlabeled = split == "unlabeled"
        self.panels_box.setEnabled(not result.is_query)
        shown = (QUERY,) if result.is_query else self._which(bool((split == "test").any()))
        panels = tuple(
            Panel(panel_title(result, which), np.flatnonzero((split == which) | unlabeled))
            for which in shown
        )
        outlines = region_outlines(adata, result, self._session.regions, limits)
        codes, n_classes = result.codes, len(result.classes)
        scene = Scene(result.embedding, codes, panels, outlines, limits, n_classes)
        self._show(scene, list(self._session.class_colors.values()), detailed=True)

    def _show(self, scene: Scene, colors: list[str], *, detailed: bool) -> None:
        self._stack.setCurrentWidget(self.canvas)
        self.canvas.map.set_detailed(detailed)
        self.canvas.map.show(scene, colors)
