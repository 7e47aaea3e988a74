"""Read a matrix, labels and groups from an AnnData, and check them before a computation."""

from __future__ import annotations

import difflib
import logging
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.core.matrix import Lazy, Matrix, looks_whole
from centroid_encoder.errors import InputError, InputTypeError, MissingKeyError, check, check_name
from centroid_encoder.tables import is_key, is_lazy
from centroid_encoder.tl._matrix import LazyMatrix, count_gaps, describe_gaps, in_memory, usable

Missing = Literal["error", "drop", "mean"]
MaskVar = NDArray[np.bool_] | str | None

MISSING_NAMES = ("", "nan", "na", "n/a", "#n/a", "<na>", "nat", "none", "null")
"""Texts of missing values in pandas, NumPy, R and spreadsheets, in lower case."""

BOOLEANS = {"false": 0, "0": 0, "0.0": 0, "true": 1, "1": 1, "1.0": 1}

logger = logging.getLogger("centroid_encoder")
# Without a handler, Python would print each warning a second time.
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cells of an AnnData; rows of `X` are the `kept` cells, other arrays have all cells."""

    X: Matrix | Lazy
    """(n_kept, d) dense, CSR, or not in memory; a matrix in memory may be the AnnData's own."""
    obs_names: pd.Index
    names: NDArray[np.object_] | None
    """(d,) names of the features; None for a representation without names."""
    codes: NDArray[np.intp]
    """(n_obs,) indices into `classes`; −1 for cells that have no label or are left out."""
    classes: pd.Index
    """(M,) sorted classes that have at least one cell."""
    categories: pd.Index
    """All categories of the label column, in their order."""
    groups: NDArray[np.intp] | None
    """(n_obs,) indices into `group_names`; None without groups."""
    group_names: pd.Index
    kept: NDArray[np.bool_]
    """(n_obs,) mask of the cells that take part; the others have missing values."""
    params: Mapping[str, Any]
    """Arguments that are not None."""
    notices: tuple[str, ...]
    """Warnings for the user."""

    @property
    def kept_codes(self) -> NDArray[np.intp]:
        """(n_kept,) `codes` of the rows of X."""
        return self.codes[self.kept]

    @property
    def class_labels(self) -> NDArray[Any]:
        """(M,) `classes` as an array of strings, integers or booleans."""
        return np.asarray(self.classes.tolist())

    def spread(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return values of all cells, (n_obs, …), from those of the kept cells; NaN for others."""
        spread = np.full((len(self.kept), *values.shape[1:]), np.nan, dtype=np.float32)
        spread[self.kept] = values
        return spread

    def labels_of(self, codes: NDArray[np.intp]) -> pd.Categorical:
        """Return (n_obs,) labels from (n_kept,) codes; missing for −1 and cells left out."""
        spread = np.full(len(self.kept), -1)
        spread[self.kept] = np.append(self.categories.get_indexer(self.classes), -1)[codes]
        return pd.Categorical.from_codes(spread, self.categories)


def read_cells(
    adata: AnnData,
    label_key: str,
    use_rep: str | None,
    layer: str | None,
    use_raw: bool,
    mask_var: MaskVar,
    unlabeled_category: str | None,
    missing: Missing,
    group_key: str | None,
    random_state: int | np.random.Generator,
    *,
    by_parts: bool = False,
) -> Cells:
    """Read and check the cells of an AnnData; parameters are those of `tl.centroid_encoder`.

    A matrix that is not in memory is loaded or, with `by_parts`, becomes a `LazyMatrix`.
    """
    check(adata.n_obs, "adata has no cells")
    codes, classes, categories = _read_labels(adata, label_key, unlabeled_category)
    logger.info("computing centroid-encoder of %r", label_key)
    check_choice("missing", missing, Missing)
    if not adata.obs_names.is_unique:
        raise InputError("obs_names are not unique; call adata.obs_names_make_unique() first")
    X, where, names = read_matrix(adata, use_rep, layer, use_raw, mask_var, by_parts=by_parts)
    n_gaps = count_gaps(X)
    if missing == "error" and n_gaps.any():
        text = describe_gaps(X, n_gaps, where, adata.obs_names, names)
        remedy = 'pass missing="drop" to leave these cells out, or missing="mean" to fill the mean'
        raise InputError(f"{text}; {remedy} of the feature", parameter="missing")
    # With "mean", a cell without any value is left out: it would lie at the mean of all cells.
    kept = n_gaps < (1 if missing == "drop" else X.shape[1])
    codes = np.where(kept, codes, -1)
    empty = np.setdiff1d(np.arange(len(classes)), codes)
    text = f"no cell of {listed(classes[empty])} is left without missing values"
    check(not len(empty), text, "missing")
    if not kept.all():
        logger.info("    leaving out %d cells with NaN or inf", int((~kept).sum()))
        rows = np.flatnonzero(kept)
        X = replace(X, rows=rows) if isinstance(X, LazyMatrix) else X[rows]
    _check_varied(X, where)
    notices = []
    doubtful = [str(name).strip().lower() in MISSING_NAMES for name in classes]
    if any(doubtful):
        text = f"trained as classes of obs[{label_key!r}]: {listed(classes[doubtful])}; if these"
        notices.append(f"{text} mean unlabeled, replace them by NaN, or pass unlabeled_category")
    if use_rep in (None, "X") and looks_whole(X, above=20):
        text = "log-normalise first (sc.pp.normalize_total, sc.pp.log1p) unless you mean it"
        notices.append(f"{where} looks like raw counts; {text}")
    if names is not None:
        notices += _no_measurements(X, codes[kept], names)
    groups, group_names = _read_groups(adata, group_key, codes >= 0)
    params = {
        "label_key": label_key,
        "use_rep": use_rep,
        "layer": layer,
        "use_raw": use_raw or None,
        "mask_var": mask_var if isinstance(mask_var, str) else None,
        "unlabeled_category": unlabeled_category,
        "missing": missing,
        "group_key": group_key,
        "random_state": int(random_state) if isinstance(random_state, numbers.Integral) else None,
    }
    return Cells(
        X=X,
        names=names,
        codes=codes,
        classes=classes,
        categories=categories,
        groups=groups,
        group_names=group_names,
        kept=kept,
        obs_names=adata.obs_names,
        # Some supported versions of anndata cannot write None.
        params={name: value for name, value in params.items() if value is not None},
        notices=tuple(notices),
    )


def _read_labels(
    adata: AnnData, label_key: str, unlabeled_category: str | None
) -> tuple[NDArray[np.intp], pd.Index, pd.Index]:
    """Return (n_obs,) codes, the sorted classes that have cells, and all categories."""
    column, where = obs_column(adata, label_key, "label_key"), f"obs[{label_key!r}]"
    check_key(label_key, "label_key")

    def unsuitable(text: str) -> InputTypeError:
        return InputTypeError(f"{where} {text}", parameter="label_key")

    n, n_values = column.count(), column.nunique()
    if pd.api.types.is_float_dtype(column.dtype):
        if (column.dropna() % 1 != 0).any():
            raise unsuitable(
                f"holds fractional numbers ({n_values} different ones), not classes; to use "
                "bins of it, cut it first, e.g. with pandas.cut"
            )
        # Integers are floats in a column that has NaN.
        column = column.astype("Int64")
    many = pd.api.types.is_numeric_dtype(column.dtype) and n_values > max(10, n / 10)
    if many or n_values == n > 2:
        raise unsuitable(
            f"has {n_values} different values in {n} cells; these look like measurements or names "
            "of cells, not like classes"
        )
    column = column.astype("category")
    categories = column.cat.categories
    if unlabeled_category is not None:
        if not pd.api.types.is_scalar(unlabeled_category):
            check_name(unlabeled_category, "unlabeled_category", f"a class in {where}")
        if unlabeled_category not in categories:
            near = near_matches(unlabeled_category, categories)
            text = f"unlabeled_category {unlabeled_category!r} does not occur in {where}{near}"
            raise InputError(text, parameter="unlabeled_category")
        categories = categories[categories != unlabeled_category]
        column = column.cat.set_categories(categories)
    classes = column.cat.remove_unused_categories().cat.categories
    found = f"one class only ({classes[0]!r})" if len(classes) else "no labels"
    text = f"{where} has {found}; a supervised embedding needs two classes or more"
    check(len(classes) > 1, text, "label_key")
    kind = pd.api.types.infer_dtype(classes)
    if kind not in ("string", "integer", "boolean"):
        raise unsuitable(
            f"has classes of type {kind}; make them strings, e.g. adata.{where}.astype(str)"
        )
    classes = classes.sort_values()
    return classes.get_indexer(column.astype(object)).astype(np.intp), classes, categories


def _read_groups(
    adata: AnnData, group_key: str | None, labeled: NDArray[np.bool_]
) -> tuple[NDArray[np.intp] | None, pd.Index]:
    """Return (n_obs,) codes of the groups, and their names; check that labeled cells have one."""
    if group_key is None:
        return None, pd.Index([])
    codes, names = pd.factorize(obs_column(adata, group_key, "group_key"))
    if n_missing := int((codes[labeled] < 0).sum()):
        text = f"{n_missing} labeled cells have no value in obs[{group_key!r}] (group_key)"
        raise InputError(text, parameter="group_key")
    text = f"all labeled cells are in one group of obs[{group_key!r}]: none can be held out"
    check(len(np.unique(codes[labeled])) > 1, f"{text} (group_key)", "group_key")
    return codes.astype(np.intp), pd.Index(names)


def read_matrix(
    adata: AnnData,
    use_rep: str | None = None,
    layer: str | None = None,
    use_raw: bool = False,
    mask_var: MaskVar = None,
    *,
    by_parts: bool = True,
) -> tuple[Any, str, NDArray[np.object_] | None]:
    """Return a matrix that is read by rows, its name, and the names of its columns.

    The matrix is X, unless parameters of `tl.centroid_encoder` choose another. With `by_parts`, a
    matrix that is not in memory becomes a `LazyMatrix`; otherwise it is loaded.
    """
    check_name(use_rep, "use_rep", "an entry of obsm", str | None)
    check_name(layer, "layer", "an entry of layers", str | None)
    if use_raw + (use_rep is not None) + (layer is not None) > 1:
        raise InputError("use only one of use_raw, use_rep and layer", parameter="use_rep")
    var = adata
    if use_raw:
        var = adata.raw
        if var is None:
            raise InputError("adata.raw is empty; leave out use_raw", parameter="use_raw")
        X, where, names = var.X, "raw.X", var.var_names
    elif use_rep not in (None, "X"):
        if not (mask_var is None or (isinstance(mask_var, str) and mask_var == "auto")):
            raise InputError("use_rep excludes mask_var", parameter="use_rep")
        mask_var = None
        X, where = _entry(adata.obsm, use_rep, "obsm", "use_rep"), f"obsm[{use_rep!r}]"
        names = X.columns.astype(str) if isinstance(X, pd.DataFrame) else None
    elif layer is not None:
        X, where = _entry(adata.layers, layer, "layers", "layer"), f"layers[{layer!r}]"
        names = adata.var_names
    else:
        X, where, names = adata.X, "X", adata.var_names
        check(X is not None, "adata.X is empty; pass layer or use_rep", "layer")
    if names is not None:
        if not names.is_unique:
            text = f"{where} has the name {names[names.duplicated()][0]!r} more than once"
            raise InputError(f"{text}; call adata.var_names_make_unique() first")
        names = names.to_numpy().astype(object)
    columns = _mask_columns(var, mask_var)
    if columns is not None:
        names = names[columns]
    if is_lazy(X) and by_parts:
        X = LazyMatrix(X, where, columns=columns)
    else:
        X = in_memory(X if columns is None else usable(X)[:, columns])
    if X.dtype.kind not in "biuf":
        raise InputTypeError(f"{where} holds values of dtype {X.dtype}, not real numbers")
    if len(X.shape) != 2 or not X.shape[1]:
        raise InputError(f"{where} must have the shape (n_obs, n_features); it has {X.shape}")
    return X, where, names


def obs_column(adata: AnnData, key: str, parameter: str | None = None) -> pd.Series:
    """Return ``adata.obs[key]``; `parameter` is the parameter that an error blames."""
    if parameter is not None:
        check_name(key, parameter, "a column of obs")
    check_read(adata)
    column = _entry(adata.obs, key, "obs", parameter, "column ")
    if isinstance(column, pd.DataFrame):
        text = f"obs has {column.shape[1]} columns {key!r}; rename or drop all but one"
        raise InputError(text, parameter=parameter)
    if column.dtype == object:
        try:
            column.unique()
        except TypeError as error:  # such as "unhashable type: 'list'"
            text = f"obs[{key!r}] holds no names or numbers ({error})"
            raise InputError(text, parameter=parameter) from error
    return column


def check_read(adata: AnnData) -> None:
    """Raise an InputError if `adata` is no AnnData, or if its columns are still in a file."""
    if not hasattr(adata, "obs_names"):
        remedy = "for arrays and tables there is CentroidEncoder().fit(X, y)"
        if isinstance(adata, str | os.PathLike):
            remedy = "read a file with anndata.read_h5ad (or read_zarr) first"
        raise InputTypeError(f"an AnnData is needed, not {type(adata).__name__}; {remedy}")
    text = "the columns of adata are not in memory, as after anndata.experimental.read_lazy; call"
    check(isinstance(adata.obs, pd.DataFrame), f"{text} adata = adata.to_memory() first", "adata")


def _entry(mapping: Any, key: Any, slot: str, parameter: str | None, what: str = "") -> Any:
    if key not in mapping:
        raise MissingKeyError(f"{slot} has no {what}{key!r}{near_matches(key, mapping)}", parameter)
    return mapping[key]


def check_choice(parameter: str, value: object, choices: Any) -> None:
    """Raise an InputError for a value that is not among those of a Literal type."""
    text = f"{parameter} must be {' or '.join(map(repr, get_args(choices)))}; got {value!r}"
    check(value in get_args(choices), text, parameter)


def near_matches(word: object, names: Iterable[object]) -> str:
    """Return the end of a message about a missing name: similar names, or those that exist."""
    # In anndata 0.13, the layers contain X under the name None.
    others = [str(name) for name in names if name is not None]
    if near := difflib.get_close_matches(str(word), others, n=3, cutoff=0.5):
        return "; did you mean " + " or ".join(map(repr, near)) + "?"
    if not others:
        return "; there are none"
    return "; there are " + ", ".join(others[:10]) + (" …" if len(others) > 10 else "")


def listed(classes: pd.Index) -> str:
    """Return the names of up to ten classes, and the number of the others, as text."""
    names = ", ".join(repr(name) for name in classes[:10].tolist())
    return f"{names} and {len(classes) - 10} more" if len(classes) > 10 else names


def check_key(name: str, parameter: str) -> None:
    """Raise an InputError for a name that cannot be a key in ``.h5ad`` files and zarr stores."""
    check(is_key(name), f"{parameter} must not be {name!r}: files cannot hold that", parameter)


def _mask_columns(adata: Any, mask_var: MaskVar) -> NDArray[np.intp] | None:
    """Return the columns that `mask_var` selects in an AnnData or its ``raw``; None for all."""
    automatic = isinstance(mask_var, str) and mask_var == "auto"
    if automatic:
        mask_var = "highly_variable" if "highly_variable" in adata.var else None
    if mask_var is None:
        return None
    mask = read_mask(adata.var, "var", mask_var, "mask_var")
    if automatic:
        text = "    on the %d genes of var['highly_variable'] (mask_var=None takes all)"
        logger.info(text, int(mask.sum()))
    return np.flatnonzero(mask)


def read_mask(table: pd.DataFrame, slot: str, value: Any, parameter: str) -> NDArray[np.bool_]:
    """Return the rows of ``obs`` or ``var`` that a column, or a value for each row, selects."""
    name = parameter
    if isinstance(value, str):
        name, value = f"{slot}[{value!r}]", _entry(table, value, slot, parameter)
    elif isinstance(value, pd.Series) and not value.index.equals(table.index):
        names = f"{slot}_names"
        text = f"the index of {name} is not {names}; pass {name}.reindex(adata.{names})"
        raise InputError(text, parameter)
    mask = as_mask(value)
    if mask is None or len(mask) != len(table):
        text = f"{name} must hold True or False for each of the {len(table)} rows of {slot}"
        raise InputError(f"{text}, True for some", parameter)
    return mask


def as_mask(values: Any) -> NDArray[np.bool_] | None:
    """Return a mask, False where a value is missing; None if it is none, or True nowhere.

    The values are booleans, the numbers 0 and 1, or text of these, in any type of column.
    """
    if np.ndim(values) != 1:
        return None
    found = as_booleans(pd.Series(values).reset_index(drop=True), {})
    return (found == 1).to_numpy() if (found != -1).all() and (found == 1).any() else None


def as_booleans(column: pd.Series, words: Mapping[str, int]) -> pd.Series:
    """Return 1 and 0 for the values of a mask, NaN where one is missing, and −1 for all others.

    `words` are further texts that stand for 0 and 1.
    """
    given = column.dropna()
    if given.dtype.kind not in "biuf":
        given = given.astype(str).str.lower().map({**BOOLEANS, **words})
    given = given.astype(float)
    return given.where(given.isin((0, 1)), -1).reindex(column.index)


def _check_varied(X: Matrix | Lazy, where: str) -> None:
    """Raise an InputError if all rows are the same."""
    first: Any = None
    for start in range(0, X.shape[0], 64):
        rows: Any = X[start : start + 64]
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        first = rows[:1] if first is None else first
        if (rows != first).any():
            return
    raise InputError(
        f"{where} has the same values in all cells, so that there is nothing to learn from; the "
        "values may be in another layer, in obsm (use_rep) or in raw (use_raw)",
        parameter="layer",
    )


def _no_measurements(
    X: Matrix | Lazy, codes: NDArray[np.intp], names: NDArray[np.object_]
) -> Iterator[str]:
    """Yield sentences on features that equal the classes or are whole numbers in row order.

    At most 2,000 labeled rows are tested.
    """
    rows = np.flatnonzero(codes >= 0)
    rows = rows[np.linspace(0, len(rows) - 1, min(2000, len(rows))).astype(int)]
    own, columns = codes[rows], np.arange(X.shape[1])
    classes, first = np.unique(own, return_index=True)
    if len(rows) < 20 or len(classes) > len(rows) / 2:
        return

    def values(some: NDArray[np.intp]) -> NDArray[Any]:
        """Return the values of some rows, read in parts, since `X` may be in a file."""
        parts: list[Any] = [
            X[part][:, columns] for part in np.array_split(some, len(some) // 64 + 1)
        ]
        return np.vstack([x if isinstance(x, np.ndarray) else x.toarray() for x in parts])

    # A few rows exclude nearly all features.
    for step in (-(-len(rows) // 20), 1):
        if not len(columns):
            return
        part = values(rows[::step])
        centers = values(rows[first])[np.searchsorted(classes, own[::step])]
        equal = (part == centers).all(axis=0)
        steps = np.diff(part, axis=0)
        running = (steps >= 0).all(axis=0) | (steps <= 0).all(axis=0)
        running &= (part % 1 == 0).all(axis=0)
        kept = equal | running
        columns, equal, part = columns[kept], equal[kept], part[:, kept]
    counts = [np.unique(column, return_counts=True)[1] for column in part.T]
    is_class = np.array([len(n) == len(classes) for n in counts], bool) & equal
    # Few cells express a rare gene; they may be the last ones.
    runs = np.array([len(n) > 2 and (n.min() > 2 or n.max() <= 2) for n in counts], bool)
    for found, what in (
        (is_class, "has one value for each class"),
        (runs & ~is_class, "holds whole numbers in the order of the rows"),
    ):
        if found.any():
            text = f"feature {listed(pd.Index(names[columns[found]]))} {what}"
            yield f"{text}; leave it out, for example with mask_var, if it is no measurement"
