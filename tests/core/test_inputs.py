from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cross_decomposition import CCA
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import f_classif
from sklearn.preprocessing import StandardScaler

from centroid_encoder.core import inputs as module
from centroid_encoder.core.inputs import Inputs, Scale, Standardizer, fit_standardizer
from centroid_encoder.core.matrix import CHUNK, Lazy, Matrix, looks_whole, row_chunks
from tests.stored_rows import StoredRows

Array = NDArray[np.float64]
N_LARGE = 2 * CHUNK + 100  # several chunks, the last one partial
LAYOUTS: list[Callable[[Any], Any]] = [
    np.asarray,
    sparse.csr_matrix,
    sparse.csr_array,
    StoredRows,
    lambda X: StoredRows(sparse.csr_array(X)),
]


def fit(
    X: Matrix | Lazy,
    scale: Scale = "feature",
    codes: NDArray[np.integer] | None = None,
    *,
    rows: NDArray[np.integer] | None = None,
    clip: float = np.inf,
    max_features: int | None = None,
) -> Standardizer:
    rows = np.arange(X.shape[0]) if rows is None else rows
    codes = np.arange(len(rows)) % 2 if codes is None else codes
    return fit_standardizer(X, rows, codes, scale, clip, max_features)[0]


def unscaled(n: int) -> Standardizer:
    return Standardizer(np.zeros(n), np.ones(n), np.ones(n), np.inf)


def counts(n: int = N_LARGE, d: int = 5, seed: int = 0) -> Array:
    """Mostly zeros, like counts; each feature has another mean and scale."""
    rng = np.random.default_rng(seed)
    return rng.poisson(0.5, size=(n, d)) * np.logspace(-2, 2, d)


