"""The settings of a training and of a check of the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from magicgui.widgets import ComboBox, FloatSpinBox, LineEdit, SpinBox
from qtpy.QtGui import QIntValidator
from qtpy.QtWidgets import QLabel, QWidget

from centroid_encoder.tables import IMAGE_NAMES, ROLES, axis, counted
from centroid_encoder.tl._check import as_mask
from centroid_encoder.viewer.data.columns import are_ids, named
from centroid_encoder.viewer.panels.fields import Form, column, form_layout, offer, sources
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.session.corrections import has_fractions

MAX_CLASSES = 1000
"""Columns with more values are offered last."""
TRAIN, CHECK = "tl.centroid_encoder", "tl.cross_validate"
LIKELY = ("cell_type", "celltype", "phenotype", "annotation", "label", "class")
"""Names of label columns. Clusterings are missing: they were found in the same data."""
MISSING = [
    ("stop", "error"),
    ("leave these cells out", "drop"),
    ("use the mean of the feature", "mean"),
]
PLACEMENTS = [("Voronoi", "voronoi"), ("bottleneck", "bottleneck")]
NO_LABELS = (
    "No column has classes. Label cells by hand under Label. Or cluster the cells in a notebook, "
    "train a map of the clusters, lasso cells in it, and give them a class with Label as."
)
NONE_YET = "No cell has a label in the column {!r}. Label cells by hand under Label."


class TrainingForm(Form):
    """Fields for the classes and features of a training or a check.

    `advanced` is a page with all other fields. `hint` is a text on the columns of the table.
    """

    def __init__(self) -> None:
        none = [("none", None)]
        self.label_key = ComboBox(name="label_key", label="Classes", choices=(), nullable=True)
        self.features = ComboBox(name="features", label="Features", choices=())
        self.missing = ComboBox(name="missing", label="Missing values", choices=MISSING)
        self.mask_var = ComboBox(name="mask_var", label="Variables", choices=[("all", None)])
        self.group_key = ComboBox(name="group_key", label="Hold out whole", choices=none)
        self.placement = ComboBox(name="placement", label="Placement", choices=PLACEMENTS)
        self.n_components = SpinBox(name="n_components", label="Dimensions", value=2, min=1)
        self.unlabeled_category = ComboBox(
            name="unlabeled_category", label="Unlabelled class", choices=none
        )
        self.test_size = FloatSpinBox(
            name="test_size", label="Held-out share", value=0.2, min=0, max=0.9, step=0.05
        )
        self.device = ComboBox(
            name="device", label="Device", choices=["auto", "cpu", "cuda", "mps"]
        )
        self.max_epochs = LineEdit(
            name="max_epochs",
            label="Epochs",
            tooltip="Passes over the training cells. Default: 300,000 divided by their number, but "
            "at least 20 and at most 60; for very large tables it can be less than 20",
        )
        self.max_epochs.native.setPlaceholderText("auto")
        self.max_epochs.native.setValidator(QIntValidator(1, 10**6))
        self.n_folds = SpinBox(name="n_folds", label="Folds", value=5, min=2, max=100)
        self.n_permutations = SpinBox(name="n_permutations", label="Permutations", max=9999)
        shown_first = self.label_key, self.features
        common = self.missing, self.mask_var, self.group_key, self.placement, self.n_components
        rare = self.unlabeled_category, self.test_size, self.max_epochs, self.device
        of_training, of_check = (*common, *rare), (self.n_folds, self.n_permutations)
        super().__init__((CHECK, TRAIN), *shown_first, *of_training, *of_check)
        self._adata = AnnData()
        self.hint = Message()
        column(self, form_layout(*shown_first), self.hint)
        self.advanced = QWidget()
        title = QLabel("For Check labels")
        column(self.advanced, form_layout(*of_training), title, form_layout(*of_check))
        self.label_key.changed.connect(self._on_label_key)
        self.setting_changed.connect(self.show_hint)
        self.set_adata(None)

    def set_adata(self, adata: AnnData | None, label_key: str | None = None) -> None:
        """Offer the columns of a table; keep the choices that this table also has."""
        same = adata is self._adata
        table = self._adata = AnnData() if adata is None else adata
        before = label_key or self.label_key.value
        labels, features = _label_columns(table), _representations(table)
        masks = [str(name) for name in table.var if as_mask(table.var[name]) is not None]
        if label_key in table.obs and label_key not in labels:
            # Offer it anyway: the error of the training names the fault.
            labels.append(str(label_key))
        # Columns of images come first, as the likeliest choice.
        groups = dict.fromkeys(map(str, [*named(table.obs, IMAGE_NAMES), *table.obs.columns]))
        offer(self.label_key, labels, before if before in labels else _likely(table, labels))
        offer(self.features, features, self.features.value)
        offer(self.group_key, [("none", None), *groups], self.group_key.value)
        auto = "highly_variable" if "highly_variable" in masks else None
        chosen = self.mask_var.value
        kept = chosen in masks or (same and chosen is None)
        offer(self.mask_var, [("all", None), *masks], chosen if kept else auto)
        for field in (self.label_key, self.features):
            field.enabled = adata is not None
        self.show_hint()
        self._on_label_key(self.label_key.value)

    def parameters(self, function: str = TRAIN) -> dict[str, Any]:
        """Return the keyword arguments of a function that differ from its defaults."""
        chosen = self.arguments(function)
        for name in ("label_key", "mask_var"):
            chosen.pop(name, None)
        if chosen.get("use_rep") == "X":
            del chosen["use_rep"]
        chosen |= self._mask()
        epochs = self.max_epochs.value.strip()
        if epochs.isdecimal():
            # Imported here, since it imports PyTorch.
            from centroid_encoder.estimator import CentroidEncoder

            chosen["model"] = CentroidEncoder(max_epochs=int(epochs))
        return chosen

    def _mask(self) -> dict[str, Any]:
        """Return the argument `mask_var` if it is not the default."""
        adata, source = self._adata, str(self.features.value)
        if source == "raw" or source.startswith("obsm: "):
            # A representation has no variables, and `raw` has other ones.
            return {}
        mask = self.mask_var.value
        if source == "X" and self._labels_are_feature():
            # Leave the labels out, since they would be learned from themselves.
            others = np.asarray(adata.var_names != self.label_key.value)
            return {"mask_var": others & as_mask(adata.var[mask]) if mask else others}
        default = "highly_variable" if "highly_variable" in adata.var else None
        return {} if mask == default else {"mask_var": mask}

    def _labels_are_feature(self) -> bool:
        """Return whether a variable equals the labels, as in a table of a layer's features."""
        adata, key = self._adata, self.label_key.value
        if key not in adata.var_names or not pd.api.types.is_numeric_dtype(adata.obs[key].dtype):
            return False
        return np.array_equal(adata[:, key].to_df()[key], adata.obs[key])

    def _on_label_key(self, key: str | None) -> None:
        names: list[str] = []
        obs = self._adata.obs
        if key in obs and isinstance(obs[key].dtype, pd.CategoricalDtype):
            names = [name for name in obs[key].cat.categories if isinstance(name, str)]
        offer(self.unlabeled_category, [("none", None), *names], self.unlabeled_category.value)

    def show_hint(self) -> None:
        """Show a hint if there are no classes, or on the columns that are features."""
        adata, text = self._adata, ""
        if adata.n_obs and not self.label_key.choices[1:]:
            text = NO_LABELS
        elif (key := self.label_key.value) in adata.obs and adata.obs[key].isna().all():
            text = NONE_YET.format(key)
        elif ROLES in adata.uns and self.features.value == "X":
            text = f"{counted(adata)}."
        self.hint.say(text)


