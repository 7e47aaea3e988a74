"""`tl.ingest`: new cells through a map, matched by name, in chunks, or refused with a reason."""

from __future__ import annotations

import json
import logging
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import zarr
from anndata import AnnData
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core.map import FittedMap as CodedMap
from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.tl import _ingest as _judge, _lazy
from centroid_encoder.tl._stored import read_result

Ingest = Callable[..., AnnData | None]


@pytest.fixture
def known(make_cells, fast) -> AnnData:
    """Cells with a map."""
    adata = make_cells(n_obs=150)
    ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
    return adata


@pytest.fixture
def new(make_cells) -> AnnData:
    """Other cells of the same kinds."""
    adata = make_cells(n_obs=60)
    adata.X = adata.X + np.random.default_rng(1).normal(size=adata.shape).astype(np.float32)
    adata.obs_names = [f"new{i}" for i in range(60)]
    del adata.obs["cell_type"]
    return adata


@pytest.fixture
def ingest() -> Ingest:
    def run(adata: AnnData, reference: Any, **kwargs: Any) -> AnnData | None:
        return ce.tl.ingest(adata, reference, **{"progress": False} | kwargs)

    return run


def test_what_is_written(known, new, ingest):
    ingest(new, known)
    model = ce.tl.fitted_model(known)
    frame = pd.DataFrame(new.X, columns=new.var_names)
    assert_array_equal(new.obsm["X_ce"], model.transform(frame))
    assert_array_equal(new.obs["ce_label"], model.predict(frame))
    assert_allclose(new.obs["ce_confidence"], model.predict_proba(frame).max(axis=1), rtol=1e-6)
    assert_allclose(new.obs["ce_novelty"], model.novelty(frame))
    assert (new.obs["ce_split"] == "query").all()
    stored = new.uns["ce"]
    assert list(stored["classes"]) == list(known.uns["ce"]["classes"])
    assert_array_equal(stored["centers"], known.uns["ce"]["centers"])
    assert stored["params"]["ingested_from"] == "an AnnData"
    assert stored["params"]["reference_label_key"] == "cell_type"
    assert set(new.obs) == {"ce_label", "ce_confidence", "ce_novelty", "ce_split"}


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_the_same_cells_come_to_lie_where_they_were(known, fast, ingest, placement):
    ce.tl.centroid_encoder(
        known, "cell_type", model=fast, placement=placement, test_size=0.3, progress=False
    )
    again = known.copy()
    ingest(again, known, key_added="again")
    # Placed training cells lie where the network puts them that has not seen them.
    same = ((known.obs["ce_split"] == "test") | (placement == "bottleneck")).to_numpy()
    assert_array_equal(again.obsm["again"][same], known.obsm["X_ce"][same])
    for name in ("label", "confidence"):
        assert_array_equal(again.obs[f"again_{name}"][same], known.obs[f"ce_{name}"][same])
    # Novelty of training cells comes from axes that they did not shape.
    same = (known.obs["ce_split"] == "test").to_numpy()
    assert_array_equal(again.obs["again_novelty"][same], known.obs["ce_novelty"][same])
    assert_array_equal(again.obsm["X_ce"], known.obsm["X_ce"])


