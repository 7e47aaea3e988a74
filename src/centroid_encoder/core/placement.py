"""Places in the plane: each sample in the Voronoi cell of its most probable class.

- The positions of the classes keep the order of the distances between centroids as far as possible.
- A sample lies in the cell of its most probable class. Its place there is given by the two leading
  components of the scatter within that class.
- A less certain sample lies nearer to the border. It is moved towards the second most probable
  class until the odds at its place, see `Layout.distances`, are those of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, logsumexp
from scipy.stats import rankdata
from sklearn.manifold import smacof
from torch import Tensor

from centroid_encoder.core.axes import principal_axes
from centroid_encoder.core.matrix import product

Placement = Literal["voronoi", "bottleneck"]
Floats = NDArray[np.floating]
Codes = NDArray[np.intp]

# The gauge is 0 at the position of a class and 1 at the border of its cell.
SURE = 0.5  # largest gauge of a sample that is sure of its class
DOUBTFUL = 0.75  # gauge of a sample with even odds; no sample lies farther out
SIZE = 0.35  # gauge of one standard deviation of the scatter within a class, near its position
STEEPNESS = 6.0  # log odds for one unit of the gauge; with more, most samples lie near the borders
BORDER = 1e-3  # the same between DOUBTFUL and the border, where no sample lies
CERTAIN = 5.0  # log odds of the most certain place against all other classes together
USUAL = 2.5  # largest number of standard deviations that is read from a place
DECIMALS = 5  # of a place; classes are about 1 apart
N_AXES = 20  # principal components of the scatter, from which those of each class are made
PRIOR = 10.0  # samples of the common scatter that are added to the scatter of each class
MOST_CLASSES = 2_000  # the layout of more classes would take minutes
N_FITTED = 20_000  # largest number of samples from which scatter and odds are learned


@dataclass(frozen=True)
class Scatter:
    """The leading components of each class's scatter in the standardised inputs."""

    axes: NDArray[np.float32]
    """(a, k) orthonormal directions of the inputs."""
    means: NDArray[np.float64]
    """(M, a) coordinates of the centroids along the axes."""
    directions: NDArray[np.float64]
    """(M, m, a) components of each class, divided by the standard deviation along the first."""

    @classmethod
    def fit(
        cls, residuals: Tensor, codes: Codes, centroids: NDArray[np.float64], n_components: int
    ) -> Self:
        """Learn from (n, k) differences of standardised inputs from the centroids of their classes.

        `codes` holds the (n,) classes, and `centroids` the (M, k) centroids.
        """
        found, _ = principal_axes(residuals, min(N_AXES, *residuals.shape))
        along, axes = (residuals @ found.T).cpu().numpy(), found.cpu().numpy()
        common = product(along.T, along) / len(along)
        directions = np.zeros((len(centroids), n_components, len(axes)))
        n_shown = min(n_components, len(axes))
        for j in range(len(centroids)):
            own = along[codes == j].astype(np.float64)
            values, vectors = np.linalg.eigh(product(own.T, own) + PRIOR * common)
            deviation = np.sqrt(values[-1] / (len(own) + PRIOR))
            if deviation > 0:
                directions[j, :n_shown] = _signed(vectors[:, ::-1][:, :n_shown]).T / deviation
        # C order, as in a file: the last digits of a product depend on it.
        return cls(np.ascontiguousarray(axes, np.float32), product(centroids, axes.T), directions)

    def project(self, inputs: Tensor) -> NDArray[np.float32]:
        """(n, a) coordinates of (n, k) inputs along the axes."""
        axes = torch.tensor(self.axes, device=inputs.device)
        return np.asarray((inputs @ axes.T).cpu(), dtype=np.float32)

    def components(self, along: Floats, codes: Codes) -> NDArray[np.float64]:
        """(n, m) components of samples, in standard deviations of the first one of their class.

        `along` is the result of `project`; `codes` holds the (n,) classes.
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
    """Logits of the classes from the distances of network outputs to the targets."""

    sharpness: float = 1.0
    """Decrease of the logit per mean squared distance."""
    offsets: NDArray[np.float64] | None = None
    """(M,) summands; None for zeros."""

    @classmethod
    def fit(
        cls, outputs: Floats, targets: Floats, codes: Codes, weights: Floats | None = None
    ) -> Self:
        """Maximise the likelihood of the (n,) classes of samples that the networks have not seen.

        From their (n, r) outputs, the (M, r) targets of the classes, and (n,) weights of samples.
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
        logits = -self.sharpness * squared_distances(outputs, targets)
        return logits if self.offsets is None else logits + self.offsets


