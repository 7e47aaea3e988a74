"""The classes in lines: colours, numbers of cells and errors, and a switch for each class."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from qtpy.QtCore import QPoint, Qt
from qtpy.QtGui import QColor, QIcon, QPixmap
from qtpy.QtWidgets import (
    QColorDialog,
    QInputDialog,
    QListWidget,
    QListWidgetItem,
    QMenu,
    QWidget,
)
from superqt.utils import signals_blocked

from centroid_encoder.tables import obs_key
from centroid_encoder.tl._result import SELECTIONS
from centroid_encoder.viewer.data.columns import name_of
from centroid_encoder.viewer.panels.fields import side_by_side
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.session.corrections import corrected_colors
from centroid_encoder.viewer.session.groups import Group
from centroid_encoder.viewer.session.labeling import Labeling
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State

TIP = (
    "A click selects the cells of a class, Ctrl + click those of one more, to compare both. A "
    "double click shows the class alone. Untick a class to hide it. A right click opens a menu: "
    "colour, name, image …"
)
HEIGHT = 52
"""Height of three lines of classes in pixels; more classes are scrolled."""


class ClassList(QWidget):
    """The classes of the session in lines, as a legend; `rows` are those of `class_table`."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.rows: list[Any] = []
        self.view = QListWidget()
        self.view.setAccessibleName("Classes")
        self.view.setFlow(QListWidget.Flow.LeftToRight)
        self.view.setWrapping(True)
        self.view.setResizeMode(QListWidget.ResizeMode.Adjust)
        self.view.setSelectionMode(QListWidget.SelectionMode.ExtendedSelection)
        self.view.setFrameShape(QListWidget.Shape.NoFrame)
        self.view.setToolTip(TIP)
        self.view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.view.customContextMenuRequested.connect(self._on_menu)
        self.view.itemPressed.connect(self._on_press)
        self.view.itemClicked.connect(self._on_click)
        self.view.itemDoubleClicked.connect(lambda item: self._show_alone(self.view.row(item)))
        self.view.itemChanged.connect(self._on_ticked)
        self._clicked_box = False
        self.image: object = None
        """The image whose cells are counted; None for all images."""
        self.image_text = Message()
        # The map keeps its size, whatever the number of classes is.
        self.view.setFixedHeight(HEIGHT)
        self.setLayout(side_by_side((self.view, 3), (self.image_text, 1)))
        session.show_in(self.show_state)
        self._on_classes()

    def show_state(self, before: State, now: State) -> None:
        """Show other classes, and which of them are hidden."""
        parts = "cells", "result", "draft", "check", "labels", "label_key", "labeling"
        if now.differs(before, "links", "regions", *parts):
            self._on_classes()
        elif now.differs(before, "hidden"):
            self._show()
        if now.differs(before, "group"):
            chosen = {part.how for part in now.parts}
            with signals_blocked(self.view):
                for i, row in enumerate(self.rows):
                    self.view.item(i).setSelected(row.name in chosen)

    @property
    def _images(self) -> dict[str, object]:
        """The images of the table by their names."""
        images = self._session.catalog.images()
        return {image.name: image.value for image in images if image.value is not None}

    def count_in(self, image: object) -> None:
        """Count the cells of one image; None counts those of all images."""
        self.image = image
        self._on_classes()

    def _on_classes(self) -> None:
        """Show the classes, with the numbers of their cells in the chosen image."""
        names: list[str] = []
        if self.image is not None:
            names = [name for name, value in self._images.items() if value == self.image]
        if not names:
            self.image = None
        self.image_text.say("".join(f"Cells of {name} are counted." for name in names[:1]))
        self.set_classes(class_table(self._session, self.image))

    def set_classes(self, classes: pd.DataFrame) -> None:
        """Show other classes, or the same ones with other colours and numbers."""
        rows = list(classes.itertuples(index=False))
        same = [row.name for row in rows] == [row.name for row in self.rows]
        self.rows = rows
        if not same and self._session.state.hidden:
            # Other classes are all visible at first.
            self._session.set(hidden=frozenset())
        self.setVisible(self._session.adata is not None)
        self._show()

    def select(self, rows: Iterable[int]) -> None:
        """Select the cells of some classes."""
        session, rows = self._session, sorted(rows)
        labeling = session.state.labeling
        codes = session.shown_codes if labeling is None else labeling.codes
        shown, uns = session.shown_labels, {} if session.adata is None else session.adata.uns
        # Predictions and kept groups are no labels of the user.
        predicted = str(shown).removesuffix(obs_key("", "label")) in uns
        predicted |= shown in uns.get(SELECTIONS, {})
        parts = tuple(Group(codes == i, self.rows[i].name, predicted) for i in rows)
        cells, how = np.flatnonzero(np.isin(codes, rows)), " and ".join(x.how for x in parts)
        session.select(cells, how=f"class {how}", uses_features=predicted, parts=parts)

    def menu(self, row: int) -> QMenu:
        """Return the menu of a class."""
        session, one, menu = self._session, self.rows[row], QMenu(self)
        menu.addAction("Select its cells", lambda: self.select([row]))
        menu.addAction("Show alone, or all", lambda: self._show_alone(row))
        menu.addAction("Colour …", lambda: self._ask_color(row))
        menu.addAction("Rename …", lambda: self._ask_name(row))
        merge = menu.addMenu("Merge into")
        for other in self.rows:
            if other.name != one.name and not other.is_gone:
                merge.addAction(other.name, partial(session.merge_class, one.name, other.name))
        if session.state.labeling is not None:
            menu.addAction("Key …", lambda: self._ask_key(row))
            remove = partial(Labeling.remove_class, name=one.name)
            menu.addAction("Remove, with its labels", partial(session.change_labels, remove))
        if images := self._images:
            counted = menu.addMenu("Count the cells of")
            for name, image in {"all images": None, **images}.items():
                counted.addAction(name, partial(self.count_in, image))
        return menu

    def _on_press(self, _: QListWidgetItem) -> None:
        self._clicked_box = False

    def _on_click(self, _: QListWidgetItem) -> None:
        if not self._clicked_box:
            self.select([index.row() for index in self.view.selectedIndexes()])

    def _on_ticked(self, item: QListWidgetItem) -> None:
        self._clicked_box = True
        name = self.rows[self.view.row(item)].name
        self._session.set(hidden=self._session.state.hidden ^ {name})

    def _on_menu(self, at: QPoint) -> None:
        if (item := self.view.itemAt(at)) is not None:
            menu = self.menu(self.view.row(item))
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.popup(self.view.viewport().mapToGlobal(at))

    def _show_alone(self, row: int) -> None:
        """Show a class alone, or all classes if it is alone already."""
        others = frozenset(other.name for other in self.rows) - {self.rows[row].name}
        is_alone = self._session.state.hidden == others
        self._session.set(hidden=frozenset() if is_alone else others)

    def _ask_color(self, row: int) -> None:
        one = self.rows[row]
        color = QColorDialog.getColor(QColor(one.color), self, f"Colour of {one.name}")
        if not color.isValid():
            return
        if self._session.state.labeling is None:
            self._session.recolor_class(row, color.name())
        else:
            recolor = partial(Labeling.recolor_class, name=one.name, color=color.name())
            self._session.change_labels(recolor)

    def _ask_name(self, row: int) -> None:
        name = self.rows[row].name
        new, is_given = QInputDialog.getText(
            self, "Rename a class", f"New name of {name}", text=name
        )
        if is_given and new.strip() != name:
            self._session.rename_class(name, new)

    def _ask_key(self, row: int) -> None:
        one = self.rows[row]
        key, is_given = QInputDialog.getText(
            self, "Key of a class", f"Letter or digit that labels cells as {one.name}", text=one.key
        )
        if is_given:
            self._session.change_labels(partial(Labeling.set_key, name=one.name, key=key))

    def _show(self) -> None:
        hidden = self._session.state.hidden
        with signals_blocked(self.view):
            for i, row in enumerate(self.rows):
                if i == self.view.count():
                    self.view.addItem("")
                item = self.view.item(i)
                patch = QPixmap(12, 12)
                patch.fill(QColor(row.color))
                item.setIcon(QIcon(patch))
                error = row.error if pd.notna(row.error) else row.out_of_fold
                percent = "" if pd.isna(error) else f"  {100 * error:.0f} %"
                key = f"{row.key} · " if row.key else ""
                item.setText(f"{key}{row.name}  {row.n:,}{percent}")
                item.setToolTip(_explain(row))
                ticked = Qt.CheckState.Unchecked if row.name in hidden else Qt.CheckState.Checked
                item.setCheckState(ticked)
                item.setHidden(row.is_gone)
            while self.view.count() > len(self.rows):
                self.view.takeItem(self.view.count() - 1)


