"""The paper's experiments: which samples train and which test, run by run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold, train_test_split

from benchmarks import datasets

Split = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""Training data and labels, test data and labels."""

N_FOLDS = 10
N_DRAWN = 1500
"""Samples of Letter, Landsat and Phoneme that ten folds are made of."""


@dataclass(frozen=True)
class Experiment:
    """One data set under one protocol."""

    name: str
    title: str
    n_runs: int
    """How often the paper repeated it."""
    splits: Callable[[int], Iterator[Split]]
    """The first so many runs."""

    def run(self, number: int) -> Split:
        """Return one run."""
        for i, split in enumerate(self.splits(number + 1)):
            if i == number:
                return split
        raise ValueError(f"{self.name} has no run {number}")


def mnist(n_runs: int) -> Iterator[Split]:
    """Yield the published split again and again."""
    (X, y), (X_test, y_test) = datasets.mnist()
    for _ in range(n_runs):
        yield X, y, X_test, y_test


def usps(n_runs: int) -> Iterator[Split]:
    """Yield random splits into 8,000 and 3,000."""
    X, y = datasets.usps()
    for seed in range(n_runs):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:8000], order[8000:]
        yield X[train], y[train], X[test], y[test]


def ten_folds(load: Callable[[], datasets.Data]) -> Callable[[int], Iterator[Split]]:
    """Yield the folds of 1,500 samples at random; after the tenth of another 1,500."""

    def splits(n_runs: int) -> Iterator[Split]:
        X, y = load()
        for seed in range(-(-n_runs // N_FOLDS)):
            chosen = np.random.default_rng(seed).permutation(len(y))[:N_DRAWN]
            folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed)
            for i, (train, test) in enumerate(folds.split(X[chosen], y[chosen])):
                if seed * N_FOLDS + i == n_runs:
                    return
                yield X[chosen[train]], y[chosen[train]], X[chosen[test]], y[chosen[test]]

    return splits


def seventy_thirty(load: Callable[[], datasets.Data]) -> Callable[[int], Iterator[Split]]:
    """Yield random 70/30 splits."""

    def splits(n_runs: int) -> Iterator[Split]:
        X, y = load()
        for seed in range(n_runs):
            X_train, X_test, y_train, y_test = train_test_split(
                X, y, test_size=0.3, random_state=seed
            )
            yield X_train, y_train, X_test, y_test

    return splits


def usps_1000(n_runs: int) -> Iterator[Split]:
    """Yield random 70/30 splits of 1,000 images at random."""
    X, y = datasets.usps()
    for seed in range(n_runs):
        chosen = np.random.default_rng(seed).permutation(len(y))[:1000]
        X_train, X_test, y_train, y_test = train_test_split(
            X[chosen], y[chosen], test_size=0.3, random_state=seed
        )
        yield X_train, y_train, X_test, y_test


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("mnist", "MNIST", 10, mnist),
        Experiment("usps", "USPS", 10, usps),
        Experiment("letter", "Letter", 10, ten_folds(datasets.letter)),
        Experiment("landsat", "Landsat", 10, ten_folds(datasets.landsat)),
        Experiment("phoneme", "Phoneme", 10, ten_folds(datasets.phoneme)),
        Experiment("iris", "Iris", 25, seventy_thirty(lambda: load_iris(return_X_y=True))),
        Experiment("sonar", "Sonar", 25, seventy_thirty(datasets.sonar)),
        Experiment("usps-1000", "USPS-1000", 25, usps_1000),
    )
}
