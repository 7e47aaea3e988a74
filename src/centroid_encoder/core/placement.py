"""Places in the plane: the expected position of each sample, plus its scatter.

- The positions of the classes keep the order of the distances between centroids as far as possible.
- A sample lies at the mean of these positions, weighted by the probabilities of the classes: a sure
  sample at the position of its class, one with even odds on the border between two.
- Its scatter is added: its two leading components within each class, weighted by the same
  probabilities.
- A sample always lies in the Voronoi cell of its most probable class. What would lie beyond the
  border is moved back before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, softmax
from scipy.stats import rankdata
from sklearn.manifold import smacof
from torch import Tensor

from centroid_encoder.core.features import principal_axes
from centroid_encoder.core.matrix import product

Placement = Literal["voronoi", "bottleneck"]
Floats = NDArray[np.floating]
Codes = NDArray[np.intp]

SIZE = 0.3  # standard deviation of usual scatter in the plane, where near classes are 1 apart
# The gauge is 0 at the position of a class and 1 at the border of its cell.
SCATTERED = 0.4, 0.9  # gauge from which the scatter is squeezed, and its limit
PLACED = 0.9, 0.99  # the same for places
LAST = 0.85  # largest gauge of a place from which components are read
SURE = 0.1  # smallest gauge of a place from which odds are read
READ = 2.0  # power of the odds that are read; 1 would be right without scatter
DECIMALS = 5  # of a place; classes are about 1 apart
N_AXES = 20  # principal components of the scatter, from which those of each class are made
PRIOR = 10.0  # samples of the common scatter that are added to the scatter of each class
TOWARDS = 0.15  # weight of the directions to near classes beside those of the scatter
MOST_CLASSES = 2_000  # the layout of more classes would take minutes
N_FITTED = 20_000  # largest number of samples from which scatter and odds are learned
SMOOTHING = 0.3  # samples of another class that the odds allow for, besides those that are there


@dataclass(frozen=True)
class Scatter:
    """The leading components of each class's scatter in the standardised inputs."""

    axes: NDArray[np.float32]
    """(a, k) orthonormal directions of the inputs."""
    means: NDArray[np.float64]
    """(M, a) coordinates of the centroids along the axes."""
    directions: NDArray[np.float64]
    """(M, m, a) components of each class, divided by √(s t), where s is the largest standard
    deviation along one of them, and t the median of s over the classes: the wider the class, the
    larger its cloud."""

    @classmethod
    def fit(
        cls, residuals: Tensor, codes: Codes, centroids: NDArray[np.float64], n_components: int
    ) -> Self:
        """Learn from (n, k) differences of standardised inputs from the centroids of their classes.

        `codes` holds the (n,) classes, and `centroids` the (M, k) centroids. The components are
        chosen by variance, to which the directions to near classes are added, so that the
        difference of a class from its neighbours can be seen.
        """
        found, _ = principal_axes(residuals, min(N_AXES, *residuals.shape))
        along = (residuals @ found.T).cpu().numpy()
        # C order, as in a file: the last digits of a product depend on it.
        axes = np.ascontiguousarray(found.cpu().numpy(), np.float32)
        means = product(centroids, axes.T)
        common = product(along.T, along) / len(along)
        directions = np.zeros((len(centroids), n_components, len(axes)))
        deviations = np.zeros(len(centroids))
        n_shown = min(n_components, len(axes))
        for j in range(len(centroids)):
            own = along[codes == j].astype(np.float64)
            within = (product(own.T, own) + PRIOR * common) / (len(own) + PRIOR)
            to_others = np.delete(means - means[j], j, axis=0)
            squared = np.maximum(np.square(to_others).sum(axis=1), 1e-12)
            near = np.square(squared.min() / squared)
            between = product(to_others.T * (near / squared / near.sum()), to_others)
            _, vectors = np.linalg.eigh(within + TOWARDS * np.trace(within) * between)
            shown = _signed(vectors[:, ::-1][:, :n_shown]).T
            deviations[j] = np.sqrt((shown @ within * shown).sum(axis=1).max(initial=0))
            directions[j, :n_shown] = shown
        scale = np.sqrt(deviations * np.median(deviations))
        directions /= np.where(scale > 0, scale, 1)[:, None, None]
        return cls(axes, means, directions)

    def moved(self, centroids: NDArray[np.float64], positions: NDArray[np.float64]) -> Self:
        """Return the scatter around other centroids, turned to the positions of the classes.

        A gradient that leads to another class in the data shall lead to it in the plane: by an
        orthogonal Procrustes rotation of the components, the directions to the other centroids
        become those to the positions, near classes more than far ones.
        """
        means, directions = product(centroids, self.axes.T), np.empty_like(self.directions)
        for j, own in enumerate(self.directions):
            away = means - means[j]
            shown = away @ own.T
            lengths = np.linalg.norm(shown, axis=1) * np.square(away).sum(axis=1)
            shown /= np.maximum(lengths, 1e-12)[:, None]
            left, _, right = np.linalg.svd(shown.T @ (positions - positions[j]))
            directions[j] = (left @ right).T @ own
        return replace(self, means=means, directions=directions)

    def project(self, inputs: Tensor) -> NDArray[np.float32]:
        """(n, a) coordinates of (n, k) inputs along the axes."""
        axes = torch.tensor(self.axes, device=inputs.device)
        return np.asarray((inputs @ axes.T).cpu(), dtype=np.float32)

    def components(self, along: Floats) -> NDArray[np.float64]:
        """(n, M, m) components within each class of samples, given by the result of `project`."""
        found = product(along, self.directions.reshape(-1, along.shape[1]).T)
        of_means = np.einsum("jma,ja->jm", self.directions, self.means)
        return np.asarray(found.reshape(len(along), *of_means.shape) - of_means)

    def inverse(self, components: Floats, codes: Codes) -> NDArray[np.float64]:
        """(n, k) differences of inputs from their centroids, for (n, m) components."""
        inverse = np.linalg.pinv(self.directions, rcond=1e-6)[codes]
        return np.asarray(np.einsum("jac,jc->ja", inverse, components) @ self.axes)