class TestReferences:
    def test_of_every_kind_agree(self, known, new, ingest, tmp_path):
        known.write_h5ad(tmp_path / "known.h5ad")
        model = ce.tl.fitted_model(known)
        model.save(tmp_path / "map.safetensors")
        expected = ingest(new, known, copy=True)
        for reference, origin in (
            (model, "a CentroidEncoder"),
            (tmp_path / "map.safetensors", "map.safetensors"),
            (str(tmp_path / "known.h5ad"), "known.h5ad"),
            (expected, "an AnnData"),
        ):
            found = ingest(new, reference, copy=True)
            assert_array_equal(found.obsm["X_ce"], expected.obsm["X_ce"])
            assert_array_equal(found.obs["ce_label"], expected.obs["ce_label"])
            assert_array_equal(found.obs["ce_novelty"], expected.obs["ce_novelty"])
            assert found.uns["ce"]["params"]["ingested_from"] == origin

    def test_that_are_none(self, known, new, ingest, tmp_path, unchanged):
        for name in ("broken.safetensors", "broken.h5ad"):
            (tmp_path / name).write_bytes(b"nothing")
        broken = known.copy()
        broken.uns["ce"] = {**broken.uns["ce"], "model": {}}
        for reference, error, words in (
            (tmp_path / "nowhere.h5ad", FileNotFoundError, "there is no file"),
            (tmp_path / "broken.safetensors", InvalidStateError, "not a readable"),
            (tmp_path / "broken.h5ad", ValueError, "broken.h5ad cannot be read: it is damaged"),
            (broken, InvalidStateError, "lacks 'config'"),
            (new, KeyError, "run ce.tl.centroid_encoder first"),
            (3, TypeError, "got int"),
            (ce.CentroidEncoder(), ValueError, "not fitted"),
        ):
            with unchanged(new), pytest.raises(error, match=words.replace(".", r"\.")):
                ingest(new, reference)
        with unchanged(new), pytest.raises(KeyError, match="no map 'other'"):
            ingest(new, known, key="other")

    def test_order_of_categories_is_kept(self, known, new, fast, ingest):
        known.obs["cell_type"] = known.obs["cell_type"].cat.reorder_categories(
            ["type 2", "type 0", "type 1"]
        )
        ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False)
        known.uns["cell_type_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
        ingest(new, known)
        assert list(new.obs["ce_label"].cat.categories) == ["type 2", "type 0", "type 1"]
        assert list(new.uns["ce_label_colors"]) == ["#ff0000", "#00ff00", "#0000ff"]
        assert_array_equal(new.uns["ce"]["centers"], known.uns["ce"]["centers"])
        model = ce.tl.fitted_model(known)
        assert_array_equal(
            new.obs["ce_label"], model.predict(pd.DataFrame(new.X, columns=new.var_names))
        )

    def test_layers_and_representations_are_found_again(self, known, new, fast, ingest):
        known.layers["scaled"], new.layers["scaled"] = 2 * known.X, 2 * new.X
        known.obsm["X_pca"], new.obsm["X_pca"] = known.X[:, :4], new.X[:, :4]
        for kwargs, expected in (
            ({"layer": "scaled"}, new.layers["scaled"]),
            ({"use_rep": "X_pca"}, new.obsm["X_pca"]),
        ):
            ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False, **kwargs)
            model = ce.tl.fitted_model(known)
            model.__dict__.pop("feature_names_in_", None)
            found = ingest(new, known, copy=True)
            assert_array_equal(found.obsm["X_ce"], model.transform(expected))
            # What has been ingested knows where from.
            assert_array_equal(ingest(new, found, copy=True).obsm["X_ce"], found.obsm["X_ce"])
        with pytest.raises(ValueError, match="X has 8 columns, but the map was trained on 4"):
            ingest(new, known, use_rep="X")
        del new.obsm["X_pca"]
        with pytest.raises(KeyError, match="obsm has no 'X_pca'"):
            ingest(new, known)


