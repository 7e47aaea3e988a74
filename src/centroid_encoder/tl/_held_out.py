"""Predictions for labeled cells by networks that were not trained on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.errors import check
from centroid_encoder.tables import cv_key, obs_key
from centroid_encoder.tl import _result
from centroid_encoder.tl._summary import differing_settings


@dataclass(frozen=True)
class HeldOut:
    """Labeled cells, and their classes as predicted by networks that were not trained on them."""

    words: str
    """Description of the cells, for a title."""
    quality: Mapping[str, Any]
    """Errors of the cells, and their number ``n``, before any selection of cells."""
    rows: NDArray[np.intp]
    """(n_held_out,) rows of the cells."""
    own: NDArray[np.intp]
    """(n_held_out,) own class, as an index into the classes in the order of their categories."""
    predicted: NDArray[np.intp]
    judged: NDArray[np.intp]
    """(n_held_out,) class by which the cell was judged: its own unless it was relabelled since."""
    confidence: NDArray[np.float64]
    """(n_held_out,) probability of the predicted class."""
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
        unlabeled = params.get("unlabeled_category")
        has_label = labels.notna() & (labels != unlabeled)
        n_unlabeled = int((of_check.notna() & ~has_label).sum())
        held_out = of_check.notna() & has_label
        own, predicted, judged = (
            classes.get_indexer(names.astype(object)) for names in (labels, found, of_check)
        )
        is_new = held_out & (own < 0)
        n_new = int(is_new.sum()) + n_unlabeled
        _result.check_classes(labels[is_new & is_new.equals(held_out)], label_key, "cross_validate")
    rows = np.flatnonzero(held_out & (own >= 0) & (predicted >= 0))
    check(len(rows), "none of the held-out cells is in this selection of cells")
    column = _result.stored_column(adata, obs_key(key, "confidence"), part)
    confidence = column.to_numpy(np.float64)[rows]
    of_rows = own[rows], predicted[rows], judged[rows], confidence
    return HeldOut(words, quality, rows, *of_rows, params.get("group_key"), n_new)
