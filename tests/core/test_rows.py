from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.feature_selection import f_classif
from sklearn.preprocessing import StandardScaler

from centroid_encoder.core.matrix import Matrix
from centroid_encoder.core.rows import CHUNK, class_means, standardized
from centroid_encoder.core.standardization import Scale, Standardizer

Array = NDArray[np.float64]

CPU = torch.device("cpu")
N_LARGE = 2 * CHUNK + 100  # several chunks, the last one partial


@pytest.fixture(autouse=True)
def csr_stays_csr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows become dense once and for all; what is tested here is how many are gathered."""
    monkeypatch.setattr("centroid_encoder.core.rows.SMALL", 0)


def fit(
    X: Matrix,
    scale: Scale = "feature",
    *,
    clip: float = np.inf,
    index: NDArray[np.integer] | None = None,
    codes: NDArray[np.integer] | None = None,
    max_features: int | None = None,
) -> Standardizer:
    index = np.arange(X.shape[0]) if index is None else index
    codes = np.arange(len(index)) % 2 if codes is None else codes
    return Standardizer.fit(X, index, codes, scale, clip, max_features)


def all_rows(X: Matrix, standardizer: Standardizer) -> NDArray[np.float32]:
    return standardized(X, standardizer, CPU).gather(torch.arange(X.shape[0])).numpy()


def counts(n: int = N_LARGE, d: int = 5, seed: int = 0) -> Array:
    """Mostly zeros, as counts are; each feature with a mean and scale of its own."""
    rng = np.random.default_rng(seed)
    return rng.poisson(0.5, size=(n, d)) * np.logspace(-2, 2, d)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_features_are_z_scored_as_by_scikit_learn(layout: Callable[[Array], Matrix]) -> None:
    X = counts()
    index = np.random.default_rng(1).permutation(N_LARGE)[: N_LARGE - 50]
    expected = StandardScaler().fit(X[index]).transform(X)

    standardizer = fit(layout(X), index=index)

    z = all_rows(layout(X), standardizer)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_global_scale_is_one_for_all_features(layout: Callable[[Array], Matrix]) -> None:
    X = counts()
    expected = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).mean())

    z = all_rows(layout(X), fit(layout(X), "global"))

    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)
    assert np.square(z.astype(float)).mean() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_none_leaves_the_data_as_they_are(layout: Callable[[Array], Matrix]) -> None:
    X = counts(50)

    z = all_rows(layout(X), fit(layout(X), "none", clip=0.1))

    np.testing.assert_array_equal(z, X.astype(np.float32))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_supervised_scale_weighs_features_by_their_correlation_ratio(
    layout: Callable[[Array], Matrix],
) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, N_LARGE)
    X = counts()
    X[:, 0] = 7  # constant: related to nothing
    X[:, 2:] += codes[:, None] * [0.1, 1, 30] * (rng.uniform(size=(N_LARGE, 3)) < 0.5)
    # ε² = (SS_between − (M − 1) MS_within) / SS_total, by way of F.
    f = np.nan_to_num(f_classif(X[:, 1:], codes)[0])
    ratio = np.sqrt(np.maximum(0, 2 * (f - 1) / (2 * f + N_LARGE - 3)))
    ratio = np.append(0, ratio)

    standardizer = fit(layout(X), "supervised", codes=codes)

    kept = ratio > 0
    np.testing.assert_allclose(
        standardizer.weight, ratio / np.sqrt(np.square(ratio[kept]).mean()), rtol=1e-6, atol=1e-9
    )
    z = StandardScaler().fit_transform(X)[:, kept] * standardizer.weight[kept]
    np.testing.assert_allclose(all_rows(layout(X), standardizer), z, rtol=1e-5, atol=1e-6)


def test_weights_follow_the_rows_that_count_and_no_others() -> None:
    X = counts(600)
    index = np.random.default_rng(1).permutation(600)[:400]
    codes = np.random.default_rng(2).integers(0, 3, 400)
    X[index, 3] += 50 * codes
    elsewhere = X.copy()
    elsewhere[np.setdiff1d(np.arange(600), index)] = 1e6

    one = fit(X, "supervised", index=index, codes=codes)
    other = fit(elsewhere, "supervised", index=index, codes=codes)

    assert one.weight.argmax() == 3
    for name in ("mean", "scale", "weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_features_unrelated_to_the_classes_count_the_same_where_there_are_no_others() -> None:
    # Both classes have the same rows.
    X = np.repeat(counts(20), 2, axis=0)

    standardizer = fit(X, "supervised", codes=np.arange(40) % 2)

    np.testing.assert_array_equal(standardizer.weight, 1)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_rounding_errors_are_no_relation_to_the_classes(
    layout: Callable[[Array], Matrix],
) -> None:
    # One value in one of six samples: F is 1, the correlation ratio 0 but for rounding.
    X = np.zeros((6, 1))
    for value in np.random.default_rng(0).normal(size=50).astype(np.float32):
        X[0] = value
        assert fit(layout(np.c_[X, 0 * X]), "supervised").weight.tolist() == [1, 1]


def test_float32_csr_is_summed_in_float64() -> None:
    X = (1000 + np.random.default_rng(0).normal(size=(N_LARGE, 3))).astype(np.float32)

    from_csr, from_dense = fit(sparse.csr_matrix(X)), fit(X)

    np.testing.assert_allclose(from_csr.mean, from_dense.mean, rtol=1e-12)
    np.testing.assert_allclose(from_csr.scale, from_dense.scale, rtol=1e-8)


def test_max_features_keeps_those_of_largest_weight() -> None:
    codes = np.random.default_rng(0).integers(0, 2, 300)
    X = np.random.default_rng(1).normal(size=(300, 6)) + codes[:, None] * [3, 1, 4, 2, 6, 5]

    standardizer = fit(X, "supervised", codes=codes, max_features=3)

    np.testing.assert_array_equal(standardizer.kept, [2, 4, 5])
    assert np.square(standardizer.weight[standardizer.kept]).mean() == pytest.approx(1)
    assert standardized(X, standardizer, CPU).n_inputs == 3
    rows = all_rows(sparse.csr_matrix(X), standardizer)
    np.testing.assert_array_equal(rows, all_rows(X, standardizer))


def test_constant_features_become_zero() -> None:
    X = counts(100)
    X[:, 1], X[:, 3] = 0.1, 1e8

    for scale in ("feature", "global", "supervised"):
        standardizer = fit(X, scale)
        z = np.zeros(X.shape)
        z[:, standardizer.kept] = all_rows(X, standardizer)
        np.testing.assert_allclose(z[:, [1, 3]], 0, atol=1e-6)
        assert np.isfinite(z).all()


def test_data_without_any_variation_become_zero() -> None:
    for scale in ("feature", "global", "supervised"):
        z = all_rows(np.full((10, 3), 0.5), fit(np.full((10, 3), 0.5), scale))
        np.testing.assert_array_equal(z, np.zeros((10, 3)))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_nearly_constant_features_cannot_explode_on_new_data(
    layout: Callable[[Array], Matrix],
) -> None:
    X = counts(1000)
    X[:, 1] = 0
    X[0, 1] = 1e-3
    new = counts(10, seed=1)
    new[:, 1], new[0, 1] = 5, -5

    z = all_rows(layout(new), fit(layout(X), clip=4.0))

    np.testing.assert_array_equal(z[:, 1], [-4] + [4] * 9)
    unclipped = all_rows(new, fit(X))
    np.testing.assert_array_equal(z[:, 2:], np.clip(unclipped[:, 2:], -4, 4))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("scale", ["feature", "global", "supervised"])
def test_a_large_offset_costs_no_precision(layout: Callable[[Array], Matrix], scale: Scale) -> None:
    # As float32, 1e8 and 1e8 + 1 are the same.
    X = np.random.default_rng(0).integers(-1, 2, size=(500, 4)).astype(float)
    codes = (X[:, 0] > 0).astype(int)
    near, far = (fit(layout(Y), scale, codes=codes) for Y in (X, X + 1e8))

    np.testing.assert_allclose(
        all_rows(layout(X + 1e8), far), all_rows(X, near), rtol=1e-5, atol=1e-6
    )


DTYPES = ["?", "u1", "u2", "i2", "i4", "i8", "f4", "f8"]
DENSE_DTYPES = [*DTYPES, "f2", ">f4", ">f8"]  # scipy's CSR does not have the others


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        *((layout, dtype) for layout in (np.array, np.asfortranarray) for dtype in DENSE_DTYPES),
        *((sparse.csr_matrix, dtype) for dtype in DTYPES),
    ],
)
@pytest.mark.parametrize("scale", ["feature", "supervised"])
def test_every_dtype_is_read_without_being_changed(
    layout: Callable[[Any], Matrix], dtype: DTypeLike, scale: Scale
) -> None:
    values = np.random.default_rng(0).integers(0, 2, size=(60, 4)).astype(dtype)
    X = layout(values)
    parts = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    for part in parts:
        part.flags.writeable = False
    before = [part.tobytes() for part in parts]

    standardizer = fit(X, scale)
    z = all_rows(X, standardizer)

    expected = values.astype(float)
    np.testing.assert_allclose(z, all_rows(expected, fit(expected, scale)), rtol=1e-6)
    assert [part.tobytes() for part in parts] == before


def test_large_integers_are_exact() -> None:
    X = np.array([[2**30], [2**30 + 1], [2**30 + 2]])

    for layout in (np.asarray, sparse.csr_matrix):
        z = all_rows(layout(X), fit(layout(X)))
        np.testing.assert_allclose(z[:, 0], [-(1.5**0.5), 0, 1.5**0.5], rtol=1e-6)


def test_strided_views_are_read_in_their_own_order() -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    view = X[::2, ::-2]

    np.testing.assert_array_equal(all_rows(view, fit(view)), all_rows(view.copy(), fit(view)))


@st.composite
def csr_matrices(draw: st.DrawFn) -> sparse.csr_array:
    """CSR with empty rows, unsorted indices, explicit zeros and several entries for one cell."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, n_values = draw(st.integers(2, 12)), draw(st.integers(1, 8)), draw(st.integers(0, 40))
    indptr = np.append(0, np.bincount(rng.integers(0, n, n_values), minlength=n).cumsum())
    index_dtype = draw(st.sampled_from([np.int32, np.int64]))
    # Sums of these are exact, in whatever order.
    data = rng.choice([-2.5, 0, 0.5, 3.25, 1024], n_values).astype(
        draw(st.sampled_from([np.float32, np.float64]))
    )
    X = sparse.csr_array((n, d), dtype=data.dtype)
    X.data, X.indices, X.indptr = (
        data,
        rng.integers(0, d, n_values).astype(index_dtype),
        indptr.astype(index_dtype),
    )
    return X


