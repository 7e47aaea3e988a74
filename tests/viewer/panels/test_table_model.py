"""Tables of many rows in the dock."""

import numpy as np
import pandas as pd
from qtpy.QtWidgets import QApplication, QStackedWidget, QWidget

from centroid_encoder.viewer.panels.table_model import TableView


def test_a_change_of_a_long_table_reads_few_of_its_rows(qtbot, monkeypatch):
    stack, view = QStackedWidget(), TableView("numbers")
    stack.addWidget(QWidget())
    stack.addWidget(view)
    qtbot.addWidget(stack)
    with qtbot.waitExposed(stack):
        stack.show()
    rows = set()
    read = view.frame.data

    def data(index, role=0):
        rows.add(index.row())
        return read(index, role)

    monkeypatch.setattr(view.frame, "data", data)
    table = pd.DataFrame({"name": "cell " + pd.Series(range(5_000)).astype(str), "x": np.pi})
    for is_shown in (False, True):
        stack.setCurrentIndex(is_shown)
        rows.clear()
        view.set_table(table.copy(), [("name", ""), ("x", "")], [])
        QApplication.processEvents()
        assert len(rows) < 100
        assert view.frame.data(view.frame.index(4_999, 0)) == "cell 4999"
        assert view.frame.data(view.frame.index(4_999, 1)) == "3.14"
