"""Places in the plane: the expected position of each sample, plus its scatter.

- Each class has a position. Classes with similar centroids lie near each other, and classes with
  more samples have more room.
- A sample lies at the mean of these positions, weighted by the probabilities of the classes: at the
  position of its class if it is certain, and on the border between two classes of even odds.
- Its scatter is added: its leading components within each class, weighted by the same
  probabilities.
- A sample always lies in the Voronoi cell of its most probable class. One that would lie beyond the
  border is moved back.
- The scatter and the odds of a training sample are computed from other folds (`Placer.of_folds`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.utils.extmath import svd_flip
from torch import Tensor

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Singles
from centroid_encoder.core.discriminant import Discriminant
from centroid_encoder.core.inputs import principal_axes, project
from centroid_encoder.core.layout import DECIMALS, Layout, squared_distances
from centroid_encoder.core.matrix import product

Placement = Literal["voronoi", "bottleneck"]

N_AXES = 20  # principal axes of the common scatter; components of a class lie in their span
PRIOR = 10.0  # weight, in samples, of the common scatter in the covariance of each class
BETWEEN_WEIGHT = 0.15  # weight of the directions to near classes relative to those of the scatter
MOST_CLASSES = 2_000  # the layout of more classes would take minutes
N_FITTED = 20_000  # largest number of samples from which odds are learned
SMOOTHING = 0.3  # pseudo-count of wrong samples when the odds are fitted


@dataclass(frozen=True)
class Scatter:
    """The leading components of the scatter of each class in the standardised inputs."""

    axes: Singles
    """(a, k) orthonormal directions of the inputs."""
    means: Doubles
    """(M, a) coordinates of the centroids along the axes."""
    directions: Doubles
    """(M, m, a) components of each class, divided by √(s t). Here s is the largest standard
    deviation along a component of the class, and t the median of s over all classes. Dividing by
    √(s t) instead of s keeps the clouds of wider classes larger."""

    @classmethod
    def fit(cls, residuals: Tensor, codes: Codes, centroids: Doubles, n_components: int) -> Self:
        """Compute the scatter from (n, k) residuals: inputs minus the centroids of their classes.

        `codes` holds the (n,) classes, and `centroids` the (M, k) centroids. A term for the
        directions to near classes is added to the covariance of each class, so that differences to
        these classes are visible. The components are the leading eigenvectors of this sum.
        """
        found, _ = principal_axes(residuals, min(N_AXES, *residuals.shape))
        along = (residuals @ found.T).cpu().numpy()
        # C order as in a file, because the last digits of products depend on the order in memory.
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
            _, vectors = np.linalg.eigh(within + BETWEEN_WEIGHT * np.trace(within) * between)
            shown = svd_flip(vectors[:, ::-1][:, :n_shown], None)[0].T
            deviations[j] = np.sqrt((shown @ within * shown).sum(axis=1).max(initial=0))
            directions[j, :n_shown] = shown
        scale = np.sqrt(deviations * np.median(deviations))
        directions /= np.where(scale > 0, scale, 1)[:, None, None]
        return cls(axes, means, directions)

    def turned(self, positions: Doubles, room: Doubles) -> Self:
        """Return the scatter turned to (M, m) positions of the classes, and as wide as their room.

        An orthogonal Procrustes rotation of the components of each class aligns the directions to
        the other centroids with the directions to the other positions; near classes have more
        weight. A gradient from one class to another in the data thus has the same direction in the
        plane.
        """
        directions = np.empty_like(self.directions)
        for j, own in enumerate(self.directions):
            away = self.means - self.means[j]
            shown = away @ own.T
            lengths = np.linalg.norm(shown, axis=1) * np.square(away).sum(axis=1)
            shown /= np.maximum(lengths, 1e-12)[:, None]
            left, lengths, right = np.linalg.svd(shown.T @ (positions - positions[j]))
            # Beside a line of classes, the sign of the features says what is up.
            free = lengths < 1e-6 * lengths[0]
            left = left * np.where(free, _sign(left.T @ own @ self.axes), 1)
            right = right * np.where(free, _sign(right), 1)[:, None]
            directions[j] = (left @ right).T @ own * room[j]
        return replace(self, directions=directions)

    def components(self, along: Floats) -> Doubles:
        """(n, M, m) components within each class, from (n, a) coordinates along the axes."""
        # The scatter of a fold can have fewer axes than that of all samples.
        along = along[:, : len(self.axes)]
        found = product(along, self.directions.reshape(-1, along.shape[1]).T)
        of_means = np.einsum("jma,ja->jm", self.directions, self.means)
        return np.asarray(found.reshape(len(along), *of_means.shape) - of_means)

    def inverse(self, components: Floats, codes: Codes) -> Doubles:
        """(n, k) inputs less the centroids of the (n,) classes, computed from (n, m) components."""
        inverse = np.linalg.pinv(self.directions, rcond=1e-6)[codes]
        return np.asarray(np.einsum("jac,jc->ja", inverse, components) @ self.axes)


@dataclass(frozen=True)
class Placer:
    """Maps outputs of the networks to places in the plane."""

    targets: Singles  #: (M, r) outputs that the networks are trained to have for each class
    scatter: Scatter
    layout: Layout
    linear: Discriminant
    sharpness: float = 1.0  #: Decrease of a class's logit per unit of mean squared distance
    voice: float = 0.0  #: Weight of the log-likelihoods of the discriminant analysis
    offsets: Doubles = field(default_factory=lambda: np.zeros(1))  #: (M,) added to the logits
    of_folds: tuple[Placer, ...] = ()
    """Placers of the training samples of each fold, from the other folds; files have none."""

    def project(self, z: Tensor, inputs: Tensor, folds: Codes) -> Singles:
        """(n, a + b) coordinates of (n, k) standardised rows: of `scatter`, and of `linear`.

        Those of a row with k ≥ 0 in (n,) `folds` are of fold k, whose scatter has its axes in the
        (K, n, r) `inputs` of the networks.
        """
        along = np.hstack([project(z, self.scatter.axes), project(z, self.linear.axes)])
        for k in np.unique(folds[folds >= 0]):
            own, of_fold = np.flatnonzero(folds == k), self.of_folds[k]
            a, r = of_fold.scatter.axes.shape
            along[own, :a] = project(inputs[k][own, :r], of_fold.scatter.axes)
            along[own, -len(of_fold.linear.axes) :] = project(z[own], of_fold.linear.axes)
        return along

    def judge(self, outputs: Floats, along: Floats, folds: Codes) -> tuple[Singles, Singles]:
        """(n, m) places of samples, and their (n, M) distances to the classes.

        The squared distances are the log odds of the most probable class against each class.
        `outputs` holds (n, r) outputs of the networks, and `along` the result of `project`.
        `folds` holds the (n,) folds of training samples, and −1 for all others.
        """
        places = np.empty((len(folds), self.layout.positions.shape[1]), np.float32)
        distances = np.empty((len(folds), len(self.targets)), np.float32)
        for k in np.unique(folds):
            own, placer = folds == k, self if k < 0 else self.of_folds[k]
            logits = placer.logits(outputs[own], along[own])
            places[own], distances[own] = placer.judge_logits(logits, along[own])
        return places, distances

    def judge_logits(self, logits: Floats, along: Floats) -> tuple[Singles, Singles]:
        """Do the same as `judge` for (n, M) logits of the classes."""
        own, rows = logits.argmax(axis=1), np.arange(len(logits))
        places = self.layout.place(logits, self.scatter.components(along))
        odds = logits[rows, own][:, None] - logits
        # Round as for places, but not to 0: only the most probable class has the distance 0.
        odds = np.maximum(odds.round(DECIMALS), 10.0**-DECIMALS)
        odds[rows, own] = 0
        return places, np.sqrt(odds).astype(np.float32)

    def logits(self, outputs: Floats, along: Floats) -> Doubles:
        """(n, M) logits of the classes; the arguments are those of `judge`."""
        squared, likelihoods = self.evidence(outputs, along)
        return self.offsets - self.sharpness * squared + self.voice * likelihoods

    def evidence(self, outputs: Floats, along: Floats) -> tuple[Doubles, Doubles]:
        """(n, M) distances of the outputs to the targets, and log-likelihoods of the analysis."""
        along = along[:, along.shape[1] - len(self.linear.axes) :]
        return squared_distances(outputs, self.targets), self.linear.likelihoods(along)

    def with_odds(
        self,
        outputs: Floats,
        along: Floats,
        codes: Codes,
        weights: Floats,
        folds: Codes,
        is_new: bool = True,
    ) -> Placer:
        """Maximise the likelihood of the (n,) classes of samples that the networks have not seen.

        `outputs`, `along` and `folds` are those of `judge`, and `weights` holds (n,) weights; the
        odds of each fold are computed from the other folds. The networks and the discriminant
        analysis have the weights that fit these samples together; the analysis has none unless
        `is_new`, since it fits samples that it has seen too well. The wanted probabilities are
        smoothed as in Platt (1999), but less (`SMOOTHING`), so that none is 1 even without errors.
        """
        squared, likelihoods = np.empty((2, len(codes), len(self.targets)))
        for k in np.unique(folds):
            own, placer = folds == k, self if k < 0 else self.of_folds[k]
            squared[own], likelihoods[own] = placer.evidence(outputs[own], along[own])
        # The odds of each fold, and those of new samples.
        some = [folds != k for k in range(len(self.of_folds))] + [np.ones(len(folds), bool)]
        placers = [
            placer._with_odds(squared[at], likelihoods[at], codes[at], weights[at], is_new)
            for placer, at in zip([*self.of_folds, self], some, strict=True)
        ]
        return replace(placers[-1], of_folds=tuple(placers[:-1]))

    def _with_odds(
        self, squared: Doubles, likelihoods: Doubles, codes: Codes, weights: Floats, is_new: bool
    ) -> Placer:
        n, n_classes = squared.shape
        shares = weights[:, None] / max(weights.sum(), np.finfo(float).tiny)
        doubt = SMOOTHING / (n + 2)
        wanted = np.full((n, n_classes), doubt / max(n_classes - 1, 1))
        wanted[np.arange(n), codes] = 1 - doubt

        def loss(parameters: Doubles) -> tuple[float, Doubles]:
            sharpness, voice, offsets = np.exp(parameters[0]), parameters[1], parameters[2:]
            logits = offsets - sharpness * squared + voice * likelihoods
            log_probabilities = log_softmax(logits, axis=1)
            excess = (np.exp(log_probabilities) - wanted) * shares
            # A weak prior keeps the offsets of small classes near 0.
            value = np.square(offsets).sum() / 200 - (shares * wanted * log_probabilities).sum()
            slopes = -sharpness * (excess * squared).sum(), (excess * likelihoods).sum()
            return float(value), np.append(slopes, excess.sum(axis=0) + offsets / 100)

        bounds = [(-7.0, 7.0), (0.0, 5.0 * is_new)] + [(-5.0, 5.0)] * n_classes
        # L-BFGS-B uses the threads of NumPy, which slow down those of torch (see `product`).
        best = minimize(loss, np.zeros(n_classes + 2), jac=True, method="TNC", bounds=bounds)
        sharpness, voice = float(np.exp(best.x[0])), float(best.x[1])
        return replace(self, sharpness=sharpness, voice=voice, offsets=np.asarray(best.x[2:]))


def _sign(vectors: Doubles) -> Doubles:
    """(n,) signs that make the large entries of (n, k) vectors positive."""
    return np.where((vectors**3).sum(axis=1) < 0, -1.0, 1.0)
