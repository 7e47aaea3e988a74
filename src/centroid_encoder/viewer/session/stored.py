"""A stored map, whose labels may have been changed by hand since."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.tl._result import Result, read_result
from centroid_encoder.viewer.session.labeling import mark_key
from centroid_encoder.viewer.session.relabeling import corrected, corrected_classes

CHANGED = (
    "Labels in obs[{!r}] were renamed or taken back since this map was trained; press Train for a "
    "map of the labels as they are now."
)


def read_stored(adata: AnnData, key: str) -> tuple[Result, str]:
    """Read a map, and a remark if it is one of labels by hand that have changed since."""
    try:
        return read_result(adata, key), ""
    except ValueError:
        found = read_result(adata, key, changed=True)
        if mark_key(found.label_key) not in adata.uns:
            raise
        return found, CHANGED.format(found.label_key)


def current_classes(adata: AnnData, result: Result) -> tuple[pd.Index, NDArray[np.intp]]:
    """Return the classes of a map and those named since, and the codes of the labels of now.

    A map lacks labels by hand that were given or renamed since, and a draft those of held-out
    cells: the classes of labels by hand are those of the column, or of its corrections.
    """
    column = result.label_key
    by_hand = mark_key(column) in adata.uns and column in adata.obs
    return corrected_classes(adata, result, corrected(adata, column) if by_hand else None)
