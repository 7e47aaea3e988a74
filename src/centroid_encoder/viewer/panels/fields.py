"""Forms, boxes and buttons, and their layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anndata import AnnData
from magicgui.widgets import ComboBox
from magicgui.widgets.bases import ValueWidget
from qtpy.QtCore import QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QCompleter,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QMenu,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from centroid_encoder._signature import parameters, plain

LONGEST_LABEL = "Unlabelled class"
"""The longest of the labels; it sets the width of all."""
MENU_BUTTON = """
QPushButton { padding-right: 18px; }
QPushButton::menu-indicator {
    subcontrol-origin: padding; subcontrol-position: center right; right: 4px;
}
"""
"""Style of a button with a menu: in napari's style, the arrow touches the text."""


class Form(QWidget):
    """Fields for the keyword arguments of functions of `tl`, named like the parameters.

    The field ``features`` stands for the parameters `use_rep`, `layer` and `use_raw`; its values
    are ``"X"``, ``"raw"``, ``"layers: …"`` and ``"obsm: …"``.
    """

    setting_changed = Signal()
    """A value was changed."""

    def __init__(self, functions: Sequence[str], *fields: ValueWidget[Any]) -> None:
        super().__init__()
        self.fields = {field.name: field for field in fields}
        self._defaults = {field.name: field.value for field in fields}
        docs = {name: entry[2] for f in functions for name, entry in parameters(f).items()}
        for field in fields:
            if field.name in docs and not field.tooltip:
                # Show the name of the parameter, which messages use and the label may not.
                field.tooltip = f"{field.name}: {plain(docs[field.name])}"
            field.changed.connect(lambda _: self.setting_changed.emit())
            field.native.setAccessibleName(field.label)
            field.native.setMinimumWidth(70)
            field.native.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            if isinstance(field, ComboBox):
                keep_narrow(field.native)

    def arguments(self, function: str) -> dict[str, Any]:
        """Return the keyword arguments of a function that differ from the first values."""
        known = parameters(function)
        kind, _, name = str(self.fields["features"].value).partition(": ")
        arguments: dict[str, dict[str, Any]] = {
            "X": {"use_rep": "X"},
            "raw": {"use_raw": True},
            "layers": {"layer": name},
            "obsm": {"use_rep": name},
        }
        chosen = arguments.get(kind, {})
        for name, field in self.fields.items():
            value = field.value.strip() if isinstance(field.value, str) else field.value
            value = round(value, 4) if isinstance(value, float) else value
            if name in known and value not in ("", self._defaults[name]):
                chosen[name] = value
        return chosen

    def point_at(self, name: str) -> None:
        """Set the focus to the field of a parameter, if there is one, and show what it is in."""
        name = "features" if name in ("use_rep", "layer", "use_raw") else name
        if name in self.fields:
            field = part = self.fields[name].native
            while not part.isWindow():
                part = part.parentWidget()
                part.show()
            field.setFocus()


