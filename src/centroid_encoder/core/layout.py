"""Positions of the classes in the plane, and the places of samples in their Voronoi cells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.linalg import eigh
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.special import softmax

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Singles
from centroid_encoder.core.matrix import product

SIZE = 0.3  # standard deviation of the scatter in the plane, where near classes are 1 apart
# A gauge is 0 at the position of a class and 1 at the border of its cell (see `Layout`).
SCATTERED = 0.4, 0.9  # gauge above which the scatter is compressed, and its limit
PLACED = 0.9, 0.99  # the same for places
MAX_GAUGE = 0.85  # gauges are clipped to this before components are computed from a place
MIN_GAUGE = 0.1  # gauges are raised to this before odds are computed from a place
# Exponent of odds computed from a place: scatter makes them look more even. Without, it would be 1.
ODDS_EXPONENT = 2.0
DECIMALS = 5  # of a place; classes are about 1 apart
MOST_STEPS = 500  # of SMACOF
LEAST_STEP = 1e-3  # of SMACOF: it stops if no class moves farther; near classes are about 1 apart


@dataclass(frozen=True)
class Layout:
    """Positions of the classes, and the places of samples in their Voronoi cells.

    The *gauge* of a displacement y from position w_j towards w_k is
    2 ⟨y, w_k − w_j⟩ / ‖w_k − w_j‖²: 0 at w_j and 1 at the border between the two classes.
    """

    positions: Doubles  #: (M, m) positions of the classes; all are different

    @classmethod
    def fit(
        cls,
        centroids: Doubles,
        n_components: int,
        room: Doubles | None = None,
        noise: Doubles | None = None,
    ) -> Self:
        """Find positions of classes from (M, k) centroids, their rooms and their noise.

        `room` holds the (M,) widths that the classes shall have, 1 for all by default. `noise` is
        the variance of each centroid by sampling, as a mean over the inputs: without it, the
        centroid of few samples is far from all others by chance.

        The wanted distance of two classes is the mean of their rooms, plus √M times a share that
        grows from 0 to 1 with the distance of the centroids. Half of the share follows the order of
        the pairs alone, since otherwise one distant class would leave no space for the others. A
        disc with the diameter √M has space for all classes.
        """
        # Imported here, since this takes long, and a stored map is drawn without it.
        from scipy.stats import rankdata

        n_classes = len(centroids)
        room = np.ones(n_classes) if room is None else room
        noise = np.zeros(n_classes) if noise is None else noise
        i, j = pairs = np.triu_indices(n_classes, 1)
        squared = squared_distances(centroids, centroids)[pairs]
        far = np.maximum(squared - noise[i] - noise[j], squared / 4).round(9)
        share = (rankdata(far) / len(far) + (far - far.min()) / max(np.ptp(far), 1e-9)) / 2
        wanted = np.zeros((n_classes, n_classes))
        wanted[pairs] = (room[i] + room[j]) / 2 + np.linalg.norm(room) * share
        circle = _circle(np.square(room), n_components)
        positions = _multidimensional_scaling(wanted + wanted.T, room, circle)
        if n_components == 1:
            # Scaling to one dimension has many local minima; use only the order of its result.
            order = positions.argsort(axis=0, kind="stable")[:, 0]
            steps = (room[order[1:]] + room[order[:-1]]) / 2
            positions[order, 0] = np.append(0, np.cumsum(steps))
        apart, near = (np.asarray(x)[:, 1] for x in KDTree(positions).query(positions, k=2))
        size = np.median(apart / ((room + room[near]) / 2))
        return cls((positions - positions.mean(axis=0)) / size)

    @cached_property
    def step_factors(self) -> Doubles:
        """(M, M) factors of the displacements from each position to the others.

        A sample with even odds of two classes lies half-way between them. If the Voronoi cells of
        these classes do not touch, this point is beyond the border of the sample's own cell; the
        factor moves it onto that border.
        """
        step_factors = np.ones((len(self.positions), len(self.positions)))
        for j, row in enumerate(step_factors):
            gauges = _gauge(self.positions - self.positions[j], self._normals(j))
            np.divide(2, gauges, where=gauges > 2, out=row)
        return step_factors

    def place(self, logits: Floats, components: Floats) -> Singles:
        """(n, m) places of samples with (n, M) logits and (n, M, m) `Scatter.components`."""
        own, probabilities = logits.argmax(axis=1), softmax(logits, axis=1)
        scatter = SIZE * np.einsum("nj,njm->nm", probabilities, components)
        places = np.empty_like(scatter)
        for j in np.unique(own):
            rows = own == j
            places[rows] = self._place_in(j, probabilities[rows], scatter[rows])
        # Rounded, because the last digits of outputs depend on the other rows of the batch.
        return np.asarray(places.round(DECIMALS), dtype=np.float32)

    def _place_in(self, j: int, p: Floats, scatter: Floats) -> Doubles:
        """(n, m) places in the cell of class j, from (n, M) probabilities and (n, m) scatter."""
        normals, m = self._normals(j), scatter.shape[1]
        doubt = product(p * self.step_factors[j], self.positions - self.positions[j])
        scatter = _squeeze(scatter, normals, *SCATTERED)
        # The more even the odds of two classes, the smaller the scatter in the direction between
        # them, so that there is no gap along the border.
        units = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
        squares = (units[:, :, None] * units[:, None]).reshape(-1, m * m)
        shrinkage = product(2 * p / np.maximum(p[:, [j]] - p, 1e-9), squares).reshape(-1, m, m)
        scatter = np.linalg.solve(np.eye(m) + shrinkage, scatter[..., None])[..., 0]
        placed = self.positions[j] + _squeeze(scatter + doubt, normals, *PLACED)
        return np.asarray(placed)

    def distances(self, places: Floats) -> Singles:
        """(n, M) distances of (n, m) places to the classes: square roots of log odds.

        The distance is 0 for the class in whose cell a place lies. Without scatter, a
        place with the gauge g towards another class has the odds (2 − g) / g for its own class
        against that class.
        """
        own = cdist(places, self.positions).argmin(axis=1)
        squared = np.empty((len(places), len(self.positions)))
        for j in np.unique(own):
            rows = own == j
            # Not `product`: in the window, torch would wait for its own threads of a training.
            gauges = np.einsum("ni,ji->nj", places[rows] - self.positions[j], self._normals(j))
            gauges = gauges.clip(MIN_GAUGE, 1)
            squared[rows] = ODDS_EXPONENT * np.log((2 - gauges) / gauges)
        squared[np.arange(len(own)), own] = 0
        return np.asarray(np.sqrt(squared), dtype=np.float32)

    def components(self, places: Floats) -> tuple[Doubles, Codes]:
        """Return (n, m) components of samples within their classes, and the (n,) classes.

        It is the inverse of `place` for samples with a probability of 1.
        """
        own = cdist(places, self.positions).argmin(axis=1)
        scatter = np.asarray(places - self.positions[own], dtype=np.float64)
        start, room = SCATTERED[0], SCATTERED[1] - SCATTERED[0]
        for j in np.unique(own):
            rows = own == j
            squeezed = _gauge(scatter[rows], self._normals(j)).clip(start, MAX_GAUGE)
            gauges = start - room * np.log1p((start - squeezed) / room)
            scatter[rows] *= (gauges / squeezed)[:, None]
        return scatter / SIZE, own

    def _normals(self, j: int) -> Doubles:
        """(M, m) vectors whose products with a displacement from position j are its gauges."""
        away = self.positions - self.positions[j]
        squared = np.square(away).sum(axis=1, keepdims=True)
        squared[j] = 1
        return np.asarray(2 * away / squared)


def squared_distances(points: Floats, others: Floats) -> Doubles:
    """(n, M) mean squared differences of coordinates between (n, r) points and (M, r) others."""
    a, b = np.asarray(points, dtype=np.float64), np.asarray(others, dtype=np.float64)
    squared = np.square(a).sum(axis=1)[:, None] - 2 * product(a, b.T) + np.square(b).sum(axis=1)
    return np.asarray(np.maximum(squared, 0) / a.shape[1])


def _gauge(displacements: Floats, normals: Floats) -> Doubles:
    """(n,) largest gauges of (n, m) displacements; 0 if no border lies in their direction."""
    return np.asarray(np.maximum(product(displacements, normals.T).max(axis=1), 0))


def _squeeze(displacements: Floats, normals: Floats, start: float, limit: float) -> Doubles:
    """Shorten (n, m) displacements with a gauge above `start`, so that none reaches `limit`."""
    gauges, room = np.maximum(_gauge(displacements, normals), start), limit - start
    squeezed = start - room * np.expm1((start - gauges) / room)
    return np.asarray(displacements * (squeezed / gauges)[:, None])


def _circle(arcs: Doubles, n_components: int) -> Doubles:
    """(M, m) points in the middle of (M,) arcs: of a line, a circle, or a circle that is bent.

    Beside large arcs, a small one moves the other points little.
    """
    angles = (2 * np.pi * (np.cumsum(arcs) - arcs / 2) / arcs.sum())[:, None]
    waves = [wave(i * angles) for i in range(1, n_components + 1) for wave in (np.cos, np.sin)]
    return np.hstack(waves[:n_components]) if n_components > 1 else angles - np.pi


def _multidimensional_scaling(wanted: Doubles, weights: Doubles, target: Doubles) -> Doubles:
    """(M, m) points whose distances are close to the (M, M) wanted ones.

    They are found by SMACOF (de Leeuw 1977). A pair has the product of two of the (M,) weights:
    a class of few samples fits itself to the others, and moves them less. SMACOF starts from the
    first m + 1 axes of classical scaling, turned, mirrored and projected onto a target of (M, m)
    points (Procrustes analysis). There are several good solutions, and each can be turned and
    mirrored; this start mostly finds the same one from other samples of the same classes.
    """
    n, m = target.shape
    centering = np.eye(n) - 1 / n
    products = -0.5 * centering @ np.square(wanted) @ centering
    values, vectors = eigh(products, subset_by_index=[max(n - m - 1, 0), n - 1])
    axes = np.zeros((n, max(m, len(values))))
    axes[:, : len(values)] = vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0))
    left, _, right = np.linalg.svd(axes.T @ target, full_matrices=False)
    # A little of the target, since SMACOF does not separate equal points.
    points = axes @ left @ right
    points += 1e-3 * np.linalg.norm(points) / np.linalg.norm(target) * target
    for _ in range(MOST_STEPS):
        # With such weights, the equations of a step have this solution; it needs no inverse.
        pulls = wanted * (weights / weights.sum()) / np.maximum(cdist(points, points), 1e-12)
        last, points = points, pulls.sum(axis=1, keepdims=True) * points - pulls @ points
        if np.abs(points - last).max() < LEAST_STEP:
            break
    return np.asarray(points)
