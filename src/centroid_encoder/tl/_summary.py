"""The numbers of a result in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from centroid_encoder.errors import Message
from centroid_encoder.tl._settings import differing_settings
from centroid_encoder.tl._stored import (
    PermutationTest,
    StoredCrossValidation,
    StoredMap,
    calibration_interval,
    cv_key,
)

if TYPE_CHECKING:
    from anndata import AnnData

MAX_WARNINGS = 4
MAX_CLASSES = 3
POOR = 0.2
"""Error of a class from which on it is named."""
SIGNIFICANT = 0.05
"""Largest p value that says something."""


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
    mapped, validated = StoredMap.read(adata, key), StoredCrossValidation.read(adata, key)
    if mapped is not None and mapped.quality is None:
        mapped = None
    sentences: list[str] = []
    if mapped is not None:
        sentences += _held_out(mapped.errors("test"))
    if validated is not None:
        sentences += _cross_validated(validated)
        sentences += _confidences(validated.quality, "out-of-fold")
    if mapped is not None:
        sentences += _confidences(mapped.errors("test"), "held-out")
        missing = missing_classes(mapped.per_class, "the map takes")
        sentences += (f"Warning: {text}." for text in missing)
    if validated is not None:
        if mapped is not None:
            sentences += _same_labels(mapped, validated)
        sentences += _warnings(validated.warnings if warnings is None else warnings, cv_key(key))
    return sentences


def fold_words(validated: StoredCrossValidation) -> str:
    """How a cross-validation was done: ``"5 folds × 2 repeats"``, ``"5 folds by donor"``."""
    params = validated.params
    n_repeats = int(params.get("n_repeats", 1))
    words = f"{int(params['n_folds'])} folds" if "n_folds" in params else "folds"
    words += f" × {n_repeats} repeats" if n_repeats > 1 else ""
    # Cells of a donor that was never seen: harder, and something else.
    return words + (f" by {params['group_key']}" if "group_key" in params else "")


def permutation_words(test: PermutationTest) -> str:
    """The p value, and how small it could be."""
    n = len(test.errors)
    number = f"{n:,} permutation" + "s" * (n > 1)
    smallest = bool(np.isclose(test.p_value, 1 / (n + 1)))
    text = f"p = {test.p_value:.2g} ({number}{', the smallest possible' if smallest else ''})"
    if test.p_value <= SIGNIFICANT:
        return text
    return text + ("\ntoo few to tell" if smallest else "\nno better than chance")


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


def _cross_validated(validated: StoredCrossValidation) -> Iterator[str]:
    quality = validated.quality
    spread = quality["knn_error_sd"]
    error = f"{100 * quality['knn_error']:.1f}"
    error += f" ± {100 * spread:.1f} %" if np.isfinite(spread) else " %"
    n = f"n = {int(quality['n']):,}"
    yield f"Cross-validated 5-NN error {error} ({fold_words(validated)}, {n})."
    if np.isfinite(quality["input_knn_error"]):
        whole, chance = _percent(quality["input_knn_error"]), _percent(quality["chance_error"])
        text = f"In the full input space, without any map, it is {whole}"
        yield f"{text}; always naming the largest class gives {chance}."
    balanced = quality["balanced_knn_error"]
    if np.isfinite(balanced):
        yield f"With every class counting the same: {_percent(balanced)}."
    yield from _poor_classes(validated)
    if validated.permutation is not None:
        words = permutation_words(validated.permutation)
        yield f"Against shuffled labels: {words}.".replace("\n", ", ")


def _confidences(quality: Mapping[str, Any], words: str) -> Iterator[str]:
    error, before = quality["calibration_error"], quality["uncalibrated_error"]
    if not np.isfinite(error):
        return
    text = f"Confidences of {words} cells are off by {100 * error:.1f} points on average"
    if interval := calibration_interval(quality):
        text += f", 95 % interval {interval_words(interval)}"
    yield text + (f" ({100 * before:.1f} before calibration)." if np.isfinite(before) else ".")


def interval_words(interval: tuple[float, float]) -> str:
    """Two shares in points: ``"0.4 to 2.1"``."""
    return " to ".join(f"{100 * end:.1f}" for end in interval)


def _poor_classes(validated: StoredCrossValidation) -> Iterator[str]:
    table = validated.per_class
    poor = table[table["knn_error"] > POOR].sort_values("knn_error", ascending=False)
    if not len(poor):
        return
    named = [
        f"{name} ({100 * error:.0f} % of {int(n):,} cells wrong)"
        for name, n, error in zip(poor["class"], poor["n"], poor["knn_error"], strict=True)
    ]
    rest = f" and {len(named) - MAX_CLASSES} more" if len(named) > MAX_CLASSES else ""
    yield f"Least to be believed: {', '.join(named[:MAX_CLASSES])}{rest}."


def _same_labels(mapped: StoredMap, validated: StoredCrossValidation) -> Iterator[str]:
    n_mapped, n_validated = len(mapped.classes), len(validated.classes)
    if mapped.label_key != validated.label_key:
        yield (
            f"Warning: the map is of obs[{mapped.label_key!r}], but obs[{validated.label_key!r}] "
            "was cross-validated."
        )
    elif set(mapped.classes) != set(validated.classes):
        yield (
            f"Warning: the map has {n_mapped} classes and the cross-validation {n_validated}, not "
            "the same ones: the labels have changed between them."
        )
    elif differing := differing_settings(mapped, validated.params, validated.model):
        yield (
            "Warning: the map and the cross-validation are two models, of other settings (map "
            f"against cross-validation): {differing}."
        )


def _warnings(warnings: Sequence[str], key: str) -> Iterator[str]:
    yield from (f"Warning: {text}" for text in warnings[:MAX_WARNINGS])
    if len(warnings) > MAX_WARNINGS:
        yield f"And {len(warnings) - MAX_WARNINGS} more in uns[{key!r}]['warnings']."


def _percent(share: Any) -> str:
    return f"{100 * float(share):.1f} %"


def missing_classes(per_class: pd.DataFrame, takes: str) -> list[Message]:
    """Return what there is to say of classes that no cell is taken for, if that was counted.

    `takes` says what it is that takes none, as ``"the map takes"`` does.
    """
    said, named = [], np.zeros(len(per_class), dtype=bool)
    for column, text in (
        ("n_predicted", takes + " no cell for {}: too few cells, or too alike others"),
        ("n_in_cell", "in the map no cell lies in the Voronoi cell of {}"),
    ):
        if column not in per_class:
            continue
        # Each class once: where cells lie as the map decides, the second says what the first does.
        missing = (per_class[column] == 0).to_numpy() & ~named
        named |= missing
        if missing.any():
            names = per_class["class"][missing].tolist()
            rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
            said.append(Message(text, ", ".join(map(repr, names[:10])) + rest))
    return said