class Choice(QComboBox):
    """A box to choose an object from.

    `name` is for screen readers, `tip` is the tooltip. `act` is called with the chosen object.
    """

    def __init__(self, name: str, tip: str, act: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self._entries: list[tuple[str, object]] = []
        self.setAccessibleName(name)
        self.setToolTip(tip)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        keep_narrow(self)
        if act is not None:
            self.currentIndexChanged.connect(lambda: act(self.value))

    def offer(self, entries: Iterable[tuple[str, object]], chosen: object) -> None:
        """Replace the (text, object) entries and choose an object, without a signal."""
        entries = list(entries)
        with signals_blocked(self):
            if entries != self._entries:  # Thousands of entries take long.
                self._entries = entries
                self.clear()
                self.addItems([text for text, _ in entries])
            self.setCurrentIndex(self._place(chosen))

    @property
    def value(self) -> Any:
        """The chosen object, or None."""
        return self._entries[self.currentIndex()][1] if self.currentIndex() >= 0 else None

    def choose(self, value: object) -> None:
        """Choose an object and emit the signal; do nothing if it is not offered."""
        if (place := self._place(value)) >= 0:
            self.setCurrentIndex(place)

    def _place(self, value: object) -> int:
        """Return the index of the entry for an object; −1 if it is not offered."""
        return next((i for i, (_, other) in enumerate(self._entries) if other == value), -1)


class Search(Choice):
    """A `Choice` in which one types a part of an entry; Enter takes the one that fits best.

    The same name comes before one that begins with the typed words, then one that begins with the
    text, then one that contains it. Upper and lower case are the same.
    """

    def __init__(self, name: str, tip: str, act: Callable[[Any], None] | None = None) -> None:
        super().__init__(name, tip, act)
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.setMaxVisibleItems(20)
        # The completer of superqt's QSearchableComboBox has no parent: its list is never deleted.
        found = QCompleter(self.model(), self)
        found.setFilterMode(Qt.MatchFlag.MatchContains)
        found.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        found.setCompletionMode(QCompleter.CompletionMode.PopupCompletion)
        self.setCompleter(found)
        self.matches: Any = found.popup()
        """The list of entries that contain what was typed."""
        line = self.lineEdit()
        assert line is not None
        self._line = line
        line.editingFinished.connect(self._take_best)
        line.textChanged.connect(self._show_start)

    def _take_best(self) -> None:
        """Choose the entry that fits the text best, or else the last chosen one."""
        text, at = self.currentText().strip().lower(), self.currentIndex()
        texts = [entry.lower() for entry, _ in self._entries]
        words = re.compile(rf"{re.escape(text)}(?![^\W_])")
        ways = (text.__eq__, words.match, lambda one: one.startswith(text), lambda one: text in one)
        # The chosen entry comes before others with the same name.
        order = sorted(range(self.count()), key=lambda i: i != at)
        chosen = next((i for fits in ways for i in order if text and fits(texts[i])), at)
        self.setCurrentIndex(chosen)
        self.setEditText(self.itemText(chosen))
        self._line.setCursorPosition(0)

    def _show_start(self) -> None:
        """Show the beginning of a name that is too long, unless it is being typed."""
        if not self._line.isModified():
            self._line.setCursorPosition(0)


def keep_narrow(box: QComboBox) -> None:
    """Keep a box narrow even if it has long entries."""
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(5)


def offer(box: ComboBox, choices: Sequence[Any], value: Any) -> None:
    """Offer values or (text, value) pairs, and choose one if it is offered, without a signal."""
    with box.changed.blocked():
        # magicgui accepts pairs only if all choices are pairs.
        box.choices = [one if isinstance(one, tuple) else (one, one) for one in choices]
        if value in box.choices:
            box.value = value


def sources(adata: AnnData) -> list[str]:
    """Return the matrices of a table as values of the field ``features``."""
    return [
        *(["X"] if adata.X is not None else []),
        *(["raw"] if adata.raw is not None else []),
        # anndata 0.13 lists X as the layer None.
        *(f"layers: {name}" for name in adata.layers if name is not None),
        *(f"obsm: {name}" for name in adata.obsm),
    ]


def form_layout(*fields: ValueWidget[Any]) -> QFormLayout:
    """Return a form whose fields are aligned with those of all other forms."""
    form = QFormLayout()
    form.setContentsMargins(0, 0, 0, 0)
    form.setVerticalSpacing(4)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
    for field in fields:
        label = form_label(field.label, field.tooltip or "")
        label.setBuddy(field.native)
        form.addRow(label, field.native)
    return form


def form_label(text: str, tooltip: str = "") -> QLabel:
    """Return a label that is as wide as those of all other fields."""
    label = QLabel(text)
    label.setMinimumWidth(label.fontMetrics().horizontalAdvance(LONGEST_LABEL) + 8)
    label.setToolTip(tooltip)
    return label


def column(widget: QWidget, *parts: QWidget | QLayout) -> QVBoxLayout:
    """Fill a widget with parts from top to bottom."""
    layout = QVBoxLayout(widget)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(4)
    for part in parts:
        layout.addLayout(part) if isinstance(part, QLayout) else layout.addWidget(part)
    return layout


def side_by_side(*widgets: QWidget | tuple[QWidget, int]) -> QHBoxLayout:
    """Return a row of widgets, or of (widget, stretch) pairs."""
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(4)
    for widget in widgets:
        row.addWidget(*(widget if isinstance(widget, tuple) else (widget,)))
    return row


def delayed(parent: QObject, milliseconds: int, act: Callable[[], object]) -> QTimer:
    """Return a timer that calls a function once after each start, unless it is started again.

    It ends with its parent; that of `QTimer.singleShot` would not.
    """
    timer = QTimer(parent, interval=milliseconds, singleShot=True)
    timer.timeout.connect(act)
    return timer


def button(text: str, tip: str, act: Callable[[], object] | QMenu) -> QPushButton:
    """Return a button that calls a function or opens a menu."""
    made = QPushButton(text)
    made.setToolTip(tip)
    if isinstance(act, QMenu):
        made.setMenu(act)
        made.setStyleSheet(MENU_BUTTON)
    else:
        made.clicked.connect(lambda: act())
    return made
