"""Stratified and grouped hold-out splits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, train_test_split

N_CANDIDATES = 100
"""Random choices of groups among which the best is taken."""


def stratified_holdout(labels: NDArray[np.integer], share: float, seed: int) -> NDArray[np.bool_]:
    """Choose which samples to hold out, the same share of every class.

    A class with fewer than 1 / share samples is too small to split and is kept whole, out of the
    hold-out.

    Parameters
    ----------
    labels
        (n,) class indices.
    share
        Share of the samples to hold out, in (0, 1).
    seed
        Makes the choice repeatable.

    Returns
    -------
    (n,) mask, True for held-out samples.
    """
    held_out = np.zeros(len(labels), dtype=bool)
    large = np.flatnonzero(np.bincount(labels)[labels] >= math.ceil(1 / min(share, 1 - share)))
    if len(large):
        _, chosen = train_test_split(
            large, test_size=share, stratify=labels[large], random_state=seed
        )
        held_out[chosen] = True
    return held_out


def grouped_holdout(
    labels: NDArray[np.integer], groups: NDArray[np.integer], share: float, seed: int
) -> NDArray[np.bool_]:
    """Hold out whole groups (donors, batches), about `share` of every class.

    Of many random choices of groups, the one that leaves the most classes with training samples,
    then the one that comes nearest to the share in every class.

    Parameters
    ----------
    labels, groups
        (n,) class and group indices; at least two groups.
    share
        Share of the samples to hold out, in (0, 1).
    seed
        Makes the choice repeatable.

    Returns
    -------
    (n,) mask, True for held-out samples.
    """
    n_classes = labels.max() + 1
    wanted = share * np.bincount(labels, minlength=n_classes)
    splits = GroupShuffleSplit(N_CANDIDATES, test_size=share, random_state=seed)
    best, best_merit = np.zeros(len(labels), dtype=bool), (0, -np.inf)
    for train, test in splits.split(labels, groups=groups):
        deviation = np.abs(np.bincount(labels[test], minlength=n_classes) - wanted).sum()
        merit = (len(np.unique(labels[train])), -deviation)
        if merit > best_merit:
            best_merit = merit
            best = np.isin(np.arange(len(labels)), test)
    return best
