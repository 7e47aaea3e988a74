"""`tl.ingest`: features are matched by name, and cells are placed in chunks."""

from __future__ import annotations

import re
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import torch
import zarr
from anndata import AnnData
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

import centroid_encoder as ce
from centroid_encoder.core import matrix
from centroid_encoder.core.gaps import Imputed
from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.tl import _matrix
from centroid_encoder.tl._cells import NewCells, Source, read_new_cells
from centroid_encoder.tl._result import read_result

Ingest = Callable[..., AnnData | None]


@pytest.fixture
def known(embed: Callable[..., AnnData], fast: ce.CentroidEncoder) -> AnnData:
    """Cells with a map."""
    return embed(n_obs=150, distance=3.0, model=fast)


@pytest.fixture
def new(known: AnnData) -> AnnData:
    """Other cells of the same classes."""
    noise = np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32)
    obs = pd.DataFrame(index=[f"new{i}" for i in range(60)])
    return AnnData(known.X[:60] + noise, obs=obs, var=known.var)


@pytest.fixture
def ingest() -> Ingest:
    def run(adata: AnnData, reference: Any, **kwargs: Any) -> AnnData | None:
        return ce.tl.ingest(adata, reference, **{"progress": False} | kwargs)

    return run


def test_results_are_those_of_the_estimator(known, new, ingest):
    ingest(new, known)
    model = ce.tl.fitted_model(known)
    frame = pd.DataFrame(new.X, columns=new.var_names)
    assert_allclose(new.obsm["X_ce"], model.transform(frame), atol=1e-6)
    assert_array_equal(new.obs["ce_label"], model.predict(frame))
    assert_allclose(new.obs["ce_confidence"], model.predict_proba(frame).max(axis=1), rtol=1e-6)
    assert_allclose(new.obs["ce_novelty"], model.novelty(frame))
    assert (new.obs["ce_split"] == "query").all()
    stored = new.uns["ce"]
    assert list(stored["classes"]) == list(known.uns["ce"]["classes"])
    assert_array_equal(stored["centers"], known.uns["ce"]["centers"])
    assert stored["params"]["ingested_from"] == "an AnnData"
    assert stored["params"]["reference_label_key"] == "cell_type"
    assert set(new.obs) == {"ce_label", "ce_confidence", "ce_novelty", "ce_split", "ce_map"}
    assert set(new.obs["ce_map"]) == set(known.obs["ce_map"]) == {stored["id"]}


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_held_out_cells_are_placed_where_they_were(known, fast, ingest, unchanged, placement):
    ce.tl.centroid_encoder(
        known, "cell_type", model=fast, placement=placement, test_size=0.3, progress=False
    )
    again = known.copy()
    with unchanged(known):
        ingest(again, known, key_added="again")
    same = (known.obs["ce_split"] == "test").to_numpy()
    assert_allclose(again.obsm["again"][same], known.obsm["X_ce"][same], atol=1e-5)
    assert_array_equal(again.obs["again_label"][same], known.obs["ce_label"][same])
    assert_allclose(again.obs["again_novelty"][same], known.obs["ce_novelty"][same], atol=1e-3)
    # The stored confidence of a held-out cell is calibrated without it.
    confidence = (x[same] for x in (again.obs["again_confidence"], known.obs["ce_confidence"]))
    assert_allclose(*confidence, atol=0.05)


