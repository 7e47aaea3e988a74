"""No class goes missing silently, and a map and its check are one model or said to be two."""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import centroid_encoder as ce
from centroid_encoder.tl._held_out import read_held_out
from centroid_encoder.tl._stored import StoredCrossValidation, StoredMap
from centroid_encoder.tl._summary import summary


@pytest.fixture
def rare(make_cells):
    """Cells of which four, of one kind, are said to be of a class of their own."""
    adata = make_cells(n_obs=240)
    labels = adata.obs["cell_type"].astype(str)
    labels.iloc[:12:3] = "rare"
    adata.obs["cell_type"] = pd.Categorical(labels)
    return adata


class TestMissingClasses:
    def test_of_a_map_are_named_and_stored(self, rare, caplog):
        model = ce.CentroidEncoder(class_weight=None)
        job = ce.tl.centroid_encoder.job(rare, "cell_type", model=model)
        list(job.steps())
        job.write(rare)
        table = StoredMap.read(rare, "ce").per_class.set_index("class")
        assert table["n_predicted"].sum() == table["n_in_cell"].sum() == 240
        assert table["n_predicted"]["rare"] == (rare.obs["ce_label"] == "rare").sum() == 0
        (said,) = [str(text) for text in job.notices if "takes no cell" in str(text)]
        assert said.startswith("the map takes no cell for 'rare'")
        assert any("takes no cell for 'rare'" in sentence for sentence in summary(rare, "ce"))

    def test_of_a_cross_validation_are_named_and_stored(self, rare, fast, caplog):
        ce.tl.cross_validate(rare, "cell_type", n_folds=2, model=fast, progress=False)
        stored = StoredCrossValidation.read(rare, "ce")
        table = stored.per_class.set_index("class")
        assert table["n_predicted"]["rare"] == 0
        assert list(table["n_predicted"]) == list(stored.confusion.sum(axis=0))
        (said,) = [text for text in stored.warnings if "take no cell" in text]
        assert said.startswith("the networks take no cell for 'rare'")
        assert said in caplog.messages

    @pytest.mark.slow
    def test_without_a_region_are_named_in_the_figure(self, rare):
        model = ce.CentroidEncoder(placement="bottleneck", class_weight=None)
        ce.tl.centroid_encoder(rare, "cell_type", model=model, progress=False)
        for regions, label in (("decoder", "rare (no region)"), ("voronoi", "rare")):
            axes = ce.pl.voronoi(rare, regions=regions, show=False)
            entries = [text.get_text() for text in axes[-1].get_legend().get_texts()]
            assert label in entries
            assert "type 1" in entries
            plt.close("all")

    def test_are_not_known_of_older_tables(self, rare, fast):
        ce.tl.centroid_encoder(rare, "cell_type", model=fast, progress=False)
        table = rare.uns["ce"]["quality"]["per_class"]
        rare.uns["ce"]["quality"]["per_class"] = table.drop(columns=["n_predicted", "n_in_cell"])
        assert StoredMap.read(rare, "ce").per_class["n_predicted"].isna().all()
        assert not any("takes no cell" in sentence for sentence in summary(rare, "ce"))


class TestOneModel:
    def test_a_check_has_the_settings_of_the_map(self, cells, caplog):
        model = ce.CentroidEncoder(hidden=(7,), max_epochs=3, random_state=5)
        ce.tl.centroid_encoder(cells, "cell_type", model=model, n_components=3, progress=False)
        caplog.set_level("INFO", "centroid_encoder")
        ce.tl.cross_validate(cells, "cell_type", n_folds=2, progress=False)
        assert "    with the settings of the map 'ce'" in caplog.messages
        used = json.loads(cells.uns["ce_cv"]["model"])
        assert (used["hidden"], used["max_epochs"], used["n_components"]) == ([7], 3, 3)
        assert not any("two models" in sentence for sentence in summary(cells, "ce"))
        assert "other settings" not in read_held_out(cells, "ce").words
        expected = cells.copy()
        same = ce.CentroidEncoder(hidden=(7,), max_epochs=3, n_components=3)
        ce.tl.cross_validate(expected, "cell_type", n_folds=2, model=same, progress=False)
        assert list(expected.obs["ce_cv_own"]) == list(cells.obs["ce_cv_own"])

    def test_unless_told_otherwise(self, cells, fast, caplog):
        ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
        other = ce.CentroidEncoder(hidden=(7,), max_epochs=2)
        ce.tl.cross_validate(cells, "cell_type", n_folds=2, model=other, progress=False)
        assert json.loads(cells.uns["ce_cv"]["model"])["hidden"] == [7]
        differing = "hidden=[16] against [7], max_epochs=5 against 2"
        notice = f"the map 'ce' is of other settings (against those here): {differing}"
        assert notice in caplog.messages
        (said,) = [sentence for sentence in summary(cells, "ce") if "two models" in sentence]
        assert said.endswith(f"(map against cross-validation): {differing}.")
        assert read_held_out(cells, "ce").words.endswith(", other settings than the map's")
        axes = ce.pl.calibration(cells, show=False)
        assert "other settings than the map's" in axes.get_title()
        plt.close("all")

    def test_other_values_are_other_settings(self, cells, fast):
        cells.obsm["X_pca"] = cells.X[:, :4]
        ce.tl.centroid_encoder(cells, "cell_type", use_rep="X_pca", model=fast, progress=False)
        ce.tl.cross_validate(cells, "cell_type", n_folds=2, progress=False)
        (said,) = [sentence for sentence in summary(cells, "ce") if "two models" in sentence]
        assert "use_rep='X_pca' against None" in said

    @pytest.mark.parametrize("mapped", ["no map", "other labels", "a query"])
    def test_without_such_a_map_the_defaults_are_used(self, cells, make_cells, fast, mapped):
        small = ce.CentroidEncoder(hidden=(7,), max_epochs=2)
        cells.obs["other"] = pd.Categorical(np.arange(120) % 2 > 0)
        if mapped == "other labels":
            ce.tl.centroid_encoder(cells, "other", model=small, progress=False)
        if mapped == "a query":
            known = make_cells()
            ce.tl.centroid_encoder(known, "cell_type", model=small, progress=False)
            ce.tl.ingest(cells, known, progress=False)
        job = ce.tl.cross_validate.job(cells, "cell_type")
        assert job._estimator.get_params() == ce.CentroidEncoder().get_params()

    @pytest.mark.parametrize(
        ("regions", "rule", "name"),
        [
            ("voronoi", "voronoi", "Voronoi"),
            ("decoder", "decoder", "decoder"),
            (None, "knn", "5-NN"),
        ],
    )
    @pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
    def test_a_title_gives_the_error_of_the_rule_that_is_drawn(
        self, cells, fast, placement, regions, rule, name
    ):
        arguments = {"placement": placement, "model": fast}
        ce.tl.centroid_encoder(cells, "cell_type", progress=False, **arguments)
        if placement == "voronoi" and rule == "decoder":
            # There is none: the cells are the decision.
            rule, name = "voronoi", "Voronoi"
        quality = cells.uns["ce"]["quality"]["test"]
        quality |= {"knn_error": 0.11, "voronoi_error": 0.22, "decoder_error": 0.33}
        _, held_out = ce.pl.voronoi(cells, regions=regions, show=False)
        error = 100 * quality[f"{rule}_error"]
        assert held_out.get_title().startswith(f"held-out {name} error {error:.1f} % (n = 24)")
        plt.close("all")
