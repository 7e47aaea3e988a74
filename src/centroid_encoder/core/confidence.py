"""How sure a map is of a class: probabilities from distances, and whether they hold.

Distances are those of the decoder's output to the centroids, labels are class indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax, xlogy

TEMPERATURES = (1e-3, 1e3)
"""Bounds; the unit of distances is the root mean square of the centroids."""
EXPONENTS = (0.1, 4.0)
N_FITTED = 20_000
"""Samples that a calibration is fitted to, at most: two parameters need no more."""
N_BINS = 10
N_DRAWS = 1000
"""Of the bootstrap."""


@dataclass(frozen=True)
class Calibration:
    """How distances to the centroids become probabilities: softmax of −(‖h(z) − c_j‖ / T)^a.

    The nearest centroid's class is the most probable one at any temperature and exponent.
    """

    temperature: float = 1.0
    """T > 0: the smaller, the surer."""
    exponent: float = 2.0
    """a > 0: 2 for Gaussian classes; the smaller, the more samples lie far off their centroid."""

    @classmethod
    def fit(cls, distances: NDArray[np.floating], labels: NDArray[np.integer]) -> Self:
        """Find the most likely one, given samples that did not shape the map.

        Temperature scaling as in Guo et al. (2017), with an exponent beside the temperature. The
        targets are those with which Platt (1999) avoids certainty (of n samples, none wrong, a
        further one may still be), and a weak prior keeps the exponent near 1 where few samples
        say otherwise.

        Where the samples do not say clearly that this is better, it is left at `UNCALIBRATED`: of
        few samples, or samples that are hardly ever wrong, the fitted one would be too modest.
        Clearly: the log-likelihood gains more than the two parameters would gain by chance
        (Akaike), and more than its standard error.

        Parameters
        ----------
        distances
            (n, M) distances to the centroids, inf for classes that the map does not know.
        labels
            (n,) own classes. Samples of a class that the map does not know are passed over:
            between the others they tell nothing.
        """
        told = np.isfinite(distances[np.arange(len(labels)), labels])
        some = cls.chosen(np.flatnonzero(told))
        distances, labels = distances[some], labels[some]
        n, n_classes = distances.shape
        if not n:
            return cls()
        target = np.full((n, n_classes), 1 / (n + 2) / max(n_classes - 1, 1))
        target[np.arange(n), labels] = 1 - 1 / (n + 2)
        known = np.isfinite(distances)
        told_share = np.where(known, target, 0).sum(axis=1, keepdims=True)

        def loss(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            """Mean over the samples, and its derivatives by log T and log a."""
            temperature, exponent = np.exp(logs)
            logits = _logits(distances, temperature, exponent)
            log_probabilities = log_softmax(logits, axis=1)
            value = -(target * log_probabilities)[known].sum() + np.square(logs[1]) / 2
            # By the logits −u, where u = (d / T)^a: ∂u/∂log T = −a·u, ∂u/∂log a = u·log u.
            excess = np.where(known, np.exp(log_probabilities) * told_share - target, 0)
            u = np.where(known, -logits, 0)
            slope = [exponent * (excess * u).sum(), logs[1] - (excess * xlogy(u, u)).sum()]
            # Of a sum, whose slopes are thousands, the first step would go anywhere.
            return float(value) / n, np.array(slope) / n

        best = minimize(
            loss,
            np.zeros(2),
            jac=True,
            method="L-BFGS-B",
            bounds=[(np.log(low), np.log(high)) for low, high in (TEMPERATURES, EXPONENTS)],
        )
        temperature, exponent = np.exp(best.x)
        fitted, unfitted = cls(float(temperature), float(exponent)), cls()
        gain = np.subtract(*(one._log_likelihood(distances, labels) for one in (fitted, unfitted)))
        clear = gain.sum() - len(best.x) > np.sqrt(n) * gain.std()
        return fitted if clear else unfitted

    @staticmethod
    def chosen(samples: NDArray[np.intp]) -> NDArray[np.intp]:
        """(k,) which of (n,) samples `fit` is content with; all if they are few."""
        if len(samples) <= N_FITTED:
            return samples
        return np.random.default_rng(0).choice(samples, N_FITTED, replace=False)

    def _log_likelihood(
        self, distances: NDArray[np.floating], labels: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """(n,) logarithm of the probability of the own class."""
        logits = _logits(distances, self.temperature, self.exponent)
        return np.asarray(log_softmax(logits, axis=1)[np.arange(len(labels)), labels])

    def probabilities(self, distances: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return (n, M) probabilities for (n, M) distances to the centroids."""
        return np.asarray(softmax(_logits(distances, self.temperature, self.exponent), axis=1))


