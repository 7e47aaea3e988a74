"""How much of the embedding is right: k-NN, Voronoi and decoder error.

Labels and predictions are class indices throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Labels = NDArray[np.integer]

N_NEIGHBORS = 5
AT_ONCE = 65_536
"""Points whose distances to all centers are in memory at once."""


@dataclass(frozen=True)
class Errors:
    """Errors of one set of samples, as shares in [0, 1]; NaN where there is nothing to count.

    The *k-NN error* (k = 5) is the paper's measure. The *Voronoi error* counts points outside the
    Voronoi cell of their class, the *decoder error* points whose decoder output is nearest to
    another class's centroid.
    """

    n: int
    """Number of samples."""
    knn: float
    voronoi: float
    decoder: float
    balanced_knn: float
    """Mean of the classes' errors: every class counts the same, however small."""
    balanced_voronoi: float
    balanced_decoder: float
    largest_class: int
    """The largest class of the training samples."""
    chance: float
    """Error of always naming it."""
    class_n: NDArray[np.intp]
    """(M,) samples of each class."""
    class_knn: NDArray[np.float64]
    """(M,) error of each class; NaN for a class without samples."""
    class_voronoi: NDArray[np.float64]
    class_decoder: NDArray[np.float64]

    @classmethod
    def count(
        cls,
        labels: Labels,
        *,
        knn: Labels,
        voronoi: Labels,
        decoder: Labels,
        largest_class: int,
        n_classes: int,
    ) -> Errors:
        """Compare (n,) labels with the three kinds of prediction."""
        rates: dict[str, Any] = {}
        for rule, predicted in (("knn", knn), ("voronoi", voronoi), ("decoder", decoder)):
            found = error_rates(labels, predicted, n_classes)
            rates[rule], rates[f"balanced_{rule}"], rates[f"class_{rule}"] = found
        chance, _, _ = error_rates(labels, np.full_like(labels, largest_class), n_classes)
        n, class_n = len(labels), np.bincount(labels, minlength=n_classes)
        return cls(n=n, class_n=class_n, largest_class=largest_class, chance=chance, **rates)

    def at_chance(self) -> bool:
        """Tell whether k-NN beats naming the largest class by no more than sampling noise.

        McNemar's test, one-sided at about 5 %: both are counted on the same samples, so only those
        on which one is right and the other is wrong tell them apart. The samples must be held out;
        without any there is nothing to tell.
        """
        right = np.nan_to_num(self.class_n * (1 - self.class_knn))
        gained = right.sum() - right[self.largest_class]
        lost = self.class_n[self.largest_class] - right[self.largest_class]
        return self.n > 0 and not gained - lost > 1.64 * np.sqrt(gained + lost)


def error_rates(
    labels: Labels, predicted: Labels, n_classes: int
) -> tuple[float, float, NDArray[np.float64]]:
    """Share of wrong predictions, its mean over classes, and (M,) that of each class.

    NaN where there is nothing to count; classes without samples are not in the mean.
    """
    n = np.bincount(labels, minlength=n_classes)
    wrong = np.bincount(labels[predicted != labels], minlength=n_classes)
    present = n > 0
    per_class = np.full(n_classes, np.nan)
    per_class[present] = wrong[present] / n[present]
    if not len(labels):
        return np.nan, np.nan, per_class
    return float(wrong.sum() / len(labels)), float(per_class[present].mean()), per_class


def permutation_p_value(observed: float, null: NDArray[np.floating]) -> float:
    """Probability of an error as small as the observed one, were labels and data unrelated.

    The observed labeling is one of the (k,) permutations and one more, so that the smallest value
    is 1 / (k + 1) (Phipson & Smyth, 2010).
    """
    return float((1 + (null <= observed).sum()) / (1 + len(null)))


