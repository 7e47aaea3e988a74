from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from centroid_encoder.core.splits import (
    cross_validation_folds,
    grouped_holdout,
    shuffled_labels,
    stratified_holdout,
)

Codes = NDArray[np.integer]

shares = st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.7, 0.9, 0.95])
seeds = st.integers(0, 2**32 - 1)


@st.composite
def labelings(draw: st.DrawFn) -> Codes:
    """Classes of any size, one sample to many, in random order."""
    sizes = draw(st.lists(st.integers(1, 80), min_size=1, max_size=8))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(draw(seeds)).permutation(labels)


@st.composite
def groupings(draw: st.DrawFn) -> tuple[Codes, Codes]:
    """Classes and groups; some classes live in few groups, some groups have few classes."""
    rng = np.random.default_rng(draw(seeds))
    n_groups, n_classes = draw(st.integers(2, 8)), draw(st.integers(1, 5))
    n = draw(st.integers(10, 60))
    groups = rng.choice(n_groups, n, p=rng.dirichlet(np.ones(n_groups)))
    groups[:2] = 0, 1
    tied = rng.uniform(size=n) < draw(st.sampled_from([0, 0.7, 1]))
    labels = np.where(tied, groups % n_classes, rng.integers(0, n_classes, n))
    # Not every class, and not every group, needs to be there.
    return labels, groups


def n_classes_of(labels: Codes) -> int:
    return len(np.unique(labels))


@given(labelings(), shares, seeds)
def test_every_class_gives_its_share_and_small_ones_stay_whole(
    labels: Codes, share: float, seed: int
) -> None:
    held_out = stratified_holdout(labels, share, seed)

    assert held_out.dtype == bool
    assert held_out.shape == labels.shape
    small = min(share, 1 - share)
    for size, n in zip(
        np.bincount(labels), np.bincount(labels[held_out], minlength=labels.max() + 1), strict=True
    ):
        if size * small < 1 - 1e-9:
            assert n == 0
        elif size > np.ceil(1 / small):
            # The whole is rounded up to the next sample, then each class to a neighbouring one.
            assert 1 <= n < size
            assert abs(n - share * size) < 2


def test_the_share_of_the_whole_is_exact() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 10])

    held_out = stratified_holdout(labels, 0.2, 0)

    np.testing.assert_array_equal(np.bincount(labels[held_out]), [20, 10, 2])


def test_classes_too_small_to_split_leave_nothing_held_out() -> None:
    assert not stratified_holdout(np.array([0, 0, 1, 1, 2]), 0.1, 0).any()


@given(groupings(), shares, seeds)
@settings(max_examples=50, deadline=None)
def test_groups_are_never_split(pair: tuple[Codes, Codes], share: float, seed: int) -> None:
    labels, groups = pair

    held_out = grouped_holdout(labels, groups, share, seed)

    assert held_out.dtype == bool
    assert not set(groups[held_out]) & set(groups[~held_out])
    assert held_out.any()
    assert not held_out.all()


@given(groupings(), shares, seeds)
@settings(max_examples=150, deadline=None)
def test_classes_stay_in_training_where_any_choice_of_groups_allows(
    pair: tuple[Codes, Codes], share: float, seed: int
) -> None:
    labels, groups = pair

    held_out = grouped_holdout(labels, groups, share, seed)

    # More groups held out can only lose more classes, so single groups tell.
    most = max(n_classes_of(labels[groups != group]) for group in np.unique(groups))
    assert n_classes_of(labels[~held_out]) == most


def test_a_class_is_spared_though_nearly_every_choice_loses_one() -> None:
    # 40 donors, 38 of which have a class to themselves.
    groups = np.repeat(np.arange(40), 10)
    labels = np.where(groups < 38, groups + 1, 0)

    held_out = grouped_holdout(labels, groups, 0.2, 0)

    assert n_classes_of(labels[~held_out]) == 39
    assert held_out.sum() == 10


@pytest.mark.parametrize("seed", range(5))
def test_held_out_groups_come_as_near_to_the_share_as_any_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.choice(8, 400, p=rng.dirichlet(np.full(8, 3)))
    labels = rng.integers(0, 3, 400)

    def deviation(held_out: NDArray[np.bool_]) -> float:
        counts = np.bincount(labels[held_out], minlength=3)
        return float(np.abs(counts - 0.3 * np.bincount(labels)).sum())

    best = min(
        deviation(np.isin(groups, chosen))
        for k in range(1, 8)
        for chosen in combinations(range(8), k)
    )
    assert deviation(grouped_holdout(labels, groups, 0.3, seed)) <= best + 10


