"""What viewer tests share: one Qt binding, a real napari window, none of the user's settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from napari import Viewer

# Before anything imports qtpy or napari. The other binding has a process of its own, in
# test_pyqt6.py. Without a settings file, napari neither reads nor writes the user's.
os.environ["QT_API"] = "pyside6"
os.environ["NAPARI_CONFIG"] = ""


@pytest.fixture(scope="session", autouse=True)
def _screen() -> None:
    """Say what is missing; Qt would abort the process, and all its tests with it."""
    variables = "DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"
    if sys.platform == "linux" and not any(map(os.environ.get, variables)):
        pytest.exit("Viewer tests open windows: use `make test`, or `xvfb-run -a pytest`.", 4)


@pytest.fixture
def viewer(make_napari_viewer: Callable[..., Viewer]) -> Viewer:
    """Viewer in a window of its own; napari's fixture closes it and looks for leaks.

    Wait for what its event loop has yet to do with ``qtbot.waitUntil``.
    """
    return make_napari_viewer(show=True)
