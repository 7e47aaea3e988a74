"""Run the plain `napari` command, and answer questions about what is on the screen.

    python driven_napari.py FOLDER [arguments of napari]

Each line of the standard input is a question, ``["places", "Train"]``, and each line of the
standard output is its answer, both in JSON. Nothing here acts on napari, and no widget is kept:
a reference would hide a crash at the end. The files ``blocks`` and ``errors`` in the folder list
how long the event loop was blocked, and the errors that napari reported.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

os.environ["NAPARI_CONFIG"] = ""
import napari
import napari.__main__
import numpy as np
from napari.qt import get_qapp
from napari.utils.notifications import notification_manager
from qtpy.QtCore import QRect, QSocketNotifier, QTimer
from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import (
    QApplication,
    QListView,
    QMenu,
    QMenuBar,
    QTabBar,
    QTableView,
    QWidget,
)

TICK = 0.05
"""Seconds between two ticks of the event loop."""
LONG = 0.25
"""Seconds after which a block of the event loop is written down."""
MANY = 300
"""An import of more modules is that of a large library, such as PyTorch or AnnData with Dask."""
TEXTS = ("text", "currentText", "placeholderText", "accessibleName", "windowTitle")


def places(pattern: str, kind: str = "QWidget") -> list[dict[str, Any]]:
    """Return what is on the screen and has a text that matches a pattern, such as ``"Save*"``.

    These are widgets, tabs, entries of menus, and items of lists. `kind` is the name of a class of
    the widget.
    """
    found = []
    for widget in QApplication.allWidgets():
        if widget.isVisible() and kind in (one.__name__ for one in type(widget).__mro__):
            view, parts = _parts(widget)
            for texts, box, enabled in parts:
                plain = [text.replace("&", "").replace("\u00a0", " ") for text in texts]
                if not any(fnmatchcase(text, pattern) for text in plain):
                    continue
                shown = box & view.visibleRegion().boundingRect()
                if not shown.isEmpty():
                    at = view.mapToGlobal(shown.center())
                    text = next(filter(None, plain), "")
                    what = {"text": text, "kind": type(widget).__name__, "enabled": enabled}
                    size = {"width": shown.width(), "height": shown.height()}
                    found.append(what | size | {"x": at.x(), "y": at.y()})
    return found


def _parts(widget: QWidget) -> tuple[QWidget, Iterator[tuple[list[str], QRect, bool]]]:
    """Return the widget that draws the parts, and texts, place and state of each part."""
    if isinstance(widget, QMenu | QMenuBar):
        actions = [x for x in widget.actions() if x.isVisible()]
        parts = [([x.text()], widget.actionGeometry(x), x.isEnabled()) for x in actions]
    elif isinstance(widget, QTabBar):
        tabs = [i for i in range(widget.count()) if widget.isTabVisible(i)]
        parts = [([widget.tabText(i)], widget.tabRect(i), widget.isTabEnabled(i)) for i in tabs]
    elif isinstance(widget, QListView | QTableView) and (model := widget.model()) is not None:
        root = widget.rootIndex()
        # The bindings give no access to the number of columns of some models.
        n_columns = widget.horizontalHeader().count() if isinstance(widget, QTableView) else 1
        n_rows = range(model.rowCount(root))
        cells = [model.index(i, j, root) for i in n_rows for j in range(n_columns)]
        parts = [([str(x.data() or "")], widget.visualRect(x), True) for x in cells]
        return widget.viewport(), iter(parts)
    else:
        found = (getattr(widget, name, None) for name in TEXTS)
        texts = [str(text()) for text in found if callable(text)]
        parts = [(texts, widget.rect(), widget.isEnabled())]
    return widget, iter(parts)


def focus() -> str:
    """Return the class of the active window, and that of the widget with the focus."""
    there = QApplication.activeWindow(), QApplication.focusWidget()
    return " ".join(type(widget).__name__ for widget in there)


def tissue() -> dict[str, Any]:
    """Return the layers, and where the canvas of napari is and looks."""
    viewer = napari.current_viewer()
    canvas = viewer.window._qt_viewer.canvas.native
    at = canvas.mapToGlobal(canvas.rect().center())
    layers = [[x.name, type(x).__name__, x.visible] for x in viewer.layers]
    camera = viewer.scene.camera
    where = {"middle": [at.y(), at.x()], "size": [canvas.height(), canvas.width()]}
    return where | {"layers": layers, "center": list(camera.center[1:]), "zoom": camera.zoom}


def cells() -> dict[str, Any]:
    """Return the table that is chosen, its selected cells, and their places in the map."""
    widgets = QApplication.allWidgets()
    widget = next((x for x in widgets if type(x).__name__ == "CentroidEncoderWidget"), None)
    if widget is None or widget.session.adata is None:
        return {"names": []}
    session, canvas = widget.session, widget.map.canvas
    adata, drawn = session.adata, session.drawn
    label_key = session.label_key
    found = {
        "names": list(adata.obs_names),
        "table": session.table.name,
        "label_key": label_key,
        "labels": [] if label_key is None else adata.obs[label_key].astype(str).tolist(),
        "selected": list(adata.obs_names[session.selected]),
        "has_map": drawn is not None,
        "is_stored": session.result is not None,
        "is_checked": session.check is not None,
    }
    scene = canvas.map.scene
    if scene is not None and len(scene.points) == adata.n_obs:
        points = canvas.map.ax.transData.transform(scene.points) / canvas.canvas.device_pixel_ratio
        corner = canvas.canvas.mapToGlobal(canvas.canvas.rect().bottomLeft())
        found["places"] = np.round(points * [1, -1] + [corner.x(), corner.y()], 1).tolist()
    return found


def clipboard() -> str:
    """Return the text that was copied."""
    return QGuiApplication.clipboard().text()


def answer(questions: int, answers: Any) -> None:
    """Answer a question of the standard input."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(questions, 2**16)
        if not part:
            return
        line += part
    name, *arguments = json.loads(line)
    try:
        found = {"answer": globals()[name](*arguments)}
    except Exception:
        found = {"error": traceback.format_exc()}
    answers.write(json.dumps(found) + "\n")
    answers.flush()


