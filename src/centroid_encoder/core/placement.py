"""Places in the plane: every sample in the Voronoi cell of the class that its network tells.

A network without a bottleneck says how far a sample is from each class, in as many dimensions as
the classes span. What the plane shows of it is laid out afterwards:

- Classes have positions whose distances are in the order of those of their centroids, as far as
  they can be.
- A sample lies in the cell of its most probable class, always. Where in the cell, the two leading
  components of the class's own scatter say.
- The nearer it lies to the border, the less sure it is: it is moved towards the class that it may
  be instead, until the odds that `Layout.distances` reads off the plane are those of the network.
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
from scipy.special import log_softmax, logsumexp
from scipy.stats import rankdata
from sklearn.manifold import smacof
from torch import Tensor

from centroid_encoder.core.axes import principal_axes

Placement = Literal["voronoi", "bottleneck"]
Floats = NDArray[np.floating]
Codes = NDArray[np.intp]

SURE = 0.5
"""How far towards the border a class's own scatter reaches: 0 is at its position, 1 the border."""
DOUBTFUL = 0.75
"""How far those lie that may as well be of another class; beyond it, nothing lies."""
SIZE = 0.35
"""What one standard deviation of a class's scatter is on that scale, near its position."""
USUAL = 2.5
"""Standard deviations that a place stands for at most: what lies farther out is in doubt."""
STEEPNESS = 6.0
"""Logarithm of the odds that one unit of that scale stands for. Half of the samples of most data
sets have odds below e⁵: if it were much more, they would all lie near the borders."""
BORDER = 1e-3
"""The same between `DOUBTFUL` and the border, where nothing lies but something may be asked of."""
CERTAIN = 5.0
"""Logarithm of the odds of the most certain place against all other classes together: a plane does
not tell which of them it would be instead."""
DECIMALS = 5
"""Of a place; classes are about 1 apart."""
N_AXES = 20
"""Principal components of the scatter within classes that those of each class are made of."""
PRIOR = 10.0
"""Samples of the common scatter that are added to the scatter of each class."""
MOST_CLASSES = 2_000
"""Classes beyond which a layout takes minutes, and no plane shows them apart."""
N_FITTED = 20_000
"""Samples that the scatter and the odds are learned from, at most."""
TOLERANCE = 1e-6
N_ITERATIONS = 500


@dataclass(frozen=True)
class Scatter:
    """The two (or m) leading components of each class's scatter in the standardised inputs."""

    axes: NDArray[np.float32]
    """(a, k) orthonormal directions of the inputs."""
    means: NDArray[np.float64]
    """(M, a) coordinates of the centroids along them."""
    directions: NDArray[np.float64]
    """(M, m, a) of each class, divided by the standard deviation along the first of them."""

    @classmethod
    def fit(
        cls, residuals: Tensor, codes: Codes, centroids: NDArray[np.float64], n_components: int
    ) -> Self:
        """Learn from (n, k) differences of standardised inputs from the centroids of their classes.

        `codes` holds the (n,) classes, and `centroids` the (M, k) centroids.
        """
        n_classes = len(centroids)
        found, *_ = principal_axes(residuals, min(N_AXES, *residuals.shape))
        along, axes = (residuals @ found.T).cpu().numpy(), found.cpu().numpy()
        n_axes = len(axes)
        common = (along.T @ along).astype(np.float64) / len(along)
        directions = np.zeros((n_classes, n_components, n_axes))
        n_shown = min(n_components, n_axes)
        for j in range(n_classes):
            own = along[codes == j].astype(np.float64)
            values, vectors = np.linalg.eigh(own.T @ own + PRIOR * common)
            leading = vectors[:, ::-1][:, :n_shown].T
            # A vector is as good as its opposite. One of the two, whatever the machine.
            largest = leading[np.arange(n_shown), np.abs(leading).argmax(axis=1)]
            deviation = np.sqrt(values[-1] / (len(own) + PRIOR))
            if deviation > 0:
                directions[j, :n_shown] = leading * np.sign(largest)[:, None] / deviation
        # In the order in which a file holds them: a product depends on it in its last digits.
        return cls(np.ascontiguousarray(axes, np.float32), centroids @ axes.T, directions)

    def project(self, inputs: Tensor) -> NDArray[np.float32]:
        """(n, a) coordinates of (n, k) inputs along the axes."""
        axes = torch.tensor(self.axes, device=inputs.device)
        return np.asarray((inputs @ axes.T).cpu(), dtype=np.float32)

    def components(self, along: Floats, codes: Codes) -> NDArray[np.float64]:
        """(n, m) what samples are within classes, in standard deviations of their first component.

        `along` is what `project` returns; `codes` holds the (n,) classes.
        """
        residuals = along - self.means[codes]
        return np.asarray(np.einsum("nma,na->nm", self.directions[codes], residuals))

    def inverse(self, components: Floats, codes: Codes) -> NDArray[np.float64]:
        """(n, k) differences of inputs from the centroids; the inverse of `components`."""
        directions = self.directions[codes]
        squared = np.square(directions).sum(axis=2)
        weights = components / np.where(squared > 0, squared, 1)
        return np.asarray(np.einsum("nma,nm->na", directions, weights) @ self.axes)