class TestReferences:
    def test_all_kinds_give_the_same_results(self, known, new, ingest, tmp_path):
        known.uns["cell_type_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
        known.write_h5ad(tmp_path / "known.h5ad")
        known.write_zarr(tmp_path / "known.zarr")
        model = ce.tl.fitted_model(known)
        model.save(tmp_path / "map.safetensors")
        expected = ingest(new, known, copy=True)
        for reference, origin in (
            (model, "a CentroidEncoder"),
            (tmp_path / "map.safetensors", "map.safetensors"),
            (str(tmp_path / "known.h5ad"), "known.h5ad"),
            (tmp_path / "known.zarr", "known.zarr"),
            (expected, "an AnnData"),
        ):
            found = ingest(new, reference, copy=True)
            assert_array_equal(found.obsm["X_ce"], expected.obsm["X_ce"])
            assert_array_equal(found.obs["ce_label"], expected.obs["ce_label"])
            assert_array_equal(found.obs["ce_novelty"], expected.obs["ce_novelty"])
            assert found.uns["ce"]["params"]["ingested_from"] == origin
            if origin.startswith("known"):
                assert list(found.uns["ce_label_colors"]) == ["#ff0000", "#00ff00", "#0000ff"]

    def test_without_a_map_they_are_refused(self, known, new, ingest, tmp_path, unchanged):
        for name in ("broken.safetensors", "broken.h5ad"):
            (tmp_path / name).write_bytes(b"nothing")
        (tmp_path / "folder.zarr").mkdir()
        new.write_zarr(tmp_path / "new.zarr")
        known.write_zarr(tmp_path / "spatial.zarr" / "tables" / "cells")
        zarr.open_group(tmp_path / "spatial.zarr", mode="a", zarr_format=2).require_group("tables")
        broken = known.copy()
        broken.uns["ce"] = {**broken.uns["ce"], "model": {}}
        for reference, error, words in (
            (tmp_path / "nowhere.h5ad", FileNotFoundError, "there is no file"),
            (tmp_path / "broken.safetensors", InvalidStateError, "not a readable"),
            (tmp_path / "broken.h5ad", ValueError, "broken.h5ad cannot be read: it is damaged"),
            (tmp_path / "folder.zarr", OSError, "it is a folder, but no zarr store"),
            (tmp_path / "new.zarr", KeyError, "no result 'ce'"),
            (tmp_path / "spatial.zarr", OSError, "tables/cells"),
            (broken, InvalidStateError, "lacks 'config'"),
            (new, KeyError, "run ce.tl.centroid_encoder(adata, label_key) first"),
            (3, TypeError, "got int"),
            (ce.CentroidEncoder(), ValueError, "not fitted"),
        ):
            with unchanged(new), pytest.raises(error, match=re.escape(words)):
                ingest(new, reference)
        with unchanged(new), pytest.raises(KeyError, match="no result 'other'"):
            ingest(new, known, key="other")

    def test_colors_of_an_earlier_result_are_deleted(
        self, known, new, ingest, unchanged, monkeypatch
    ):
        ingest(new, known)
        new.uns["ce_label_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
        with monkeypatch.context() as patch, unchanged(new):
            patch.setattr(type(new.obsm), "__setitem__", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                ingest(new, known)
        ingest(new, known)
        assert "ce_label_colors" not in new.uns

    def test_order_of_categories_is_kept(self, known, new, ingest):
        known.obs["cell_type"] = known.obs["cell_type"].cat.reorder_categories(
            ["type 2", "type 0", "type 1"]
        )
        known.uns["cell_type_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
        ingest(new, known)
        assert list(new.obs["ce_label"].cat.categories) == ["type 2", "type 0", "type 1"]
        assert list(new.uns["ce_label_colors"]) == ["#ff0000", "#00ff00", "#0000ff"]
        assert list(new.uns["ce"]["classes"]) == ["type 0", "type 1", "type 2"]
        model = ce.tl.fitted_model(known)
        frame = pd.DataFrame(new.X, columns=new.var_names)
        assert_array_equal(new.obs["ce_label"], model.predict(frame))

    @pytest.mark.parametrize("source", [{"layer": "scaled"}, {"use_rep": "X_pca"}])
    def test_values_are_read_where_the_reference_had_them(self, known, new, fast, ingest, source):
        for adata in (known, new):
            adata.layers["scaled"], adata.obsm["X_pca"] = 2 * adata.X, adata.X[:, :4]
        ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False, **source)
        model = ce.tl.fitted_model(known)
        model.__dict__.pop("feature_names_in_", None)
        found = ingest(new, known, use_rep=source.get("use_rep"), copy=True)
        values = new.layers["scaled"] if "layer" in source else new.obsm["X_pca"]
        assert_allclose(found.obsm["X_ce"], model.transform(values), atol=1e-6)
        # A query can be a reference: it stores the map and where its values are.
        again = ingest(new, found, use_rep=source.get("use_rep"), copy=True)
        assert_array_equal(again.obsm["X_ce"], found.obsm["X_ce"])
        del new.layers["scaled"], new.obsm["X_pca"]
        with pytest.raises(KeyError, match=r"(layers|obsm) has no"):
            ingest(new, known)

    def test_raw(self, known, new, squeezed, ingest):
        whole = new.copy()
        for adata in (known, new):
            adata.raw = adata.copy()
            adata.X = adata.X / 100 - 3
        ce.tl.centroid_encoder(known, "cell_type", use_raw=True, model=squeezed, progress=False)
        assert known.uns["ce"]["params"]["use_raw"] is True
        ingest(new, known)
        ingest(whole, known, use_rep="X")
        assert_array_equal(new.obsm["X_ce"], whole.obsm["X_ce"])
        text = r"adata\.raw is empty; .* if the map was trained on raw, pass use_rep=\"X\""
        with pytest.raises(ValueError, match=text):
            ingest(whole, known)


class TestNames:
    def test_order_and_further_features_do_not_matter(self, known, new, ingest):
        expected = ingest(new, known, copy=True)
        more = ad.concat(
            [new, AnnData(np.ones((60, 2)), obs=new.obs, var=pd.DataFrame(index=["x", "y"]))],
            axis=1,
        )
        shuffled = more[:, np.random.default_rng(0).permutation(10)].copy()
        ingest(shuffled, known)
        assert_allclose(shuffled.obsm["X_ce"], expected.obsm["X_ce"], atol=2e-5)

    def test_case_does_not_matter_if_names_are_unique(self, known, new, ingest, caplog):
        expected = ingest(new, known, copy=True)
        new.var_names = ["gene0", *(f"Gene{i}" for i in range(1, 8))]
        assert "without regard to case" not in caplog.text
        ingest(new, known)
        text = "7 features of X match those of the map only without regard to case, such as 'Gene1'"
        assert caplog.text.count(f"{text} for 'gene1'") == 1
        assert_allclose(new.obsm["X_ce"], expected.obsm["X_ce"], atol=2e-5)
        new.var_names = ["GENE0", "Gene0", *(f"gene{i}" for i in range(2, 8))]
        with pytest.raises(ValueError, match=r"lacks 2 of the 8 features .*: 'gene0', 'gene1'"):
            ingest(new, known)

    def test_missing_ones_are_named(self, known, new, ingest, unchanged):
        some, other = new[:, 2:].copy(), new.copy()
        other.var_names = [f"ENSG{i}" for i in range(8)]
        lacks = "X lacks 2 of the 8 features that the map uses: 'gene0', 'gene1'"
        for adata, kwargs, words in (
            (some, {}, f'{lacks} (25%); pass missing="estimate"'),
            (some, {"missing": "estimate"}, "pass max_missing=0"),
            (other, {"missing": "estimate", "max_missing": 1}, "'ENSG0': are these names of anoth"),
        ):
            with unchanged(adata), pytest.raises(ValueError, match=re.escape(words)):
                ingest(adata, known, **kwargs)

    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
    def test_missing_ones_can_be_estimated(self, known, new, ingest, caplog, kind):
        some = AnnData(kind(new.X[:, 1:]), obs=new.obs, var=new.var.iloc[1:])
        ingest(some, known, missing="estimate")
        assert "lacks 1 of the 8 features" in caplog.text
        gaps = new.copy()
        gaps.X[:, 0] = np.nan
        ingest(gaps, known, missing="estimate")
        assert_allclose(some.obsm["X_ce"], gaps.obsm["X_ce"], atol=1e-4)
        assert_allclose(some.obs["ce_novelty"], gaps.obs["ce_novelty"], atol=1e-4)
        assert some.uns["ce"]["params"]["n_missing"] == 1

    def test_features_of_weight_0_may_be_missing(self, known, new, ingest):
        # There is one network, since each of several would choose its own features.
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, max_features=3, n_networks=1)
        ce.tl.centroid_encoder(known, "cell_type", model=model, progress=False)
        used = ce.tl.fitted_model(known).feature_weights_ > 0
        some = new[:, used].copy()
        with pytest.raises(ValueError, match="lacks 1 of the 3"):
            ingest(some[:, 1:].copy(), known)
        ingest(some, known)
        assert_allclose(some.obsm["X_ce"], ingest(new, known, copy=True).obsm["X_ce"], atol=1e-5)

    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
    def test_absent_features_of_weight_0_cost_nothing(self, known, new, ingest, kind, monkeypatch):
        """No value is estimated, and no cell is judged more than once."""
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, max_features=3, n_networks=1)
        ce.tl.centroid_encoder(known, "cell_type", model=model, progress=False)
        used = ce.tl.fitted_model(known).feature_weights_ > 0
        some = AnnData(kind(new.X[:, used]), obs=new.obs, var=new.var[used])
        judged, plain = [], FittedMap.judge

        def judge(map_, X):
            judged.append(len(X) if isinstance(X, np.ndarray) else X.shape[0])
            return plain(map_, X)

        monkeypatch.setattr(FittedMap, "judge", judge)
        monkeypatch.setattr(Imputed, "_estimates", None)
        ingest(some, known)
        assert sum(judged) == 60
        # Novelty is that of the expected values.
        monkeypatch.undo()
        gaps = new.copy()
        gaps.X[:, ~used] = np.nan
        map_ = ce.tl.fitted_model(known).fitted_map
        lost = np.square(map_.novelty.axes[~used]).sum() / map_.novelty.axes.shape[1]
        masks = np.broadcast_to(~used, new.shape)
        expected = next(map_.novelty.estimates(gaps.X.astype(float), masks))
        expected = map_.novelty.quantiles(expected, lost=np.full(60, lost))
        assert_allclose(some.obs["ce_novelty"], expected, atol=0.02)

    def test_other_features_are_ignored_and_all_cannot_be_missing(self, known, new, ingest):
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, max_features=3, n_networks=1)
        ce.tl.centroid_encoder(known, "cell_type", model=model, progress=False)
        used = ce.tl.fitted_model(known).feature_weights_ > 0
        other = AnnData(np.full((new.n_obs, 1), np.nan), obs=new.obs)
        other.var_names = ["other"]
        some = ad.concat([other, new[:, used]], axis=1, merge="same")
        ingest(some, known)
        assert_allclose(some.obsm["X_ce"], ingest(new, known, copy=True).obsm["X_ce"], atol=1e-5)
        with pytest.raises(ValueError, match="lacks 3 of the 3 features"):
            ingest(new[:, ~used].copy(), known, missing="estimate", max_missing=1)
        gaps = new.copy()
        gaps.X[4, used] = np.nan
        ingest(gaps, known, missing="estimate", max_missing=1)
        assert gaps.obs["ce_label"].iloc[4] == "unassigned"
        assert np.isnan(gaps.obsm["X_ce"]).all(axis=1).sum() == 1

    @pytest.mark.filterwarnings("ignore:Variable names are not unique:UserWarning")
    def test_a_name_that_occurs_twice_is_an_error(self, known, new, ingest):
        with pytest.raises(ValueError, match="the name 'gene0' more than once"):
            ingest(ad.concat([new, new[:, :1]], axis=1), known)

    def test_a_map_without_names_takes_columns_in_order(self, new, known, ingest, caplog):
        y = known.obs["cell_type"].to_numpy().astype(str)
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=3, random_state=0).fit(known.X, y)
        ingest(new, model)
        assert "the map has no names" in caplog.text
        assert_allclose(new.obsm["X_ce"], model.transform(new.X), atol=1e-6)
        assert new.obs["ce_novelty"].isna().all()
        with pytest.raises(ValueError, match="max_novelty needs a map with novelty"):
            ingest(new, model, max_novelty=0.9)
        with pytest.raises(ValueError, match="X has 7 columns, but the map was trained on 8"):
            ingest(new[:, 1:].copy(), model)

    def test_columns_of_a_frame_are_found_by_name(self, known, squeezed, ingest):
        names = [f"marker {i}" for i in range(8)]
        known.obsm["markers"] = pd.DataFrame(known.X, index=known.obs_names, columns=names)
        ce.tl.centroid_encoder(
            known, "cell_type", use_rep="markers", model=squeezed, progress=False
        )
        query = known.copy()
        query.obsm["markers"] = query.obsm["markers"][names[::-1]]
        ingest(query, known, key_added="q")
        assert_allclose(query.obsm["q"], known.obsm["X_ce"], atol=1e-5)
        query.obsm["markers"] = query.obsm["markers"].rename(columns={names[0]: "other"})
        with pytest.raises(ValueError, match=r"obsm\['markers'\] lacks 1 of the .* 'marker 0'"):
            ingest(query, known, key_added="q")

    def test_components_of_another_pca_are_refused(self, cells, fast, ingest, unchanged, tmp_path):
        sc.pp.pca(cells, n_comps=4)
        known, new = cells[:80].copy(), cells[80:].copy()
        ce.tl.centroid_encoder(known, "cell_type", use_rep="X_pca", model=fast, progress=False)
        known.write_h5ad(tmp_path / "known.h5ad")
        expected = ingest(new, known, copy=True).obsm["X_ce"]  # one PCA made both
        own, rest = new[:, ::-1].copy(), new[:, :6].copy()
        assert_array_equal(ingest(own, known, copy=True).obsm["X_ce"], expected)
        assert_array_equal(ingest(rest, known, copy=True).obsm["X_ce"], expected)
        part = known.copy()
        for adata in (part, rest):  # As if the first gene had taken no part in the PCA.
            adata.varm["PCs"][0] = np.nan
        assert_array_equal(ingest(rest, part, copy=True).obsm["X_ce"], expected)
        sc.pp.pca(own, n_comps=4)
        for reference in (known, tmp_path / "known.h5ad"):
            for use_rep in (None, "X_pca"):
                with unchanged(own), pytest.raises(ValueError, match="another PCA") as caught:
                    ingest(own, reference, use_rep=use_rep)
                assert caught.value.parameter == "use_rep"
        # The example of the docstring.
        ours = own[:, known.var_names].X - cells.X.mean(axis=0)
        own.obsm["X_pca"] = np.asarray(ours @ known.varm["PCs"])
        del own.varm["PCs"]
        with unchanged(own), pytest.raises(ValueError, match="pass use_rep='X_pca'"):
            ingest(own, known)
        ingest(own, known, use_rep="X_pca")
        assert_allclose(own.obsm["X_ce"], expected, atol=1e-4)

    @pytest.mark.parametrize("named", ["reference", "query", "none"])
    def test_columns_without_names_must_be_confirmed(self, known, new, fast, ingest, named):
        for adata, kind in ((known, "reference"), (new, "query")):
            values = pd.DataFrame(adata.X[:, :4], adata.obs_names, list("abcd"))
            adata.obsm["X_scVI"] = values if kind == named else values.to_numpy()
        ce.tl.centroid_encoder(known, "cell_type", use_rep="X_scVI", model=fast, progress=False)
        with pytest.raises(ValueError, match="pass use_rep='X_scVI'"):
            ingest(new, known)
        ingest(new, known, use_rep="X_scVI")


