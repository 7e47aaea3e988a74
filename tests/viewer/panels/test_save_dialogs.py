"""The dialogs of Save: Enter writes a file of the proposed name, which can be read."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication, QComboBox, QFileDialog, QLineEdit, QWidget

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.save import TABLES, ask_name


def enter(qtbot: QtBot, act: Callable[[], object], change: Any = lambda dialog: None) -> None:
    """Open a dialog, change it, press Enter in it, and wait until it is closed."""
    act()

    def shown() -> list[QFileDialog]:
        windows = QApplication.topLevelWidgets()
        return [x for x in windows if isinstance(x, QFileDialog) and x.isVisible()]

    qtbot.waitUntil(lambda: bool(shown()))
    (dialog,) = shown()
    # Qt would open it in the folder that was used last.
    dialog.setDirectory(os.getcwd())
    change(dialog)
    qtbot.keyClick(dialog.findChild(QLineEdit), Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not shown())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working folder, in which the dialogs open."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def widget(viewer, open_widget, cells, embed, image_of) -> CentroidEncoderWidget:
    """The widget with a map of cells in two images."""
    done = embed(distance=3.0)
    cells.obs, cells.uns, cells.obsm = done.obs, done.uns, done.obsm
    image, half = image_of(cells), cells.n_obs // 2
    cells.obs["image"] = pd.Categorical(np.where(np.arange(cells.n_obs) < half, "A", "B"))
    for name in "AB":
        own = cells.obs["cell_id"][cells.obs["image"] == name]
        viewer.add_labels(np.where(np.isin(image, own), image, 0), name=f"{name}_mask")
    widget = open_widget()
    widget.show_table(cells, label_key="cell_type")
    return widget


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "name", "read"),
    [
        ("Table as", "cells_ce.h5ad", ad.read_h5ad),
        ("Model as", "map.safetensors", ce.load),
        ("Figure as", "voronoi.png", plt.imread),
        ("Image and map as", "image_and_map.png", plt.imread),
        ("Reliability page as", "reliability.png", plt.imread),
        ("Numbers of cells", "composition.csv", pd.read_csv),
        ("Classes and outlines", "cells.geojson", Path.read_text),
        ("Labels given by hand", "labels.csv", pd.read_csv),
    ],
)
def test_enter_writes_the_file(widget, folder, qtbot, entry, name, read):
    if entry.startswith("Labels"):
        widget.session.start_labeling()
        assert widget.session.change_labels(lambda labels: labels.assign(range(6), "a"))
    actions = widget.save_row.menu.actions()
    (action,) = (x for x in actions if x.text().startswith(entry) and x.isVisible())
    enter(qtbot, action.trigger)
    qtbot.waitUntil(lambda: widget.save_row.task is None, timeout=60_000)
    assert [path.name for path in folder.iterdir()] == [name], widget.save_row.message.text()
    assert read(folder / name) is not None


def test_enter_writes_the_table_of_a_comparison(widget, folder, qtbot):
    widget.select(np.arange(0, 60, 3))
    effects = widget.cells.effects
    qtbot.waitUntil(lambda: effects.save_button.isVisible() and effects.save_button.isEnabled())
    enter(qtbot, effects.save_button.click)
    qtbot.waitUntil(lambda: widget.message.text() == "Saved effects.csv.")
    assert set(pd.read_csv(folder / "effects.csv")["feature"]) == set(
        widget.session.adata.var_names
    )


def type_name(name: str, kind: str = "") -> Callable[[QFileDialog], None]:
    def change(dialog: QFileDialog) -> None:
        line = dialog.findChild(QLineEdit)
        if name:
            line.setText(name)
        if kind:
            # As a user who chooses another kind of file.
            box = dialog.findChild(QComboBox, "fileTypeCombo")
            box.setCurrentText(next(x for x in TABLES.split(";;") if kind in x))
            box.textActivated.emit(box.currentText())

    return change


@pytest.mark.parametrize(
    ("default", "change", "expected"),
    [
        ("a.h5ad", type_name(""), "a.h5ad"),
        ("a.h5ad", type_name("", "csv"), "a.csv"),
        ("a.h5ad", type_name("b", "zarr"), "b.zarr"),
        ("a.h5ad", type_name("b"), "b.h5ad"),
        ("a.csv", type_name(""), "a.csv"),
        ("a.csv", type_name("b"), "b.csv"),
        ("slide.1.h5ad", type_name("", "csv"), "slide.1.csv"),
        ("a.h5ad", type_name("b.zarr"), "b.zarr"),
        ("a.h5ad", type_name("slide.2"), "slide.2.h5ad"),
        ("Upper.H5AD", type_name(""), "Upper.H5AD"),
    ],
)
def test_a_name_ends_as_the_chosen_kind_of_file_does(folder, qtbot, default, change, expected):
    parent, found = QWidget(), list[Path]()
    qtbot.addWidget(parent)
    enter(qtbot, lambda: ask_name(parent, default, TABLES, found.append), change)
    assert found == [folder / expected]


def test_outlines_of_a_visible_image(qtbot, widget, folder):
    row, adata = widget.save_row, widget.session.adata
    enter(qtbot, row.entries["outlines"].trigger)
    qtbot.waitUntil(lambda: row.task is None, timeout=60_000)
    features = json.loads((folder / "cells.geojson").read_text())["features"]
    names = {one["properties"]["name"] for one in features}
    assert names == set(adata.obs_names[adata.obs["image"] == "A"])
    shown = widget.session.class_colors
    for one in features:
        label = adata.obs.loc[one["properties"]["name"], "cell_type"]
        found = one["properties"]["classification"]
        assert found["name"] == label
        assert found["color"] == [round(255 * part) for part in to_rgb(shown[label])]
