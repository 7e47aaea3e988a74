"""The whole plugin once with PyQt6, in a process of its own: two bindings do not share one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SESSION = """
import sys
from time import monotonic

import napari
import qtpy
from qtpy.QtWidgets import QApplication

viewer = napari.Viewer()
viewer.open_sample("centroid-encoder", "tissue")
_, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
widget.form.auto_epochs.value = False
widget.form.max_epochs.value = 2
widget.train()

deadline = monotonic() + 120
while widget.training is not None and monotonic() < deadline:
    QApplication.processEvents()

assert qtpy.API_NAME == "PyQt6" and "PySide6" not in sys.modules
adata = viewer.layers["nuclei"].metadata["adata"]
assert adata.obsm["X_ce"].shape == (adata.n_obs, 2)
assert widget.result is not None
assert viewer.screenshot(canvas_only=False, flash=False).std() > 0
viewer.close()
print("done")
"""


@pytest.mark.slow
def test_trains_in_a_window_of_pyqt6():
    # An exception in a slot ends a process with PyQt6.
    result = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", SESSION],
        env=os.environ | {"QT_API": "pyqt6", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("done\n")