class TestValues:
    def test_raw_counts_are_refused(self, known, new, ingest, unchanged):
        new.layers["log"] = new.X.copy()
        new.X = np.random.default_rng(0).poisson(20, new.shape).astype(np.float32)
        with unchanged(new), pytest.raises(ValueError, match="X looks like raw counts") as caught:
            ingest(new, known)
        assert "sc.pp.log1p" in str(caught.value)
        ingest(new, known, layer="log")

    def test_a_map_of_counts_accepts_counts(self, known, new, fast, ingest, caplog):
        known.X = np.random.default_rng(0).poisson(20, known.shape).astype(np.float32)
        ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False)
        caplog.clear()
        counts = new.copy()
        counts.X = np.random.default_rng(1).poisson(20, new.shape).astype(np.float32)
        ingest(counts, known)
        assert "counts" not in caplog.text
        ingest(new, known)
        assert "the map was trained on whole numbers, like counts; X holds others" in caplog.text

    def test_a_shift_of_all_cells_is_warned_of_but_not_some_novel_cells(
        self, known, ingest, caplog
    ):
        few = known.copy()
        few.X[:10] += 5 * np.array([1, -1] * 4, dtype=np.float32)
        ingest(few, known, key_added="q")
        assert "as a whole" not in caplog.text
        assert (few.obs["q_novelty"][:10] > 0.95).all()
        assert few.uns["q"]["params"]["novelty_quartile"] < 0.5
        few.X = 7 * few.X - 20
        ingest(few, known, key_added="q")
        assert "the query is shifted as a whole" in caplog.text

    def test_novelty_of_cells_that_lack_genes(self, make_cells, fast, ingest, caplog):
        cells = make_cells(n_obs=600, n_vars=40, distance=1.0)
        known, new = cells[:300].copy(), cells[300:].copy()
        new.X[:60] = np.random.default_rng(3).normal(size=40) * 2 + new.X[:60] / 2
        ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False)
        lacking = new[:, :33].copy()
        ingest(lacking, known, missing="estimate")
        assert "as a whole" not in caplog.text
        novelty = lacking.obs["ce_novelty"].to_numpy()
        assert (novelty[:60] > 0.9).mean() > 0.8
        assert (novelty[60:] > 0.9).mean() < 0.15

    @pytest.mark.slow
    def test_confidence_allows_for_missing_features(self):
        """With expectations alone, 79 % of the labels are right, at a mean confidence of 90 %."""
        X, y = load_digits(return_X_y=True)
        obs = pd.DataFrame({"digit": pd.Categorical(y)}, index=[f"image{i}" for i in range(len(y))])
        digits = AnnData(
            X.astype(np.float32), obs, pd.DataFrame(index=[f"p{i}" for i in range(64)])
        )
        known, new = digits[:900].copy(), digits[900:].copy()
        model = ce.CentroidEncoder(max_epochs=30, random_state=0)
        ce.tl.centroid_encoder(known, "digit", model=model, test_size=0, progress=False)
        kept = np.random.default_rng(1).random(64) > 0.7
        some = new[:, kept].copy()
        ce.tl.ingest(some, known, missing="estimate", max_missing=1, progress=False)
        right = some.obs["ce_label"].astype(int) == new.obs["digit"].astype(int)
        assert 0.5 < right.mean() < 0.9
        assert abs(some.obs["ce_confidence"].mean() - right.mean()) < 0.1
        fitted = ce.tl.fitted_model(known)
        nearest = cdist(some.obsm["X_ce"], fitted.fitted_map.centers).argmin(axis=1)
        assert_array_equal(fitted.classes_[nearest], some.obs["ce_label"])
        # A cell has the same confidence alone, and with others that lack other values.
        new.X[:, ~kept] = np.nan
        new.X[1, :20] = np.nan
        ce.tl.ingest(new, known, missing="estimate", max_missing=1, progress=False)
        alone = new[[0, 2]].copy()
        ce.tl.ingest(alone, known, missing="estimate", max_missing=1, progress=False)
        for query in (new, some):
            found = query.obs["ce_confidence"].iloc[[0, 2]]
            assert_allclose(found, alone.obs["ce_confidence"], atol=1e-4)

    def test_missing_values(self, known, new, ingest, unchanged):
        new.X[[3, 50], 2] = np.nan, np.inf
        with unchanged(new), pytest.raises(ValueError, match="2 NaN or infinite") as caught:
            ingest(new, known)
        assert "the first is 'gene2' of cell 'new3'; pass missing=\"estimate\"" in str(caught.value)
        before, complete = new.X.copy(), np.setdiff1d(np.arange(new.n_obs), [3, 50])
        ingest(new, known, missing="estimate")
        assert_array_equal(new.X, before)
        alone = new[complete].copy()
        ingest(alone, known)
        assert_allclose(new.obsm["X_ce"][complete], alone.obsm["X_ce"], atol=1e-4)
        assert np.isfinite(new.obsm["X_ce"]).all()

    def test_cells_with_missing_values_can_be_left_out(self, known, new, ingest, caplog):
        expected = ingest(new, known, copy=True)
        new.X[[3, 50], 2] = np.nan, np.inf
        ingest(new, known, missing="drop")
        assert f"2 of {new.n_obs} cells are left out: values are missing" in caplog.text
        out = np.isin(np.arange(new.n_obs), [3, 50])
        assert_allclose(new.obsm["X_ce"][~out], expected.obsm["X_ce"][~out], atol=1e-5)
        assert np.isnan(new.obsm["X_ce"][out]).all()
        assert new.obs["ce_label"][out].tolist() == ["unassigned"] * 2
        assert new.obs.loc[out, ["ce_confidence", "ce_novelty"]].isna().all(axis=None)
        with pytest.raises(ValueError, match="lacks 1 of the 8 features"):
            ingest(new[:, 1:].copy(), known, missing="drop")

    def test_all_kinds_of_matrices_give_the_same_results(self, known, new, ingest, tmp_path):
        expected = ingest(new, known, copy=True)
        for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, np.asfortranarray):
            adata = AnnData(kind(new.X), obs=new.obs, var=new.var)
            ingest(adata, known)
            assert_allclose(adata.obsm["X_ce"], expected.obsm["X_ce"], atol=1e-5)
        adata.write_h5ad(tmp_path / "new.h5ad")
        backed = ad.read_h5ad(tmp_path / "new.h5ad", backed="r")
        found = ingest(backed, known, copy=True)
        assert_allclose(found.obsm["X_ce"], expected.obsm["X_ce"], atol=1e-5)
        backed.file.close()
        view = new[::2, ::-1]
        ingest(view, known)
        assert_allclose(view.obsm["X_ce"], expected.obsm["X_ce"][::2], atol=1e-5)