class TestNames:
    def test_order_and_further_features_do_not_matter(self, known, new, ingest):
        expected = ingest(new, known, copy=True)
        more = ad.concat(
            [new, AnnData(np.ones((60, 2)), obs=new.obs, var=pd.DataFrame(index=["x", "y"]))],
            axis=1,
        )
        shuffled = more[:, np.random.default_rng(0).permutation(10)].copy()
        ingest(shuffled, known)
        assert_array_equal(shuffled.obsm["X_ce"], expected.obsm["X_ce"])

    def test_case_does_not_matter_where_it_is_clear(self, known, new, ingest, caplog):
        caplog.set_level(logging.INFO, "centroid_encoder")
        expected = ingest(new, known, copy=True)
        new.var_names = [f"Gene{i}" for i in range(8)]
        ingest(new, known)
        assert_array_equal(new.obsm["X_ce"], expected.obsm["X_ce"])
        assert "8 features are matched without regard to case" in caplog.text
        new.var_names = ["GENE0", "Gene0", *(f"gene{i}" for i in range(2, 8))]
        with pytest.raises(ValueError, match=r"lacks 2 of the 8 features .*: 'gene0', 'gene1'"):
            ingest(new, known)

    def test_missing_ones_are_named(self, known, new, ingest, unchanged):
        some = new[:, 2:].copy()
        with unchanged(some), pytest.raises(ValueError, match="missing='mean'") as caught:
            ingest(some, known)
        assert "X lacks 2 of the 8 features that the map looks at: 'gene0', 'gene1'" in str(
            caught.value
        )
        assert "max_missing above 0.25" in str(caught.value)
        with unchanged(some), pytest.raises(ValueError, match=r"more than max_missing=0\.2"):
            ingest(some, known, missing="mean")
        other = new.copy()
        other.var_names = [f"ENSG{i}" for i in range(8)]
        with unchanged(other), pytest.raises(ValueError, match="'ENSG0': are these names of anoth"):
            ingest(other, known, missing="mean", max_missing=1)

    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
    def test_the_mean_takes_their_place(self, known, new, ingest, caplog, kind):
        some = AnnData(kind(new.X[:, 1:]), obs=new.obs, var=new.var.iloc[1:])
        ingest(some, known, missing="mean")
        assert "lacks 1 of the 8 features" in caplog.text
        filled = new.copy()
        filled.X[:, 0] = known.X[(known.obs["ce_split"] == "train").to_numpy(), 0].mean()
        ingest(filled, known)
        assert_allclose(some.obsm["X_ce"], filled.obsm["X_ce"], atol=1e-4)
        assert some.uns["ce"]["params"]["n_missing"] == 1

    def test_those_that_the_map_does_not_look_at_may_be_missing(self, known, new, ingest, caplog):
        caplog.set_level(logging.INFO, "centroid_encoder")
        # Of several networks each chooses for itself.
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, max_features=3, n_networks=1)
        ce.tl.centroid_encoder(known, "cell_type", model=model, progress=False)
        looked_at = ce.tl.fitted_model(known).feature_weights_ > 0
        some = new[:, looked_at].copy()
        with pytest.raises(ValueError, match="lacks 1 of the 3"):
            ingest(some[:, 1:].copy(), known)
        caplog.clear()
        # Their mean is filled in for the sake of novelty alone.
        ingest(some, known)
        assert "5 features that the map does not look at are missing" in caplog.text
        assert_allclose(some.obsm["X_ce"], ingest(new, known, copy=True).obsm["X_ce"], atol=1e-5)

    @pytest.mark.filterwarnings("ignore:Variable names are not unique:UserWarning")
    def test_twice_is_an_error_only_where_it_matters(self, known, new, ingest):
        more = ad.concat([new, new[:, :1]], axis=1)
        with pytest.raises(ValueError, match="'gene0' more than once"):
            ingest(more, known)
        more.var_names = [*new.var_names[:7], "x", "x"]
        with pytest.raises(ValueError, match="lacks 1 of the 8"):
            ingest(more, known)
        ingest(more, known, missing="mean")

    def test_a_map_without_names_takes_columns_in_order(self, new, known, ingest, caplog):
        y = known.obs["cell_type"].to_numpy().astype(str)
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=3, random_state=0).fit(known.X, y)
        ingest(new, model)
        assert "the map knows no names" in caplog.text
        assert_array_equal(new.obsm["X_ce"], model.transform(new.X))
        assert new.obs["ce_novelty"].isna().all()
        with pytest.raises(ValueError, match="max_novelty needs a map that has learned"):
            ingest(new, model, max_novelty=0.9)
        with pytest.raises(ValueError, match="X has 7 columns, but the map was trained on 8"):
            ingest(new[:, 1:].copy(), model)


