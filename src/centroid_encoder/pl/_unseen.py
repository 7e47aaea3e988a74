"""Predictions for cells by networks that had not seen their labels: what can be judged by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.tl._stored import check_trained, read_result

if TYPE_CHECKING:
    from anndata import AnnData


@dataclass(frozen=True)
class Unseen:
    """Labeled cells and the classes that were predicted for them.

    Out-of-fold cells where there has been a cross-validation, for that is all labeled cells; else
    the held-out ones.
    """

    words: str
    """What these cells are, in the words of a title."""
    n: int
    """How many there were when they were predicted; in a selection of cells there are fewer."""
    own: NDArray[np.intp]
    """(n_unseen,) index of the cell's own class."""
    predicted: NDArray[np.intp]
    """(n_unseen,) index of the predicted class."""
    confidence: NDArray[np.float64]
    """(n_unseen,) probability of the predicted class; NaN where there is none."""
    quality: Mapping[str, Any]
    """Where the errors of these cells are stored."""


def read_cross_validation(adata: AnnData, key: str) -> Mapping[str, Any] | None:
    """Return what `tl.cross_validate` stored beside the result `key`, or None."""
    stored = adata.uns.get(f"{key}_cv")
    return stored if isinstance(stored, Mapping) and "confusion" in stored else None


def fold_words(stored: Mapping[str, Any]) -> str:
    """How a cross-validation was done: ``"5 folds × 2 repeats"``, ``"5 folds by donor"``."""
    params = stored["params"]
    n_repeats = int(params.get("n_repeats", 1))
    words = f"{int(params['n_folds'])} folds"
    words += f" × {n_repeats} repeats" if n_repeats > 1 else ""
    # Cells of a donor that was never seen: harder, and something else.
    return words + (f" by {params['group_key']}" if "group_key" in params else "")


def read_classes(stored: Mapping[str, Any]) -> pd.Index:
    """Classes of a result, as plain values whichever file it has been in."""
    return pd.Index(np.asarray(stored["classes"]).tolist())


def read_unseen(adata: AnnData, key: str) -> Unseen:
    """Read out-of-fold predictions, or else those for the held-out cells.

    Raises
    ------
    KeyError
        If there is neither, or if a part of them is gone.
    ValueError
        If no cell was held out, or if the labels have changed since.
    """
    stored = read_cross_validation(adata, key)
    return _held_out(adata, key) if stored is None else _out_of_fold(adata, key, stored)


def _held_out(adata: AnnData, key: str) -> Unseen:
    check_trained(adata, key)
    result = read_result(adata, key)
    if not int(result.stored["quality"]["test"]["n"]):
        raise ValueError(
            "no cell was held out (test_size=0), so there is nothing to judge by; run "
            f"ce.tl.cross_validate(adata, {result.label_key!r})"
        )
    quality = result.stored["quality"]["test"]
    shown = (result.split == "test").to_numpy() & (result.codes >= 0) & (result.predicted >= 0)
    if not shown.any():
        raise ValueError("none of the held-out cells is in this selection of cells")
    per_class = result.stored["quality"]["per_class"]
    own, predicted = result.codes[shown], result.predicted[shown]
    if len(own) == quality["n"] and not (
        np.array_equal(np.bincount(own, minlength=len(per_class)), per_class["n_test"])
        and np.isclose((own != predicted).mean(), quality["decoder_error"])
    ):
        raise _changed(result.label_key, "the training", "centroid_encoder")
    return Unseen(
        words="held-out cells",
        n=int(quality["n"]),
        own=own,
        predicted=predicted,
        confidence=_confidence(adata, f"{key}_confidence")[shown],
        quality=quality,
    )


def _out_of_fold(adata: AnnData, key: str, stored: Mapping[str, Any]) -> Unseen:
    label_key = str(stored["params"]["label_key"])
    if label_key not in adata.obs:
        raise KeyError(f"obs[{label_key!r}], the labels that were cross-validated, is gone")
    for column in (f"{key}_cv_label", f"{key}_cv_own"):
        if column not in adata.obs:
            raise KeyError(f"obs[{column!r}], a part of the cross-validation, is gone")
    classes, labels = read_classes(stored), adata.obs[label_key]
    own = classes.get_indexer(labels.astype(object))
    unknown = labels[adata.obs[f"{key}_cv_own"].notna() & (own < 0)].unique()
    if len(unknown):
        raise ValueError(
            f"obs[{label_key!r}] has changed since the cross-validation: "
            f"{', '.join(map(repr, unknown[:5]))} was not among its classes. Run "
            "ce.tl.cross_validate again, or restore the labels"
        )
    predicted = classes.get_indexer(adata.obs[f"{key}_cv_label"].astype(object))
    shown = (own >= 0) & (predicted >= 0)
    if shown.sum() == stored["quality"]["n"]:
        confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
        np.add.at(confusion, (own[shown], predicted[shown]), 1)
        if not np.array_equal(confusion, stored["confusion"]):
            raise _changed(label_key, "the cross-validation", "cross_validate")
    return Unseen(
        words=f"out-of-fold labels, {fold_words(stored)}",
        n=int(stored["quality"]["n"]),
        own=own[shown],
        predicted=predicted[shown],
        confidence=_confidence(adata, f"{key}_cv_confidence")[shown],
        quality=stored["quality"],
    )


def _changed(label_key: str, since: str, function: str) -> ValueError:
    """Say that cells are no longer what they were, though their classes have the same names."""
    return ValueError(
        f"obs[{label_key!r}] has changed since {since}: other cells are right and wrong than were "
        f"counted then. Run ce.tl.{function} again, or restore the labels"
    )


def _confidence(adata: AnnData, column: str) -> NDArray[np.float64]:
    if column not in adata.obs:
        return np.full(adata.n_obs, np.nan)
    return np.asarray(adata.obs[column], dtype=np.float64)