class TestUnassigned:
    @pytest.mark.parametrize("labels", ["cell_type", [4, 7, 9]], ids=["strings", "numbers"])
    def test_thresholds(self, known, new, fast, ingest, labels):
        if labels != "cell_type":
            known.obs["number"] = np.array(labels)[known.obs["cell_type"].cat.codes]
            ce.tl.centroid_encoder(known, "number", model=fast, progress=False)
        everything = ingest(new, known, copy=True).obs
        assert "unassigned" not in everything["ce_label"].cat.categories
        confident = everything["ce_confidence"].quantile(0.3)
        usual = everything["ce_novelty"].quantile(0.8)
        ingest(new, known, min_confidence=confident, max_novelty=usual)
        doubtful = (everything["ce_confidence"] < confident) | (everything["ce_novelty"] > usual)
        assert 0 < doubtful.sum() < 60
        unassigned = new.obs["ce_label"].isin(["unassigned"]) | new.obs["ce_label"].isna()
        assert_array_equal(unassigned, doubtful)
        assert new.obs["ce_label"].isna().any() == (labels != "cell_type")
        kept = new.obs["ce_label"][~doubtful]
        assert kept.tolist() == everything["ce_label"][~doubtful].tolist()
        assert_array_equal(new.obs["ce_confidence"], everything["ce_confidence"])

    @pytest.mark.parametrize(
        ("kwargs", "words"),
        [
            ({"missing": "no"}, "missing must be 'error' or 'drop' or 'estimate'; got 'no'"),
            ({"missing": "drop", "max_missing": 0.3}, 'no effect with missing="drop"'),
            ({"missing": "estimate", "max_missing": 2}, "max_missing must be a number in [0, 1]"),
            ({"max_missing": 0.3}, 'max_missing=0.3 has no effect with missing="error"'),
            ({"max_novelty": "high"}, "max_novelty must be a number in [0, 1]; got 'high'"),
            ({"key_added": "a/b"}, "'a/b'"),
            ({"layer": "log", "use_rep": "X_pca"}, "use only one of"),
            ({"device": "cuda:99"}, "device 'cuda:99' is not available"),
        ],
    )
    def test_bad_arguments_change_nothing(self, known, new, ingest, unchanged, kwargs, words):
        with unchanged(new), pytest.raises(ValueError, match=re.escape(words)):
            ingest(new, known, **kwargs)
        with pytest.raises(ValueError, match="no cells"):
            ingest(new[:0].copy(), known)