def test_many_groups_give_nearly_exact_shares() -> None:
    rng = np.random.default_rng(0)
    groups, labels = rng.integers(0, 3000, 20_000), rng.integers(0, 4, 20_000)

    held_out = grouped_holdout(labels, groups, 0.2, 0)

    shares = np.bincount(labels[held_out]) / np.bincount(labels)
    np.testing.assert_allclose(shares, 0.2, atol=0.02)


def test_a_large_share_of_two_groups_still_trains_on_one() -> None:
    labels, groups = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 1, 1, 1, 1])

    np.testing.assert_array_equal(grouped_holdout(labels, groups, 0.6, 0), groups == 1)


def test_group_indices_may_have_gaps() -> None:
    labels, groups = np.array([0, 1, 0, 1]), np.array([7, 7, 900, 900])

    held_out = grouped_holdout(labels, groups, 0.5, 0)

    assert held_out.tolist() in ([True, True, False, False], [False, False, True, True])


def test_the_seed_makes_the_choice_and_nothing_else_does() -> None:
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 3, 300), rng.integers(0, 60, 300)

    def surroundings() -> tuple[object, ...]:
        name, keys, *rest = np.random.get_state()  # noqa: NPY002
        return (
            random.getstate(),
            (name, keys.tobytes(), *rest),
            torch.get_rng_state().numpy().tobytes(),
        )

    for hold_out in (
        lambda seed: stratified_holdout(labels, 0.2, seed),
        lambda seed: grouped_holdout(labels, groups, 0.2, seed),
    ):
        before = surroundings()
        choices = [hold_out(seed) for seed in (0, 2**32 - 1)]
        assert surroundings() == before
        np.random.seed(5)  # noqa: NPY002
        random.seed(5)
        np.testing.assert_array_equal(hold_out(0), choices[0])
        assert (choices[0] != choices[1]).any()


@given(labels=labelings(), n_folds=st.integers(2, 6), seed=seeds)
def test_every_sample_is_in_one_fold_and_classes_are_spread(
    labels: Codes, n_folds: int, seed: int
) -> None:
    counts = np.bincount(labels)
    if counts.max() < n_folds:
        with pytest.raises(ValueError, match="n_splits"):
            cross_validation_folds(labels, n_folds, seed)
        return
    folds = cross_validation_folds(labels, n_folds, seed)
    table = np.zeros((n_folds, len(counts)), dtype=int)
    np.add.at(table, (folds, labels), 1)
    assert (np.ptp(table, axis=0) <= 1).all()
    assert np.array_equal(folds, cross_validation_folds(labels, n_folds, seed))


@given(grouping=groupings(), seed=seeds)
def test_groups_stay_in_one_fold(grouping: tuple[Codes, Codes], seed: int) -> None:
    labels, groups = grouping
    n_folds = min(3, len(np.unique(groups)), int(np.bincount(labels).max()))
    if n_folds < 2:
        return
    folds = cross_validation_folds(labels, n_folds, seed, groups)
    assert set(folds) == set(range(n_folds))
    for group in np.unique(groups):
        assert len(np.unique(folds[groups == group])) == 1


@pytest.mark.parametrize("seed", range(6))
def test_no_fold_is_left_empty_for_the_balance_of_classes(seed: int) -> None:
    labels = np.repeat([0, 1, 0, 1], [34, 29, 32, 7])
    donors = np.repeat([0, 1, 2], [34, 29, 39])
    folds = cross_validation_folds(labels, 3, seed, donors)
    assert sorted(folds[donors == donor][0] for donor in range(3)) == [0, 1, 2]


@given(grouping=groupings(), seed=seeds)
def test_shuffled_labels_keep_the_classes_of_groups(
    grouping: tuple[Codes, Codes], seed: int
) -> None:
    labels, groups = grouping
    assert np.array_equal(np.sort(shuffled_labels(labels, seed)), np.sort(labels))
    shuffled = shuffled_labels(labels, seed, groups)
    per_group = [np.unique(labels[groups == group]) for group in np.unique(groups)]
    if all(len(classes) == 1 for classes in per_group):
        # Groups change labels as wholes.
        found = [np.unique(shuffled[groups == group]) for group in np.unique(groups)]
        assert all(len(classes) == 1 for classes in found)
        assert sorted(np.ravel(found)) == sorted(np.ravel(per_group))
        return
    for group in np.unique(groups):
        inside = groups == group
        assert np.array_equal(np.sort(shuffled[inside]), np.sort(labels[inside]))


def test_shuffled_labels_have_nothing_to_do_with_the_real_ones() -> None:
    labels = np.repeat(np.arange(4), 1000)
    agree = [(shuffled_labels(labels, seed) == labels).mean() for seed in range(20)]
    assert np.mean(agree) == pytest.approx(0.25, abs=0.01)
    assert len(set(agree)) > 10
