"""What the networks receive: weighted z-scores along axes, ramps of the features, and noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import pad

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Singles
from centroid_encoder.core.matrix import Lazy, Matrix, is_sparse, row_chunks

Scale = Literal["auto", "supervised", "feature", "global"]

N_AXES = 100  # with more features, the networks receive their principal axes
RICH = 10, 10_000
"""Smallest number of training rows for each feature, and largest in all, with which networks
receive discriminant axes and ramps of the features. With fewer they overfit; with more, they learn
them by themselves."""
N_RAMPS = 6
LEAST_STEP = 0.05  # smallest distance of two knots, relative to that of the outer quantiles
OF_DISCRIMINANT = 0.5
"""Standard deviation within the classes along a discriminant axis."""
FEW = 1_000
"""With fewer training rows, weights of at most `N_AXES` features must help neighbours."""
N_NEIGHBORS = 5
LEAST_GAIN = 2.0  # standard errors by which neighbours must be better with the weights
NONE: Codes = np.empty(0, dtype=np.intp)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Standardizer:
    """Weighted z-scores, ``clip((x − mean) / scale) · weight``, fitted to the training rows.

    New data can lie far outside the training range of a nearly constant feature. The clip keeps
    such a value from dominating the map.
    """

    mean: Doubles  #: (d,)
    scale: Doubles  #: (d,) standard deviations; 1 for constant features
    weight: Doubles  #: (d,) factor of each z-score; 0 for features that are left out
    clip: float  #: Largest absolute z-score; inf for no limit

    @cached_property
    def kept(self) -> Codes:
        """(k,) indices of the features that are not left out."""
        return np.flatnonzero(self.weight)

    def __call__(self, X: Matrix, device: torch.device = CPU) -> Tensor:
        """Standardise (n, d) rows, dense or CSR, to an (n, k) float32 tensor on a device.

        The computation is in float64 on the device, or on the CPU if the device has no float64.
        """
        rows: Any = X[:, self.kept] if len(self.kept) < X.shape[1] else X
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        exact = CPU if device.type == "mps" else device
        # C order, because the last digits of later products depend on the order in memory.
        z = torch.from_numpy(rows.astype(np.float64, order="C")).to(exact)
        mean, scale, weight = (
            torch.from_numpy(values[self.kept]).to(exact)
            for values in (self.mean, self.scale, self.weight)
        )
        z.sub_(mean).div_(scale).clamp_(-self.clip, self.clip).mul_(weight)
        return z.float().to(device)

    def inverse(self, inputs: Floats) -> Singles:
        """Map (n, k) standardised rows back to (n, d) data; features left out get their means."""
        X = np.broadcast_to(self.mean, (len(inputs), len(self.mean))).astype(np.float32)
        z = inputs / self.weight[self.kept]
        X[:, self.kept] = z * self.scale[self.kept] + self.mean[self.kept]
        return X


@dataclass(frozen=True)
class Inputs:
    """Computes what the networks receive from the data."""

    standardizer: Standardizer
    axes: Tensor | None = None
    """(K, r, k) axes along which each network receives the features; None for the features. The
    first are those of `network_axes`; `discriminant_axes` may follow."""
    knots: Tensor | None = None
    """(q, k) knots of the ramps, or None without ramps."""

    @property
    def n(self) -> int:
        """Number of inputs of a network."""
        n_features = len(self.standardizer.kept)
        n_ramps = 0 if self.knots is None else (len(self.knots) - 1) * n_features
        return n_ramps + (n_features if self.axes is None else self.axes.shape[1])

    def __call__(self, z: Tensor) -> Tensor:
        """(K, n, r) inputs of K networks for (n, k) standardised rows; (n, r) for one network."""
        if self.axes is None:
            return z
        inputs = z @ self.axes.mT
        if self.knots is not None:
            # The first axes are the features, multiplied by the shares of the network.
            shares = self.axes.diagonal(dim1=1, dim2=2).repeat(1, len(self.knots) - 1)
            inputs = torch.cat([inputs, _ramps(z, self.knots) * shares[:, None]], dim=-1)
        return inputs[0] if len(self.axes) == 1 else inputs

    def noise(self, z: Tensor, dropout: float) -> Tensor | None:
        """(K, r, r) matrices L of Gaussian noise that is equivalent to dropout of features.

        Dropout of a share p of the features adds noise to each row, with the covariance
        L Lᵀ = A diag(E[z²] p / (1 − p)) Aᵀ on the axes A. `z` holds (n, k) standardised rows.
        Returns None if the networks receive the features themselves.
        """
        if self.axes is None or z.shape[1] <= N_AXES or not dropout:
            return None
        variance = z.square().mean(dim=0) * dropout / (1 - dropout)
        values, vectors = torch.linalg.eigh(((self.axes * variance) @ self.axes.mT).double().cpu())
        roots: Tensor = vectors * values.clamp_min(0).sqrt()[:, None]
        return roots.float().to(z.device)


def fit_standardizer(
    X: Matrix | Lazy,
    rows: Codes,
    codes: Codes,
    scale: Scale,
    clip: float,
    max_features: int | None,
    folds: Codes | None = None,
    sample: Codes = NONE,
) -> tuple[Standardizer, Doubles, Any]:
    """Compute the standardisation from (n_train,) sorted rows of X, in one pass.

    `codes` holds the classes of the rows. `scale`, `clip` and `max_features` are those of
    `CentroidEncoder`, with inf for no clip; ``"auto"`` without folds is ``"supervised"``. `folds`
    holds for each row the one of K networks that is not trained on it; each network then has
    weights computed from the rows it is trained on.

    Returns the standardizer, whose weights are the means over the networks; the (K, k) weight of
    each network for each kept feature, divided by that mean; and the rows of X at `rows[sample]`,
    where `sample` is sorted.
    """
    n_features, n_networks = X.shape[1], 1 if folds is None else int(folds.max()) + 1
    n_classes = int(codes.max()) + 1
    # A group is the rows of one fold and one class.
    groups = codes if folds is None else folds * n_classes + codes
    is_weighted = scale in ("auto", "supervised")
    n_groups = n_networks * n_classes if is_weighted else 0
    # scikit-learn accumulates in float64 and distinguishes constant features from rounding errors.
    scaler, sums = StandardScaler(with_mean=not is_sparse(X)), np.zeros((n_groups, n_features))
    parts: list[Any] = []
    for part, chunk in row_chunks(X, rows):
        first, last = np.searchsorted(sample, (part.start, part.stop))
        parts.append(chunk[sample[first:last] - part.start])
        if n_groups:
            sums += class_sums(chunk, groups[part], n_groups)
        if sparse.issparse(chunk):
            # scikit-learn before 1.9 needs indices of 32 bits from the second chunk on.
            chunk = chunk.astype(np.float64)
            chunk.sum_duplicates()
            chunk.indices, chunk.indptr = (
                x.astype(np.int32) for x in (chunk.indices, chunk.indptr)
            )
        scaler.partial_fit(chunk)
    sampled = sparse.vstack(parts, format="csr") if is_sparse(X) else np.concatenate(parts)
    deviation, weights = scaler.scale_, np.ones((n_networks, n_features))
    if scale == "global":
        rms = float(np.sqrt(scaler.var_.mean()))
        deviation = np.full(n_features, rms if rms > 0 else 1.0)
    if is_weighted:
        counts = np.bincount(groups, minlength=n_groups).reshape(n_networks, n_classes)
        of_groups = sums.reshape(n_networks, n_classes, n_features)
        if folds is not None:
            counts, of_groups = counts.sum(axis=0) - counts, of_groups.sum(axis=0) - of_groups
        for k in range(n_networks):
            ratio = correlation_ratio(counts[k], of_groups[k], np.square(deviation))
            # If no feature is related to the classes, all have the same weight.
            weights[k] = ratio if ratio.any() else 1
            if max_features is not None and max_features < n_features:
                weights[k, np.argsort(-weights[k], kind="stable")[max_features:]] = 0
            weights[k] = _normalized(weights[k])
    weight = _normalized(weights.mean(axis=0)) if n_networks > 1 else weights[0]
    if not np.isfinite(deviation).all():
        raise ValueError("X holds values too large to be standardised; rescale it")
    standardizer = Standardizer(scaler.mean_, deviation, weight, clip)
    is_small = n_features <= min(N_AXES, max_features or N_AXES) and len(rows) < FEW
    if scale == "auto" and folds is not None and is_small:
        # The scale of a constant feature is 1 instead of the root of its variance.
        varies = np.isclose(np.square(deviation), scaler.var_)
        equal = replace(standardizer, weight=np.where(varies | ~varies.any(), 1.0, 0.0))
        of_kept = weights[:, equal.kept]
        if not weights_help(equal(sampled), codes[sample], folds[sample], of_kept):
            standardizer, weights = equal, np.ones_like(weights)
    kept = standardizer.kept
    return standardizer, weights[:, kept] / standardizer.weight[kept], sampled


def weights_help(z: Tensor, codes: Codes, folds: Codes, weights: Doubles) -> bool:
    """Return whether more neighbours of (n, d) rows have the class of the row with the weights.

    The neighbours of a row are in other folds than the row, and so are the rows from which the
    weights of its fold, a row of the (K, d) `weights`, were computed. The loss of a row is the
    negative log of the share of its class among five neighbours, smoothed by half a neighbour. The
    weights help if the mean loss is less by two standard errors.
    """
    gains = np.zeros(len(z))
    for k, weight in enumerate(weights):
        known, own = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
        losses = []
        for factor in (torch.ones(len(weight)), torch.from_numpy(weight).float()):
            apart = torch.cdist(z[own] * factor, z[known] * factor)
            near = apart.topk(min(N_NEIGHBORS, len(known)), largest=False).indices.numpy()
            same = (codes[known][near] == codes[own][:, None]).sum(axis=1)
            losses.append(-np.log((same + 0.5) / (near.shape[1] + 1)))
        gains[own] = losses[0] - losses[1]
    return bool(gains.mean() > LEAST_GAIN * gains.std() / np.sqrt(len(gains)))


def class_sums(z: Any, codes: Codes, n: int) -> Doubles:
    """(n, k) sums of (b, k) dense or CSR rows over n classes; repeated calls give the same bits."""
    members = np.ones(len(codes)), codes, np.arange(len(codes) + 1)
    one_hot: Any = sparse.csr_array(members, shape=(len(codes), n))
    sums: Any = one_hot.T @ z
    return np.asarray(sums if isinstance(sums, np.ndarray) else sums.toarray(), dtype=np.float64)


def _normalized(weight: Doubles) -> Doubles:
    """Scale weights to unit mean square over the features with a weight."""
    return np.asarray(weight / np.sqrt(np.square(weight).sum() / np.count_nonzero(weight)))


def correlation_ratio(counts: Codes, sums: Doubles, variance: Doubles) -> Doubles:
    """(d,) correlation ratio of features with the classes, adjusted for chance.

    The square root of Kelley's (1935) ε²: the share of a feature's variance that is between the
    classes, minus its expectation for random classes; 0 if that is negative. The arguments are the
    (M,) numbers of samples and (M, d) sums of the classes, and the (d,) variances of the features.
    """
    counts, sums = counts[counts > 0], sums[counts > 0]
    n, n_classes = int(counts.sum()), len(counts)
    away = np.square(sums / counts[:, None] - sums.sum(axis=0) / n)
    between = (counts[:, None] * away).sum(axis=0) / n
    within = np.maximum(variance - between, 0) / max(n - n_classes, 1)
    share = np.minimum((between - (n_classes - 1) * within) / variance, 1)
    # Smaller shares are rounding errors.
    return np.sqrt(np.where(share > 1e-9, share, 0))


def principal_axes(inputs: Tensor, n_axes: int) -> tuple[Tensor, Tensor]:
    """Leading right singular vectors of (n, k) inputs, and their singular values.

    Returns (n_axes, k) orthonormal directions, or min(n, k) if that is less, and their (n_axes,)
    singular values, the largest first, on the device of the inputs. The method is the randomised
    search of Halko, Martinsson & Tropp (2011, algorithm 4.3), with a seed of its own.
    """
    n_sought = min(n_axes + 10, *inputs.shape)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(inputs.shape[1], n_sought, generator=generator, dtype=inputs.dtype)
    found = inputs @ start.to(inputs.device)
    # With two power iterations, the last of a hundred axes are inexact.
    for _ in range(2):
        found, _ = torch.linalg.qr(inputs.T @ found)
        found = inputs @ found
    found, _ = torch.linalg.qr(found)
    # An SVD of the small triangle takes a fifth of the time of one of all columns.
    found, triangle = torch.linalg.qr(inputs.T @ found)
    vectors, values, _ = torch.linalg.svd(triangle)
    return (found @ vectors[:, :n_axes]).T.contiguous(), values[:n_axes]


def project(z: Tensor, axes: Singles) -> Singles:
    """(n, a) coordinates of (n, k) standardised rows along (a, k) axes."""
    return np.asarray((z @ torch.tensor(axes, device=z.device).T).cpu(), dtype=np.float32)


def network_axes(z: Tensor, share: Doubles, n: int) -> Tensor:
    """(r, k) axes along which a network receives the features, with r = min(n, k).

    `z` holds (s, k) standardised rows that the network is trained on, and `share` the (k,) weights
    of the network for the features, relative to those in `z`. With more than `n` features, the
    axes are the principal axes of the weighted rows; otherwise, the weighted features themselves.
    """
    factor = torch.tensor(share, dtype=torch.float32, device=z.device)
    if z.shape[1] <= n:
        return torch.diag(factor)
    axes, _ = principal_axes(z * factor, min(n, len(z)))
    # With fewer rows than axes, the last axes are zeros.
    return pad(axes * factor, (0, 0, 0, n - len(axes)))


def is_rich(n_features: int, n_rows: int) -> bool:
    """Return whether networks receive discriminant axes and ramps as well; see `RICH`."""
    return n_features <= N_AXES and RICH[0] * n_features <= n_rows <= RICH[1]


def discriminant_axes(z: Tensor, share: Doubles, codes: Codes, n: int) -> Tensor:
    """(r, k) axes that separate the classes of (s, k) standardised rows; r = min(n − 1, k).

    These are the axes of a linear discriminant analysis of `n` classes (Fisher 1936; Rao 1948),
    with a ridge. The standard deviation within the classes is at most `OF_DISCRIMINANT` along each
    axis, and less if random classes would differ nearly as much. `share` is as in `network_axes`,
    and `codes` holds the (s,) classes of the rows.
    """
    factor = torch.tensor(share, dtype=torch.float64, device=z.device)
    x, sizes = z.double() * factor, torch.from_numpy(np.bincount(codes, minlength=n)).to(z.device)
    sums = torch.from_numpy(class_sums(x.cpu().numpy(), codes, n)).to(x.device)
    means = sums / sizes.clamp_min(1)[:, None]
    away = x - means[torch.from_numpy(codes).to(z.device)]
    values, vectors = torch.linalg.eigh(away.T @ away / len(x))
    ridge = 0.1 * values.mean() + 1e-3 * x.var(dim=0).mean() + torch.finfo(torch.float32).tiny
    whitening = vectors / (values.clamp_min(0) + ridge).sqrt()
    between = (means - x.mean(dim=0)) * sizes.sqrt()[:, None] @ whitening
    _, strength, directions = torch.linalg.svd(between, full_matrices=False)
    # Random classes also differ in some direction; this is about their largest strength.
    chance = np.sqrt(x.shape[1]) + np.sqrt(n - 1)
    shrinkage = (1 - (chance / strength.clamp_min(chance)).square()).sqrt()
    axes: Tensor = OF_DISCRIMINANT * factor[:, None] * (whitening @ (directions.T * shrinkage))
    return axes.T[: n - 1].float()


def ramp_knots(z: Tensor) -> Tensor:
    """(N_RAMPS + 1, k) quantiles of (s, k) standardised rows, between which the ramps rise.

    Equal quantiles, such as those of many zeros, are drawn apart: at a step, a rounding error would
    change an input of the network.
    """
    knots = torch.quantile(z, torch.linspace(0, 1, N_RAMPS + 1, device=z.device), dim=0)
    step = (LEAST_STEP * (knots[-2] - knots[1])).clamp_min(1e-3)
    least = step * torch.arange(N_RAMPS + 1, device=z.device)[:, None]
    above = (knots - least).cummax(dim=0).values + least
    below = (knots - least).flip(0).cummin(dim=0).values.flip(0) + least
    return (above + below) / 2


def _ramps(z: Tensor, knots: Tensor) -> Tensor:
    """(n, (q − 1) · k) ramps of (n, k) standardised rows: piecewise linear coordinates.

    A ramp rises between two knots of its feature, and is constant elsewhere. The height is the
    standard deviation of a normally distributed feature with these quantiles.
    """
    height = (knots[-2] - knots[1]) / 1.93
    steps = torch.diff(knots, dim=0).clamp_min(1e-6)
    ramps = ((z[:, None] - knots[:-1]) / steps).clamp(0, 1) - 0.5
    return (ramps * height).flatten(1)