def test_figure_of_the_query(known, new, ingest, tmp_path):
    colors = known.uns["cell_type_colors"] = ["#112233", "#445566", "#778899"]
    least = float(ingest(new, known, copy=True).obs["ce_confidence"].quantile(0.2))
    ingest(new, known, min_confidence=least)
    new.write_h5ad(tmp_path / "new.h5ad")
    read = ad.read_h5ad(tmp_path / "new.h5ad")
    ax = ce.pl.voronoi(read, show=False)
    n = int((read.obs["ce_label"] == "unassigned").sum())
    title, expected = ax.get_title().split("\n")
    assert title == f"query cells (n = 60, {n} unassigned)"
    assert expected.endswith(" % may be wrong")
    shown = Counter[str]()
    for line in ax.lines:
        shown[to_hex(line.get_color())] += len(line.get_xdata())
    assert shown["#d3d3d3"] == n > 0
    for i, color in enumerate(colors):
        assert shown[color] == (read.obs["ce_label"] == f"type {i}").sum()
    with pytest.raises(ValueError, match="no cell is in the split train, only in query"):
        ce.pl.voronoi(read, split="train", show=False)


@pytest.mark.parametrize("name", ["reliability", "confusion", "calibration", "history"])
def test_figures_of_a_training_are_refused_for_a_query(known, new, ingest, name):
    ingest(new, known)
    with pytest.raises(ValueError, match=r"ce\.tl\.ingest"):
        getattr(ce.pl, name)(new, show=False)


