from napari import Viewer
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


def test_all_menu_entries_open_and_hide_the_same_widget(viewer, qtbot):
    layers = viewer.window.layers_menu
    menu = submenu(layers, "Visualize")
    entry(menu).trigger()
    qtbot.waitUntil(lambda: len(widgets(viewer)) == 1)
    (widget,) = widgets(viewer)
    assert isinstance(widget, CentroidEncoderWidget)
    menu.aboutToShow.emit()
    assert entry(menu).isChecked()
    for each in (menu, submenu(layers, "Classify"), viewer.window.plugins_menu):
        shown = [] if widgets(viewer) else [widget]
        entry(each).trigger()
        qtbot.waitUntil(lambda shown=shown: widgets(viewer) == shown)
