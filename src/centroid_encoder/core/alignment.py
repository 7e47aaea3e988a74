"""Samples of another protocol, depth or normalisation, brought to the scale of the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from centroid_encoder.core.standardization import Standardizer

PRIOR = 20
"""Weight of the training's own mean and spread, in samples: a few samples move nothing."""
LEAST_SPREAD = 0.1
"""Of that in the training; a feature that hardly varies is not blown up beyond it."""


@dataclass(frozen=True)
class Alignment:
    """Gives each feature of new samples the mean and the spread that it had in the training.

    What a whole batch has in common goes, be it of a technical kind or not: it is right for samples
    of the same kinds in similar shares as in the training, and wrong for a single sorted kind.
    """

    shift: NDArray[np.float64]
    """(d,) how much larger the mean of each feature is than in the training."""
    factor: NDArray[np.float64]
    """(d,) how much larger its spread is."""
    mean: NDArray[np.float64]
    """(d,) the training's means."""

    @classmethod
    def fit(cls, X: NDArray[Any], standardizer: Standardizer) -> Self:
        """Learn from (n, d) new samples, NaN where a feature is missing.

        Features that share a unit, which the training has divided by one common spread, are divided
        by one here, too.
        """
        z = (X - standardizer.mean) / standardizer.scale
        there = np.isfinite(z)
        n = there.sum(axis=0)
        z[~there] = 0
        weight = n / (n + PRIOR)
        mean = z.sum(axis=0) / np.maximum(n, 1)
        variance = np.square(z - mean).sum(axis=0, where=there) / np.maximum(n, 1)
        if len(variance) > 1 and np.ptp(standardizer.scale) == 0:
            variance[n > 0] = variance[n > 0].mean()
        variance = weight * variance + (1 - weight)
        return cls(
            weight * mean * standardizer.scale,
            np.maximum(np.sqrt(variance), LEAST_SPREAD),
            standardizer.mean,
        )

    def __call__(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return (n, d) aligned samples; NaN stays."""
        aligned: NDArray[np.float64] = (X - self.mean - self.shift) / self.factor + self.mean
        return aligned
