"""Linear discriminant analysis of the z-scores, a second opinion beside the networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Singles
from centroid_encoder.core.inputs import class_sums

N_AXES = 150  # with more features, the analysis receives their leading principal axes
FAR = 1e3  # coordinate of the mean of a class without samples
LEAST = -30.0  # smallest log-likelihood, relative to that of the most probable class


@dataclass(frozen=True)
class Discriminant:
    """Directions along which the classes differ, and the means of the classes."""

    axes: Singles
    """(b, k) directions of the inputs, along which the variance within the classes is about 1."""
    means: Doubles
    """(M, b) coordinates of the class means along the axes."""

    @classmethod
    def fit(cls, z: Tensor, axes: Tensor, codes: Codes, n_classes: int) -> Self:
        """Analyse (s, k) standardised rows of (s,) classes along (a, k) axes; b = min(M − 1, a).

        The covariance within the classes is shrunk (Ledoit & Wolf 2004).
        """
        points, sizes = (z @ axes.T).double().cpu(), np.bincount(codes, minlength=n_classes)
        sums = torch.from_numpy(class_sums(points.numpy(), codes, n_classes))
        means = sums / torch.from_numpy(sizes.clip(1))[:, None]
        values, vectors = torch.linalg.eigh(shrunk_covariance(points - means[codes]))
        whitening = vectors / values.clamp_min(1e-6 * max(float(values[-1]), 1)).sqrt()
        roots = torch.from_numpy(np.sqrt(sizes))[:, None]
        away = (means - points.mean(dim=0)) * roots @ whitening
        directions = torch.linalg.svd(away, full_matrices=False)[2][: n_classes - 1]
        shown = whitening @ directions.T
        found = (means @ shown).numpy()
        found[sizes == 0] = FAR
        return cls((shown.T @ axes.double().cpu()).float().numpy(), found)

    def distances(self, along: Floats) -> Doubles:
        """(n, M) halves of the squared Mahalanobis distances of (n, b) coordinates to the means."""
        return np.asarray(cdist(along, self.means, "sqeuclidean") / 2)

    def likelihoods(self, along: Floats) -> Doubles:
        """(n, M) log-likelihoods of (n, b) coordinates, less the largest; none is below `LEAST`."""
        distances = self.distances(along)
        less = distances - distances.min(axis=1, keepdims=True)
        # Smooth, so that the places of cells far away do not have kinks.
        return np.asarray(LEAST * np.tanh(less / -LEAST))


def shrunk_covariance(residuals: Tensor) -> Tensor:
    """(a, a) covariance of (s, a) residuals, shrunk to a multiple of the identity.

    The share of the identity is that of Ledoit & Wolf (2004). scikit-learn's function gives the
    same, but the threads of NumPy then slow down those of torch (see `product`).
    """
    n, n_axes = residuals.shape
    covariance = residuals.T @ residuals / n
    mean, size = covariance.trace() / n_axes, covariance.square().sum()
    noise = (residuals.square().sum(dim=1).square().mean() - size) / n
    spread = size - n_axes * mean.square()
    share = 0.0 if spread <= 0 else float((noise / spread).clamp(0, 1))
    return (1 - share) * covariance + share * mean * torch.eye(n_axes, dtype=residuals.dtype)