@given(
    csr_matrices(),
    st.sampled_from(["supervised", "feature", "global", "none"]),
    st.sampled_from([1.0, np.inf]),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_csr_batches_are_the_dense_ones_to_the_bit(
    X: sparse.csr_array, scale: Scale, clip: float, seed: int
) -> None:
    before = [part.tobytes() for part in (X.data, X.indices, X.indptr)]
    rng = np.random.default_rng(seed)
    standardizer = fit(X, scale, clip=clip)
    chosen = torch.from_numpy(rng.integers(0, X.shape[0], 15))  # in any order, with repetitions

    from_csr = standardized(X, standardizer, CPU).gather(chosen)

    dense = X.toarray()
    assert torch.equal(from_csr, standardized(dense, standardizer, CPU).gather(chosen))
    for name in ("mean", "scale", "weight"):
        np.testing.assert_allclose(
            getattr(standardizer, name), getattr(fit(dense, scale), name), rtol=1e-4, atol=1e-7
        )
    assert [part.tobytes() for part in (X.data, X.indices, X.indptr)] == before


def test_csr_rows_never_become_dense_as_a_whole() -> None:
    # Dense, these would take 200 GB.
    n, d = 1_000_000, 50_000
    X = sparse.csr_array(([2.0, 3.0], ([0, n - 1], [7, d - 1])), shape=(n, d))
    zeros, ones = np.zeros(d), np.ones(d)

    x = standardized(X, Standardizer(zeros, ones, ones, np.inf), CPU).gather(
        torch.tensor([n - 1, 5, 0])
    )

    np.testing.assert_array_equal(x.numpy().nonzero(), [[0, 2], [d - 1, 7]])
    np.testing.assert_array_equal(x[[0, 2], [d - 1, 7]], [3, 2])


@pytest.mark.parametrize("copy_limit", [0, 2**28])
def test_features_left_out_of_csr_are_skipped(
    copy_limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("centroid_encoder.core.kept.COPY_LIMIT", copy_limit)
    monkeypatch.setattr("centroid_encoder.core.kept.COPY_SHARE", 0)
    X = sparse.random_array((50, 30), density=0.3, format="csr", rng=np.random.default_rng(0))
    codes = np.arange(50) % 3
    standardizer = Standardizer.fit(X, np.arange(50), codes, "supervised", 10.0, 7)

    rows = standardized(X, standardizer, CPU).gather(torch.tensor([4, 0, 4]))

    np.testing.assert_array_equal(rows, standardizer(X.toarray()[[4, 0, 4]]).numpy())


def test_of_large_csr_a_small_part_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("centroid_encoder.core.kept.COPY_LIMIT", 0)
    X = sparse.random_array((500, 90), density=0.3, format="csr", rng=np.random.default_rng(0))
    codes = np.arange(500) % 3
    sizes = []
    for n_kept in (9, 60):
        standardizer = Standardizer.fit(X, np.arange(500), codes, "supervised", 10.0, n_kept)
        rows = standardized(X, standardizer, CPU)
        expected = standardizer(X.toarray()[[4, 0, 4]]).numpy()
        np.testing.assert_array_equal(rows.gather(torch.tensor([4, 0, 4])), expected)
        sizes.append(sum(value.nbytes for value in vars(rows).values() if torch.is_tensor(value)))
    assert sizes[0] < 0.25 * sizes[1]
    # Of what is not copied, the values are those of X.
    assert np.shares_memory(rows._data.numpy(), X.data)  # type: ignore[attr-defined]


def test_small_csr_is_made_dense_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X = sparse.random_array((500, 90), density=0.3, format="csr", rng=np.random.default_rng(0))
    standardizer = Standardizer.fit(X, np.arange(500), np.arange(500) % 3, "supervised", 10.0, 40)
    index = torch.tensor([4, 0, 4])
    n_bytes = 4 * 500 * len(standardizer.kept)
    monkeypatch.setattr("centroid_encoder.core.rows.SMALL", n_bytes)
    dense = standardized(X, standardizer, CPU)
    monkeypatch.setattr("centroid_encoder.core.rows.SMALL", n_bytes - 1)
    sparse_rows = standardized(X, standardizer, CPU)
    assert (dense.fixed, sparse_rows.fixed) == (True, False)
    np.testing.assert_array_equal(dense.gather(index), sparse_rows.gather(index))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_csr_in_memory_is_not_copied(
    dtype: DTypeLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("centroid_encoder.core.kept.COPY_LIMIT", 0)
    n, n_values = 20 * CHUNK, 40
    X = sparse.csr_array(
        (
            np.random.default_rng(0).random(n * n_values, dtype),
            np.tile(np.arange(0, 5 * n_values, 5), n),
            np.arange(0, n * n_values + 1, n_values),
        ),
        shape=(n, 5 * n_values),
    )
    size = X.data.nbytes + X.indices.nbytes
    codes = np.arange(n) % 3

    tracemalloc.start()
    try:
        rows = standardized(X, fit(X, "supervised", codes=codes), CPU)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert rows.n_rows == len(codes)
    assert peak < 0.3 * size


def test_inverse_gives_the_data_back() -> None:
    X = counts(100)
    X[:, 1] = 4
    for scale in ("feature", "global", "none"):
        standardizer = fit(X, scale)
        back = standardizer.inverse(standardizer(X).numpy())
        assert back.dtype == np.float32
        np.testing.assert_allclose(back, X, rtol=1e-5, atol=1e-5)


def test_inverse_gives_features_left_out_their_mean() -> None:
    codes = np.random.default_rng(0).integers(0, 2, 300)
    X = np.random.default_rng(1).normal(size=(300, 3)) + codes[:, None] * [0.5, 3, 2] + 5

    standardizer = fit(X, "supervised", codes=codes, max_features=2)
    back = standardizer.inverse(standardizer(X).numpy())

    np.testing.assert_allclose(back[:, 1:], X[:, 1:], rtol=1e-5)
    np.testing.assert_allclose(back[:, 0], X[:, 0].mean(), rtol=1e-5)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_class_means_are_those_of_the_rows_that_count(layout: Callable[[Array], Matrix]) -> None:
    X = counts()
    rng = np.random.default_rng(0)
    index = rng.permutation(N_LARGE)[: CHUNK + 500]
    labels = np.full(N_LARGE, -1)  # rows that do not count need no label
    labels[index] = rng.integers(0, 4, len(index))
    standardizer = fit(X)
    rows = standardized(layout(X), standardizer, CPU)

    means = class_means(rows, torch.from_numpy(index), torch.from_numpy(labels), 4)

    z = standardizer(X).double().numpy()
    assert means.dtype == np.float64
    expected = [z[labels == code].mean(axis=0) for code in range(4)]
    np.testing.assert_allclose(means, expected, rtol=1e-9, atol=1e-12)
