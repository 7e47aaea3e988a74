"""The window with the roles of the columns, where the user chooses the features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication, QMenu, QTableView

from centroid_encoder.viewer import CentroidEncoderWidget
from tests.viewer.seen import open_table


@pytest.fixture
def widget(
    open_widget: Callable[[], CentroidEncoderWidget], tmp_path: Path
) -> CentroidEncoderWidget:
    """The widget with a table of another program, whose columns have roles."""
    rng = np.random.default_rng(0)
    columns = {f"CD{i}": rng.normal(5, 1, 60) for i in range(4)}
    known = {
        "comment": "stained twice",
        "cell_id": np.arange(1, 61),
        "batch_effect": rng.normal(size=60),
    }
    table = pd.DataFrame(known | columns | {"cell_type": ["T", "B"] * 30})
    table.to_csv(tmp_path / "cells.csv", index=False)
    widget = open_widget()
    open_table(widget.catalog, tmp_path / "cells.csv")
    return widget


def columns(view: QTableView) -> dict[str, tuple[int, str, str]]:
    """Return row, role and reason of each column that is listed."""
    model = view.model()
    texts = [
        [str(model.index(i, j).data()) for j in range(model.columnCount())]
        for i in range(model.rowCount())
    ]
    return {name: (i, role, reason) for i, (name, role, reason) in enumerate(texts)}


def test_a_click_on_a_role_changes_it(widget: CentroidEncoderWidget, qtbot: QtBot) -> None:
    session = widget.session
    widget.training_panel.columns_action.trigger()
    view = next(
        x for x in widget.findChildren(QTableView) if x.accessibleName() == "Columns of the table"
    )
    qtbot.waitUntil(view.isVisible)

    def choose(name: str, role: str) -> None:
        row = columns(view)[name][0]
        view.scrollTo(view.model().index(row, 1))
        place = view.visualRect(view.model().index(row, 1)).center()
        qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
        menu = QApplication.activePopupWidget()
        assert isinstance(menu, QMenu)
        next(action for action in menu.actions() if action.text() == role).trigger()
        menu.close()

    assert {name: role for name, (_, role, _) in columns(view).items()} == {
        "comment": "text", "cell_id": "id", "batch_effect": "feature",
        **{f"CD{i}": "feature" for i in range(4)}, "cell_type": "class",
    }  # fmt: skip
    assert columns(view)["cell_id"][2]
    choose("batch_effect", "text")
    assert columns(view)["batch_effect"][1] == "text"
    assert session.adata is not None
    assert list(session.adata.var_names) == [f"CD{i}" for i in range(4)]
    assert "batch_effect" in session.adata.obs
    # The learned features do not change below labels that are given by hand.
    session.start_labeling()
    choose("CD0", "text")
    assert columns(view)["CD0"][1] == "feature"
    assert widget.message.kind == "error"
    session.end_labeling()
    choose("batch_effect", "feature")
    assert "batch_effect" in session.adata.var_names
