"""Novelty of samples of known and unknown classes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from centroid_encoder.core import matrix, novelty
from centroid_encoder.core.inputs import fit_standardizer
from centroid_encoder.core.novelty import Novelty, Surroundings
from centroid_encoder.core.splits import representatives

MEANS = 2.0 * np.random.default_rng(7).normal(size=(5, 30))


def drawn(n: int, classes: range, seed: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(classes), size=n)
    X = MEANS[list(classes)][codes] + rng.normal(size=(n, 30))
    return np.maximum(X, 0).astype(np.float32), codes


def fitted(
    X: object, codes: NDArray[np.intp], groups: NDArray[np.intp] | None = None
) -> tuple[Novelty, NDArray[np.float64]]:
    """Novelty that is learned from all samples, and their scores."""
    index = np.arange(len(codes))
    standardizer = fit_standardizer(X, index, codes, "supervised", 10.0, 2000)[0]
    model, _, scores = Novelty.fit(X, index, codes, standardizer, groups)
    return model, scores


@pytest.mark.parametrize("n", [60, 400, 3000])
def test_quantiles_of_known_classes_are_uniform(n: int) -> None:
    X, codes = drawn(n, range(4), 0)
    model, _ = fitted(X, codes)
    found = np.sort(model.quantiles(drawn(4000, range(4), 1)[0]))
    uniform = (np.arange(4000) + 0.5) / 4000
    # Kolmogorov's distance.
    assert np.abs(found - uniform).max() < 1.9 / np.sqrt(min(n, 2000))
    assert (found > 0.95).mean() == pytest.approx(0.05, abs=0.08 if n < 100 else 0.02)


def test_an_unknown_class_is_novel() -> None:
    X, codes = drawn(800, range(4), 0)
    model, _ = fitted(X, codes)
    known = model.quantiles(drawn(400, range(4), 1)[0])
    unknown = model.quantiles(drawn(400, range(4, 5), 1)[0])
    assert roc_auc_score(np.repeat([0, 1], 400), np.concatenate([known, unknown])) > 0.97


def of_donors(
    seed: int, sizes: tuple[int, ...], classes: range = range(4), first: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.intp]]:
    """Samples of some of 24 donors, whose means differ in all features."""
    rng = np.random.default_rng(seed)
    means, donors = 1.5 * rng.normal(size=(5, 40)), 0.8 * rng.normal(size=(24, 40))
    groups = np.repeat(np.arange(first, first + len(sizes)), sizes)
    codes = rng.integers(len(classes), size=len(groups))
    X = means[list(classes)][codes] + donors[groups] + rng.normal(size=(len(groups), 40))
    return X.astype(np.float32), codes, groups


def test_known_cells_of_new_donors_are_not_novel() -> None:
    found = []
    for seed in range(6):
        X, codes, groups = of_donors(seed, (960,) + (30,) * 7)
        model, scores = fitted(X, codes, groups)
        trained = [(model.ranks(scores)[groups == i] > 0.95).mean() for i in range(8)]
        known = of_donors(seed, (60,) * 16, first=8)[0]
        unknown = of_donors(seed, (10,) * 16, range(4, 5), first=8)[0]
        new = [(model.quantiles(x) > 0.95).mean() for x in (known, unknown)]
        found.append([np.mean(trained), *new])
    # All groups count equally.
    assert np.mean(found, axis=0)[0] == pytest.approx(0.05, abs=0.01)
    assert 0.03 < np.mean(found, axis=0)[1] < 0.08
    assert np.mean(found, axis=0)[2] > 0.85


def test_a_class_of_one_donor_does_not_hide_unknown_classes() -> None:
    found = []
    for seed in range(8):
        X, codes, groups = of_donors(seed, (120,) * 8)
        is_of_donor = (codes > 0) | (groups == 3)
        model, _ = fitted(X[is_of_donor], codes[is_of_donor], groups[is_of_donor])
        unknown = of_donors(seed, (10,) * 16, range(4, 5), first=8)[0]
        found.append((model.quantiles(unknown) > 0.95).mean())
    assert np.mean(found) > 0.85


def test_the_samples_of_every_group_are_in_the_reference() -> None:
    groups = np.repeat(np.arange(5), [9000, 300, 300, 300, 100])
    chosen = representatives(np.arange(10_000) % 2, 2000, 20, np.random.default_rng(0), groups)
    counts = np.bincount(groups[chosen])
    assert len(chosen) == 2000
    assert (counts[1:4] > 250).all()
    assert counts[4] > 80


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sizes", [(10, 1), (1,) * 12, (6, 6), (300, 2)])
def test_tiny_groups_have_a_novelty(sizes: tuple[int, ...]) -> None:
    X, codes = drawn(sum(sizes), range(2), 0)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    model, scores = fitted(X, codes, groups)
    assert np.isfinite(scores).all()
    assert np.isfinite(model.quantiles(X)).all()


def test_features_of_weight_zero_affect_novelty() -> None:
    X, codes = drawn(800, range(2), 0)
    standardizer = fit_standardizer(X, np.arange(800), codes, "supervised", 10.0, 5)[0]
    model, *_ = Novelty.fit(X, np.arange(800), codes, standardizer)
    other = drawn(200, range(2), 1)[0]
    other[:, np.flatnonzero(standardizer.weight == 0)] += 3
    assert np.median(model.quantiles(other)) > 0.99


@pytest.mark.parametrize(("n", "d"), [(700, 400), (150, 1000)])
def test_leading_axes_are_those_of_a_pca(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, 6)) @ rng.normal(size=(6, d)) + rng.normal(size=(n, d))).astype("f4")
    model, _ = fitted(X, np.arange(n) % 3)
    standardizer = model.standardizer
    z = np.clip((X - standardizer.mean) / standardizer.scale, -10, 10)
    pca = PCA(20, svd_solver="full").fit(z)
    cosines = np.linalg.svd(pca.components_[:6] @ model.axes[:, :6], compute_uv=False)
    assert_allclose(cosines, 1, atol=1e-4)
    assert_allclose(model.axes.T @ model.axes, np.eye(20), atol=2e-3)


@pytest.mark.parametrize("rank", [1, 7])
def test_dependent_features_have_fewer_axes(rank: int) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(300) % 3
    base = rng.normal(size=(300, rank)) + 3 * codes[:, None]
    mixing = rng.normal(size=(rank, 60))
    model, _ = fitted(base @ mixing, codes)
    assert model.axes.shape == (60, rank)
    found = model.quantiles((rng.normal(size=(300, rank)) + 3) @ mixing)
    assert (found > 0.95).mean() < 0.12


def test_logarithms_are_those_of_the_formulas() -> None:
    X, codes = drawn(300, range(3), 0)
    model, _ = fitted(X, codes)
    reference, K = model.reference.astype(np.float64), 20
    query = np.random.default_rng(1).normal(scale=3, size=(7, K))
    found = Surroundings(model.reference, model.codes)(query)
    neighbors = NearestNeighbors(n_neighbors=10, algorithm="kd_tree").fit(reference)
    own, _ = neighbors.kneighbors()
    distance, index = neighbors.kneighbors(query)
    floor = 0.01 * np.sqrt(np.square(reference).sum(axis=1).mean())
    near = np.log(distance.mean(axis=1) + floor)
    near -= 0.5 * np.log(own.mean(axis=1) + floor)[index].mean(axis=1)
    assert_allclose(found[:, 0], near, atol=1e-4)

    inside = [reference[codes == c] for c in range(3)]
    common = sum(np.cov(own.T) * (len(own) - 1) for own in inside) / 297
    least = np.full(7, np.inf)
    for own in inside:
        shrinkage = K / (K + len(own))
        covariance = (1 - shrinkage) * np.cov(own.T) + shrinkage * common
        covariance = 0.95 * covariance + 0.05 * np.trace(covariance) / K * np.eye(K)
        away = query - own.mean(axis=0)
        least = np.minimum(least, (away * np.linalg.solve(covariance, away.T).T).sum(axis=1))
    assert_allclose(found[:, 1], np.log(least + 0.01 * K), rtol=1e-4, atol=1e-4)


def test_estimates_are_of_a_normal_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(novelty, "N_DRAWS", 4000)
    monkeypatch.setattr(novelty, "DRAWN", 1)
    X, codes = drawn(500, range(4), 0)
    model, _ = fitted(X, codes)
    rng, standardizer = np.random.default_rng(1), model.standardizer
    x = drawn(20, range(4), 1)[0].astype(float)
    gaps = rng.random(x.shape) < 0.3
    gaps[:, 3], gaps[5] = True, False
    x[gaps] = np.nan
    found, *others = model.estimates(x, gaps)
    draws = np.stack(others)
    # The covariance of the z-scores in the model: the axes, and the same noise in all features.
    variance, (d, K) = model.reference.var(axis=0), model.axes.shape
    noise = max((d - variance.sum()) / (d - K), 0.05)
    covariance = (model.axes * np.maximum(variance - noise, 1e-6)) @ model.axes.T
    covariance += noise * np.eye(d)
    center = model.axes @ model.offset
    z = np.clip((x - standardizer.mean) / standardizer.scale, -10, 10)
    for row, there in enumerate(~gaps):
        away = np.linalg.solve(covariance[np.ix_(there, there)], (z[row] - center)[there])
        expected = center + covariance[:, there] @ away
        expected = standardizer.mean + standardizer.scale * expected
        assert_allclose(found[row], np.where(there, x[row], expected), rtol=1e-4, atol=1e-4)
        # Draws vary as the normal distribution does, but without the noise of the features.
        z_draws = (draws[:, row, ~there] - expected[~there]) / standardizer.scale[~there]
        assert_allclose(z_draws.mean(axis=0), 0, atol=1e-6)
        of_others = covariance[np.ix_(~there, there)]
        explained = of_others @ np.linalg.solve(covariance[np.ix_(there, there)], of_others.T)
        left = covariance[np.ix_(~there, ~there)] - noise * np.eye((~there).sum()) - explained
        assert_allclose(z_draws.T @ z_draws / 4000, left, atol=0.1 * np.abs(left).max(initial=1e-9))


def test_classes_are_recognised_and_novel_ones_found_by_half_of_the_features() -> None:
    X, codes = drawn(800, range(4), 0)
    model, _ = fitted(X, codes)
    known, unknown = (drawn(300, classes, 1)[0] for classes in (range(4), range(4, 5)))
    gaps = np.zeros(known.shape, dtype=bool)
    gaps[:, ::2] = True
    a, b = (model.quantiles(next(model.estimates(x.astype(float), gaps))) for x in (known, unknown))
    assert (a > 0.95).mean() < 0.2
    assert roc_auc_score(np.repeat([0, 1], 300), np.concatenate([a, b])) > 0.85


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_estimates_change_the_novelty_of_known_cells_little(share: float) -> None:
    X, codes = drawn(800, range(4), 0)
    model, _ = fitted(X, codes)
    query = drawn(400, range(4), 1)[0].astype(float)
    gaps = np.zeros(query.shape, dtype=bool)
    order = np.random.default_rng(2).permutation(query.shape[1])
    gaps[:, order[: round(share * query.shape[1])]] = True
    lost = np.square(model.axes[gaps[0]]).sum() / model.axes.shape[1]
    estimated = next(model.estimates(query, gaps))
    found = model.quantiles(estimated, lost=np.full(400, lost))
    before, plain = (model.quantiles(x) for x in (query, estimated))
    change, uncorrected = (abs(np.median(x) - np.median(before)) for x in (found, plain))
    assert change < 0.3
    assert change < uncorrected - 0.05
    # The same on the axes, without values in the gaps.
    query[gaps] = 99
    same = model.quantiles(query, gaps[0], np.full(400, lost))
    assert_allclose(same, found, atol=0.01)


def test_duplicates_are_not_novel() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=600)
    X = (rng.random((600, 2)) < np.array([0.2, 0.5, 0.8])[codes][:, None]).astype(np.float32)
    model, _ = fitted(X[:300], codes[:300])
    assert (model.quantiles(X[300:]) > 0.95).mean() <= 0.05


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_data_and_batches_give_the_same_novelty(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, codes = drawn(400, range(4), 0)
    query = drawn(50, range(5), 1)[0]
    dense, _ = fitted(X, codes)
    expected = dense.quantiles(query)
    monkeypatch.setattr(matrix, "VALUES_AT_ONCE", 2900)
    found, _ = fitted(kind(X), codes)
    for asked in (kind(query), query):
        assert_allclose(found.quantiles(asked), expected, atol=2 / 400)
        assert_allclose(dense.quantiles(asked), expected, atol=2 / 400)


def test_the_reference_is_small_and_has_every_class() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2, 3], [9000, 900, 30, 5])
    X = rng.normal(size=(len(codes), 6)) + codes[:, None]
    model, _ = fitted(X, codes)
    assert 1900 < len(model.known) < 2100
    assert_array_equal(np.bincount(model.codes)[2:], [20, 5])
    assert len(representatives(np.arange(12_000) % 3000, 2000, 20, rng)) == 3000


@pytest.mark.parametrize(
    "X",
    [
        np.ones((12, 3)),
        np.repeat(np.eye(3), 4, axis=0),
        np.random.default_rng(0).normal(size=(10, 1)),
        np.random.default_rng(0).normal(size=(11, 50)),
        1e30 * np.random.default_rng(0).normal(size=(40, 4)),
    ],
    ids=["constant", "duplicates", "one feature", "more features than samples", "huge"],
)
@pytest.mark.filterwarnings("error")
def test_degenerate_data_have_a_novelty(X: NDArray[np.float64]) -> None:
    model, _ = fitted(X, np.arange(len(X)) % 2)
    found = model.quantiles(X)
    assert ((found >= 0) & (found <= 1)).all()
