"""What to train on, and how; the same for a check of the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from magicgui.widgets import CheckBox, ComboBox, LineEdit, SpinBox
from qtpy.QtCore import QSize, Signal
from qtpy.QtWidgets import QLabel, QVBoxLayout, QWidget
from superqt import QCollapsible

from centroid_encoder.viewer._icons import themed_icon
from centroid_encoder.viewer.panels.fields import (
    NONE,
    Form,
    Special,
    add_row,
    form_layout,
    offer,
    sources,
)

if TYPE_CHECKING:
    from anndata import AnnData

MAX_CLASSES = 1000
"""A column with more different values than that is offered last: it is hardly a label."""
ALL = "all"
TRAIN, CHECK = "tl.centroid_encoder", "tl.cross_validate"
SPECIAL = {
    "label_key": Special("Labels", choices=(), options={"nullable": True}),
    "use_rep": Special("Features", choices=()),
    "mask_var": Special("Variables", choices=(ALL,)),
    "unlabeled_category": Special("Unlabelled is", choices=(NONE,)),
    "missing": Special(
        "Missing values",
        words={
            "error": "stop and say so",
            "drop": "leave these cells out",
            "mean": "take the feature's mean",
        },
    ),
    "test_size": Special("Held out", options={"min": 0, "max": 0.9, "step": 0.05}),
    "group_key": Special("Hold out whole", choices=(NONE,)),
    "key_added": Special("Store as", options={"value": "ce"}),
    "random_state": Special("Seed", options={"min": 0, "max": 2**31 - 1}),
    "device": Special("Device", choices=("auto", "cpu", "cuda", "mps")),
    "n_folds": Special("Folds", options={"value": 5, "min": 2, "max": 100}),
    "n_repeats": Special("Repeats", options={"min": 1, "max": 100}),
    "n_permutations": Special("Permutations", options={"min": 0, "max": 9999}),
}
# The widget shows maps of two dimensions.
LEFT_OUT = ("n_components", "model")
VISIBLE = ("label_key", "use_rep", "layer")
"""Parameters that are set by fields which are not folded."""
# A clustering of the same data is no evidence, and thus no likely choice.
LIKELY = ("cell_type", "celltype", "phenotype", "annotation", "label", "class")


class TrainingForm(Form):
    """Few visible knobs, the rest folded.

    Attributes
    ----------
    advanced
        The folded part.
    auto_epochs, max_epochs
        Whether the number of cells says for how many epochs to train, and how many if not.
    """

    label_key: ComboBox
    mask_var: ComboBox
    unlabeled_category: ComboBox
    group_key: ComboBox
    key_added: LineEdit
    missing: ComboBox
    max_epochs: SpinBox

    label_key_changed = Signal(object)
    """The label column, or None."""

    def __init__(self) -> None:
        super().__init__(TRAIN, CHECK, special=SPECIAL, left_out=LEFT_OUT)
        self._adata: AnnData | None = None
        self._filling = False
        train, check = self._parameters[TRAIN], self._parameters[CHECK]
        self.auto_epochs = CheckBox(
            label="",
            text="Epochs by the number of cells",
            value=True,
            tooltip="Between 20 and 60: as many as show the network 300,000 cells; fewer of very "
            "many cells",
        )
        self.add(
            SpinBox(
                name="max_epochs",
                label="Epochs",
                value=60,
                min=1,
                max=100_000,
                enabled=False,
                tooltip="Passes over the training cells",
            )
        )
        folded: list[Any] = []
        for name in train:
            if name == "model":
                folded += [self.auto_epochs, self.max_epochs]
            elif name in self.fields and name not in VISIBLE:
                folded.append(self.fields[name])
        own = [self.fields[name] for name in check if name in self.fields and name not in train]
        self._lay_out([*folded, QLabel("For Check labels"), *own])
        self.label_key.changed.connect(self._on_label_key)
        self.auto_epochs.changed.connect(self._on_auto_epochs)

    @property
    def key(self) -> str:
        """Where the results will be."""
        return self.key_added.value.strip() or "ce"

    def set_adata(self, adata: AnnData | None, label_key: str | None = None) -> None:
        """Offer what a table holds; keep what was chosen, where it exists there too."""
        same, self._adata = adata is self._adata, adata
        before = label_key or self.label_key.value
        labels: list[str] = []
        features: list[str] = []
        columns: list[str] = []
        masks: list[str] = []
        if adata is not None:
            labels = _label_columns(adata)
            if label_key in adata.obs and label_key not in labels:
                # Who asks for it gets it, and is told what is wrong with it.
                labels.append(str(label_key))
            features, masks = _representations(adata), _masks(adata)
            columns = list(map(str, adata.obs.columns))
        self._filling = True
        try:
            offer(self.label_key, labels, before if before in labels else _likely(labels))
            offer(self.features, features, self.features.value)
            offer(self.group_key, [NONE, *columns], self.group_key.value)
            auto = "highly_variable" if "highly_variable" in masks else ALL
            chosen = self.mask_var.value
            kept = chosen in masks or (same and chosen == ALL)
            offer(self.mask_var, [ALL, *masks], chosen if kept else auto)
        finally:
            self._filling = False
        self._on_label_key(self.label_key.value)

    def parameters(self, function: str = TRAIN) -> dict[str, Any]:
        """Return the keyword arguments of a function that differ from its defaults."""
        chosen = self.arguments(function)
        for name in ("label_key", "mask_var"):
            chosen.pop(name, None)
        if chosen.get("use_rep") == "X":
            del chosen["use_rep"]
        chosen |= self._mask()
        if not self.auto_epochs.value:
            # Not before it is needed: it brings PyTorch.
            from centroid_encoder.estimator import CentroidEncoder

            chosen["model"] = CentroidEncoder(max_epochs=self.max_epochs.value)
        return chosen

    def place(self, name: str) -> str:
        """Return where the field of a parameter is, as the user reads it."""
        return super().place(name) if name in VISIBLE else f"Advanced ▸ {super().place(name)}"

    def point_at(self, name: str) -> None:
        """Show the field of a parameter, if there is one."""
        if name in self.fields and name not in VISIBLE:
            self.advanced.expand(animate=False)
        super().point_at(name)

    def set_icon_color(self, color: str) -> None:
        """Follow a theme."""
        self.advanced.setCollapsedIcon(themed_icon("right_arrow", color))
        self.advanced.setExpandedIcon(themed_icon("down_arrow", color))

    def fold(self) -> None:
        """Make room for the map."""
        self.advanced.collapse(animate=False)

    def _mask(self) -> dict[str, Any]:
        """Return the argument that says which variables to learn from, if it is not the default."""
        adata, source = self._adata, str(self.features.value)
        if adata is None or source.startswith("obsm: "):
            # A representation has no variables.
            return {}
        mask = None if self.mask_var.value == ALL else self.mask_var.value
        if source == "X" and self._is_feature(adata):
            # Labels that are learned from themselves tell nothing.
            others = np.asarray(adata.var_names != self.label_key.value)
            return {"mask_var": others & adata.var[mask].to_numpy() if mask else others}
        default = "highly_variable" if "highly_variable" in adata.var else None
        return {} if mask == default else {"mask_var": mask}

    def _is_feature(self, adata: AnnData) -> bool:
        """Tell whether the labels are among the features, as in a layer's table of features."""
        key = self.label_key.value
        if key not in adata.var_names or not pd.api.types.is_numeric_dtype(adata.obs[key].dtype):
            return False
        return np.array_equal(adata[:, key].to_df()[key], adata.obs[key])

    def _on_label_key(self, key: str | None) -> None:
        if self._filling:
            return
        names: list[str] = []
        if self._adata is not None and key in self._adata.obs:
            column = self._adata.obs[key]
            if isinstance(column.dtype, pd.CategoricalDtype):
                names = [name for name in column.cat.categories if isinstance(name, str)]
        offer(self.unlabeled_category, [NONE, *names], self.unlabeled_category.value)
        self.label_key_changed.emit(key)

    def _on_setting(self) -> None:
        if not self._filling:
            super()._on_setting()

    def _on_auto_epochs(self, auto: bool) -> None:
        self.max_epochs.enabled = not auto

    def _lay_out(self, folded: list[Any]) -> None:
        self.advanced = QCollapsible("Advanced")
        self.advanced.setDuration(0)
        button = self.advanced.toggleButton()
        button.setFlat(True)
        button.setIconSize(QSize(9, 9))
        button.setStyleSheet(
            "QPushButton { text-align: left; background: transparent; border: none; padding: 2px; }"
        )
        content = QWidget()
        rows = form_layout()
        for field in folded:
            if isinstance(field, QLabel):
                rows.addRow(field)
            else:
                add_row(rows, field)
        content.setLayout(rows)
        self.advanced.addWidget(content)
        for part in (self.advanced, self.advanced.content()):
            if (inner := part.layout()) is not None:
                inner.setContentsMargins(0, 0, 0, 0)
        above = form_layout()
        add_row(above, self.label_key)
        add_row(above, self.features)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(above)
        layout.addWidget(self.advanced)


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
    own = {f"obsm: {name}" for name in adata.obsm if f"{name}_split" in adata.obs} | {"obsm: X_ce"}
    return [
        source
        for source in sources(adata)
        if source not in own and not source.startswith("obsm: spatial")
    ]


def _masks(adata: AnnData) -> list[str]:
    return [str(name) for name in adata.var.columns if adata.var[name].dtype == bool]
