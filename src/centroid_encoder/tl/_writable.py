"""Make an AnnData that can be written to disk, and name what cannot."""

from __future__ import annotations

import datetime
import enum
import io
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from numbers import Number
from pathlib import PurePath
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import zarr
from anndata import AnnData
from anndata.io import read_elem, write_elem
from pandas.api.extensions import ExtensionArray

from centroid_encoder.errors import InputError
from centroid_encoder.tl._matrix import is_lazy, issparse
from centroid_encoder.tl._read import is_key

FRAMES, MAPPINGS = ("obs", "var"), ("uns", "obsm", "varm", "obsp", "varp", "layers")
TIMES = (np.datetime64, datetime.date, datetime.time, datetime.timedelta)
SCALARS = (str, Number, np.bool_, type(None), enum.Enum, PurePath, *TIMES)
NESTED = (np.ndarray, list, dict)
MAX_DEPTH, MAX_COLUMNS = 50, 4000  # HDF5 has room for the names of 4,090 columns.


class UnwritableError(InputError):
    """A part that no file can hold; `parameter` is its name, such as ``uns['x']``."""


def _error(part: str, fault: str, cure: str = "delete it") -> UnwritableError:
    return UnwritableError(f"{part} {fault}; {cure}, or save without it", part)


def snapshot(adata: AnnData, **changed: Any) -> AnnData:
    """Return a copy in memory that shares arrays, but not data frames and mappings.

    `changed` are parts that take the place of those of `adata`.
    """
    if adata.isbacked:
        adata = adata.to_memory()
    parts: dict[str, Any] = {name: dict(getattr(adata, name)) for name in MAPPINGS}
    parts["layers"].pop(None, None)  # anndata 0.13 lists X as the layer None.
    frames = {"obs": adata.obs.copy(), "var": adata.var.copy()}
    return AnnData(**{"X": adata.X, "raw": adata.raw} | parts | frames | changed)


def writable(adata: AnnData, without: Collection[str] = ()) -> AnnData:
    """Return a copy that anndata can write, which shares the arrays of `adata`.

    Values that neither ``.h5ad`` nor ``.zarr`` can hold are converted to arrays, numbers and text,
    and a ``/`` in a name to ``|``. Parts named in `without`, such as ``uns['x']``, are left out.

    Raises an UnwritableError that names the first part that cannot be written.
    """
    if adata.isbacked:
        adata = adata.to_memory()
    parts = _parts(adata, without)
    copy = snapshot(adata, **{"X": None, "raw": None} | parts)
    copy.strings_to_categoricals()
    return copy


def check_writable(adata: AnnData) -> None:
    """Raise the error of `writable`; matrices in files are not read."""
    _parts(adata, ())


def _parts(adata: AnnData, without: Collection[str]) -> dict[str, Any]:
    """Return the parts of an AnnData in forms that anndata can write."""
    parts = {name: getattr(adata, name) for name in (*FRAMES, *MAPPINGS)}
    parts["layers"] = {name: x for name, x in adata.layers.items() if name is not None}
    if not adata.isbacked:
        parts["X"] = adata.X
    if (raw := adata.raw) is not None:
        parts["raw"] = {"var": raw.var, "varm": raw.varm} | ({} if adata.isbacked else {"X": raw.X})
    return {k: _entry(part, k, without) for k, part in parts.items() if k not in without}


def writable_frame(frame: pd.DataFrame, where: str, without: Collection[str] = ()) -> pd.DataFrame:
    """Return a data frame that anndata can write; `where` is its name in errors."""
    if "_index" in frame:  # SeuratDisk stores the names of the rows once more; anndata refuses it.
        frame = frame.rename(columns={"_index": "index" if "index" not in frame else "names"})
    if frame.shape[1] > MAX_COLUMNS:
        fault = f"has more than {MAX_COLUMNS:,} columns, which no file can hold"
        raise _error(where, fault, "make it an array")
    columns = {
        name: _first(_column_forms(frame[key]), f"{where}[{key!r}]", frame[key])
        for name, key in _names(frame, where, without).items()
    }
    index, name = frame.index, frame.index.name
    if not _is_writable(index.values):
        index = index.map(str)
    if not _is_writable(index.values):
        raise InputError(f"{where}.index has text that no file can hold; rename the rows")
    name = "" if name is None else str(name).replace("/", "|")
    is_free = is_key(name) and name not in columns
    return pd.DataFrame(columns, index=index.rename(name if is_free else None))


def _names(keys: Iterable[Any], where: str, without: Collection[str]) -> dict[str, Any]:
    """Return the keys of entries, without some, by names that files can hold."""
    names: dict[str, Any] = {}
    for key in keys:
        if (part := f"{where}[{key!r}]") in without:
            continue
        name = str(key).replace("/", "|")
        if name in names:
            other = f"{where}[{names[name]!r}]"
            raise _error(part, f"and {other} have one name in a file", "rename or drop one")
        if not is_key(name):
            raise _error(part, "has a name that no file can hold", "rename it")
        names[name] = key
    return names


