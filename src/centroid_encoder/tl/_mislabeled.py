"""Cells whose label is improbable by networks that were not trained on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.core.suspects import suspects
from centroid_encoder.errors import InputError, MissingKeyError, issue_warning
from centroid_encoder.tl._held_out import read_held_out
from centroid_encoder.tl._result import StoredCrossValidation, cv_key, obs_key

REASONS = {
    "chance": "the predictions agree with the labels no more often than with shuffled labels",
    "agree": "each cell is predicted to be of the class of its label",
    "confused": "the predictions do not tell apart the classes that are confused",
    "between": "the labels that differ from the prediction are those of cells between two classes",
}


def mislabeled(adata: AnnData, *, key: str = "ce", max_own: float | None = None) -> pd.DataFrame:
    """List the cells that look mislabelled, worst first.

    The networks that were trained without a listed cell predict another class than its label, and
    the label is at most about as probable as is typical of cells of the predicted class. Cells
    between two classes, for which both are probable, are not listed. `adata` is not changed.

    If a cell was relabelled after the cross-validation, it is judged by its new label if this is
    the predicted class, and it is then not listed. With any other new label it is left out, and a
    warning has the number of such cells: cross-validate again to judge them.

    Parameters
    ----------
    adata
        Annotated data after `cross_validate`.
    key
        Name of the result, as given to `key_added` of that function.
    max_own
        Largest out-of-fold probability of the cell's own label, in [0, 1], instead of the rule
        above. With 1, all cells with another predicted class are listed.

    Returns
    -------
    DataFrame
        One row for each cell, under its name in ``obs_names``, with the columns

        ``label``, ``predicted`` : dtype ``category``
            The label of the cell, and its out-of-fold predicted class.
        ``confidence``, ``own`` : dtype ``float32``
            Probabilities of the predicted class and of the label.

        Sorted by ``own`` divided by the square root of its typical value or, with `max_own`, by
        ``own / confidence``; the smallest first. ``attrs["reason"]`` has the reason if the list is
        empty.

    Raises
    ------
    KeyError
        If there is no cross-validation under that key, or if a part of it is missing.
    ValueError
        If `max_own` is not in [0, 1], or if no label is a class of the cross-validation.

    Notes
    -----
    Among the cells with the label i that are predicted to be of class j, twice the number of those
    with at most the typical probability of i are taken to be wrong: half of the wrong labels are
    below the median. The typical probability is the median over the cells labelled j and predicted
    to be j. It is also large if many labels are wrong, so that the list does not depend on their
    share. Classes that the networks do not tell apart (Fisher's exact test) are left out, and the
    list is empty if predictions and labels agree no more often than with shuffled labels. Such
    thresholds for each class are those of confident learning [1]_, here for pairs of classes.

    References
    ----------
    .. [1] Northcutt, Jiang & Chuang (2021), Confident learning: estimating uncertainty in dataset
       labels. Journal of Artificial Intelligence Research 70.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.cross_validate(adata, "bulk_labels", progress=False)
    >>> suspects = ce.tl.mislabeled(adata)
    """
    if max_own is not None and not 0 <= max_own <= 1:
        raise InputError(f"max_own must be in [0, 1]; got {max_own!r}", parameter="max_own")
    validated = StoredCrossValidation.read(adata, key)
    if validated is None:
        text = f"no cross-validation {key!r}; run ce.tl.cross_validate(adata, label_key) first"
        raise MissingKeyError(text)
    cells = read_held_out(adata, key)
    is_relabeled = cells.own != cells.judged
    if n_left_out := int((is_relabeled & (cells.own != cells.predicted)).sum()) + cells.n_new:
        text = f"cells that are left out: {n_left_out}. They were relabelled to a class that is not"
        text = f"{text} the predicted one; run ce.tl.cross_validate again to judge them"
        issue_warning(text, stacklevel=2)
    own = adata.obs[obs_key(cv_key(key), "own")].to_numpy(np.float64)[cells.rows]
    # The labels that were judged, since their probabilities are stored.
    listed, reason = suspects(cells.judged, cells.predicted, own, validated.typical)
    if max_own is not None:
        listed = np.flatnonzero((cells.judged != cells.predicted) & (own <= max_own))
        listed = listed[np.argsort(own[listed] / cells.confidence[listed], kind="stable")]
        reason = "" if len(listed) else f"no other label has a probability of at most {max_own}"
    else:
        reason = REASONS.get(reason, "")
    listed = listed[~is_relabeled[listed]]
    if not len(listed) and not reason:
        reason = "the cells that looked mislabelled were relabelled"
    table = pd.DataFrame(
        {
            "label": pd.Categorical.from_codes(cells.own[listed], validated.classes),
            "predicted": pd.Categorical.from_codes(cells.predicted[listed], validated.classes),
            "confidence": cells.confidence[listed].astype(np.float32),
            "own": own[listed].astype(np.float32),
        },
        index=adata.obs_names[cells.rows[listed]],
    )
    table.attrs["reason"] = reason
    if reason:
        issue_warning(f"no cell is listed: {reason}", stacklevel=2)
    return table
