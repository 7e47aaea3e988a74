"""Standardisation, and which features are kept: learned from the rows that train, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils import gen_batches
from torch import Tensor

from centroid_encoder.core.matrix import (
    VALUES_AT_ONCE,
    Lazy,
    Matrix,
    is_sparse,
    without_duplicates,
)

Scale = Literal["supervised", "feature", "global", "none"]

CPU = torch.device("cpu")
CHUNK = 4096
"""Rows that are looked at together, at most."""
CACHED = 512
"""Rows of dense data whose moments are taken at once: of 784 features, 3 MB."""


@dataclass(frozen=True)
class Standardizer:
    """z-scores with weights, ``clip((x − mean) / scale) · weight``, fitted on the training rows.

    New data can lie far outside the training range of a nearly constant feature; the clip keeps
    such a value from dominating the map.
    """

    mean: NDArray[np.float64]
    """(d,) what is subtracted."""
    scale: NDArray[np.float64]
    """(d,) what is divided by; 1 for constant features."""
    weight: NDArray[np.float64]
    """(d,) what the z-score is multiplied by; 0 leaves the feature out altogether."""
    clip: float
    """Largest absolute z-score; inf for none."""
    of_networks: NDArray[np.float64] | None = None
    """(K, d) the weights by which each of K networks learns, of which `weight` is the mean; None if
    all learn by that. The axes of `ProjectedRows` make up for the difference."""

    @cached_property
    def kept(self) -> NDArray[np.intp]:
        """(k,) features with a weight: the inputs of the network."""
        return np.flatnonzero(self.weight)

    @classmethod
    def fit(
        cls,
        X: Matrix | Lazy,
        index: NDArray[np.integer],
        codes: NDArray[np.integer],
        scale: Scale,
        clip: float,
        max_features: int | None,
        folds: NDArray[np.integer] | None = None,
    ) -> Standardizer:
        """Learn from the rows `index` of (n, d) data.

        Parameters
        ----------
        X
            Data, dense or CSR.
        index
            (n_train,) rows that count.
        codes
            (n_train,) their class indices.
        scale
            ``"feature"`` divides each feature by its own (population) standard deviation;
            ``"supervised"`` also multiplies it by its correlation ratio with the classes;
            ``"global"`` divides all features by their root mean square deviation, for features
            that share a unit, such as pixels; ``"none"`` leaves the data as they are.
        clip
            Largest absolute z-score.
        max_features
            With ``"supervised"``, how many features of largest weight to keep; None keeps all.
        folds
            (n_train,) with ``"supervised"``, which of the networks side by side is not trained on
            each of these rows. Its weights and its choice of features know nothing of them either.
        """
        ones = np.ones(X.shape[1])
        if scale == "none":
            return cls(np.zeros(X.shape[1]), ones, ones, np.inf)
        groups, n_groups = None, 0
        if scale == "supervised":
            groups, n_groups = _groups(codes, folds)
        scaler, sums = _moments(X, index, groups, n_groups)
        deviation, weight, weights = scaler.scale_, ones, None
        if scale == "global":
            rms = float(np.sqrt(scaler.var_.mean()))
            deviation = np.full(X.shape[1], rms if rms > 0 else 1.0)
        if groups is not None:
            counts = np.bincount(groups, minlength=n_groups)
            weights = _supervised_weights(counts, sums, np.square(deviation), max_features, folds)
            weight = weights[0] if folds is None else _normalized(weights.mean(axis=0))
        return cls(scaler.mean_, deviation, weight, clip, None if folds is None else weights)

    def __call__(self, X: NDArray[Any], device: torch.device = CPU) -> Tensor:
        """Standardise dense (n, d) data to (n, k) float32 inputs on a device.

        Differences are taken in float64: on the device, or on the CPU for one that has none.
        """
        if len(self.kept) < X.shape[1]:
            X = X[:, self.kept]
        exact = CPU if device.type == "mps" else device
        # torch: on all threads, and without a copy for each step.
        z = torch.from_numpy(X.astype(np.float64)).to(exact)
        mean, scale, weight = (
            torch.from_numpy(values[self.kept]).to(exact)
            for values in (self.mean, self.scale, self.weight)
        )
        z.sub_(mean).div_(scale).clamp_(-self.clip, self.clip).mul_(weight)
        return z.float().to(device)

    @property
    def of_kept(self) -> Standardizer:
        """The same for data without the features left out."""
        kept = self.kept
        return Standardizer(self.mean[kept], self.scale[kept], self.weight[kept], self.clip)

    def inverse(self, inputs: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, k) inputs back to (n, d) data; a feature left out gets its mean."""
        X = np.broadcast_to(self.mean, (len(inputs), len(self.mean))).astype(np.float32)
        z = inputs / self.weight[self.kept]
        X[:, self.kept] = z * self.scale[self.kept] + self.mean[self.kept]
        return X


