"""The paper's experiments: the training and test samples of each run."""

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
"""(n, d) training data, (n,) labels, (n_test, d) test data and (n_test,) labels."""

N_FOLDS = 10
N_DRAWN = 1500
"""Number of samples of Letter, Landsat and Phoneme that are divided into ten folds."""


@dataclass(frozen=True)
class Experiment:
    """A data set, and the protocol by which the paper divides it."""

    name: str
    title: str
    n_runs: int
    """Number of runs in the paper."""
    splits: Callable[[int], Iterator[Split]]
    """Function of a number n that yields the splits of the first n runs."""

    def run(self, number: int) -> Split:
        """Return the split of one run; raise ValueError if there is no such run."""
        for i, split in enumerate(self.splits(number + 1)):
            if i == number:
                return split
        raise ValueError(f"{self.name} has no run {number}")


def mnist(n_runs: int) -> Iterator[Split]:
    """Yield the published split for each run."""
    (X, y), (X_test, y_test) = datasets.mnist()
    for _ in range(n_runs):
        yield X, y, X_test, y_test


def usps(n_runs: int) -> Iterator[Split]:
    """Yield random splits into 8,000 training and 3,000 test samples."""
    X, y = datasets.usps()
    for seed in range(n_runs):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:8000], order[8000:]
        yield X[train], y[train], X[test], y[test]


def ten_folds(load: Callable[[], datasets.Data]) -> Callable[[int], Iterator[Split]]:
    """Return a function that yields ten folds of 1,500 random samples, and ten of the next draw."""

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
    """Return a function that yields random splits with 70 % training samples."""

    def splits(n_runs: int) -> Iterator[Split]:
        X, y = load()
        for seed in range(n_runs):
            X_train, X_test, y_train, y_test = train_test_split(
                X, y, test_size=0.3, random_state=seed
            )
            yield X_train, y_train, X_test, y_test

    return splits


def usps_1000(n_runs: int) -> Iterator[Split]:
    """Yield random splits of 1,000 random images, with 70 % training samples."""
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
