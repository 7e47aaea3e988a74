"""Stratified and grouped hold-outs and folds, and the division of the rows of a training.

Labels and groups are (n,) class and group indices. The same seed gives the same choice.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.cluster import contingency_matrix
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, train_test_split

from centroid_encoder.core.arrays import Codes, Mask, Singles
from centroid_encoder.core.settings import resolved
from centroid_encoder.errors import check


def stratified_holdout(labels: Codes, share: float, seed: int) -> Mask:
    """(n,) mask of held-out samples, the same share of every class.

    No sample of a class with fewer than 1 / share samples is held out.
    """
    held_out = np.zeros(len(labels), dtype=bool)
    large = np.flatnonzero(np.bincount(labels)[labels] >= math.ceil(1 / min(share, 1 - share)))
    if len(large):
        _, chosen = train_test_split(
            large, test_size=share, stratify=labels[large], random_state=seed
        )
        held_out[chosen] = True
    return held_out


def grouped_holdout(labels: Codes, groups: Codes, share: float, seed: int) -> Mask:
    """(n,) mask of held-out samples: whole groups, with about the same share of every class.

    It is one of many random choices, drawn from those that deviate at most twice as much from the
    share as the best. At least one group is held out, and no class loses all training samples if
    that can be avoided. There must be at least two groups.
    """
    table = contingency_matrix(groups, labels)
    totals = table.sum(axis=0)
    # A choice of several groups loses at least as many classes as the best single group.
    n_lost = (table == totals).sum(axis=1).min()
    rng = np.random.default_rng(seed)
    deviations = dict[tuple[int, ...], float]()
    # All random choices together consider about 2,000 groups.
    for _ in range(math.ceil(2_000 / len(table))):
        chosen, held_out, deviation = list[int](), np.zeros_like(totals), np.inf
        for group in rng.permutation(len(table)):
            more = held_out + table[group]
            nearer = float(np.abs(more - share * totals).sum())
            if nearer < deviation and (more == totals).sum() <= n_lost:
                chosen.append(group)
                held_out, deviation = more, nearer
        deviations[tuple(sorted(chosen))] = deviation
    near = [found for found, far in deviations.items() if far <= 2 * min(deviations.values())]
    return np.isin(groups, np.unique(groups)[list(near[rng.integers(len(near))])])


def cross_validation_folds(
    labels: Codes, n_folds: int, seed: int, groups: Codes | None = None
) -> Codes:
    """(n,) fold of each sample; all folds have about as many samples of each class.

    Groups are not split. `n_folds` is at most the number of groups or, without groups, of samples
    of the largest class.
    """
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = np.empty(len(labels), dtype=np.intp)
    with warnings.catch_warnings():
        # The warnings are about small classes.
        warnings.simplefilter("ignore", UserWarning)
        splitter = kind(n_folds, shuffle=True, random_state=seed)
        for i, (_, inside) in enumerate(splitter.split(labels, labels, groups)):
            folds[inside] = i
    if groups is not None:
        # The splitter may leave a fold empty, to balance the classes. An empty fold gets the
        # smallest group of the fold with the most groups.
        for i in set(range(n_folds)) - set(folds.tolist()):
            of_fold = [np.unique(groups[folds == j], return_counts=True) for j in range(n_folds)]
            members, counts = max(of_fold, key=lambda found: len(found[0]))
            folds[groups == members[counts.argmin()]] = i
    return folds


def shuffled_labels(labels: Codes, seed: int, groups: Codes | None = None) -> Codes:
    """Shuffle labels within groups, or the labels of whole groups if each has only one class.

    This keeps the relation between groups and classes, and removes that between labels and data.
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


def at_most(n: int, rows: Codes) -> Codes:
    """Return n of some sorted rows, sorted, or all if they are fewer; the same for equal rows."""
    if len(rows) <= n:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, n, replace=False))


