"""Numbers of cells of each class in each image, donor or other group."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.errors import check
from centroid_encoder.tl._check import obs_column
from centroid_encoder.tl._result import label_categories, read_map


def composition(
    adata: AnnData, group_key: str, *, label_key: str | None = None, key: str = "ce"
) -> pd.DataFrame:
    """Count the cells of each class in each image, donor or other group.

    `adata` is not changed.

    Parameters
    ----------
    adata
        Annotated data.
    group_key
        Column of ``adata.obs`` with the groups.
    label_key
        Column of ``adata.obs`` with the classes, such as ``"ce_label"`` for the predicted ones.
        Default: the labels of the map.
    key
        Name of the map, as given to `key_added`; not with a `label_key`.

    Returns
    -------
    DataFrame
        (n_groups, n_classes) numbers of cells, dtype ``int64``, in the order of the categories. The
        column of a class without cells and the row of a group without labelled cells are zeros.
        Cells without a group or without a label are not counted.

    Raises
    ------
    KeyError
        If there is no such column or map.
    ValueError
        If a column has fractional numbers, which are neither groups nor classes; or if both a
        `key` and a `label_key` are given.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> counts = ce.tl.composition(adata, "phase", label_key="bulk_labels")
    >>> counts.loc["G1"].sum()
    np.int64(410)
    >>> shares = counts.div(counts.sum(axis=1), axis=0)
    """
    text = f"key={key!r} has no effect with label_key={label_key!r}"
    check(label_key is None or (isinstance(key, str) and key == "ce"), text, "key")
    label_key = read_map(adata, key).label_key if label_key is None else label_key
    groups = categorical(adata, group_key, "group_key")
    labels = categorical(adata, label_key, "label_key")
    known = (groups.codes >= 0) & (labels.codes >= 0)
    table = np.zeros((len(groups.categories), len(labels.categories)), dtype=np.int64)
    np.add.at(table, (groups.codes[known], labels.codes[known]), 1)
    names = groups.categories.rename(group_key), labels.categories.rename(label_key)
    return pd.DataFrame(table, *names)


def categorical(adata: AnnData, name: str, parameter: str) -> pd.Categorical:
    """Return a column of ``obs`` as a categorical one."""
    column = obs_column(adata, name, parameter)
    is_whole = not pd.api.types.is_float_dtype(column.dtype) or (column.dropna() % 1 == 0).all()
    check(is_whole, f"{parameter}: obs[{name!r}] holds fractional numbers, not names", parameter)
    return pd.Categorical(column.astype(object), label_categories(column))
