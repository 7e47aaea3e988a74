"""Cells that look mislabelled to networks which have not seen their label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

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
        raise ValueError(f"max_own must be in [0, 1]; got {max_own!r}")
    stored = adata.uns.get(f"{key}_cv")
    if not isinstance(stored, Mapping) or "confusion" not in stored:
        raise KeyError(
            f"no cross-validation {key!r}; run ce.tl.cross_validate(adata, label_key) first"
        )
    label_key = str(stored["params"]["label_key"])
    columns = [label_key, *(f"{key}_cv_{name}" for name in ("label", "confidence", "own"))]
    for column in columns:
        if column not in adata.obs:
            raise KeyError(f"obs[{column!r}], a part of the cross-validation {key!r}, is gone")
    label, predicted, confidence, own = (adata.obs[column] for column in columns)
    classes = pd.Index(np.asarray(stored["classes"]).tolist())
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
