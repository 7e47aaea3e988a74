"""Keep what was made: as files, or as a script."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from napari.utils.notifications import show_error
from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder import pl, tl
from centroid_encoder.viewer.panels.message import Message, sentence

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.estimator import CentroidEncoder
    from centroid_encoder.tl._stored import Regions
    from centroid_encoder.viewer.data.tables import Table


@dataclass(frozen=True)
class Recipe:
    """How a map was made, or how labels were checked."""

    label_key: str
    parameters: dict[str, Any]
    """Keyword arguments of `tl.centroid_encoder` or `tl.cross_validate` other than its defaults."""
    relabeled: bool = False
    """Whether the labels were corrected by hand."""
    stopped_after: int | None = None
    """Number of epochs after which the training was stopped by hand, if it was."""
    mapped_by: str | None = None
    """File or name of the table whose map the cells were sent through, if they were; the parameters
    are then those of `tl.ingest`."""


class KeepRow(QWidget):
    """Save menu and "Copy as Python"; what writes files is imported when there is one to write."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._table: Table | None = None
        self._key: str | None = None
        self._regions: Regions | None = "voronoi"
        self._check_key: str | None = None
        self._recipes: WeakKeyDictionary[Table, dict[str, Recipe]] = WeakKeyDictionary()
        self._checks: WeakKeyDictionary[Table, dict[str, Recipe]] = WeakKeyDictionary()
        self.message = Message()
        menu = QMenu(self)
        self.save_table_action = menu.addAction("Table as .h5ad …", self._ask_table)
        self.update_action = menu.addAction("Table into its SpatialData", self.update_spatialdata)
        self.save_model_action = menu.addAction("Model as .safetensors …", self._ask_model)
        self.save_figure_action = menu.addAction("Figure as .png, .pdf or .svg …", self._ask_figure)
        self.save_reliability_action = menu.addAction(
            "What may be believed as .png, .pdf or .svg …", self._ask_reliability
        )
        self.save_button = QPushButton("Save …")
        self.save_button.setToolTip(
            "The table with the map, the map alone, the figure, or a page with the figure and the "
            "evidence for it"
        )
        self.save_button.setMenu(menu)
        self.copy_button = QPushButton("Copy as Python")
        self.copy_button.setToolTip(
            "Put a script on the clipboard that makes the same map and the same check"
        )
        self.copy_button.clicked.connect(self.copy_script)
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.save_button)
        row.addWidget(self.copy_button)
        row.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.message)
        layout.addLayout(row)
        self.set_state(None, None)

    def set_state(
        self,
        table: Table | None,
        key: str | None,
        regions: Regions | None = "voronoi",
        *,
        check_key: str | None = None,
    ) -> None:
        """Offer what can be saved of a table.

        Parameters
        ----------
        table
            The table.
        key, check_key
            Its map and its cross-validation, if it has them.
        regions
            What figures show.
        """
        if table is not self._table:
            self.message.say("")
        self._table, self._key, self._regions = table, key, regions
        self._check_key = check_key
        self.save_button.setEnabled(table is not None)
        for action in (self.save_model_action, self.save_figure_action):
            action.setEnabled(key is not None)
        self.copy_button.setEnabled(key is not None or check_key is not None)
        # Of cells that were sent through a map, nothing tells which labels are right.
        trained = key is not None and table is not None and not _is_ingested(table.adata, key)
        self.save_reliability_action.setEnabled(trained or check_key is not None)
        self.update_action.setVisible(table is not None and table.origin == "spatialdata")

    def remember(self, table: Table, key: str, recipe: Recipe) -> None:
        """Know how a map was made."""
        self._recipes.setdefault(table, {})[key] = recipe

    def remember_check(self, table: Table, key: str, recipe: Recipe) -> None:
        """Know how labels were checked."""
        self._checks.setdefault(table, {})[key] = recipe

    def save_table(self, path: Path) -> None:
        """Write the table with its results."""
        from centroid_encoder.viewer._save import save_h5ad

        assert self._table is not None
        table = self._table
        if self._done(f"Saved {path.name}.", save_h5ad, table.adata, path):
            # The file that holds all there is now, and from which a script can go on.
            table.path = path

    def save_model(self, path: Path) -> None:
        """Write the map alone."""
        from centroid_encoder.viewer._save import save_model

        assert self._table is not None
        self._done(f"Saved {path.name}.", save_model, self._table.adata, self._key, path)

    def save_figure(self, path: Path) -> None:
        """Draw the figure for a paper: `pl.voronoi`."""
        self._done(f"Saved {path.name}.", self._draw_map, path)

    def save_reliability(self, path: Path) -> None:
        """Draw the page that says what may be believed: `pl.reliability`."""
        self._done(f"Saved {path.name}.", self._draw_reliability, path)

    def update_spatialdata(self) -> None:
        """Write the table into the store it came from."""
        from centroid_encoder.viewer._save import save_table

        assert self._table is not None
        self._done(f"Updated {self._table.name}.", save_table, self._table)

    def script(self) -> str:
        """The script that makes the same map, and checks the same labels."""
        from centroid_encoder.viewer._script import as_python

        table = self._table
        assert table is not None
        recipe = check = None
        if self._key is not None:
            known = self._recipes.get(table, {}).get(self._key)
            recipe = known or _stored(table.adata, self._key)
        if self._check_key is not None:
            known = self._checks.get(table, {}).get(self._check_key)
            check = known or _stored_check(table.adata, self._check_key)
        if recipe is None:
            assert check is not None
            return as_python(table, check.label_key, None, check=check)
        return as_python(
            table,
            recipe.label_key,
            recipe.parameters,
            relabeled=recipe.label_key if recipe.relabeled else None,
            stopped_after=recipe.stopped_after,
            check=check,
            mapped_by=recipe.mapped_by,
        )

    def copy_script(self) -> None:
        """Put the script on the clipboard."""
        self._done(
            "Copied. Paste it into a file or a notebook.",
            lambda: QGuiApplication.clipboard().setText(self.script()),
        )

    def _draw_map(self, path: Path) -> None:
        assert self._table is not None
        assert self._key is not None
        axes = pl.voronoi(self._table.adata, key=self._key, regions=self._regions, show=False)
        _save_and_close(np.ravel(axes)[0].figure, path)  # type: ignore[arg-type]

    def _draw_reliability(self, path: Path) -> None:
        assert self._table is not None
        key = self._key or self._check_key
        assert key is not None
        page = pl.reliability(self._table.adata, key=key, regions=self._regions, show=False)
        _save_and_close(page, path)

    def _done(self, text: str, function: Any, *arguments: Any) -> bool:
        try:
            function(*arguments)
        except Exception as error:  # Whatever it is, it ends as a sentence, not as a traceback.
            self.message.say(sentence(error), "error")
            show_error(sentence(error))
            return False
        self.message.say(text)
        return True

    def _ask_table(self) -> None:
        table = self._table
        default = "" if table is None else str(table.path or "cells.h5ad")
        if path := self._ask("Save the table", default, "AnnData (*.h5ad)", ".h5ad"):
            self.save_table(path)

    def _ask_model(self) -> None:
        if path := self._ask(
            "Save the model", "map.safetensors", "Model (*.safetensors)", ".safetensors"
        ):
            self.save_model(path)

    def _ask_figure(self) -> None:
        if path := self._ask(
            "Save the figure", "voronoi.png", "Figures (*.png *.pdf *.svg)", ".png"
        ):
            self.save_figure(path)

    def _ask_reliability(self) -> None:
        if path := self._ask(
            "Save what may be believed", "reliability.png", "Figures (*.png *.pdf *.svg)", ".png"
        ):
            self.save_reliability(path)

    def _ask(self, title: str, default: str, kinds: str, suffix: str) -> Path | None:
        name, _ = QFileDialog.getSaveFileName(self, title, default, kinds)
        if not name:
            return None
        path = Path(name)
        return path if path.suffix else path.with_suffix(suffix)


