"""Save what was made: as files, or as a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from napari.utils.notifications import show_error
from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import QFileDialog, QHBoxLayout, QMenu, QPushButton, QVBoxLayout, QWidget

from centroid_encoder import pl
from centroid_encoder.viewer.panels.fields import menu_button
from centroid_encoder.viewer.panels.message import Message, sentence

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.session.session import Session

FIGURES = "Figures (*.png *.pdf *.svg)"


class SaveRow(QWidget):
    """Save menu and "Copy as Python"; what writes files is imported when there is one to write.

    Parameters
    ----------
    session
        What is shown, which is what can be saved.
    """

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.message = Message()
        menu = QMenu(self)
        self.save_table_action = menu.addAction("Table as .h5ad …", self._ask_table)
        self.update_action = menu.addAction("", self.update_store)
        self.save_model_action = menu.addAction("Model as .safetensors …", self._ask_model)
        self.save_figure_action = menu.addAction("Figure as .png, .pdf or .svg …", self._ask_figure)
        self.save_reliability_action = menu.addAction(
            "Reliability page as .png, .pdf or .svg …", self._ask_reliability
        )
        self.save_button = menu_button(
            "Save …",
            "The table with the map, the map alone, the figure, or a page with the figure and the "
            "evidence for it",
            menu,
        )
        self.copy_button = QPushButton("Copy as Python")
        self.copy_button.setToolTip(
            "Put a script on the clipboard that makes the same map and the same check"
        )
        self.copy_button.clicked.connect(self.copy_script)
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.save_button)
        row.addWidget(self.copy_button)
        row.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.message)
        layout.addLayout(row)
        session.table_changed.connect(self._on_table)
        for event in (session.result_changed, session.check_changed):
            event.connect(self._offer)
        self._offer()

    def _on_table(self) -> None:
        self.message.say("")
        self._offer()

    def _offer(self) -> None:
        """Offer what there is to save."""
        table, result, checked = self._session.table, self._session.result, self._session.check
        self.save_button.setEnabled(table is not None)
        for action in (self.save_model_action, self.save_figure_action):
            action.setEnabled(result is not None)
        self.copy_button.setEnabled(result is not None or checked is not None)
        # Of cells that were sent through a map, nothing tells which labels are right.
        trained = result is not None and not result.is_query
        self.save_reliability_action.setEnabled(trained or checked is not None)
        into = ""
        if table is not None and table.origin == "spatialdata":
            into = "its SpatialData"
        elif table is not None and table.path is not None and table.path.suffix == ".zarr":
            into = table.path.name
        self.update_action.setText(f"Table into {into}")
        self.update_action.setVisible(bool(into))

    def save_table(self, path: Path) -> None:
        """Write the table with its results."""
        from centroid_encoder.viewer._save import save_h5ad, save_zarr

        def save(table: Table) -> None:
            (save_zarr if path.suffix.lower() == ".zarr" else save_h5ad)(table.adata, path)
            # The file that holds all there is now, and from which a script can go on.
            table.path = path
            self._offer()

        self._do(save, f"Saved {path.name}.")

    def save_model(self, path: Path) -> None:
        """Write the map alone."""
        from centroid_encoder.viewer._save import save_model

        key = self._session.key
        self._do(lambda table: save_model(table.adata, key, path), f"Saved {path.name}.")

    def save_figure(self, path: Path) -> None:
        """Draw the figure for a paper: `pl.voronoi`."""
        self._draw(pl.voronoi, path)

    def save_reliability(self, path: Path) -> None:
        """Draw the page that says what may be believed: `pl.reliability`."""
        self._draw(pl.reliability, path)

    def _draw(self, plot: Callable[..., Any], path: Path) -> None:
        """Save what a function of `pl` draws of what is shown."""
        import matplotlib.pyplot as plt

        from centroid_encoder.viewer._save import save_figure

        shown = {"key": self._session.key, "regions": self._session.regions}

        def draw(table: Table) -> None:
            drawn = plot(table.adata, show=False, **shown)
            figure = drawn if isinstance(drawn, Figure) else np.ravel(drawn)[0].figure
            try:
                save_figure(figure, path)
            finally:
                plt.close(figure)

        self._do(draw, f"Saved {path.name}.")

    def update_store(self) -> None:
        """Write the table into the zarr store it came from."""
        from centroid_encoder.viewer._save import save_table

        table = self._session.table
        if table is None or table.origin == "spatialdata" or table.path is None:
            self._do(save_table, f"Updated {'' if table is None else table.name}.")
        else:
            self.save_table(table.path)

    def copy_script(self) -> None:
        """Put the script on the clipboard."""
        self._do(
            lambda _: QGuiApplication.clipboard().setText(self.script()),
            "Copied. Paste it into a file or a notebook.",
        )

    def script(self) -> str:
        """The script that makes the same map, and checks the same labels; empty without a table."""
        from centroid_encoder.viewer._script import as_python

        session, table = self._session, self._session.table
        if table is None:
            return ""
        made_by = check = None
        if session.result is not None:
            made_by = session.provenance.of_map(table, session.key)
        if session.check is not None:
            check = session.provenance.of_check(table, session.key)
        return as_python(table, made_by, check)

    def _do(self, function: Callable[[Table], object], done: str) -> None:
        """Do something with the table, and say that it is done, or why not."""
        table = self._session.table
        if table is None:
            return
        try:
            function(table)
        except Exception as error:  # Whatever it is, it ends as a sentence, not as a traceback.
            self.message.say(sentence(error), "error")
            show_error(sentence(error))
        else:
            self.message.say(done)

    def _ask_table(self) -> None:
        table = self._session.table
        path = None if table is None or table.path is None else table.path.with_suffix(".h5ad")
        self._ask("Save the table", str(path or "cells.h5ad"), "AnnData (*.h5ad)", self.save_table)

    def _ask_model(self) -> None:
        self._ask("Save the model", "map.safetensors", "Model (*.safetensors)", self.save_model)

    def _ask_figure(self) -> None:
        self._ask("Save the figure", "voronoi.png", FIGURES, self.save_figure)

    def _ask_reliability(self) -> None:
        self._ask("Save the reliability page", "reliability.png", FIGURES, self.save_reliability)

    def _ask(self, title: str, default: str, kinds: str, save: Callable[[Path], None]) -> None:
        """Ask for a file and save; a name without an ending gets that of the default."""
        name, _ = QFileDialog.getSaveFileName(self, title, default, kinds)
        if name:
            path = Path(name)
            save(path if path.suffix else path.with_suffix(Path(default).suffix))