def knn_predict(
    reference: NDArray[np.floating],
    reference_labels: Labels,
    embedding: NDArray[np.floating] | None = None,
) -> NDArray[np.intp]:
    """Majority class among the five nearest reference points.

    Parameters
    ----------
    reference
        (n, m) embedded training points.
    reference_labels
        (n,) their classes.
    embedding
        (q, m) points to be classified; None classifies each reference point by its neighbours,
        itself left out.
    """
    available = len(reference) - (embedding is None)
    if available < 1 or (embedding is not None and not len(embedding)):
        return np.zeros(len(reference) if embedding is None else 0, dtype=np.intp)
    # Slow to import, and not needed to draw or to list.
    from sklearn.neighbors import KNeighborsClassifier

    knn = KNeighborsClassifier(min(N_NEIGHBORS, available)).fit(reference, reference_labels)
    with without_limits():
        if embedding is None:
            return np.asarray(knn.predict(None), dtype=np.intp)
        # Neighbours of all points take a multiple of the memory of the points.
        starts = range(0, len(embedding), AT_ONCE)
        parts = [knn.predict(embedding[start : start + AT_ONCE]) for start in starts]
    return np.concatenate(parts).astype(np.intp)


@contextmanager
def without_limits() -> Iterator[None]:
    """Find neighbours without scikit-learn's limit on the threads of BLAS.

    The limit is of the whole process: two threads that set it at the same time leave it set.
    """
    from sklearn import config_context

    with config_context(enable_cython_pairwise_dist=False):
        yield


def nearest_center(
    embedding: NDArray[np.floating],
    centers: NDArray[np.floating],
    labels: Labels | None = None,
) -> NDArray[np.intp]:
    """Class whose center is nearest: the Voronoi cell in which each (n, m) point lies.

    Parameters
    ----------
    embedding
        (n, m) points.
    centers
        (M, m) centers. One that is not finite (of a class without points) is nearest to nothing.
    labels
        (n,) own classes, −1 for none. A point that is as near to its own center as to the nearest
        one lies on a border, and so in its own cell; without `labels` the first of equals has it.
    """
    parts = [np.empty(0, dtype=np.intp)]
    for start in range(0, len(embedding), AT_ONCE):
        distances = cdist(embedding[start : start + AT_ONCE], centers)
        distances[:, ~np.isfinite(centers).all(axis=1)] = np.inf
        nearest = distances.argmin(axis=1)
        if labels is not None:
            own = labels[start : start + AT_ONCE]
            rows = np.arange(len(own))
            tied = (own >= 0) & (distances[rows, own] == distances[rows, nearest])
            nearest = np.where(tied, own, nearest)
        parts.append(nearest)
    return np.concatenate(parts)


def misplacement_depth(
    to_found: NDArray[np.floating], to_own: NDArray[np.floating]
) -> NDArray[np.float64]:
    """How deep points lie inside another class's region, in (0, 1].

    One minus the ratio of the distances to what the two classes gather around: towards 0 at the
    border between them, 1 at the other class's center. The unit cancels, so that embeddings can be
    compared.

    Parameters
    ----------
    to_found
        (n,) distances to the center or centroid of the class in whose region each point lies.
    to_own
        (n,) distances to that of its own class, which are larger.
    """
    found, own = np.asarray(to_found, np.float64), np.asarray(to_own, np.float64)
    ratio = np.divide(found, own, out=np.ones(len(own)), where=own > 0)
    # Where distances are of lower precision than the decision, they may be equal.
    depth: NDArray[np.float64] = np.clip(1 - ratio, np.finfo(np.float64).eps, 1)
    return depth


def class_centers(
    embedding: NDArray[np.floating], labels: Labels, n_classes: int
) -> NDArray[np.float64]:
    """(M, m) mean of each class's embedded points; NaN for a class without any."""
    counts = np.bincount(labels, minlength=n_classes)
    sums = [np.bincount(labels, column, n_classes) for column in embedding.T]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.stack(sums, axis=1) / counts[:, None])