class TestValues:
    def test_raw_counts_are_refused(self, known, new, ingest, unchanged):
        new.layers["log"] = new.X.copy()
        new.X = np.random.default_rng(0).poisson(20, new.shape).astype(np.float32)
        with unchanged(new), pytest.raises(ValueError, match="X looks like raw counts") as caught:
            ingest(new, known)
        assert "sc.pp.log1p" in str(caught.value)
        ingest(new, known, layer="log")

    @pytest.mark.parametrize("case", ["left out", "filled", "small"])
    def test_whole_numbers_that_look_otherwise_are_taken(self, known, new, fast, ingest, case):
        rng = np.random.default_rng(0)
        known.X = rng.poisson(3 if case == "small" else 30, known.shape).astype(np.float32)
        query = known.copy()
        if case == "left out":
            known.X = np.minimum(known.X, 19)
            known.var["highly_variable"] = np.arange(known.n_vars) > 0
            known.X[:, 0] = query.X[:, 0]
            query.X = known.X.copy()
        elif case == "filled":
            known.X[3, 1] = np.nan
        else:
            query.X[0, 0] = 21
        ce.tl.centroid_encoder(known, "cell_type", model=fast, missing="mean", progress=False)
        ingest(query, known)
        assert query.obs["ce_label"].notna().all()

    def test_a_map_of_counts_takes_counts(self, known, new, fast, ingest, caplog, tmp_path):
        known.X = np.random.default_rng(0).poisson(20, known.shape).astype(np.float32)
        ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False)
        model = ce.tl.fitted_model(known)
        assert model.trained_on_counts_
        caplog.clear()
        counts = new.copy()
        counts.X = np.random.default_rng(1).poisson(20, new.shape).astype(np.float32)
        ingest(counts, known)
        assert "counts" not in caplog.text
        ingest(new, known)
        assert "the map was trained on whole numbers, like counts; X holds others" in caplog.text

    def test_another_normalisation_is_noticed(self, known, new, make_cells, ingest, caplog):
        ingest(make_cells(n_obs=60), known)
        assert "as a whole" not in caplog.text
        new.X = 7 * new.X - 20
        ingest(new, known)
        assert "the query is shifted as a whole" in caplog.text
        assert "integrate both" in caplog.text

    def test_a_shift_of_all_cells_is_told_from_single_novel_ones(self, make_cells, fast, ingest):
        cells = make_cells(n_obs=600)
        known, few = cells[:450].copy(), cells[450:].copy()
        ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False)
        few.X[:20] += 5 * np.array([1, -1] * 4, dtype=np.float32)
        job = ce.tl.ingest.job(few, known)
        list(job.steps())
        assert job.notices == []
        job.write(few)
        assert (few.obs["ce_novelty"][:20] > 0.95).all()
        assert few.uns["ce"]["params"]["novelty_quartile"] < 0.5

        shifted = few.copy()
        shifted.X = 2 * shifted.X + 3
        job = ce.tl.ingest.job(shifted, known)
        list(job.steps())
        (notice,) = job.notices
        assert "shifted as a whole" in str(notice)

    def test_novelty_is_counted_on_the_genes_that_are_there(self, make_cells, fast, ingest, caplog):
        cells = make_cells(n_obs=600, n_vars=40, distance=1.0)
        known, new = cells[:300].copy(), cells[300:].copy()
        new.X[:60] = np.random.default_rng(3).normal(size=40) * 2 + new.X[:60] / 2
        ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False)
        lacking = new[:, :12].copy()
        ingest(lacking, known, missing="mean", max_missing=1)
        assert "as a whole" not in caplog.text
        novelty = lacking.obs["ce_novelty"].to_numpy()
        assert (novelty[:60] > 0.9).mean() > 0.8
        assert (novelty[60:] > 0.9).mean() < 0.15

    def test_gaps(self, known, new, ingest, unchanged, monkeypatch):
        new.X[[3, 50], 2] = np.nan, np.inf
        with unchanged(new), pytest.raises(ValueError, match="1 NaN and 1 infinite") as caught:
            ingest(new, known)
        assert "the first is 'gene2' of cell 'new3'; pass missing='mean'" in str(caught.value)
        monkeypatch.setattr(_judge, "CHUNK", 10)
        new.X[3, 2] = 0
        with pytest.raises(ValueError, match=r"X \(cells 50 to 59\) has 0 NaN and 1 infinite"):
            ingest(new, known)
        new.X[3, 2] = np.nan
        filled = new.copy()
        filled.X[[3, 50], 2] = known.X[(known.obs["ce_split"] == "train").to_numpy(), 2].mean()
        before = new.X.copy()
        ingest(new, known, missing="mean")
        ingest(filled, known)
        assert_allclose(new.obsm["X_ce"], filled.obsm["X_ce"], atol=1e-4)
        assert_array_equal(new.X, before)

    def test_matrices_of_all_kinds_agree(self, known, new, ingest, tmp_path):
        expected = ingest(new, known, copy=True)
        for kind in (
            sparse.csr_matrix,
            sparse.csc_matrix,
            sparse.csr_array,
            np.asfortranarray,
            lambda X: X.astype(np.float64),
        ):
            adata = AnnData(kind(new.X), obs=new.obs, var=new.var)
            ingest(adata, known)
            assert_allclose(adata.obsm["X_ce"], expected.obsm["X_ce"], atol=1e-5)
            if kind is sparse.csc_matrix:
                continue
            adata.write_h5ad(tmp_path / "new.h5ad")
            backed = ad.read_h5ad(tmp_path / "new.h5ad", backed="r")
            found = ingest(backed, known, copy=True)
            assert_allclose(found.obsm["X_ce"], expected.obsm["X_ce"], atol=1e-5)
            with pytest.raises(ValueError, match=r"to_memory\(\), or copy=True"):
                ingest(backed[:9], known)
            backed.file.close()
        view = new[::2, ::-1]
        ingest(view, known)
        assert not view.is_view
        assert_array_equal(view.obsm["X_ce"], expected.obsm["X_ce"][::2])

    def test_dask_arrays_stay_dask_arrays(self, known, new, ingest):
        dask = pytest.importorskip("dask.array", reason="dask is not installed")
        expected = ingest(new, known, copy=True)
        new.X = dask.from_array(new.X, chunks=(7, 8))
        ingest(new, known)
        assert isinstance(new.X, dask.Array)
        assert_array_equal(new.obsm["X_ce"], expected.obsm["X_ce"])

    def test_chunks_change_nothing(self, known, new, ingest, monkeypatch):
        expected = ingest(new, known, copy=True)
        monkeypatch.setattr(_judge, "CHUNK", 7)
        ingest(new, known)
        # Products of other shapes round otherwise, and a place follows from odds of them.
        assert_allclose(new.obsm["X_ce"], expected.obsm["X_ce"], atol=1e-4)
        assert_array_equal(new.obs["ce_label"], expected.obs["ce_label"])