def _groups(
    codes: NDArray[np.integer], folds: NDArray[np.integer] | None
) -> tuple[NDArray[np.integer], int]:
    """(n,) groups of rows by fold and class, and how many there are."""
    n_classes = int(codes.max()) + 1
    if folds is None:
        return codes, n_classes
    return folds * n_classes + codes, n_classes * (int(folds.max()) + 1)


def _moments(
    X: Matrix | Lazy,
    index: NDArray[np.integer],
    groups: NDArray[np.integer] | None,
    n_groups: int,
) -> tuple[StandardScaler, NDArray[np.float64]]:
    """Means and variances of the rows `index`, and (n_groups, d) sums of those of each group.

    In one pass through the data, which may lie on a disk.
    """
    # scikit-learn accumulates in float64 and tells constant features from rounding noise. In
    # chunks, so that no second copy of the data is needed.
    scaler = StandardScaler(with_mean=not is_sparse(X))
    sums = np.zeros((n_groups, X.shape[1]))
    n_rows = CHUNK
    if not is_sparse(X):
        n_rows = min(max(VALUES_AT_ONCE // X.shape[1], CACHED), CHUNK)
    n_chunks = max(1, -(-len(index) // n_rows))
    for chunk in np.array_split(np.arange(len(index)), n_chunks):
        rows: Any = X[index[chunk]]
        n = len(chunk)
        if groups is not None:
            one_hot = sparse.csr_array(
                (np.ones(n), groups[chunk], np.arange(n + 1)), shape=(n, n_groups)
            )
            added: Any = one_hot.T @ rows
            sums += added if isinstance(added, np.ndarray) else added.toarray()
        if is_sparse(X):
            # Of CSR it takes the precision as it is, and each entry for a cell of its own. Before
            # scikit-learn 1.9, the second chunk must have indices of 32 bits.
            rows = without_duplicates(rows.astype(np.float64))
            rows.indices, rows.indptr = (a.astype(np.int32) for a in (rows.indices, rows.indptr))
            scaler.partial_fit(rows)
            continue
        for few in gen_batches(n, CACHED):
            scaler.partial_fit(rows[few])
    return scaler, sums


def _supervised_weights(
    counts: NDArray[np.integer],
    sums: NDArray[np.float64],
    variance: NDArray[np.float64],
    max_features: int | None,
    folds: NDArray[np.integer] | None,
) -> NDArray[np.float64]:
    """(K, d) weights of features: correlation ratios with the classes, the largest ones of them.

    Of each of the K parts of the rows that leave one of the `folds` out; of all rows if there are
    no folds. From the numbers of rows and the sums of each of the `_groups`.
    """
    n_folds = 1 if folds is None else int(folds.max()) + 1
    counts, sums = counts.reshape(n_folds, -1), sums.reshape(n_folds, -1, len(variance))
    if folds is not None:
        counts, sums = counts.sum(axis=0) - counts, sums.sum(axis=0) - sums
    weights = np.empty((n_folds, len(variance)))
    for k in range(n_folds):
        ratio = _correlation_ratio(counts[k], sums[k], variance)
        # Where nothing is related to the classes, all features count the same.
        weights[k] = ratio if ratio.any() else 1
        if max_features is not None and max_features < len(ratio):
            weights[k, np.argsort(-weights[k], kind="stable")[max_features:]] = 0
        weights[k] = _normalized(weights[k])
    return weights


def _normalized(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of unit mean square over the features kept, as z-scores have."""
    return np.asarray(weight / np.sqrt(np.square(weight).sum() / np.count_nonzero(weight)))


def _correlation_ratio(
    counts: NDArray[np.integer], sums: NDArray[np.float64], variance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(d,) correlation ratio of features with the classes, adjusted for chance.

    The square root of Kelley's (1935) ε², the share of a feature's variance that lies between the
    classes, less what as many random classes would be expected to show; 0 where that is negative.
    From (M,) numbers of samples and (M, d) sums of classes, and (d,) variances of features.
    """
    counts, sums = counts[counts > 0], sums[counts > 0]
    n, n_classes = int(counts.sum()), len(counts)
    between = counts @ np.square(sums / counts[:, None] - sums.sum(axis=0) / n) / n
    within = np.maximum(variance - between, 0) / max(n - n_classes, 1)
    share = np.minimum((between - (n_classes - 1) * within) / variance, 1)
    # Rounding errors are no relation.
    return np.sqrt(np.where(share > 1e-9, share, 0))
