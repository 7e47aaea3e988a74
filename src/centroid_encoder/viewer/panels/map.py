"""The map of a result, or of a training that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox, QLabel, QStackedLayout, QVBoxLayout, QWidget

from centroid_encoder.pl._axes import panel_title
from centroid_encoder.pl._regions import panel_limits, region_outlines
from centroid_encoder.tl._stored import QUERY, Regions, Result
from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.map.figure import Panel, Scene, live_outlines

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.core.training import Report
    from centroid_encoder.tl._run import Run

PANELS = {"both": ("train", "test"), "training": ("train",), "held-out": ("test",)}
REGIONS: dict[str, Regions | None] = {
    "Voronoi cells": "voronoi",
    "decoder regions": "decoder",
    "no regions": None,
}


class MapPanel(QWidget):
    """Training and held-out cells over the regions of their classes."""

    regions_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.canvas = MapCanvas()
        self.panels_box = QComboBox()
        self.panels_box.addItems(list(PANELS))
        self.panels_box.setToolTip("Training cells, held-out cells, or both side by side")
        self.panels_box.currentIndexChanged.connect(self._redraw)
        self.regions_box = QComboBox()
        self.regions_box.addItems(list(REGIONS))
        self.regions_box.setToolTip(
            "Voronoi cells: which class's center is nearest. Decoder regions: for which class the "
            "model itself decides"
        )
        self.regions_box.currentIndexChanged.connect(self._on_regions)
        self.canvas.tools.addStretch()
        self.canvas.tools.addWidget(self.panels_box)
        self.canvas.tools.addWidget(self.regions_box)
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
        self._shown: tuple[AnnData, Result] | None = None
        self._colors: list[str] = []
        self._limits: NDArray[np.floating] | None = None

    @property
    def drawn_regions(self) -> Regions | None:
        """Kind of regions that are drawn."""
        return REGIONS[self.regions_box.currentText()]

    @property
    def regions(self) -> Regions:
        """Kind of regions that tell which cells are misplaced."""
        return self.drawn_regions or "decoder"

    def clear(self, text: str) -> None:
        """Show no map but a text that says what to do next."""
        self._shown = self._limits = None
        self.class_names = []
        self.canvas.map.clear()
        self._empty.setText(text)
        self._stack.setCurrentWidget(self._empty)

    def set_colors(self, colors: list[str]) -> None:
        """Colour the classes."""
        self._colors = colors
        self.canvas.map.set_colors(colors)

    def show_result(self, adata: AnnData, result: Result, colors: list[str]) -> None:
        """Draw what is stored in an AnnData."""
        self._shown, self._colors, self._limits = (adata, result), colors, None
        self.class_names = [str(name) for name in result.classes]
        self._redraw()

    def show_report(self, run: Run, report: Report, colors: list[str]) -> None:
        """Draw a frame of a training that runs."""
        self.panels_box.setEnabled(True)
        assert report.embedding is not None
        self._shown = None
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
        outlines = (
            []
            if self.drawn_regions is None
            else live_outlines(
                report.embedding,
                run.codes[run.kept],
                run.train[run.kept],
                len(run.classes),
                limits,
            )
        )
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

    def _on_regions(self, _: int) -> None:
        self._redraw()
        self.regions_changed.emit()

    def _redraw(self, _: int = 0) -> None:
        if self._shown is None:
            return
        adata, result = self._shown
        split = result.split.to_numpy()
        embedded = ~np.isnan(result.embedding[:, 0])
        limits = panel_limits(result.embedding[embedded])
        unlabeled = split == "unlabeled"
        query = bool((split == QUERY).any())
        self.panels_box.setEnabled(not query)
        panels = tuple(
            Panel(panel_title(result, which), np.flatnonzero((split == which) | unlabeled))
            for which in ((QUERY,) if query else self._which(bool((split == "test").any())))
        )
        scene = Scene(
            result.embedding,
            result.codes,
            panels,
            region_outlines(adata, result, self.drawn_regions, limits),
            limits,
            len(result.classes),
        )
        self._show(scene, self._colors, detailed=True)

    def _show(self, scene: Scene, colors: list[str], *, detailed: bool) -> None:
        self._stack.setCurrentWidget(self.canvas)
        self.canvas.map.set_detailed(detailed)
        self.canvas.map.show(scene, colors)
