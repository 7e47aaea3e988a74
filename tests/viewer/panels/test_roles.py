"""The window with the roles of the columns, where the user chooses the features."""

import numpy as np
import pandas as pd
import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication, QMenu, QTableView

from centroid_encoder.viewer import CentroidEncoderWidget
from tests.viewer.seen import open_table


@pytest.fixture
def widget(open_widget, tmp_path) -> CentroidEncoderWidget:
    """The widget with a table of another program, whose columns have roles."""
    rng = np.random.default_rng(0)
    values = {"comment": "stained twice", "cell_id": np.arange(1, 61)}
    values |= {name: rng.normal(5, 1, 60) for name in ("batch_effect", "CD0", "CD1")}
    values |= {name: rng.uniform(0, 900, 60) for name in ("sdimx", "sdimy")}
    table = pd.DataFrame(values).assign(cell_type=["T", "B"] * 30)
    table.to_csv(tmp_path / "cells.csv", index=False)
    widget = open_widget()
    open_table(widget.catalog, tmp_path / "cells.csv")
    return widget


def columns(view: QTableView) -> dict[str, list[str]]:
    """Return role and reason of each column that is listed."""
    model = view.model()
    rows = [[str(model.index(i, j).data()) for j in range(3)] for i in range(model.rowCount())]
    return {name: rest for name, *rest in rows}


@pytest.mark.slow
def test_a_click_on_a_role_changes_it(widget, qtbot):
    session = widget.session
    widget.training_panel.columns_action.trigger()
    tables = {x.accessibleName(): x for x in widget.findChildren(QTableView)}
    view = tables["Columns of the table"]
    qtbot.waitUntil(view.isVisible)

    def choose(name: str, role: str) -> None:
        index = view.model().index(list(columns(view)).index(name), 1)
        view.scrollTo(index)
        place = view.visualRect(index).center()
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
        menu = QApplication.activePopupWidget()
        assert isinstance(menu, QMenu)
        next(action for action in menu.actions() if action.text() == role).trigger()
        menu.close()

    roles = {"comment": "text", "cell_id": "id", "batch_effect": "feature", "cell_type": "class"}
    assert {name: found[0] for name, found in columns(view).items()} == {
        **roles, "CD0": "feature", "CD1": "feature", "sdimx": "position", "sdimy": "position",
    }  # fmt: skip
    assert columns(view)["cell_id"][1]
    choose("batch_effect", "text")
    assert columns(view)["batch_effect"][0] == "text"
    assert list(session.adata.var_names) == ["CD0", "CD1"]
    assert "batch_effect" in session.adata.obs
    # A pair of axes may be positions, so it is left out and listed.
    for name in ("sdimx", "sdimy"):
        assert columns(view)[name][0] == "position"
        assert columns(view)[name][1].startswith("in doubt")
    choose("sdimx", "feature")
    assert columns(view)["sdimx"] == ["feature", "chosen"]
    assert columns(view)["sdimy"][0] == "position"
    assert "sdimx" in session.adata.var_names
    choose("sdimx", "position")
    # The learned features do not change below labels that are given by hand.
    session.start_labeling()
    choose("CD0", "text")
    assert columns(view)["CD0"][0] == "feature"
    assert widget.message.kind == "error"
    session.end_labeling()
    choose("batch_effect", "feature")
    assert "batch_effect" in session.adata.var_names
