"""Stratified and grouped hold-out splits and folds."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, train_test_split

N_CONSIDERED = 2_000
"""How many times a group is considered, in all choices of groups together."""


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

    Of many random choices of groups, the one that comes nearest to the share in every class. No
    class loses all its training samples while some choice of groups can prevent it, and at least
    one group is held out.

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
    _, groups = np.unique(groups, return_inverse=True)
    table = np.zeros((groups.max() + 1, labels.max() + 1), dtype=np.intp)
    np.add.at(table, (groups, labels), 1)
    totals = table.sum(axis=0)
    # A class can be spared unless each group alone has the whole of some class.
    n_lost = int(min(((row == totals) & (totals > 0)).sum() for row in table))

    rng = np.random.default_rng(seed)
    best: list[int] = []
    best_deviation = np.inf
    for _ in range(math.ceil(N_CONSIDERED / len(table))):
        chosen: list[int] = []
        held_out, deviation = np.zeros_like(totals), np.inf
        for group in rng.permutation(len(table)):
            more = held_out + table[group]
            nearer = float(np.abs(more - share * totals).sum())
            if nearer < deviation and ((more == totals) & (totals > 0)).sum() <= n_lost:
                chosen.append(group)
                held_out, deviation = more, nearer
        if deviation < best_deviation:
            best, best_deviation = chosen, deviation
    return np.isin(groups, best)


def cross_validation_folds(
    labels: NDArray[np.integer],
    n_folds: int,
    seed: int,
    groups: NDArray[np.integer] | None = None,
) -> NDArray[np.intp]:
    """Divide samples into folds, of every class about as many into each.

    Parameters
    ----------
    labels
        (n,) class indices. A class with fewer samples than folds is missing in some folds.
    n_folds
        At least 2; at most the number of groups, or of samples of the largest class.
    seed
        Makes the division repeatable.
    groups
        (n,) group indices; a group stays in one fold.

    Returns
    -------
    (n,) index of each sample's fold.
    """
    splitter: StratifiedKFold | StratifiedGroupKFold
    if groups is None:
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    else:
        splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
    folds = np.empty(len(labels), dtype=np.intp)
    with warnings.catch_warnings():
        # Of small classes.
        warnings.simplefilter("ignore", UserWarning)
        for i, (_, inside) in enumerate(splitter.split(labels, labels, groups)):
            folds[inside] = i
    if groups is not None:
        # The splitter balances classes, if need be by a fold with nobody in it.
        for i in set(range(n_folds)) - set(folds.tolist()):
            of_fold = [np.unique(groups[folds == j], return_counts=True) for j in range(n_folds)]
            members, counts = max(of_fold, key=lambda found: len(found[0]))
            folds[groups == members[counts.argmin()]] = i
    return folds


def shuffled_labels(
    labels: NDArray[np.integer], seed: int, groups: NDArray[np.integer] | None = None
) -> NDArray[np.integer]:
    """Take from the labels what relation they have with the data, and nothing else.

    Parameters
    ----------
    labels
        (n,) class indices.
    seed
        Makes the shuffle repeatable.
    groups
        (n,) group indices. Labels are shuffled within groups, so that what groups have to do with
        classes stays as it is; where each group has one class only, whole groups change labels.
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        return rng.permutation(labels)
    names, first, groups = np.unique(groups, return_index=True, return_inverse=True)
    if (labels == labels[first][groups]).all():
        return rng.permutation(labels[first])[groups]
    shuffled = labels.copy()
    for group in range(len(names)):
        inside = groups == group
        shuffled[inside] = rng.permutation(labels[inside])
    return shuffled


def representatives(
    labels: NDArray[np.integer], n: int, n_of_class: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Choose about `n` samples; every class has its share of them, and small ones somewhat more.

    Parameters
    ----------
    labels
        (n_samples,) class indices.
    n
        How many, about; all if there are not more.
    n_of_class
        Of each class at least that many, where there are as many and classes are few.
    rng
        Chooses them.

    Returns
    -------
    (about n,) sorted indices.
    """
    if len(labels) <= n:
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    least = max(1, min(n_of_class, n // len(classes)))
    shares = np.maximum(least, np.round(n * counts / len(labels)).astype(np.intp))
    return np.sort(
        np.concatenate(
            [
                rng.choice(np.flatnonzero(labels == label), min(share, count), replace=False)
                for label, share, count in zip(classes, shares, counts, strict=True)
            ]
        )
    )