@dataclass(frozen=True)
class Odds:
    """How distances of a network's outputs to the targets become logits of the classes."""

    sharpness: float = 1.0
    """By how much the logit falls with the mean squared distance."""
    offsets: NDArray[np.float64] | None = None
    """(M,) what is added; None for zeros."""

    @classmethod
    def fit(
        cls,
        outputs: Floats,
        targets: Floats,
        codes: Codes,
        weights: NDArray[np.floating] | None = None,
    ) -> Self:
        """Find the most likely ones, given what networks say of samples that they have not seen.

        Parameters
        ----------
        outputs
            (n, r) what they say.
        targets
            (M, r) targets of the classes.
        codes
            (n,) classes of the samples.
        weights
            (n,) weight of each sample; None for all the same.
        """
        squared = squared_distances(outputs, targets)
        n, n_classes = squared.shape
        weights = np.ones(n) if weights is None else weights
        weights = weights[:, None] / weights.sum()
        wanted = np.zeros((n, n_classes))
        wanted[np.arange(n), codes] = 1

        def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            sharpness, offsets = np.exp(parameters[0]), parameters[1:]
            log_probabilities = log_softmax(offsets - sharpness * squared, axis=1)
            excess = (np.exp(log_probabilities) - wanted) * weights
            # A weak prior keeps classes of few samples where they are.
            value = np.square(offsets).sum() / 200 - (weights * wanted * log_probabilities).sum()
            slope = -sharpness * (excess * squared).sum()
            return float(value), np.append(slope, excess.sum(axis=0) + offsets / 100)

        bounds = [(-7.0, 7.0)] + [(-5.0, 5.0)] * n_classes
        best = minimize(loss, np.zeros(n_classes + 1), jac=True, method="L-BFGS-B", bounds=bounds)
        return cls(float(np.exp(best.x[0])), np.asarray(best.x[1:]))

    def logits(self, outputs: Floats, targets: Floats) -> NDArray[np.float64]:
        """(n, M) logits for (n, r) outputs."""
        logits = -self.sharpness * squared_distances(outputs, targets)
        return logits if self.offsets is None else logits + self.offsets