@dataclass(frozen=True)
class Odds:
    """Logits of the classes from the distances of network outputs to the targets."""

    sharpness: float
    """Decrease of the logit per mean squared distance."""
    offsets: NDArray[np.float64]
    """(M,) summands."""

    @classmethod
    def fit(
        cls, outputs: Floats, targets: Floats, codes: Codes, weights: Floats | None = None
    ) -> Self:
        """Maximise the likelihood of the (n,) classes of samples that the networks have not seen.

        From their (n, r) outputs, the (M, r) targets of the classes, and (n,) weights of samples.
        The classes are smoothed as in Platt (1999), but less: a few samples without an error do not
        give certainty.
        """
        squared = squared_distances(outputs, targets)
        n, n_classes = squared.shape
        weights = np.ones(n) if weights is None else weights
        weights = weights[:, None] / weights.sum()
        doubt = SMOOTHING / (n + 2)
        wanted = np.full((n, n_classes), doubt / max(n_classes - 1, 1))
        wanted[np.arange(n), codes] = 1 - doubt

        def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            sharpness, offsets = np.exp(parameters[0]), parameters[1:]
            log_probabilities = log_softmax(offsets - sharpness * squared, axis=1)
            excess = (np.exp(log_probabilities) - wanted) * weights
            # A weak prior keeps the offsets of small classes near 0.
            value = np.square(offsets).sum() / 200 - (weights * wanted * log_probabilities).sum()
            slope = -sharpness * (excess * squared).sum()
            return float(value), np.append(slope, excess.sum(axis=0) + offsets / 100)

        bounds = [(-7.0, 7.0)] + [(-5.0, 5.0)] * n_classes
        # L-BFGS-B would use NumPy's threads, see `product`.
        best = minimize(loss, np.zeros(n_classes + 1), jac=True, method="TNC", bounds=bounds)
        return cls(float(np.exp(best.x[0])), np.asarray(best.x[1:]))

    def logits(self, outputs: Floats, targets: Floats) -> NDArray[np.float64]:
        """(n, M) logits for (n, r) outputs."""
        return self.offsets - self.sharpness * squared_distances(outputs, targets)


