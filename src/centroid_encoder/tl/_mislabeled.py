"""Cells whose label is improbable by models that were not trained on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.checks import are_shares
from centroid_encoder.errors import MissingKeyError, check, issue_warning
from centroid_encoder.tables import cv_key, obs_key
from centroid_encoder.tl._evaluation import read_held_out
from centroid_encoder.tl._result import StoredCrossValidation, stored_column

REASONS = {
    "agree": "each cell is predicted to be of the class of its label",
    "confused": "the predictions do not tell apart the classes that are confused, as if by chance",
    "between": "the labels that differ from the prediction are those of cells between two classes",
}


def mislabeled(adata: AnnData, *, key: str = "ce", max_own: float | None = None) -> pd.DataFrame:
    """List the cells that look mislabelled, worst first.

    The networks and a linear discriminant analysis, which were trained without a listed cell,
    together predict another class than its label, and the label is at most about as probable as is
    typical of cells of the predicted class. Cells between two classes, for which both are probable,
    are not listed. `adata` is not changed.

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
        Largest out-of-fold probability of the cell's own label by the networks, in [0, 1], instead
        of the rule above. With 1, all cells with another predicted class are listed.

    Returns
    -------
    DataFrame
        One row for each cell, under its name in ``obs_names``, with the columns

        ``label``, ``predicted`` : dtype ``category``
            The label of the cell, and its probable class: ``obs["ce_cv_suspect"]`` or, with
            `max_own`, ``obs["ce_cv_label"]``.
        ``confidence``, ``own`` : dtype ``float32``
            Probabilities, by the networks alone, of the predicted class and of the label. The first
            is NaN where the networks alone predict another class than `predicted`.

        The worst cells come first, by ``obs["ce_cv_doubt"]`` or, with `max_own`, by the smallest
        ``own / confidence``. ``attrs["reason"]`` has the reason if the list is empty.

    Raises
    ------
    KeyError
        If there is no cross-validation under that key, or if a part of it is missing.
    ValueError
        If `max_own` is not in [0, 1], or if no label is a class of the cross-validation.

    Notes
    -----
    Probabilities are geometric means of those of the networks and of the discriminant analysis,
    which has a shrunk covariance [2]_ on 50 principal axes. If many cells of one class have the
    name of another one, networks learn a part of these names. The analysis hardly does, because it
    has few parameters.

    A wrong label is as improbable for its cell as for the other cells of the true class. Among the
    cells with the label i that are predicted to be j, the number of those with at most the typical
    probability of i, times two, is thus the number of wrong labels. The typical probability is the
    median over the cells that are labelled j and predicted to be j. It is also large if many labels
    are wrong, so that the list does not depend on their share. The numbers are summed over all
    pairs; for each j, the sum is at most the number of cells. The 40 % and 60 % quantiles give two
    more such sums, and the largest of the three is the length of the list.

    The models have learned wrong labels as well. The numbers for each pair give the probability
    that a cell of one class has the label of another, and the product of the probabilities of the
    labels with the inverse of these rates gives those of the classes [3]_. The list is then made a
    second time, with the class that these predict.

    Thresholds and numbers for each pair of classes are those of confident learning [1]_, but the
    threshold is that of the pair instead of that of one class. Cells are sorted by the geometric
    mean of the probability of the label and its ratio to the typical one, divided by the odds that
    a label of the pair is wrong; to the cells of each pair, ten cells of all pairs are added.

    Pairs of classes that the predictions do not tell apart are left out (Fisher's exact test, at
    0.01 over all pairs). With shuffled labels, the list is thus empty.

    References
    ----------
    .. [1] Northcutt, Jiang & Chuang (2021), Confident learning: estimating uncertainty in dataset
       labels. Journal of Artificial Intelligence Research 70.
    .. [2] Ledoit & Wolf (2004), A well-conditioned estimator for large-dimensional covariance
       matrices. Journal of Multivariate Analysis 88.
    .. [3] Patrini, Rozza, Menon, Nock & Qu (2017), Making deep neural networks robust to label
       noise: a loss correction approach. IEEE CVPR.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.cross_validate(adata, "bulk_labels", progress=False)
    >>> suspects = ce.tl.mislabeled(adata)
    """
    fits = max_own is None or are_shares(max_own)
    check(fits, f"max_own must be in [0, 1]; got {max_own!r}", "max_own")
    validated = StoredCrossValidation.read(adata, key)
    if validated is None:
        text = f"no cross-validation {key!r}; run ce.tl.cross_validate(adata, label_key) first"
        raise MissingKeyError(text)
    cells = read_held_out(adata, key)
    part = f"a part of the cross-validation {key!r}"
    names = (obs_key(cv_key(key), name) for name in ("own", "doubt", "suspect"))
    own, doubt, suspect = (stored_column(adata, name, part).iloc[cells.rows] for name in names)
    probable = validated.classes.get_indexer(suspect.astype(object))
    predicted = np.where(doubt > 0, probable, cells.predicted)
    reason = REASONS.get(validated.reason, "")
    if max_own is not None:
        predicted = cells.predicted
        doubt = (cells.confidence / own).where((cells.judged != predicted) & (own <= max_own), 0)
        reason = f"no other label has a probability of at most {max_own}" if not doubt.any() else ""
    listed = np.argsort(-doubt.to_numpy(), kind="stable")[: int((doubt > 0).sum())]
    is_relabeled = cells.own != cells.judged
    if n_left_out := int((is_relabeled & (cells.own != predicted)).sum()) + cells.n_new:
        text = f"cells that are left out: {n_left_out}. They were relabelled to a class that is not"
        text = f"{text} the predicted one; run ce.tl.cross_validate again to judge them"
        issue_warning(text, stacklevel=2)
    listed = listed[~is_relabeled[listed]]
    if not len(listed) and not reason:
        reason = "the cells that looked mislabelled were relabelled or are not in this table"
    is_theirs = cells.predicted == predicted
    table = pd.DataFrame(
        {
            "label": pd.Categorical.from_codes(cells.own[listed], validated.classes),
            "predicted": pd.Categorical.from_codes(predicted[listed], validated.classes),
            "confidence": np.where(is_theirs, cells.confidence, np.nan).astype(np.float32)[listed],
            "own": own.to_numpy(np.float32)[listed],
        },
        index=adata.obs_names[cells.rows[listed]],
    )
    table.attrs["reason"] = reason
    if reason:
        issue_warning(f"no cell is listed: {reason}", stacklevel=2)
    return table
