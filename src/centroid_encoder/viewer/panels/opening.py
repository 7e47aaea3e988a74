"""Read files of tables in a thread."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from napari.utils.notifications import show_warning
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QFileDialog, QWidget

from centroid_encoder.viewer.panels.progress import TaskRow

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.reader import Reading

TABLES = "Tables of cells (*.h5ad *.csv)"
"""Files of a dialog."""


class Opening(TaskRow):
    """Reads one file after another; hidden while there is none to read."""

    opened = Signal(object, object)
    """An `AnnData`, and the `Path` that it was read from; `failed` if it cannot be read."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._waiting: list[Path] = []
        self.finished.connect(self._on_read)
        self.failed.connect(self._next)

    def ask(self) -> None:
        """Read a file that the user chooses."""
        name, _ = QFileDialog.getOpenFileName(self, "Open a table", "", TABLES)
        if name:
            self.read(Path(name))

    def ask_folder(self) -> None:
        """Read a zarr store that the user chooses."""
        name = QFileDialog.getExistingDirectory(self, "Open a table: choose its .zarr folder")
        if name:
            self.read(Path(name))

    def read(self, *paths: Path) -> None:
        """Read files, after those that are being read."""
        self._waiting += paths
        if self.task is None:
            self._next()

    def cancel(self) -> None:
        """Read no further; a file that is being read is dropped."""
        self._waiting.clear()
        super().cancel()

    def _next(self, _: object = None) -> None:
        from centroid_encoder.viewer.data.reader import Reading

        if self._waiting:
            path = self._waiting.pop(0)
            self.begin(partial(Reading, path), f"Reading {path.name}")

    def _on_read(self, reading: Reading) -> None:
        self._next()
        if reading.notice:
            show_warning(reading.notice)
        self.opened.emit(reading.adata, reading.path)
