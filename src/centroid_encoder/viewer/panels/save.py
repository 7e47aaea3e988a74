"""Save the table, the map, figures or a script, and undo changes of labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from anndata import AnnData
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from napari.layers import Labels
from qtpy.QtCore import Qt
from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import QFileDialog, QMenu, QWidget

from centroid_encoder import pl, tl
from centroid_encoder.errors import InputError
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tables import UnwritableError, check_writable, colors_key, snapshot, unpacked
from centroid_encoder.tl._result import label_categories
from centroid_encoder.viewer.data.ids import pixels
from centroid_encoder.viewer.latest import Latest
from centroid_encoder.viewer.panels.fields import button, side_by_side
from centroid_encoder.viewer.panels.message import Message, in_words
from centroid_encoder.viewer.session.provenance import as_python
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State
from centroid_encoder.viewer.task import Task

TABLES = "AnnData (*.h5ad);;Zarr store (*.zarr);;Cells (*.csv)"
FIGURES = "Figures (*.png *.pdf *.svg)"
ENTRIES = {
    "table": ("Table as .h5ad, .zarr or .csv …", "", TABLES),
    "model": ("Model as .safetensors …", "map.safetensors", "Model (*.safetensors)"),
    "figure": ("Figure as .png, .pdf or .svg …", "voronoi.png", FIGURES),
    "picture": ("Image and map as .png, .pdf or .svg …", "image_and_map.png", FIGURES),
    "reliability": ("Reliability page as .png, .pdf or .svg …", "reliability.png", FIGURES),
    "counts": (
        "Numbers of cells by class and image as .csv …",
        "composition.csv",
        "Counts (*.csv)",
    ),
    "outlines": (
        "Classes and outlines as .geojson …",
        "cells.geojson",
        "Outlines for QuPath (*.geojson)",
    ),
}
"""Texts of the entries of the menu, proposed names of the files, and their kinds."""
ID = "id in the image"
SAVING = "Saving …"
SUFFIX = re.compile(r"\*(\.\w+)")
PAUSE = 300
"""Milliseconds after which it is looked whether another table can be saved."""


class SaveRow(QWidget):
    """The menu "Save" and the buttons "Undo" and "Redo".

    The parent lays out `message`, and `without_button` below it. `entries` are those of the menu.
    `task` is the running task that writes a file, or None.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.message = Message()
        self.task: Task | None = None
        self._checking = Latest(self, PAUSE)
        self.picture: Callable[[], Figure] = Figure
        """Makes a figure of what is on the screen; the parent sets it."""
        self._saved_to: Path | None = None
        self._again: Callable[[], None] = lambda: None
        self.menu = QMenu(self)
        self.menu.setToolTipsVisible(True)
        saves: tuple[Callable[[Path], None], ...] = (
            self.save_table,
            self.save_model,
            self.save_figure,
            lambda path: self.save_figure(path, lambda *_, **__: self.picture()),
            # Imported when the page is drawn, since that takes long.
            lambda path: self.save_figure(path, pl.reliability),
            self.save_counts,
            self.save_outlines,
        )
        self.entries: dict[str, Any] = {}
        for (name, (text, default, kinds)), save in zip(ENTRIES.items(), saves, strict=True):
            self.entries[name] = self.menu.addAction(text, partial(self._ask, default, kinds, save))
            if name == "table":
                self.update_action = self.menu.addAction("", self.update_store)
        self.menu.addSeparator()
        self.copy_action = self.menu.addAction("Copy as Python", self.copy_script)
        tip = "Copy a Python script that makes the same map and the same checks"
        self.copy_action.setToolTip(tip)
        tip = (
            "Save the table with the map, the map alone, the figure, or a page with the figure and "
            "the checks of its reliability"
        )
        self.save_button = button("Save", tip, self.menu)
        self.undo_button = button("↶", "", session.undo)
        self.redo_button = button("↷", "", session.redo)
        for step, name in ((self.undo_button, "Undo"), (self.redo_button, "Redo")):
            step.setAccessibleName(name)
            # A click leaves the focus where the keys for labelling serve.
            step.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        tip = "Write the file without this part; the table here keeps it"
        self.without_button = button("", tip, lambda: self._again())
        self.without_button.hide()
        self.setLayout(side_by_side(self.undo_button, self.redo_button, self.save_button))
        session.show_in(self.show_state)
        self._offer()

    def show_state(self, before: State, now: State) -> None:
        """Say what cannot be saved of another table, and offer what can be done now."""
        if now.differs(before, "cells"):
            self._check()
        parts = "cells", "result", "check", "draft", "labels", "labeling", "links", "label_key"
        if now.differs(before, *parts):
            self._offer()

    def _offer(self) -> None:
        """Enable what can be saved, undone or redone now."""
        table, now = self._session.table, self._session.state
        has_map, is_checked = now.result is not None, now.check is not None
        # The classes of ingested cells are predictions without labels to compare with.
        is_trained = now.result is not None and not now.result.is_query
        self.save_button.setVisible(table is not None)
        self.save_button.setEnabled(self.task is None)
        for name in ("model", "figure", "outlines"):
            self.entries[name].setEnabled(has_map)
        self.entries["picture"].setEnabled(now.drawn is not None)
        self.entries["reliability"].setEnabled(is_trained or is_checked)
        self.entries["counts"].setVisible(bool(self._session.catalog.images()))
        self.copy_action.setEnabled(has_map or is_checked)
        into = ""
        if table is not None and table.origin == "spatialdata":
            into = "its SpatialData"
        elif table is not None and table.path is not None and table.path.suffix == ".zarr":
            into = table.path.name
        self.update_action.setText(f"Update the table in {into}")
        self.update_action.setVisible(bool(into))
        labeling = self._session.editable
        steps = ("", "") if labeling is None else labeling.steps
        for back, step in zip((self.undo_button, self.redo_button), steps, strict=True):
            back.setVisible(bool(step))
            back.setToolTip(step)

    def _check(self) -> None:
        """Say what a file cannot hold of the table that was chosen."""

        def on_end(_: None, error: Exception | None) -> None:
            if isinstance(error, InputError):
                self.message.say(f"This table cannot be saved as it is: {error}.", "warning")

        self.without_button.hide()
        self.message.say("")
        self._checking.drop()
        if (adata := self._session.adata) is not None and not adata.isbacked:
            self._checking.request(partial(check_writable, snapshot(adata)), on_end)

    def save_table(self, path: Path) -> None:
        """Write the table with its results in a thread; a ``.csv`` holds less, see `save_csv`."""
        from centroid_encoder.viewer._save import save_csv, save_h5ad, save_zarr

        if (table := self._session.table) is None:
            return
        kind = path.suffix.lower()
        # A copy, since the user may change the table while the thread writes.
        adata, done = snapshot(table.adata), f"Saved {path.name}."
        if kind == ".csv":
            key = self._session.state.key
            self._write(lambda _: save_csv(adata, key, path), done)
        else:
            save = save_zarr if kind == ".zarr" else save_h5ad
            self._write(partial(save, adata, path), done, path)

    def save_model(self, path: Path) -> None:
        """Write the map alone in a thread."""
        from centroid_encoder.viewer._save import save_model

        if (table := self._session.table) is not None:
            adata, key = table.adata, self._session.state.key
            self._write(
                lambda _: save_model(adata, key, path), f"Saved {path.name}.", needs_jobs=True
            )

    def save_figure(self, path: Path, plot: Callable[..., Any] = pl.voronoi) -> None:
        """Draw a figure of `pl`, and write it in a thread, which takes longer."""
        from centroid_encoder.viewer._save import save_figure

        session = self._session
        if self.task is not None:
            return
        with self._saying(SAVING):
            regions = "soft" if session.state.regions == "voronoi" else session.state.regions
            drawn = plot(session.adata, key=session.state.key, regions=regions, show=False)
            figure = drawn if isinstance(drawn, Figure) else np.ravel(drawn)[0].figure
            # Without its window, which belongs to this thread.
            plt.close(figure)
            FigureCanvasAgg(figure)
            self._write(lambda _: save_figure(figure, path), f"Saved {path.name}.")

    def save_counts(self, path: Path) -> None:
        """Write the table of `tl.composition` in a thread."""
        from centroid_encoder.viewer._save import save_frame

        session = self._session
        image_column = session.catalog.image_column
        label_key = session.corrected(session.shown_labels)
        if (adata := session.adata) is None or image_column is None or label_key is None:
            return
        if self.task is not None:
            return
        with self._saying(SAVING):
            table = tl.composition(adata, image_column, label_key=label_key)
            self._write(lambda _: save_frame(table, path), f"Saved {path.name}.")

    def save_outlines(self, path: Path) -> None:
        """Write the classes and outlines of the cells of a visible image in a thread.

        Without such an image, the cells of the table are points.
        """
        session, key = self._session, self._session.state.key
        label_key = session.corrected(session.shown_labels)
        if (adata := session.adata) is None or label_key is None:
            return
        # Those of parents are in the table only.
        colors = label_colors(adata, label_key) | session.class_colors
        shown = [colors[name] for name in label_categories(adata.obs[label_key])]
        uns = {key: adata.uns[key], colors_key(label_key): shown}
        part, image = AnnData(obs=adata.obs.copy(), uns=uns, obsm=dict(adata.obsm)), None
        more: dict[str, Any] = {"label_key": label_key, "key": key}
        for link, join in session.catalog.joins.items():
            if isinstance(link.layer, Labels) and link.layer.visible and join.n_joined:
                image, rows = pixels(link.layer), np.flatnonzero(join.joined)
                obs = adata.obs.iloc[rows].assign(**{ID: join.ids[rows]})
                part, more = AnnData(obs=obs, uns=uns), more | {"id_key": ID}
                break
        write = partial(tl.write_geojson, part, image, path, **more)
        self._write(lambda _: write(), f"Saved {path.name}.")

    def update_store(self) -> None:
        """Write the table in a thread into the zarr store that it was read from."""
        from centroid_encoder.viewer._save import save_table

        table = self._session.table
        if table is not None and table.origin == "spatialdata":
            self._write(partial(save_table, table), f"Updated {table.name}.")
        elif table is not None and table.path is not None:
            self.save_table(table.path)

    def copy_script(self) -> None:
        """Copy the script to the clipboard."""
        with self._saying("Copied. Paste it into a file or a notebook."):
            QGuiApplication.clipboard().setText(self.script())

    def script(self) -> str:
        """Return a script that makes the results again; empty without a table."""
        table, tables = self._session.table, self._session.catalog.tables
        return "" if table is None else as_python(table, self._session.state.key, tables)

    def _write(
        self,
        write: Callable[[Collection[str]], None],
        done: str,
        path: Path | None = None,
        without: Collection[str] = (),
        *,
        needs_jobs: bool = False,
    ) -> None:
        """Write a file in a thread unless one is being written; `path` becomes the table's file.

        The file lacks the parts `without`; if another part cannot be written, a button offers to
        leave it out, too.
        """
        table = self._session.table
        if self.task is not None or table is None:
            return

        def on_end(_: None, error: Exception | None) -> None:
            self.task = None
            table.unsaved |= path is not None and error is not None
            if isinstance(error, UnwritableError):
                less = [*without, str(error.parameter)]
                self._again = partial(self._write, write, done, path, less)
                self.without_button.setText(f"Save without {in_words(str(error.parameter))}")
                self.without_button.show()
            with self._saying(done):
                if error is not None:
                    raise error
                if path is not None:
                    # A script will read the table from this file.
                    table.path = self._saved_to = path
            self._offer()

        # The file lacks all that is written while the thread runs.
        table.unsaved &= path is None
        self._checking.drop()
        self.without_button.hide()
        self.message.say(SAVING)
        task = self.task = Task(lambda _: write(without), on_end, self, needs_jobs=needs_jobs)
        # Python's end would break the writing, if the user closes the window meanwhile.
        if (app := QGuiApplication.instance()) is not None:
            app.aboutToQuit.connect(task.wait)
        self._offer()

    @contextmanager
    def _saying(self, done: str) -> Iterator[None]:
        """Show `done` after the block, or a sentence if it raises an error."""
        try:
            yield
        except Exception as error:
            self.message.say(error, "error")
        else:
            self.message.say(done)

    @property
    def proposal(self) -> str:
        """Proposed file name for the table: that of the last save, or else a new one."""
        if self._session.table is None or (path := self._session.table.path) is None:
            return f"cells_{self._session.state.key}.h5ad"
        # A dialog opens a store in place of choosing it.
        is_own = path == self._saved_to and path.suffix != ".zarr"
        name = f"{unpacked(path).stem}_{self._session.state.key}.h5ad"
        return str(path if is_own else path.with_name(name))

    def _ask(self, default: str, kinds: str, save: Callable[[Path], None]) -> None:
        ask_name(self, default or self.proposal, kinds, save)