class TestDoubt:
    def test_thresholds(self, known, new, ingest):
        everything = ingest(new, known, copy=True).obs
        confident = everything["ce_confidence"].quantile(0.3)
        usual = everything["ce_novelty"].quantile(0.8)
        ingest(new, known, min_confidence=confident, max_novelty=usual)
        doubtful = (everything["ce_confidence"] < confident) | (everything["ce_novelty"] > usual)
        assert 0 < doubtful.sum() < 60
        assert_array_equal(new.obs["ce_label"] == "unassigned", doubtful)
        assert (new.obs["ce_label"] == everything["ce_label"].astype(str))[~doubtful].all()
        assert_array_equal(new.obs["ce_confidence"], everything["ce_confidence"])

    def test_without_thresholds_there_is_no_such_category(self, known, new, ingest):
        ingest(new, known)
        assert "unassigned" not in new.obs["ce_label"].cat.categories

    @pytest.mark.parametrize("labels", [[4, 7, 9], [False, True, True]])
    def test_classes_that_are_no_words(self, known, new, fast, ingest, labels, tmp_path):
        known.obs["number"] = np.array(labels)[known.obs["cell_type"].cat.codes]
        ce.tl.centroid_encoder(known, "number", model=fast, progress=False)
        ingest(new, known)
        threshold = new.obs["ce_confidence"].median()
        ingest(new, known, min_confidence=threshold)
        doubtful = new.obs["ce_confidence"] < threshold
        assert_array_equal(new.obs["ce_label"].isna(), doubtful)
        assert 0 < doubtful.sum() < 60
        new.write_h5ad(tmp_path / "new.h5ad")
        ce.pl.voronoi(ad.read_h5ad(tmp_path / "new.h5ad"), show=False)

    def test_confidence_and_novelty_are_two_things(self, make_cells, ingest):
        """An unknown class far out is novel, whatever the map takes it for."""
        adata = make_cells(4, 400)
        unknown = (adata.obs["cell_type"] == "type 3").to_numpy()
        known, new = adata[~unknown].copy(), adata[unknown].copy()
        model = ce.CentroidEncoder(hidden=(32,), max_epochs=30)
        ce.tl.centroid_encoder(known, "cell_type", model=model, progress=False)
        ingest(new, known)
        assert new.obs["ce_novelty"].median() > 0.99
        assert known.obs["ce_novelty"].median() < 0.7
        middle = known[:60].copy()
        a, b = (known[known.obs["cell_type"] == f"type {i}"].X.mean(axis=0) for i in (0, 1))
        middle.X[:] = (a + b) / 2
        ingest(middle, known)
        assert middle.obs["ce_confidence"].max() < known.obs["ce_confidence"].quantile(0.1)

    @pytest.mark.parametrize(
        ("kwargs", "words"),
        [
            ({"missing": "drop"}, "missing must be 'error' or 'mean'; got 'drop'"),
            (
                {"missing": "mean", "max_missing": 2},
                "max_missing must be a number in [0, 1]; got 2",
            ),
            ({"min_confidence": -0.1}, "min_confidence must be a number in [0, 1]"),
            ({"max_novelty": "high"}, "max_novelty must be a number in [0, 1]; got 'high'"),
            ({"key_added": "a/b"}, "'/'"),
            ({"layer": "log", "use_rep": "X_pca"}, "use_rep excludes layer"),
            ({"device": "cuda:99"}, "device 'cuda:99' is not available"),
        ],
    )
    def test_bad_arguments_change_nothing(self, known, new, ingest, unchanged, kwargs, words):
        with unchanged(new), pytest.raises(ValueError, match=re.escape(words)):
            ingest(new, known, **kwargs)

    def test_no_cells(self, known, new, ingest):
        with pytest.raises(ValueError, match="no cells"):
            ingest(new[:0].copy(), known)


