"""Choosing a setting of a rival by the error that the paper reports, on training data alone."""

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
    """A rival that places new points; `fit_transform` returns what the training points got."""

    def fit(self, X: Array, y: Labels) -> Self: ...
    def transform(self, X: Array) -> Array: ...
    def fit_transform(self, X: Array, y: Labels) -> Array: ...


class Transductive(Protocol):
    """A rival that has to see the test points, never their labels, while it embeds."""

    def fit_transform_both(self, X: Array, y: Labels, X_test: Array) -> tuple[Array, Array]: ...


def embed(
    rival: Inductive | Transductive, X: Array, y: Labels, X_test: Array
) -> tuple[Array, Array]:
    """Return the embeddings of training and test points, whichever kind the rival is of."""
    if hasattr(rival, "fit_transform_both"):
        return rival.fit_transform_both(X, y, X_test)
    return rival.fit_transform(X, y), rival.transform(X_test)


def knn_error(Z: Array, y: Labels, Z_test: Array, y_test: Labels) -> float:
    """Share of the test points that five neighbours among the training points get wrong."""
    classifier = KNeighborsClassifier(min(5, len(Z))).fit(Z, y)
    return 1.0 - float(classifier.score(Z_test, y_test))


def best_setting(
    rival: Any,
    candidates: Sequence[Mapping[str, float]],
    X: Array,
    y: Labels,
    random_state: int | None,
) -> dict[str, float]:
    """Return the parameters with the least 5-NN error on a held-out fifth of the training data.

    ``candidates`` are tried on clones of ``rival``; of equal errors, the first wins, so the
    settings of the rival's own paper belong at the front.
    """
    _, counts = np.unique(y, return_counts=True)
    # A fifth cannot hold every class if there are too few samples of one.
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
