"""Errors of an embedding. Labels and predictions are class indices.

The *k-NN error* (k = 5) is the measure of the paper. The *Voronoi error* is the share of points
outside the Voronoi cell of their class. The *decoder error* is the share of points whose decoder
output is nearest to the centroid of another class. *Balanced* errors are means over the classes.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from scipy.special import stdtrit

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Mask
from centroid_encoder.core.matrix import Lazy, Matrix, chunks, row_chunks

N_NEIGHBORS = 5
Z = 1.959964  # 97.5 % quantile of the normal distribution
LEAST_UNITS = 3  # the spread of fewer says nothing
AT_ONCE = 65_536  # number of points whose distances to all centers are in memory at once


def no_better_than(wrong: Mask, other: Mask) -> bool:
    """Return whether the errors of a rule may be no fewer than those of another one.

    `wrong` and `other` hold for each sample whether the two err. The test is McNemar's, one-sided
    at about 5 %: it counts the samples for which only one of the two is right.
    """
    gained, lost = int((~wrong & other).sum()), int((wrong & ~other).sum())
    return len(wrong) > 0 and not gained - lost > 1.64 * np.sqrt(gained + lost)


def n_repeated(
    X: Matrix | Lazy, rows: Codes, others: Codes | None = None, parts: Codes | None = None
) -> int:
    """Return how many of some rows of (n, d) data equal one of the others, or another one of them.

    With `parts`, one for each row, only rows of other parts count as another one. The result is 0
    if few values can make rows equal by chance: if the features were independent, one row in a
    hundred would equal another one.
    """
    read = rows if others is None else np.union1d(rows, others)
    found: list[int] = []
    for _, x in row_chunks(X, read):
        arrays: list[Any] = [x] if isinstance(x, np.ndarray) else [x.indices, x.data]
        ends = np.arange(len(x) + 1) if isinstance(x, np.ndarray) else x.indptr
        spans = itertools.pairwise(ends.tolist())
        found += [hash(tuple(part[i:j].tobytes() for part in arrays)) for i, j in spans]
    hashes = np.array(found, dtype=np.int64)
    at = np.unique(hashes, return_inverse=True)[1]
    parts = np.arange(len(read)) if parts is None else parts[np.argsort(rows)]
    in_parts = np.unique(np.column_stack([at, parts]), axis=0)
    is_repeated = np.bincount(in_parts[:, 0])[at] > 1
    if others is not None:
        own, theirs = (hashes[np.searchsorted(read, which)] for which in (rows, others))
        is_repeated = np.isin(own, theirs)
    some: Any = X[read[:: len(read) // 200 + 1]][:, :: X.shape[1] // 2_000 + 1]
    some = some if isinstance(some, np.ndarray) else some.toarray()
    # The probability that two cells have the same value of a feature.
    same = [np.square(np.unique(x, return_counts=True)[1] / len(some)).sum() for x in some.T]
    return 0 if np.prod(same) * len(read) > 0.01 else int(is_repeated.sum())


def wilson_interval(share: ArrayLike, n: ArrayLike, z: ArrayLike = Z) -> tuple[Floats, Floats]:
    """Ends of the 95 % intervals of shares of `n` samples (Wilson, 1927); NaN if n is 0 or NaN.

    `z` replaces the 97.5 % quantile of the normal distribution.
    """
    share, n, z = (np.asarray(values, np.float64) for values in (share, n, z))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 + z**2 / n
        center = (share + z**2 / (2 * n)) / scale
        half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / scale
        return np.maximum(center - half, 0), np.minimum(center + half, 1)


def share_intervals(
    found: Floats, kinds: Codes, n_kinds: int, units: Codes | None = None
) -> tuple[Floats, Floats]:
    """95 % intervals of a share of samples, of its mean over the kinds, and of that of each kind.

    `found` holds (n,) numbers in [0, 1], such as whether a rule errs, and `kinds` holds (n,) kinds
    of the samples, such as classes. Returns the (2 + n_kinds,) lower and upper ends; those of kinds
    without samples are NaN.

    The intervals are Wilson's. That of the mean has the effective number of samples: with as many,
    one share would have the variance of the mean. With (n,) `units` such as donors, whose samples
    are not independent, all intervals have the effective numbers that follow from the variance
    between the units, and quantiles of Student's t (Korn & Graubard, 1998). If all samples agree,
    that number is the number of units. Units of unequal sizes count as the effective number of
    equal ones (Kish, 1965). Intervals of fewer than three units are NaN, and so are those of fewer
    than two effective ones.
    """
    counts = np.bincount(kinds, minlength=n_kinds).astype(np.float64)
    counts[counts == 0] = np.nan
    n, n_there = len(found), max((counts > 0).sum(), 1)
    sums_of_kinds = np.bincount(kinds, found, n_kinds)
    of_kinds = sums_of_kinds / counts
    shares = np.array([sums_of_kinds.sum() / max(n, 1), np.nansum(of_kinds) / n_there, *of_kinds])
    if units is None:
        # One sample more on both sides, since the share of a kind without errors varies, too.
        smoothed = (sums_of_kinds + 1) / (counts + 2)
        variances = smoothed * (1 - smoothed) / counts / n_there**2
        variance, expected = np.nansum(variances), np.nansum(smoothed) / n_there
        n_effective = min(expected * (1 - expected) / max(variance, 1e-12), n)
        # Few samples of a kind give a rough variance (Satterthwaite, 1946).
        freedom = max(variance**2 / max(np.nansum(variances**2 / counts), 1e-12), 1)
        z = np.array([Z, stdtrit(freedom, 0.975), *np.full(n_kinds, Z)])
        return wilson_interval(shares, [n, n_effective, *counts], z)
    _, units = np.unique(units, return_inverse=True)
    sizes, sums = np.zeros((2, units.max(initial=-1) + 1, n_kinds))
    np.add.at(sizes, (units, kinds), 1)
    np.add.at(sums, (units, kinds), found)
    # What each unit contributes to the deviations of the shares.
    deviations = np.nan_to_num((sums - of_kinds * sizes) / counts)
    of_all = (sums - shares[0] * sizes).sum(axis=1) / max(n, 1)
    deviations = np.column_stack([of_all, deviations.sum(axis=1) / n_there, deviations])
    sizes = np.column_stack([sizes.sum(axis=1), sizes.sum(axis=1), sizes])
    with np.errstate(divide="ignore", invalid="ignore"):
        n_units = sizes.sum(axis=0) ** 2 / np.square(sizes).sum(axis=0)
        few = ((sizes > 0).sum(axis=0) < LEAST_UNITS) | (n_units < 2)
        n_units = np.where(few, np.nan, n_units)
        variance = n_units / (n_units - 1) * np.square(deviations).sum(axis=0)
        agree = (shares == 0) | (shares == 1)
        n_effective = np.minimum(shares * (1 - shares) / variance, [n, n, *counts])
        n_effective = np.where(agree | few, n_units, n_effective)
        z = np.where(agree, Z, stdtrit(n_units - 1, 0.975))
    return wilson_interval(shares, n_effective, z)


def permutation_p_value(observed: float, null: Floats) -> float:
    """Probability of an error as small as the observed one if labels and data are unrelated.

    `null` holds the (k,) errors of permuted labels. The observed labels count as another
    permutation, so that the smallest value is 1 / (k + 1) (Phipson & Smyth, 2010).
    """
    return float((1 + (null <= observed).sum()) / (1 + len(null)))


def knn_predict(
    reference: Floats, reference_labels: Codes, embedding: Floats | None = None
) -> Codes:
    """Majority class among the five nearest of (n, m) reference points, for (q, m) points.

    Without `embedding`, the reference points are classified, each by the others.
    """
    available = reference.shape[0] - (embedding is None)
    n = (reference if embedding is None else embedding).shape[0]
    if available < 1 or not n:
        return np.zeros(n, dtype=np.intp)
    # Imported here because it is slow, and figures and lists do not need it.
    from sklearn import config_context
    from sklearn.neighbors import KNeighborsClassifier

    knn = KNeighborsClassifier(min(N_NEIGHBORS, available)).fit(reference, reference_labels)
    # This path of scikit-learn does not limit the threads of BLAS. The limit is process-wide, and
    # it stays set if two threads set it at the same time.
    with config_context(enable_cython_pairwise_dist=False):
        return np.asarray(knn.predict(embedding), dtype=np.intp)


def input_neighbors(X: Any, reference: Codes, labels: Codes, rows: Codes) -> Codes:
    """Majority class among the five nearest reference rows in the full input space, for some rows.

    Distances are those of the z-scores of all features, with the standard deviations of the (r,)
    reference rows, whose classes are `labels`. Means do not change distances: they are not
    subtracted, so that CSR data stay sparse.
    """
    from sklearn.preprocessing import StandardScaler

    if not len(rows):
        return np.empty(0, dtype=np.intp)
    scaler = StandardScaler(copy=False, with_mean=False)
    known = scaler.fit_transform(X[reference])
    return knn_predict(known, labels, scaler.transform(X[rows]))


def nearest_center(embedding: Floats, centers: Floats, labels: Codes | None = None) -> Codes:
    """Class of the Voronoi cell in which each of (n, m) points lies, for (M, m) centers.

    A class without points has a center of NaN and no cell. A point on a border is in the cell of
    its own class, given by (n,) `labels` (−1 for none), and otherwise in that of the first class.
    """
    parts = [np.empty(0, dtype=np.intp)]
    for part in chunks(len(embedding), AT_ONCE):
        distances = cdist(embedding[part], centers)
        distances[:, ~np.isfinite(centers).all(axis=1)] = np.inf
        nearest = distances.argmin(axis=1)
        if labels is not None:
            own, rows = labels[part], np.arange(len(nearest))
            tied = (own >= 0) & (distances[rows, own] == distances[rows, nearest])
            nearest = np.where(tied, own, nearest)
        parts.append(nearest)
    return np.concatenate(parts)


def misplacement_depth(to_found: Floats, to_own: Floats) -> Doubles:
    """Depth of points inside another class's region, from 0 at the border to 1 at its center.

    It is one minus the ratio of two distances: `to_found`, to the center or centroid of that class,
    and `to_own`, the larger one to the own class. It is above 0 even if the two are equal.
    """
    found, own = np.asarray(to_found, np.float64), np.asarray(to_own, np.float64)
    ratio = np.divide(found, own, out=np.ones(len(own)), where=own > 0)
    depth: Doubles = np.clip(1 - ratio, np.finfo(np.float64).eps, 1)
    return depth


def class_centers(embedding: Floats, labels: Codes, n_classes: int) -> Doubles:
    """(M, m) means of the embedded points of each class; NaN for a class without points."""
    counts = np.bincount(labels, minlength=n_classes)
    sums = [np.bincount(labels, column, n_classes) for column in embedding.T]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.stack(sums, axis=1) / counts[:, None])


def turned_onto(
    moved: tuple[Floats, ...], classes: tuple[Floats, Floats], samples: tuple[Floats, Floats]
) -> tuple[Floats, ...]:
    """Rotate and reflect (n, m) points of an embedding so that it agrees with another one.

    `classes` holds the (k, m) centers in both embeddings of the classes that both have, and
    `samples` the (n, m) points of the same samples in both. The samples have a small weight, which
    matters if the classes are too few to determine the rotation.
    """
    weighted = []
    for pairs, share in ((classes, 1.0), (samples, 0.1)):
        there = np.isfinite(pairs[0]).all(axis=1) & np.isfinite(pairs[1]).all(axis=1)
        new, old = (np.asarray(points, np.float64)[there] for points in pairs)
        weighted.append((new, old, np.full(len(new), share / max(len(new), 1))))
    new, old, weights = (np.concatenate(parts) for parts in zip(*weighted, strict=True))
    if not len(new):
        return moved
    from_, onto = (np.average(points, axis=0, weights=weights) for points in (new, old))
    left, _, right = np.linalg.svd((new - from_).T @ ((old - onto) * weights[:, None]))
    turn = left @ right
    return tuple(((points - from_) @ turn + onto).astype(points.dtype) for points in moved)
