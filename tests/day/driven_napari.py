"""Run the plain `napari` command, and answer questions about what is on the screen.

    python driven_napari.py FOLDER [arguments of napari]

Each line of the standard input is a question, ``["places", "Train"]``, and each line of the
standard output is its answer, both in JSON. Nothing here acts on napari, and no widget is kept: a
reference would hide a crash at the end. FOLDER/faults lists the errors that napari reported, and
how long its event loop was blocked.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
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
from qtpy.QtWidgets import QApplication, QListView, QMenu, QMenuBar, QTabBar, QTableView, QWidget

TICK = 50
"""Milliseconds between two ticks of the event loop."""
LONG = 0.25
"""Seconds after which a block of the event loop is noted."""
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
        if not widget.isVisible() or kind not in (x.__name__ for x in type(widget).__mro__):
            continue
        shows_items = isinstance(widget, QListView | QTableView)
        view = widget.viewport() if shows_items else widget
        for texts, box, enabled in _parts(widget):
            texts = [text.replace("&", "").replace("\u00a0", " ") for text in texts]
            if any(fnmatchcase(text, pattern) for text in texts):
                shown = box & view.visibleRegion().boundingRect()
                at = view.mapToGlobal(shown.center())
                place = {"x": at.x(), "y": at.y(), "width": shown.width(), "height": shown.height()}
                if not shown.isEmpty():
                    found.append(place | {"text": next(filter(None, texts), ""), "on": enabled})
    return found


def _parts(widget: QWidget) -> Iterator[tuple[list[str], QRect, bool]]:
    """Yield the texts, the place and the state of each part of a widget."""
    if isinstance(widget, QMenu | QMenuBar):
        for action in widget.actions():
            if action.isVisible():
                yield [action.text()], widget.actionGeometry(action), action.isEnabled()
    elif isinstance(widget, QTabBar):
        for i in filter(widget.isTabVisible, range(widget.count())):
            yield [widget.tabText(i)], widget.tabRect(i), widget.isTabEnabled(i)
    elif isinstance(widget, QListView | QTableView):
        model, root = widget.model(), widget.rootIndex()
        # The bindings give no access to the number of columns of some models.
        n_columns = widget.horizontalHeader().count() if isinstance(widget, QTableView) else 1
        for i in range(0 if model is None else model.rowCount(root)):
            for index in (model.index(i, j, root) for j in range(n_columns)):
                yield [str(index.data() or "")], widget.visualRect(index), True
    else:
        found = (getattr(widget, name, None) for name in TEXTS)
        yield [str(text()) for text in found if callable(text)], widget.rect(), widget.isEnabled()


def focus() -> str:
    """Return the class of the active window, and that of the widget with the focus."""
    return " ".join(
        type(x).__name__ for x in (QApplication.activeWindow(), QApplication.focusWidget())
    )


def tissue() -> dict[str, Any]:
    """Return the names of the layers that are shown, their number, and what is in view."""
    viewer = napari.current_viewer()
    canvas, camera = viewer.window._qt_viewer.canvas.native, viewer.scene.camera
    at = canvas.mapToGlobal(canvas.rect().center())
    return {
        "n_layers": len(viewer.layers),
        "shown": [layer.name for layer in viewer.layers if layer.visible],
        "middle": [at.y(), at.x()],
        "size": [canvas.height(), canvas.width()],
        "center": list(camera.center[1:]),
        "zoom": camera.zoom,
    }


def cells() -> dict[str, list[Any]]:
    """Return the cells of the table, their labels, those selected, and their places in the map."""
    widget = next(
        x for x in QApplication.allWidgets() if type(x).__name__ == "CentroidEncoderWidget"
    )
    session, canvas = widget.session, widget.map.canvas
    adata = session.adata
    corner = canvas.canvas.mapToGlobal(canvas.canvas.rect().bottomLeft())
    points = canvas.map.ax.transData.transform(canvas.map.scene.points)
    points = points / canvas.canvas.device_pixel_ratio * [1, -1] + [corner.x(), corner.y()]
    return {
        "names": list(adata.obs_names),
        "labels": adata.obs[session.label_key].astype(str).tolist(),
        "selected": list(adata.obs_names[session.state.selected]),
        "places": np.round(points, 1).tolist(),
    }


def clipboard() -> str:
    """Return the text that was copied."""
    return QGuiApplication.clipboard().text()


def answer(answers: Any) -> None:
    """Answer a question of the standard input."""
    line = os.read(0, 2**16)
    if line:
        name, *arguments = json.loads(line)
        try:
            found = {"answer": globals()[name](*arguments)}
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), file=answers, flush=True)


def clock(note: Callable[..., None]) -> Callable[[bool], None]:
    """Return a function for each tick, which notes how long it was not called, and why.

    A block may be an import, or napari may add layers. The processor time of this thread is noted,
    too: other processes do not lengthen it. With False, nothing is noted.
    """
    last: list[float] = []

    def tick(noted: bool = True) -> None:
        viewer = napari.current_viewer()
        there = len(sys.modules), 0 if viewer is None else len(viewer.layers)
        now = [time.monotonic(), time.thread_time(), *there]
        wall, cpu, n_modules, n_layers = np.subtract(now, last or now).tolist()
        if noted and wall - TICK / 1000 > LONG:
            note(wall=wall, cpu=cpu, is_import=n_modules > MANY, n_layers=max(n_layers, 0))
        last[:] = now

    return tick


def main() -> None:
    """Run napari as its command does."""
    faults = (Path(sys.argv.pop(1)) / "faults").open("a")
    # What napari prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def note(**what: object) -> None:
        print(json.dumps(what), file=faults, flush=True)

    def on_notification(event: Any) -> None:
        if str(event.severity).lower().endswith("error"):
            note(error=str(event.message))

    def on_question(*_: object) -> None:
        tick()
        answer(answers)
        tick(False)

    app, tick = get_qapp(), clock(note)
    notifier, timer = QSocketNotifier(0, QSocketNotifier.Type.Read, app), QTimer(app)
    notifier.activated.connect(on_question)
    timer.timeout.connect(tick)
    timer.start(TICK)
    notification_manager.notification_ready.connect(on_notification)
    sys.argv[0] = "napari"
    napari.__main__.main()


if __name__ == "__main__":
    main()