def _label_columns(adata: AnnData) -> list[str]:
    """Return the columns of obs that can be labels: categories first, and results last."""
    obs, ids = adata.obs, are_ids(adata.obs)
    names = [name for name in obs if not (has_fractions(obs[name]) or name in ids or axis(name))]
    names.sort(key=lambda name: not isinstance(obs[name].dtype, pd.CategoricalDtype))
    n_categories = {name: len(getattr(obs[name].dtype, "categories", ())) for name in names}
    return sorted(
        map(str, names), key=lambda name: (n_categories[name] > MAX_CLASSES, name.startswith("ce_"))
    )


def _likely(adata: AnnData, labels: list[str]) -> str | None:
    """Return the label column with the likeliest name, or else the first one, or none.

    A column with a single value, such as the name of an image, has no classes.
    """
    exact = [name for word in LIKELY for name in labels if word == name.lower()]
    others = [name for name in labels if not name.startswith("ce_")]
    similar = [name for word in LIKELY for name in others if word in name.lower()]
    columns = {str(name): values for name, values in adata.obs.items()}
    found = (name for name in [*exact, *similar, *labels] if columns[name].nunique() != 1)
    return next(found, None)


def _representations(adata: AnnData) -> list[str]:
    """Return the matrices of a table except results and positions."""
    own = {f"obsm: {name}" for name in adata.obsm if f"{name}_split" in adata.obs} | {"obsm: X_ce"}
    others = [source for source in sources(adata) if source not in own]
    return [source for source in others if not source.startswith("obsm: spatial")]
