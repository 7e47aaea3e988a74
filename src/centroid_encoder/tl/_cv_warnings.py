"""Warnings for a cross-validation: the questions of an expert."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
    codes = cells.codes[labeled]
    texts = mixed_sources(adata, cells)
    if cells.groups is None:
        few = np.bincount(codes, minlength=len(cells.classes)) < n_folds
        if few.any():
            texts.append(
                f"fewer cells than folds: {listed(cells.classes[few])}. The results for these "
                "classes rest on few other cells, or on none"
            )
    else:
        pairs = np.unique(np.stack([codes, cells.groups[labeled]]), axis=1)
        alone = np.bincount(pairs[0], minlength=len(cells.classes)) == 1
        if alone.any():
            texts.append(
                f"in one group of {cells.params['group_key']!r} only: "
                f"{listed(cells.classes[alone])}. When it is held out, no training cell has this "
                "class, and all predictions are wrong"
            )
    clusterings = [label_key]
    if not CLUSTERING.search(label_key):
        clusterings = [
            name
            for name in _columns(adata, CLUSTERING, label_key)
            if _determines(adata.obs[name][labeled], codes)
        ]
    if clusterings:
        texts.append(
            f"the labels follow from the clustering {clusterings[0]!r}: if it was computed from "
            "these data, the errors measure agreement, not validation"
        )
    return texts


def mixed_sources(adata: AnnData, cells: Cells) -> list[str]:
    """Return a warning of the first column of donors or images, say, that is not the group_key."""
    if cells.groups is not None:
        return []
    labeled = cells.codes >= 0
    for name in _columns(adata, SOURCE, cells.params["label_key"]):
        column = obs_column(adata, name)[labeled]
        types = pd.api.types
        measured = types.is_float_dtype(column.dtype) or types.is_bool_dtype(column.dtype)
        # A column with one value, or with a name for each cell, is no column of groups.
        if not measured and 2 <= column.nunique() <= len(column) / 2:
            return [
                f"cells of the same {name!r} are on both sides of every split; errors for a new "
                f"one are likely to be larger: pass group_key={name!r}"
            ]
    return []


def _columns(adata: AnnData, pattern: re.Pattern[str], label_key: str) -> list[str]:
    return [
        name
        for name in map(str, adata.obs.columns)
        # "ImageNb" is read as "Image_Nb".
        if pattern.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", name))
        and name != label_key
        and name in adata.obs
    ]


def _determines(clustering: pd.Series, codes: NDArray[np.intp]) -> bool:
    """Whether all cells of a cluster have one class, and clusters have more than one cell."""
    clusters = pd.factorize(clustering)[0]
    if (clusters < 0).any() or clusters.max() + 1 > len(codes) / 2:
        return False
    n_pairs = len(np.unique(np.stack([clusters, codes]), axis=1).T)
    return bool(n_pairs == clusters.max() + 1)
