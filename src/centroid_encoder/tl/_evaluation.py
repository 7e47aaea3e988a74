"""Errors of held-out cells: of a map, of a cross-validation and of feature panels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Mask, Singles
from centroid_encoder.core.calibration import calibration_error
from centroid_encoder.core.quality import (
    input_neighbors,
    knn_predict,
    nearest_center,
    share_intervals,
)
from centroid_encoder.core.splits import at_most
from centroid_encoder.errors import check
from centroid_encoder.tables import cv_key, obs_key
from centroid_encoder.tl import _result
from centroid_encoder.tl._cells import Cells
from centroid_encoder.tl._summary import differing_settings

if TYPE_CHECKING:
    from centroid_encoder.core.fit import Fit

FEW = 20
"""Shares of fewer predictions are marked as rough."""
N_FOLDS = 5
"""Folds of a cross-validation, if the classes and groups are large enough."""
N_REFERENCE, N_QUERIES = 10_000, 2_000
"""Largest numbers of training and held-out cells for neighbours in the full input space."""


def check_folds(folds: Codes, codes: Codes, n_folds: int) -> None:
    """Raise an InputError if the training of a fold would have one class, or judge no cell."""
    n_cells = pd.crosstab(folds, codes)
    is_known = n_cells.sum() > n_cells
    fits = (is_known.sum(axis=1) > 1).all() and (is_known & (n_cells > 0)).any(axis=None)
    text = f"with {n_folds} folds, a training would have cells of one class only: there are"
    check(fits, f"{text} too few cells, or each class is a group of obs (group_key)")


def possible_folds(cells: Cells, n_folds: int | None) -> int:
    labeled = cells.codes >= 0
    most = int(np.bincount(cells.codes[labeled]).max())
    what = f"the largest class has {most} cells"
    if cells.groups is not None:
        most = len(np.unique(cells.groups[labeled]))
        what = f"obs[{cells.params['group_key']!r}] has {most} groups"
    check(n_folds is None or n_folds <= most, f"n_folds={n_folds} is too many: {what}", "n_folds")
    return max(2, min(N_FOLDS, most)) if n_folds is None else int(n_folds)


def seed_of(seed: int, *place: int) -> int:
    """Return the seed of a training, which depends only on its place and on the seed of all."""
    return int(np.random.SeedSequence(seed, spawn_key=place).generate_state(1)[0])


def input_errors(X: Any, fit: Fit, codes: Codes, rows: Codes) -> pd.Series:
    """Return whether five neighbours in the full input space err for at most `N_QUERIES` rows."""
    known, new = at_most(N_REFERENCE, fit.trained), at_most(N_QUERIES, rows)
    return pd.Series(input_neighbors(X, known, codes[known], new) != codes[new], new).astype(float)


def judged(fit: Fit, index: Codes) -> tuple[Singles, Singles]:
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
    train_places: Floats,
    classes: Codes,
) -> pd.DataFrame:
    """Return whether each rule errs for some rows; the rows are the index.

    The rules are ``"knn"``, ``"voronoi"``, `LARGEST` and, if the map has a decoder, ``"decoder"``;
    without a decoder, the class of a cell is that of its Voronoi cell. A training cell is not its
    own neighbour. `codes` are the classes of all cells, and `classes` those with judged cells;
    `LARGEST` predicts the largest of them in the training.
    """
    train = fit.trained
    points = None if np.array_equal(rows, train) else places
    found = {"knn": knn_predict(train_places, codes[train], points), "voronoi": predicted}
    if fit.map.placer is None:
        nearest = fit.known[nearest_center(places, fit.map.centers)]
        found |= {"voronoi": nearest, "decoder": predicted}
    counted = codes[train][np.isin(codes[train], classes)]
    found[_result.LARGEST] = np.full(len(rows), np.bincount(counted, minlength=1).argmax())
    return pd.DataFrame({rule: of_rule != codes[rows] for rule, of_rule in found.items()}, rows)


def count_unjudged(codes: Codes) -> dict[str, int]:
    """Return the numbers of the cells that were not judged, and of their classes."""
    return {"n_unjudged": len(codes), "n_unjudged_classes": len(np.unique(codes))}


def error_rates(wrong: pd.DataFrame, codes: Codes) -> dict[str, float]:
    """Return the number of cells, and the errors of all rules; see `evaluate`."""
    rates: dict[str, float] = {"n": len(wrong)}
    for rule in wrong:
        errs = wrong[rule].astype(float)
        rates[f"{rule}_error"] = errs.mean()
        if rule != _result.LARGEST:
            rates[f"balanced_{rule}_error"] = errs.groupby(codes).mean().mean()
    return rates


def evaluate(
    wrong: pd.DataFrame, codes: Codes, n_classes: int, units: Codes | None = None
) -> tuple[dict[str, float], pd.DataFrame]:
    """Return the errors of all cells, and the (n_classes, …) errors of each class.

    Errors are pooled: each cell counts the same, whatever its fold or group is. Balanced errors are
    means over the classes that have cells. Their 95 % intervals are those of `share_intervals`.
    `wrong` is how often each rule errs for each of n cells, in [0, 1], and NaN where it was not
    applied; `codes` and `units` are the (n,) classes and groups of these cells.
    """
    quality = error_rates(wrong, codes)
    if units is not None:
        quality["n_groups"] = len(np.unique(units))
    per_class = pd.DataFrame({"n": np.bincount(codes, minlength=n_classes)})
    for rule in wrong.columns.drop(_result.LARGEST, errors="ignore"):
        error, applied = f"{rule}_error", wrong[rule].notna().to_numpy()
        errs, own = wrong[rule].to_numpy(float)[applied], codes[applied]
        of_units = None if units is None else units[applied]
        low, high = share_intervals(errs, own, n_classes, of_units)
        for i, name in enumerate((error, f"balanced_{error}")):
            quality[f"{name}_low"], quality[f"{name}_high"] = float(low[i]), float(high[i])
        per_class[error] = pd.Series(errs).groupby(own).mean().reindex(per_class.index)
        per_class[f"{error}_low"], per_class[f"{error}_high"] = low[2:], high[2:]
    return quality, per_class


def evaluate_confidence(
    predicted: Codes,
    confidence: Floats,
    before: Floats,
    right: Mask,
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
    ends = share_intervals(right.astype(float), predicted, n_classes, units)
    table["right_low"], table["right_high"] = (of_shares[2:] for of_shares in ends)
    table["rough"] = table["n_predicted"] < FEW
    return dict(zip(_result.CALIBRATION_ERRORS, errors, strict=True)), table


@dataclass(frozen=True)
class HeldOut:
    """Labeled cells, and their classes as predicted by networks that were not trained on them.

    The (n_held_out,) classes are indices into those in the order of their categories.
    """

    words: str
    """Description of the cells, for a title."""
    quality: Mapping[str, Any]
    """Errors of the cells, and their number ``n``, before any selection of cells."""
    rows: Codes
    own: Codes
    predicted: Codes
    judged: Codes
    """Class by which a cell was judged: its own unless it was relabelled since."""
    confidence: Doubles
    group_key: str | None
    """Column of their groups, if whole groups were held out."""
    n_new: int = 0
    """Number of cells that are left out because they have a new class, or none, since."""


def read_held_out(adata: AnnData, key: str) -> HeldOut:
    """Read the predictions of a cross-validation or, without one, those for held-out cells.

    With `group_key`, each cell of the training was predicted without its group, and counts, too.

    A KeyError is raised if there is neither, or if a column is missing; an InputError if no cell
    was held out, or if no label is a class of the result.
    """
    validated = _result.StoredCrossValidation.read(adata, key)
    if validated is None:
        result = _result.read_result(adata, key, trained=True)
        stored, part, params = result.stored, "a part of the map", result.stored.params
        words, quality = "held-out cells", stored.errors(stored.held_out)
        text = "no cell was held out (test_size=0), so there is no held-out error; run"
        check(quality["n"], f"{text} ce.tl.cross_validate(adata, {result.label_key!r})")
        held_out, own, predicted = result.split == _result.TEST, result.codes, result.predicted
        if stored.held_out == _result.BY_GROUP:
            words = f"cells judged without their {params['group_key']}"
            held_out |= result.split == _result.TRAIN
        judged, n_new = own, 0
        # The stored error is that by the labels of the training.
        stored_right = 1 - quality[f"{result.decided_by}_error"]
        is_right = (own == predicted)[held_out & (own >= 0) & (predicted >= 0)]
        if len(is_right) == quality["n"] and not np.isclose(is_right.mean(), stored_right):
            words += f" ({100 * stored_right:.1f} % right before labels changed)"
    else:
        mapped, params = _result.StoredMap.read(adata, key), validated.params
        words, quality = _result.out_of_fold_words(validated), validated.quality
        if mapped and differing_settings(mapped, params, validated.model):
            words += ", other settings than the map's"
        part, key = f"a part of the cross-validation {key!r}", cv_key(key)
        label_key, classes = validated.label_key, validated.classes
        labels = _result.stored_column(adata, label_key, "the labels that were cross-validated")
        found = _result.stored_column(adata, obs_key(key, "label"), part)
        of_check = _result.stored_column(adata, obs_key(key, "judged"), part)
        of_check = of_check.where(_result.own_cells(adata, key, validated))
        own, predicted, judged = (
            classes.get_indexer(names.astype(object)) for names in (labels, found, of_check)
        )
        held_out = of_check.notna()
        is_new = held_out & (own < 0)
        n_new = int(is_new.sum())
        if is_new.equals(held_out):
            no_label = labels.isna() | (labels == params.get("unlabeled_category"))
            _result.check_classes(labels[is_new & ~no_label], label_key, "cross_validate")
    rows = np.flatnonzero(held_out & (own >= 0) & (predicted >= 0))
    check(len(rows), "none of the held-out cells is in this selection of cells")
    column = _result.stored_column(adata, obs_key(key, "confidence"), part)
    confidence = column.to_numpy(np.float64)[rows]
    of_rows = own[rows], predicted[rows], judged[rows], confidence
    return HeldOut(words, quality, rows, *of_rows, params.get("group_key"), n_new)