def _entry(value: Any, where: str, without: Collection[str]) -> Any:
    """Return a part of an AnnData in a form that anndata can write."""
    if isinstance(value, AnnData):
        return writable(value)
    if isinstance(value, pd.Series):
        value = value.to_frame()
    if isinstance(value, pd.DataFrame):
        return writable_frame(value, where, without)
    if isinstance(value, Mapping):
        if where.count("][") > MAX_DEPTH:
            raise _error(where.split("]")[0] + "]", "holds itself, which no file can do")
        names = _names(value, where, without).items()
        return {name: _entry(value[key], f"{where}[{key!r}]", without) for name, key in names}
    is_column = isinstance(value, ExtensionArray)
    forms = _column_forms(pd.Series(value)) if is_column else _forms(value)
    return _first(forms, where, value)


def _first(forms: Iterator[Any], part: str, value: Any) -> Any:
    """Return the first form of a value that anndata can write."""
    try:
        for form in forms:
            if _is_writable(form):
                return form
    # Values of any kind are converted, which can raise errors of any kind.
    except Exception:
        pass
    kind, example = "", value
    if isinstance(value, pd.Series):
        kind, example = "column of ", max(value, key=lambda x: isinstance(x, NESTED), default=None)
    kind += type(example).__name__
    if isinstance(example, str):
        kind += " with a NUL or half a character"
    raise _error(part, f"is a {kind}, which no file can hold")


def _is_writable(value: Any) -> bool:
    """Return whether anndata can write a value; of an array, it tries one row and all text."""
    plain = np.asarray(value) if isinstance(value, Number) else value
    is_plain = type(plain) is np.ndarray and plain.dtype.kind in "bif" and plain.itemsize <= 8
    # An array of xarray has `dims`, and anndata writes none.
    if is_plain or (is_lazy(value) and not hasattr(value, "dims")):
        return True
    kind, ndim = getattr(getattr(value, "dtype", None), "kind", ""), getattr(value, "ndim", 0)
    try:
        sample = value
        if ndim and (kind in tuple("biufc") or isinstance(value, pd.Categorical)):
            sample = value[:1]
        elif ndim == 1 and kind == "O":
            texts = value.dropna() if isinstance(value, ExtensionArray) else value
            sample = {"row": value[:1], "text": "".join(texts)}
        with (
            warnings.catch_warnings(action="ignore"),
            ad.settings.override(allow_write_nullable_strings=True),
            h5py.File(io.BytesIO(), "w") as file,
        ):
            write_elem(file, "entry", sample)
            read_elem(file["entry"])
            # A zarr store holds all text that HDF5 holds; a try takes 6 ms.
            if kind != "O" and not isinstance(value, str):
                write_elem(zarr.group(), "entry", sample)
    # anndata, h5py and zarr raise errors of many kinds.
    except Exception:
        return False
    return True


def _column_forms(column: pd.Series) -> Iterator[Any]:
    """Yield the values of a column in the forms that a file may hold, the best one first."""
    dtype = column.dtype
    if dtype.kind == "O" and isinstance(dtype, np.dtype):
        kind = pd.api.types.infer_dtype(column, skipna=True)
        if kind == "boolean":
            yield column.astype("boolean").array
        elif kind == "string":
            yield column.values
        elif kind == "mixed" and column.map(lambda x: isinstance(x, NESTED)).any():
            return
    else:
        yield column.values
    if isinstance(dtype, pd.CategoricalDtype):
        yield column.cat.rename_categories(dtype.categories.astype(str)).array
    elif dtype.kind == "f":
        yield column.astype(float).values
    elif dtype.kind in "biu":
        yield column.convert_dtypes(dtype_backend="numpy_nullable").array
        yield column.to_numpy()
    yield column.astype(str).where(column.notna()).astype("category").array


def _forms(value: Any) -> Iterator[Any]:
    """Yield a value in the forms that a file may hold, the best one first."""
    yield value
    if issparse(value):
        yield value.tocsr()
    elif isinstance(value, SCALARS):
        yield str(value)
    elif isinstance(value, tuple | list | set | range) or hasattr(value, "__array__"):
        is_time = getattr(getattr(value, "dtype", None), "kind", "") in tuple("mM")
        table = np.asarray(value if is_time else getattr(value, "tolist", lambda: list(value))())
        yield table
        is_number = table.dtype.kind in "fO"
        if is_number and all(isinstance(x, Number | None) for x in table.ravel()):
            yield table.astype(float)
        elif all(isinstance(x, SCALARS) for x in table.ravel()):
            yield table.astype(str)
