"""Warnings for a cross-validation: the questions of an expert."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from centroid_encoder.tl._read import Cells, listed, obs_column

if TYPE_CHECKING:
    from anndata import AnnData

SOURCE = re.compile(
    r"^(?!n[^a-z]|(.*[^a-z])?(size|count|area|score)s?([^a-z]|$))(.*[^a-z])?"
    r"(donor|patient|subject|individual|sample|batch|replicate|mouse|animal|slide|library|plate"
    r"|orig[._]ident|roi|fov|channel|chip|lane|site|image|mask|region|core|tile|field|section|well)"
    r"([^a-z]|_?(id|name|nb)s?$|s?$)",
    re.IGNORECASE,
)
"""Names of columns with the origin of cells, without those of counts and measurements."""
CLUSTERING = re.compile(
    r"leiden|louvain|cluster|phenograph|k_?means|infomap|(^|[^a-z])(mclust|som|flowsom)([^a-z]|$)",
    re.IGNORECASE,
)
"""Names of columns that were computed from the data."""


def doubts(adata: AnnData, cells: Cells, n_folds: int) -> list[str]:
    """Reasons to trust a cross-validation of `cells`, read from `adata`, less than its numbers."""
    labeled, label_key = cells.codes >= 0, cells.params["label_key"]
    codes, texts = cells.codes[labeled], mixed_sources(adata, cells)
    if cells.groups is None:
        few = cells.classes[np.bincount(codes) < n_folds]
        text = f"fewer cells than folds: {listed(few)}. Their results rest on few other cells"
    else:
        few = cells.classes[pd.Series(cells.groups[labeled]).groupby(codes).nunique() == 1]
        text = (
            f"in one group of {cells.params['group_key']!r} only: {listed(few)}. When it is held "
            "out, no training cell has this class, and all predictions are wrong"
        )
    texts += [text] * bool(len(few))
    clusterings = [label_key] if CLUSTERING.search(label_key) else _columns(adata, CLUSTERING)
    for name in clusterings:
        # All cells of a cluster have one class, and clusters have more than one cell.
        column = adata.obs[name][labeled]
        several = column.notna().all() and column.nunique() <= len(codes) / 2
        if name == label_key or (
            several and pd.Series(codes).groupby(column.to_numpy()).nunique().max() == 1
        ):
            texts.append(
                f"the labels follow from the clustering {name!r}: if it was computed from these "
                "data, the errors measure agreement, not validation"
            )
            break
    return texts


def mixed_sources(adata: AnnData, cells: Cells) -> list[str]:
    """Return a warning of the first column of donors or images, say, that is not the group_key."""
    if cells.groups is not None:
        return []
    for name in _columns(adata, SOURCE):
        column = obs_column(adata, name)[cells.codes >= 0]
        # A column of measurements, with one value, or with a name for each cell has no groups.
        is_name = column.dtype.kind not in "fb" and 2 <= column.nunique() <= len(column) / 2
        if is_name and name != cells.params["label_key"]:
            return [
                f"cells of the same {name!r} are on both sides of every split; errors for a new "
                f"one are likely to be larger: pass group_key={name!r}"
            ]
    return []


def _columns(adata: AnnData, pattern: re.Pattern[str]) -> list[str]:
    # "ImageNb" is read as "Image_Nb".
    names = {str(name): re.sub("(?<=[a-z])(?=[A-Z])", "_", str(name)) for name in adata.obs.columns}
    return [name for name, words in names.items() if pattern.search(words) and name in adata.obs]
