"""Sentences about the errors of a result, for the command line, the widget and `pl.reliability`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.tl import _result
from centroid_encoder.tl._read import listed
from centroid_encoder.tl._result import CALIBRATION_ERRORS, StoredCrossValidation, fold_words

MAX_CLASSES = 3
POOR = 0.2
"""Classes with a larger error are named."""
SIGNIFICANT = 0.05


def summary(adata: AnnData, key: str) -> list[str]:
    """Describe how far the results under a key can be trusted, the most important facts first."""
    mapped, validated = _result.StoredMap.read(adata, key), StoredCrossValidation.read(adata, key)
    sentences, warnings = [], []
    if mapped is not None and mapped.quality is not None:
        held_out = mapped.errors("test")
        sentences = [_held_out(held_out), *_confidences(held_out, "held-out")]
        missing = missing_classes(mapped.quality["per_class"], "the map takes")
        warnings = [f"Warning: {text}." for text in missing]
        if validated and (text := differing_settings(mapped, validated.params, validated.model)):
            warnings.append(
                "Warning: the map and the cross-validation are two models with different settings "
                f"(map against cross-validation): {text}."
            )
    if validated is not None:
        sentences[1:1] = _cross_validated(validated)
        warnings += [f"Warning: {text}" for text in validated.warnings]
    return sentences + warnings


def permutation_words(test: _result.PermutationTest) -> str:
    """Return the p value as text, with a note if it is the smallest possible or not significant."""
    n = len(test.errors)
    smallest = bool(np.isclose(test.p_value, 1 / (n + 1)))
    number = f"{n:,} permutation{'s' * (n > 1)}{', the smallest possible' * smallest}"
    text = f"p = {test.p_value:.2g} ({number})"
    if test.p_value <= SIGNIFICANT:
        return text
    return text + ("\ntoo few to tell" if smallest else "\nno better than chance")


def interval_words(quality: Mapping[str, Any]) -> str:
    """Return the 95 % interval of the calibration error in points, ``"0.4 to 2.1"``, if known."""
    ends = [100 * quality[name] for name in CALIBRATION_ERRORS[2:]]
    return " to ".join(f"{end:.1f}" for end in ends) if np.isfinite(ends).all() else ""


def differing_settings(
    mapped: _result.StoredMap, params: Mapping[str, Any], model: str | None
) -> str:
    """Describe the settings of a map that differ from those of a cross-validation; empty if equal.

    `params` and `model` are those of `StoredCrossValidation`.
    """
    ours, theirs = dict(mapped.params), dict(params)
    # Options that were None are not stored; masks that are arrays are not stored either.
    names = ["label_key", "use_rep", "layer", "use_raw", "unlabeled_category"]
    names += sorted({"mask_var", "missing"} & set(ours) & set(theirs))
    if model is not None and mapped.model is not None:
        fitted = json.loads(mapped.model["config"])["estimator"]["params"]
        checked = json.loads(model)
        names += sorted((set(fitted) & set(checked)) - {"random_state", "device"})
        ours, theirs = ours | fitted, theirs | checked
    values = [(name, ours.get(name), theirs.get(name)) for name in names]
    return ", ".join(f"{name}={a!r} against {b!r}" for name, a, b in values if a != b)


def missing_classes(per_class: pd.DataFrame, takes: str) -> list[str]:
    """Return a warning if classes are predicted for no cell.

    `takes` is its start: ``"the map takes"`` or the like.
    """
    missing = per_class["class"][per_class["n_predicted"] == 0]
    if missing.empty:
        return []
    return [
        f"{takes} no cell for {listed(pd.Index(missing))}: too few cells, or too similar to others"
    ]


def _held_out(quality: Mapping[str, Any]) -> str:
    if not quality["n"]:
        return "No cell was held out of the map: its picture alone proves nothing."
    text = f"Held-out 5-NN error {_percent(quality['knn_error'])} (n = {quality['n']:,})"
    chance = _percent(quality["chance_error"])
    if quality["at_chance"]:
        return f"{text}, no better than always naming the largest class ({chance})."
    return f"{text}; always naming the largest class: {chance}."


def _cross_validated(validated: StoredCrossValidation) -> list[str]:
    quality = validated.quality
    spread, chance = quality["knn_error_sd"], _percent(quality["chance_error"])
    error = f"{100 * quality['knn_error']:.1f}"
    error += f" ± {100 * spread:.1f} %" if np.isfinite(spread) else " %"
    sentences = [
        f"Cross-validated 5-NN error {error} ({fold_words(validated)}, n = {quality['n']:,}).",
        "In the full input space, without a map, it is "
        f"{_percent(quality['input_knn_error'])}; always naming the largest class gives {chance}.",
        f"With equal weight for every class: {_percent(quality['balanced_knn_error'])}.",
    ]
    poor = validated.per_class[validated.per_class["knn_error"] > POOR].sort_values(
        "knn_error", ascending=False
    )
    if len(poor):
        names = ", ".join(
            f"{row['class']} ({100 * row['knn_error']:.0f} % of {row['n']:,} cells wrong)"
            for row in poor[:MAX_CLASSES].to_dict("records")
        )
        more = f" and {len(poor) - MAX_CLASSES} more" if len(poor) > MAX_CLASSES else ""
        sentences.append(f"Least reliable: {names}{more}.")
    if validated.permutation is not None:
        words = permutation_words(validated.permutation).replace("\n", ", ")
        sentences.append(f"Against shuffled labels: {words}.")
    return sentences + _confidences(quality, "out-of-fold")


def _confidences(quality: Mapping[str, Any], cells: str) -> list[str]:
    error, before = (100 * quality[name] for name in CALIBRATION_ERRORS[:2])
    if not np.isfinite(error):
        return []
    interval = interval_words(quality)
    text = f"Confidences of {cells} cells are off by {error:.1f} points on average"
    text += f", 95 % interval {interval}" if interval else ""
    return [f"{text} ({before:.1f} before calibration)."]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
