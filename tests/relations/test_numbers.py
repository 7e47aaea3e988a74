"""Relations between the numbers of two calls: each holds whatever the numbers are."""

from __future__ import annotations

import re
import warnings

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import sklearn
from matplotlib.text import Text
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial import procrustes
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import centroid_encoder as ce
from centroid_encoder.core.quality import knn_predict, n_repeated

QUICK = ce.CentroidEncoder(hidden=(32,), max_epochs=20)


def table(X, **obs) -> ad.AnnData:
    frame = pd.DataFrame(obs, index=[f"c{i}" for i in range(len(X))])
    return ad.AnnData(np.asarray(X, np.float32), obs=frame)


def blobs(n: int, n_classes: int, distance: float, seed: int = 0, width: int = 12):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    return distance * rng.normal(size=(n_classes, width))[y] + rng.normal(size=(n, width)), y


def quietly(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, progress=False, **kwargs)


def test_names_of_classes_do_not_matter() -> None:
    """Other names in the same order give the same result; another order turns the map at most."""
    X, y = blobs(400, 4, 0.8)
    names = np.array(["a", "b", "c", "d"])[y]
    for others, atol in ((np.array(["k", "l", "m", "n"])[y], 0), (np.array(list("dacb"))[y], 0.05)):
        one, other = table(X, t=names), table(X, t=others)
        for adata in (one, other):
            quietly(ce.tl.centroid_encoder, adata, "t", model=QUICK, test_size=0)
        assert procrustes(one.obsm["X_ce"], other.obsm["X_ce"])[2] <= atol + 1e-9
        same = pd.crosstab(one.obs["ce_label"], other.obs["ce_label"]).max(axis=1).sum()
        assert same >= 400 * (1 - atol)


def test_a_class_of_few_cells_hardly_changes_the_others() -> None:
    X, y = blobs(600, 3, 1.0)
    names = np.array(["a", "b", "c"])[y].astype(object)
    more = np.concatenate([X, np.full((3, X.shape[1]), 9.0)])
    one, other = table(X, t=names), table(more, t=np.append(names, ["few"] * 3))
    for adata in (one, other):
        quietly(ce.tl.centroid_encoder, adata, "t", model=QUICK, test_size=0)
    same = one.obs["ce_label"].astype(str).to_numpy() == other.obs["ce_label"].astype(str)[:600]
    assert same.mean() > 0.95
    gap = np.abs(one.obs["ce_confidence"].to_numpy() - other.obs["ce_confidence"].to_numpy()[:600])
    assert np.median(gap) < 0.05


@pytest.mark.slow
def test_confidence_does_not_depend_on_class_weights() -> None:
    """Weights move the borders of the regions, and the confidence of each class stays right."""
    rng = np.random.default_rng(0)
    y = (rng.random(8000) < 0.06).astype(int)
    X = rng.normal(size=(8000, 10))
    X[:, 0] += 2.0 * y
    found = {}
    for weight in (None, "sqrt", "balanced"):
        model = ce.CentroidEncoder(class_weight=weight, random_state=0).fit(X[:2500], y[:2500])
        p, predicted = model.predict_proba(X[2500:]), model.predict(X[2500:])
        right = predicted == y[2500:]
        confidence = p[np.arange(len(p)), predicted]
        for code in (0, 1):
            own = predicted == code
            assert confidence[own].mean() == pytest.approx(right[own].mean(), abs=0.1)
        found[weight] = (predicted == 1).sum()
        assert p[:, 1].mean() == pytest.approx(0.06, abs=0.02)
    assert found[None] < found["sqrt"] < found["balanced"]


@pytest.fixture(scope="module")
def one_donor() -> ad.AnnData:
    """Three separate classes; C occurs in one donor only."""
    rng = np.random.default_rng(0)
    donor = rng.integers(0, 6, 400)
    codes = np.where((donor == 3) & (rng.random(400) < 0.5), 2, rng.integers(0, 2, 400))
    X = 3 * rng.normal(size=(3, 20))[codes] + rng.normal(size=(400, 20))
    return table(X, t=np.array(list("ABC"))[codes], donor=[f"d{i}" for i in donor])


