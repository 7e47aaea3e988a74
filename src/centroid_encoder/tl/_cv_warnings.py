"""Reasons to trust the errors of a cross-validation less, found in the columns of ``obs``."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.tl._read import Cells, listed, obs_column

SOURCE = re.compile(
    "donor|patient|subject|individual|sample|batch|replicate|mouse|animal|slide|library|plate|ident"
    "|roi|fov|channel|chip|lane|site|image|mask|region|core|tile|field|section|well"
)
"""Words in the names of columns with the origin of cells."""
MEASURE = re.compile("n|size|count|area|score")
"""Words in the names of columns with counts and measurements."""
CLUSTERING = re.compile("leiden|louvain|cluster|phenograph|k_?means|flowsom", re.IGNORECASE)
"""Names of columns with clusters."""


def doubts(adata: AnnData, cells: Cells, n_folds: int) -> list[str]:
    """Return warnings for a cross-validation of `cells`, which were read from `adata`."""
    labeled, label_key = cells.codes >= 0, cells.params["label_key"]
    codes, texts = cells.codes[labeled], mixed_sources(adata, cells)
    if cells.groups is None:
        few = cells.classes[np.bincount(codes) < n_folds]
        text = f"fewer cells than folds: {listed(few)}. Their errors are those of very few cells"
    else:
        few = cells.classes[pd.Series(cells.groups[labeled]).groupby(codes).nunique() == 1]
        text = (
            f"in one group of {cells.params['group_key']!r} only: {listed(few)}. When it is held "
            "out, no training cell has this class, and its cells are not judged"
        )
    texts += [text] * bool(len(few))
    names = [label_key] if CLUSTERING.search(label_key) else map(str, adata.obs.columns)
    for name in filter(CLUSTERING.search, names):
        column = adata.obs[name][labeled]
        several = column.notna().all() and column.nunique() <= len(codes) / 2
        # Labels are assumed to be names of clusters if each cluster has cells of one class only.
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
    """Return a warning if there is a column of donors, images or the like, but no group_key."""
    for name in adata.obs.columns if cells.groups is None else ():
        # "ImageNb", "patient_id" and "sampleids" have the words image, patient and sample.
        parts = re.findall("[A-Z]?[a-z]+|[A-Z]+", str(name))
        words = [re.sub("(id|name|nb)?s?$", "", part.lower()) for part in parts]
        is_source = any(map(SOURCE.fullmatch, words)) and not any(map(MEASURE.fullmatch, words))
        if not is_source or name == cells.params["label_key"]:
            continue
        column = obs_column(adata, name)[cells.codes >= 0]
        # Columns of measurements, of one value or of names of cells do not make groups.
        if column.dtype.kind not in "fb" and 2 <= column.nunique() <= len(column) / 2:
            return [
                f"cells of the same {name!r} are on both sides of every split; errors for a new "
                f"one are likely to be larger: pass group_key={name!r}"
            ]
    return []
