"""What an expert would ask before believing a cross-validation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.errors import Advice, Message
from centroid_encoder.tl._cells import Cells, listed, obs_column

if TYPE_CHECKING:
    from anndata import AnnData

SOURCE = re.compile(
    r"^(?!n[^a-z]|(.*[^a-z])?(size|count|area|score)s?([^a-z]|$))(.*[^a-z])?"
    r"(donor|patient|subject|individual|sample|batch|replicate|mouse|animal|slide|library|plate"
    r"|orig[._]ident|roi|fov|channel|chip|lane|site|image|mask|region|core|tile|field|section|well)"
    r"([^a-z]|_?(id|name|nb)s?$|s?$)",
    re.IGNORECASE,
)
"""Names of columns that tell where cells come from, but for those of counts and measures."""
CLUSTERING = re.compile(
    r"leiden|louvain|cluster|phenograph|k_?means|infomap|(^|[^a-z])(mclust|som|flowsom)([^a-z]|$)",
    re.IGNORECASE,
)
"""Names of columns that were computed from the data."""


def doubts(adata: AnnData, cells: Cells, n_folds: int) -> list[Message]:
    """Return what makes a cross-validation of cells say less than it seems to.

    Parameters
    ----------
    adata
        What the cells were read from.
    cells, n_folds
        Of the cross-validation.
    """
    codes, classes = cells.codes, cells.classes
    label_key, labeled = cells.params["label_key"], codes >= 0
    found = mixed_sources(adata, cells)
    if cells.groups is None:
        n = np.bincount(codes[labeled], minlength=len(classes))
        if (n < n_folds).any():
            text = (
                "fewer cells than folds: {}. What is said of their cells rests on few relatives, "
                "or on none"
            )
            found.append(Message(text, listed(classes[n < n_folds])))
    else:
        pairs = np.unique(np.stack([codes[labeled], cells.groups[labeled]]), axis=1)
        alone = np.bincount(pairs[0], minlength=len(classes)) == 1
        if alone.any():
            text = (
                "in one group of {!r} only: {}. Held out, they are unknown to the network, and "
                "always wrong"
            )
            found.append(Message(text, cells.params["group_key"], listed(classes[alone])))
    if CLUSTERING.search(label_key):
        clusterings = [label_key]
    else:
        clusterings = [
            name
            for name in _columns(adata, CLUSTERING, label_key)
            if _determines(adata.obs[name][labeled], codes[labeled])
        ]
    if clusterings:
        text = (
            "the labels follow from the clustering {!r}: if it was computed from these data, what "
            "is measured here is agreement, not validation"
        )
        found.append(Message(text, clusterings[0]))
    return found


def mixed_sources(adata: AnnData, cells: Cells) -> list[Message]:
    """Return at most one notice: of the first column of donors, say, that nobody grouped by."""
    if cells.groups is not None:
        return []
    labeled = cells.codes >= 0
    for name in _columns(adata, SOURCE, cells.params["label_key"]):
        if _divides(obs_column(adata, name)[labeled]):
            return [ungrouped(name)]
    return []


def ungrouped(source: str) -> Message:
    """Return what is said if cells of the same donor, say, are not kept together."""
    text = (
        "cells of the same {!r} are on both sides of every split; errors for a new one are likely "
        "to be larger: {}"
    )
    return Message(text, source, Advice("group_key", source))


def _columns(adata: AnnData, pattern: re.Pattern[str], label_key: str) -> list[str]:
    return [
        name
        for name in map(str, adata.obs.columns)
        # "ImageNb" is read as "Image_Nb".
        if pattern.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", name))
        and name != label_key
        and name in adata.obs
    ]


def _divides(column: pd.Series) -> bool:
    """Tell whether a column divides the cells into groups; it could hold one value, or names."""
    if pd.api.types.is_float_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return False
    return bool(2 <= column.nunique() <= len(column) / 2)


def _determines(clustering: pd.Series, codes: NDArray[np.intp]) -> bool:
    """Tell whether each cluster's cells have one class, though clusters have more than one cell."""
    clusters = pd.factorize(clustering)[0]
    if (clusters < 0).any() or clusters.max() + 1 > len(codes) / 2:
        return False
    n_pairs = len(np.unique(np.stack([clusters, codes]), axis=1).T)
    return bool(n_pairs == clusters.max() + 1)
