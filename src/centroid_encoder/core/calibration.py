"""Class probabilities computed from distances to the centroids, and their calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax, xlogy

from centroid_encoder.core.splits import at_most

Floats = NDArray[np.floating]
Codes = NDArray[np.integer]

TEMPERATURES = (1e-3, 1e3)  # in units of the root mean square of the centroids
EXPONENTS = (0.1, 4.0)
N_FITTED = 20_000  # largest number of samples that the two parameters are fitted to


@dataclass(frozen=True)
class Calibration:
    """Probabilities as the softmax of −(d_j / T)^a, for the distances d_j to the centroids.

    The class of the nearest centroid is the most probable one for any temperature and exponent.
    """

    temperature: float = 1.0
    """T > 0; low temperatures give high confidences."""
    exponent: float = 2.0
    """a > 0; 2 suits Gaussian classes, and smaller exponents classes with heavy tails."""

    @classmethod
    def fit(cls, distances: Floats, labels: Codes) -> Self:
        """Maximise the likelihood of the (n,) labels, given (n, M) distances to the centroids.

        This is temperature scaling as in Guo et al. (2017), with an exponent. The targets are
        smoothed as in Platt (1999), so that no sample has the probability 1 even if there are no
        errors. A weak prior keeps the exponent near 1. Distances are inf for classes that are not
        in the map, and samples of these classes are ignored.

        The result is `UNCALIBRATED` unless the log-likelihood increases by more than two parameters
        would increase it by chance (Akaike), plus its standard error. Otherwise a calibration with
        few samples or hardly any errors would be underconfident.
        """
        known = np.isfinite(distances[np.arange(len(labels)), labels])
        rows = at_most(N_FITTED, np.flatnonzero(known))
        distances, labels = distances[rows], labels[rows]
        n, n_classes = distances.shape
        if not n:
            return cls()
        known = np.isfinite(distances)
        target = np.where(known, 1 / (n + 2) / max(n_classes - 1, 1), 0)
        target[np.arange(n), labels] = 1 - 1 / (n + 2)

        def loss(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            """Mean loss of the samples, and its derivatives by log T and log a."""
            temperature, exponent = np.exp(logs)
            u = np.where(known, -cls(temperature, exponent).logits(distances), 0)
            log_probabilities = log_softmax(np.where(known, -u, -np.inf), axis=1)
            value = -(target[known] * log_probabilities[known]).sum() + np.square(logs[1]) / 2
            # u = (d / T)^a, so ∂u/∂log T = −a·u and ∂u/∂log a = u·log u.
            excess = np.exp(log_probabilities) * target.sum(axis=1, keepdims=True) - target
            slope = [exponent * (excess * u).sum(), logs[1] - (excess * xlogy(u, u)).sum()]
            # A mean, because with the slopes of a sum the first step would be far too long.
            return float(value) / n, np.array(slope) / n

        bounds = [tuple(np.log(limits)) for limits in (TEMPERATURES, EXPONENTS)]
        best = minimize(loss, np.zeros(2), jac=True, method="TNC", bounds=bounds)
        fitted, own = cls(*np.exp(best.x).tolist()), (np.arange(n), labels)
        before, after = (log_softmax(one.logits(distances), axis=1)[own] for one in (cls(), fitted))
        gain = after - before
        return fitted if gain.sum() - 2 > np.sqrt(n) * gain.std() else cls()

    def logits(self, distances: Floats) -> NDArray[np.float64]:
        """(n, M) logits for (n, M) distances to the centroids."""
        scaled = np.asarray(distances, dtype=np.float64) / self.temperature
        return np.asarray(-(scaled**self.exponent))

    def probabilities(self, distances: Floats) -> NDArray[np.float64]:
        """(n, M) probabilities for (n, M) distances to the centroids."""
        return np.asarray(softmax(self.logits(distances), axis=1))


UNCALIBRATED = Calibration()
"""Unit Gaussians around the centroids."""


def cross_fitted_probabilities(
    distances: Floats, labels: Codes, parts: Codes
) -> NDArray[np.float64]:
    """(n, M) probabilities of samples, each calibrated with the samples of the other (n,) parts."""
    probabilities = np.empty(distances.shape, dtype=np.float64)
    for part in np.unique(parts):
        inside = parts == part
        calibration = Calibration.fit(distances[~inside], labels[~inside])
        probabilities[inside] = calibration.probabilities(distances[inside])
    return probabilities


def calibration_bins(
    confidence: Floats, right: NDArray[np.bool_], n_bins: int = 10
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Group (n,) predictions into bins by confidence, with about as many predictions in each.

    Bins of equal width would be nearly empty except near 1 (Nixon et al., 2019). Predictions of
    equal confidence share a bin, so there can be fewer than `n_bins`.

    Returns the (b,) mean confidences, shares of right predictions and numbers of predictions, by
    rising confidence.
    """
    first = np.arange(n_bins) * len(confidence) // n_bins
    edges = np.unique(np.sort(confidence)[first])
    index = np.searchsorted(edges, confidence, side="right") - 1
    count = np.bincount(index)
    return np.bincount(index, confidence) / count, np.bincount(index, right) / count, count


def expected_calibration_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """Mean of | mean confidence − share right | over bins, weighted by size; NaN if empty."""
    if not len(confidence):
        return np.nan
    mean, share, count = calibration_bins(confidence, right)
    return float(np.average(np.abs(mean - share), weights=count))


def calibration_error_interval(confidence: Floats, right: NDArray[np.bool_]) -> tuple[float, float]:
    """95 % interval of the expected calibration error by a parametric bootstrap; NaN if empty.

    The numbers of right predictions are drawn from binomial distributions, after one right and one
    wrong prediction were added to each bin. A mean of absolute differences is larger than 0 by
    chance alone. The lower end is therefore the error minus the 97.5 % quantile of the error that
    perfectly calibrated bins have by chance, or 0; the upper end is that quantile of drawn errors.
    """
    if not len(confidence):
        return np.nan, np.nan
    error = expected_calibration_error(confidence, right)
    mean, share, count = calibration_bins(confidence, right)
    smoothed = (share * count + 1) / (count + 2)
    drawn = np.random.default_rng(0).binomial(count, smoothed, size=(1000, len(count))) / count
    by_chance, errors = (
        float(np.quantile(np.average(np.abs(drawn - center), axis=1, weights=count), 0.975))
        for center in (smoothed, mean)
    )
    return max(error - by_chance, 0.0), max(errors, error)
