"""From data to the inputs of the networks: z-scores, weights of features, principal axes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import pad

from centroid_encoder.core.matrix import Codes, Lazy, Matrix, is_sparse, row_chunks

Scale = Literal["supervised", "feature", "global"]

NONE: Codes = np.empty(0, dtype=np.intp)
CPU = torch.device("cpu")
N_MORE = 10
"""Directions in the search for principal axes beyond those that are wanted."""
N_ITERATIONS = 2
"""Power iterations of the search. With so few, the last of a hundred axes are inexact."""


@dataclass(frozen=True)
class Standardizer:
    """z-scores with weights, ``clip((x − mean) / scale) · weight``, fitted to the training rows.

    New data can lie far outside the training range of a nearly constant feature; the clip keeps
    such a value from dominating the map.
    """

    mean: NDArray[np.float64]
    """(d,)"""
    scale: NDArray[np.float64]
    """(d,) standard deviations; 1 for constant features."""
    weight: NDArray[np.float64]
    """(d,) factor of each z-score; features of weight 0 are left out."""
    clip: float
    """Largest absolute z-score; inf for none."""

    @cached_property
    def kept(self) -> Codes:
        """(k,) features with a weight."""
        return np.flatnonzero(self.weight)

    def __call__(self, X: Matrix, device: torch.device = CPU) -> Tensor:
        """Standardise (n, d) rows, dense or CSR, to an (n, k) float32 tensor on a device.

        Differences are taken in float64: on the device, or on the CPU for one that has none.
        """
        rows: Any = X[:, self.kept] if len(self.kept) < X.shape[1] else X
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        exact = CPU if device.type == "mps" else device
        # The last digits of products depend on the order in memory.
        z = torch.from_numpy(rows.astype(np.float64, order="C")).to(exact)
        mean, scale, weight = (
            torch.from_numpy(values[self.kept]).to(exact)
            for values in (self.mean, self.scale, self.weight)
        )
        z.sub_(mean).div_(scale).clamp_(-self.clip, self.clip).mul_(weight)
        return z.float().to(device)

    def inverse(self, inputs: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, k) standardised rows back to (n, d) data; a feature left out gets its mean."""
        X = np.broadcast_to(self.mean, (len(inputs), len(self.mean))).astype(np.float32)
        z = inputs / self.weight[self.kept]
        X[:, self.kept] = z * self.scale[self.kept] + self.mean[self.kept]
        return X


def fit_standardizer(
    X: Matrix | Lazy,
    rows: Codes,
    codes: Codes,
    scale: Scale,
    clip: float,
    max_features: int | None,
    folds: Codes | None = None,
    sample: Codes = NONE,
) -> tuple[Standardizer, NDArray[np.float64], Any]:
    """Compute the standardisation from (n_train,) sorted rows of X, in one pass.

    `codes` holds their classes; `scale`, `clip` and `max_features` are as `CentroidEncoder`
    documents them, but `clip` may be inf. `folds` holds for each row the one of K networks that is
    not trained on it: weights and choice of features of a network then come from the rows that it
    is trained on.

    Returns the standardizer, whose weights are the means over the networks; the (K, k) weight of
    each network for each kept feature, divided by that mean; and the rows of `sample`, sorted
    indices into `rows`, as they are in X.
    """
    n_features, n_networks = X.shape[1], 1 if folds is None else int(folds.max()) + 1
    n_classes = int(codes.max()) + 1
    cells = codes if folds is None else folds * n_classes + codes
    n_cells = n_networks * n_classes if scale == "supervised" else 0
    scaler, sums, sampled = _moments(X, rows, cells, n_cells, sample)
    deviation, weights = scaler.scale_, np.ones((n_networks, n_features))
    if scale == "global":
        rms = float(np.sqrt(scaler.var_.mean()))
        deviation = np.full(n_features, rms if rms > 0 else 1.0)
    if scale == "supervised":
        counts = np.bincount(cells, minlength=n_cells).reshape(n_networks, n_classes)
        sums = sums.reshape(n_networks, n_classes, n_features)
        if folds is not None:
            counts, sums = counts.sum(axis=0) - counts, sums.sum(axis=0) - sums
        for k in range(n_networks):
            ratio = correlation_ratio(counts[k], sums[k], np.square(deviation))
            # All features count the same where no feature is related to the classes.
            weights[k] = ratio if ratio.any() else 1
            if max_features is not None and max_features < n_features:
                weights[k, np.argsort(-weights[k], kind="stable")[max_features:]] = 0
            weights[k] = _normalized(weights[k])
    weight = _normalized(weights.mean(axis=0)) if n_networks > 1 else weights[0]
    if not np.isfinite(deviation).all():
        raise ValueError("X holds values too large to be standardised; rescale it")
    standardizer = Standardizer(scaler.mean_, deviation, weight, clip)
    return standardizer, weights[:, standardizer.kept] / weight[standardizer.kept], sampled