def representatives(
    labels: Codes, n: int, n_of_class: int, rng: np.random.Generator, groups: Codes | None = None
) -> Codes:
    """Sorted indices of about `n` samples, in proportion to the sizes of the classes.

    Each class has at least `n_of_class` of them, or all its samples; with many classes, fewer.
    In a class, all groups have about equal numbers, or all their samples.
    """
    if len(labels) <= n:
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    least = max(1, min(n_of_class, n // len(classes)))
    shares = np.maximum(least, np.round(n * counts / len(labels)).astype(np.intp))
    chosen, p = [], None
    for label, share, count in zip(classes, shares, counts, strict=True):
        rows = np.flatnonzero(labels == label)
        if groups is not None:
            p = 1 / np.bincount(groups[rows])[groups[rows]] / len(np.unique(groups[rows]))
        chosen.append(rng.choice(rows, min(share, count), replace=False, p=p))
    return np.sort(np.concatenate(chosen))


@dataclass(frozen=True)
class Division:
    """Division of the rows of X. All rows are sorted."""

    in_memory: Codes  #: All rows, or only those that train and validate
    train: Codes  #: Rows that are trained on
    validation: Codes  #: Rows that validate
    folds: Codes  #: (n,) network that is trained neither on a row nor on its group; −1 for none
    n_networks: int
    unjudged: Mask
    """(n,) mask of training rows whose class the network of their fold has never seen, because all
    training rows of the class are in this fold."""

    @property
    def placed_by(self) -> Codes:
        """(n,) network that places a row; −1 for all networks together."""
        return np.where(self.unjudged, -1, self.folds)

    @property
    def votes(self) -> Singles:
        """(K,) weight of each network for rows that no network is trained on; their sum is 1.

        It is proportional to the number of rows that the network is trained on.
        """
        if self.n_networks == 1:
            return np.ones(1, np.float32)
        n_seen = len(self.train) - np.bincount(self.folds[self.train], minlength=self.n_networks)
        return np.asarray(n_seen / n_seen.sum(), dtype=np.float32)


def divide(
    codes: Codes,
    params: Mapping[str, Any],
    n_features: int,
    seed: int,
    groups: Codes | None,
) -> Division:
    """Choose the rows that train and validate, and the fold of each labelled row."""
    labeled, most, n = np.flatnonzero(codes >= 0), params["max_samples"], len(codes)
    chosen = labeled
    if most is not None and len(labeled) > most:
        rng = np.random.default_rng(seed)
        chosen = labeled[representatives(codes[labeled], most, 1, rng)]
    validates = np.zeros(len(chosen), dtype=bool)
    if fraction := params["validation_fraction"]:
        validates = stratified_holdout(codes[chosen], fraction, seed)
        text = f"no class has the {np.ceil(1 / fraction):.0f} samples that"
        name = "validation_fraction"
        check(validates.any(), f"{text} {name}={fraction} needs", name)
    train, validation, folds = chosen[~validates], chosen[validates], np.full(n, -1)
    own = None if groups is None or len(np.unique(groups[train])) == 1 else groups[train]
    most_folds = np.bincount(codes[train]).max() if own is None else len(np.unique(own))
    n_classes, unjudged = int(codes.max()) + 1, np.zeros(n, bool)
    most_networks = resolved(params, len(train), n_features, n_classes)["n_networks"]
    n_networks = min(int(most_networks), int(most_folds))
    if n_networks > 1:
        folds[train] = cross_validation_folds(codes[train], n_networks, seed, own)
        # Validation rows can be merged into a training, and no row may be placed by a network that
        # was trained on its group.
        folds[validation] = np.arange(len(validation)) % n_networks
        if own is not None and groups is not None:
            of_group = np.full(groups.max() + 1, -1)
            of_group[own] = folds[train]
            found = of_group[groups[validation]]
            folds[validation] = np.where(found < 0, folds[validation], found)
        n_of = np.zeros((n_networks, n_classes), dtype=np.intp)
        np.add.at(n_of, (folds[train], codes[train]), 1)
        unjudged[chosen] = (n_of == n_of.sum(axis=0))[folds[chosen], codes[chosen]]
    in_memory = np.arange(n) if most is None or n <= most else chosen
    return Division(in_memory, train, validation, folds, n_networks, unjudged)
