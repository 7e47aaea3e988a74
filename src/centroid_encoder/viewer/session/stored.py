"""Read a stored map whose labels may have been changed by hand since its training."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.tl._result import Result, read_result
from centroid_encoder.viewer.session.corrections import as_categories, corrected
from centroid_encoder.viewer.session.labeling import mark_key

CHANGED = (
    "Labels in obs[{!r}] were renamed or removed after this map was trained; press Train for a "
    "map of the current labels."
)


def read_stored(adata: AnnData, key: str) -> tuple[Result, str]:
    """Return a map, and a remark if its labels by hand have changed since its training."""
    try:
        return read_result(adata, key), ""
    except ValueError:
        found = read_result(adata, key, changed=True)
        if mark_key(found.label_key) not in adata.uns:
            raise
        return found, CHANGED.format(found.label_key)


def current_classes(
    adata: AnnData, result: Result, *, is_draft: bool = False
) -> tuple[pd.Index, NDArray[np.intp]]:
    """Return the classes of a map and those added since, and the codes of the current labels.

    A stored map lacks labels that were given or renamed by hand since, and a draft those of
    held-out cells. The classes of a draft or of labels by hand are those of the column or of its
    corrections.
    """
    classes, codes, label_key = result.classes, result.codes, result.label_key
    column = corrected(adata, label_key)
    by_hand = (is_draft or mark_key(label_key) in adata.uns) and label_key in adata.obs
    if column == label_key and not by_hand:
        return classes, codes
    now, moved = as_categories(adata.obs[column]), np.ones(adata.n_obs, dtype=bool)
    if not by_hand:
        was = as_categories(adata.obs[label_key])
        moved = np.append(now.categories.get_indexer(was.categories), -1)[was.codes] != now.codes
    named = now[moved].remove_unused_categories().categories
    classes = classes.append(named.difference(classes))
    places = np.append(classes.get_indexer(now.categories), -1)
    return classes, np.where(moved, places[now.codes], codes)