@dataclass(frozen=True)
class Layout:
    """Positions of the classes, and what lies where in their Voronoi cells.

    On the way from a position w_j to the border with w_k, the *gauge* of a displacement y grows
    from 0 to 1: 2 ⟨y, w_k − w_j⟩ / ‖w_k − w_j‖².
    """

    positions: NDArray[np.float64]
    """(M, m) positions of the classes; no two are the same."""
    steepness: float = STEEPNESS
    """Logarithm of the odds that one unit of the gauge stands for."""

    @classmethod
    def fit(cls, centroids: NDArray[np.float64], n_components: int) -> Self:
        """Find positions for (M, k) centroids whose distances are in the order of theirs.

        In the order alone: of distances as they are, one class far off leaves no room to the
        others, and two that are alike have none. The nearest pair shall be 1 apart, and the
        farthest as much more as a disc that holds all classes is wide.
        """
        n_classes = len(centroids)
        pairs = np.triu_indices(n_classes, 1)
        order = rankdata(squared_distances(centroids, centroids)[pairs].round(9))
        wanted = np.zeros((n_classes, n_classes))
        wanted[pairs] = 1 + np.sqrt(n_classes) * order / len(order)
        positions = _scaled_down(wanted + wanted.T, n_components)
        if n_components == 1:
            # On a line there are too many near solutions for distances to mean more than an order.
            positions = positions.argsort(axis=0, kind="stable").argsort(axis=0).astype(np.float64)
        return cls(positions / np.median(cls(positions).apart))

    @cached_property
    def apart(self) -> NDArray[np.float64]:
        """(M,) distance of each position to the nearest other one."""
        # Not from all pairs: a file of a few MB has positions for more classes than those fit.
        distances, _ = KDTree(self.positions).query(self.positions, k=2)
        return np.asarray(distances)[:, 1]

    def place(self, logits: Floats, components: Floats) -> NDArray[np.float32]:
        """(n, m) places of samples.

        Parameters
        ----------
        logits
            (n, M) logits of the classes.
        components
            (n, m) what the samples are within their most probable class; see `Scatter.components`.
        """
        own = logits.argmax(axis=1)
        rows, cell = np.arange(len(own)), _Cells(self, own)
        within = cell.scaled(components)
        others = np.array(logits, dtype=np.float64)
        others[rows, own] = -np.inf
        odds = np.maximum(logits[rows, own] - logsumexp(others, axis=1), 0)
        # Towards the class that it may be instead, as far as the odds say.
        doubt = DOUBTFUL - odds / self.steepness
        towards = self.positions[others.argmax(axis=1)] - self.positions[own]
        gauges, growth = cell.gauges(within), cell.gauges(towards)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(growth > 1e-12, (doubt[:, None] - gauges) / growth, np.inf)
        step = np.where(doubt > gauges.max(axis=1), np.clip(steps.min(axis=1), 0, 1), 0)
        places = self.positions[own] + within + step[:, None] * towards
        # What a network says differs in its last digits with the rows that are asked with it.
        return np.asarray(places.round(DECIMALS), dtype=np.float32)

    def nearest(self, places: Floats) -> Codes:
        """(n,) classes in whose cells (n, m) places lie."""
        return np.asarray(squared_distances(places, self.positions).argmin(axis=1))

    def distances(self, places: Floats) -> NDArray[np.float32]:
        """(n, M) distances of places to the classes, whose squares are logarithms of odds.

        0 for the class in whose cell a place lies. Its odds against another one are
        exp(distance²), as far as the network that placed it has said: what lies safely within a
        cell may be surer than that.
        """
        own = self.nearest(places)
        gauges = _Cells(self, own).gauges(places - self.positions[own])
        left = 1 - np.minimum(gauges, 1)
        squared = self.steepness * np.maximum(left - (1 - DOUBTFUL), 0) + BORDER * left
        squared = -np.logaddexp(-squared, -CERTAIN - np.log(max(len(self.positions) - 1, 1)))
        # The smallest ones can be below 0 by the logarithm of one and a little.
        squared += np.log1p(np.exp(-CERTAIN) / max(len(self.positions) - 1, 1))
        squared[np.arange(len(own)), own] = 0
        return np.asarray(np.sqrt(np.maximum(squared, 0)), dtype=np.float32)

    def components(self, places: Floats) -> tuple[NDArray[np.float64], Codes]:
        """Return what places say of samples within classes, and the classes.

        The inverse of `place` for samples that are sure of their class.
        """
        own = self.nearest(places)
        return _Cells(self, own).unscaled(places - self.positions[own]), own


