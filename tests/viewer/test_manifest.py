from __future__ import annotations

import pytest
from app_model.registries import MenusRegistry
from app_model.types import MenuItem
from napari import Viewer
from napari._app_model import get_app_model
from pytestqt.qtbot import QtBot
from qtpy.QtGui import QAction
from qtpy.QtWidgets import QMenu

from centroid_encoder.viewer import CentroidEncoderWidget


def submenu(menu: QMenu, *path: str) -> QMenu:
    for title in path:
        menu.aboutToShow.emit()
        (menu,) = [action.menu() for action in menu.actions() if action.text() == title]
    menu.aboutToShow.emit()
    return menu


def entry(menu: QMenu) -> QAction:
    """The entry of the plugin."""
    (action,) = [a for a in menu.actions() if a.text().endswith("(Centroid-Encoder)")]
    return action


def widgets(viewer: Viewer) -> list[CentroidEncoderWidget]:
    docks = viewer.window._wrapped_dock_widgets.values()
    return [dock.inner_widget() for dock in docks if dock.isVisible()]


@pytest.mark.parametrize("title", ["Visualize", "Classify"])
def test_menu_entry_opens_and_hides_the_widget(viewer: Viewer, qtbot: QtBot, title: str):
    menu = submenu(viewer.window.layers_menu, title)
    entry(menu).trigger()
    qtbot.waitUntil(lambda: len(widgets(viewer)) == 1)
    (widget,) = widgets(viewer)
    assert isinstance(widget, CentroidEncoderWidget)
    menu.aboutToShow.emit()
    assert entry(menu).isChecked()
    entry(menu).trigger()
    qtbot.waitUntil(lambda: not widgets(viewer))
    entry(menu).trigger()
    qtbot.waitUntil(lambda: widgets(viewer) == [widget])


def test_all_menu_entries_open_the_same_widget(viewer: Viewer, qtbot: QtBot):
    layers = viewer.window.layers_menu
    entry(submenu(layers, "Visualize")).trigger()
    qtbot.waitUntil(lambda: len(widgets(viewer)) == 1)
    for menu in (submenu(layers, "Classify"), viewer.window.plugins_menu):
        shown = len(widgets(viewer))
        entry(menu).trigger()
        qtbot.waitUntil(lambda before=shown: len(widgets(viewer)) == 1 - before)


def test_samples_are_offered(viewer: Viewer):
    samples = submenu(viewer.window.file_menu, "Open Sample", "Centroid-Encoder")
    titles = [action.text() for action in samples.actions()]
    assert titles == ["Synthetic tissue (2,400 cells)", "PBMC 68k (700 cells)"]


def test_command_palette_cannot_run_the_reader(viewer: Viewer):
    palette = get_app_model().menus.get_menu(MenusRegistry.COMMAND_PALETTE_ID)
    commands = {item.command.id: item.command for item in palette if isinstance(item, MenuItem)}
    assert commands["centroid-encoder.widget"].enablement is None
    assert not commands["centroid-encoder.read_h5ad"].enablement.eval({})