def test_a_file_is_never_in_memory_as_a_whole(known, ingest, tmp_path, monkeypatch):
    monkeypatch.setattr(_matrix, "BLOCK", 2**18)
    monkeypatch.setattr(matrix, "CHUNK", 256)
    rng = np.random.default_rng(0)
    X = sparse.random(12_000, 200, density=0.9, format="csr", dtype=np.float32, rng=rng)
    names = [*known.var_names, *map(str, range(192))]
    size = X.data.nbytes + X.indices.nbytes
    AnnData(X, var=pd.DataFrame(index=names)).write_h5ad(tmp_path / "big.h5ad")
    del X
    backed = ad.read_h5ad(tmp_path / "big.h5ad", backed="r+")
    tracemalloc.start()
    try:
        ingest(backed, known)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 4


def test_a_job_shows_progress_stops_and_writes_once(known, new, unchanged, monkeypatch):
    monkeypatch.setattr(matrix, "CHUNK", 25)
    n_done = []

    def callback(report: Any) -> bool:
        if report is not None:
            n_done.append(report.n_done)
        return len(n_done) == 2

    query = ce.tl.ingest.job(new, known)
    with unchanged(new):
        with pytest.raises(StoppedTooEarly):
            query.run(callback)
        assert n_done == [25, 50]
        query.run(callback)
        assert n_done == [25, 50, 25, 50, 60]
    other = new[::-1].copy()
    with unchanged(other), pytest.raises(ValueError, match="have changed since"):
        query.write(other)
    query.write(new)
    assert new.obsm["X_ce"].shape == (new.n_obs, 2)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_threads_compute_together_with_as_many_values_as_one(known, new, monkeypatch, layout):
    cells, _ = read_new_cells(new, ce.tl.fitted_model(known, device="cpu"), Source())
    X, n_rows = layout(new.X), list[int]()
    expected = [np.concatenate(x) for x in zip(*cells.placed(X), strict=True)]
    imputed = NewCells.imputed

    def counted(self: NewCells, x: Any, start: int = 0) -> Imputed:
        n_rows.append(x.shape[0])
        return imputed(self, x, start)

    monkeypatch.setattr(NewCells, "imputed", counted)
    monkeypatch.setattr(matrix, "VALUES_AT_ONCE", 40 * new.n_vars)
    found = [np.concatenate(x) for x in zip(*cells.placed(X, n_threads=4), strict=True)]
    assert n_rows == [10] * 6
    for values, of_one in zip(found, expected, strict=True):
        assert_allclose(values, of_one, atol=1e-5)


