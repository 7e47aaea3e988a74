"""Choice of a few features that separate all classes.

Features are chosen one after the other. Each is the one with which the Bhattacharyya bound on the
error of separating two classes, summed over all pairs of classes, becomes smallest; the classes
are taken for Gaussians with a common covariance (Fukunaga, Introduction to Statistical Pattern
Recognition, 2nd edition, 1990, section 3.4). A feature that repeats the chosen ones gains nothing,
and pairs of classes that are well apart hardly count. A smaller panel is the start of a larger one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from sklearn.utils import gen_batches

from centroid_encoder.core.arrays import Codes
from centroid_encoder.core.inputs import NONE, class_sums, fit_standardizer
from centroid_encoder.core.matrix import VALUES_AT_ONCE, Matrix
from centroid_encoder.core.splits import representatives

N_CANDIDATES = 2000  # features most related to the classes, among which the panel is chosen
N_ROWS, N_OF_CLASS = 20_000, 20  # largest number of rows, and smallest number of each class
CLIP = 10.0  # largest absolute z-score
RIDGE = 0.1
"""Addition to the variances within the classes, in units of the variance of a feature."""


def choose_features(
    X: Matrix, codes: Codes, n: int, step: Callable[[], None], first: Codes = NONE
) -> Codes:
    """(n,) indices of features that together separate the classes, the best first.

    `codes` holds the classes of the rows of X, −1 for rows that take no part. `step` is called
    before each choice. The features `first` are chosen before all others.
    """
    rows = np.flatnonzero(codes >= 0)
    rows = rows[representatives(codes[rows], N_ROWS, N_OF_CLASS, np.random.default_rng(0))]
    X, codes = X[rows], np.unique(codes[rows], return_inverse=True)[1]
    every = np.arange(len(rows))
    standardizer, *_ = fit_standardizer(X, every, codes, "supervised", CLIP, N_CANDIDATES)
    weight = standardizer.weight
    takes_part = np.sign(weight)
    takes_part[first] = 1
    standardizer = replace(standardizer, weight=takes_part)
    z, candidates = standardizer(X), standardizer.kept
    given = np.searchsorted(candidates, first).tolist()
    sizes = np.bincount(codes)
    # Differences of classes and variances that the chosen features do not explain.
    centers = class_sums(z.numpy(), codes, len(sizes)) / sizes[:, None]
    z -= torch.from_numpy(centers).float()[torch.from_numpy(codes)]
    variances = z.square().mean(dim=0).double().numpy() + RIDGE
    left, right = np.triu_indices(len(sizes), 1)
    pairs = (sizes[left] * sizes[right]) ** 0.25
    chosen: list[int] = []
    apart, factors = np.zeros(len(left)), np.zeros((0, len(candidates)))
    for _ in range(min(n, len(candidates))):
        step()
        bound = np.empty(len(candidates))
        for some in gen_batches(len(bound), max(1, VALUES_AT_ONCE // 16 // len(left))):
            gains = (centers[left, some] - centers[right, some]) ** 2 / variances[some]
            bound[some] = pairs @ np.exp(-(apart[:, None] + gains) / 8)
        bound[chosen] = np.inf
        best = given[len(chosen)] if len(chosen) < len(given) else int(bound.argmin())
        chosen.append(best)
        # A step of the Cholesky factorisation of the covariance within the classes.
        factor = (z.T @ z[:, best]).double().numpy() / len(z) - factors[:, best] @ factors
        factor[best] = variances[best]
        factor /= np.sqrt(variances[best])
        scaled = centers[:, best] / factor[best]
        apart = apart + (scaled[left] - scaled[right]) ** 2
        centers = centers - np.outer(scaled, factor)
        variances = np.maximum(variances - factor**2, RIDGE)
        factors = np.vstack([factors, factor])
    others = np.argsort(-weight, kind="stable")
    others = others[~np.isin(others, candidates[chosen])]
    return np.append(candidates[chosen], others)[:n]
