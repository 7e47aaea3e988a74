"""Warnings of classes without cells, and of a map and a cross-validation that differ."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import centroid_encoder as ce
from centroid_encoder.tl._evaluation import read_held_out
from centroid_encoder.tl._result import StoredCrossValidation
from centroid_encoder.tl._summary import summary


@pytest.fixture
def rare(make_cells):
    """Cells with a class of four cells that do not differ from those of another class."""
    adata = make_cells(n_obs=240)
    labels = adata.obs["cell_type"].astype(str)
    labels.iloc[:12:3] = "rare"
    adata.obs["cell_type"] = pd.Categorical(labels)
    return adata


class TestClassesWithoutCells:
    def test_of_a_map(self, rare, caplog):
        model = ce.CentroidEncoder(class_weight=None, scale="supervised")
        ce.tl.centroid_encoder(rare, "cell_type", model=model, progress=False)
        table = rare.uns["ce"]["quality"]["per_class"].set_index("class")
        assert table["n_predicted"].sum() == table["n_in_cell"].sum() == 240
        assert table["n_predicted"]["rare"] == (rare.obs["ce_label"] == "rare").sum() == 0
        for texts in (caplog.messages, summary(rare, "ce")):
            assert len([text for text in texts if "the map takes no cell for 'rare'" in text]) == 1

    def test_of_a_cross_validation(self, rare, fast, caplog):
        fast.set_params(class_weight=None)
        ce.tl.cross_validate(rare, "cell_type", n_folds=2, model=fast, progress=False)
        stored = StoredCrossValidation.read(rare, "ce")
        table = stored.per_class.set_index("class")
        assert table["n_predicted"]["rare"] == 0
        assert list(table["n_predicted"]) == list(stored.confusion.sum(axis=0))
        (text,) = [text for text in stored.warnings if "take no cell" in text]
        assert text.startswith("the networks take no cell for 'rare'")
        assert text in caplog.messages


class TestMapAndCrossValidation:
    def test_have_the_same_settings_by_default(self, cells, caplog):
        model = ce.CentroidEncoder(hidden=(7,), max_epochs=3, random_state=5)
        ce.tl.centroid_encoder(cells, "cell_type", model=model, n_components=3, progress=False)
        ce.tl.cross_validate(cells, "cell_type", n_folds=2, progress=False)
        used = json.loads(cells.uns["ce_cv"]["model"])
        assert (used["hidden"], used["max_epochs"], used["n_components"]) == ([7], 3, 3)
        assert not any("two models" in sentence for sentence in summary(cells, "ce"))
        assert "other settings" not in read_held_out(cells, "ce").words
        expected = cells.copy()
        same = ce.CentroidEncoder(hidden=(7,), max_epochs=3, n_components=3)
        ce.tl.cross_validate(expected, "cell_type", n_folds=2, model=same, progress=False)
        assert list(expected.obs["ce_cv_own"]) == list(cells.obs["ce_cv_own"])

    def test_different_settings_are_warned_of(self, cells, fast, caplog):
        cells.obsm["X_pca"] = cells.X[:, :4]
        ce.tl.centroid_encoder(cells, "cell_type", use_rep="X_pca", model=fast, progress=False)
        other = ce.CentroidEncoder(hidden=(7,), max_epochs=2)
        ce.tl.cross_validate(cells, "cell_type", n_folds=2, model=other, progress=False)
        differing = "use_rep='X_pca' against None, hidden=[16] against [7], max_epochs=5 against 2"
        for texts in (caplog.messages, summary(cells, "ce")):
            assert len([text for text in texts if differing in text]) == 1
        axes = ce.pl.calibration(cells, show=False)
        assert "other settings than the map's" in axes.get_title()