def test_a_class_of_one_donor_is_not_judged_and_is_not_wrong(one_donor) -> None:
    adata, model = one_donor.copy(), ce.CentroidEncoder(hidden=(32,), max_epochs=30)
    with pytest.warns(UserWarning, match=r"cells of 1 class are not judged: 'C'"):
        ce.tl.centroid_encoder(adata, "t", group_key="donor", model=model, progress=False)
    lone, quality = (adata.obs["t"] == "C").to_numpy(), adata.uns["ce"]["quality"]
    assert adata.obs.loc[lone, ["ce_label", "ce_confidence"]].isna().all(axis=None)
    assert (adata.obs["ce_label"] == adata.obs["t"])[~lone].all()
    assert np.isfinite(adata.obsm["X_ce"]).all()
    assert quality["train"]["n_unjudged"] == lone.sum()
    assert quality["train"]["n"] + quality["test"]["n"] + lone.sum() == adata.n_obs
    per_class = quality["per_class"].set_index("class")
    assert per_class["n_train"]["C"] == lone.sum()
    expected = adata.obs["ce_label"].value_counts().reindex(per_class.index, fill_value=0)
    assert_array_equal(per_class["n_predicted"], expected)
    training, _ = ce.pl.voronoi(adata, show=False)
    assert f"hollow: {lone.sum()} cells of 1 class are not judged" in training.get_title()
    hollow = [line for line in training.lines if line.get_markerfacecolor() == "none"]
    assert sum(len(line.get_xdata()) for line in hollow) == lone.sum()
    # New cells of the class are placed in its region by all networks.
    query = table(adata.X[lone])
    quietly(ce.tl.ingest, query, adata)
    assert (query.obs["ce_label"] == "C").all()


def test_with_one_class_in_each_donor_no_cell_is_judged(one_donor) -> None:
    adata = one_donor[one_donor.obs["t"] != "C"].copy()
    adata.obs["donor"] = adata.obs["t"].map({"A": "d0", "B": "d1"})
    words = f"{adata.n_obs} cells of 2 classes are not judged"
    with pytest.warns(UserWarning, match=words):
        ce.tl.centroid_encoder(
            adata, "t", group_key="donor", test_size=0, model=QUICK, progress=False
        )
    assert adata.obs[["ce_label", "ce_confidence"]].isna().all(axis=None)
    assert np.isfinite(adata.obsm["X_ce"]).all()
    assert adata.uns["ce"]["quality"]["train"]["n"] == 0
    assert words in ce.pl.voronoi(adata, show=False).get_title()


def test_a_check_by_donor_does_not_list_the_class_of_one_donor(one_donor) -> None:
    adata = one_donor.copy()
    quietly(ce.tl.cross_validate, adata, "t", group_key="donor", model=QUICK)
    quality, stored = adata.uns["ce_cv"]["quality"], adata.uns["ce_cv"]
    judged = adata.obs["ce_cv_judged"].notna()
    assert_array_equal(judged, adata.obs["t"] != "C")
    assert stored["confusion"].sum() == judged.sum() == quality["n"]
    with pytest.warns(UserWarning, match="no cell is listed: each cell is predicted"):
        assert ce.tl.mislabeled(adata).empty
    truth, found = (adata.obs[name][judged].astype(str) for name in ("t", "ce_cv_label"))
    balanced = 1 - balanced_accuracy_score(truth, found)
    assert quality["balanced_voronoi_error"] == pytest.approx(balanced)


