"""Class probabilities computed from distances to the centroids, and their calibration error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit, softmax, stdtrit, xlogy

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Mask
from centroid_encoder.core.matrix import product
from centroid_encoder.core.quality import LEAST_UNITS, Z
from centroid_encoder.core.splits import at_most

TEMPERATURES = (1e-3, 1e3)  # in units of the root mean square of the centroids
EXPONENTS = (0.1, 4.0)
N_FITTED = 20_000  # largest number of samples that the parameters are fitted to
N_STEPS = 20  # of Newton's method
LEAST = 100  # smallest number of samples for the terms, which are too uncertain with fewer
N_DRAWS = 1_000  # of shares of right predictions
RIDGE = 1.0  # weight of the squared terms in the negative log-likelihood


@dataclass(frozen=True)
class Calibration:
    """Probabilities as the softmax of b_j + c_j [j is nearest] − (d_j / T)^a, for distances d_j.

    The defaults are those of unit Gaussians around the centroids.

    The distances to the classes decide which class is predicted: that of the nearest centroid. They
    come from networks that were trained with class weights. The offsets b_j = −log(weight of class
    j) undo the weights, so that the probabilities are those under the class frequencies of the
    training samples. The nearest class is therefore not always the most probable one.

    The term c_j is added for the nearest class only. It makes the mean probability of the samples
    that are predicted to be of class j equal to the share of them that are (top-label calibration,
    Gupta & Ramdas 2022). Without it, the probabilities of rare classes would be wrong, although
    those of all classes together would be right.
    """

    temperature: float = 1.0
    """T > 0; low temperatures give high confidences."""
    exponent: float = 2.0
    """a > 0; 2 suits Gaussian classes, and smaller exponents classes with heavy tails."""
    offsets: tuple[float, ...] = ()
    """(M,) b; empty for 0."""
    terms: tuple[float, ...] = ()
    """(M,) c; empty for 0."""

    @classmethod
    def fit(
        cls,
        distances: Floats,
        labels: Codes,
        offsets: tuple[float, ...] = (),
        weights: Floats | None = None,
    ) -> Self:
        """Maximise the likelihood of the (n,) labels, given (n, M) distances to the centroids.

        This is temperature scaling as in Guo et al. (2017), with an exponent. The targets are
        smoothed as in Platt (1999), so that no sample has the probability 1 even if there are no
        errors. Weak priors keep the exponent near 1 and the terms near 0. `weights` are those of
        the samples. Distances are inf for classes that are not in the map, and samples of these
        classes are ignored.

        Temperature and exponent stay 1 and 2 unless the log-likelihood increases by more than two
        parameters would increase it by chance (Akaike), plus its standard error. Otherwise a
        calibration with few samples or hardly any errors would be underconfident.
        """
        known = np.isfinite(distances[np.arange(len(labels)), labels])
        rows = at_most(N_FITTED, np.flatnonzero(known))
        distances, labels = distances[rows], labels[rows]
        weights = np.ones(len(rows)) if weights is None else weights[rows]
        before = cls(offsets=offsets)
        n, n_classes = distances.shape
        if not n:
            return before
        known, there = np.isfinite(distances), np.where(np.isfinite(distances), distances, 0)
        target = np.where(known, 1 / (n + 2) / max(n_classes - 1, 1), 0)
        target[np.arange(n), labels] = 1 - 1 / (n + 2)
        target *= weights[:, None]

        def loss(logs: Doubles) -> tuple[float, Doubles]:
            """Mean loss of the samples, and its derivatives by log T and log a."""
            one = replace(before, temperature=np.exp(logs[0]), exponent=np.exp(logs[1]))
            log_probabilities = log_softmax(one.logits(distances), axis=1)
            value = -(target[known] * log_probabilities[known]).sum() + np.square(logs[1]) / 2
            # With u = (d / T)^a, ∂u/∂log T = −a·u and ∂u/∂log a = u·log u.
            u = np.where(known, (there / one.temperature) ** one.exponent, 0)
            excess = np.exp(log_probabilities) * target.sum(axis=1, keepdims=True) - target
            slope = [one.exponent * (excess * u).sum(), logs[1] - (excess * xlogy(u, u)).sum()]
            # A mean, because with the slopes of a sum the first step would be far too long.
            return float(value) / n, np.array(slope) / n

        bounds = [tuple(np.log(limits)) for limits in (TEMPERATURES, EXPONENTS)]
        best = minimize(loss, np.zeros(2), jac=True, method="TNC", bounds=bounds)
        temperature, exponent = np.exp(best.x).tolist()
        fitted, own = replace(before, temperature=temperature, exponent=exponent), labels[:, None]
        old, new = (
            np.take_along_axis(log_softmax(one.logits(distances), axis=1), own, axis=1)[:, 0]
            for one in (before, fitted)
        )
        gain = weights * (new - old)
        fitted = fitted if gain.sum() - 2 > np.sqrt(n) * gain.std() else before
        return fitted if n < LEAST else fitted._with_terms(distances, labels, weights)

    def _with_terms(self, distances: Floats, labels: Codes, weights: Floats) -> Self:
        """Fit the terms by Newton's method.

        The odds of the nearest class against all others together are those without the term, times
        its exponential. Each term is thus the intercept of a logistic regression.
        """
        n_classes, nearest = distances.shape[1], distances.argmin(axis=1)
        p = self.probabilities(distances)[np.arange(len(nearest)), nearest]
        log_odds, right = logit(p.clip(1e-9, 1 - 1e-9)), nearest == labels
        terms = np.zeros(n_classes)
        for _ in range(N_STEPS):
            p = expit(log_odds + terms[nearest])
            slope = np.bincount(nearest, weights * (right - p), n_classes) - RIDGE * terms
            terms += slope / (np.bincount(nearest, weights * p * (1 - p), n_classes) + RIDGE)
        return replace(self, terms=tuple(terms.tolist()))

    def logits(self, distances: Floats) -> Doubles:
        """(n, M) logits for (n, M) distances to the centroids."""
        scaled = np.asarray(distances, dtype=np.float64) / self.temperature
        logits = np.asarray(self.offsets or 0.0) - scaled**self.exponent
        if self.terms:
            nearest = np.argmin(distances, axis=1)
            logits[np.arange(len(logits)), nearest] += np.asarray(self.terms)[nearest]
        return np.asarray(logits)

    def probabilities(self, distances: Floats) -> Doubles:
        """(n, M) probabilities for (n, M) distances to the centroids."""
        return np.asarray(softmax(self.logits(distances), axis=1))


def cross_fitted_probabilities(
    distances: Floats,
    labels: Codes,
    parts: Codes,
    offsets: tuple[float, ...] = (),
    weights: Floats | None = None,
) -> Doubles:
    """(n, M) probabilities of samples, each calibrated with the samples of the other (n,) parts.

    Samples of the part −1 are used for all calibrations, and their probabilities are NaN. The other
    parameters are those of `Calibration.fit`.
    """
    weights = np.ones(len(labels)) if weights is None else weights
    probabilities = np.full(distances.shape, np.nan)
    for part in np.unique(parts[parts >= 0]):
        inside = parts == part
        given = distances[~inside], labels[~inside], offsets, weights[~inside]
        calibration = Calibration.fit(*given)
        probabilities[inside] = calibration.probabilities(distances[inside])
    return probabilities


def calibration_bins(
    confidence: Floats, right: Mask, n_bins: int = 10
) -> tuple[Doubles, Doubles, Codes]:
    """Group (n,) predictions into bins by confidence, with about as many predictions in each.

    Bins of equal width would be nearly empty except near 1 (Nixon et al., 2019). Predictions of
    equal confidence share a bin, so there can be fewer than `n_bins`.

    Returns the (b,) mean confidences and shares of right predictions, by rising confidence, and the
    (n,) bins of the predictions.
    """
    first = np.arange(n_bins) * len(confidence) // n_bins
    edges = np.unique(np.sort(confidence)[first])
    bins = np.searchsorted(edges, confidence, side="right") - 1
    count = np.bincount(bins)
    return np.bincount(bins, confidence) / count, np.bincount(bins, right) / count, bins


def calibration_error(
    confidence: Floats, right: Mask, units: Codes | None = None, n_bins: int = 10
) -> tuple[float, float, float]:
    """Root mean square of mean confidence − share right over bins, and its 95 % interval.

    What the shares differ by chance is subtracted from the mean of squares (Kumar, Liang & Ma,
    2019), so that perfect confidences have about 0 whatever the number of predictions is.

    The interval comes from drawn shares. Its lower end is above 0 if the mean of squares is larger
    than 97.5 % of those of perfect confidences. The shares are drawn from binomial distributions,
    after one right and one wrong prediction were added to each bin. With (n,) `units` such as
    donors, they also differ as much as those of the units; the interval of fewer than three units
    is NaN. All three are NaN without predictions.
    """
    n = len(confidence)
    if not n:
        return np.nan, np.nan, np.nan
    mean, share, bins = calibration_bins(confidence, right, n_bins)
    count = np.bincount(bins)
    gaps, variance = share - mean, share * (1 - share) / np.maximum(count - 1, 1)
    rng = np.random.default_rng(0)
    smoothed = (share * count + 1) / (count + 2)
    noise = rng.binomial(count, smoothed, size=(N_DRAWS, len(count))) / count - smoothed
    _, units = np.unique(np.arange(n) if units is None else units, return_inverse=True)
    n_units = int(units.max()) + 1
    if LEAST_UNITS <= n_units < n:
        # What each unit contributes to the gaps.
        deviations = np.zeros((n_units, len(count)))
        np.add.at(deviations, (units, bins), (right - confidence - gaps[bins]) / count[bins])
        deviations *= np.sqrt(n_units / (n_units - 1))
        variance = np.square(deviations).sum(axis=0)
        factor = stdtrit(n_units - 1, 0.975) / Z
        drawn = factor * product(rng.normal(size=(N_DRAWS, n_units)), deviations)
        noise = np.where(variance > noise.var(axis=0), drawn, noise)
    # The smallest part of the gaps with which the drawn squares are often as large as the found.
    parts = np.linspace(0, 1, 21)
    scaled: Doubles = np.multiply.outer(parts, gaps)[:, None]
    drawn = np.square(scaled + noise) @ (count / n)
    squared, largest = np.square(gaps) @ (count / n), np.quantile(drawn, 0.975, axis=1)
    error = float(np.sqrt(np.maximum(squared - variance @ (count / n), 0)))
    if n_units < min(LEAST_UNITS, n):
        return error, np.nan, np.nan
    low = float(parts[(largest >= squared).argmax()] * np.sqrt(squared))
    return error, min(low, error), float(max(np.sqrt(largest[-1]), error))
