"""How far a confidence can be taken at its word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def calibration_bins(
    confidence: NDArray[np.floating], right: NDArray[np.bool_], n_bins: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Group predictions by confidence, the same number in each bin, and compare it with the truth.

    Bins of equal width would leave most of their points to a handful of predictions: confidences
    crowd near 1.

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