def class_table(session: Session, image: object = None) -> pd.DataFrame:
    """Return a row for each class: those made by hand, of the map, or of the chosen labels.

    The columns are ``name``, ``color``, ``key`` (that labels cells), ``n`` (number of cells, in
    one `image` or in all images), ``is_gone`` (whether the class was renamed or merged, and only
    the map still has it), ``error`` (held-out error by the rule in the title of the map) and
    ``out_of_fold`` (cross-validated error by the same rule). An unknown error is NaN.
    """
    adata, shown, image_column = session.adata, session.shown_labels, session.catalog.image_column
    drawn, check, labeling = session.state.drawn, session.state.check, session.state.labeling
    colors, keys = session.class_colors, {}
    if labeling is not None and labeling.is_there:
        by_hand, codes = labeling.classes, labeling.codes
        colors = {one.name: one.color for one in by_hand}
        keys = {one.name: one.key for one in by_hand}
    else:
        codes = session.shown_codes
    table = pd.DataFrame({"color": pd.Series(colors, dtype=object)})
    if adata is None or not len(table):
        columns = ["name", "color", "key", "n", "is_gone", "error", "out_of_fold"]
        return pd.DataFrame(columns=columns)
    table.insert(0, "name", table.index.map(str))
    table["key"] = [keys.get(name, "") for name in table["name"]]
    if image is not None and image_column is not None:
        codes = codes[(adata.obs[image_column].map(name_of) == name_of(image)).to_numpy()]
    table["n"] = np.bincount(codes + 1, minlength=len(table) + 1)[1:]
    known = [] if shown is None else list(corrected_colors(adata, shown))
    table["is_gone"] = (table["n"] == 0) & ~table.index.isin(known) & (labeling is None)
    error, table["error"], table["out_of_fold"] = f"{session.rule[0]}_error", np.nan, np.nan
    if labeling is not None:
        return table.reset_index(drop=True)
    if drawn is not None and (quality := drawn.stored.quality) is not None:
        name = f"{drawn.stored.held_out}_{error}"
        errors = quality["per_class"][name].to_numpy(float)
        table["error"] = pd.Series(errors, drawn.stored.classes).reindex(table.index)
    # A check of other labels has no errors of these classes.
    if check is not None and check.label_key == shown:
        errors = check.per_class.set_index("class")[error].astype(float)
        table["out_of_fold"] = errors.reindex(table["name"]).to_numpy()
    return table.reset_index(drop=True)


def _explain(row: Any) -> str:
    """Return what is known about a class, one fact per line."""
    lines = [row.name, f"labelled cells: {row.n:,}"]
    if pd.notna(row.error):
        lines.append(f"held-out cells of this class predicted wrongly: {100 * row.error:.1f} %")
    if pd.notna(row.out_of_fold):
        lines.append(f"the same by Check labels: {100 * row.out_of_fold:.1f} %")
    return "\n".join([*lines, "", TIP])
