"""Predictions for labeled cells by networks that were not trained on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from centroid_encoder.errors import Call, InputError, Setting
from centroid_encoder.tl._settings import differing_settings
from centroid_encoder.tl._stored import (
    TEST,
    StoredCrossValidation,
    StoredMap,
    check_classes,
    check_trained,
    cv_key,
    obs_key,
    read_result,
    stored_column,
)
from centroid_encoder.tl._summary import fold_words

if TYPE_CHECKING:
    from anndata import AnnData


@dataclass(frozen=True)
class HeldOut:
    """Labeled cells and the classes that were predicted for them.

    Out-of-fold predictions where there has been a cross-validation, since they are of all labeled
    cells; else those of the cells that were held out of the map.
    """

    words: str
    """What these cells are, in the words of a title."""
    n: int
    """How many there were when they were predicted; in a selection of cells there are fewer."""
    own: NDArray[np.intp]
    """(n_held_out,) index of the cell's own class."""
    predicted: NDArray[np.intp]
    """(n_held_out,) index of the predicted class."""
    confidence: NDArray[np.float64]
    """(n_held_out,) probability of the predicted class; NaN where there is none."""
    quality: Mapping[str, Any]
    """The errors that were counted on these cells; NaN for one that was not."""


def read_held_out(adata: AnnData, key: str) -> HeldOut:
    """Read out-of-fold predictions, or else those for the held-out cells.

    Raises
    ------
    KeyError
        If there is neither, or if a part of them is gone.
    ValueError
        If no cell was held out, or if the labels have changed since.
    """
    validated = StoredCrossValidation.read(adata, key)
    return _of_map(adata, key) if validated is None else _out_of_fold(adata, key, validated)


def _of_map(adata: AnnData, key: str) -> HeldOut:
    check_trained(adata, key)
    result = read_result(adata, key)
    quality = result.stored.errors(TEST)
    if not int(quality["n"]):
        raise InputError(
            "no cell was held out ({}), so there is nothing to judge by; run {}",
            Setting("test_size", 0),
            Call("tl.cross_validate", (result.label_key,)),
        )
    shown = (result.split == TEST).to_numpy() & (result.codes >= 0) & (result.predicted >= 0)
    if not shown.any():
        raise InputError("none of the held-out cells is in this selection of cells")
    own, predicted = result.codes[shown], result.predicted[shown]
    in_class = np.bincount(own, minlength=len(result.classes))
    if len(own) == quality["n"] and not (
        np.array_equal(in_class, result.stored.per_class["n_test"])
        and np.isclose((own != predicted).mean(), quality["decoder_error"])
    ):
        raise _changed(result.label_key, "the training", "centroid_encoder")
    return HeldOut(
        words="held-out cells",
        n=int(quality["n"]),
        own=own,
        predicted=predicted,
        confidence=_confidence(adata, key)[shown],
        quality=quality,
    )


def _out_of_fold(adata: AnnData, key: str, validated: StoredCrossValidation) -> HeldOut:
    label_key, classes = validated.label_key, validated.classes
    out_of_fold, n_cells = cv_key(key), int(validated.quality["n"])
    part = "a part of the cross-validation"
    labels = stored_column(adata, label_key, "the labels that were cross-validated")
    found = stored_column(adata, obs_key(out_of_fold, "label"), part)
    had_label = stored_column(adata, obs_key(out_of_fold, "own"), part).notna()
    own = classes.get_indexer(labels.astype(object))
    check_classes(labels, had_label & (own < 0), label_key, "cross_validate")
    predicted = classes.get_indexer(found.astype(object))
    shown = (own >= 0) & (predicted >= 0)
    if shown.sum() == n_cells:
        confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
        np.add.at(confusion, (own[shown], predicted[shown]), 1)
        if not np.array_equal(confusion, validated.confusion):
            raise _changed(label_key, "the cross-validation", "cross_validate")
    mapped = StoredMap.read(adata, key)
    words = f"out-of-fold labels, {fold_words(validated)}"
    if mapped is not None and differing_settings(mapped, validated.params, validated.model):
        words += ", other settings than the map's"
    return HeldOut(
        words=words,
        n=n_cells,
        own=own[shown],
        predicted=predicted[shown],
        confidence=_confidence(adata, out_of_fold)[shown],
        quality=validated.quality,
    )


def _changed(label_key: str, since: str, function: str) -> InputError:
    """Say that cells are no longer what they were, though their classes have the same names."""
    text = (
        "obs[{!r}] has changed since {}: other cells are right and wrong than were counted then. "
        "Run {} again, or restore the labels"
    )
    return InputError(text, label_key, since, Call(f"tl.{function}"))


def _confidence(adata: AnnData, key: str) -> NDArray[np.float64]:
    column = obs_key(key, "confidence")
    if column not in adata.obs:
        return np.full(adata.n_obs, np.nan)
    return np.asarray(adata.obs[column], dtype=np.float64)