@dataclass(frozen=True)
class Placer:
    """From what networks say of samples to places in the plane."""

    targets: NDArray[np.float32]
    """(M, r) outputs that the networks were trained to give for each class."""
    scatter: Scatter
    layout: Layout
    odds: Odds = Odds()

    def judge(
        self, outputs: Floats, along: Floats
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Places for (n, r) outputs, and distances to the classes that tell more than they do.

        Parameters
        ----------
        outputs
            (n, r) what networks say of samples.
        along
            (n, a) inputs along the axes of the scatter.

        Returns
        -------
        places
            (n, m) where the samples lie.
        distances
            (n, M) whose squares are logarithms of the odds of the most probable class against each.
        """
        logits = self.odds.logits(outputs, self.targets)
        own = logits.argmax(axis=1)
        places = self.layout.place(logits, self.scatter.components(along, own))
        odds = logits[np.arange(len(own)), own][:, None] - logits
        # Rounded as places are, but for what decides.
        odds = np.maximum(odds.round(DECIMALS), 10.0**-DECIMALS)
        odds[np.arange(len(own)), own] = 0
        return places, np.sqrt(odds).astype(np.float32)

    def told(self, outputs: Floats, codes: Codes, weights: NDArray[np.floating] | None) -> Self:
        """Return it with the odds that outputs for samples tell of; see `Odds.fit`."""
        return replace(self, odds=Odds.fit(outputs, self.targets, codes, weights))


class _Cells:
    """The Voronoi cell of the class of each sample, seen from the class's position."""

    def __init__(self, layout: Layout, codes: Codes) -> None:
        positions = layout.positions
        self._rows, self._codes = np.arange(len(codes)), codes
        self._to_others = positions[None] - positions[codes][:, None]
        squared = np.square(self._to_others).sum(axis=2)
        squared[self._rows, codes] = 1
        self._normals = 2 * self._to_others / squared[:, :, None]
        # Cells at the rim have no border outwards: they end where that of others would be.
        self._open = (np.maximum(layout.apart, np.median(layout.apart)) / 2)[codes]

    def gauges(self, displacements: Floats) -> NDArray[np.float64]:
        """(n, M) how far (n, m) displacements lead towards the border with each other class."""
        gauges = np.asarray(np.einsum("nkm,nm->nk", self._normals, displacements))
        gauges[self._rows, self._codes] = -np.inf
        return gauges

    def scaled(self, components: Floats) -> NDArray[np.float64]:
        """Displacements for (n, m) components: within `SURE`, whatever they are."""
        length = np.linalg.norm(components, axis=1, keepdims=True)
        direction = components / np.maximum(length, 1e-12)
        share = SURE * np.tanh(SIZE / SURE * length)
        return np.asarray(direction * share / self._gauge(direction))

    def unscaled(self, displacements: Floats) -> NDArray[np.float64]:
        """Components for (n, m) displacements: the inverse of `scaled`, as far as `USUAL`."""
        length = np.linalg.norm(displacements, axis=1, keepdims=True)
        direction = displacements / np.maximum(length, 1e-12)
        usual = np.tanh(SIZE / SURE * USUAL)
        share = np.minimum(length * self._gauge(direction) / SURE, usual)
        return np.asarray(direction * np.arctanh(share) * SURE / SIZE)

    def _gauge(self, direction: Floats) -> NDArray[np.float64]:
        steepest = np.maximum(self.gauges(direction).max(axis=1), 1 / self._open)
        return np.asarray(steepest[:, None])


def squared_distances(points: Floats, others: Floats) -> NDArray[np.float64]:
    """(n, M) mean squared differences of coordinates between (n, r) points and (M, r) others."""
    a, b = np.asarray(points, dtype=np.float64), np.asarray(others, dtype=np.float64)
    squared = np.square(a).sum(axis=1)[:, None] - 2 * a @ b.T + np.square(b).sum(axis=1)
    return np.asarray(np.maximum(squared, 0) / a.shape[1])


def _scaled_down(wanted: NDArray[np.float64], n_components: int) -> NDArray[np.float64]:
    """(M, m) points whose distances are close to those wanted.

    SMACOF (de Leeuw 1977) from classical scaling, so that nothing is drawn at random.
    """
    n = len(wanted)
    centering = np.eye(n) - 1 / n
    n_own = min(n_components, n - 1)
    values, vectors = eigh(
        -0.5 * centering @ np.square(wanted) @ centering, subset_by_index=[n - n_own, n - 1]
    )
    leading = vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0))
    largest = leading[np.abs(leading).argmax(axis=0), np.arange(n_own)]
    points = np.zeros((n, n_components))
    points[:, :n_own] = leading * np.where(largest < 0, -1, 1)
    found, _ = smacof(
        wanted,
        n_components=n_components,
        init=points,
        n_init=1,
        max_iter=N_ITERATIONS,
        eps=TOLERANCE,
        normalized_stress=False,
    )
    return np.asarray(found)
