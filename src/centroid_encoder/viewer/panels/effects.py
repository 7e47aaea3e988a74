"""Compare the selection with other cells, and keep it as a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pandas as pd
from qtpy.QtCore import QModelIndex, Qt
from qtpy.QtWidgets import QInputDialog, QWidget

from centroid_encoder.viewer.latest import Latest
from centroid_encoder.viewer.panels.fields import button, side_by_side
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.save import ask_name
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.groups import N_BEST, Group, compare
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State
from centroid_encoder.viewer.task import Task

LINE = 16
"""Height of the line of a feature."""
PAUSE = 200
"""Milliseconds without another selection after which its cells are compared."""
TIP = "Make the selection the set {}, to compare A with B. Another click clears the set"
TIP_OF_AUROC = (
    "The share of pairs of cells, one of each group, in which the cell of the first group has the "
    "higher value: 0.5 for no difference"
)
TIP_OF_FEATURE = (
    "{feature}\n{group}: mean {mean:.3g}, {share_above_zero:.0%} above zero\n{other}: mean "
    "{mean_other:.3g}, {share_above_zero_other:.0%} above zero\nAUROC {auroc:.3f}, difference of "
    "the means {difference_in_sd:.2f} standard deviations\nA click colours the cells by it."
)


class EffectsPanel(QWidget):
    """A row of buttons for the sets A and B and for the selection.

    The selection is compared with all other cells, one of two selected classes with the other, or
    the set A with the set B. `table` holds all features, see `compare`, or is None. The parent
    lays out `view`, the features with the largest effects; `chosen` is called with that of a click.
    """

    def __init__(self, session: Session, chosen: Callable[[str], object]) -> None:
        super().__init__()
        self._session, self._chosen = session, chosen
        self.sets: dict[str, Group] = {}
        self.table: pd.DataFrame | None = None
        self.view = TableView("Features that differ most")
        self.view.setStyleSheet(f"font-size: {LINE - 5}px")
        self.view.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.view.verticalHeader().setMinimumSectionSize(LINE)
        self.view.verticalHeader().setDefaultSectionSize(LINE)
        self.view.horizontalHeader().setFixedHeight(LINE + 4)
        self.view.setFixedHeight((N_BEST + 1) * LINE + 6)
        for signal in (self.view.clicked, self.view.activated):
            signal.connect(self._on_feature)
        self.set_buttons = {name: button(name, "", partial(self._set, name)) for name in "AB"}
        for one in self.set_buttons.values():
            one.setCheckable(True)
        self.text = Message(wraps=False)
        self.keep_button = button("Keep as group", "", self._ask_name)
        ask = partial(ask_name, self, "effects.csv", "Table (*.csv)", self.save)
        tip = "Write the differences of all features as a .csv file"
        self.save_button = button("Save table …", tip, ask)
        a, b = self.set_buttons.values()
        self.setLayout(side_by_side(a, b, (self.text, 1), self.keep_button, self.save_button))
        self.comparing = Latest(self, PAUSE)
        session.show_in(self.show_state)
        self._on_groups()

    def show_state(self, before: State, now: State) -> None:
        """Compare other groups, or the features of another map."""
        if now.differs(before, "cells"):
            self.sets.clear()
        is_shown = now.mode == "Explore"
        if is_shown and now.differs(before, "cells", "group", "mode", "drawn"):
            self._on_groups()

    @property
    def groups(self) -> tuple[Group, Group] | None:
        """The groups to compare, or None without two."""
        group, parts = self._session.state.group, self._session.state.parts
        if group.rows.sum() != 1 and len(self.sets) == 2:
            return self.sets["A"], self.sets["B"]
        if len(parts) == 2:
            return parts[0], parts[1]
        return (group, Group(~group.rows, "the rest", False)) if group.rows.sum() > 1 else None

    def _on_groups(self) -> None:
        """Compare other groups, once they have not changed for a while."""
        self.table = None
        groups, group = self.groups, self._session.state.group
        names = "AB" if len(self.sets) == 2 else [one.how for one in groups or ()]
        self.text.say(" against ".join(names))
        for name, one in self.set_buttons.items():
            chosen = self.sets.get(name)
            one.setChecked(chosen is not None)
            one.setText(f"{name} {chosen.rows.sum():,}" if chosen else name)
            one.setToolTip((f"{chosen.how}\n" if chosen else "") + TIP.format(name))
        self.keep_button.setToolTip(f"Write the selection ({group.how}) as a column of the table")
        self.keep_button.setVisible(bool(group.rows.any()))
        now = self._session.state
        if groups is None or now.drawn_adata is None:
            self.comparing.drop()
        else:
            work = partial(compare, now.drawn_adata, now.drawn, groups)
            self.comparing.request(work, self._on_compared)
        self._show()

    def _on_compared(self, table: pd.DataFrame | None, error: Exception | None) -> None:
        self.table = table
        if error is not None:
            self._session.say(error, "error")
        self._show()

    def _show(self) -> None:
        """Show the features that were found; keep the height while they are to come."""
        rows, groups = [], self.groups
        if self.table is not None:
            best = self.table.loc[self.table.attrs["best"]]
            for one in best.reset_index().to_dict("records"):
                number = f"{'▲' if one['auroc'] > 0.5 else '▼'} {one['auroc']:.2f}"
                tip = "\n".join([TIP_OF_FEATURE.format(**one), *self.table.attrs["notes"]])
                rows.append((one["feature"], number, tip))
        shown = pd.DataFrame(rows, columns=["feature", "auroc", "tip"])
        against = "" if groups is None else "B" if len(self.sets) == 2 else groups[1].how
        self.view.set_table(shown, [(f"against {against}", against), ("AUROC", TIP_OF_AUROC)], [0])
        is_due = self.comparing.is_due
        self.view.setVisible(groups is not None and (is_due or bool(rows)))
        self.save_button.setEnabled(bool(rows))
        self.setVisible(groups is not None)

    def _set(self, name: str) -> None:
        """Make the selection the set A or B, or clear the set."""
        if self._session.catalog.check_cells() and self.sets.pop(name, None) is None:
            group = self._session.state.group
            self.sets[name] = replace(group, how=f"{name}: {group.how}")
        self._on_groups()

    def _on_feature(self, index: QModelIndex) -> None:
        self._chosen(self.view.frame.table["feature"].iloc[index.row()])

    def _ask_name(self) -> None:
        if (adata := self._session.adata) is not None:
            free = next(x for i in count(1) if (x := f"selection {i}") not in adata.obs)
            title, text = "Keep as group", "Name of the column"
            name, is_given = QInputDialog.getText(self, title, text, text=free)
            if is_given:
                self._session.keep_group(name)

    def save(self, path: Path) -> None:
        """Write the differences of all features in a thread."""
        from centroid_encoder.viewer._save import save_frame

        table, say = self.table, self._session.say

        def on_end(_: None, error: Exception | None) -> None:
            say(f"Saved {path.name}.") if error is None else say(error, "error")

        if table is not None:
            Task(lambda _: save_frame(table, path), on_end, self)
