"""Cells whose label looks wrong to networks that have not seen it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from centroid_encoder.errors import InputError, MissingKeyError
from centroid_encoder.tl._held_out import read_held_out
from centroid_encoder.tl._result import StoredCrossValidation, cv_key, obs_key

if TYPE_CHECKING:
    from anndata import AnnData


def mislabeled(adata: AnnData, *, key: str = "ce", max_own: float = 0.05) -> pd.DataFrame:
    """List the cells that look mislabelled, worst first.

    The networks that were trained without a cell give its own label a probability of at most
    `max_own`, and predict another class. Cells of classes that the data do not separate are listed
    as well, mostly towards the end. `adata` is not changed.

    Parameters
    ----------
    adata
        Annotated data after `cross_validate`.
    key
        Its ``key_added``.
    max_own
        Largest out-of-fold probability of the cell's own label, in [0, 1]. 1 lists every cell
        with another predicted class.

    Returns
    -------
    DataFrame
        One row for each cell, under its name in ``obs_names``, with the columns

        ``label``, ``predicted`` : dtype ``category``
            Its own class, and the out-of-fold predicted class.
        ``confidence``, ``own`` : dtype ``float32``
            Probability of the predicted and of its own class.

        Sorted by how many times more probable the predicted class is.

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
