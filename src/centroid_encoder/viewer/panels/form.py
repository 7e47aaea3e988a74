"""What to train on, and how; the same for a check of the labels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from magicgui.widgets import ComboBox, LineEdit
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QGridLayout, QLabel, QWidget

from centroid_encoder.viewer.data.features import WITH_POSITIONS
from centroid_encoder.viewer.data.ids import are_ids, named
from centroid_encoder.viewer.data.images import IMAGE_NAMES
from centroid_encoder.viewer.data.positions import axis
from centroid_encoder.viewer.panels.fields import (
    NONE,
    PAGE,
    Form,
    Special,
    add_row,
    column,
    form_label,
    form_layout,
    offer,
    sources,
)
from centroid_encoder.viewer.panels.message import Lines

if TYPE_CHECKING:
    from anndata import AnnData

MAX_CLASSES = 1000
"""A column with more different values than that is offered last: it is hardly a label."""
ALL = "all"
TRAIN, CHECK = "tl.centroid_encoder", "tl.cross_validate"
SPECIAL = {
    "label_key": Special("Labels", choices=(), options={"nullable": True}),
    "use_rep": Special("Features", choices=()),
    "n_components": Special("Dimensions"),
    "placement": Special(
        "Placement",
        words={"bottleneck": "bottleneck", "voronoi": "Voronoi"},
    ),
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
    "n_jobs": Special("At once", options={"value": os.cpu_count() or 1, "min": 1, "max": 1024}),
}
LEFT_OUT = ("model", "max_cells")
VISIBLE = ("label_key", "use_rep", "layer", "use_raw")
"""Parameters whose fields are not among the advanced ones."""
WIDE = ("missing", "group_key", "mask_var")
"""Those with a row of their own: what they offer is long."""
# A clustering of the same data is no evidence, and thus no likely choice.
LIKELY = ("cell_type", "celltype", "phenotype", "annotation", "label", "class")


class TrainingForm(Form):
    """Few visible knobs; the rest is for another place.

    Attributes
    ----------
    advanced
        The other fields.
    max_epochs
        For how many epochs to train; empty if the number of cells says it.
    """

    label_key: ComboBox
    mask_var: ComboBox
    unlabeled_category: ComboBox
    group_key: ComboBox
    key_added: LineEdit
    missing: ComboBox
    max_epochs: LineEdit

    label_key_changed = Signal(object)
    """The label column, or None."""
    advanced_wanted = Signal()
    """One of the advanced fields is to be seen."""

    def __init__(self) -> None:
        super().__init__(TRAIN, CHECK, special=SPECIAL, left_out=LEFT_OUT)
        self._adata: AnnData | None = None
        self._filling = False
        self.positions_text = Lines()
        train, check = self._parameters[TRAIN], self._parameters[CHECK]
        epochs = LineEdit(
            name="max_epochs",
            label="Epochs",
            tooltip="Passes over the training cells. By default as many as show the network "
            "300,000 cells, between 20 and 60; fewer of very many cells. Type few for a first look",
        )
        epochs.native.setPlaceholderText("auto")
        self.add(epochs)
        folded: list[Any] = []
        for name in train:
            if name == "model":
                folded.append(epochs)
            elif name in self.fields and name not in VISIBLE:
                folded.append(self.fields[name])
        own = [self.fields[name] for name in check if name in self.fields and name not in train]
        folded.sort(key=lambda field: field.name not in WIDE)
        self._lay_out([*folded, QLabel("For Check labels"), *own])
        self.label_key.changed.connect(self._on_label_key)
        self.set_adata(None)

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
            # Whole images are what one would hold out first.
            images = named(adata.obs, IMAGE_NAMES)
            columns = list(dict.fromkeys(map(str, [*images, *adata.obs.columns])))
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
        for field in (self.label_key, self.features):
            field.enabled = adata is not None
        self._show_positions()
        self._on_label_key(self.label_key.value)

    def parameters(self, function: str = TRAIN) -> dict[str, Any]:
        """Return the keyword arguments of a function that differ from its defaults."""
        chosen = self.arguments(function)
        for name in ("label_key", "mask_var"):
            chosen.pop(name, None)
        if chosen.get("use_rep") == "X":
            del chosen["use_rep"]
        chosen |= self._mask()
        if epochs := self.max_epochs.value.strip():
            # Not before it is needed: it brings PyTorch.
            from centroid_encoder.estimator import CentroidEncoder

            # What is no number is for the function to complain of.
            max_epochs: Any = int(epochs) if epochs.isdecimal() else epochs
            chosen["model"] = CentroidEncoder(max_epochs=max_epochs)
        return chosen

    def point_at(self, name: str) -> None:
        """Show the field of a parameter, if there is one."""
        if name in self.fields and name not in VISIBLE:
            self.advanced_wanted.emit()
        super().point_at(name)

    def _mask(self) -> dict[str, Any]:
        """Return the argument that says which variables to learn from, if it is not the default."""
        adata, source = self._adata, str(self.features.value)
        if adata is None or source == "raw" or source.startswith("obsm: "):
            # A representation has no variables, and `raw` has others.
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
            self._show_positions()
            super()._on_setting()

    def _show_positions(self) -> None:
        """Say which columns of a layer's features are not learned from unless the user wants it."""
        adata, names = self._adata, []
        if adata is not None and WITH_POSITIONS in adata.obsm and self.features.value == "X":
            names = [str(name) for name in adata.obs if axis(name) is not None]
        columns = f"{len(names)} column{'s' * (len(names) != 1)}"
        text = f"Left out: {columns} of positions or boxes ({', '.join(names)})"
        self.positions_text.setText(text if names else "")
        self.positions_text.setVisible(bool(names))

    def _lay_out(self, folded: list[Any]) -> None:
        """Put the likely fields below each other, and the others two in a row."""
        above = form_layout()
        add_row(above, self.label_key)
        add_row(above, self.features)
        # Not a row of the form, which would give it no width.
        column(self, above, self.positions_text)
        grid = QGridLayout()
        at = 0
        for field in folded:
            is_wide = isinstance(field, QLabel) or field.name in WIDE
            at += at % 2 if is_wide else 0
            row, half = divmod(at, 2)
            if isinstance(field, QLabel):
                grid.addWidget(field, row, 0, 1, 4)
            else:
                label = (QLabel if half else form_label)(field.label)
                label.setBuddy(field.native)
                label.setToolTip(field.tooltip or "")
                grid.addWidget(label, row, 2 * half)
                grid.addWidget(field.native, row, 2 * half + 1, 1, 3 if is_wide else 1)
            at += 2 if is_wide else 1
        grid.setVerticalSpacing(2)
        for field_column in (1, 3):
            grid.setColumnStretch(field_column, 1)
        self.advanced = QWidget()
        layout = column(self.advanced, grid)
        layout.setContentsMargins(*PAGE)
        layout.addStretch()


def _label_columns(adata: AnnData) -> list[str]:
    """Columns of obs that may be labels, the likeliest kind first."""

    def rank(name: str) -> tuple[bool, bool]:
        column = adata.obs[name]
        categorical = isinstance(column.dtype, pd.CategoricalDtype)
        n = len(column.cat.categories) if categorical else 0
        return n > MAX_CLASSES, not categorical

    ids = are_ids(adata.obs)
    names = [
        str(name)
        for name in adata.obs.columns
        if not (_is_measurement(adata.obs[name]) or name in ids or axis(name) is not None)
    ]
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
