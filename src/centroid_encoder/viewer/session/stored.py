"""Read a stored map whose labels may have been changed by hand since its training."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.tl._result import Result, read_result
from centroid_encoder.viewer.session.labeling import mark_key
from centroid_encoder.viewer.session.relabeling import corrected, corrected_classes

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


def current_classes(adata: AnnData, result: Result) -> tuple[pd.Index, NDArray[np.intp]]:
    """Return the classes of a map and those added since, and the codes of the current labels.

    A stored map lacks labels that were given or renamed by hand since, and a draft those of
    held-out cells. The classes of labels by hand are those of the column or of its corrections.
    """
    column = result.label_key
    by_hand = mark_key(column) in adata.uns and column in adata.obs
    return corrected_classes(adata, result, corrected(adata, column) if by_hand else None)
