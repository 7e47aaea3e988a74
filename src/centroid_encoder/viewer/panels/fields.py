"""Fields for the parameters of a function; names, defaults and help come from its signature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from magicgui.widgets import CheckBox, ComboBox, LineEdit, create_widget
from magicgui.widgets.bases import ValueWidget
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QMenu,
    QPushButton,
    QSizePolicy,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder._signature import Parameter, parameters, plain

if TYPE_CHECKING:
    from anndata import AnnData

NONE = "none"
"""Text for None."""
LONGEST = "Hold out whole"
"""The longest label of a field."""
BUTTONS = {
    "centroid_encoder": "Train",
    "cross_validate": "Check labels",
    "ingest": "Map new data",
}
"""Names of functions in tooltips."""
ROW = 22
"""Height of a row of a table in pixels."""
PAGE = (6, 4, 6, 4)
"""Margins of what lies in a tab."""
NARROW = 70
"""Least width of a field in pixels."""
MENU_BUTTON = """
QPushButton { padding-right: 18px; }
QPushButton::menu-indicator {
    subcontrol-origin: padding; subcontrol-position: center right; right: 4px;
}
"""
"""With the style of napari alone, the arrow touches the end of the text."""
RANGES: dict[type, dict[str, Any]] = {
    int: {"min": -(2**31), "max": 2**31 - 1},
    float: {"min": -1e9, "max": 1e9, "step": 0.05},
}
"""Ranges of numbers, unless `Special` has others."""


class Special(NamedTuple):
    """Properties of a field that the signature lacks."""

    label: str = ""
    """Default: the name of the parameter, in words."""
    choices: tuple[str, ...] | None = None
    """Choices that are not in the type; a table may add more."""
    words: Mapping[str, str] = {}
    """Texts for values."""
    options: Mapping[str, Any] = {}
    """Options of the magicgui widget: range, step, and the value that stands for the default."""


class Form(QWidget):
    """Fields for what functions of `tl` are called with.

    There is one for each parameter of a plain type: bool, int, float, str, a Literal, or one of
    these or None. Each is also an attribute of the form, under the name of the parameter. Where
    the values are, `layer`, `use_rep` and `use_raw`, is chosen in one field.

    Parameters
    ----------
    functions
        Public names of the functions, such as ``"tl.ingest"``.
    special
        What their signatures do not say of a field.
    left_out
        Parameters without a field.

    Attributes
    ----------
    fields
        Fields by the name of the parameter.
    features
        Where the values are: ``"X"``, ``"raw"``, ``"layers: …"`` or ``"obsm: …"``.
    """

    features: ComboBox

    setting_changed = Signal()
    """The user changed a value."""

    def __init__(
        self, *functions: str, special: Mapping[str, Special], left_out: Iterable[str]
    ) -> None:
        super().__init__()
        self.fields: dict[str, ValueWidget[Any]] = {}
        self._special = special
        self._parameters = {function: parameters(function) for function in functions}
        self._defaults: dict[str, Any] = {}
        skipped = {"adata", "layer", "use_raw", "progress", "copy", *left_out}
        for taken in self._parameters.values():
            for name, parameter in taken.items():
                if name not in self.fields and name not in skipped:
                    self.add(self._made(parameter))
                    self._defaults[name] = self._value(parameter)
        self.features = cast("ComboBox", self.fields["use_rep"])
        self.fields["layer"] = self.fields["use_raw"] = self.features

    def add(self, widget: ValueWidget[Any]) -> None:
        """Take a field, under its name."""
        self.fields[widget.name] = widget
        setattr(self, widget.name, widget)
        widget.changed.connect(self._on_setting)
        # Two of them find room beside each other.
        widget.native.setMinimumWidth(NARROW)
        widget.native.setAccessibleName(widget.label)
        widget.native.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        if isinstance(widget, ComboBox):
            # Long names of columns must not make the dock wide.
            box = widget.native
            box.setSizeAdjustPolicy(box.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.setMinimumContentsLength(8)

    def arguments(self, function: str) -> dict[str, Any]:
        """Return the keyword arguments of a function that differ from its defaults."""
        kind, _, name = str(self.features.value).partition(": ")
        chosen: dict[str, dict[str, Any]] = {
            "X": {"use_rep": "X"},
            "raw": {"use_raw": True},
            "layers": {"layer": name},
            "obsm": {"use_rep": name},
        }
        found = chosen.get(kind, {})
        for name, parameter in self._parameters[function].items():
            if name in self._defaults and name != "use_rep":
                value = self._value(parameter)
                if value not in (None, self._defaults[name]):
                    found[name] = value
        return found

    def shown(self, name: str, value: Any) -> str:
        """Return the text for a value of a parameter."""
        if value is None:
            return NONE
        words = self._special.get(name, Special()).words
        return words.get(value, str(value)) if isinstance(value, str) else str(value)

    def point_at(self, name: str) -> None:
        """Give the field of a parameter the focus, if there is one."""
        if name in self.fields:
            self.fields[name].native.setFocus()

    def _on_setting(self) -> None:
        self.setting_changed.emit()

    def _made(self, parameter: Parameter) -> ValueWidget[Any]:
        special = self._special.get(parameter.name, Special())
        first = special.options.get("value", parameter.default)
        words = parameter.name.removeprefix("n_").replace("_", " ")
        name, label = parameter.name, special.label or words.capitalize()
        choices = special.choices
        if parameter.choices:
            choices = tuple(self.shown(name, value) for value in parameter.choices)
        made: Any
        if choices is not None:
            made = ComboBox(name=name, label=label, choices=choices, **special.options)
            if first in parameter.choices:
                made.value = self.shown(name, first)
        elif first is None or isinstance(first, str):
            made = LineEdit(name=name, label=label, value=first or "")
            made.native.setPlaceholderText(plain(parameter.default_words or "", self._named))
        else:
            options = {**RANGES.get(type(first), {}), **special.options}
            options.pop("value", None)
            made = create_widget(first, type(first), name=name, label=label, options=options)
        if isinstance(made, CheckBox):
            # It stands beside its label.
            made.text = ""
        # Messages use the name of the parameter, which may differ from the label.
        made.tooltip = f"{name}: {plain(parameter.doc, self._named)}"
        return cast("ValueWidget[Any]", made)

    def _named(self, name: str) -> str:
        """Return the label of a parameter, or the button of a function."""
        special = self._special.get(name)
        if special is not None and special.label:
            return special.label
        return BUTTONS.get(name, name)

    def _value(self, parameter: Parameter) -> Any:
        """Return the value of a field; None if it is empty."""
        value = self.fields[parameter.name].value
        if isinstance(value, float):
            return round(value, 4)
        if not isinstance(value, str):
            return value
        words = self._special.get(parameter.name, Special()).words
        for meant, read in words.items():
            if value == read:
                return meant
        value = value.strip()
        if not value or (value == NONE and type(None) in parameter.hints):
            return None
        for kind in (int, float):
            if kind in parameter.hints and str not in parameter.hints:
                # The function raises the error for text that is no number.
                with suppress(ValueError):
                    return kind(value)
        return value


def offer(box: ComboBox, choices: list[str], value: Any) -> None:
    """Offer choices, and choose one if it is among them, without a signal."""
    with box.changed.blocked():
        box.choices = choices
        if value in choices:
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


def form_layout() -> QFormLayout:
    """A form whose fields are in line with those of the other forms of the widget."""
    form = QFormLayout()
    form.setContentsMargins(0, 0, 0, 0)
    form.setVerticalSpacing(4)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
    return form


def form_label(text: str, tooltip: str = "") -> QLabel:
    """The name of a field, as wide as those of all others."""
    label = QLabel(text)
    label.setMinimumWidth(label.fontMetrics().horizontalAdvance(LONGEST) + 8)
    label.setToolTip(tooltip)
    return label


def add_row(
    form: QFormLayout, widget: ValueWidget[Any], *beside: QWidget | tuple[QWidget, int]
) -> None:
    """Put a field below the others, after its name, with widgets beside it; its stretch is 3."""
    label = form_label(widget.label, widget.tooltip or "")
    label.setBuddy(widget.native)
    if beside:
        form.addRow(label, side_by_side((widget.native, 3), *beside))
    else:
        form.addRow(label, widget.native)


def column(widget: QWidget, *parts: QWidget | QLayout) -> QVBoxLayout:
    """Fill a widget with parts one below the other."""
    layout = QVBoxLayout(widget)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(4)
    for part in parts:
        layout.addLayout(part) if isinstance(part, QLayout) else layout.addWidget(part)
    return layout


def side_by_side(*widgets: QWidget | tuple[QWidget, int]) -> QHBoxLayout:
    """Put widgets beside each other, with their stretch if they have any."""
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(4)
    for widget in widgets:
        row.addWidget(*(widget if isinstance(widget, tuple) else (widget,)))
    return row


def menu_button(text: str, tip: str, menu: QMenu) -> QPushButton:
    """Return a button that opens a menu, with an arrow that is apart from its text."""
    button = QPushButton(text)
    button.setToolTip(tip)
    button.setMenu(menu)
    button.setStyleSheet(MENU_BUTTON)
    return button


def plain_table(view: QTableView) -> None:
    """Draw a table without grid and numbers, in low rows."""
    view.setShowGrid(False)
    view.setWordWrap(False)
    view.verticalHeader().hide()
    view.verticalHeader().setDefaultSectionSize(ROW)
    # In bold, the longer names would be cut off.
    view.horizontalHeader().setHighlightSections(False)