def test_ctrl_c_changes_nothing(known, new, ingest, unchanged, monkeypatch):
    calls = []

    def strike(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return decide(*args)

    decide = CodedMap.decide
    monkeypatch.setattr(CodedMap, "decide", strike)
    monkeypatch.setattr(_judge, "CHUNK", 10)
    with unchanged(new), pytest.raises(KeyboardInterrupt):
        ingest(new, known)
    assert len(calls) == 3


def test_the_reference_stays_as_it_was(known, new, ingest, unchanged):
    with unchanged(known):
        ingest(new, known)


def test_figure_of_the_query(known, new, ingest, tmp_path):
    known.uns["cell_type_colors"] = ["#112233", "#445566", "#778899"]
    ingest(
        new,
        known,
        min_confidence=float(ingest(new, known, copy=True).obs["ce_confidence"].quantile(0.2)),
    )
    new.write_h5ad(tmp_path / "new.h5ad")
    read = ad.read_h5ad(tmp_path / "new.h5ad")
    ax = ce.pl.voronoi(read, show=False)
    n = int((read.obs["ce_label"] == "unassigned").sum())
    assert n
    assert ax.get_title() == f"query cells (n = 60, {n} unassigned)"
    shown = {to_hex(line.get_color()): len(line.get_xdata()) for line in ax.lines}
    assert shown["#d3d3d3"] == n
    counts = read.obs["ce_label"].value_counts()
    for i, color in enumerate(["#112233", "#445566", "#778899"]):
        assert shown[color] == counts[f"type {i}"]
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == "unassigned"
    with pytest.raises(ValueError, match="these were ingested"):
        ce.pl.voronoi(read, split="train", show=False)


@pytest.mark.parametrize("name", ["reliability", "confusion", "calibration", "history"])
def test_figures_of_what_is_not_known(known, new, ingest, name):
    ingest(new, known)
    with pytest.raises(ValueError, match=r"that of ce\.tl\.ingest: .* nothing tells"):
        getattr(ce.pl, name)(new, show=False)


def test_a_file_does_not_come_into_memory(known, ingest, tmp_path, monkeypatch):
    """A hundred megabytes of zeros and some, through a tenth of it."""
    monkeypatch.setattr(_lazy, "BLOCK", 2**20)
    rng = np.random.default_rng(0)
    X = sparse.random(150_000, 8, density=0.9, format="csr", dtype=np.float32, rng=rng)
    big = AnnData(X, var=known.var)
    size = X.data.nbytes + X.indices.nbytes
    big.write_h5ad(tmp_path / "big.h5ad")
    del big, X
    backed = ad.read_h5ad(tmp_path / "big.h5ad", backed="r+")
    tracemalloc.start()
    try:
        ingest(backed, known)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    written = backed.obsm["X_ce"].nbytes + 150_000 * (8 + 4 + 4 + 2)
    assert peak < written * 2.5 + 8e6
    assert peak < size * 1.6


def test_a_query_writes_all_or_nothing(known, new, unchanged, monkeypatch):
    """What the widget runs in a thread, in three steps."""
    monkeypatch.setattr(_judge, "CHUNK", 25)
    query = ce.tl.ingest.job(new, known)
    through = query.steps()
    n_done = [next(through).n_done]
    with unchanged(new), pytest.raises(RuntimeError, match="the job has not ended"):
        query.write(new)
    n_done += [step.n_done for step in through]
    assert n_done == [25, 50, 60]
    other = new[::-1].copy()
    with unchanged(other), pytest.raises(ValueError, match="have changed since"):
        query.write(other)
    query.write(new)
    assert new.obsm["X_ce"].shape == (new.n_obs, 2)


class TestNamedRepresentations:
    def test_columns_of_a_frame_are_found_by_name(self, make_cells, squeezed):
        known = make_cells()
        names = [f"marker {i}" for i in range(known.n_vars)]
        known.obsm["markers"] = pd.DataFrame(known.X, index=known.obs_names, columns=names)
        ce.tl.centroid_encoder(
            known, "cell_type", use_rep="markers", model=squeezed, progress=False
        )
        query = known.copy()
        query.obsm["markers"] = query.obsm["markers"][names[::-1]]
        ce.tl.ingest(query, known, key_added="q", progress=False)
        assert_array_equal(query.obsm["q"], known.obsm["X_ce"])
        query.obsm["markers"] = query.obsm["markers"].rename(columns={names[0]: "other"})
        with pytest.raises(ValueError, match=r"obsm\['markers'\] lacks 1 of the .* 'marker 0'"):
            ce.tl.ingest(query, known, key_added="q", progress=False)

    def test_names_must_tell_the_columns_apart(self, make_cells, fast):
        known = make_cells()
        known.obsm["markers"] = pd.DataFrame(
            known.X, index=known.obs_names, columns=["a"] * known.n_vars
        )
        with pytest.raises(ValueError, match=r"the columns of obsm\['markers'\].*not unique"):
            ce.tl.centroid_encoder(known, "cell_type", use_rep="markers", model=fast)


def test_replacing_a_map_that_was_trained_is_said(make_cells, fast, caplog):
    known, query = make_cells(), make_cells()
    for adata in (known, query):
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
    ce.tl.ingest(query, known, key_added="other", progress=False)
    assert "is replaced" not in caplog.text
    for n_said in (1, 1):
        ce.tl.ingest(query, known, progress=False)
        assert caplog.text.count("was trained on these cells, is replaced") == n_said


def test_cells_of_both_kinds_in_one_table_keep_what_is_known_of_them(make_cells, fast):
    known = make_cells()
    ce.tl.centroid_encoder(known, "cell_type", model=fast, progress=False)
    query = make_cells()
    query.obs_names = [f"new {name}" for name in query.obs_names]
    del query.obs["cell_type"]
    ce.tl.ingest(query, known, progress=False)
    both = ad.concat([known, query], join="outer", uns_merge="first")
    result = read_result(both, "ce")
    predicted = result.classes.get_indexer(query.obs["ce_label"].astype(object))
    assert_array_equal(result.codes[known.n_obs :], predicted)
    assert_array_equal(result.codes[: known.n_obs], read_result(known, "ce").codes)


class TestRaw:
    @pytest.fixture
    def with_raw(self, make_cells) -> AnnData:
        """Cells whose X holds some of the genes, scaled, and whose `raw` all of them."""
        adata = make_cells(n_obs=150)
        adata.raw = adata.copy()
        adata = adata[:, 2:].copy()
        adata.X = adata.X / 100 - 3
        return adata

    @pytest.mark.parametrize("tool", ["centroid_encoder", "cross_validate"])
    def test_is_learned_from(self, with_raw, make_cells, fast, tool):
        expected = make_cells(n_obs=150)
        run = getattr(ce.tl, tool)
        run(expected, "cell_type", model=fast, progress=False)
        run(with_raw, "cell_type", use_raw=True, model=fast, progress=False)
        name = "ce" if tool == "centroid_encoder" else "ce_cv"
        assert with_raw.uns[name]["params"]["use_raw"] is True
        assert "use_raw" not in expected.uns[name]["params"]
        for column in expected.obs:
            assert_array_equal(with_raw.obs[column], expected.obs[column])

    def test_is_where_the_values_of_a_query_are(self, with_raw, make_cells, squeezed, tmp_path):
        ce.tl.centroid_encoder(with_raw, "cell_type", use_raw=True, model=squeezed, progress=False)
        with_raw.write_h5ad(tmp_path / "known.h5ad")
        query, plain = with_raw[:40].copy(), make_cells(n_obs=150)[:40].copy()
        ce.tl.ingest(query, tmp_path / "known.h5ad", progress=False)
        assert_array_equal(query.obsm["X_ce"], with_raw.obsm["X_ce"][:40])
        again = query.copy()
        ce.tl.ingest(again, query, progress=False)
        assert_array_equal(again.obsm["X_ce"], query.obsm["X_ce"])
        ce.tl.ingest(plain, with_raw, use_rep="X", progress=False)
        assert_array_equal(plain.obsm["X_ce"], query.obsm["X_ce"])
        ce.tl.centroid_encoder(plain, "cell_type", model=squeezed, key_added="k", progress=False)
        ce.tl.ingest(query, plain, key="k", use_raw=True, progress=False)
        assert np.isfinite(query.obsm["k"]).all()

    def test_a_query_without_it(self, with_raw, make_cells, fast):
        ce.tl.centroid_encoder(with_raw, "cell_type", use_raw=True, model=fast, progress=False)
        with pytest.raises(ValueError, match=r"adata.raw is empty, and use_raw asks for it"):
            ce.tl.ingest(make_cells(), with_raw)

    def test_a_mask_is_one_of_its_own_genes(self, with_raw, fast):
        with_raw.raw.var["mine"] = np.arange(8) < 5
        ce.tl.centroid_encoder(
            with_raw, "cell_type", use_raw=True, mask_var="mine", model=fast, progress=False
        )
        assert ce.tl.fitted_model(with_raw).n_features_in_ == 5


def damage(store: Path) -> None:
    """Spoil what a zarr store of either version says of its ``obs``, and its copy of that."""
    for name in (".zattrs", "zarr.json"):
        if (store / "obs" / name).exists():
            (store / "obs" / name).write_text("{")
    (store / ".zmetadata").unlink(missing_ok=True)
    if (store / "zarr.json").exists():
        root = json.loads((store / "zarr.json").read_text())
        root.pop("consolidated_metadata", None)
        (store / "zarr.json").write_text(json.dumps(root))


class TestZarr:
    def test_a_store_carries_a_map(self, known, new, tmp_path):
        known.uns["cell_type_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
        known.write_zarr(tmp_path / "known.zarr")
        expected = ce.tl.ingest(new, known, progress=False, copy=True)
        for path in (tmp_path / "known.zarr", str(tmp_path / "known.zarr")):
            ce.tl.ingest(new, path, progress=False)
            assert_array_equal(new.obsm["X_ce"], expected.obsm["X_ce"])
            assert new.uns["ce"]["params"]["ingested_from"] == "known.zarr"
            assert list(new.uns["ce_label_colors"]) == list(expected.uns["ce_label_colors"])

    def test_a_query_may_be_one(self, known, new, tmp_path):
        new.write_zarr(tmp_path / "new.zarr")
        expected = ce.tl.ingest(new, known, progress=False, copy=True)
        back = ad.read_zarr(tmp_path / "new.zarr")
        ce.tl.ingest(back, known, progress=False)
        assert_array_equal(back.obsm["X_ce"], expected.obsm["X_ce"])

    @pytest.mark.parametrize("content", ["nothing", "damaged", "spatialdata", "no map"])
    def test_what_is_none_is_said(self, make_cells, known, new, tmp_path, content):
        path, error, words = tmp_path / "x.zarr", ValueError, "x.zarr cannot be read: "
        path.mkdir()
        if content == "nothing":
            error, words = OSError, "x.zarr cannot be read: it is a folder, but no zarr store"
        if content == "damaged":
            known.write_zarr(path)
            damage(path)
        if content == "spatialdata":
            known.write_zarr(path / "tables" / "cells")
            version = 3 if (path / "tables" / "cells" / "zarr.json").exists() else 2
            zarr.open_group(path, mode="a", zarr_format=version).require_group("tables")
            error, words = (
                OSError,
                "x.zarr is a store of SpatialData.* tables here: tables/cells",
            )
        if content == "no map":
            make_cells().write_zarr(path)
            error, words = KeyError, "uns has no map 'ce'"
        with pytest.raises(error, match=words):
            ce.tl.ingest(new, path)
