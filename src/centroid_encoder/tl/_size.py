"""The size of an AnnData in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData, Raw

from centroid_encoder.tl._matrix import issparse

HEADER = 2048
"""Bytes of HDF5 for an array, a group or a file, besides the values."""
STRING = 42
"""Bytes of HDF5 for a string, besides its characters."""
SLOTS = ("X", "obs", "var", "uns", "layers", "obsm", "varm", "obsp", "varp", "raw")


def size_of(part: Any) -> int:
    """Estimate how many bytes an AnnData, or a part of one, takes in a ``.h5ad`` file.

    The file is not compressed, as anndata's default. It is rarely larger than the estimate.
    """
    dtype = getattr(part, "dtype", None)
    if isinstance(part, AnnData | Raw):
        part = {name: getattr(part, name, None) for name in SLOTS}
    elif isinstance(part, pd.DataFrame):
        part = {"index": part.index} | dict(part.items())
    elif isinstance(dtype, pd.CategoricalDtype):
        part = {"codes": pd.Categorical(part).codes, "categories": dtype.categories}
    elif hasattr(part, "to_memory"):  # a sparse matrix in a file
        part = dict(part.group)
    elif issparse(part):
        part = {name: getattr(part, name) for name in ("data", "indices", "indptr")}
    if isinstance(part, Mapping):
        # anndata 0.13 lists X as the layer None.
        return HEADER + sum(size_of(value) for name, value in part.items() if name is not None)
    if getattr(dtype, "kind", "") in ("O", "U", "T") or isinstance(part, str | list | tuple):
        strings = np.asarray(part, dtype=object).ravel().tolist()
        return HEADER + STRING * len(strings) + len("".join(map(str, strings)).encode())
    return HEADER + int(getattr(part, "nbytes", 8))