def _moments(
    X: Matrix | Lazy, rows: Codes, cells: Codes, n_cells: int, sample: Codes
) -> tuple[StandardScaler, NDArray[np.float64], Any]:
    """Moments of rows, (n_cells, d) sums by cell of fold and class, and the rows of a sample."""
    # scikit-learn accumulates in float64 and separates constant features from rounding noise.
    scaler = StandardScaler(with_mean=not is_sparse(X))
    sums = np.zeros((n_cells, X.shape[1]))
    sampled: list[Any] = []
    for part, chunk in row_chunks(X, rows):
        first, last = np.searchsorted(sample, (part.start, part.stop))
        sampled.append(chunk[sample[first:last] - part.start])
        if n_cells:
            sums += class_sums(chunk, cells[part], n_cells)
        if sparse.issparse(chunk):
            # Before scikit-learn 1.9, the second chunk must have indices of 32 bits.
            chunk = chunk.astype(np.float64)
            chunk.sum_duplicates()
            chunk.indices, chunk.indptr = (
                x.astype(np.int32) for x in (chunk.indices, chunk.indptr)
            )
        scaler.partial_fit(chunk)
    joined = sparse.vstack(sampled, format="csr") if is_sparse(X) else np.concatenate(sampled)
    return scaler, sums, joined


def class_sums(z: Any, codes: Codes, n: int) -> NDArray[np.float64]:
    """(n, k) sums of (b, k) dense or CSR rows over the classes, in the same order each time."""
    members = np.ones(len(codes)), codes, np.arange(len(codes) + 1)
    one_hot: Any = sparse.csr_array(members, shape=(len(codes), n))
    sums: Any = one_hot.T @ z
    return np.asarray(sums if isinstance(sums, np.ndarray) else sums.toarray(), dtype=np.float64)


def _normalized(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of unit mean square over the features kept, as z-scores have."""
    return np.asarray(weight / np.sqrt(np.square(weight).sum() / np.count_nonzero(weight)))


def correlation_ratio(
    counts: Codes, sums: NDArray[np.float64], variance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(d,) correlation ratio of features with the classes, adjusted for chance.

    The square root of Kelley's (1935) ε²: the share of a feature's variance between the classes,
    minus its expectation for random classes; 0 where that is negative. The arguments are (M,)
    numbers of samples and (M, d) sums of the classes, and (d,) variances of the features.
    """
    counts, sums = counts[counts > 0], sums[counts > 0]
    n, n_classes = int(counts.sum()), len(counts)
    away = np.square(sums / counts[:, None] - sums.sum(axis=0) / n)
    between = (counts[:, None] * away).sum(axis=0) / n
    within = np.maximum(variance - between, 0) / max(n - n_classes, 1)
    share = np.minimum((between - (n_classes - 1) * within) / variance, 1)
    # A share this small is a rounding error.
    return np.sqrt(np.where(share > 1e-9, share, 0))


def principal_axes(inputs: Tensor, n_axes: int) -> tuple[Tensor, Tensor]:
    """Find the leading right singular vectors of (n, k) inputs, the same each time.

    By the randomised search of Halko, Martinsson & Tropp (2011, algorithm 4.3), with a random
    generator of its own. Returns (n_axes, k) orthonormal directions, at most n and k, and (n_axes,)
    singular values, the largest first, where the inputs are.
    """
    n_sought = min(n_axes + N_MORE, *inputs.shape)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(inputs.shape[1], n_sought, generator=generator, dtype=inputs.dtype)
    found = inputs @ start.to(inputs.device)
    for _ in range(N_ITERATIONS):
        found, _ = torch.linalg.qr(inputs.T @ found)
        found = inputs @ found
    found, _ = torch.linalg.qr(found)
    # The singular vectors of a small triangle take a fifth of the time of those of many columns.
    found, triangle = torch.linalg.qr(inputs.T @ found)
    vectors, values, _ = torch.linalg.svd(triangle)
    return (found @ vectors[:, :n_axes]).T.contiguous(), values[:n_axes]


def network_axes(z: Tensor, share: NDArray[np.float64], n: int) -> Tensor:
    """(r, k) axes along which a network receives the features, r = min(n, k).

    They are the principal axes of (s, k) standardised rows that it is trained on, where (k,)
    `share` is the weight of the network for each feature relative to that in `z`. No more than `n`
    features are received as they are, times these weights.
    """
    factor = torch.tensor(share, dtype=torch.float32, device=z.device)
    if z.shape[1] <= n:
        return torch.diag(factor)
    axes, _ = principal_axes(z * factor, min(n, len(z)))
    # Fewer rows than axes have zeros for the rest.
    return pad(axes * factor, (0, 0, 0, n - len(axes)))


def on_axes(z: Tensor, axes: Tensor | None) -> Tensor:
    """Inputs of K networks for (n, k) standardised rows along (K, r, k) axes: (K, n, r).

    One network receives (n, r), and (n, k) without axes.
    """
    if axes is None:
        return z
    return z @ axes[0].T if len(axes) == 1 else z @ axes.mT


def noise_on_axes(z: Tensor, axes: Tensor, dropout: float) -> Tensor:
    """(K, r, r) square roots of the covariance on the axes that dropout of the features has.

    Dropout of a share p of the features adds to each row noise of the covariance
    A diag(E[z²] p / (1 − p)) Aᵀ, where A are the axes. A square root L has L Lᵀ equal to that.
    """
    variance = z.square().mean(dim=0) * dropout / (1 - dropout)
    values, vectors = torch.linalg.eigh(((axes * variance) @ axes.mT).double().cpu())
    roots: Tensor = vectors * values.clamp_min(0).sqrt()[:, None]
    return roots.float().to(z.device)