class Watch:
    """Writes down how long the event loop was blocked, but not by the questions.

    A block is judged by the processor time of this thread: other processes do not lengthen it. It
    may be an import of a large library, or napari may add layers.
    """

    def __init__(self, folder: Path) -> None:
        self._blocks = (folder / "blocks").open("a")
        self._last: tuple[float, float, int, int] | None = None

    def tick(self) -> None:
        """Compare the clocks with those of the last tick, and begin again."""
        last = self._last
        self.begin()
        if last is not None and (wall := self._last[0] - last[0] - TICK) > LONG:
            cpu, modules, layers = (self._last[i] - last[i] for i in (1, 2, 3))
            block = {"wall": round(wall, 2), "cpu": round(cpu, 2)}
            block |= {"is_import": modules > MANY, "n_layers": max(layers, 0)}
            self._blocks.write(json.dumps(block) + "\n")
            self._blocks.flush()

    def begin(self) -> None:
        """Note the clocks, and what is there."""
        viewer = napari.current_viewer()
        there = len(sys.modules), 0 if viewer is None else len(viewer.layers)
        self._last = time.monotonic(), time.thread_time(), *there


def main() -> None:
    """Run napari as its command does."""
    folder = Path(sys.argv.pop(1))
    # What napari prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    app, watch = get_qapp(), Watch(folder)
    notifier = QSocketNotifier(0, QSocketNotifier.Type.Read, app)

    def respond() -> None:
        watch.tick()
        answer(0, answers)
        watch.begin()

    notifier.activated.connect(respond)
    timer = QTimer(app)
    timer.timeout.connect(watch.tick)
    timer.start(round(1000 * TICK))
    errors = (folder / "errors").open("a")

    def note(event: Any) -> None:
        if str(event.severity).lower().endswith("error"):
            errors.write(f"{event.message}\n")
            errors.flush()

    notification_manager.notification_ready.connect(note)
    sys.argv[0] = "napari"
    napari.__main__.main()


if __name__ == "__main__":
    main()