@pytest.mark.parametrize(("device", "most"), [("cpu", 3), ("mps", 1)])
def test_one_thread_at_a_time_uses_mps(known, new, monkeypatch, device, most):
    cells, _ = read_new_cells(new, ce.tl.fitted_model(known, device="cpu"), Source())
    barrier, active, counts = threading.Barrier(most), list[int](), list[int]()

    def judge(self: Imputed) -> Any:
        active.append(1)
        # All threads that may compute at once wait for each other here.
        barrier.wait(timeout=60)
        counts.append(len(active))
        time.sleep(0.01)
        active.pop()
        return np.zeros((10, 2)), np.ones((10, 3)), np.zeros(10, dtype=int)

    monkeypatch.setattr(matrix, "CHUNK", 10)
    monkeypatch.setattr(Imputed, "judge", judge)
    monkeypatch.setattr(FittedMap, "device", torch.device(device))
    places = [chunk[1] for chunk in cells.placed(new.X, n_threads=3)]
    assert np.concatenate(places).shape == (new.n_obs, 2)
    assert max(counts) == most


def test_a_warning_says_that_a_trained_map_is_replaced(known, ingest, caplog):
    query = known.copy()
    ingest(query, known, key_added="other")
    assert "is replaced" not in caplog.text
    for n_warnings in (1, 1):
        ingest(query, known)
        assert caplog.text.count("was trained on these cells, is replaced") == n_warnings


def test_training_cells_and_query_in_one_table_keep_their_labels(known, new, ingest):
    ingest(new, known)
    both = ad.concat([known, new], join="outer", uns_merge="first")
    result = read_result(both, "ce")
    predicted = result.classes.get_indexer(new.obs["ce_label"].astype(object))
    assert_array_equal(result.codes[known.n_obs :], predicted)
    assert_array_equal(result.codes[: known.n_obs], read_result(known, "ce").codes)


@pytest.mark.filterwarnings("ignore:Moving element from .uns:FutureWarning")
def test_missing_genes_alone_are_no_shift(caplog):
    cells = sc.datasets.pbmc68k_reduced()
    known, query = cells[::2].copy(), cells[1::2].copy()
    model = ce.CentroidEncoder(hidden=(32,), max_epochs=5)
    ce.tl.centroid_encoder(known, "bulk_labels", model=model, progress=False)
    ce.tl.ingest(query, known, progress=False)
    usual, order = query.obs["ce_novelty"].median(), np.random.default_rng(0).permutation(765)
    for share in (0.2, 0.6):
        some = query.copy()
        some.X[:, order[: int(share * 765)]] = np.nan
        ce.tl.ingest(some, known, missing="estimate", max_missing=1, progress=False)
        assert some.obs["ce_novelty"].median() == pytest.approx(usual, abs=0.1)
        assert some.uns["ce"]["params"]["novelty_quartile"] < 0.5
    assert "as a whole" not in caplog.text