@dataclass(frozen=True)
class Layout:
    """Positions of the classes, and the places of samples in their Voronoi cells.

    The *gauge* of a displacement y from position w_j towards w_k, 2 ⟨y, w_k − w_j⟩ / ‖w_k − w_j‖²,
    is 0 at w_j and 1 at the border between the two classes.
    """

    positions: NDArray[np.float64]
    """(M, m) positions of the classes; no two are the same."""

    @classmethod
    def fit(cls, centroids: NDArray[np.float64], n_components: int) -> Self:
        """Find positions for (M, k) centroids whose distances are in the order of theirs.

        Only the order is kept: otherwise one distant class would leave no room to the others. The
        nearest pair shall be 1 apart, and the farthest as far as the diameter of a disc that holds
        all classes.
        """
        n_classes = len(centroids)
        pairs = np.triu_indices(n_classes, 1)
        order = rankdata(squared_distances(centroids, centroids)[pairs].round(9))
        wanted = np.zeros((n_classes, n_classes))
        wanted[pairs] = 1 + np.sqrt(n_classes) * order / len(order)
        positions = _scaled_down(wanted + wanted.T, n_components)
        if n_components == 1:
            # Scaling to a line has many local minima, so only the order of its result is used.
            positions = positions.argsort(axis=0, kind="stable").argsort(axis=0).astype(np.float64)
        apart = np.asarray(KDTree(positions).query(positions, k=2)[0])[:, 1]
        return cls(positions / np.median(apart))

    @cached_property
    def ways(self) -> NDArray[np.float64]:
        """(M, M) shares of the ways from each position to the others that a doubtful sample goes.

        The way ends where the own cell ends if the odds are even: a class whose cell does not touch
        the own one is pulled in.
        """
        ways = np.ones((len(self.positions), len(self.positions)))
        for j, row in enumerate(ways):
            gauges = _gauge(self.positions - self.positions[j], self._normals(j))
            np.divide(2, gauges, where=gauges > 2, out=row)
        return ways

    def place(self, logits: Floats, components: Floats) -> NDArray[np.float32]:
        """(n, m) places of samples.

        From (n, M) logits of the classes, and (n, M, m) `Scatter.components`.
        """
        own, probabilities = logits.argmax(axis=1), softmax(logits, axis=1)
        scatter = SIZE * np.einsum("nj,njm->nm", probabilities, components)
        places = np.empty_like(scatter)
        for j in np.unique(own):
            rows = own == j
            places[rows] = self._place_in(j, probabilities[rows], scatter[rows])
        # The last digits of outputs depend on the other rows of the batch.
        return np.asarray(places.round(DECIMALS), dtype=np.float32)

    def _place_in(self, j: int, p: Floats, scatter: Floats) -> NDArray[np.float64]:
        """(n, m) places in the cell of class j, from (n, M) probabilities and (n, m) scatter."""
        normals, m = self._normals(j), scatter.shape[1]
        doubt = product(p * self.ways[j], self.positions - self.positions[j])
        scatter = _squeeze(scatter, normals, *SCATTERED)
        # The more even the odds of two classes, the less scatter is left on the way between them:
        # places from both sides of the border meet.
        units = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
        squares = (units[:, :, None] * units[:, None]).reshape(-1, m * m)
        shrinkage = product(2 * p / np.maximum(p[:, [j]] - p, 1e-9), squares).reshape(-1, m, m)
        scatter = np.linalg.solve(np.eye(m) + shrinkage, scatter[..., None])[..., 0]
        placed = self.positions[j] + _squeeze(scatter + doubt, normals, *PLACED)
        return np.asarray(placed)

    def distances(self, places: Floats) -> NDArray[np.float32]:
        """(n, M) distances of places to the classes; their squares are log odds.

        The distance is 0 for the class in whose cell a place lies. Without scatter, a place of the
        gauge g towards another class has the odds (2 − g) / g.
        """
        own = cdist(places, self.positions).argmin(axis=1)
        squared = np.empty((len(places), len(self.positions)))
        for j in np.unique(own):
            rows = own == j
            gauges = product(places[rows] - self.positions[j], self._normals(j).T).clip(SURE, 1)
            squared[rows] = READ * np.log((2 - gauges) / gauges)
        squared[np.arange(len(own)), own] = 0
        return np.asarray(np.sqrt(squared), dtype=np.float32)

    def components(self, places: Floats) -> tuple[NDArray[np.float64], Codes]:
        """Return (n, m) components of samples within their classes, and the (n,) classes.

        The inverse of `place` for samples that are sure of their class.
        """
        own = cdist(places, self.positions).argmin(axis=1)
        scatter = np.asarray(places - self.positions[own], dtype=np.float64)
        start, room = SCATTERED[0], SCATTERED[1] - SCATTERED[0]
        for j in np.unique(own):
            rows = own == j
            squeezed = _gauge(scatter[rows], self._normals(j)).clip(start, LAST)
            gauges = start - room * np.log1p((start - squeezed) / room)
            scatter[rows] *= (gauges / squeezed)[:, None]
        return scatter / SIZE, own

    def _normals(self, j: int) -> NDArray[np.float64]:
        """(M, m) vectors whose products with a displacement from position j are its gauges."""
        ways = self.positions - self.positions[j]
        squared = np.square(ways).sum(axis=1, keepdims=True)
        squared[j] = 1
        return np.asarray(2 * ways / squared)