def supervised_weights(X: Array, codes: NDArray[np.integer]) -> Array:
    """Square root of ε² = (SS_between − (M − 1) MS_within) / SS_total, by way of F."""
    n, more = len(X), len(np.unique(codes)) - 1
    f = np.nan_to_num(f_classif(X, codes)[0])
    ratio = np.sqrt(np.maximum(0, more * (f - 1) / (more * f + n - more - 1)))
    return ratio / np.sqrt(np.square(ratio[ratio > 0]).mean())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_z_scores_and_weights_are_those_of_the_formulas(layout: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    X, rows = counts(), np.sort(rng.permutation(N_LARGE)[: N_LARGE - 50])
    codes = rng.integers(0, 3, len(rows))
    X[rows, 2:] += codes[:, None] * [0.1, 1, 30] * (rng.uniform(size=(len(rows), 3)) < 0.5)
    z = StandardScaler().fit(X[rows]).transform(X)
    rms = np.sqrt(X[rows].var(axis=0).mean())
    weights = supervised_weights(X[rows], codes)
    for scale, expected in {
        "feature": z,
        "global": (X - X[rows].mean(axis=0)) / rms,
        "supervised": (z * weights)[:, weights > 0],
    }.items():
        standardizer = fit(layout(X), scale, codes, rows=rows)
        for _, chunk in row_chunks(layout(X[:100])):
            found = standardizer(chunk)
            assert found.dtype == torch.float32
            assert_allclose(found, expected[:100], rtol=1e-5, atol=1e-5)
        assert_allclose(
            standardizer.inverse(found.numpy())[:, 2:], X[:100, 2:], rtol=1e-4, atol=1e-5
        )
    assert_allclose(standardizer.weight, weights, rtol=1e-6, atol=1e-9)


def test_each_network_weighs_features_by_its_own_rows() -> None:
    rng = np.random.default_rng(0)
    codes, folds = rng.integers(0, 3, 600), rng.integers(0, 4, 600)
    X = rng.normal(size=(600, 6)) + codes[:, None] * rng.uniform(size=6)
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    standardizer, shares, _ = fit_standardizer(X, np.arange(600), codes, "supervised", 9, 3, folds)
    assert_allclose(np.square(standardizer.weight[standardizer.kept]).mean(), 1)
    for k, share in enumerate(shares):
        own = folds != k
        expected = supervised_weights(X[own], codes[own])
        largest = np.sort(np.argsort(-expected)[:3])
        found = (share * standardizer.weight[standardizer.kept])[
            np.isin(standardizer.kept, largest)
        ]
        expected = expected[largest] / np.sqrt(np.square(expected[largest]).mean())
        # The variance is that of all rows.
        assert_allclose(found, expected, rtol=0.05)
        assert (share > 0).sum() == 3


def test_constant_and_unrelated_features_are_scaled() -> None:
    X = counts(100)
    X[:, 1], X[:, 3] = 0.1, 1e8
    for scale in ("feature", "global", "supervised"):
        standardizer = fit(X, scale)
        z = standardizer.inverse(standardizer(X).numpy())
        assert_allclose(z[:, [1, 3]], X[:, [1, 3]], rtol=1e-6)
        assert not fit(np.full((10, 3), 0.5), scale)(np.full((10, 3), 0.5)).any()
    # All weights are equal if both classes have the same rows, or differ by rounding errors.
    assert_array_equal(fit(np.repeat(counts(20), 2, axis=0), "supervised").weight, 1)
    one = np.zeros((6, 2))
    for value in np.random.default_rng(0).normal(size=20).astype(np.float32):
        one[0, 0] = value
        assert fit(sparse.csr_array(one), "supervised").weight.tolist() == [1, 1]


def test_max_features_keeps_the_features_with_the_largest_weights() -> None:
    rng, codes = np.random.default_rng(1), np.arange(300) % 2
    X = rng.normal(size=(300, 6)) + codes[:, None] * [3, 1, 4, 2, 6, 5] + 5
    standardizer = fit(X, "supervised", codes, max_features=3)
    assert_array_equal(standardizer.kept, [2, 4, 5])
    assert np.square(standardizer.weight[standardizer.kept]).mean() == pytest.approx(1)
    assert_array_equal(standardizer(sparse.csr_matrix(X)), standardizer(X))
    # The inverse gives features that are left out their means.
    back = standardizer.inverse(standardizer(X).numpy())
    assert_allclose(back[:, [2, 4, 5]], X[:, [2, 4, 5]], rtol=1e-4)
    assert_allclose(back[:, :2], np.broadcast_to(X[:, :2].mean(axis=0), (300, 2)), rtol=1e-5)


def test_nearly_constant_features_are_clipped_on_new_data() -> None:
    X, new = counts(1000), counts(10, seed=1)
    X[:, 1], X[0, 1] = 0, 1e-3
    new[:, 1], new[0, 1] = 5, -5
    z = fit(X, clip=4.0)(new)
    assert_array_equal(z[:, 1], [-4] + [4] * 9)
    assert_array_equal(z[:, 2:], fit(X)(new)[:, 2:].clip(-4, 4))


@pytest.mark.parametrize("n_noise", [0, 40])
def test_features_have_weights_only_where_neighbours_are_better_with_them(n_noise: int) -> None:
    rng = np.random.default_rng(0)
    codes, folds = rng.integers(0, 3, 400), rng.integers(0, 4, 400)
    X = rng.normal(size=(400, 6 + n_noise)).astype(np.float32)
    X[:, :6] += 1.5 * rng.normal(size=(3, 6))[codes]
    every = np.arange(400)
    fitted = {
        scale: fit_standardizer(X, every, codes, scale, 10, None, folds, every)
        for scale in ("auto", "feature", "supervised")
    }
    expected = fitted["supervised" if n_noise else "feature"]
    assert_array_equal(fitted["auto"][0].weight, expected[0].weight)
    assert_array_equal(fitted["auto"][1], expected[1])
    # Without folds, no row is judged by the weights of others.
    alone, *_ = fit_standardizer(X, every, codes, "auto", 10, None)
    assert_array_equal(
        alone.weight, fit_standardizer(X, every, codes, "supervised", 10, None)[0].weight
    )


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_constant_features_of_few_samples_have_no_weight(layout: Callable[[Any], Any]) -> None:
    rng, every = np.random.default_rng(0), np.arange(120)
    codes, folds = every % 3, every // 3 % 4
    X = rng.normal(size=(120, 8)) + 1.5 * rng.normal(size=(3, 8))[codes]
    X[:, 2], X[:, 5] = 0, 1e5 / 3
    arguments = every, codes, "auto", 10, None, folds, every
    standardizer, shares, _ = fit_standardizer(layout(X), *arguments)
    assert_array_equal(standardizer.weight, [1, 1, 0, 1, 1, 0, 1, 1])
    assert_array_equal(shares, np.ones((4, 6)))
    # If all features are constant, they are kept.
    assert fit_standardizer(layout(np.full((120, 2), 0.1)), *arguments)[0].weight.all()


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("scale", ["feature", "global", "supervised"])
def test_a_large_offset_costs_no_precision(layout: Callable[[Any], Any], scale: Scale) -> None:
    X = np.random.default_rng(0).integers(-1, 2, size=(500, 4)).astype(float)
    codes = (X[:, 0] > 0).astype(int)
    near, far = (fit(layout(Y), scale, codes)(layout(Y)) for Y in (X, X + 1e8))
    assert_allclose(far, near, rtol=1e-5, atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["supervised", "feature", "global", "none"]))
def test_unsorted_csr_with_duplicates_gives_the_result_of_the_dense_matrix(
    seed: int, scale: Scale
) -> None:
    rng = np.random.default_rng(seed)
    n, d, n_values = rng.integers(2, 12), rng.integers(1, 8), rng.integers(0, 40)
    indptr = np.append(0, np.bincount(rng.integers(0, n, n_values), minlength=n).cumsum())
    data = rng.choice([-2.5, 0, 0.5, 3.25, 1024], n_values)
    X = sparse.csr_array((n, d), dtype=np.float64)
    X.data, X.indices, X.indptr = data, rng.integers(0, d, n_values), indptr
    before = [part.tobytes() for part in (X.data, X.indices, X.indptr)]
    one, other = fit(X, scale, clip=1.0), fit(X.toarray(), scale, clip=1.0)
    for name in ("mean", "scale", "weight"):
        assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-7)
    assert torch.equal(one(X), one(X.toarray()))
    assert [part.tobytes() for part in (X.data, X.indices, X.indptr)] == before


