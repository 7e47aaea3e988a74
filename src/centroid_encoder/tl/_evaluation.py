"""Errors of cells, computed in the same way for a hold-out and for the folds of a check."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.calibration import calibration_error
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.quality import knn_predict, nearest_center, share_intervals
from centroid_encoder.tl._result import CALIBRATION_ERRORS, LARGEST

Codes = NDArray[np.intp]
Floats = NDArray[np.floating]
FEW = 20
"""Shares of fewer predictions are marked as rough."""


def judged(fit: Fit, index: Codes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the (n, m) places of some rows, and their (n, K) distances to the classes."""
    none = (np.empty((0, n), np.float32) for n in (fit.map.n_components, len(fit.known)))
    places, distances = map(np.concatenate, zip(none, *fit.judge(index), strict=True))
    return places, distances


def errors_by_rule(
    fit: Fit,
    codes: Codes,
    rows: Codes,
    places: Floats,
    predicted: Codes,
    reference: tuple[Codes, Floats],
    classes: Codes,
) -> pd.DataFrame:
    """Return whether each rule errs for some rows; the rows are the index.

    The rules are ``"knn"``, ``"voronoi"``, `LARGEST` and, if the map has a decoder, ``"decoder"``;
    without a decoder, the class of a cell is that of its Voronoi cell.

    Parameters
    ----------
    fit
        The training.
    codes
        Classes of all rows.
    rows, places, predicted
        (n,) rows, their (n, m) places and their (n,) predicted classes.
    reference
        Rows and places of the training cells. If they are `rows`, none is its own neighbour.
    classes
        Classes with judged cells; `LARGEST` predicts the largest of them in the training.
    """
    train, train_places = reference
    points = None if train is rows else places
    found = {"knn": knn_predict(train_places, codes[train], points), "voronoi": predicted}
    if fit.map.placer is None:
        nearest = fit.known[nearest_center(places, fit.map.centers)]
        found |= {"voronoi": nearest, "decoder": predicted}
    counted = codes[train][np.isin(codes[train], classes)]
    found[LARGEST] = np.full(len(rows), np.bincount(counted, minlength=1).argmax())
    return pd.DataFrame({rule: of_rule != codes[rows] for rule, of_rule in found.items()}, rows)


def error_rates(wrong: pd.DataFrame, codes: Codes) -> dict[str, float]:
    """Return the number of cells, and the errors of all rules; the parameters are as below."""
    rates: dict[str, float] = {"n": len(wrong)}
    for rule in wrong:
        errs = wrong[rule].astype(float)
        rates[f"{rule}_error"] = errs.mean()
        if rule != LARGEST:
            rates[f"balanced_{rule}_error"] = errs.groupby(codes).mean().mean()
    return rates


def evaluate(
    wrong: pd.DataFrame, codes: Codes, n_classes: int, units: Codes | None = None
) -> tuple[dict[str, float], pd.DataFrame]:
    """Return the errors of all cells, and the (n_classes, …) errors of each class.

    Errors are pooled: each cell counts the same, whatever its fold or group is. Balanced errors are
    means over the classes that have cells. Their 95 % intervals are those of `share_intervals`.

    Parameters
    ----------
    wrong
        How often each rule errs for each of n cells, in [0, 1]; NaN where it was not applied.
    codes
        (n,) classes of these cells.
    n_classes
        Number of classes.
    units
        (n,) groups of these cells.
    """
    quality = error_rates(wrong, codes)
    if units is not None:
        quality["n_groups"] = len(np.unique(units))
    per_class = pd.DataFrame({"n": np.bincount(codes, minlength=n_classes)})
    for rule in wrong.columns.drop(LARGEST, errors="ignore"):
        error, applied = f"{rule}_error", wrong[rule].notna().to_numpy()
        errs, own = wrong[rule].to_numpy(float)[applied], codes[applied]
        of_units = None if units is None else units[applied]
        *of_all, of_classes = share_intervals(errs, own, n_classes, of_units)
        for name, (low, high) in zip((error, f"balanced_{error}"), of_all, strict=True):
            quality[f"{name}_low"], quality[f"{name}_high"] = float(low), float(high)
        per_class[error] = pd.Series(errs).groupby(own).mean().reindex(per_class.index)
        per_class[f"{error}_low"], per_class[f"{error}_high"] = of_classes
    return quality, per_class


def evaluate_confidence(
    predicted: Codes,
    confidence: Floats,
    before: Floats,
    right: NDArray[np.bool_],
    n_classes: int,
    units: Codes | None = None,
) -> tuple[dict[str, float], pd.DataFrame]:
    """Return the `CALIBRATION_ERRORS`, and the calibration of each of (n_classes,) predictions.

    For the cells that are predicted to be of a class, the table has their number, their mean
    ``confidence`` and the share of ``right`` predictions with its interval; `rough` marks shares of
    fewer than 20 cells. The (n,) confidences are those after and `before` calibration. Intervals
    are those of `calibration_error` and of `share_intervals`, with (n,) `units`.
    """
    error, low, high = calibration_error(confidence, right, units)
    errors = error, calibration_error(before, right)[0], low, high
    table = pd.DataFrame({"n_predicted": np.bincount(predicted, minlength=n_classes)})
    for name, values in (("confidence", confidence), ("right", right)):
        table[name] = pd.Series(values).groupby(predicted).mean().reindex(table.index)
    intervals = share_intervals(right.astype(float), predicted, n_classes, units)
    table["right_low"], table["right_high"] = intervals[2]
    table["rough"] = table["n_predicted"] < FEW
    return dict(zip(CALIBRATION_ERRORS, errors, strict=True)), table