def _save_and_close(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    from centroid_encoder.viewer._save import save_figure

    try:
        save_figure(figure, path)
    finally:
        plt.close(figure)


def _is_ingested(adata: AnnData, key: str) -> bool:
    return "ingested_from" in adata.uns[key]["params"]


def _stored(adata: AnnData, key: str) -> Recipe:
    """How a result was made that came with its table: what it says of itself."""
    from sklearn.base import clone

    parameters = dict(adata.uns[key]["params"])
    label_key = str(parameters.pop("label_key"))
    if _is_ingested(adata, key):
        mapped_by = str(parameters["ingested_from"])
        kept = {name: parameters[name] for name in ("min_confidence", "max_novelty")}
        return Recipe(
            label_key, kept | ({} if key == "ce" else {"key_added": key}), mapped_by=mapped_by
        )
    return _recipe(label_key, parameters, clone(tl.fitted_model(adata, key, device="cpu")), key)


def _stored_check(adata: AnnData, key: str) -> Recipe:
    """How the labels were checked of a table that came with it: what it says of itself."""
    from centroid_encoder.estimator import CentroidEncoder
    from centroid_encoder.portable import params_from

    stored = adata.uns[f"{key}_cv"]
    parameters = dict(stored["params"])
    label_key = str(parameters.pop("label_key"))
    known = set(CentroidEncoder().get_params())
    model = CentroidEncoder(**params_from(json.loads(stored["model"]), known))
    return _recipe(label_key, parameters, model, key)


def _recipe(label_key: str, parameters: dict[str, Any], model: CentroidEncoder, key: str) -> Recipe:
    if model.random_state == parameters.get("random_state"):
        # Which is where it is from.
        model.set_params(random_state=None)
    if model.get_params() != type(model)().get_params():
        parameters["model"] = model
    return Recipe(label_key, parameters | ({} if key == "ce" else {"key_added": key}))
