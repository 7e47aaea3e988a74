"""Open and close the widget in other processes, since a process has only one Qt binding."""

import os
import subprocess
import sys

import pytest

from tests.cases import cases

START = """
import faulthandler
import gc
import sys
from collections import Counter
from time import monotonic

import napari
import qtpy
from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QApplication, QWidget

faulthandler.enable()


def wait(ready):
    deadline = monotonic() + 120
    while not ready() and monotonic() < deadline:
        QApplication.processEvents()
    assert ready()


def settle(seconds=0.3):
    until = monotonic() + seconds
    wait(lambda: monotonic() > until)
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QApplication.processEvents()


def open_and_close(times, end=lambda widget: None, seconds=0.3):
    for _ in range(times):
        dock, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
        settle(seconds)
        end(widget)
        viewer.window.remove_dock_widget(dock)
        del dock, widget
        settle(0)
        gc.collect()


viewer = napari.Viewer(show_welcome_screen=False)
"""

COMING_AND_GOING = """
open_and_close(3)
dock, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
for floating in (True, False):
    dock.setFloating(floating)
    settle()
    assert widget.isVisible()
for theme in ("light", "dark"):
    viewer.theme = theme
    settle(0)
other = napari.Viewer(show_welcome_screen=False)
_, second = other.window.add_plugin_dock_widget("centroid-encoder")
settle()
assert second.viewer is not widget.viewer
other.close()
settle()
assert widget.isVisible()
viewer.window.remove_dock_widget(dock)
del dock, widget, second, other


def begin_to_train(widget):
    widget.form.max_epochs.value = 100_000
    widget.train()
    wait(lambda: widget.session.state.frame is not None)


viewer.open_sample("centroid-encoder", "tissue")
_, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
widget.form.max_epochs.value = 2
widget.train()
wait(lambda: widget.training is None)

names = {"pyqt6": "PyQt6", "pyside6": "PySide6"}
here = names.pop(sys.argv[1])
assert qtpy.API_NAME == here and not set(names.values()) & set(sys.modules)
adata = viewer.layers["nuclei"].metadata["adata"]
assert adata.obsm["X_ce"].shape == (adata.n_obs, 2)
assert widget.result is not None
assert viewer.screenshot(canvas_only=False, flash=False).std() > 0
viewer.window.remove_dock_widget(widget.parent())
del widget
open_and_close(2, begin_to_train)
viewer.close()
print("done")
"""

LEFT_BEHIND = """
N, WITH_CELLS = int(sys.argv[2]), sys.argv[3] == "cells"


def there():
    counts = Counter(type(widget).__name__ for widget in QApplication.allWidgets())
    counts["mouse"] = len(viewer.mouse_drag_callbacks)
    counts["layers"] = len(viewer.layers.events.callbacks)
    for thing in gc.get_objects():
        counts["ours"] += str(type(thing).__module__).startswith("centroid_encoder.viewer.")
    return counts


def empty_docks(times):
    for _ in range(times):
        dock = viewer.window.add_dock_widget(QWidget(), name="empty")
        settle(0.02)
        viewer.window.remove_dock_widget(dock)
        del dock
        settle(0)
        gc.collect()


def left_by(cycles):
    cycles(5)
    before = there()
    cycles(N)
    return there() - before


if WITH_CELLS:
    viewer.open_sample("centroid-encoder", "tissue")
empty = left_by(empty_docks)
ours = left_by(lambda times: open_and_close(times, seconds=0.1))
assert not ours - empty, ours - empty
viewer.close()
print("done")
"""


def run(binding: str, script: str, *arguments: object) -> None:
    # PyQt6 ends the process after an exception in a slot, or if Python collects an object that Qt
    # has deleted.
    options = ["-W", "error", "-W", "ignore::DeprecationWarning", "-c", START + script]
    result = subprocess.run(
        [sys.executable, *options, binding, *map(str, arguments)],
        env=os.environ | {"QT_API": binding, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    print(result.stdout)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("done\n")


pytestmark = pytest.mark.slow


def test_the_widget_opens_trains_and_closes_with_pyqt6():
    run("pyqt6", COMING_AND_GOING)


@pytest.mark.parametrize("binding", ["pyqt6", "pyside6"])
@pytest.mark.parametrize("cells", ["none", "cells"])
@pytest.mark.timeout(900)
def test_a_hundred_reopenings_leave_no_more_objects_than_an_empty_dock(binding, cells):
    run(binding, LEFT_BEHIND, max(10, cases(100)), cells)
