"""The features that differ most between the selection and other cells, and what to do with it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from napari.components import ViewerModel
from napari.utils.theme import get_theme
from qtpy.QtCore import QRectF, QSize, Qt, Signal
from qtpy.QtGui import QColor, QPainter, QResizeEvent
from qtpy.QtWidgets import (
    QInputDialog,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from centroid_encoder.viewer.panels.fields import button, column, delayed
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.save import ask_name
from centroid_encoder.viewer.session.groups import Group, compare, free_name, save_effects
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.task import Steps, Task

if TYPE_CHECKING:
    from centroid_encoder.tl._result import Result

N_FEATURES = 5
HEIGHT = 34
"""Height of a feature: its name, and a bar below."""
PAUSE = 200
"""Milliseconds without another selection after which its cells are compared."""
KINDS = "Table (*.csv)"
AREA = Qt.ItemDataRole.UserRole
"""Role of the AUROC of a feature."""
TIPS = {
    "A": "Take the selection as the cells that are compared with B; press again to clear them",
    "B": "Take the selection as the cells that A is compared with; press again to clear them",
}
CAUTION = (
    "These cells were selected by their features, or by predictions from them: the differences are "
    "partly the reason for the selection."
)


class EffectsPanel(QWidget):
    """The features with the largest effect, and buttons that the parent lays out.

    The selection is compared with all other cells, one of two selected classes with the other, or
    the set A with the set B. `table` holds all features, see `compare`; None while there is none.
    """

    feature_clicked = Signal(str)

    def __init__(self, session: Session, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self.sets: dict[str, Group] = {}
        """The sets A and B, as far as they were chosen."""
        self.table: pd.DataFrame | None = None
        self._notes = ""
        self._task: Task | None = None
        self._drawn: Result | None = None
        """The map whose features are compared."""
        self.text = Message()
        self.view = QListWidget()
        self.view.setAccessibleName("Features that differ most")
        self.view.setItemDelegate(_Bars(self.view, viewer))
        self.view.setFlow(QListWidget.Flow.LeftToRight)
        self.view.setMouseTracking(True)
        self.view.setFrameShape(QListWidget.Shape.NoFrame)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setFixedHeight(HEIGHT)
        self.view.itemClicked.connect(self._on_feature)
        self.view.itemActivated.connect(self._on_feature)
        self.set_buttons = {
            name: button(name, tip, partial(self._set, name)) for name, tip in TIPS.items()
        }
        for one in self.set_buttons.values():
            one.setCheckable(True)
        self.keep_button = button("Keep as group", "", self._ask_group)
        tip = "Write the effects of all features as .csv"
        self.save_button = button("Save table …", tip, self._ask_file)
        column(self, self.text, self.view)
        self._settled = delayed(self, PAUSE, self._compare)
        session.selection_changed.connect(self._on_groups)
        session.shown_changed.connect(self._on_shown)
        session.table_changed.connect(self._on_table)
        self._on_groups()

    @property
    def groups(self) -> tuple[Group, Group] | None:
        """The groups to compare, if there are two."""
        session, group = self._session, self._session.group
        n = int(group.rows.sum())
        if n == 1:
            return None
        if len(self.sets) == 2:
            return self.sets["A"], self.sets["B"]
        if len(session.parts) == 2:
            return session.parts
        return (group, Group(~group.rows, "rest")) if 1 < n < len(group.rows) else None

    def _on_table(self) -> None:
        self.sets.clear()
        self._on_groups()

    def _on_shown(self) -> None:
        """Compare again in the features of another map."""
        if self._session.drawn is not self._drawn:
            self._on_groups()

    def _on_groups(self) -> None:
        """Compare other groups, once they have not changed for a while."""
        if self._task is not None:
            self._task.cancel()
        self._task = self.table = None
        self._drawn = self._session.drawn
        groups, self._notes = self.groups, ""
        self._settled.stop() if groups is None else self._settled.start()
        named = [f"{group.how} ({group.n:,})" for group in groups or ()]
        self.text.say("" if groups is None or groups[1].how == "rest" else " against ".join(named))
        several = int(self._session.selected.sum()) > 1
        for name, one in self.set_buttons.items():
            group = self.sets.get(name)
            one.setVisible(several or len(self.sets) == 2)
            one.setChecked(group is not None)
            one.setText(name if group is None else f"{name} {group.n:,}")
            one.setToolTip(f"{TIPS[name]}" if group is None else f"{group.how}\n{TIPS[name]}")
        self.keep_button.setVisible(several)
        how = self._session.how
        self.keep_button.setToolTip(f"Write the selected cells ({how}) as a column of the table")
        self._show()

    def _compare(self) -> None:
        """Compare the groups in a thread."""
        groups, session = self.groups, self._session
        if groups is None or not session.catalog.check_cells() or session.drawn_adata is None:
            return

        def on_end(found: tuple[pd.DataFrame, str] | None, error: Exception | None) -> None:
            self._task = None
            if found is not None:
                self.table, self._notes = found
            else:
                self._notes = str(error)
            self._show()

        adata, result = session.drawn_adata, session.drawn

        def work(steps: Steps) -> tuple[pd.DataFrame, str]:
            return compare(adata, result, *groups, lambda _: steps(None))

        self._task = Task(work, on_end, self)

    def _show(self) -> None:
        """Show the features that were found; keep the height while they are to come."""
        table, groups = self.table, self.groups
        shown = [] if table is None else [*table.dropna(subset="auroc")[:N_FEATURES].itertuples()]
        self.view.clear()
        for one in shown:
            item = QListWidgetItem(str(one.Index), self.view)
            item.setData(AREA, one.auroc)
            item.setToolTip(_line(one))
        is_due = self._task is not None or self._settled.isActive()
        self.view.setVisible(groups is not None and (is_due or bool(shown)))
        self.save_button.setVisible(self.view.isVisibleTo(self))
        self.save_button.setEnabled(bool(shown))
        if groups is not None:
            cautious = any(x.uses_features for x in groups if x.how != "rest")
            lines = f"{groups[0].how} against {groups[1].how}", CAUTION * cautious, self._notes
            self.view.setToolTip("\n".join(filter(None, lines)))

    def _set(self, name: str) -> None:
        """Make the selection the set A or B, or clear the set."""
        if not self._session.catalog.check_cells():
            return
        if self.sets.pop(name, None) is None:
            group = self._session.group
            self.sets[name] = replace(group, how=f"{name}: {group.how}")
        self._on_groups()

    def _on_feature(self, item: QListWidgetItem) -> None:
        self.feature_clicked.emit(item.text())

    def _ask_group(self) -> None:
        if (adata := self._session.adata) is not None:
            name, is_given = QInputDialog.getText(
                self, "Keep as group", "Name of the column", text=free_name(adata)
            )
            if is_given:
                self._session.keep_group(name)

    def _ask_file(self) -> None:
        ask_name(self, "effects.csv", KINDS, self.save)

    def save(self, path: Path) -> None:
        """Write the effects of all features; errors are shown as messages."""
        if self.table is not None:
            try:
                save_effects(self.table, path)
            except (OSError, ValueError) as error:
                self._session.say(error, "error")
            else:
                self._session.say(f"Saved {path.name}.")

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the width among the features."""
        super().resizeEvent(event)
        self.view.setGridSize(QSize(self.width() // N_FEATURES, HEIGHT))


class _Bars(QStyledItemDelegate):
    """Draws the name of a feature, and below it a bar from the middle: 0.5 is no difference."""

    def __init__(self, parent: QWidget, viewer: ViewerModel) -> None:
        super().__init__(parent)
        self._viewer = viewer

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Any) -> None:
        """Draw a feature."""
        theme = get_theme(self._viewer.theme)
        area, box = float(index.data(AREA)), QRectF(option.rect).adjusted(0, 0, -4, 0)
        is_under = bool(
            option.state & (QStyle.StateFlag.State_MouseOver | QStyle.StateFlag.State_HasFocus)
        )
        page = theme.primary if is_under else theme.foreground
        painter.save()
        painter.fillRect(box, QColor(page.as_hex("long")))
        painter.setPen(QColor(theme.text.as_hex("long")))
        font = painter.font()
        font.setPixelSize(11)
        painter.setFont(font)
        inner = box.adjusted(4, 1, -4, -1)
        middle = Qt.TextElideMode.ElideMiddle
        name = painter.fontMetrics().elidedText(index.data(), middle, int(inner.width()))
        top = Qt.AlignmentFlag.AlignTop
        painter.drawText(inner, top, name)
        number = f"{'▲' if area > 0.5 else '▼'} {area:.2f}"
        painter.drawText(inner, Qt.AlignmentFlag.AlignBottom, number)
        left = inner.left() + painter.fontMetrics().horizontalAdvance(number) + 6
        half = max((inner.right() - left) / 2, 1)
        bar = QRectF(left + half, box.bottom() - 11, 2 * (area - 0.5) * half, 6)
        painter.fillRect(bar.normalized(), QColor(theme.current.as_hex("long")))
        painter.fillRect(QRectF(left + half, box.bottom() - 13, 1, 10), painter.pen().color())
        painter.restore()


def _line(one: Any) -> str:
    """Describe a feature in a few lines."""
    return (
        f"{one.Index}\n{one.group}: mean {one.mean:.3g}, above zero {one.share_above_zero:.0%}\n"
        f"{one.other}: mean {one.mean_other:.3g}, above zero {one.share_above_zero_other:.0%}\n"
        f"AUROC {one.auroc:.3f}; difference of the means {one.difference_in_sd:.2f} standard "
        "deviations\nA click colours map and image by it"
    )
