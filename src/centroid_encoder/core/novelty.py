"""Novelty: distances of a sample to the training samples and to the nearest class.

Novelty complements confidence, which can be as high for a cell of an unknown type as for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from scipy import sparse

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Mask, Singles
from centroid_encoder.core.inputs import Standardizer, principal_axes
from centroid_encoder.core.matrix import Lazy, Matrix, product, row_chunks
from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.splits import cross_validation_folds, representatives
from centroid_encoder.core.threads import on_cores

LEAST = 10  # smallest number of samples from which novelty is learned
ROUGH = 5  # with fewer groups, the novelty of new groups is rough
N_REFERENCE = 2_000  # number of training samples that are stored, about
N_OF_CLASS = 20  # smallest number of samples of each class, if it has as many and classes are few
N_AXES = 20
N_FOLDS = 5
N_NEIGHBORS = 10
LOCAL = 0.5  # factor of the usual log distance at the neighbours, which is subtracted
RIDGE = 0.05  # share of the mean variance in the covariance of each class
FLOOR = 0.01  # relative distance that is added, so that the logarithm of 0 is finite
LEAST_SPREAD = 0.05  # smallest standard deviation of a logarithm, for data with many duplicates
LEAST_NOISE = 0.05  # smallest variance of a z-score around the axes, for few features
N_DRAWS = 8  # of missing values, for the confidence
# Factor of the standard deviations of draws. With 1, confidences are too low: samples of classes
# are not normally distributed, and their other values leave less open.
DRAWN = 0.7
N_SIMULATED = 300  # reference samples by which it is found how far estimates change scores
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the features, that are estimated in them
EQUAL = 0.02  # scores with smaller differences count as equal


@dataclass(frozen=True)
class Novelty:
    """Score of samples by their surroundings, as a quantile among training samples.

    Distances are between principal components of the z-scores without weights, since a new class
    can differ in features in which the known classes do not. The score is the sum of the two
    logarithms of `Surroundings`, each standardised.
    """

    standardizer: Standardizer  #: Its weights are ignored
    axes: Floats  #: (d, K) principal axes of n training samples
    offset: Doubles  #: (K,) mean of the samples on the axes
    reference: Floats  #: (n, K) samples on the axes
    codes: Codes  #: (n,) classes of the samples
    location: Doubles  #: (2,) means of the logarithms of held-out samples
    spread: Doubles  #: (2,) standard deviations of the logarithms of held-out samples
    known: Doubles  #: (n,) sorted scores of held-out samples

    @classmethod
    def fit(
        cls,
        X: Matrix | Lazy,
        index: Codes,
        codes: Codes,
        standardizer: Standardizer,
        groups: Codes | None = None,
    ) -> tuple[Self, Codes, Doubles]:
        """Learn from about 2,000 of the (n_train,) rows `index` of (n_rows, d) data.

        `codes` and `groups` hold the (n_train,) classes and groups of these rows. Returns the
        novelty, rows, and their scores: those of the chosen rows or, with groups, of all rows. The
        score of a row is computed from the chosen rows of the other folds. Folds do not split
        groups, and groups count equally: the novelty of a cell of a new donor is its quantile among
        cells of donors that were left out.
        """
        if groups is not None and len(np.unique(groups)) == 1:
            groups = None
        chosen = representatives(codes, N_REFERENCE, N_OF_CLASS, np.random.default_rng(0), groups)
        scored = chosen if groups is None else np.arange(len(index))
        folds = _folds(codes[scored], groups)
        at, codes = np.searchsorted(scored, chosen), codes[chosen]
        rows = row_chunks(X, index[chosen])
        z = np.concatenate([_z_scores(chunk, standardizer) for _, chunk in rows])
        center = z.mean(axis=0)
        z -= center
        axes = _axes(z, max(1, min(N_AXES, z.shape[1], len(z) // 3)))
        logarithms = np.empty((len(scored), 2))
        others = [folds[at] != i for i in range(folds.max() + 1)]

        def around_others(own: Mask) -> Callable[[Singles], Doubles]:
            return _around(z[own], codes[own], axes.shape[1])

        around = on_cores(around_others, others, torch.device("cpu"))
        for part, chunk in row_chunks(X, index[scored]):
            points = _z_scores(chunk, standardizer) - center
            for i in np.unique(folds[part]):
                out = np.flatnonzero(folds[part] == i)
                logarithms[part.start + out] = around[i](points[out])
        location = logarithms[at].mean(axis=0)
        spread = np.maximum(logarithms[at].std(axis=0), LEAST_SPREAD)
        scores = ((logarithms - location) / spread).sum(axis=1)
        known = np.sort(scores[at])
        if groups is not None:
            # Small groups count less, since a quantile must not depend on a few samples.
            of_known = groups[chosen][scores[at].argsort()]
            sums = np.cumsum(1 / np.maximum(np.bincount(of_known), N_OF_CLASS)[of_known])
            known = known[sums.searchsorted((np.arange(len(z)) + 0.5) / len(z) * sums[-1])]
        offset, reference = product(center[None], axes)[0], product(z, axes)
        fitted = cls(standardizer, axes, offset, reference, codes, location, spread, known)
        return fitted, index[scored], scores

    @cached_property
    def surroundings(self) -> Surroundings:
        """Surroundings of all training samples."""
        return Surroundings(self.reference, self.codes)

    @cached_property
    def prior(self) -> tuple[float, Doubles]:
        """Variance around the axes, and its ratio to that along them, a (K, K) diagonal matrix.

        This is probabilistic principal component analysis (Tipping & Bishop 1999).
        """
        variance, (d, K) = self.reference.var(axis=0).astype(np.float64), self.axes.shape
        noise = max((d - variance.sum()) / max(d - K, 1), LEAST_NOISE)
        return noise, noise * np.diag(1 / np.maximum(variance - noise, 1e-6))

    def _axes_without(self, absent: Mask) -> tuple[Floats, Doubles]:
        """(d, K) axes and (K,) offset for rows without the `absent` features, a (d,) mask.

        These features have no effect: on the axes, their expectations are in their place.
        """
        axes = np.where(absent[:, None], 0, self.axes).astype(np.float64)
        seen, center = axes.T @ axes, self.axes @ self.offset
        axes += axes @ np.linalg.solve(seen + self.prior[1], np.eye(len(seen)) - seen)
        return axes.astype(self.axes.dtype), center @ axes

    @cached_property
    def shifts(self) -> Doubles:
        """(2, S) shares of the features, by their squares on the axes, and changes of the scores.

        A change is the median over reference samples of the score without these features less that
        with all. The samples get noise around the axes, since only their places are stored.
        """
        rng, axes = np.random.default_rng(0), self.axes.astype(np.float64)
        own = rng.permutation(len(self.reference))[:N_SIMULATED]
        noise = np.sqrt(self.prior[0]) * rng.standard_normal((len(own), len(axes)))
        z = noise + (self.reference[own] - noise @ axes) @ axes.T
        order, absent = rng.permutation(len(axes)), np.zeros(len(axes), dtype=bool)
        found = [(0.0, 0.0)]
        before = self._scores(self.reference[own], own)
        for share in SHARES:
            absent[order[: round(share * len(axes))]] = True
            places = (z @ self._axes_without(absent)[0]).astype(self.reference.dtype)
            change = float(np.median(self._scores(places, own) - before))
            found.append((float(np.square(axes[absent]).sum()) / axes.shape[1], change))
        return np.transpose(found)

    def _scores(self, points: Floats, own: Codes | None = None) -> Doubles:
        logarithms = self.surroundings(points, own)
        return np.asarray(((logarithms - self.location) / self.spread).sum(axis=1))

    def quantiles(
        self, X: Matrix | Lazy, absent: Mask | None = None, lost: Doubles | None = None
    ) -> Singles:
        """(n,) shares of the training samples that are less novel than each row of (n, d) data.

        `absent` is the (d,) mask of the features that all rows lack; their values have no effect.
        `lost` holds the (n,) shares of all features that are absent or estimated, as in `shifts`:
        what this adds to the scores is subtracted.
        """
        axes, offset = self.axes, self.offset
        if absent is not None and absent.any():
            axes, offset = self._axes_without(absent)
        quantiles = np.empty(X.shape[0], dtype=np.float32)
        for part, chunk in row_chunks(X):
            scores = self._scores(_points(chunk, self.standardizer, axes) - offset)
            if lost is not None and lost[part].any():
                scores -= np.interp(lost[part], *self.shifts)
            quantiles[part] = self.ranks(scores)
        return quantiles

    def ranks(self, scores: Doubles) -> Singles:
        """(n,) shares of the training samples with smaller scores; equal scores count half."""
        below = np.searchsorted(self.known, scores - EQUAL, side="left")
        upto = np.searchsorted(self.known, scores + EQUAL, side="right")
        return ((below + upto) / (2 * len(self.known))).astype(np.float32)

    def estimates(self, X: Doubles, gaps: Mask) -> Iterator[Doubles]:
        """Yield X with an estimate in each of the (n, d) `gaps`, from the other values of its row.

        The first of the (n, d) arrays has expectations under probabilistic principal component
        analysis (Tipping & Bishop 1999) of the training samples, and `N_DRAWS` others have random
        values: places on the axes, given the other values of the row, with `DRAWN` times the
        standard deviations, and without the noise around the axes. Features of weight 0 keep their
        expectations, since the networks do not use them. The random numbers are the same for all
        rows.
        """
        axes, center = self.axes.astype(np.float64), self.axes @ self.offset
        (noise, prior), K, standardizer = self.prior, axes.shape[1], self.standardizer
        filled = np.where(gaps, standardizer.mean, X)
        away = np.where(gaps, 0, _z_scores(filled, standardizer) - center)
        in_all = gaps.all(axis=0)
        precision, along = axes[~in_all].T @ axes[~in_all] + prior, away @ axes
        places, own = np.linalg.solve(precision, along.T).T, gaps & ~in_all
        # Pairs of opposite draws have the expectation as their mean.
        some = DRAWN * np.sqrt(noise) * np.random.default_rng(0).standard_normal((N_DRAWS // 2, K))
        draws = np.concatenate([some, -some]).T

        def shifts(precision: Doubles) -> Doubles:
            return np.linalg.solve(np.linalg.cholesky(precision).T, draws)

        shifted = np.broadcast_to(shifts(precision), (len(X), K, N_DRAWS)).copy()
        for row in np.flatnonzero(own.any(axis=1)):
            lacking = axes[own[row]]
            of_row = precision - lacking.T @ lacking
            places[row], shifted[row] = np.linalg.solve(of_row, along[row]), shifts(of_row)
        of_places = standardizer.scale[:, None] * axes
        means = standardizer.mean + standardizer.scale * center
        yield (expected := np.where(gaps, means + places @ of_places.T, filled))
        used = np.flatnonzero(gaps.any(axis=0) & (standardizer.weight > 0))
        of_places, gaps = of_places[used], gaps[:, used]
        for shift in shifted.transpose(2, 0, 1):
            found = expected.copy()
            found[:, used] += gaps * (shift @ of_places.T)
            yield found


class Surroundings:
    """Distances of points to the nearest of (n, K) training samples and to the nearest class."""

    def __init__(self, points: Floats, codes: Codes) -> None:
        n, K = points.shape
        n_neighbors = max(1, min(N_NEIGHBORS, n // 5))
        self.points, self.n_neighbors = torch.from_numpy(points), n_neighbors
        # A sample is not its own neighbour.
        apart = torch.cdist(self.points, self.points).fill_diagonal_(torch.inf)
        distance = apart.topk(n_neighbors, largest=False).values.numpy()
        self.floor = FLOOR * (float(np.sqrt(np.square(points).sum(axis=1).mean())) or 1.0)
        self.usual = np.log(distance.mean(axis=1) + self.floor)
        classes, index = np.unique(codes, return_inverse=True)
        self.means = class_centers(points, index, len(classes))
        inside = points - self.means[index]
        common = product(inside.T, inside) / max(n - len(classes), 1)
        self.whitening = []
        for i in range(len(classes)):
            own = inside[index == i]
            shrinkage = K / (K + len(own))
            alone = product(own.T, own) / max(len(own) - 1, 1)
            covariance = (1 - shrinkage) * alone + shrinkage * common
            ridge = RIDGE * (np.trace(covariance) / K or 1.0) * np.eye(K)
            inverse = np.linalg.inv((1 - RIDGE) * covariance + ridge)
            self.whitening.append(np.linalg.cholesky(inverse))

    def __call__(self, points: Floats, own: Codes | None = None) -> Doubles:
        """(q, 2) logarithms of two distances of (q, K) points.

        The first is the mean distance to the nearest samples, relative to the distances of these
        samples from their own neighbours. The second is the squared distance to the nearest class
        in units of its spread (Mahalanobis). If the points are those of the samples `own`, none of
        them is its own neighbour.
        """
        apart = torch.cdist(torch.from_numpy(points), self.points)
        if own is not None:
            apart[torch.arange(len(own)), torch.from_numpy(own)] = torch.inf
        nearest = apart.topk(self.n_neighbors, largest=False)
        near = np.log(nearest.values.numpy().mean(axis=1) + self.floor)
        near -= LOCAL * self.usual[nearest.indices.numpy()].mean(axis=1)
        least = np.full(len(points), np.inf)
        for mean, whitening in zip(self.means, self.whitening, strict=True):
            least = np.minimum(least, np.square(product(points - mean, whitening)).sum(axis=1))
        return np.stack([near, np.log(least + FLOOR * points.shape[1])], axis=1)


def _folds(codes: Codes, groups: Codes | None) -> Codes:
    """(n,) folds with about a fifth of the samples of each class; they do not split groups.

    If a class is in one fold only, it is split: if all its samples were left out, it would be
    unknown. All classes are split if fewer than `LEAST` samples are outside of a fold.
    """
    split, order = np.empty_like(codes), np.random.default_rng(0).random(len(codes))
    split[np.lexsort((order, codes))] = np.arange(len(codes)) % N_FOLDS
    if groups is None:
        return split
    folds = cross_validation_folds(codes, min(N_FOLDS, len(np.unique(groups))), 0, groups)
    for own in (codes == label for label in np.unique(codes)):
        if len(np.unique(folds[own])) == 1:
            folds[own] = split[own]
    return split if len(codes) - np.bincount(folds).max() < LEAST else folds


def _around(z: Singles, codes: Codes, n_axes: int) -> Callable[[Singles], Doubles]:
    """`Surroundings` of (n, d) samples, as a function of other z-scores."""
    mean = z.mean(axis=0)
    axes = _axes(z - mean, n_axes)
    surroundings = Surroundings(product(z - mean, axes), codes)
    return lambda others: surroundings(product(others - mean, axes))


def _points(X: Matrix, standardizer: Standardizer, axes: Floats) -> Floats:
    """(n, K) z-scores of the rows of X along (d, K) axes; a sparse matrix stays sparse."""
    if not sparse.issparse(X):
        return product(_z_scores(X, standardizer), axes)
    mean, scale, clip = standardizer.mean, standardizer.scale, standardizer.clip
    of_zero = np.clip(-mean / scale, -clip, clip)
    x = sparse.csr_matrix(X, dtype=np.float64, copy=True)
    x.sum_duplicates()
    column = x.indices
    x.data = np.clip((x.data - mean[column]) / scale[column], -clip, clip) - of_zero[column]
    return np.asarray(x @ axes + of_zero @ axes)


def _z_scores(X: Matrix, standardizer: Standardizer) -> Singles:
    """(n, d) dense z-scores without weights."""
    return replace(standardizer, weight=np.ones_like(standardizer.weight))(X).numpy()


def _axes(centered: Singles, n_axes: int) -> Singles:
    """(d, K) principal axes of (n, d) samples, where K is `n_axes` or the rank if it is less."""
    axes, values = principal_axes(torch.from_numpy(centered), n_axes)
    # Smaller singular values are rounding errors of single precision.
    there = (values > 1e-3 * values[0]) | (torch.arange(len(values)) == 0)
    return np.asarray(axes[there].T)
