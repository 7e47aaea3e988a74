"""Fields of forms and their layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anndata import AnnData
from magicgui.widgets import ComboBox
from magicgui.widgets.bases import ValueWidget
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QComboBox,
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

LONGEST_LABEL = "Missing values"
"""The longest label of a field."""
MENU_BUTTON = """
QPushButton { padding-right: 18px; }
QPushButton::menu-indicator {
    subcontrol-origin: padding; subcontrol-position: center right; right: 4px;
}
"""
"""With the style of napari alone, the arrow touches the end of the text."""


class Form(QWidget):
    """Fields for the keyword arguments of functions of `tl`, by the names of the parameters.

    The field ``features`` stands for `use_rep`, `layer` and `use_raw`: it is ``"X"``, ``"raw"``,
    ``"layers: …"`` or ``"obsm: …"``. The docstrings of the functions are the tooltips of the
    fields without one.
    """

    setting_changed = Signal()
    """The user changed a value."""

    def __init__(self, functions: Sequence[str], *fields: ValueWidget[Any]) -> None:
        super().__init__()
        self.fields = {field.name: field for field in fields}
        self._defaults = {field.name: field.value for field in fields}
        docs = {
            name: one.doc for function in functions for name, one in parameters(function).items()
        }
        for field in fields:
            field.changed.connect(lambda _: self.setting_changed.emit())
            field.native.setAccessibleName(field.label)
            field.native.setMinimumWidth(70)
            field.native.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            if isinstance(field, ComboBox):
                keep_narrow(field.native)
            if field.name in docs and not field.tooltip:
                # Messages use the name of the parameter, which may differ from the label.
                field.tooltip = f"{field.name}: {plain(docs[field.name])}"

    def arguments(self, function: str) -> dict[str, Any]:
        """Return the keyword arguments of a function whose fields the user has changed."""
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
        """Give the field of a parameter the focus, if there is one."""
        name = "features" if name in ("use_rep", "layer", "use_raw") else name
        if name in self.fields:
            self.fields[name].native.setFocus()


class Choice(QComboBox):
    """Box to choose an object in; `name` and `tip` describe it in a word and in a sentence.

    `act` is called with the object that the user chooses.
    """

    def __init__(self, name: str, tip: str, act: Callable[[Any], None] | None = None) -> None:
        super().__init__()
        self._values: list[object] = []
        self.setAccessibleName(name)
        self.setToolTip(tip)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        keep_narrow(self)
        if act is not None:
            self.currentIndexChanged.connect(lambda: act(self.value))

    def offer(self, entries: Iterable[tuple[str, object]], chosen: object) -> None:
        """Replace the entries, a text and an object each, and choose one, without a signal."""
        entries = list(entries)
        self._values = [value for _, value in entries]
        with signals_blocked(self):
            self.clear()
            self.addItems([text for text, _ in entries])
            self.setCurrentIndex(self._values.index(chosen) if chosen in self._values else -1)

    @property
    def value(self) -> Any:
        """The object that is chosen, or None."""
        return self._values[self.currentIndex()] if self.currentIndex() >= 0 else None

    def choose(self, value: object) -> None:
        """Choose one of the objects, as the user would; do nothing if it is not offered."""
        if value in self._values:
            self.setCurrentIndex(self._values.index(value))


def keep_narrow(box: QComboBox) -> None:
    """Keep long names of columns from making the dock wide."""
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(5)


def offer(box: ComboBox, choices: Sequence[Any], value: Any) -> None:
    """Offer values or (text, value) pairs; choose one if it is among them, without a signal."""
    with box.changed.blocked():
        # magicgui takes pairs only if all choices are pairs.
        box.choices = [one if isinstance(one, tuple) else (one, one) for one in choices]
        if value in box.choices:
            box.value = value


def sources(adata: AnnData) -> list[str]:
    """Return where the values of a table can be."""
    return [
        *(["X"] if adata.X is not None else []),
        *(["raw"] if adata.raw is not None else []),
        # anndata 0.13 counts X among the layers, by the name None.
        *(f"layers: {name}" for name in adata.layers if name is not None),
        *(f"obsm: {name}" for name in adata.obsm),
    ]


def form_layout(*fields: ValueWidget[Any]) -> QFormLayout:
    """Return a form whose fields are in line with those of the other forms of the widget."""
    form = QFormLayout()
    form.setContentsMargins(0, 0, 0, 0)
    form.setVerticalSpacing(4)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
    for field in fields:
        add_row(form, field)
    return form


def form_label(text: str, tooltip: str = "") -> QLabel:
    """Return the name of a field, as wide as those of all others."""
    label = QLabel(text)
    label.setMinimumWidth(label.fontMetrics().horizontalAdvance(LONGEST_LABEL) + 8)
    label.setToolTip(tooltip)
    return label


def add_row(
    form: QFormLayout, field: ValueWidget[Any], *beside: QWidget | tuple[QWidget, int]
) -> None:
    """Put a field below the others, after its name, with widgets beside it; its stretch is 3."""
    label = form_label(field.label, field.tooltip or "")
    label.setBuddy(field.native)
    form.addRow(label, side_by_side((field.native, 3), *beside))


def column(widget: QWidget, *parts: QWidget | QLayout) -> QVBoxLayout:
    """Fill a widget with parts one below the other."""
    layout = QVBoxLayout(widget)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(4)
    for part in parts:
        layout.addLayout(part) if isinstance(part, QLayout) else layout.addWidget(part)
    return layout


def page(widget: QWidget, *parts: QWidget | QLayout) -> QVBoxLayout:
    """Fill a tab with parts one below the other."""
    layout = column(widget, *parts)
    layout.setContentsMargins(6, 4, 6, 4)
    return layout


def side_by_side(*widgets: QWidget | tuple[QWidget, int]) -> QHBoxLayout:
    """Put widgets beside each other, with their stretch if they have any."""
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(4)
    for widget in widgets:
        row.addWidget(*(widget if isinstance(widget, tuple) else (widget,)))
    return row


def button(text: str, tip: str, act: Callable[[], object] | QMenu) -> QPushButton:
    """Return a button that calls a function, or opens a menu."""
    made = QPushButton(text)
    made.setToolTip(tip)
    if isinstance(act, QMenu):
        made.setMenu(act)
        made.setStyleSheet(MENU_BUTTON)
    else:
        made.clicked.connect(lambda: act())
    return made