@dataclass(frozen=True)
class Layout:
    """Positions of the classes, and the places of samples in their Voronoi cells.

    The *gauge* of a displacement y from position w_j towards w_k, 2 ⟨y, w_k − w_j⟩ / ‖w_k − w_j‖²,
    is 0 at w_j and 1 at the border between the two classes.
    """

    positions: NDArray[np.float64]
    """(M, m) positions of the classes; no two are the same."""
    steepness: float = STEEPNESS
    """Log odds for one unit of the gauge."""

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
        return cls(positions / np.median(_apart(positions)))

    def place(self, logits: Floats, components: Floats) -> NDArray[np.float32]:
        """(n, m) places of samples.

        From (n, M) logits of the classes, and the (n, m) `Scatter.components` within the most
        probable class.
        """
        own, rows = logits.argmax(axis=1), np.arange(len(logits))
        directions, lengths = _polar(components)
        lengths = SURE * np.tanh(SIZE / SURE * lengths) * self._to_border(own, directions)
        within = directions * lengths
        others = np.array(logits, dtype=np.float64)
        others[rows, own] = -np.inf
        odds = np.maximum(logits[rows, own] - logsumexp(others, axis=1), 0)
        wanted = DOUBTFUL - odds / self.steepness
        towards = self.positions[others.argmax(axis=1)] - self.positions[own]
        gauges, growth = self._gauges(own, within), self._gauges(own, towards)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(growth > 1e-12, (wanted[:, None] - gauges) / growth, np.inf)
        step = np.where(wanted > gauges.max(axis=1), np.clip(steps.min(axis=1), 0, 1), 0)
        places = self.positions[own] + within + step[:, None] * towards
        # The last digits of outputs depend on the other rows of the batch.
        return np.asarray(places.round(DECIMALS), dtype=np.float32)

    def distances(self, places: Floats) -> NDArray[np.float32]:
        """(n, M) distances of places to the classes; their squares are log odds.

        The distance is 0 for the class in whose cell a place lies. The odds of that class against
        another one are exp(distance²); those of the network are higher where a place lies well
        within a cell.
        """
        own = cdist(places, self.positions).argmin(axis=1)
        left = 1 - np.minimum(self._gauges(own, places - self.positions[own]), 1)
        squared = self.steepness * np.maximum(left - (1 - DOUBTFUL), 0) + BORDER * left
        least = -CERTAIN - np.log(max(len(self.positions) - 1, 1))
        squared = np.log1p(np.exp(least)) - np.logaddexp(-squared, least)
        squared[np.arange(len(own)), own] = 0
        return np.asarray(np.sqrt(np.maximum(squared, 0)), dtype=np.float32)

    def components(self, places: Floats) -> tuple[NDArray[np.float64], Codes]:
        """Return (n, m) components of samples within their classes, and the (n,) classes.

        The inverse of `place` for samples that are sure of their class.
        """
        own = cdist(places, self.positions).argmin(axis=1)
        directions, lengths = _polar(places - self.positions[own])
        share = lengths / self._to_border(own, directions) / SURE
        share = np.minimum(share, np.tanh(SIZE / SURE * USUAL))
        return np.asarray(directions * np.arctanh(share) * SURE / SIZE), own

    def _gauges(self, own: Codes, displacements: Floats) -> NDArray[np.float64]:
        """(n, M) gauges of displacements towards each other class; −inf for the own class."""
        rows = np.arange(len(own))
        squared = cdist(self.positions[own], self.positions, "sqeuclidean")
        squared[rows, own] = 1
        along = product(displacements, self.positions.T)
        gauges = 2 * (along - along[rows, own][:, None]) / squared
        gauges[rows, own] = -np.inf
        return np.asarray(gauges)

    def _to_border(self, own: Codes, directions: Floats) -> NDArray[np.float64]:
        """(n, 1) distance from the own position to the border in (n, m) unit directions."""
        steepest = self._gauges(own, directions).max(axis=1)
        # Outer cells are unbounded: they end at the distance at which others have their border.
        apart = _apart(self.positions)
        open_ = np.maximum(apart, np.median(apart))[own] / 2
        return np.asarray(1 / np.maximum(steepest, 1 / open_)[:, None])


