"""Cells that look mislabelled to networks which have not seen their label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from centroid_encoder.errors import Call, InputError, MissingKeyError, Setting
from centroid_encoder.tl._stored import (
    Column,
    StoredCrossValidation,
    cv_key,
    obs_key,
    stored_column,
)

if TYPE_CHECKING:
    from anndata import AnnData


def mislabeled(adata: AnnData, *, key: str = "ce", max_own: float = 0.05) -> pd.DataFrame:
    """List the cells that look mislabelled, worst first.

    These are cells to whose own label networks trained without them give a probability of at most
    `max_own`. Besides mislabelled cells there are cells of classes that the data do not tell apart,
    the less sure ones towards the end. `adata` stays as it is.

    Parameters
    ----------
    adata
        Annotated data after `cross_validate`.
    key
        Its ``key_added``.
    max_own
        Largest out-of-fold probability of the cell's own label, in [0, 1]. 1 lists every cell that
        is taken for another class.

    Returns
    -------
    DataFrame
        One row a cell, under its name in ``obs_names``, with the columns

        ``label``, ``predicted`` : dtype ``category``
            Its own class, and the out-of-fold predicted one.
        ``confidence``, ``own`` : dtype ``float32``
            Probability of the predicted and of its own class.

        Sorted by how many times more probable the predicted class is.

    Raises
    ------
    KeyError
        If there is no cross-validation under that key, or if a part of it is gone.
    ValueError
        If `max_own` is not in [0, 1].

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.cross_validate(adata, "bulk_labels", progress=False)
    >>> suspects = ce.tl.mislabeled(adata)
    """
    if not 0 <= max_own <= 1:
        raise InputError("{} must be in [0, 1]; got {!r}", Setting("max_own"), max_own)
    validated = StoredCrossValidation.read(adata, key)
    if validated is None:
        call = Call("tl.cross_validate", (Setting("label_key"),))
        raise MissingKeyError("no cross-validation {!r}; run {} first", key, call)
    names: tuple[Column, ...] = ("label", "confidence", "own")
    columns = [validated.label_key, *(obs_key(cv_key(key), name) for name in names)]
    part = f"a part of the cross-validation {key!r}"
    label, predicted, confidence, own = (stored_column(adata, name, part) for name in columns)
    classes = validated.classes
    own_class = classes.get_indexer(label.astype(object))
    found = np.append(classes.get_indexer(predicted.cat.categories), -1)[predicted.cat.codes]
    suspect = (own_class >= 0) & (found >= 0) & (own_class != found) & (own <= max_own)
    rows = np.flatnonzero(suspect)
    with np.errstate(divide="ignore"):
        ratio = confidence.to_numpy()[rows] / own.to_numpy()[rows]
    rows = rows[np.argsort(-ratio, kind="stable")]
    return pd.DataFrame(
        {
            "label": pd.Categorical.from_codes(own_class[rows], classes),
            "predicted": pd.Categorical.from_codes(found[rows], classes),
            "confidence": confidence.to_numpy()[rows],
            "own": own.to_numpy()[rows],
        },
        index=adata.obs_names[rows],
    )