UNCALIBRATED = Calibration()
"""Unit Gaussians around the centroids: where calibration starts from."""


def cross_fitted_probabilities(
    distances: NDArray[np.floating],
    labels: NDArray[np.integer],
    parts: NDArray[np.integer],
) -> NDArray[np.float64]:
    """(n, M) probabilities of samples by a calibration that the other parts' samples give.

    Whether they hold can be counted on the same samples.

    Parameters
    ----------
    distances
        (n, M) distances to the centroids.
    labels
        (n,) own classes.
    parts
        (n,) index of the part that each sample belongs to; at least two parts.
    """
    probabilities = np.empty(distances.shape, dtype=np.float64)
    for part in np.unique(parts):
        inside = parts == part
        calibration = Calibration.fit(distances[~inside], labels[~inside])
        probabilities[inside] = calibration.probabilities(distances[inside])
    return probabilities


def calibration_bins(
    confidence: NDArray[np.floating], right: NDArray[np.bool_], n_bins: int = N_BINS
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Group predictions by confidence, the same number in each bin, and compare it with the truth.

    Bins of equal width would leave most of their points to a handful of predictions: confidences
    crowd near 1 (Nixon et al., 2019).

    Parameters
    ----------
    confidence
        (n,) finite probabilities of the predicted classes.
    right
        (n,) whether each prediction is right.
    n_bins
        Number of bins. Predictions of equal confidence stay together, whatever their order, so
        there can be fewer.

    Returns
    -------
    mean_confidence
        (b,) mean confidence in each bin, b ≤ `n_bins`, in rising order.
    share_right
        (b,) share of right predictions.
    count
        (b,) number of predictions, at least one.

    Raises
    ------
    ValueError
        If there is to be no bin, or if a confidence is not finite.
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1; got {n_bins}")
    if not np.isfinite(confidence).all():
        raise ValueError("confidence must be finite")
    if not len(confidence):
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.intp)
    order = np.argsort(confidence, kind="stable")
    rising = confidence[order]
    quantiles = np.arange(n_bins) * len(rising) // n_bins
    starts = np.unique(np.searchsorted(rising, rising[quantiles]))
    count = np.diff(np.append(starts, len(rising)))
    # Summed in float64: a million confidences in float32 would lose their last digits.
    confidence_sum = np.add.reduceat(rising.astype(np.float64), starts)
    right_sum = np.add.reduceat(right[order].astype(np.float64), starts)
    return confidence_sum / count, right_sum / count, count


def expected_calibration_error(
    confidence: NDArray[np.floating], right: NDArray[np.bool_], n_bins: int = N_BINS
) -> float:
    """Mean over predictions of | mean confidence − share right | of their bin; NaN without any."""
    said, is_, count = calibration_bins(confidence, right, n_bins)
    return float(np.average(np.abs(said - is_), weights=count)) if len(count) else np.nan


def calibration_error_interval(
    confidence: NDArray[np.floating], right: NDArray[np.bool_], n_bins: int = N_BINS
) -> tuple[float, float]:
    """95 % interval of the expected calibration error, by a parametric bootstrap.

    In each bin, numbers of right predictions are drawn from the binomial distribution of its share,
    to which one right and one wrong prediction are added: where none was wrong, the next may be. A
    mean of absolute gaps is too large by chance, by the mean of what chance adds to each gap at
    most. So the lower end takes off what chance adds, and is 0 for confidences that may well hold;
    the upper end is that of the errors that are drawn, which are too large rather than too small.

    Parameters
    ----------
    confidence, right, n_bins
        As for `calibration_bins`.

    Returns
    -------
    low, high
        Its ends; NaN without any prediction.
    """
    said, is_, count = calibration_bins(confidence, right, n_bins)
    if not len(count):
        return np.nan, np.nan
    error = float(np.average(np.abs(said - is_), weights=count))
    share = (is_ * count + 1) / (count + 2)
    drawn = np.random.default_rng(0).binomial(count, share, size=(N_DRAWS, len(count))) / count
    chance, errors = (
        np.average(np.abs(drawn - center), axis=1, weights=count) for center in (share, said)
    )
    low = max(error - float(np.quantile(chance, 0.975)), 0.0)
    return low, max(float(np.quantile(errors, 0.975)), error)


def _logits(
    distances: NDArray[np.floating], temperature: float, exponent: float
) -> NDArray[np.float64]:
    return np.asarray(-((np.asarray(distances, dtype=np.float64) / temperature) ** exponent))
