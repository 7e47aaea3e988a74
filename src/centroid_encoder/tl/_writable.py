"""Make an AnnData that can be written to disk, and name what cannot."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem

from centroid_encoder.errors import InputError

FRAMES, MAPPINGS = ("obs", "var"), ("uns", "obsm", "varm")


class UnwritableError(InputError):
    """A part that no file can hold; `parameter` is its name, such as ``uns['x']``."""


def snapshot(adata: AnnData, **changed: Any) -> AnnData:
    """Return a copy in memory that shares arrays, but not data frames and mappings.

    `changed` are parts that take the place of those of `adata`.
    """
    if adata.isbacked:
        adata = adata.to_memory()
    parts = {name: dict(getattr(adata, name)) for name in (*MAPPINGS, "obsp", "varp", "layers")}
    parts["layers"].pop(None, None)  # anndata 0.13 lists X as the layer None.
    frames = {"obs": adata.obs.copy(), "var": adata.var.copy(), "raw": adata.raw}
    return AnnData(adata.X, **parts | frames | changed)


def writable(adata: AnnData, without: Collection[str] = ()) -> AnnData:
    """Return a copy that anndata can write, which shares the arrays of `adata`.

    Column names, dates, intervals, mixed values and booleans with missing values are converted to
    what ``.h5ad`` and ``.zarr`` can hold; entries of ``uns`` to arrays, numbers and text. Parts
    named in `without`, such as ``uns['x']``, are left out.

    Raises an UnwritableError that names the first part that cannot be written.
    """
    if adata.isbacked:
        adata = adata.to_memory()
    parts = {name: _entry(getattr(adata, name), name, without) for name in (*FRAMES, *MAPPINGS)}
    if (raw := adata.raw) is not None:
        var = writable_frame(raw.var, "raw.var", without)
        parts["raw"] = {"X": raw.X, "var": var, "varm": dict(raw.varm)}
    copy = snapshot(adata, **parts)
    copy.strings_to_categoricals()
    return copy


def check_writable(adata: AnnData) -> None:
    """Raise the error of `writable`, without reading a matrix or converting the cells."""
    for name in FRAMES:
        _check_frame(getattr(adata, name), name)
    for name in MAPPINGS:
        _entry(getattr(adata, name), name, ())


def _check_frame(frame: pd.DataFrame, where: str) -> None:
    names = frame.columns.astype(str)
    if repeated := names[names.duplicated()].tolist():
        raise InputError(f"{where} has several columns {repeated[0]!r}; rename or drop all but one")
    for name, column in frame.items():
        is_mixed = column.dtype == object and pd.api.types.infer_dtype(column) == "mixed"
        if is_mixed and column.map(lambda x: isinstance(x, np.ndarray | list | dict)).any():
            part = f"{where}[{str(name)!r}]"
            text = f"{part} holds arrays or lists, which no file can hold"
            raise UnwritableError(f"{text}; drop this column, or save without it", part)


def writable_frame(frame: pd.DataFrame, where: str, without: Collection[str] = ()) -> pd.DataFrame:
    """Return a data frame that anndata can write; `where` is its name in errors."""
    frame = frame.loc[:, [f"{where}[{str(name)!r}]" not in without for name in frame]]
    _check_frame(frame, where)
    frame = frame.set_axis(names := frame.columns.astype(str), axis=1)
    if "_index" in names:  # SeuratDisk stores the names of the rows once more; anndata refuses it.
        frame = frame.rename(columns={"_index": "index" if "index" not in names else "names"})
    columns = {name: _column(column) for name, column in frame.items()}
    new = pd.DataFrame(columns, index=frame.index, columns=frame.columns)
    return new.rename_axis(None) if frame.index.name in names else new


def _column(column: pd.Series) -> pd.Series:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        plain = (
            dtype.categories.dtype.kind in "biufO"
            and not dtype.categories.inferred_type.startswith("mixed")
        )
        is_text = plain and not isinstance(dtype.categories, pd.IntervalIndex)
        return column if is_text else column.cat.rename_categories(dtype.categories.astype(str))
    if isinstance(dtype, pd.SparseDtype):
        return column.sparse.to_dense()
    if isinstance(dtype, pd.Float32Dtype | pd.Float64Dtype):
        return column.astype(dtype.numpy_dtype)
    if dtype.kind in "mM" or isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype):
        return column.astype(str).where(column.notna()).astype("category")
    if dtype.kind != "O" or isinstance(dtype, pd.StringDtype):
        return column
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "boolean":
        return column.astype("boolean")
    if kind in ("string", "empty"):
        return column if column.notna().all() else column.astype("category")
    return column.astype(str).where(column.notna()).astype("category")


def _entry(value: Any, where: str, without: Collection[str]) -> Any:
    """Return a part of an AnnData in a form that anndata can write."""
    if isinstance(value, Mapping):
        return {
            str(key).replace("/", "|"): _entry(x, part, without)
            for key, x in value.items()
            if (part := f"{where}[{key!r}]") not in without
        }
    if isinstance(value, pd.Series):
        value = value.to_frame()
    if isinstance(value, pd.DataFrame):
        return writable_frame(value, where, without)
    if isinstance(value, str | float) or _is_numeric(value):
        return value
    for choice in _choices(value):
        with h5py.File("entry", "w", driver="core", backing_store=False) as file:
            try:
                with ad.settings.override(allow_write_nullable_strings=True):
                    write_elem(file, "entry", choice)
            # anndata and h5py raise errors of many kinds.
            except Exception:
                continue
        return choice
    text = f"{where} is a {type(value).__name__}, which no file can hold"
    raise UnwritableError(f"{text}; delete it, or save without it", where)


def _is_numeric(value: Any) -> bool:
    """Return whether a value is an array or a scalar of numbers or booleans, also out of memory."""
    return not isinstance(value, pd.Index) and getattr(value, "dtype", np.dtype("O")).kind in "biuf"


def _choices(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, tuple | list | set | pd.Index):
        yield list(value)
        table = np.asarray(list(value), dtype=object)
        if not any(isinstance(x, Mapping) for x in table.ravel()):
            yield table.astype(str)
    elif isinstance(value, PurePath | datetime.date | np.datetime64):
        yield str(value)
