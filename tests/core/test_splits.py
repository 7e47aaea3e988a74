"""Hold-outs, folds and shuffled labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
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
    """Classes of any size in random order."""
    sizes = draw(st.lists(st.integers(1, 80), min_size=1, max_size=8))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(draw(seeds)).permutation(labels)


@st.composite
def groupings(draw: st.DrawFn) -> tuple[Codes, Codes]:
    """Classes and groups; some classes are in few groups, some groups have few classes."""
    rng = np.random.default_rng(draw(seeds))
    n_groups, n_classes, n = (draw(st.integers(*ends)) for ends in ((2, 8), (1, 5), (10, 60)))
    groups = rng.choice(n_groups, n, p=rng.dirichlet(np.ones(n_groups)))
    groups[:2] = 0, 1
    tied = rng.uniform(size=n) < draw(st.sampled_from([0, 0.7, 1]))
    return np.where(tied, groups % n_classes, rng.integers(0, n_classes, n)), groups


@given(labelings(), shares, seeds)
def test_the_same_share_of_each_class_is_held_out_but_nothing_of_small_classes(
    labels: Codes, share: float, seed: int
) -> None:
    held_out = stratified_holdout(labels, share, seed)
    small = min(share, 1 - share)
    counts = np.bincount(labels[held_out], minlength=labels.max() + 1)
    for size, n in zip(np.bincount(labels), counts, strict=True):
        if size * small < 1 - 1e-9:
            assert n == 0
        elif size > np.ceil(1 / small):
            assert 1 <= n < size
            assert abs(n - share * size) < 2
    assert np.array_equal(held_out, stratified_holdout(labels, share, seed))


@given(groupings(), shares, seeds)
def test_groups_are_not_split_and_no_class_is_lost_if_that_can_be_avoided(
    pair: tuple[Codes, Codes], share: float, seed: int
) -> None:
    labels, groups = pair
    held_out = grouped_holdout(labels, groups, share, seed)
    assert not set(groups[held_out]) & set(groups[~held_out])
    assert held_out.any()
    assert not held_out.all()
    most = max(len(np.unique(labels[groups != group])) for group in np.unique(groups))
    assert len(np.unique(labels[~held_out])) == most
    assert np.array_equal(held_out, grouped_holdout(labels, groups + 7, share, seed))


@given(labelings(), st.integers(2, 6), seeds)
def test_folds_have_equal_numbers_of_each_class_up_to_one(
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


@given(groupings(), seeds)
def test_groups_are_not_split_and_no_fold_is_empty(pair: tuple[Codes, Codes], seed: int) -> None:
    labels, groups = pair
    n_folds = min(3, len(np.unique(groups)), int(np.bincount(labels).max()))
    if n_folds < 2:
        return
    folds = cross_validation_folds(labels, n_folds, seed, groups)
    assert set(folds) == set(range(n_folds))
    assert all(len(np.unique(folds[groups == group])) == 1 for group in groups)


@given(groupings(), seeds)
def test_shuffled_labels_keep_the_classes_of_groups(pair: tuple[Codes, Codes], seed: int) -> None:
    labels, groups = pair
    assert np.array_equal(np.sort(shuffled_labels(labels, seed)), np.sort(labels))
    shuffled = shuffled_labels(labels, seed, groups)
    before, after = (
        [np.sort(some[groups == group]).tolist() for group in np.unique(groups)]
        for some in (labels, shuffled)
    )
    if all(len(set(classes)) == 1 for classes in before):
        assert sorted(c[0] for c in before) == sorted(c[0] for c in after)
        assert all(len(set(classes)) == 1 for classes in after)
    else:
        assert after == before
