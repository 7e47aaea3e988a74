"""Types of rivals, and the choice of their settings on held-out training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

Array = NDArray[np.floating]
Labels = NDArray[np.generic]


class Inductive(Protocol):
    """A rival that can place new points; `fit_transform` embeds the training points."""

    def fit(self, X: Array, y: Labels) -> Self: ...
    def transform(self, X: Array) -> Array: ...
    def fit_transform(self, X: Array, y: Labels) -> Array: ...


class Transductive(Protocol):
    """A rival that embeds training and test points together, without the test labels."""

    def fit_transform_both(self, X: Array, y: Labels, X_test: Array) -> tuple[Array, Array]: ...


def embed(
    rival: Inductive | Transductive, X: Array, y: Labels, X_test: Array
) -> tuple[Array, Array]:
    """Return the embeddings of training and test points by a rival of either type."""
    if hasattr(rival, "fit_transform_both"):
        return rival.fit_transform_both(X, y, X_test)
    return rival.fit_transform(X, y), rival.transform(X_test)


def knn_error(Z: Array, y: Labels, Z_test: Array, y_test: Labels) -> float:
    """Return the 5-NN error of the test points among the training points."""
    classifier = KNeighborsClassifier(min(5, len(Z))).fit(Z, y)
    return 1.0 - float(classifier.score(Z_test, y_test))


def best_setting(
    rival: Any,
    candidates: Sequence[Mapping[str, float]],
    X: Array,
    y: Labels,
    random_state: int | None,
) -> dict[str, float]:
    """Return the parameters with the smallest 5-NN error on a held-out fifth of the training data.

    Each of the ``candidates`` is set on a clone of ``rival``. The first of those with the smallest
    error is returned, so the settings of the rival's paper should come first.
    """
    _, counts = np.unique(y, return_counts=True)
    # The split can be stratified only if each class has a sample in both parts.
    stratify = y if counts.min() >= 2 and len(y) >= 5 * len(counts) else None
    X_fit, X_held, y_fit, y_held = train_test_split(
        X, y, test_size=0.2, random_state=random_state, stratify=stratify
    )
    errors = []
    for candidate in candidates:
        trial = clone(rival).set_params(**candidate)
        Z_fit, Z_held = embed(trial, X_fit, y_fit, X_held)
        errors.append(knn_error(Z_fit, y_fit, Z_held, y_held))
    return dict(candidates[int(np.argmin(errors))])