class TestExpectedError:
    def test_it_is_near_the_error_of_shifted_queries(self, fast, ingest, caplog):
        rng = np.random.default_rng(0)
        codes = rng.integers(3, size=550)
        X = (rng.normal(size=(550, 8)) + 3 * np.eye(3, 8)[codes]).astype(np.float32)
        names = np.array(["a", "b", "c"])[codes]
        obs = pd.DataFrame({"kind": names}, index=[f"cell {i}" for i in range(550)])
        known = AnnData(X[:300], obs=obs[:300])
        ce.tl.centroid_encoder(known, "kind", model=fast, progress=False)
        found = []
        for size in (0.0, 2.0, 4.0):
            for seed in range(3):
                caplog.clear()
                shift = size * np.random.default_rng(seed).normal(size=8)
                query = AnnData((X[300:] + shift).astype(np.float32), obs=obs[300:][[]])
                ingest(query, known)
                params = query.uns["ce"]["params"]
                expected, doubt = params["expected_error"], 1 - query.obs["ce_confidence"].mean()
                assert expected == pytest.approx(max(params["changed_by_recentring"], doubt))
                text = f"about {expected:.0%} of the labels may be wrong"
                assert (text in caplog.text) == (expected >= 0.15)
                title = ce.pl.voronoi(query, show=False).get_title()
                assert f"about {100 * expected:.0f} % may be wrong" in title
                found.append((expected, (query.obs["ce_label"] != names[300:]).mean()))
        expected, true = np.transpose(found)
        assert true.min() < 0.1 < 0.2 < true.max()
        assert_allclose(expected, true, atol=0.08)

    def test_storage_and_gaps_give_the_same(self, known, new, ingest, tmp_path):
        new.write_h5ad(tmp_path / "new.h5ad")
        stored = ad.read_h5ad(tmp_path / "new.h5ad", backed="r")
        sparse_one, with_gap = new.copy(), new.copy()
        sparse_one.X = sparse.csr_matrix(new.X)
        with_gap.X[0, 0] = np.nan
        queries = (ingest(query, known, copy=True) for query in (new, stored, sparse_one))
        found = [query.uns["ce"]["params"]["expected_error"] for query in queries]
        assert_allclose(found, found[0], rtol=1e-5)
        ingest(with_gap, known, missing="drop")
        assert with_gap.uns["ce"]["params"]["expected_error"] == pytest.approx(found[0], abs=0.03)

    def test_few_cells_are_no_reason_for_a_warning(self, known, new, ingest, caplog):
        few = new[:20].copy()
        few.X = few.X + 20
        ingest(few, known)
        assert "may be wrong" not in caplog.text
        assert few.uns["ce"]["params"]["expected_error"] > 0


class TestLabelsOfTheQuery:
    def test_they_are_compared_by_class(self, known, new, ingest, tmp_path):
        own = known.obs["cell_type"].iloc[:60].astype(str).to_numpy()
        own[::7], own[1] = "another", None
        new.obs["cell_type"] = own
        ingest(new, known)
        differs = new.obs["ce_label"].astype(str) != own
        has_class = np.isin(own.astype(str), known.uns["ce"]["classes"])
        for query in (new, self.stored(new, tmp_path)):
            table = query.uns["ce"]["compared"].set_index("class")
            for name in known.uns["ce"]["classes"]:
                of_class = own == name
                assert table.loc[name, "n"] == of_class.sum()
                assert table.loc[name, "n_differing"] == (of_class & differs).sum()
            n, n_differing = has_class.sum(), (has_class & differs).sum()
            title = ce.pl.voronoi(query, show=False).get_title()
            assert f"{n_differing} of {n} differ from cell_type" in title
            listed = ce.tl.misplaced(query)
            assert set(listed.index) == set(new.obs_names[has_class & differs])
            assert (listed["split"] == "query").all()

    @staticmethod
    def stored(adata, folder):
        adata.write_h5ad(folder / "query.h5ad")
        return ad.read_h5ad(folder / "query.h5ad")

    def test_another_column_is_chosen_and_few_labels_are_not_compared(self, known, new, ingest):
        new.obs["gated"] = known.obs["cell_type"].iloc[:60].to_numpy()
        new.obs["cell_type"] = new.obs["gated"].astype(object).where(np.arange(60) < 20)
        ingest(new, known)
        assert "compared" not in new.uns["ce"]
        ingest(new, known, label_key="gated")
        assert new.uns["ce"]["params"]["compared_with"] == "gated"
        assert new.uns["ce"]["compared"]["n"].sum() == 60
        with pytest.raises(KeyError, match="gates"):
            ingest(new, known, label_key="gates")
        new.obs["other"] = "x"
        with pytest.raises(ValueError, match="no class of the map"):
            ingest(new, known, label_key="other")

    def test_labels_of_another_type_than_the_classes_are_named(self, known, new, ingest, squeezed):
        known.obs["n"] = known.obs["cell_type"].cat.codes.astype(int)
        new.obs["n"] = [*"01"] * 30
        ce.tl.centroid_encoder(known, "n", model=squeezed, progress=False)
        text = "such as 0: its labels are of type string, and the classes of type integer"
        with pytest.raises(ValueError, match=text):
            ingest(new, known, label_key="n")

    def test_the_names_of_a_clustering_are_not_compared(self, known, new, ingest):
        known.obs["leiden"] = known.obs["cell_type"].cat.rename_categories(["0", "1", "2"])
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=2)
        ce.tl.centroid_encoder(known, "leiden", model=model, progress=False)
        new.obs["leiden"] = pd.Categorical(
            np.random.default_rng(0).permutation(["0", "1", "2"] * 20)
        )
        ingest(new, known)
        assert "compared" not in new.uns["ce"]
        ingest(new, known, label_key="leiden")
        assert new.uns["ce"]["compared"]["n"].sum() == 60
