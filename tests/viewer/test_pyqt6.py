"""The whole plugin once with PyQt6, in a process of its own: two bindings do not share one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SESSION = """
import faulthandler
import gc
import sys
from time import monotonic

import napari
import qtpy
from qtpy.QtWidgets import QApplication

faulthandler.enable()


def wait(ready):
    deadline = monotonic() + 120
    while not ready() and monotonic() < deadline:
        QApplication.processEvents()
    assert ready()


def settle():
    until = monotonic() + 0.3
    wait(lambda: monotonic() > until)


def open_and_close(times, end=lambda widget: None):
    for _ in range(times):
        dock, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
        settle()
        end(widget)
        viewer.window.remove_dock_widget(dock)
        del dock, widget
        settle()
        gc.collect()


def begin_to_train(widget):
    widget.form.auto_epochs.value = False
    widget.form.max_epochs.value = 100_000
    widget.train()
    wait(lambda: widget.map.canvas.map.scene is not None)


viewer = napari.Viewer()
open_and_close(5)
viewer.open_sample("centroid-encoder", "tissue")
_, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
widget.form.auto_epochs.value = False
widget.form.max_epochs.value = 2
widget.train()
wait(lambda: widget.training is None)

assert qtpy.API_NAME == "PyQt6" and "PySide6" not in sys.modules
adata = viewer.layers["nuclei"].metadata["adata"]
assert adata.obsm["X_ce"].shape == (adata.n_obs, 2)
assert widget.result is not None
assert viewer.screenshot(canvas_only=False, flash=False).std() > 0
viewer.window.remove_dock_widget(widget.parent())
del widget
open_and_close(3)
open_and_close(2, begin_to_train)
viewer.close()
print("done")
"""


@pytest.mark.slow
def test_trains_in_a_window_of_pyqt6_and_is_opened_and_closed_again_and_again():
    # An exception in a slot ends a process with PyQt6; so does the collection of an object that
    # Qt has deleted.
    result = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", SESSION],
        env=os.environ | {"QT_API": "pyqt6", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("done\n")
