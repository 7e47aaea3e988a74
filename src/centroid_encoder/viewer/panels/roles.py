"""Show which columns of a table are features, and let the user choose."""

from __future__ import annotations

from functools import partial
from typing import get_args

import pandas as pd
from qtpy.compat import isalive
from qtpy.QtCore import QModelIndex
from qtpy.QtWidgets import QDialog, QMenu

from centroid_encoder.tables import ROLES, Role
from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State

HEADERS = [
    ("column", ""),
    ("role", "What the column holds; click to change it"),
    ("reason", "Why it has this role"),
]
COLUMN, ROLE = 0, 1
HINT = (
    "Click a role to choose another one; only features are learned from. An image may also be a "
    "donor, a well or another group of cells."
)


class RolesDialog(QDialog):
    """A row for each column of the table; a click changes its role."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.setWindowTitle("Centroid-Encoder: columns")
        self.resize(640, 480)
        self.view, self.text = TableView("Columns of the table"), Message()
        self.view.clicked.connect(self._on_clicked)
        self.text.say(HINT)
        column(self, self.view, self.text)
        session.show_in(self.show_state)
        self._show()

    def show_state(self, before: State, now: State) -> None:
        """Show the columns of another table."""
        if now.differs(before, "cells") and isalive(self):  # type: ignore[no-untyped-call]
            self._show()

    def _show(self) -> None:
        adata = self._session.adata
        if adata is None or ROLES not in adata.uns:
            self.close()
            return
        found = adata.uns[ROLES]
        reasons = found["reason"].where(~found["doubt"], "in doubt: " + found["reason"])
        rows = zip(found["column"], found["role"], reasons, strict=True)
        table = pd.DataFrame(list(rows), columns=range(len(HEADERS)))
        self.view.set_table(table, HEADERS, [0, 2])

    def choose(self, name: str, role: Role) -> None:
        """Give a column another role."""
        self._session.choose_roles({name: role})

    def _on_clicked(self, index: QModelIndex) -> None:
        if index.column() == ROLE:
            name = self.view.frame.table.iloc[index.row(), COLUMN]
            menu = QMenu(self)
            for other in get_args(Role):
                menu.addAction(other, partial(self.choose, name, other))
            self.view.open_menu(menu, index)
