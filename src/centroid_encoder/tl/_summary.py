"""Sentences on a result, for the command line, the widget and `pl.reliability`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from centroid_encoder.tl import _result
from centroid_encoder.tl._read import listed
from centroid_encoder.tl._result import CALIBRATION_ERRORS, StoredCrossValidation, fold_words

if TYPE_CHECKING:
    from anndata import AnnData

MAX_WARNINGS = 4
MAX_CLASSES = 3
POOR = 0.2
"""Error from which on a class is named."""
SIGNIFICANT = 0.05


def summary(adata: AnnData, key: str) -> list[str]:
    """Sentences on how far the results under a key can be trusted, the most important first."""
    mapped, validated = _result.StoredMap.read(adata, key), StoredCrossValidation.read(adata, key)
    sentences, warnings = [], []
    if mapped is not None and mapped.quality is not None:
        held_out = mapped.errors("test")
        sentences = [_held_out(held_out), *_confidences(held_out, "held-out")]
        missing = missing_classes(mapped.quality["per_class"], "the map takes")
        warnings = [f"Warning: {text}." for text in missing]
    if validated is None:
        return sentences + warnings
    sentences[1:1] = _cross_validated(validated)
    if mapped is not None and mapped.quality is not None:
        differing = [_result.differing_settings(mapped, validated.params, validated.model)]
        if set(mapped.classes) != set(validated.classes):
            differing += [f"{len(mapped.classes)} classes against {len(validated.classes)}"]
        if text := ", ".join(filter(None, differing)):
            warnings.append(
                "Warning: the map and the cross-validation are two models with different settings "
                f"(map against cross-validation): {text}."
            )
    warnings += [f"Warning: {text}" for text in validated.warnings[:MAX_WARNINGS]]
    if (more := len(validated.warnings) - MAX_WARNINGS) > 0:
        warnings.append(f"And {more} more in uns[{_result.cv_key(key)!r}]['warnings'].")
    return sentences + warnings


def permutation_words(test: _result.PermutationTest) -> str:
    """The p value and the smallest possible one."""
    n = len(test.errors)
    smallest = bool(np.isclose(test.p_value, 1 / (n + 1)))
    number = f"{n:,} permutation{'s' * (n > 1)}{', the smallest possible' * smallest}"
    text = f"p = {test.p_value:.2g} ({number})"
    if test.p_value <= SIGNIFICANT:
        return text
    return text + ("\ntoo few to tell" if smallest else "\nno better than chance")


def interval_words(quality: Mapping[str, Any]) -> str:
    """95 % interval of the calibration error in points, ``"0.4 to 2.1"``; empty if unknown."""
    ends = [100 * quality[name] for name in CALIBRATION_ERRORS[2:]]
    return " to ".join(f"{end:.1f}" for end in ends) if np.isfinite(ends).all() else ""


def missing_classes(per_class: pd.DataFrame, takes: str) -> list[str]:
    """Warnings of classes without cells; `takes` is such as ``"the map takes"``."""
    missing, texts = per_class["n_predicted"] == 0, []
    if missing.any():
        names = listed(pd.Index(per_class["class"][missing]))
        texts.append(f"{takes} no cell for {names}: too few cells, or too similar to others")
    if "n_in_cell" in per_class:
        # Without a decoder both numbers are the same.
        missing = (per_class["n_in_cell"] == 0) & ~missing
        if missing.any():
            names = listed(pd.Index(per_class["class"][missing]))
            texts.append(f"in the map no cell lies in the Voronoi cell of {names}")
    return texts


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
