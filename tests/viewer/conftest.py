"""Fixtures of the viewer tests: one Qt binding, a real napari window, default settings."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

# Set before napari is imported, so that it does not use the settings file of the user.
os.environ["NAPARI_CONFIG"] = ""

import napari
import numpy as np
import pytest
from npe2 import PluginManager
from numpy.typing import NDArray
from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QApplication

if TYPE_CHECKING:
    from anndata import AnnData
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget

CALLBACKS = ("mouse_drag_callbacks", "mouse_move_callbacks", "mouse_wheel_callbacks")


@pytest.fixture(scope="session", autouse=True)
def _screen() -> None:
    """Fail with a message if there is no screen; Qt would abort the process."""
    variables = "DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"
    if sys.platform == "linux" and not any(map(os.environ.get, variables)):
        pytest.fail("Viewer tests open windows: `make screen` installs a virtual screen.", False)


@pytest.fixture(autouse=True)
def _journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the journals of labels of another one, or those of the user."""
    monkeypatch.setenv("CENTROID_ENCODER_JOURNALS", str(tmp_path / "journals"))


class Window:
    """One napari window for all tests of a process; it is opened again if a test closes it."""

    def __init__(self) -> None:
        self._viewer: Viewer | None = None
        self._callbacks: dict[str, list[Any]] = {}

    def open(self, qtbot: QtBot) -> Viewer:
        if self._viewer is None:
            viewer = self._viewer = napari.Viewer(show=True, show_welcome_screen=False)
            qtbot.waitExposed(viewer.window._qt_window)
            self._callbacks = {name: list(getattr(viewer, name)) for name in CALLBACKS}
        return self._viewer

    def tidy(self, *, failed: bool) -> None:
        """Remove docks, layers and settings that a test left behind, and collect garbage."""
        viewer = self._viewer
        if viewer is None:
            return
        if failed or not hasattr(viewer.window, "_qt_window"):
            self.close()
            return
        viewer.window.remove_dock_widget("all")
        vars(viewer.layers).pop("centroid_encoder_tables", None)
        viewer.layers.clear()
        napari.settings.get_settings().reset()
        viewer.theme = "dark"
        viewer.dims.ndisplay = 2
        viewer.canvas.grid.enabled = False
        viewer.reset_view()
        for name, callbacks in self._callbacks.items():
            # Remove the callbacks of links that a test did not close.
            getattr(viewer, name)[:] = callbacks
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        QApplication.processEvents()
        # napari collects garbage at each change of the layers; it takes a quarter of a second where
        # all that was imported or opened before is looked through again.
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        viewer, self._viewer = self._viewer, None
        if viewer is not None and hasattr(viewer.window, "_qt_window"):
            with patch.object(viewer.window._qt_window, "_save_current_window_settings"):
                viewer.close()


@pytest.fixture(scope="session")
def _window(qapp: Any) -> Iterator[Window]:
    with (
        patch("napari._qt.threads.status_checker.StatusChecker.start"),
        patch("napari._qt.qt_main_window.SHOW_QT_WARNING", False),
        patch("napari._qt.qt_viewer.QtViewer._get_console", lambda *_: None),
    ):
        window = Window()
        yield window
        window.close()


@pytest.fixture
def viewer(_window: Window, qtbot: QtBot, request: pytest.FixtureRequest) -> Iterator[Viewer]:
    """Empty viewer in a real window, with napari's default settings.

    Wait for what its event loop has yet to do with ``qtbot.waitUntil``.
    """
    yield _window.open(qtbot)
    call = getattr(request.node, "rep_call", None)
    _window.tidy(failed=call is None or call.failed)


@pytest.fixture(scope="session")
def plugins() -> None:
    """Make the readers and sample data of the plugin available to a `ViewerModel`."""
    PluginManager.instance().discover()


@pytest.fixture
def image_of() -> Callable[..., NDArray[np.int32]]:
    """Make label images of cells; the ids in ``obs["cell_id"]`` have gaps and are not sorted."""

    def make(adata: AnnData, seed: int = 0) -> NDArray[np.int32]:
        rng = np.random.default_rng(seed)
        ids = rng.permutation(np.arange(1, 3 * adata.n_obs, dtype=np.int32))[: adata.n_obs]
        adata.obs["cell_id"] = ids
        side = int(np.ceil(adata.n_obs**0.5))
        places = np.zeros(side**2, dtype=np.int32)
        places[: len(ids)] = rng.permutation(ids)
        # Cells have 4 x 4 pixels, and a border of one pixel around them.
        stamp = np.pad(np.ones((4, 4), dtype=np.int32), (0, 1))
        return np.kron(places.reshape(side, side), stamp)

    return make


@pytest.fixture
def open_widget(viewer: Viewer, qtbot: QtBot) -> Callable[[], CentroidEncoderWidget]:
    """Open the widget as from the menu, and set three epochs."""

    def open_() -> CentroidEncoderWidget:
        _, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
        widget.form.max_epochs.value = 3
        qtbot.waitUntil(widget.isVisible)
        return widget

    return open_


@pytest.fixture
def open_on(
    viewer: Viewer, image_of: Any, open_widget: Callable[[], CentroidEncoderWidget]
) -> Callable[[AnnData], CentroidEncoderWidget]:
    """Open the widget on the layer "nuclei" with a table in its metadata."""

    def open_(adata: AnnData) -> CentroidEncoderWidget:
        viewer.add_labels(image_of(adata), name="nuclei", metadata={"adata": adata})
        return open_widget()

    return open_


@pytest.fixture
def table(cells: AnnData) -> AnnData:
    """Cells of three kinds in ``obs["truth"]``, without a layer."""
    cells.obs["truth"] = cells.obs.pop("cell_type").astype(str)
    return cells


@pytest.fixture
def run(qtbot: QtBot) -> Callable[[CentroidEncoderWidget, Callable[[], None]], None]:
    """Press a button or choose an entry of the menu, and wait for the end of the job."""

    def run(widget: CentroidEncoderWidget, act: Callable[[], None]) -> None:
        act()
        assert widget.training is not None, widget.message.text()
        qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)

    return run


@pytest.fixture
def check(run: Callable[..., None]) -> Callable[[CentroidEncoderWidget], None]:
    return lambda widget: run(widget, widget.training_panel.check_action.trigger)


@pytest.fixture
def train(run: Callable[..., None]) -> Callable[[CentroidEncoderWidget], None]:
    return lambda widget: run(widget, widget.training_panel.train_button.click)


@pytest.fixture
def save(qtbot: QtBot) -> Callable[[CentroidEncoderWidget, Path], None]:
    """Save the table, and wait until the file is written."""

    def run(widget: CentroidEncoderWidget, path: Path) -> None:
        widget.save_row.save_table(path)
        qtbot.waitUntil(lambda: widget.save_row.task is None, timeout=60_000)
        assert widget.save_row.message.text() == f"Saved {path.name}."

    return run
