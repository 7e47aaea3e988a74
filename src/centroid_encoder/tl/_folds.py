"""What networks say of the cells of the fold that they have not seen, counted and pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.confidence import (
    UNCALIBRATED,
    Calibration,
    calibration_error_interval,
    cross_fitted_probabilities,
    expected_calibration_error,
)
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.quality import error_rates, knn_predict, nearest_center
from centroid_encoder.tl._stored import CALIBRATION_ERRORS, RULES

N_REFERENCE, N_QUERIES = 10_000, 2_000
"""Cells among which, and for which, neighbours are sought in the full input space, at most."""

Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Fold:
    """What a network says of the cells that it has not seen."""

    cells: Codes
    """(n,) held-out cells, as rows of the matrix."""
    knn: Codes
    """(n,) class of each by its neighbours in the embedding."""
    voronoi: Codes
    """(n,) class of the nearest center."""
    distances: NDArray[np.float32]
    """(n, M) distances to the centroids; inf for classes that it was not trained on."""
    unlabeled: NDArray[np.float32]
    """(n_unlabeled, M) the same for cells without a label."""
    asked: Codes
    """(q,) some of the held-out cells, as indices into `cells`."""
    input_knn: Codes
    """(q,) class of these by their neighbours in the full input space."""
    largest_class: int
    """The largest class of the training cells."""

    @classmethod
    def of(
        cls, fit: Fit, codes: Codes, held_out: NDArray[np.bool_], n_classes: int, seed: int
    ) -> Fold:
        """Ask a network about the cells that were held out of its training.

        Parameters
        ----------
        fit
            The training.
        codes
            (n_kept,) class of each cell; −1 for unlabeled ones.
        held_out
            (n_kept,) mask.
        n_classes
            Number M of classes.
        seed
            Of the choice of cells whose neighbours are sought in the full input space.
        """
        train, cells = np.flatnonzero((codes >= 0) & ~held_out), np.flatnonzero(held_out)
        embedding, known = fit.embed(cells), fit.known
        rng = np.random.default_rng(seed)
        among = _some(train, N_REFERENCE, rng)
        asked = _some(np.arange(len(cells)), N_QUERIES, rng)
        input_knn = knn_predict(
            fit.standardized(among), codes[among], fit.standardized(cells[asked])
        )
        unlabeled = np.flatnonzero(codes < 0)
        return cls(
            cells=cells,
            knn=knn_predict(fit.embed(train), codes[train], embedding),
            voronoi=known[nearest_center(embedding, fit.map.centers)],
            distances=_spread(fit.distances(cells), known, n_classes),
            unlabeled=_spread(fit.distances(unlabeled), known, n_classes),
            asked=asked,
            input_knn=input_knn,
            largest_class=int(np.bincount(codes[train]).argmax()),
        )

    def said(self, rule: str) -> tuple[Codes, Codes]:
        """Cells that a rule was asked about, and the class it found for each."""
        if rule == "input_knn":
            return self.cells[self.asked], self.input_knn
        if rule == "decoder":
            return self.cells, self.distances.argmin(axis=1)
        return self.cells, self.knn if rule == "knn" else self.voronoi

    def errors(self, codes: Codes, n_classes: int) -> dict[str, float]:
        """Errors by every rule, and of naming the largest class."""
        errors: dict[str, float] = {"n": len(self.cells)}
        for rule in RULES:
            cells, found = self.said(rule)
            errors[f"{rule}_error"], errors[f"balanced_{rule}_error"], _ = error_rates(
                codes[cells], found, n_classes
            )
        errors["chance_error"] = float((codes[self.cells] != self.largest_class).mean())
        return errors


def misses(fit: Fit, codes: Codes, held_out: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) which held-out cells a network takes for another class, by their neighbours.

    Parameters are those of `Fold.of`.
    """
    train, cells = np.flatnonzero((codes >= 0) & ~held_out), np.flatnonzero(held_out)
    return np.asarray(knn_predict(fit.embed(train), codes[train], fit.embed(cells)) != codes[cells])


@dataclass(frozen=True)
class Pooled:
    """What all folds and repeats say together."""

    errors: pd.DataFrame
    """One row a fold."""
    class_errors: dict[str, NDArray[np.float64]]
    """(M,) error of each class by every rule, the mean over the repeats."""
    probabilities: NDArray[np.float64]
    """(n_kept, M) out-of-fold probabilities, the mean over the repeats; for unlabeled cells, over
    all networks."""
    uncalibrated: NDArray[np.float64]
    """(n_kept,) what the largest one would be without calibration; 0 for unlabeled cells."""

    @classmethod
    def of(
        cls,
        repeats: Sequence[Sequence[Fold]],
        codes: Codes,
        n_classes: int,
    ) -> Pooled:
        """Pool the folds of all repeats; `codes` are the (n_kept,) classes."""
        rows: list[dict[str, Any]] = []
        class_errors = {rule: np.zeros(n_classes) for rule in RULES}
        probabilities, uncalibrated = np.zeros((len(codes), n_classes)), np.zeros(len(codes))
        unlabeled = codes < 0
        for repeat, folds in enumerate(repeats):
            for i, fold in enumerate(folds):
                rows.append({"repeat": repeat, "fold": i, **fold.errors(codes, n_classes)})
            for rule in RULES:
                said = [fold.said(rule) for fold in folds]
                asked = np.concatenate([cells for cells, _ in said])
                found = np.concatenate([classes for _, classes in said])
                _, _, class_error = error_rates(codes[asked], found, n_classes)
                class_errors[rule] += class_error / len(repeats)
            cells = np.concatenate([fold.cells for fold in folds])
            distances = np.concatenate([fold.distances for fold in folds])
            parts = np.repeat(np.arange(len(folds)), [len(fold.cells) for fold in folds])
            probabilities[cells] += cross_fitted_probabilities(distances, codes[cells], parts)
            uncalibrated[cells] += UNCALIBRATED.probabilities(distances).max(axis=1)
            if unlabeled.any():
                calibration = Calibration.fit(distances, codes[cells])
                probabilities[unlabeled] += sum(
                    calibration.probabilities(fold.unlabeled) for fold in folds
                ) / len(folds)
        return cls(
            pd.DataFrame(rows),
            class_errors,
            probabilities / len(repeats),
            uncalibrated / len(repeats),
        )

    def quality(self, codes: Codes) -> dict[str, Any]:
        """Mean of each error over the folds, its standard deviation, and calibration errors."""
        labeled = codes >= 0
        right = (self.probabilities.argmax(axis=1) == codes)[labeled]
        quality: dict[str, Any] = {"n": int(labeled.sum())}
        for name in self.errors.columns[3:]:
            quality[name] = float(self.errors[name].mean())
            quality[f"{name}_sd"] = float(self.errors[name].std(ddof=1))
        confidence = self.probabilities.max(axis=1)
        return quality | calibration_errors(confidence[labeled], self.uncalibrated[labeled], right)


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


def _spread(distances: NDArray[np.float32], known: Codes, n_classes: int) -> NDArray[np.float32]:
    """(n, M) distances to all classes; inf for those that a network was not trained on."""
    spread = np.full((len(distances), n_classes), np.inf, dtype=np.float32)
    spread[:, known] = distances
    return spread


def _some(cells: Codes, most: int, rng: np.random.Generator) -> Codes:
    return cells if len(cells) <= most else np.sort(rng.choice(cells, most, replace=False))
