"""Predictions for cells by networks that have not seen their fold, counted and pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from centroid_encoder.core.quality import error_rates, knn_predict, nearest_center
from centroid_encoder.tl._result import CALIBRATION_ERRORS, RULES

N_REFERENCE, N_QUERIES = 10_000, 2_000
"""Largest numbers of reference and query cells for neighbours in the full input space."""

Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Fold:
    """Predictions for the held-out cells of a training."""

    cells: Codes
    """(n,) held-out cells, as rows of the matrix."""
    predicted: dict[str, tuple[Codes, Codes]]
    """For each rule, some of these cells and their predicted classes."""
    distances: NDArray[np.float32]
    """(n, M) distances to the centroids; inf for classes that were not trained."""
    unlabeled: NDArray[np.float32]
    """(n_unlabeled, M) distances of the cells without a label."""
    largest_class: int
    """Largest class of the training cells."""


def judged(fit: Fit, index: Codes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(n, m) embedding of the rows at an index, and their (n, K) distances to the classes."""
    embedding = np.empty((len(index), fit.map.centers.shape[1]), dtype=np.float32)
    distances, start = np.empty((len(index), len(fit.known)), dtype=np.float32), 0
    for places, of_classes in fit.judge(index):
        rows = slice(start, start + len(places))
        embedding[rows], distances[rows], start = places, of_classes, rows.stop
    return embedding, distances


def knn_misses(fit: Fit, codes: Codes, held_out: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) which held-out cells are of another class than their neighbours in the embedding."""
    train, cells = np.flatnonzero((codes >= 0) & ~held_out), np.flatnonzero(held_out)
    return np.asarray(knn_predict(fit.embed(train), codes[train], fit.embed(cells)) != codes[cells])


def fold_of(fit: Fit, codes: Codes, held_out: NDArray[np.bool_], n_classes: int, seed: int) -> Fold:
    """Predict the classes of the cells that were held out of a training.

    `codes` are the (n_kept,) classes, −1 for unlabeled cells; `seed` is that of the sample whose
    neighbours are searched in the full input space.
    """
    rng = np.random.default_rng(seed)
    train, cells = np.flatnonzero((codes >= 0) & ~held_out), np.flatnonzero(held_out)
    reference, queries = _sample(train, N_REFERENCE, rng), _sample(cells, N_QUERIES, rng)
    embedding, of_known = judged(fit, cells)
    distances, unlabeled = (
        np.full((n, n_classes), np.inf, dtype=np.float32)
        for n in (len(cells), int((codes < 0).sum()))
    )
    distances[:, fit.known] = of_known
    unlabeled[:, fit.known] = fit.distances(np.flatnonzero(codes < 0))
    of_neighbors = knn_predict(
        fit.standardized(reference), codes[reference], fit.standardized(queries)
    )
    predicted = {
        "knn": (cells, knn_predict(fit.embed(train), codes[train], embedding)),
        "voronoi": (cells, fit.known[nearest_center(embedding, fit.map.centers)]),
        "decoder": (cells, distances.argmin(axis=1)),
        "input_knn": (queries, of_neighbors),
    }
    return Fold(cells, predicted, distances, unlabeled, int(np.bincount(codes[train]).argmax()))


def pooled(
    repeats: Sequence[Sequence[Fold]], codes: Codes, n_classes: int
) -> tuple[pd.DataFrame, dict[str, NDArray[np.float64]], NDArray[np.float64], dict[str, Any]]:
    """Pool the folds of all repeats.

    Returns a table of errors with a row for each fold; the (M,) errors of the classes by each rule;
    the (n_kept, M) out-of-fold probabilities, those of unlabeled cells averaged over all networks;
    and the means of the errors over the folds with calibration errors.
    """
    rows: list[dict[str, Any]] = []
    class_errors = {rule: np.zeros(n_classes) for rule in RULES}
    probabilities, uncalibrated = np.zeros((len(codes), n_classes)), np.zeros(len(codes))
    labeled = codes >= 0
    for repeat, folds in enumerate(repeats):
        for i, fold in enumerate(folds):
            row: dict[str, Any] = {"repeat": repeat, "fold": i, "n": len(fold.cells)}
            for rule, (some, found) in fold.predicted.items():
                errors = error_rates(codes[some], found, n_classes)
                row[f"{rule}_error"], row[f"balanced_{rule}_error"] = errors[:2]
            chance_error = float((codes[fold.cells] != fold.largest_class).mean())
            rows.append(row | {"chance_error": chance_error})
        for rule in RULES:
            some, found = map(np.concatenate, zip(*(f.predicted[rule] for f in folds), strict=True))
            class_errors[rule] += error_rates(codes[some], found, n_classes)[2] / len(repeats)
        cells = np.concatenate([fold.cells for fold in folds])
        distances = np.concatenate([fold.distances for fold in folds])
        parts = np.repeat(np.arange(len(folds)), [len(fold.cells) for fold in folds])
        probabilities[cells] += cross_fitted_probabilities(distances, codes[cells], parts)
        uncalibrated[cells] += UNCALIBRATED.probabilities(distances).max(axis=1)
        calibration = Calibration.fit(distances, codes[cells])
        for fold in folds:
            probabilities[~labeled] += calibration.probabilities(fold.unlabeled) / len(folds)
    probabilities, uncalibrated = probabilities / len(repeats), uncalibrated / len(repeats)
    table = pd.DataFrame(rows)
    quality: dict[str, Any] = {"n": int(labeled.sum())}
    for name in table.columns[3:]:
        quality[name] = float(table[name].mean())
        quality[f"{name}_sd"] = float(table[name].std(ddof=1))
    right = (probabilities.argmax(axis=1) == codes)[labeled]
    confidence = probabilities[labeled].max(axis=1)
    quality |= calibration_errors(confidence, uncalibrated[labeled], right)
    return table, class_errors, probabilities, quality


def calibration_errors(
    confidence: NDArray[np.floating], before: NDArray[np.floating], right: NDArray[np.bool_]
) -> dict[str, float]:
    """Expected calibration error with its interval, and the error before calibration."""
    errors = (
        expected_calibration_error(confidence, right),
        expected_calibration_error(before, right),
        *calibration_error_interval(confidence, right),
    )
    return dict(zip(CALIBRATION_ERRORS, errors, strict=True))


def _sample(cells: Codes, size: int, rng: np.random.Generator) -> Codes:
    return cells if len(cells) <= size else np.sort(rng.choice(cells, size, replace=False))