@dataclass(frozen=True)
class Placer:
    """Maps outputs of the networks to places in the plane."""

    targets: NDArray[np.float32]
    """(M, r) outputs that the networks were trained to give for each class."""
    scatter: Scatter
    layout: Layout
    odds: Odds

    @classmethod
    def fit(
        cls,
        scatter: Scatter,
        centroids: NDArray[np.float64],
        targets: NDArray[np.float32],
    ) -> Self:
        """Lay out the classes of (M, k) centroids in as many dimensions as the scatter has."""
        layout = Layout.fit(centroids, scatter.directions.shape[1])
        odds = Odds(1.0, np.zeros(len(targets)))
        return cls(targets, scatter.moved(centroids, layout.positions), layout, odds)

    def judge(
        self, outputs: Floats, along: Floats
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, m) places of samples, and their (n, M) distances to the classes.

        The squared distances are the log odds of the most probable class against each. `outputs`
        holds (n, r) outputs of the networks, and `along` (n, a) inputs along the scatter's axes.
        """
        logits = self.odds.logits(outputs, self.targets)
        own, rows = logits.argmax(axis=1), np.arange(len(logits))
        places = self.layout.place(logits, self.scatter.components(along))
        odds = logits[rows, own][:, None] - logits
        # Rounded as places are, but never to the 0 of the most probable class.
        odds = np.maximum(odds.round(DECIMALS), 10.0**-DECIMALS)
        odds[rows, own] = 0
        return places, np.sqrt(odds).astype(np.float32)

    def with_odds(
        self, outputs: Floats, codes: Codes, weights: NDArray[np.floating] | None
    ) -> Self:
        """Return a copy with odds fitted to outputs; see `Odds.fit`."""
        return replace(self, odds=Odds.fit(outputs, self.targets, codes, weights))


def squared_distances(points: Floats, others: Floats) -> NDArray[np.float64]:
    """(n, M) mean squared differences of coordinates between (n, r) points and (M, r) others."""
    a, b = np.asarray(points, dtype=np.float64), np.asarray(others, dtype=np.float64)
    squared = np.square(a).sum(axis=1)[:, None] - 2 * product(a, b.T) + np.square(b).sum(axis=1)
    return np.asarray(np.maximum(squared, 0) / a.shape[1])


def _gauge(displacements: Floats, normals: Floats) -> NDArray[np.float64]:
    """(n,) gauges of (n, m) displacements towards the nearest border; 0 in an open direction."""
    return np.asarray(np.maximum(product(displacements, normals.T).max(axis=1), 0))


def _squeeze(
    displacements: Floats, normals: Floats, start: float, limit: float
) -> NDArray[np.float64]:
    """(n, m) displacements, made shorter from the gauge `start` on: none has the gauge `limit`."""
    gauges, room = np.maximum(_gauge(displacements, normals), start), limit - start
    squeezed = start - room * np.expm1((start - gauges) / room)
    return np.asarray(displacements * (squeezed / gauges)[:, None])


def _signed(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return eigenvectors, in columns, whose largest entry is positive on all machines."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, -1, 1)


def _scaled_down(wanted: NDArray[np.float64], n_components: int) -> NDArray[np.float64]:
    """(M, m) points whose distances are close to those wanted.

    SMACOF (de Leeuw 1977) from classical scaling, without a random start.
    """
    n = len(wanted)
    centering = np.eye(n) - 1 / n
    n_own = min(n_components, n - 1)
    products = -0.5 * centering @ np.square(wanted) @ centering
    values, vectors = eigh(products, subset_by_index=[n - n_own, n - 1])
    start = np.zeros((n, n_components))
    start[:, :n_own] = _signed(vectors[:, ::-1]) * np.sqrt(np.maximum(values[::-1], 0))
    options = {"n_init": 1, "max_iter": 500, "eps": 1e-6, "normalized_stress": False}
    return np.asarray(smacof(wanted, n_components=n_components, init=start, **options)[0])
