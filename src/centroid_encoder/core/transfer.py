"""The error to expect where a map places cells of another sample."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from centroid_encoder.core.arrays import Codes, Floats, Mask
from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.matrix import chunks

N_ROUNDS = 3
PRIOR = 10.0  # in cells; a class of fewer cells counts less in the mean of the residuals
LEAST = 0.5  # so that a shift of few cells is small


@torch.no_grad()
def changed_by_recentring(map_: FittedMap, z: Tensor) -> Mask:
    """(n,) mask of (n, k) standardised rows that have another class after re-centring.

    Re-centring subtracts the mean of the classes' mean residuals: how far the rows of a class lie
    from its centroid. A shift of the whole sample is in all of these means, whatever the
    frequencies of the classes. It is computed in three rounds, since it changes the classes. A row
    counts in each class by its probability, and more if its class is certain.
    """
    centroids = torch.from_numpy(map_.targets.centroids()).to(z.device)
    probabilities, before = _judged(map_, z)
    now = before
    for _ in range(N_ROUNDS):
        weights = probabilities * probabilities.max(axis=1, keepdims=True)
        sizes = weights.sum(axis=0)
        shares = np.where(sizes >= 1, sizes / (sizes + PRIOR), 0)
        shares /= np.maximum(sizes, 1) * (shares.sum() + LEAST)
        # The sum over the classes of the shares of their mean residuals, as two products.
        of_rows, of_classes = (
            torch.from_numpy(x.astype(np.float32)).to(z.device)
            for x in (weights @ shares, sizes * shares)
        )
        shift = of_rows @ z - of_classes @ centroids
        probabilities, now = _judged(map_, z - shift)
    return np.asarray(now != before)


def _judged(map_: FittedMap, z: Tensor) -> tuple[Floats, Codes]:
    """(n, M) probabilities and (n,) classes of (n, k) standardised rows."""
    parts = [map_.judge_inputs(*map_.read(z[part]))[1] for part in chunks(len(z))]
    distances = np.concatenate(parts)
    return map_.calibration.probabilities(distances), distances.argmin(axis=1)
