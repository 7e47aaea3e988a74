"""What to train on, and how; the same for a check of the labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from magicgui.widgets import CheckBox, ComboBox, FloatSpinBox, LineEdit, SpinBox
from magicgui.widgets.bases import ValueWidget
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtWidgets import (
    QFormLayout,
    QLabel,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)
from superqt import QCollapsible

from centroid_encoder.viewer._icons import themed_icon

if TYPE_CHECKING:
    from anndata import AnnData

MAX_CLASSES = 1000
"""A column with more different values than that is offered last: it is hardly a label."""
NONE = "none"
LONGEST = "Hold out whole"
"""Of the names of all fields."""
FEATURES = {"X": None, "layers": "layer", "obsm": "use_rep"}
MISSING = {
    "stop and say so": "error",
    "leave these cells out": "drop",
    "take the feature's mean": "mean",
}
# A clustering of the same data is no evidence, and thus no likely choice.
LIKELY = ("cell_type", "celltype", "phenotype", "annotation", "label", "class")


class TrainingForm(QWidget):
    """Few visible knobs, the rest folded."""

    label_key_changed = Signal(object)
    """The label column, or None."""
    setting_changed = Signal()
    """The user changed what or how to train."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._adata: AnnData | None = None
        self._filling = False
        self.label_key = ComboBox(
            label="Labels",
            tooltip="Column of obs with the classes. Cells without a label are embedded, "
            "but not trained on",
            nullable=True,
        )
        self.features = ComboBox(
            label="Features",
            tooltip="What to learn from: the expression matrix X, a layer, or a representation "
            "in obsm",
        )
        self.mask_var = ComboBox(
            label="Variables",
            tooltip="Learn from all variables, or from those marked in a column of var",
        )
        self.missing = ComboBox(
            label="Missing values",
            choices=list(MISSING),
            tooltip="What to do about cells with NaN or infinite values",
        )
        self.unlabeled_category = ComboBox(
            label="Unlabelled is",
            tooltip="A class that stands for 'no label'; its cells are embedded, "
            "but not trained on",
        )
        self.test_size = FloatSpinBox(
            label="Held out",
            value=0.2,
            min=0,
            max=0.9,
            step=0.05,
            tooltip="Share of the labelled cells that never shape the map; the error counted on "
            "them says how much of the picture is real",
        )
        self.group_key = ComboBox(
            label="Hold out whole",
            tooltip="Hold out whole donors, slides or batches: a column of obs that names them",
        )
        self.auto_epochs = CheckBox(
            label="",
            text="Epochs by the number of cells",
            value=True,
            tooltip="Between 20 and 60: as many as show the network 300,000 cells; fewer of very "
            "many cells",
        )
        self.max_epochs = SpinBox(
            label="Epochs",
            value=60,
            min=1,
            max=100_000,
            enabled=False,
            tooltip="Passes over the training cells",
        )
        self.device = ComboBox(
            label="Device",
            choices=["auto", "cpu", "cuda", "mps"],
            tooltip="Where to train: auto takes the first of an NVIDIA GPU (cuda), an Apple GPU "
            "(mps) and the CPU",
        )
        self.random_state = SpinBox(
            label="Seed",
            value=0,
            min=0,
            max=2**31 - 1,
            tooltip="The same seed gives the same map on the same machine",
        )
        self.key_added = LineEdit(
            label="Store as",
            value="ce",
            tooltip="Name of the result: obsm['X_ce'], obs['ce_label'], uns['ce']; with another "
            "name, several maps can be kept",
        )
        self.n_folds = SpinBox(
            label="Folds",
            value=5,
            min=2,
            max=100,
            tooltip="Parts the cells are divided into; for each, a network is trained on the "
            "others. With fewer groups to hold out whole than 5, as many as there are groups",
        )
        self.n_permutations = SpinBox(
            label="Permutations",
            value=0,
            min=0,
            max=9999,
            tooltip="Times to shuffle the labels and train anew, to see which error chance gives: "
            "19 can show p = 0.05, 99 p = 0.01. Each takes about as long as the check itself",
        )
        self.advanced = QCollapsible("Advanced")
        self.advanced.setDuration(0)
        self.advanced.toggleButton().setFlat(True)
        self.advanced.toggleButton().setIconSize(QSize(9, 9))
        self.advanced.toggleButton().setStyleSheet(
            "QPushButton { text-align: left; background: transparent; border: none; padding: 2px; }"
        )
        content = QWidget()
        content.setLayout(
            _rows(
                self.mask_var,
                self.missing,
                self.unlabeled_category,
                self.test_size,
                self.group_key,
                self.auto_epochs,
                self.max_epochs,
                self.random_state,
                self.device,
                self.key_added,
                QLabel("For Check labels"),
                self.n_folds,
                self.n_permutations,
            )
        )
        self.advanced.addWidget(content)
        for part in (self.advanced, self.advanced.content()):
            if (inner := part.layout()) is not None:
                inner.setContentsMargins(0, 0, 0, 0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(_rows(self.label_key, self.features))
        layout.addWidget(self.advanced)
        self.label_key.changed.connect(self._on_label_key)
        self.auto_epochs.changed.connect(self._on_auto_epochs)
        for field in (*self.fields.values(), self.features):
            field.changed.connect(self._on_setting)

    @property
    def fields(self) -> dict[str, ValueWidget[Any]]:
        """The knobs by the name of the parameter of a function in `tl` that they set."""
        return {
            name: getattr(self, name)
            for name in (
                "n_folds",
                "n_permutations",
                "missing",
                "group_key",
                "unlabeled_category",
                "test_size",
                "mask_var",
                "max_epochs",
                "key_added",
                "device",
            )
        }

    @property
    def key(self) -> str:
        """Where the results will be."""
        return self.key_added.value.strip() or "ce"

    def set_adata(self, adata: AnnData | None, label_key: str | None = None) -> None:
        """Offer what a table holds; keep what was chosen, where it exists there too."""
        same, self._adata = adata is self._adata, adata
        before = label_key or self.label_key.value
        self._filling = True
        try:
            labels = [] if adata is None else _label_columns(adata)
            if (
                adata is not None
                and label_key
                and label_key in adata.obs
                and label_key not in labels
            ):
                # Who asks for it gets it, and is told what is wrong with it.
                labels.append(label_key)
            _offer(self.label_key, labels, before)
            if adata is not None and before not in labels:
                self.label_key.value = _likely(labels)
            features = [] if adata is None else _representations(adata)
            _offer(self.features, features, self.features.value)
            columns = [] if adata is None else list(map(str, adata.obs.columns))
            _offer(self.group_key, [NONE, *columns], self.group_key.value)
            masks = [] if adata is None else _masks(adata)
            auto = "highly_variable" if "highly_variable" in masks else "all"
            chosen = self.mask_var.value
            kept = chosen in masks or (same and chosen == "all")
            _offer(self.mask_var, ["all", *masks], chosen if kept else auto)
        finally:
            self._filling = False
        self._on_label_key(self.label_key.value)

    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of `tl.centroid_encoder` that differ from its defaults."""
        adata, where = self._adata, str(self.features.value)
        chosen: dict[str, Any] = {}
        kind, _, name = where.partition(": ")
        parameter = FEATURES.get(kind)
        if parameter is not None:
            chosen[parameter] = name
        if kind != "obsm" and adata is not None and "highly_variable" in adata.var:
            if self.mask_var.value != "highly_variable":
                chosen["mask_var"] = None if self.mask_var.value == "all" else self.mask_var.value
        elif kind != "obsm" and self.mask_var.value not in (None, "all"):
            chosen["mask_var"] = self.mask_var.value
        if kind == "X" and adata is not None and self._is_feature(adata):
            # To learn the labels from themselves would be no feat.
            mask = np.asarray(adata.var_names != self.label_key.value)
            column = chosen.get("mask_var", self.mask_var.value)
            if column in adata.var:
                mask &= adata.var[column].to_numpy()
            chosen["mask_var"] = mask
        for key in ("group_key", "unlabeled_category"):
            value = getattr(self, key).value
            if value not in (None, NONE):
                chosen[key] = value
        if MISSING[self.missing.value] != "error":
            chosen["missing"] = MISSING[self.missing.value]
        if self.test_size.value != 0.2:
            chosen["test_size"] = round(self.test_size.value, 4)
        if self.random_state.value:
            chosen["random_state"] = self.random_state.value
        if self.device.value != "auto":
            chosen["device"] = self.device.value
        if self.key != "ce":
            chosen["key_added"] = self.key
        if not self.auto_epochs.value:
            # Not before it is needed: it brings PyTorch.
            from centroid_encoder.estimator import CentroidEncoder

            chosen["model"] = CentroidEncoder(max_epochs=self.max_epochs.value)
        return chosen

    def check_parameters(self) -> dict[str, Any]:
        """Keyword arguments of `tl.cross_validate` that differ from its defaults."""
        chosen = self.parameters()
        # Every cell is held out once.
        chosen.pop("test_size", None)
        if self.n_folds.value != 5:
            chosen["n_folds"] = self.n_folds.value
        if self.n_permutations.value:
            chosen["n_permutations"] = self.n_permutations.value
        return chosen

    def _is_feature(self, adata: AnnData) -> bool:
        """Tell whether the labels are among the features, as in a layer's table of features."""
        key = self.label_key.value
        if key not in adata.var_names or not pd.api.types.is_numeric_dtype(adata.obs[key].dtype):
            return False
        return np.array_equal(adata[:, key].to_df()[key], adata.obs[key])

    def mend(self, error: str) -> str:
        """Add to an error where in the form it can be mended, and unfold that part."""
        for name, field in self.fields.items():
            # By the parameter's name, or by the column that was chosen with it.
            chosen = name == "group_key" and f"obs[{field.value!r}]" in error
            if chosen or re.search(rf"\b{name}\b", error):
                self.advanced.expand(animate=False)
                field.native.setFocus()
                where = f"Advanced ▸ {field.label}"
                # What Python would be told.
                fault, advice, _ = error.partition(f" Pass {name}=")
                return f"{fault} Choose under {where}." if advice else f"{error} ({where})"
        return error

    def where(self, advice: str) -> str:
        """Say where in the form a piece of advice for Python can be followed."""
        for name, field in self.fields.items():
            value = "'[^']*'|\"[^\"]*\"|\\w+"
            advice = re.sub(
                rf"\bpass {name}=(?:{value})", f"choose it under Advanced ▸ {field.label}", advice
            )
        return advice

    def set_icon_color(self, color: str) -> None:
        """Follow a theme."""
        self.advanced.setCollapsedIcon(themed_icon("right_arrow", color))
        self.advanced.setExpandedIcon(themed_icon("down_arrow", color))

    def fold(self) -> None:
        """Make room for the map."""
        self.advanced.collapse(animate=False)

    def _on_label_key(self, key: str | None) -> None:
        if self._filling:
            return
        names: list[str] = []
        if self._adata is not None and key in self._adata.obs:
            column = self._adata.obs[key]
            if isinstance(column.dtype, pd.CategoricalDtype):
                names = [name for name in column.cat.categories if isinstance(name, str)]
        _offer(self.unlabeled_category, [NONE, *names], self.unlabeled_category.value)
        self.label_key_changed.emit(key)

    def _on_setting(self) -> None:
        if not self._filling:
            self.setting_changed.emit()

    def _on_auto_epochs(self, auto: bool) -> None:
        self.max_epochs.enabled = not auto


def form_layout() -> QFormLayout:
    """A form whose fields are in line with those of the other forms of the widget."""
    form = QFormLayout()
    form.setContentsMargins(0, 0, 0, 0)
    form.setVerticalSpacing(4)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
    return form


def form_label(text: str) -> QLabel:
    """The name of a field, as wide as those of all others."""
    label = QLabel(text)
    label.setMinimumWidth(label.fontMetrics().horizontalAdvance(LONGEST) + 8)
    return label


def _rows(*widgets: ValueWidget[Any] | QLabel) -> QFormLayout:
    form = form_layout()
    for widget in widgets:
        if isinstance(widget, QLabel):
            form.addRow(widget)
            continue
        label = form_label(widget.label)
        label.setToolTip(widget.tooltip or "")
        widget.native.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        form.addRow(label, widget.native)
        if isinstance(widget, ComboBox):
            # Long names of columns must not make the dock wide.
            box = widget.native
            box.setSizeAdjustPolicy(box.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.setMinimumContentsLength(8)
    return form


def _offer(box: ComboBox, choices: list[str], value: Any) -> None:
    with box.changed.blocked():
        box.choices = choices
        if value in choices:
            box.value = value


def _label_columns(adata: AnnData) -> list[str]:
    """Columns of obs that may be labels, the likeliest kind first."""

    def rank(name: str) -> tuple[bool, bool]:
        column = adata.obs[name]
        categorical = isinstance(column.dtype, pd.CategoricalDtype)
        n = len(column.cat.categories) if categorical else 0
        return n > MAX_CLASSES, not categorical

    names = [str(name) for name in adata.obs.columns if not _is_measurement(adata.obs[name])]
    return sorted(names, key=rank)


def _is_measurement(column: pd.Series) -> bool:
    """Tell measurements from classes; where some cells have none, integers are floats too."""
    return pd.api.types.is_float_dtype(column.dtype) and bool((column.dropna() % 1 != 0).any())


def _likely(labels: list[str]) -> str | None:
    """The label column by its name, else the first."""
    for word in LIKELY:
        for name in labels:
            if word == name.lower():
                return name
    for word in LIKELY:
        for name in labels:
            if word in name.lower() and not name.startswith("ce_"):
                return name
    return labels[0] if labels else None


def _representations(adata: AnnData) -> list[str]:
    # What `tl.centroid_encoder` itself wrote would be circular, and places are no features.
    obsm = [
        name
        for name in adata.obsm
        if not (name == "X_ce" or f"{name}_split" in adata.obs or name.startswith("spatial"))
    ]
    return [
        *(["X"] if adata.X is not None else []),
        *(f"layers: {name}" for name in adata.layers),
        *(f"obsm: {name}" for name in obsm),
    ]


def _masks(adata: AnnData) -> list[str]:
    return [str(name) for name in adata.var.columns if adata.var[name].dtype == bool]
