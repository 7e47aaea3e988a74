"""Cells whose label is improbable by networks that were not trained on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.errors import InputError, MissingKeyError
from centroid_encoder.tl._held_out import read_held_out
from centroid_encoder.tl._result import StoredCrossValidation, cv_key, obs_key


def mislabeled(adata: AnnData, *, key: str = "ce", max_own: float = 0.05) -> pd.DataFrame:
    """List the cells that look mislabelled, worst first.

    A cell is listed if the networks that were trained without it predict another class, and give
    its own label a probability of at most `max_own`. Cells of classes that the data do not separate
    are listed as well, mostly towards the end. `adata` is not changed.

    Parameters
    ----------
    adata
        Annotated data after `cross_validate`.
    key
        Name of the result, as given to `key_added` of that function.
    max_own
        Largest out-of-fold probability of the cell's own label, in [0, 1]. With 1, all cells with
        another predicted class are listed.

    Returns
    -------
    DataFrame
        One row for each cell, under its name in ``obs_names``, with the columns

        ``label``, ``predicted`` : dtype ``category``
            The label of the cell, and its out-of-fold predicted class.
        ``confidence``, ``own`` : dtype ``float32``
            Probabilities of the predicted class and of the label.

        Sorted by ``confidence / own``, the largest first.

    Raises
    ------
    KeyError
        If there is no cross-validation under that key, or if a part of it is missing.
    ValueError
        If `max_own` is not in [0, 1], or if the labels are not those of the cross-validation.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.cross_validate(adata, "bulk_labels", progress=False)
    >>> suspects = ce.tl.mislabeled(adata)
    """
    if not 0 <= max_own <= 1:
        raise InputError(f"max_own must be in [0, 1]; got {max_own!r}", parameter="max_own")
    validated = StoredCrossValidation.read(adata, key)
    if validated is None:
        text = f"no cross-validation {key!r}; run ce.tl.cross_validate(adata, label_key) first"
        raise MissingKeyError(text)
    cells = read_held_out(adata, key)
    columns = [obs_key(cv_key(key), "confidence"), obs_key(cv_key(key), "own")]
    table = adata.obs[columns].set_axis(["confidence", "own"], axis=1).iloc[cells.rows]
    for column, codes in (("predicted", cells.predicted), ("label", cells.own)):
        table.insert(0, column, pd.Categorical.from_codes(codes, validated.classes))
    table = table[(cells.own != cells.predicted) & (table["own"] <= max_own)]
    return table.iloc[np.argsort(-table["confidence"] / table["own"], kind="stable")]