def test_axes_of_many_features_are_principal_axes_and_those_of_few_are_the_features() -> None:
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.normal(size=(500, 30)) * 0.8 ** np.arange(30)).float()
    share = rng.uniform(0.5, 2, 30)
    assert_allclose(module.network_axes(z, share, 30), np.diag(share), rtol=1e-6)
    axes = module.network_axes(z, share, 10)
    along = Inputs(unscaled(30), axes[None])(z).numpy()
    _, values, vectors = np.linalg.svd(z.numpy() * share, full_matrices=False)
    assert_allclose(np.linalg.norm(along, axis=0), values[:10], rtol=1e-3)
    assert_allclose(np.abs(axes.numpy() / share @ vectors[:5].T)[:5], np.eye(5), atol=0.02)
    assert not module.network_axes(z[:4], share, 10)[4:].any()


def test_discriminant_axes_span_those_of_scikit_learn() -> None:
    X, y = load_wine(return_X_y=True)
    x, share = StandardScaler().fit_transform(X), np.linspace(0.5, 2, 13)
    z = torch.tensor(x).float()
    axes = module.discriminant_axes(z, share, y, 3)
    reference = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.02).fit(x * share, y)
    ours, theirs = x @ axes.numpy().T, reference.transform(x * share)
    assert ours.shape == theirs.shape == (len(y), 2)
    assert CCA(2).fit(ours, theirs).score(ours, theirs) > 0.98
    within = np.concatenate([part - part.mean(axis=0) for part in (ours[y == j] for j in range(3))])
    assert (within.std(axis=0) < module.OF_DISCRIMINANT).all()
    # A class without rows, as in a fold, changes nothing.
    assert_allclose(module.discriminant_axes(z, share, 2 * y, 5)[:2], axes, rtol=0.02)


def test_discriminant_axes_of_random_classes_are_short() -> None:
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.normal(size=(300, 20))).float()
    for n in (2, 10):
        axes = module.discriminant_axes(z, np.ones(20), rng.integers(0, n, 300), n)
        assert np.linalg.norm(z @ axes.T, axis=0).max() < 0.2 * np.sqrt(300)


def test_noise_on_axes_has_the_covariance_of_dropout() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 120, generator=generator) * torch.linspace(0.3, 2, 120)
    axes = torch.randn(2, 8, 120, generator=generator)
    root = Inputs(unscaled(120), axes).noise(z, 0.4)
    assert root is not None
    kept = (torch.rand(4000, 40, 120, generator=generator) >= 0.4) / 0.6
    noise = (z * kept - z).reshape(-1, 120)
    for k in range(2):
        sampled = torch.cov((noise @ axes[k].T).T)
        error = (root[k] @ root[k].T - sampled).abs().max()
        assert float(error) < 0.02 * float(sampled.diagonal().max())


def test_counts_are_recognised() -> None:
    X = np.random.default_rng(0).poisson(5, size=(50, 20)).astype(np.float32)
    X[0, 0] = 30
    assert all(looks_whole(layout(X), above=20) for layout in LAYOUTS)
    assert not looks_whole(np.log1p(X), above=20)
    assert not looks_whole(X - 1, above=20)
    assert not looks_whole(np.minimum(X, 20), above=20)


def test_ramps_are_piecewise_linear_between_quantiles() -> None:
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.gamma(2, size=(400, 3))).float()
    knots, share = module.ramp_knots(z), np.array([1.0, 0.5, 2.0])
    assert_allclose(knots, np.quantile(z.numpy(), np.linspace(0, 1, 7), axis=0), rtol=1e-5)
    axes = torch.diag(torch.tensor(share)).float()[None]
    inputs = Inputs(unscaled(3), axes, knots)(z).numpy()
    ramps = inputs[:, 3:].reshape(400, 6, 3)
    for j in range(3):
        height = share[j] * float(knots[5, j] - knots[1, j]) / 1.93
        for i in range(6):
            rising = np.interp(z[:, j], knots[i : i + 2, j], [-height / 2, height / 2])
            assert_allclose(ramps[:, i, j], rising, atol=1e-5)


def test_ramps_have_no_steps_where_many_values_are_equal() -> None:
    rng = np.random.default_rng(0)
    z = torch.from_numpy(np.stack([np.maximum(rng.normal(size=300), 0), rng.normal(size=300)], 1))
    z = z.float()
    knots = module.ramp_knots(z)
    assert torch.diff(knots, dim=0).min() > 0.01
    assert_allclose(knots[:, 1], np.quantile(z[:, 1], np.linspace(0, 1, 7)), atol=1e-5)
    # Four of the quantiles are 0.
    assert_allclose(knots[:4, 0].mean(), 0, atol=1e-6)
    inputs = Inputs(unscaled(2), torch.eye(2)[None], knots)
    assert (inputs(z + 1e-6) - inputs(z)).abs().max() < 1e-4