def test_relabelled_cells_are_judged_by_their_new_label_or_left_out() -> None:
    X, y = blobs(500, 3, 2.5, width=15)
    labels = np.array(list("ABC"))[y].astype(object)
    labels[:20] = np.array(list("ABC"))[(y[:20] + 1) % 3]
    adata = table(X, t=pd.Categorical(labels))
    quietly(ce.tl.cross_validate, adata, "t", model=QUICK)
    listed = ce.tl.mislabeled(adata)
    assert len(listed.index.intersection([f"c{i}" for i in range(20)])) >= 15
    assert len(listed) <= 25
    assert listed["confidence"].notna().all()
    cell = listed.index[0]
    # A confidence of the networks in another class is not that of the predicted one.
    other = adata.copy()
    other.obs.loc[cell, "ce_cv_label"] = other.obs.loc[cell, "t"]
    again = ce.tl.mislabeled(other)
    assert again.index[again["confidence"].isna()].tolist() == [cell]
    code = y[adata.obs_names.get_loc(cell)]
    own = adata.obs["ce_cv_own"].copy()
    for new, warned in (("ABC"[code], 0), ("ABC"[(code + 2) % 3], 1), ("another", 1)):
        obs = adata.obs["t"].astype(object)
        obs[cell] = new
        adata.obs["t"] = obs.astype("category")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert cell not in ce.tl.mislabeled(adata).index
        texts = [str(one.message) for one in caught]
        assert sum("cells that are left out: 1." in text for text in texts) == warned
    assert own.equals(adata.obs["ce_cv_own"])


def test_cells_that_lost_their_label_are_left_out_and_counted() -> None:
    X, y = blobs(300, 3, 1.0)
    adata = table(X, t=pd.Categorical(np.array(list("ABC"))[y]))
    quietly(ce.tl.centroid_encoder, adata, "t", model=QUICK)
    quietly(ce.tl.cross_validate, adata, "t", model=QUICK)
    cells = ce.tl.mislabeled(adata, max_own=1).index
    adata.obs.loc[cells[:4], "t"] = np.nan
    with pytest.warns(UserWarning, match="cells that are left out: 4"):
        left = ce.tl.mislabeled(adata, max_own=1).index
    assert left.equals(cells[4:])
    assert not ce.tl.misplaced(adata).index.isin(cells[:4]).any()
    for draw in (ce.pl.voronoi, ce.pl.reliability, ce.pl.confusion):
        assert draw(adata, show=False) is not None


@pytest.mark.slow
def test_a_pipeline_on_noise_predicts_noise() -> None:
    """The places of `fit_transform` say nothing; those of `transform` seem to."""
    errors, in_sample, gaps = [], [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(300, 60)), rng.integers(0, 3, 300)
        model = ce.CentroidEncoder(random_state=seed)
        places = model.fit_transform(X, y)
        errors.append(np.mean(knn_predict(places, y) != y))
        in_sample.append(np.mean(knn_predict(model.transform(X), y) != y))
        near = KNeighborsClassifier(50).fit(places, y)
        X_new, y_new = rng.normal(size=(1000, 60)), rng.integers(0, 3, 1000)
        p = near.predict_proba(model.transform(X_new))
        gaps.append(p.max(axis=1).mean() - np.mean(p.argmax(axis=1) == y_new))
    assert np.mean(errors) == pytest.approx(2 / 3, abs=0.03)
    assert np.mean(in_sample) < 0.5
    # Fifty votes for three classes exceed a third by chance alone, by less than 15 points.
    assert np.mean(gaps) < 0.15


def test_groups_reach_the_estimator_through_a_pipeline() -> None:
    X, y = blobs(240, 3, 1.0)
    groups = np.arange(240) % 6
    X += 2 * np.random.default_rng(1).normal(size=(6, X.shape[1]))[groups]
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = model.set_fit_request(groups=True)
        pipe = make_pipeline(routed, KNeighborsClassifier())
        expected = KNeighborsClassifier().fit(
            ce.CentroidEncoder(**model.get_params()).fit_transform(X, y, groups=groups), y
        )
        pipe.fit(X, y, groups=groups)
        assert_allclose(pipe[-1]._fit_X, expected._fit_X, atol=1e-5)
        scores = cross_validate(pipe, X, y, cv=GroupKFold(3), params={"groups": groups})
    assert np.isfinite(scores["test_score"]).all()
    plain = ce.CentroidEncoder(**model.get_params()).fit_transform(X, y)
    assert np.abs(plain - expected._fit_X).max() > 0.01


