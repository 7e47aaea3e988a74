"""Make an AnnData that can be written to disk, name what cannot, and estimate its size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from numbers import Number
from pathlib import PurePath
from typing import Any

import h5py
import numpy as np
import pandas as pd
import zarr
from anndata import AnnData, Raw, settings
from anndata.io import read_elem, write_elem
from pandas.api.extensions import ExtensionArray
from scipy import sparse

from centroid_encoder.errors import InputError, check
from centroid_encoder.tables._keys import is_key
from centroid_encoder.tables._stores import is_lazy

MAPPINGS = ("uns", "obsm", "varm", "obsp", "varp", "layers")
NESTED = (np.ndarray, list, dict)
HEADER = 2048
"""Bytes of HDF5 for an array, a group or a file, besides the values."""
STRING = 42
"""Bytes of HDF5 for a string, besides its characters."""
MAX_DEPTH, MAX_COLUMNS = 50, 4000  # HDF5 has room for the names of 4,090 columns.


class UnwritableError(InputError):
    """A part that no file can hold; `parameter` is its name, such as ``uns['x']``."""


def _error(part: str, fault: str, cure: str = "delete it") -> UnwritableError:
    return UnwritableError(f"{part} {fault}; {cure}, or save without it", part)


def snapshot(adata: AnnData) -> AnnData:
    """Return a copy in memory that shares arrays, but not data frames and mappings."""
    if adata.isbacked:
        adata = adata.to_memory()
    parts: dict[str, Any] = {name: dict(getattr(adata, name)) for name in MAPPINGS}
    parts["layers"].pop(None, None)  # anndata 0.13 lists X as the layer None.
    return AnnData(adata.X, adata.obs.copy(), adata.var.copy(), raw=adata.raw, **parts)


def writable(adata: AnnData, without: Collection[str] = ()) -> AnnData:
    """Return a copy that anndata can write, which shares the arrays of `adata`.

    Values that neither ``.h5ad`` nor ``.zarr`` can hold are converted to arrays, numbers and text,
    and a ``/`` in a name to ``|``. Parts named in `without`, such as ``uns['x']``, are left out.

    Raises an UnwritableError that names the first part that cannot be written.
    """
    if adata.isbacked:
        adata = adata.to_memory()
    copy = AnnData(**_parts(adata, without))
    copy.strings_to_categoricals()
    return copy


def check_writable(adata: AnnData) -> None:
    """Raise the error of `writable`; matrices in files are not read."""
    _parts(adata, ())


def check_zarr(adata: AnnData, zarr_format: int | None = None) -> None:
    """Raise an UnwritableError if ``uns`` has a record array that a zarr store cannot hold.

    The compressors of format 2 read arrays by Python's buffer protocol, in whose descriptions of
    records a colon ends the name of a field. Results in scanpy's layout have fields named by class.
    """
    for key, value in adata.uns.items() if (zarr_format or settings.zarr_write_format) == 2 else ():
        if found := [name for name in _fields(value) if ":" in name]:
            text = f"has the field {found[0]!r}, and no zarr store of format 2 can hold the colon"
            cure = "save as .h5ad, or rename this class or group and rank again"
            raise _error(f"uns[{key!r}]", text, cure)


def _fields(value: Any) -> Iterator[str]:
    """Yield the names of the fields of all record arrays in an entry."""
    for part in value.values() if isinstance(value, Mapping) else ():
        yield from _fields(part)
    yield from getattr(getattr(value, "dtype", None), "names", None) or ()


def _parts(adata: AnnData, without: Collection[str]) -> dict[str, Any]:
    """Return the parts of an AnnData in forms that anndata can write."""
    parts = {name: getattr(adata, name) for name in ("obs", "var", *MAPPINGS)}
    parts["layers"] = {name: adata.layers[name] for name in adata.layers if name is not None}
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
        raise _error(where, "has more columns than a file can hold", "make it an array")
    columns = {
        name: _first(_column_forms(frame[key]), f"{where}[{key!r}]", frame[key])
        for name, key in _names(frame, where, without).items()
    }
    index, name = frame.index, frame.index.name
    if not _is_writable(index.values):
        index = pd.Index(list(map(str, index)), dtype=object)
    text = f"{where}.index has text that no file can hold; rename the rows"
    check(_is_writable(index.values), text)
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
    return _first(_column_forms(pd.Series(value)) if is_column else _forms(value), where, value)


def _first(forms: Iterator[Any], part: str, value: Any) -> Any:
    """Return the first form of a value that anndata can write."""
    try:
        for form in forms:
            if _is_writable(form):
                return form
    # Values of any kind are converted, which can raise errors of any kind.
    except Exception:
        pass
    values = value if isinstance(value, pd.Series) else [value]
    kind = type(max(values, key=lambda x: isinstance(x, NESTED), default=None)).__name__
    kind += " with a NUL or half a character" if kind == "str" else ""
    column = "column of " if values is value else ""
    raise _error(part, f"is a {column}{kind}, which no file can hold")


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
        with warnings.catch_warnings(action="ignore"), h5py.File(io.BytesIO(), "w") as file:
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
        elif kind in ("integer", "floating", "mixed-integer-float", "decimal"):
            yield pd.to_numeric(column).array
        elif kind == "mixed" and column.map(lambda x: isinstance(x, NESTED)).any():
            return
    yield column.values
    if isinstance(dtype, pd.StringDtype):
        yield column.astype(object).values
    elif isinstance(dtype, pd.CategoricalDtype):
        yield column.cat.rename_categories(dtype.categories.astype(str)).array
    elif dtype.kind == "f":
        yield column.astype(float).values
    elif dtype.kind in "biu":
        yield column.convert_dtypes(dtype_backend="numpy_nullable").array
        yield column.to_numpy()
    yield column.astype(str).where(column.notna()).astype("category").array


def _is_scalar(value: Any) -> bool:
    return isinstance(value, PurePath) or pd.api.types.is_scalar(value)


def _forms(value: Any) -> Iterator[Any]:
    """Yield a value in the forms that a file may hold, the best one first."""
    yield value
    if hasattr(value, "tocsr"):
        yield value.tocsr()
    elif isinstance(value, tuple | list | set | range) or hasattr(value, "__array__"):
        is_time = getattr(getattr(value, "dtype", None), "kind", "") in tuple("mM")
        table = np.asarray(value if is_time else getattr(value, "tolist", lambda: list(value))())
        yield table
        is_number = table.dtype.kind in ("f", "O")
        if is_number and all(isinstance(x, Number | None) for x in table.ravel()):
            yield table.astype(float)
        elif all(map(_is_scalar, table.ravel())):
            yield table.astype(str)
    elif _is_scalar(value):
        yield str(value)


def size_of(part: Any) -> int:
    """Estimate how many bytes an AnnData, or a part of one, takes in a ``.h5ad`` file.

    The file is not compressed, as anndata's default. It is rarely larger than the estimate.
    """
    dtype = getattr(part, "dtype", None)
    if isinstance(part, AnnData | Raw):
        part = {name: getattr(part, name, None) for name in ("X", "obs", "var", "raw", *MAPPINGS)}
    elif isinstance(part, pd.DataFrame):
        part = {"index": part.index} | dict(part.items())
    elif isinstance(dtype, pd.CategoricalDtype):
        part = {"codes": pd.Categorical(part).codes, "categories": dtype.categories}
    elif hasattr(part, "to_memory"):  # a sparse matrix in a file
        part = dict(part.group)
    elif sparse.issparse(part):
        part = {name: getattr(part, name) for name in ("data", "indices", "indptr")}
    if isinstance(part, Mapping):
        # anndata 0.13 lists X as the layer None.
        return HEADER + sum(size_of(value) for name, value in part.items() if name is not None)
    if getattr(dtype, "kind", "") in ("O", "U", "T") or isinstance(part, str | list | tuple):
        strings = np.asarray(part, dtype=object).ravel().tolist()
        return HEADER + STRING * len(strings) + len("".join(map(str, strings)).encode())
    return HEADER + int(getattr(part, "nbytes", 8))