def ask_name(parent: QWidget, default: str, kinds: str, save: Callable[[Path], None]) -> None:
    """Let the user choose a name, which ends as the chosen kind of file does, and save.

    `kinds` are filters such as ``"AnnData (*.h5ad);;Cells (*.csv)"``; that of `default` is chosen.
    """
    dialog = QFileDialog(parent, "Save", "", kinds)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)

    def use(kind: str) -> None:
        # Qt adds the suffix before its question on replacing a file.
        suffix = re.findall(SUFFIX, kind)[0]
        dialog.setDefaultSuffix(suffix)
        path = Path(dialog.selectedFiles()[0])
        if path.suffix.lower() in re.findall(SUFFIX, kinds):
            dialog.selectFile(path.with_suffix(suffix).name)

    def take(name: str) -> None:
        # Qt adds no suffix to a name such as "slide.2". A file of the longer name is not replaced.
        longer = Path(f"{name}.{dialog.defaultSuffix().removeprefix('.')}")
        is_known = Path(name).suffix.lower() in re.findall(SUFFIX, kinds)
        save(Path(name) if is_known or longer.exists() else longer)

    suffix = Path(default).suffix.lower()
    dialog.selectNameFilter(next(x for x in kinds.split(";;") if suffix in x))
    dialog.setDefaultSuffix(suffix)
    dialog.selectFile(default)
    dialog.filterSelected.connect(use)
    dialog.fileSelected.connect(take)
    dialog.open()
