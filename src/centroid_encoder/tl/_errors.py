"""Errors of cells that shaped nothing: shares of wrong predictions, and of calibration."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.calibration import calibration_error_interval, expected_calibration_error
from centroid_encoder.core.fit import Fit
from centroid_encoder.tl._result import CALIBRATION_ERRORS

Codes = NDArray[np.intp]
Floats = NDArray[np.float32]


def judged(fit: Fit, index: Codes) -> tuple[Floats, Floats]:
    """(n, m) embedding of the rows at an index, and their (n, K) distances to the classes."""
    none = (np.empty((0, n), np.float32) for n in (fit.map.n_components, len(fit.known)))
    embedding, distances = map(np.concatenate, zip(none, *fit.judge(index), strict=True))
    return embedding, distances


def error_rates(
    wrong: pd.DataFrame, codes: Codes, n_classes: int
) -> tuple[dict[str, float], pd.DataFrame]:
    """Errors by each rule, also with equal weight for every class, and the (M,) of each class.

    `wrong` has the misses of (n,) cells by each rule; NaN for cells that it was not applied to.
    The rule ``"chance"`` predicts the largest class.
    """
    per_class = wrong.astype(float).groupby(codes).mean().reindex(range(n_classes))
    balanced = per_class.drop(columns="chance").mean().add_prefix("balanced_")
    errors = pd.concat([wrong.mean(), balanced]).add_suffix("_error")
    return errors.astype(float).to_dict(), per_class


def calibration_errors(
    confidence: NDArray[np.floating], before: NDArray[np.floating], right: NDArray[np.bool_]
) -> dict[str, float]:
    """Expected calibration error with its interval, and the error before calibration."""
    error = expected_calibration_error(confidence, right), expected_calibration_error(before, right)
    interval = calibration_error_interval(confidence, right)
    return dict(zip(CALIBRATION_ERRORS, error + interval, strict=True))
