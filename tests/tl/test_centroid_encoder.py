"""Results of `tl.centroid_encoder`, which do not depend on held-out cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier

import centroid_encoder as ce
from centroid_encoder.core.reports import Report
from centroid_encoder.errors import CentroidEncoderWarning
from centroid_encoder.tl._result import CALIBRATION_ERRORS


def embed(
    adata: ad.AnnData, model: ce.CentroidEncoder, label_key: str = "cell_type", **kwargs: Any
) -> ad.AnnData:
    """Train, and return `adata` or, for ``copy=True``, the copy."""
    returned = ce.tl.centroid_encoder(adata, label_key, model=model, progress=False, **kwargs)
    return adata if returned is None else returned


def arrays(adata: ad.AnnData, key: str = "ce") -> dict[str, np.ndarray]:
    """Return all arrays of the fitted map."""
    stored = adata.uns[key]
    return {**stored["model"]["arrays"], "class centers": stored["centers"]}


def assert_same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert_array_equal(one[name], other[name], err_msg=name)


def members(adata: ad.AnnData, split: str) -> np.ndarray:
    return (adata.obs["ce_split"] == split).to_numpy()


class TestSlots:
    def test_are_those_of_the_docstring(self, cells, fast):
        labels = cells.obs["cell_type"].cat.add_categories(["nobody"])
        cells.obs["cell_type"] = labels.where(np.arange(cells.n_obs) >= 10)
        assert ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False) is None

        embedding = cells.obsm["X_ce"]
        assert type(embedding) is np.ndarray
        assert (embedding.dtype, embedding.shape) == (np.float32, (120, 2))
        assert np.isfinite(embedding).all()

        split, label = cells.obs["ce_split"], cells.obs["ce_label"]
        assert list(split.cat.categories) == ["train", "test", "unlabeled", "unused"]
        assert split.notna().all()
        assert_array_equal(split == "unlabeled", labels.isna() | (np.arange(120) < 10))
        assert list(label.cat.categories) == ["type 0", "type 1", "type 2", "nobody"]
        assert label.notna().all()

        stored = cells.uns["ce"]
        parts = {"params", "classes", "centers", "history", "quality", "model"}
        assert set(stored) == parts | {"id", "parts"}
        assert set(cells.obs["ce_map"]) == {stored["id"]}
        assert stored["params"]["label_key"] == "cell_type"
        assert list(stored["classes"]) == ["type 0", "type 1", "type 2"]
        assert (stored["centers"].dtype, stored["centers"].shape) == (np.float64, (3, 2))
        assert list(stored["history"]["epoch"]) == [1, 2, 3, 4, 5]
        assert set(stored["model"]) == {"config", "arrays"}
        quality = stored["quality"]
        errors = {
            f"{kind}{rule}_error" for kind in ("", "balanced_") for rule in ("knn", "voronoi")
        }
        names = errors | {f"{name}_{end}" for name in errors for end in ("low", "high")}
        names |= {"largest_class_error"}
        assert set(quality["train"]) == names | {"n", "n_unjudged", "n_unjudged_classes"}
        also = {"n", "n_repeated", "no_better_than_largest_class", *CALIBRATION_ERRORS}
        assert set(quality["test"]) == names | also
        for part, n in (("train", 88), ("test", 22)):
            assert quality[part]["n"] == n
            assert all(0 <= quality[part][name] <= 1 for name in names)
        table = quality["per_class"]
        assert (table["n_train"].sum(), table["n_test"].sum()) == (88, 22)

    @pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
    def test_errors_are_those_of_the_other_slots(self, make_cells, fast, placement):
        adata = embed(make_cells(distance=0.5), fast, placement=placement)
        stored, embedding = adata.uns["ce"], adata.obsm["X_ce"]
        y = adata.obs["cell_type"].to_numpy()
        classes = stored["classes"]
        train, test = members(adata, "train"), members(adata, "test")

        if placement == "bottleneck":
            centers = [embedding[train & (y == name)].mean(axis=0) for name in classes]
            assert_allclose(stored["centers"], centers, rtol=1e-5)
        nearest = classes[cdist(embedding, stored["centers"]).argmin(axis=1)]
        knn = KNeighborsClassifier(5).fit(embedding[train], y[train])
        expected = {
            "voronoi": (nearest != y)[test],
            "knn": knn.predict(embedding[test]) != y[test],
        }
        decided = (adata.obs["ce_label"].to_numpy() != y)[test]
        # Without a decoder, the predicted class is that of the Voronoi cell.
        expected["decoder" if placement == "bottleneck" else "voronoi"] = decided
        assert ("decoder_error" in stored["quality"]["test"]) == (placement == "bottleneck")
        assert 0 < expected["knn"].mean() < 1
        for rule, wrong in expected.items():
            assert stored["quality"]["test"][f"{rule}_error"] == pytest.approx(wrong.mean())
            per_class = [wrong[y[test] == name].mean() for name in classes]
            assert_allclose(stored["quality"]["per_class"][f"test_{rule}_error"], per_class)
        # A training cell is not its own neighbour.
        assert stored["quality"]["train"]["knn_error"] == pytest.approx(
            np.mean(knn.predict(None) != y[train])
        )

    def test_are_named_by_key_added(self, cells, fast):
        embed(cells, fast, key_added="second")
        assert set(cells.obsm) == {"second"}
        assert set(cells.uns) == {"second"}
        columns = ("split", "label", "confidence", "novelty", "map")
        assert set(cells.obs) == {"cell_type", *(f"second_{name}" for name in columns)}
        before = cells.copy()
        embed(cells, fast, key_added="ce")
        assert set(cells.obsm) == {"second", "X_ce"}
        assert_same_bits(arrays(cells, "second"), arrays(before, "second"))
        assert cells.obs[list(before.obs)].equals(before.obs)

    def test_turn_a_view_into_a_copy_without_a_warning(self, cells, fast, unchanged):
        view = cells[::2]
        with unchanged(cells):
            embed(view, fast)
        assert not view.is_view
        assert view.obsm["X_ce"].shape == (60, 2)


class TestHoldOut:
    def test_keeps_small_classes_in_training_and_warns_of_them(self, make_cells, fast):
        # 40, 4, 3, 2 and 1 cells; with a share of 0.2 a class needs five.
        codes = np.repeat(np.arange(5), [40, 4, 3, 2, 1])
        adata = make_cells(5, 300)[np.arange(50) * 5 + codes].copy()
        with pytest.warns(
            CentroidEncoderWarning,
            match="^no cell of 'type 1', 'type 2', 'type 3', 'type 4' is held out: too few cells",
        ):
            embed(adata, fast)
        small = adata.obs["cell_type"] != "type 0"
        assert (adata.obs["ce_split"][small] == "train").all()

    def test_warns_of_a_class_with_one_group(self, cells, fast):
        donor = np.arange(120) // 3 % 5
        cells.obs["donor"] = np.where(cells.obs["cell_type"] == "type 2", 0, donor)
        with pytest.warns(CentroidEncoderWarning, match="'type 2' is held out.*too few groups"):
            embed(cells, fast, group_key="donor")
        assert not (members(cells, "test") & (cells.obs["cell_type"] == "type 2")).any()

    @pytest.mark.parametrize("group_key", [None, "donor"])
    def test_values_of_held_out_cells_do_not_change_the_map(self, cells, fast, group_key):
        cells.obs["donor"] = [f"d{i % 5}" for i in range(120)]
        cells.X[2, 3] = np.nan  # so that imputation takes part
        kwargs = {"group_key": group_key, "missing": "mean"}
        embed(cells, fast, **kwargs)
        test = members(cells, "test")
        if group_key:
            assert not set(cells.obs["donor"][test]) & set(cells.obs["donor"][~test])

        other = cells.copy()
        other.X[test] = 1e6 * np.random.default_rng(1).normal(size=(test.sum(), 8))
        embed(other, fast, **kwargs)
        assert_array_equal(members(other, "test"), test)
        assert_same_bits(arrays(cells), arrays(other))
        config, other_config = (json.loads(a.uns["ce"]["model"]["config"]) for a in (cells, other))
        # Only the calibration is fitted to the held-out cells.
        assert config.pop("calibration") != other_config.pop("calibration")
        assert config == other_config
        assert_array_equal(cells.obsm["X_ce"][~test], other.obsm["X_ce"][~test])
        assert (cells.obsm["X_ce"][test] != other.obsm["X_ce"][test]).any()

    def test_errors_of_shuffled_labels_are_those_of_chance(self, pbmc):
        shuffled = np.random.default_rng(0).permutation(pbmc.obs["bulk_labels"])
        pbmc.obs["bulk_labels"] = pd.Categorical(shuffled)
        # Without regularisation, this network memorises the training cells.
        model = ce.CentroidEncoder(
            placement="bottleneck",
            hidden=(64,),
            max_epochs=50,
            learning_rate=0.01,
            dropout=0.0,
            weight_decay=0.0,
        )
        embed(pbmc, model, "bulk_labels")
        quality = pbmc.uns["ce"]["quality"]
        assert quality["train"]["knn_error"] < 0.1
        assert quality["test"]["knn_error"] > 0.6
        assert quality["test"]["no_better_than_largest_class"]
        _, held_out = ce.pl.voronoi(pbmc, show=False)
        assert "no better than naming the largest class" in held_out.get_title()


class TestUnlabeledCells:
    @pytest.fixture
    def partly(self, cells):
        labels = cells.obs["cell_type"].astype(str)
        labels[::4] = "unknown"
        cells.obs["cell_type"] = labels.astype("category")
        return cells

    @pytest.mark.parametrize("how", ["category", "NaN"])
    def test_are_embedded_but_not_trained_on(self, partly, fast, how):
        kwargs = {"unlabeled_category": "unknown"}
        if how == "NaN":
            kwargs = {}
            partly.obs["cell_type"] = partly.obs["cell_type"].cat.remove_categories("unknown")
        embed(partly, fast, **kwargs)
        unlabeled, labels = members(partly, "unlabeled"), partly.obs["ce_label"]
        assert_array_equal(unlabeled, np.arange(120) % 4 == 0)
        assert list(partly.uns["ce"]["classes"]) == ["type 0", "type 1", "type 2"]
        assert np.isfinite(partly.obsm["X_ce"]).all()
        assert set(labels) <= {"type 0", "type 1", "type 2"}
        assert list(labels.cat.categories) == ["type 0", "type 1", "type 2"]

        other = partly.copy()
        other.X[unlabeled] += 1000
        embed(other, fast, **kwargs)
        assert_same_bits(arrays(partly), arrays(other))
        assert (other.obsm["X_ce"][unlabeled] != partly.obsm["X_ce"][unlabeled]).any()


class TestFeatures:
    def test_are_the_highly_variable_genes_by_default(self, pbmc, fast):
        embed(pbmc, fast, "bulk_labels")
        names = ce.tl.fitted_model(pbmc).feature_names_in_
        assert_array_equal(names, pbmc.var_names[pbmc.var["highly_variable"]])
        assert pbmc.uns["ce"]["params"]["mask_var"] == "auto"
        embed(pbmc, fast, "bulk_labels", mask_var=None)
        assert_array_equal(ce.tl.fitted_model(pbmc).feature_names_in_, pbmc.var_names)

    @pytest.mark.parametrize("kind", ["column", "array", "Series"])
    def test_are_those_of_a_given_mask(self, cells, fast, kind):
        cells.var["highly_variable"] = True
        cells.var["marker"] = np.arange(8) % 2 == 0
        mask = cells.var["marker"]
        mask_var = {"column": "marker", "array": mask.to_numpy()}.get(kind)
        embed(cells, fast, mask_var=mask if mask_var is None else mask_var)
        assert_array_equal(ce.tl.fitted_model(cells).feature_names_in_, cells.var_names[::2])

        other = cells.copy()
        other.X[:, 1::2] = 0
        embed(other, fast, mask_var="marker")
        assert_same_bits(arrays(cells), arrays(other))

    @pytest.mark.parametrize("values", ["array", "frame"])
    def test_come_from_a_representation(self, cells, fast, values):
        expected = embed(cells, fast, copy=True).obsm["X_ce"]
        values = cells.to_df() if values == "frame" else cells.X
        other = ad.AnnData(obs=cells.obs, obsm={"X_pca": values})
        embed(other, fast, use_rep="X_pca")
        assert_allclose(other.obsm["X_ce"], expected, rtol=1e-4, atol=1e-4)
        assert other.uns["ce"]["params"]["use_rep"] == "X_pca"


class TestMissingValues:
    @pytest.fixture
    def gaps(self, cells):
        cells.X[0, 0], cells.X[3, 1], cells.X[3, 2] = np.nan, np.inf, -np.inf
        return cells

    @pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
    def test_with_drop_their_cells_are_left_out(self, gaps, fast, convert, unchanged):
        gaps.X = convert(gaps.X)
        embed(gaps, fast, missing="drop")
        left_out = np.isin(np.arange(120), [0, 3])
        assert_array_equal(np.isnan(gaps.obsm["X_ce"]).all(axis=1), left_out)
        assert np.isfinite(gaps.obsm["X_ce"][~left_out]).all()
        assert_array_equal(gaps.obs["ce_label"].isna(), left_out)

        complete = gaps[~left_out].copy()
        assert_same_bits(arrays(gaps), arrays(embed(complete, fast)))

    @pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
    def test_with_mean_the_mean_of_the_training_cells_is_used(self, gaps, fast, convert, unchanged):
        filled = gaps.copy()
        gaps.X = convert(gaps.X)
        before = gaps.X.copy()
        embed(gaps, fast, missing="mean")
        # The user's matrix keeps its gaps.
        assert_array_equal(*((x.toarray() if sparse.issparse(x) else x) for x in (gaps.X, before)))
        finite = np.where(np.isfinite(filled.X), filled.X, np.nan)
        means = np.nanmean(finite[members(gaps, "train")], axis=0)
        filled.X = np.where(np.isfinite(filled.X), filled.X, means)
        embed(filled, fast)
        assert_array_equal(members(gaps, "train"), members(filled, "train"))
        assert_allclose(gaps.obsm["X_ce"], filled.obsm["X_ce"], rtol=1e-3, atol=1e-3)


class TestModel:
    def test_is_not_changed_and_arguments_take_precedence(self, cells):
        model = ce.CentroidEncoder(3, hidden=(16,), max_epochs=2, device="no such device")
        before = model.get_params()
        embed(cells, model, n_components=1, device="cpu")
        assert model.get_params() == before
        assert not hasattr(model, "classes_")
        assert cells.obsm["X_ce"].shape == (120, 1)
        assert cells.uns["ce"]["centers"].shape == (3, 1)


class TestRandomness:
    def test_depends_only_on_the_seed(self, cells, fast):
        first, second = (embed(cells, fast, random_state=7, copy=True) for _ in range(2))
        assert_same_bits(arrays(first), arrays(second))
        assert_array_equal(first.obsm["X_ce"], second.obsm["X_ce"])
        assert first.obs.equals(second.obs)

        other = embed(cells, fast, random_state=8, copy=True)
        assert (members(other, "test") != members(first, "test")).any()
        assert (other.obsm["X_ce"] != first.obsm["X_ce"]).all()

    def test_a_generator_can_be_given(self, cells, fast):
        rng, same = np.random.default_rng(3), np.random.default_rng(3)
        first, second = (embed(cells, fast, random_state=rng, copy=True) for _ in range(2))
        again = embed(cells, fast, random_state=same, copy=True)
        assert_array_equal(first.obsm["X_ce"], again.obsm["X_ce"])
        assert (first.obsm["X_ce"] != second.obsm["X_ce"]).any()
        assert "random_state" not in first.uns["ce"]["params"]


LABELS = {
    "strings": (list("cab"), object),
    "nullable strings": (list("cab"), "string"),
    "integers": ([10, -1, 3], int),
    "nullable integers": ([10, -1, 3], "Int64"),
    "booleans": ([True, False], bool),
    "ordered categories": (list("cab"), pd.CategoricalDtype(list("bca"), ordered=True)),
    "integer categories": ([10, -1, 3], pd.CategoricalDtype([3, 10, -1])),
    "empty categories": (list("cab"), pd.CategoricalDtype(list("xbyca"))),
    "names with / and $": (["a/b", "c$d$", "_e"], object),
}


class TestLabels:
    @pytest.mark.parametrize("kind", LABELS)
    def test_can_be_of_several_types(self, make_cells, kind):
        values, dtype = LABELS[kind]
        adata = make_cells(len(values))
        codes = adata.obs["cell_type"].cat.codes.to_numpy()
        column = pd.Series([values[code] for code in codes], adata.obs_names, dtype)
        adata.obs["cell_type"] = column
        embed(adata, ce.CentroidEncoder(hidden=(32,), max_epochs=20, learning_rate=0.01))

        categories = list(column.astype("category").cat.categories)
        used = sorted(values)
        stored = adata.uns["ce"]
        assert list(stored["classes"]) == used
        assert list(adata.obs["ce_label"].cat.categories) == categories
        assert list(stored["quality"]["per_class"]["class"]) == [str(name) for name in used]
        train = members(adata, "train")
        for name, center in zip(used, stored["centers"], strict=True):
            own = train & (column == name).to_numpy(bool)
            assert_allclose(center, adata.obsm["X_ce"][own].mean(axis=0), atol=0.1)
        assert np.mean(adata.obs["ce_label"].astype(object) == column.astype(object)) > 0.9
        pd.testing.assert_series_equal(adata.obs["cell_type"], column, check_names=False)

    def test_order_of_categories_does_not_change_the_map(self, cells, fast):
        one = embed(cells, fast, test_size=0, copy=True)
        cells.obs["cell_type"] = cells.obs["cell_type"].cat.reorder_categories(
            ["type 2", "type 0", "type 1"]
        )
        other = embed(cells, fast, test_size=0, copy=True)
        assert np.isnan(one.uns["ce"]["quality"]["test"]["knn_error"])
        assert_same_bits(arrays(one), arrays(other))
        assert_array_equal(one.obsm["X_ce"], other.obsm["X_ce"])


def test_results_are_the_same_after_writing_and_reading(make_cells, tmp_path):
    adata = make_cells(2)
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.codes.map({0: 10, 1: -1}).astype(int)
    adata.obs["donor"] = [f"d{i % 5}" for i in range(120)]
    adata.X[0, 0] = np.nan
    model = ce.CentroidEncoder(
        placement="bottleneck", hidden=(16,), max_epochs=3, validation_fraction=0.2
    )
    embed(adata, model, missing="drop", group_key="donor")
    adata.write_h5ad(tmp_path / "cells.h5ad")
    read = ad.read_h5ad(tmp_path / "cells.h5ad")

    assert_array_equal(read.obsm["X_ce"], adata.obsm["X_ce"])
    for column in ("ce_split", "ce_label"):
        assert list(read.obs[column].cat.categories) == list(adata.obs[column].cat.categories)
        assert_array_equal(read.obs[column].cat.codes, adata.obs[column].cat.codes)
    stored, expected = read.uns["ce"], adata.uns["ce"]
    assert stored["params"] == expected["params"]
    assert_array_equal(stored["classes"], [-1, 10])
    assert_same_bits(arrays(read), arrays(adata))
    pd.testing.assert_frame_equal(
        stored["quality"]["per_class"], expected["quality"]["per_class"], check_index_type=False
    )
    # The results that were read can be used and written again.
    found = ce.tl.fitted_model(read).transform(adata.to_df()[1:])
    assert_allclose(found, adata.obsm["X_ce"][1:], rtol=1e-4, atol=1e-5)
    ce.pl.voronoi(read, show=False, regions="decoder", mark_misplaced=True)
    ce.pl.history(read, show=False)
    read.write_h5ad(tmp_path / "again.h5ad")


def stopping(epochs: int, *, within: bool = True) -> Callable[[Report | None], bool]:
    """Return a callback that raises KeyboardInterrupt after some epochs, within one or between."""
    reports: list[Report] = []

    def callback(report: Report | None) -> bool:
        if report is not None and report.epoch:
            reports.append(report)
        if len(reports) == epochs and within == (report is None):
            raise KeyboardInterrupt
        return False

    return callback


class TestInterruption:
    """Ctrl-C during a training, and after it."""

    @pytest.mark.parametrize("within", [True, False])
    def test_keeps_the_epochs_before(self, cells, within):
        # With a constant schedule, an epoch does not depend on the number of epochs.
        model = ce.CentroidEncoder(hidden=(16,), schedule="constant", max_epochs=20)
        job = ce.tl.centroid_encoder.job(cells, "cell_type", model=model)
        try:
            job.run(stopping(3, within=within))
        except KeyboardInterrupt:  # It would end the whole test run.
            pytest.fail("nothing was kept")
        assert "interrupted after 3 of 20 epochs" in job.notices[-1]
        expected = embed(cells, model.set_params(max_epochs=3), copy=True)
        job.write(cells)
        assert len(cells.uns["ce"]["history"]) == 3
        assert_same_bits(arrays(cells), arrays(expected))

    def test_after_the_training_changes_nothing(self, cells, fast, unchanged, monkeypatch):
        def strike(*args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("centroid_encoder.tl._evaluation.knn_predict", strike)
        with unchanged(cells), pytest.raises(KeyboardInterrupt):
            embed(cells, fast)


class TestOutput:
    def test_progress_is_written_to_stderr_only(self, cells, fast, capfd):
        embed(cells, fast)
        assert capfd.readouterr() == ("", "")
        ce.tl.centroid_encoder(cells, "cell_type", model=fast)
        out, err = capfd.readouterr()
        assert out == ""
        assert "5/5" in err
        assert "loss=" in err


def test_default_call_is_accurate_on_real_cells(pbmc):
    ce.tl.centroid_encoder(pbmc, "bulk_labels", progress=False)
    quality = pbmc.uns["ce"]["quality"]["test"]
    assert quality["voronoi_error"] < 0.3 < quality["largest_class_error"]
    assert not quality["no_better_than_largest_class"]