@pytest.mark.parametrize("options", [{"n_networks": 1}, {"placement": "bottleneck"}])
def test_one_network_warns_that_there_is_nothing_to_cross_fit(options) -> None:
    X, y = blobs(100, 2, 1.0)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=3, random_state=0, **options)
    with pytest.warns(UserWarning, match="one network places the samples"):
        places = model.fit_transform(X, y)
    assert_allclose(places, model.transform(X), atol=1e-4)


@pytest.mark.parametrize("kind", ["bool", "words"])
def test_the_same_split_of_ones_own_gives_the_same_map(kind: str) -> None:
    X, y = blobs(300, 3, 0.8)
    adata = table(X, t=np.array(list("abc"))[y])
    quietly(ce.tl.centroid_encoder, adata, "t", model=QUICK)
    other = table(X, t=np.array(list("abc"))[y])
    held_out = (adata.obs["ce_split"] == "test").to_numpy()
    other.obs["own"] = held_out if kind == "bool" else np.where(held_out, "test", "train")
    quietly(ce.tl.centroid_encoder, other, "t", model=QUICK, split_key="own")
    assert_array_equal(adata.obsm["X_ce"], other.obsm["X_ce"])
    for name in ("test", "train"):
        assert adata.uns["ce"]["quality"][name] == other.uns["ce"]["quality"][name]


def test_a_split_of_ones_own_by_donor_is_not_warned_of() -> None:
    X, y = blobs(300, 3, 0.8)
    donor = [f"d{i % 5}" for i in range(300)]
    adata = table(X, t=np.array(list("abc"))[y], donor=donor, own=np.arange(300) % 5 == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ce.tl.centroid_encoder(adata, "t", split_key="own", model=QUICK, progress=False)


def test_cells_outside_ones_own_split_are_unused() -> None:
    X, y = blobs(300, 3, 0.8)
    adata = table(X, t=np.array(list("abc"))[y])
    own = np.where(np.arange(300) % 5 == 0, True, False).astype(object)
    own[:30] = np.nan
    adata.obs["own"] = own
    quietly(ce.tl.centroid_encoder, adata, "t", model=QUICK, split_key="own")
    assert (adata.obs["ce_split"][:30] == "unused").all()
    assert adata.uns["ce"]["quality"]["unused"]["n"] == 30
    again = adata[:30].copy()
    quietly(ce.tl.ingest, again, adata, key_added="again")
    assert_allclose(again.obsm["again"], adata.obsm["X_ce"][:30], atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"test_size": 0.2}, "test_size has no effect with split_key"),
        ({"group_key": "t"}, "group_key has no effect with split_key"),
        ({"split_key": "missing"}, "obs has no column 'missing'"),
        ({"split_key": "t"}, "must hold True"),
        ({"split_key": "all"}, "no cell of 'a', 'b', 'c' is left for the training"),
        ({"split_key": "none"}, "holds out no cell"),
    ],
)
def test_a_wrong_split_of_ones_own_is_an_error(options, words) -> None:
    X, y = blobs(60, 3, 0.8)
    adata = table(X, t=np.array(list("abc"))[y], own=np.arange(60) % 5 == 0, all=True, none=False)
    with pytest.raises((ValueError, KeyError), match=words):
        ce.tl.centroid_encoder(adata, "t", **({"split_key": "own"} | options))


