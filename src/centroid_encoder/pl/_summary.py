"""The numbers of a result in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from centroid_encoder.pl._permutation_test import permutation_words
from centroid_encoder.pl._unseen import fold_words, read_cross_validation

if TYPE_CHECKING:
    from anndata import AnnData

MAX_WARNINGS = 4
MAX_CLASSES = 3
POOR = 0.2
"""Error of a class from which on it is named."""


def summary(adata: AnnData, key: str, *, warnings: Sequence[str] | None = None) -> list[str]:
    """Sentences on what may be believed of a result, the most telling first.

    Parameters
    ----------
    adata
        Annotated data after `tl.centroid_encoder`, `tl.cross_validate` or both.
    key
        Their ``key_added``.
    warnings
        Those of the cross-validation in other words than the stored ones.
    """
    result, stored = adata.uns.get(key), read_cross_validation(adata, key)
    judged = isinstance(result, Mapping) and "quality" in result
    sentences: list[str] = []
    if judged:
        sentences += _held_out(result["quality"]["test"])
    if stored is not None:
        sentences += _cross_validated(stored)
        sentences += _confidences(stored["quality"], "out-of-fold")
    if judged:
        sentences += _confidences(result["quality"]["test"], "held-out")
    if stored is not None:
        if judged:
            sentences += _same_labels(result, stored)
        sentences += _warnings(stored, f"{key}_cv", warnings)
    return sentences


def _held_out(quality: Mapping[str, Any]) -> Iterator[str]:
    if not int(quality["n"]):
        yield "No cell was held out of the map: its picture alone proves nothing."
        return
    text = f"Held-out 5-NN error {_percent(quality['knn_error'])} (n = {int(quality['n']):,})"
    chance = _percent(quality["chance_error"])
    if quality["at_chance"]:
        yield f"{text}, no better than always naming the largest class ({chance})."
    else:
        yield f"{text}; always naming the largest class: {chance}."


def _cross_validated(stored: Mapping[str, Any]) -> Iterator[str]:
    quality = stored["quality"]
    text = f"Cross-validated 5-NN error {_percent(quality['knn_error'])}"
    spread = float(quality.get("knn_error_sd", np.nan))
    if np.isfinite(spread):
        text = text[:-2] + f" ± {100 * spread:.1f} %"
    yield f"{text} ({fold_words(stored)}, n = {int(quality['n']):,})."
    whole, chance = (
        float(quality.get(f"{name}_error", np.nan)) for name in ("input_knn", "chance")
    )
    if np.isfinite(whole):
        text = f"In the full input space, without any map, it is {_percent(whole)}"
        yield f"{text}; always naming the largest class gives {_percent(chance)}."
    balanced = float(quality.get("balanced_knn_error", np.nan))
    if np.isfinite(balanced):
        yield f"With every class counting the same: {_percent(balanced)}."
    yield from _poor_classes(stored)
    if "permutation" in stored:
        test = stored["permutation"]
        words = permutation_words(float(test["p_value"]), len(np.asarray(test["errors"])))
        yield f"Against shuffled labels: {words}.".replace("\n", ", ")


def _confidences(quality: Mapping[str, Any], words: str) -> Iterator[str]:
    error = float(quality.get("calibration_error", np.nan))
    if not np.isfinite(error):
        return
    text = f"Confidences of {words} cells are off by {100 * error:.1f} points on average"
    before = float(quality.get("uncalibrated_error", np.nan))
    yield text + (f" ({100 * before:.1f} before calibration)." if np.isfinite(before) else ".")


def _poor_classes(stored: Mapping[str, Any]) -> Iterator[str]:
    table = stored["per_class"]
    poor = table[table["knn_error"] > POOR].sort_values("knn_error", ascending=False)
    if not len(poor):
        return
    named = [
        f"{name} ({100 * error:.0f} % of {int(n):,} cells wrong)"
        for name, n, error in zip(poor["class"], poor["n"], poor["knn_error"], strict=True)
    ]
    rest = f" and {len(named) - MAX_CLASSES} more" if len(named) > MAX_CLASSES else ""
    yield f"Least to be believed: {', '.join(named[:MAX_CLASSES])}{rest}."


def _same_labels(result: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
    mapped, validated = (str(part["params"]["label_key"]) for part in (result, stored))
    classes = {str(name) for name in result["classes"]}
    known = {str(name) for name in stored["per_class"]["class"]}
    if mapped != validated:
        yield (
            f"Warning: the map is of obs[{mapped!r}], but obs[{validated!r}] was cross-validated."
        )
    elif classes != known:
        yield (
            f"Warning: the map has {len(classes)} classes and the cross-validation {len(known)}, "
            "not the same ones: the labels have changed between them."
        )


def _warnings(stored: Mapping[str, Any], key: str, warnings: Sequence[str] | None) -> Iterator[str]:
    if warnings is None:
        warnings = [str(text) for text in np.atleast_1d(stored.get("warnings", []))]
    yield from (f"Warning: {text}" for text in warnings[:MAX_WARNINGS])
    if len(warnings) > MAX_WARNINGS:
        yield f"And {len(warnings) - MAX_WARNINGS} more in uns[{key!r}]['warnings']."


def _percent(share: Any) -> str:
    return f"{100 * float(share):.1f} %"
