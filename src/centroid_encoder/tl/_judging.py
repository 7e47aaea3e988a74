"""Training without the held-out cells of a fold, and the errors of these cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.calibration import (
    UNCALIBRATED,
    Calibration,
    calibration_error_interval,
    cross_fitted_probabilities,
    expected_calibration_error,
)
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.matrix import Matrix
from centroid_encoder.core.quality import knn_predict, nearest_center
from centroid_encoder.core.reports import Report
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._matrix import fill_missing
from centroid_encoder.tl._result import CALIBRATION_ERRORS

Codes = NDArray[np.intp]
Floats = NDArray[np.float32]
N_REFERENCE, N_QUERIES = 10_000, 2_000
"""Largest numbers of training and held-out cells for neighbours in the full input space."""

Place = tuple[int, int, int]
"""Numbers of the permutation (0 for the real labels), the repeat and the fold of a training."""
Judged = tuple[pd.DataFrame, Floats]
"""Results of a fold: a table of whether each rule errs for each held-out cell, whose index is the
rows of the cells; and the (n, M) distances to the classes, first of these cells and then of all
cells without a label; inf for classes without training cells."""


def judged(fit: Fit, index: Codes) -> tuple[Floats, Floats]:
    """Return the (n, m) embedding of some rows, and their (n, K) distances to the classes."""
    none = (np.empty((0, n), np.float32) for n in (fit.map.n_components, len(fit.known)))
    embedding, distances = map(np.concatenate, zip(none, *fit.judge(index), strict=True))
    return embedding, distances


def error_rates(
    wrong: pd.DataFrame, codes: Codes, n_classes: int
) -> tuple[dict[str, float], pd.DataFrame]:
    """Return the error of each rule, also with equal weight for every class, and a table by class.

    `wrong` has a column for each rule: whether it errs for each of (n,) cells, NaN for cells to
    which it was not applied. The rule ``"chance"`` predicts the largest class.
    """
    per_class = wrong.astype(float).groupby(codes).mean().reindex(range(n_classes))
    balanced = per_class.drop(columns="chance").mean().add_prefix("balanced_")
    errors = pd.concat([wrong.mean(), balanced]).add_suffix("_error")
    return errors.astype(float).to_dict(), per_class


def calibration_errors(
    confidence: NDArray[np.floating], before: NDArray[np.floating], right: NDArray[np.bool_]
) -> dict[str, float]:
    """Return the `CALIBRATION_ERRORS` of (n,) confidences after and `before` calibration."""
    error = expected_calibration_error(confidence, right), expected_calibration_error(before, right)
    interval = calibration_error_interval(confidence, right)
    return dict(zip(CALIBRATION_ERRORS, error + interval, strict=True))


def train(
    place: Place,
    X: Matrix,
    codes: Codes,
    held_out: NDArray[np.bool_],
    groups: Codes | None,
    estimator: CentroidEncoder,
    classes: NDArray[Any],
    callback: Callable[[Report | None], bool] | None = None,
) -> tuple[Place, Judged]:
    """Train on the labeled cells that are not held out, and predict the classes of the others.

    With shuffled labels, only the k-NN rule is applied.
    """
    trains = (codes >= 0) & ~held_out
    # Otherwise scikit-learn would use the joblib backend that runs this training.
    with joblib.parallel_config("sequential"):
        filled, known = fill_missing(X, trains), np.where(trains, codes, -1)
        fit = estimator.fit_codes(filled, known, classes, groups=groups, callback=callback)
        if fit.outcome.interrupted:
            raise KeyboardInterrupt
        train, cells = np.flatnonzero(trains), np.flatnonzero(held_out)
        others = np.flatnonzero((codes < 0) & (place[0] == 0))
        places, of_known = judged(fit, np.concatenate([cells, others]))
        distances = np.full((len(places), len(classes)), np.inf, dtype=np.float32)
        distances[:, fit.known] = of_known
        places, own = places[: len(cells)], codes[cells]
        neighbors = knn_predict(fit.embed(train), codes[train], places)
        wrong = pd.DataFrame({"knn": neighbors != own}, index=cells)
        if place[0] == 0:
            wrong["voronoi"] = fit.known[nearest_center(places, fit.map.centers)] != own
            wrong["decoder"] = distances[: len(cells)].argmin(axis=1) != own
            wrong["chance"] = np.bincount(codes[train]).argmax() != own
            rng = np.random.default_rng(estimator.random_state)
            train, cells = (
                index if len(index) <= size else np.sort(rng.choice(index, size, replace=False))
                for index, size in ((train, N_REFERENCE), (cells, N_QUERIES))
            )
            inputs = fit.standardized(train), codes[train], fit.standardized(cells)
            wrong.loc[cells, "input_knn"] = (knn_predict(*inputs) != codes[cells]).astype(float)
        return place, (wrong, distances)


def pooled(
    repeats: list[list[Judged]], codes: Codes, n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (n_kept, M) out-of-fold probabilities, and (n_kept,) confidences before calibration.

    Both are means over the repeats; those of an unlabeled cell are means over the folds as well.
    """
    probabilities, uncalibrated = np.zeros((len(codes), n_classes)), np.zeros(len(codes))
    for folds in repeats:
        cells = np.concatenate([wrong.index for wrong, _ in folds])
        distances = np.concatenate([found[: len(wrong)] for wrong, found in folds])
        parts = np.repeat(np.arange(len(folds)), [len(wrong) for wrong, _ in folds])
        probabilities[cells] += cross_fitted_probabilities(distances, codes[cells], parts)
        uncalibrated[cells] += UNCALIBRATED.probabilities(distances).max(axis=1)
        calibration = Calibration.fit(distances, codes[cells])
        for wrong, found in folds:
            of_unlabeled = calibration.probabilities(found[len(wrong) :])
            probabilities[codes < 0] += of_unlabeled / len(folds)
    return probabilities / len(repeats), uncalibrated / len(repeats)