@pytest.mark.parametrize("group_key", [None, "donor"])
def test_cells_beyond_max_cells_are_placed_as_ingest_places_them(group_key) -> None:
    X, y = blobs(600, 3, 0.8)
    adata = table(X, t=np.array(list("abc"))[y], donor=np.arange(600) % 4)
    quietly(ce.tl.centroid_encoder, adata, "t", model=QUICK, max_cells=200, group_key=group_key)
    unused = (adata.obs["ce_split"] == "unused").to_numpy()
    quality = adata.uns["ce"]["quality"]
    assert unused.sum() == quality["unused"]["n"] > 200
    assert sum(quality[name]["n"] for name in ("train", "test", "unused")) == 600
    again = adata[unused].copy()
    quietly(ce.tl.ingest, again, adata, key_added="again")
    assert_allclose(again.obsm["again"], adata.obsm["X_ce"][unused], atol=1e-4)
    assert_array_equal(again.obs["again_label"], again.obs["ce_label"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_rows_that_occur_twice_are_named_beside_the_error(kind):
    X, y = blobs(120, 3, 1.0)
    twice, order = (np.tile(x, (2, *[1] * (x.ndim - 1))) for x in (X, y)), np.arange(240)
    X2, y2 = (x[np.random.default_rng(0).permutation(order)] for x in twice)
    once = blobs(240, 3, 1.0)
    # Rows of a few values are equal by chance.
    for values, classes, is_said in (
        (X2, y2, True),
        (*once, False),
        (once[0][:, :3] > 0, once[1], False),
    ):
        adata = table(values, kind=classes.astype(str))
        adata.X = kind(adata.X)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ce.tl.centroid_encoder(adata, "kind", model=QUICK, progress=False)
            ce.tl.cross_validate(adata, "kind", model=QUICK, n_folds=2, progress=False)
        texts = [
            str(x.message) for x in caught if "twice: the error means nothing" in str(x.message)
        ]
        assert len(texts) == 2 * is_said
        title = ce.pl.voronoi(adata, show=False)[1].get_title()
        assert ("twice: the error means nothing" in title) == is_said
        page = ce.pl.reliability(adata, show=False)
        words = " ".join(text.get_text() for text in page.findobj(Text))
        assert ("twice: the error means nothing" in words) == is_said
        assert not re.search(r"ce\.tl|adata|n_perm|uns\[", words)
        plt.close("all")


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_rows_that_are_equal_by_chance_are_not_repeated(kind):
    rng, rows, others = np.random.default_rng(0), np.arange(400), np.arange(400, 2000)
    normal = rng.normal(size=(2000, 20))
    far = normal.copy()
    far[1500, 3] = 1e9
    by_chance = [rng.poisson(0.5, (2000, n)) for n in (4, 8, 12)]
    by_chance += [rng.integers(0, 2, (2000, n)) for n in (5, 10, 11)]
    for X in (normal, far, *by_chance):
        assert n_repeated(kind(X.astype(float)), rows, others) == 0
        assert n_repeated(kind(X.astype(float)), np.arange(2000)) == 0
    twice = kind(np.tile(normal[:1000], (2, 1)))
    assert n_repeated(twice, rows, np.arange(400, 1000)) == 0
    assert n_repeated(twice, rows, others) == 400
    assert n_repeated(twice, np.arange(2000)) == 2000
    assert n_repeated(twice, np.arange(2000), parts=np.arange(2000) // 1000) == 2000
    # Copies that are held out together.
    assert n_repeated(twice, np.arange(2000), parts=np.arange(2000) % 1000) == 0


def test_an_error_of_few_cells_is_said_to_be_one():
    for n, is_few in ((145, True), (160, False)):
        X, y = blobs(n, 3, 1.0)
        adata = table(X, kind=y.astype(str))
        quietly(ce.tl.centroid_encoder, adata, "kind", model=QUICK)
        title = ce.pl.voronoi(adata, show=False)[1].get_title()
        assert ("too few to tell" in title) == is_few
        plt.close("all")