@dataclass(frozen=True)
class Placer:
    """Maps outputs of the networks to places in the plane."""

    targets: NDArray[np.float32]
    """(M, r) outputs that the networks were trained to give for each class."""
    scatter: Scatter
    layout: Layout
    odds: Odds = Odds()

    @classmethod
    def fit(
        cls,
        settings: Mapping[str, Any],
        scatter: Scatter,
        centroids: NDArray[np.float64],
        targets: Tensor,
    ) -> Self:
        """Lay out the classes of (M, k) centroids; `settings` are those of an estimator."""
        layout = Layout.fit(centroids, int(settings["n_components"]))
        moved = replace(scatter, means=product(centroids, scatter.axes.T))
        return cls(targets.cpu().numpy(), moved, layout)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (config, arrays), from which `from_arrays` rebuilds the object."""
        scatter, odds = self.scatter, self.odds
        offsets = np.zeros(len(self.targets)) if odds.offsets is None else odds.offsets
        config = {"sharpness": odds.sharpness, "steepness": self.layout.steepness}
        return config, {
            "placement_targets": self.targets,
            "placement_axes": scatter.axes,
            "placement_means": scatter.means,
            "placement_directions": scatter.directions,
            "placement_offsets": offsets,
        }

    @classmethod
    def from_arrays(
        cls,
        config: Mapping[str, Any],
        array: Callable[..., NDArray[Any]],
        positions: NDArray[np.float64],
    ) -> Self:
        """Rebuild the object; the inverse of `to_arrays`.

        ``array(name, *shape)`` returns an array of that shape, where None is any length.
        """
        (n_classes, m), axes = positions.shape, array("placement_axes", None, None)
        means = array("placement_means", n_classes, len(axes))
        directions = array("placement_directions", n_classes, m, len(axes))
        return cls(
            array("placement_targets", n_classes, None),
            Scatter(axes, means, directions),
            Layout(positions, float(config["steepness"])),
            Odds(float(config["sharpness"]), array("placement_offsets", n_classes)),
        )

    def judge(
        self, outputs: Floats, along: Floats
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n, m) places of samples, and their (n, M) distances to the classes.

        The squared distances are the log odds of the most probable class against each. `outputs`
        holds (n, r) outputs of the networks, and `along` (n, a) inputs along the scatter's axes.
        """
        logits = self.odds.logits(outputs, self.targets)
        own, rows = logits.argmax(axis=1), np.arange(len(logits))
        places = self.layout.place(logits, self.scatter.components(along, own))
        odds = logits[rows, own][:, None] - logits
        # Rounded as places are, but never to the 0 of the most probable class.
        odds = np.maximum(odds.round(DECIMALS), 10.0**-DECIMALS)
        odds[rows, own] = 0
        return places, np.sqrt(odds).astype(np.float32)

    def told(self, outputs: Floats, codes: Codes, weights: NDArray[np.floating] | None) -> Self:
        """Return a copy with odds fitted to outputs; see `Odds.fit`."""
        return replace(self, odds=Odds.fit(outputs, self.targets, codes, weights))


def squared_distances(points: Floats, others: Floats) -> NDArray[np.float64]:
    """(n, M) mean squared differences of coordinates between (n, r) points and (M, r) others."""
    a, b = np.asarray(points, dtype=np.float64), np.asarray(others, dtype=np.float64)
    squared = np.square(a).sum(axis=1)[:, None] - 2 * product(a, b.T) + np.square(b).sum(axis=1)
    return np.asarray(np.maximum(squared, 0) / a.shape[1])


def _apart(positions: Floats) -> NDArray[np.float64]:
    """(M,) distance of each position to the nearest other one."""
    distances, _ = KDTree(positions).query(positions, k=2)
    return np.asarray(distances)[:, 1]


def _polar(vectors: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n, m) unit directions and (n, 1) lengths of vectors."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12), lengths


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
