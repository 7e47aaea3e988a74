"""Make an AnnData that can be written to disk, and name what cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem

from centroid_encoder.errors import InputError


def writable(adata: AnnData) -> AnnData:
    """Return a copy that anndata can write, which shares the arrays of `adata`.

    Column names, dates, intervals, mixed values and booleans with missing values are converted to
    what ``.h5ad`` and ``.zarr`` can hold; entries of ``uns`` to arrays, numbers and text.

    Raises an InputError that names the first part that cannot be written.
    """
    if adata.isbacked:
        adata = adata.to_memory()
    parts = {part: dict(getattr(adata, part)) for part in ("obsm", "varm", "obsp", "varp")}
    for part in ("obsm", "varm"):
        for key, value in parts[part].items():
            if isinstance(value, pd.DataFrame):
                parts[part][key] = _frame(value, f"{part}[{key!r}]")
    layers = {key: value for key, value in adata.layers.items() if key is not None}
    copy = AnnData(
        adata.X,
        obs=_frame(adata.obs, "obs"),
        var=_frame(adata.var, "var"),
        uns={str(key): _entry(value, f"uns[{key!r}]") for key, value in adata.uns.items()},
        layers=layers,
        **parts,
    )
    if adata.raw is not None:
        copy.raw = AnnData(adata.raw.X, copy.obs, _frame(adata.raw.var, "raw.var"))
    copy.strings_to_categoricals()
    return copy


def _frame(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    names = frame.columns.astype(str)
    if repeated := names[names.duplicated()].tolist():
        raise InputError(f"{where} has several columns {repeated[0]!r}; rename or drop all but one")
    frame = frame.set_axis(names, axis=1)
    if "_index" in names:  # SeuratDisk stores the names of the rows once more; anndata refuses it.
        frame = frame.rename(columns={"_index": "index" if "index" not in names else "names"})
    columns = {name: _column(column, f"{where}[{name!r}]") for name, column in frame.items()}
    new = pd.DataFrame(columns, index=frame.index, columns=frame.columns)
    return new.rename_axis(None) if frame.index.name in names else new


def _column(column: pd.Series, where: str) -> pd.Series:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        plain = dtype.categories.dtype.kind in "biufO" and dtype.categories.inferred_type != "mixed"
        is_text = plain and not isinstance(dtype.categories, pd.IntervalIndex)
        return column if is_text else column.cat.rename_categories(dtype.categories.astype(str))
    if dtype.kind in "mM" or isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype):
        return column.astype(str).where(column.notna()).astype("category")
    if dtype.kind != "O":
        return column
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "boolean":
        return column.astype("boolean")
    if column.map(lambda value: isinstance(value, np.ndarray | list | dict)).any():
        raise InputError(f"{where} holds arrays or lists, which no file can hold; drop this column")
    if kind in ("string", "empty") and column.notna().all():
        return column
    return column.astype(str).where(column.notna()).astype("category")


def _entry(value: Any, where: str) -> Any:
    """Return an entry of ``uns`` that anndata can write."""
    if isinstance(value, Mapping):
        found = {str(key): _entry(x, f"{where}[{key!r}]") for key, x in value.items()}
        return {key.replace("/", "|"): x for key, x in found.items()}
    if isinstance(value, pd.DataFrame):
        return _frame(value, where)
    for choice in _choices(value):
        with h5py.File("entry", "w", driver="core", backing_store=False) as file:
            try:
                with ad.settings.override(allow_write_nullable_strings=True):
                    write_elem(file, "entry", choice)
            # anndata and h5py raise errors of many kinds.
            except Exception:
                continue
        return choice
    kind = type(value).__name__
    raise InputError(f"{where} is a {kind}, which no file can hold; delete it", parameter=where)


def _choices(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, tuple | list | set):
        yield list(value)
        table = np.asarray(list(value), dtype=object)
        if not any(isinstance(x, Mapping) for x in table.ravel()):
            yield table.astype(str)
    elif isinstance(value, PurePath):
        yield str(value)
