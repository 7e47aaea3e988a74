"""`tl.cross_validate` and `tl.mislabeled`: predictions for cells that were not trained on."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import centroid_encoder as ce
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.tl._evaluation import seed_of
from centroid_encoder.tl._run import Progress


@pytest.fixture
def validate(fast):
    def run(adata, label_key="cell_type", **kwargs):
        kwargs = {"model": fast, "progress": False} | kwargs
        return ce.tl.cross_validate(adata, label_key, **kwargs)

    return run


@pytest.fixture
def noise():
    """Cells with random labels."""
    rng = np.random.default_rng(0)
    labels = pd.Categorical(rng.choice(["a", "b", "c"], 240))
    return ad.AnnData(
        rng.normal(size=(240, 10)).astype(np.float32),
        obs=pd.DataFrame({"cell_type": labels}, index=[f"cell{i}" for i in range(240)]),
    )


def test_results_agree_with_each_other(cells, validate):
    cells.obs.loc[cells.obs_names[:7], "cell_type"] = np.nan
    validate(cells, n_folds=4, n_repeats=2)
    obs, stored = cells.obs, cells.uns["ce_cv"]
    assert obs["ce_cv_label"].cat.categories.equals(obs["cell_type"].cat.categories)
    assert obs["ce_cv_label"].notna().all()
    assert obs["ce_cv_confidence"].between(1 / 3, 1).all()
    labeled = obs["cell_type"].notna()
    assert (obs["ce_cv_own"].notna() == labeled).all()
    agree = (obs["ce_cv_label"] == obs["cell_type"]) & labeled
    assert_array_equal(obs["ce_cv_own"][agree], obs["ce_cv_confidence"][agree])
    assert obs["ce_cv_judged"].equals(obs["cell_type"])

    errors, quality = stored["errors"], stored["quality"]
    assert len(errors) == 8
    assert errors["n"].sum() == 2 * labeled.sum()
    for name in ("knn", "largest_class"):
        pooled = np.average(errors[f"{name}_error"], weights=errors["n"])
        assert quality[f"{name}_error"] == pytest.approx(pooled)
        assert quality[f"{name}_error_sd"] == pytest.approx(errors[f"{name}_error"].std())
    assert quality["voronoi_error"] == pytest.approx(1 - agree[labeled].mean())
    by_class = 1 - agree[labeled].groupby(obs["cell_type"][labeled], observed=True).mean()
    assert quality["balanced_voronoi_error"] == pytest.approx(by_class.mean())
    assert_allclose(stored["per_class"]["voronoi_error"], by_class)
    assert not any("decoder" in name for name in [*quality, *stored["per_class"], *errors])
    expected = pd.crosstab(obs["cell_type"], obs["ce_cv_label"], dropna=False)
    classes = cells.obs["cell_type"].cat.categories
    assert_array_equal(stored["confusion"], expected.loc[classes, classes])
    assert_array_equal(stored["per_class"]["n"], obs["cell_type"].value_counts(sort=False))
    assert stored["params"]["n_folds"] == 4
    assert "permutation" not in stored


def test_a_fold_is_predicted_by_a_map_of_the_other_folds(cells, squeezed):
    """The same results come from a model that is fitted to the cells of the other folds."""
    run = ce.tl.cross_validate.job(cells, "cell_type", model=squeezed, n_folds=3)
    codes = cells.obs["cell_type"].cat.codes.to_numpy().astype(int)
    _, folds = run.split(0, 0)
    run.run()
    run.write(cells)
    for i in range(3):
        rest, fold = folds != i, folds == i
        model = clone(squeezed).set_params(random_state=seed_of(run.seed, 0, 0, i))
        model.fit(cells.X[rest], codes[rest])
        assert_array_equal(model.predict(cells.X[fold]), cells.obs["ce_cv_label"].cat.codes[fold])
        row = cells.uns["ce_cv"]["errors"].iloc[i]
        knn = KNeighborsClassifier(5).fit(model.transform(cells.X[rest]), codes[rest])
        wrong = knn.predict(model.transform(cells.X[fold])) != codes[fold]
        assert row["knn_error"] == pytest.approx(wrong.mean())
        pipe = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
        found = pipe.fit(cells.X[rest], codes[rest]).predict(cells.X[fold])
        assert row["input_knn_error"] == pytest.approx((found != codes[fold]).mean())


def test_real_classes_have_the_smallest_p_value(cells, validate):
    validate(cells, n_folds=3, n_permutations=9)
    permutation = cells.uns["ce_cv"]["permutation"]
    assert permutation["p_value"] == pytest.approx(0.1)
    assert permutation["shuffled"].shape == (9,)
    assert (permutation["shuffled"] < permutation["observed"]).all()
    assert len(set(permutation["shuffled"])) > 1
    # Shuffled labels have the probability of a guess.
    assert permutation["shuffled"].mean() == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.slow
def test_a_rare_class_is_no_chance(make_cells):
    """One cell in twenty: the error is that of naming the large class, but p is small."""
    rng = np.random.default_rng(0)
    rare = np.arange(1000) < 50
    X = rng.normal(size=(1000, 10)).astype(np.float32)
    X[:, 0] += 2 * rare
    names = [f"cell{i}" for i in range(1000)]
    adata = ad.AnnData(X, obs=pd.DataFrame({"kind": np.where(rare, "rare", "common")}, index=names))
    model = ce.CentroidEncoder(hidden=(32,), max_epochs=10)
    ce.tl.cross_validate(adata, "kind", model=model, n_permutations=19, progress=False)
    assert adata.uns["ce_cv"]["permutation"]["p_value"] == pytest.approx(0.05)


@pytest.mark.slow
def test_classes_that_are_groups_do_not_make_a_p_value(noise, validate):
    """If labels are shuffled among cells, the differences of the donors are significant."""
    rng = np.random.default_rng(1)
    donors = np.repeat(np.arange(8), 30)
    noise.X += 3 * rng.normal(size=(8, 10)).astype(np.float32)[donors]
    noise.obs["donor"] = pd.Categorical([f"d{i}" for i in donors])
    noise.obs["disease"] = pd.Categorical(np.where(np.isin(donors, [0, 3, 4, 6]), "ill", "well"))
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=20, batch_size=64, learning_rate=0.01)
    kwargs = {"model": model, "n_permutations": 19}
    validate(noise, "disease", key_added="cells", **kwargs)
    validate(noise, "disease", key_added="donors", group_key="donor", n_folds=4, **kwargs)
    assert noise.uns["cells_cv"]["permutation"]["p_value"] == pytest.approx(0.05)
    assert noise.uns["donors_cv"]["permutation"]["p_value"] > 0.1
    assert noise.uns["donors_cv"]["quality"]["knn_error"] > 0.3
    assert noise.uns["cells_cv"]["quality"]["knn_error"] < 0.1


def test_more_repeats_and_permutations_contain_the_same_ones(cells, validate):
    few = validate(cells, n_folds=2, n_permutations=2, copy=True).uns["ce_cv"]
    many = validate(cells, n_folds=2, n_repeats=2, n_permutations=4, copy=True).uns["ce_cv"]
    pd.testing.assert_frame_equal(many["errors"].iloc[:2], few["errors"])
    assert_array_equal(many["permutation"]["shuffled"][:2], few["permutation"]["shuffled"])


@pytest.mark.parametrize(("n_obs", "n_counted"), [(500, 5), (501, 5), (900, 3), (2600, 1)])
def test_permutations_of_large_data_use_fewer_folds(make_cells, fast, n_obs, n_counted):
    job = ce.tl.cross_validate.job(make_cells(n_obs=n_obs), "cell_type", model=fast)
    assert job.n_counted == n_counted


def test_groups_are_held_out_whole(cells, fast, validate, caplog):
    cells.obs["donor"] = np.repeat(["d1", "d2", "d3"], cells.n_obs // 3)
    job = ce.tl.cross_validate.job(cells, "cell_type", group_key="donor", model=fast)
    assert job.n_folds == 3
    _, folds = job.split(0, 0)
    donors = pd.factorize(cells.obs["donor"])[0]
    assert pd.crosstab(donors, folds).gt(0).sum(axis=1).eq(1).all()
    with pytest.raises(ValueError, match=r"n_folds=4 is too many: obs\['donor'\] has 3 groups"):
        validate(cells, group_key="donor", n_folds=4)
    caplog.clear()
    validate(cells, group_key="donor")
    assert caplog.text == ""


@pytest.mark.parametrize("tool", [ce.tl.centroid_encoder, ce.tl.cross_validate])
def test_the_largest_class_of_one_group_is_no_rule_for_the_judged_cells(make_cells, fast, tool):
    """No judged cell is of that class, so that always naming it would err for all of them."""
    adata = make_cells(n_obs=160)
    adata.obs["cell_type"] = pd.Categorical(np.repeat(["large", "a", "b"], [80, 48, 32]))
    donors = np.append(np.repeat("d0", 80), np.resize(["d0", "d1", "d2", "d3"], 80))
    adata.obs["donor"] = pd.Categorical(donors)
    tool(adata, "cell_type", group_key="donor", model=fast, progress=False)
    if tool is ce.tl.cross_validate:
        found = [adata.uns["ce_cv"]["quality"], *adata.uns["ce_cv"]["errors"].to_dict("records")]
    else:
        found = [adata.uns["ce"]["quality"][part] for part in ("train", "test", "by_group")]
    assert [errors["largest_class_error"] for errors in found] == pytest.approx([0.4] * len(found))


class TestWarnings:
    def test_small_classes(self, cells, fast, validate):
        # With the default weights, some cells would be predicted to be of the small class.
        fast.set_params(class_weight=None)
        rank = cells.obs.groupby("cell_type", observed=True).cumcount()
        few = cells[((cells.obs["cell_type"] != "type 1") | (rank < 3)).to_numpy()].copy()
        # Its cells do not differ from those of another class.
        others = few.X[(few.obs["cell_type"] == "type 2").to_numpy()]
        few.X[(few.obs["cell_type"] == "type 1").to_numpy()] = others[:6].reshape(3, 2, -1).mean(1)
        validate(few)
        warning, missing = few.uns["ce_cv"]["warnings"]
        assert "take no cell for 'type 1'" in missing
        assert "fewer cells than folds: 'type 1'" in warning
        one = cells[((cells.obs["cell_type"] != "type 1") | (rank < 1)).to_numpy()].copy()
        validate(one, n_repeats=2)
        only = one.obs["cell_type"] == "type 1"
        # No training cell has its class when it is held out: it is not judged.
        columns = ["ce_cv_own", "ce_cv_label", "ce_cv_confidence", "ce_cv_judged"]
        assert one.obs.loc[only, columns].isna().all(axis=None)
        assert one.obs.loc[~only, columns].notna().all(axis=None)
        quality = one.uns["ce_cv"]["quality"]
        assert (quality["n_unjudged"], quality["n"]) == (1, one.n_obs - 1)
        assert one.uns["ce_cv"]["confusion"].sum() == one.n_obs - 1

    def test_classes_of_one_group(self, cells, validate):
        cells.obs["donor"] = np.where(
            cells.obs["cell_type"] == "type 2",
            "d0",
            np.resize(["d0", "d1", "d2", "d3"], cells.n_obs),
        )
        validate(cells, group_key="donor")
        warning = cells.uns["ce_cv"]["warnings"][0]
        assert "in one group of 'donor' only: 'type 2'" in warning
        table, quality = cells.uns["ce_cv"]["per_class"], cells.uns["ce_cv"]["quality"]
        assert np.isnan(table["voronoi_error"][2])
        of_class = (cells.obs["cell_type"] == "type 2").sum()
        assert (quality["n_unjudged"], quality["n_unjudged_classes"]) == (of_class, 1)
        assert not (ce.tl.mislabeled(cells, max_own=1)["label"] == "type 2").any()

    def test_labels_from_a_clustering(self, cells, validate):
        finer = cells.obs["cell_type"].astype(str) + np.resize(["", "'"], cells.n_obs)
        cells.obs["leiden"] = finer.to_numpy()
        validate(cells)
        (warning,) = cells.uns["ce_cv"]["warnings"]
        assert "follow from the clustering 'leiden'" in warning
        cells.obs.loc[cells.obs_names[0], "cell_type"] = "type 2"
        validate(cells)
        assert not len(cells.uns["ce_cv"]["warnings"])

    @pytest.mark.parametrize("tool", [ce.tl.centroid_encoder, ce.tl.cross_validate])
    def test_labels_and_values_that_follow_from_the_data(self, cells, fast, tool):
        def notices(label_key: str, use_rep: str) -> list[str]:
            return tool.job(cells, label_key, use_rep=use_rep, model=fast).notices

        rng, many = np.random.default_rng(0), pd.DataFrame({"a": 0.0, "b": 1.0}, cells.obs_names)
        many[:] = rng.normal(size=many.shape)
        cells.obsm = {"X_umap": many.to_numpy(), "markers": many, "X_pca": cells.X[:, :5].copy()}
        cells.obs["louvain"] = cells.obs["cell_type"].to_numpy()
        (text,) = notices("louvain", "X_pca")
        assert "follow from the clustering 'louvain'" in text
        del cells.obs["louvain"]
        ce.tl.centroid_encoder(
            cells, "cell_type", n_components=5, key_added="own", model=fast, progress=False
        )
        for use_rep, n in {"X_umap": 1, "own": 1, "markers": 0, "X_pca": 0, "X": 0}.items():
            found = notices("cell_type", use_rep)
            assert len(found) == n
            assert all(f"obsm[{use_rep!r}] looks like" in text for text in found)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"n_folds": 1}, "n_folds must be at least 2; got 1"),
        ({"n_folds": 2.5}, "n_folds must be an integer; got 2.5"),
        ({"n_folds": 41}, "n_folds=41 is too many: the largest class has 40 cells"),
        ({"n_repeats": 0}, "n_repeats must be at least 1"),
        ({"n_permutations": -1}, "n_permutations must be at least 0"),
        ({"n_permutations": 10**12}, "n_permutations must be at least 0 and below"),
        ({"group_key": "cell_type"}, "each class is a group"),
    ],
)
def test_impossible_numbers_are_refused(cells, unchanged, validate, kwargs, words):
    with unchanged(cells), pytest.raises(ValueError, match=words.replace("(", r"\(")):
        validate(cells, **kwargs)


def test_folds_that_leave_one_class_are_refused(cells, validate, unchanged):
    two = cells[cells.obs["cell_type"] != "type 2"].copy()
    with unchanged(two), pytest.raises(ValueError, match="cells of one class only"):
        validate(two, group_key="cell_type")


@pytest.mark.parametrize("missing", ["drop", "mean"])
def test_missing_values(cells, validate, missing):
    cells.X[[3, 60], 2] = np.nan
    before = cells.X.copy()
    validate(cells, missing=missing)
    left_out = cells.obs["ce_cv_label"].isna().to_numpy()
    assert_array_equal(np.flatnonzero(left_out), [3, 60] if missing == "drop" else [])
    assert_array_equal(np.isnan(cells.obs["ce_cv_confidence"]), left_out)
    assert_array_equal(cells.X, before)


class TestStopping:
    @pytest.mark.parametrize("n_before", [0, 8])
    @pytest.mark.parametrize("error", [KeyboardInterrupt, StoppedTooEarly])
    def test_writes_nothing(self, cells, fast, unchanged, n_before, error):
        job = ce.tl.cross_validate.job(cells, "cell_type", model=fast)
        seen = []

        def callback(step):
            if step is not None:
                seen.append(step)
            elif error is KeyboardInterrupt and len(seen) == n_before:
                raise KeyboardInterrupt
            return len(seen) > n_before

        with unchanged(cells):
            with pytest.raises(error):
                job.run(callback)
            with pytest.raises(RuntimeError, match="nothing to write"):
                job.write(cells)

    def test_progress_counts_all_trainings(self, cells, fast):
        job = ce.tl.cross_validate.job(
            cells, "cell_type", model=fast, n_repeats=2, n_permutations=1
        )
        reports = []
        job.run(lambda step: step is not None and reports.append(step))
        assert reports == [Progress(n, 75, "epoch") for n in range(1, 76)]


class TestMislabeled:
    def test_finds_labels_that_were_changed(self, make_cells):
        adata = make_cells(n_obs=300)
        truth = adata.obs["cell_type"].copy()
        flipped = np.arange(0, 300, 20)
        codes = truth.cat.codes.to_numpy().copy()
        codes[flipped] = (codes[flipped] + 1) % 3
        adata.obs["cell_type"] = pd.Categorical.from_codes(codes, truth.cat.categories)
        model = ce.CentroidEncoder(hidden=(32,), max_epochs=30)
        ce.tl.cross_validate(adata, "cell_type", model=model, progress=False)
        found = ce.tl.mislabeled(adata, max_own=0.2)
        assert set(adata.obs_names[flipped]) == set(found.index)
        assert (found["predicted"].astype(str) == truth[found.index].astype(str)).all()
        ratio = found["confidence"] / found["own"]
        assert (ratio.diff().dropna() <= 0).all()

    @pytest.mark.slow
    def test_finds_labels_of_one_class_with_the_name_of_another(self):
        """By networks alone, recall and precision are .62: they learn a part of the names."""
        rng = np.random.default_rng(3)
        truth = rng.integers(4, size=480)
        wrong = (truth == 1) & (rng.random(480) < 0.25)
        means = 0.6 * rng.normal(size=(4, 30))
        adata = ad.AnnData((means[truth] + rng.normal(size=(480, 30))).astype(np.float32))
        adata.obs_names = [f"cell {i}" for i in range(480)]
        adata.obs["type"] = pd.Categorical(np.where(wrong, 0, truth).astype(str))
        model = ce.CentroidEncoder(max_epochs=30)
        ce.tl.cross_validate(adata, "type", model=model, progress=False)
        table = ce.tl.mislabeled(adata)
        found = adata.obs_names.isin(table.index)
        assert found[wrong].mean() >= 0.75
        assert wrong[found].mean() >= 0.85
        # The list does not depend on which other cells are in the table, nor does its order.
        some = adata[np.arange(480) % 3 > 0]
        part = ce.tl.mislabeled(some)
        assert part.equals(table[table.index.isin(some.obs_names)])

    def test_errors_name_what_is_missing(self, cells, validate, unchanged):
        with pytest.raises(KeyError, match=r"run ce\.tl\.cross_validate"):
            ce.tl.mislabeled(cells)
        validate(cells)
        with unchanged(cells), pytest.raises(ValueError, match=r"\[0, 1\]; got 2"):
            ce.tl.mislabeled(cells, max_own=2)
        del cells.obs["ce_cv_judged"]
        with pytest.raises(KeyError, match=r"'ce_cv_judged'.*is gone"):
            ce.tl.mislabeled(cells)


def test_class_weights_are_by_label(make_cells):
    cells = make_cells(n_obs=150, distance=0.3)
    # The numbers are not the indices of the classes.
    cells.obs["number"] = cells.obs["cell_type"].cat.codes.to_numpy() + 1
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=10, class_weight={1: 50.0})
    ce.tl.cross_validate(cells, "number", model=model, progress=False)
    assert (cells.obs["ce_cv_label"] == 1).mean() > 0.6
