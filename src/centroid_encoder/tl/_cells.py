"""The cells of an AnnData: their values and, for a training, labels; for a query, a map's features.

All input is checked before a computation.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.core import matrix
from centroid_encoder.core.arrays import Codes, Floats, Mask, Singles
from centroid_encoder.core.gaps import Imputed, count_gaps, dense, is_gap
from centroid_encoder.core.matrix import Lazy, Matrix, looks_whole
from centroid_encoder.errors import InputError, InputTypeError, check, check_name
from centroid_encoder.tables import is_lazy
from centroid_encoder.tl import _check
from centroid_encoder.tl._matrix import LazyMatrix, in_memory, usable

if TYPE_CHECKING:
    from centroid_encoder.estimator import CentroidEncoder

Missing = Literal["error", "drop", "mean"]
MaskVar = NDArray[np.bool_] | str | None
Placed = tuple[Codes, Singles, Singles, Singles, Singles]
"""(n,) index of the predicted class, (n, m) places, (n,) confidence and novelty of cells, and
(n, M) probabilities of all classes, or (n, 0) if they are not wanted."""

MISSING_NAMES = ("", "nan", "na", "n/a", "#n/a", "<na>", "nat", "none", "null")
"""Texts of missing values in pandas, NumPy, R and spreadsheets, in lower case."""
ONE_AT_A_TIME = Lock()
"""With MPS, PyTorch crashes if two threads compute at once (its issue 197805)."""
BLOCKS = 64
"""Chunks of a dask array that are computed before the next check for Stop."""
MAX_MISSING = 0.2
"""Default share of the features that may be missing."""
ESTIMATE = 'pass missing="estimate" to estimate them from the other values of each cell'


@dataclass(frozen=True, kw_only=True)
class Values:
    """A matrix of an AnnData."""

    X: Any
    """(n, d) dense, CSR, or not in memory; a matrix in memory may be the AnnData's own."""
    where: str
    """Its name."""
    names: NDArray[np.object_] | None
    """(d,) names of its columns; None for a representation without names."""
    obs_names: pd.Index

    def describe_gaps(self, n_gaps: Codes) -> str:
        """Return text with the numbers of gaps, from `count_gaps`, and the place of the first."""
        row, n_cells = int(np.argmax(n_gaps > 0)), (n_gaps > 0).sum()
        column = is_gap(self.X[row : row + 1]).nonzero()[1].min()
        feature = f"column {column}" if self.names is None else repr(self.names[column])
        return (
            f"{self.where} has {n_gaps.sum()} NaN or infinite values in {n_cells} of {len(n_gaps)} "
            f"cells; the first is {feature} of cell {self.obs_names[row]!r}"
        )


@dataclass(frozen=True)
class Source:
    """The matrix with the values of the cells; the parameters are those of `tl.centroid_encoder`.

    By default it is X.
    """

    use_rep: str | None = None
    layer: str | None = None
    use_raw: bool = False
    mask_var: MaskVar = None

    @property
    def is_rep(self) -> bool:
        """Whether the values are a representation in ``obsm``."""
        return self.use_rep not in (None, "X")

    @property
    def is_automatic(self) -> bool:
        """Whether the genes are those of ``var["highly_variable"]``, if there are any."""
        return isinstance(self.mask_var, str) and self.mask_var == "auto"

    def read(self, adata: AnnData, *, by_parts: bool = True) -> Values:
        """Read the matrix.

        With `by_parts`, a matrix that is not in memory becomes a `LazyMatrix`; otherwise it is
        loaded.
        """
        X, where, names = self._find(adata)
        if names is not None:
            if not names.is_unique:
                text = f"{where} has the name {names[names.duplicated()][0]!r} more than once"
                raise InputError(f"{text}; call adata.var_names_make_unique() first")
            names = names.to_numpy().astype(object)
        columns = None if self.is_rep else self._columns(adata.raw if self.use_raw else adata)
        if columns is not None:
            names = names[columns]
        if is_lazy(X) and by_parts:
            X = LazyMatrix(X, where, columns=columns)
        else:
            X = in_memory(X if columns is None else usable(X)[:, columns])
        text = f"{where} holds values of dtype {X.dtype}, not real numbers"
        check(X.dtype.kind in "biuf", text, None, InputTypeError)
        text = f"{where} must have the shape (n_obs, n_features); it has {X.shape}"
        check(len(X.shape) == 2 and X.shape[1], text)
        return Values(X=X, where=where, names=names, obs_names=adata.obs_names)

    def _find(self, adata: AnnData) -> tuple[Any, str, Any]:
        """Return the stored matrix, its name, and the names of its columns."""
        check_name(self.use_rep, "use_rep", "an entry of obsm", str | None)
        check_name(self.layer, "layer", "an entry of layers", str | None)
        n_given = self.use_raw + (self.use_rep is not None) + (self.layer is not None)
        check(n_given <= 1, "use only one of use_raw, use_rep and layer", "use_rep")
        if self.use_raw:
            text = "adata.raw is empty; leave out use_raw or, if the map was trained on raw, pass"
            cure = 'use_rep="X" if the values in X are like those, or the layer with such values'
            check(adata.raw is not None, f"{text} {cure}", "use_raw")
            return adata.raw.X, "raw.X", adata.raw.var_names
        if self.is_rep:
            has_mask = not (self.mask_var is None or self.is_automatic)
            check(not has_mask, "use_rep excludes mask_var", "use_rep")
            X = _check.entry_of(adata.obsm, self.use_rep, "obsm", "use_rep")
            names = X.columns.astype(str) if isinstance(X, pd.DataFrame) else None
            return X, f"obsm[{self.use_rep!r}]", names
        if self.layer is not None:
            X = _check.entry_of(adata.layers, self.layer, "layers", "layer")
            return X, f"layers[{self.layer!r}]", adata.var_names
        check(adata.X is not None, "adata.X is empty; pass layer or use_rep", "layer")
        return adata.X, "X", adata.var_names

    def _columns(self, adata: Any) -> Codes | None:
        """Return the columns that `mask_var` selects in an AnnData or its ``raw``; None for all."""
        mask_var = self.mask_var
        if self.is_automatic:
            mask_var = "highly_variable" if "highly_variable" in adata.var else None
        if mask_var is None:
            return None
        slot = "raw.var" if self.use_raw else "var"
        mask = _check.read_mask(adata.var, slot, mask_var, "mask_var")
        if self.is_automatic:
            text = "    on the %d genes of %s['highly_variable'] (mask_var=None takes all)"
            _check.logger.info(text, int(mask.sum()), slot)
        return np.flatnonzero(mask)


@dataclass(frozen=True, kw_only=True)
class Cells(Values):
    """Cells with labels; rows of `X` are the `kept` cells, other arrays have all cells."""

    codes: Codes
    """(n_obs,) indices into `classes`; −1 for cells that have no label or are left out."""
    classes: pd.Index
    """(M,) sorted classes that have at least one cell."""
    categories: pd.Index
    """All categories of the label column, in their order."""
    groups: Codes | None
    """(n_obs,) indices into `group_names`; None without groups."""
    group_names: pd.Index
    kept: Mask
    """(n_obs,) mask of the cells that take part; the others have missing values."""
    params: Mapping[str, Any]
    """Arguments that are not None."""
    notices: tuple[str, ...]
    """Warnings for the user."""

    @property
    def kept_codes(self) -> Codes:
        """(n_kept,) `codes` of the rows of X."""
        return self.codes[self.kept]

    @property
    def kept_groups(self) -> Codes | None:
        """(n_kept,) `groups` of the rows of X."""
        return None if self.groups is None else self.groups[self.kept]

    @property
    def class_labels(self) -> NDArray[Any]:
        """(M,) `classes` as an array of strings, integers or booleans."""
        return np.asarray(self.classes.tolist())

    def spread(self, values: Floats) -> Singles:
        """Return values of all cells, (n_obs, …), from those of the kept cells; NaN for others."""
        spread = np.full((len(self.kept), *values.shape[1:]), np.nan, dtype=np.float32)
        spread[self.kept] = values
        return spread

    def labels_of(self, codes: Codes) -> pd.Categorical:
        """Return (n_obs,) labels from (n_kept,) codes; missing for −1 and cells left out."""
        spread = np.full(len(self.kept), -1)
        spread[self.kept] = np.append(self.categories.get_indexer(self.classes), -1)[codes]
        return pd.Categorical.from_codes(spread, self.categories)


def read_cells(
    adata: AnnData,
    source: Source,
    *,
    label_key: str,
    unlabeled_category: str | None,
    missing: Missing,
    group_key: str | None,
    random_state: int | np.random.Generator,
    by_parts: bool = False,
) -> Cells:
    """Read and check the cells of an AnnData; parameters are those of `tl.centroid_encoder`.

    A matrix that is not in memory is loaded or, with `by_parts`, becomes a `LazyMatrix`.
    """
    check(adata.n_obs, "adata has no cells")
    codes, classes, categories = _read_labels(adata, label_key, unlabeled_category)
    _check.logger.info("computing centroid-encoder of %r", label_key)
    _check.check_choice("missing", missing, Missing)
    text = "obs_names are not unique; call adata.obs_names_make_unique() first"
    check(adata.obs_names.is_unique, text)
    values = source.read(adata, by_parts=by_parts)
    kept = _have_values(values, missing)
    codes = np.where(kept, codes, -1)
    empty = np.setdiff1d(np.arange(len(classes)), codes)
    text = f"no cell of {_check.listed(classes[empty])} is left without missing values"
    check(not len(empty), text, "missing")
    X = values.X
    if not kept.all():
        _check.logger.info("    leaving out %d cells with NaN or inf", int((~kept).sum()))
        rows = np.flatnonzero(kept)
        X = replace(X, rows=rows) if isinstance(X, LazyMatrix) else X[rows]
        values = replace(values, X=X)
    _check_varied(X, values.where)
    groups, group_names = _read_groups(adata, group_key, codes >= 0)
    params = {
        "label_key": label_key,
        **vars(source),
        "use_raw": source.use_raw or None,
        "mask_var": source.mask_var if isinstance(source.mask_var, str) else None,
        "unlabeled_category": unlabeled_category,
        "missing": missing,
        "group_key": group_key,
        "random_state": int(random_state) if isinstance(random_state, numbers.Integral) else None,
    }
    return Cells(
        **vars(values),
        codes=codes,
        classes=classes,
        categories=categories,
        groups=groups,
        group_names=group_names,
        kept=kept,
        # Some supported versions of anndata cannot write None.
        params={name: value for name, value in params.items() if value is not None},
        notices=tuple(_doubts(values, codes[kept], label_key, classes, source)),
    )


def _have_values(values: Values, missing: Missing) -> Mask:
    """(n_obs,) mask of the cells that take part; an InputError is raised if a gap is an error."""
    X, n_gaps = values.X, count_gaps(values.X)
    if missing == "error" and n_gaps.any():
        remedy = 'pass missing="drop" to leave these cells out, or missing="mean" to fill the mean'
        text = f"{values.describe_gaps(n_gaps)}; {remedy} of the feature"
        raise InputError(text, parameter="missing")
    # With "mean", a cell without any value is left out: it would lie at the mean of all cells.
    return np.asarray(n_gaps < (1 if missing == "drop" else X.shape[1]))


def _doubts(
    values: Values, codes: Codes, label_key: str, classes: pd.Index, source: Source
) -> Iterator[str]:
    """Yield warnings about the classes and the values; `codes` are those of the rows."""
    doubtful = [str(name).strip().lower() in MISSING_NAMES for name in classes]
    if any(doubtful):
        text = f"trained as classes of obs[{label_key!r}]: {_check.listed(classes[doubtful])}"
        cure = "if these mean unlabeled, replace them by NaN, or pass unlabeled_category"
        yield f"{text}; {cure}"
    if not source.is_rep and looks_whole(values.X, above=20):
        text = "log-normalise first (sc.pp.normalize_total, sc.pp.log1p) unless you mean it"
        yield f"{values.where} looks like raw counts; {text}"
    if values.names is not None:
        yield from _no_measurements(values.X, codes, values.names)


def _read_labels(
    adata: AnnData, label_key: str, unlabeled_category: str | None
) -> tuple[Codes, pd.Index, pd.Index]:
    """Return (n_obs,) codes, the sorted classes that have cells, and all categories."""
    column = _check.obs_column(adata, label_key, "label_key", may_be_result=False)
    where = f"obs[{label_key!r}]"
    _check.check_key(label_key, "label_key")
    n, n_values, blamed = column.count(), column.nunique(), ("label_key", InputTypeError)
    if pd.api.types.is_float_dtype(column.dtype):
        text = f"{where} holds fractional numbers ({n_values} different ones), not classes; to use"
        cure = "bins of it, cut it first, e.g. with pandas.cut"
        check((column.dropna() % 1 == 0).all(), f"{text} {cure}", *blamed)
        # Integers are floats in a column that has NaN.
        column = column.astype("Int64")
    many = pd.api.types.is_numeric_dtype(column.dtype) and n_values > max(10, n / 10)
    text = f"{where} has {n_values} different values in {n} cells; these look like measurements or"
    check(not (many or n_values == n > 2), f"{text} names of cells, not like classes", *blamed)
    column = column.astype("category")
    categories = column.cat.categories
    if unlabeled_category is not None:
        if not pd.api.types.is_scalar(unlabeled_category):
            check_name(unlabeled_category, "unlabeled_category", f"a class in {where}")
        text = f"unlabeled_category {unlabeled_category!r} does not occur in {where}"
        _check.check_known(unlabeled_category, categories, text, "unlabeled_category")
        categories = categories[categories != unlabeled_category]
        column = column.cat.set_categories(categories)
    classes = column.cat.remove_unused_categories().cat.categories
    found = f"one class only ({classes[0]!r})" if len(classes) else "no labels"
    text = f"{where} has {found}; a supervised embedding needs two classes or more"
    check(len(classes) > 1, text, "label_key")
    kind = pd.api.types.infer_dtype(classes)
    text = f"{where} has classes of type {kind}; make them strings, e.g. adata.{where}.astype(str)"
    check(kind in ("string", "integer", "boolean"), text, *blamed)
    classes = classes.sort_values()
    return classes.get_indexer(column.astype(object)).astype(np.intp), classes, categories


def _read_groups(
    adata: AnnData, group_key: str | None, labeled: Mask
) -> tuple[Codes | None, pd.Index]:
    """Return (n_obs,) codes of the groups, and their names; check that labeled cells have one."""
    if group_key is None:
        return None, pd.Index([])
    codes, names = pd.factorize(_check.obs_column(adata, group_key, "group_key"))
    n_missing, where = int((codes[labeled] < 0).sum()), f"obs[{group_key!r}]"
    text = f"{n_missing} labeled cells have no value in {where} (group_key)"
    check(not n_missing, text, "group_key")
    text = f"all labeled cells are in one group of {where}: none can be held out"
    check(len(np.unique(codes[labeled])) > 1, f"{text} (group_key)", "group_key")
    return codes.astype(np.intp), pd.Index(names)


def _check_varied(X: Matrix | Lazy, where: str) -> None:
    """Raise an InputError if all rows are the same."""
    first = dense(X[:1])
    parts = (dense(X[start : start + 64]) for start in range(0, X.shape[0], 64))
    text = (
        f"{where} has the same values in all cells, so that there is nothing to learn from; the "
        "values may be in another layer, in obsm (use_rep) or in raw (use_raw)"
    )
    check(any((part != first).any() for part in parts), text, "layer")


def _no_measurements(X: Matrix | Lazy, codes: Codes, names: NDArray[np.object_]) -> Iterator[str]:
    """Yield sentences on features that equal the classes or are whole numbers in row order.

    At most 2,000 labeled rows are tested.
    """
    rows = np.flatnonzero(codes >= 0)
    rows = rows[np.linspace(0, len(rows) - 1, min(2000, len(rows))).astype(int)]
    own, columns = codes[rows], np.arange(X.shape[1])
    classes, first = np.unique(own, return_index=True)
    if len(rows) < 20 or len(classes) > len(rows) / 2:
        return

    def values(some: Codes) -> NDArray[Any]:
        """Return the values of some rows, read in parts, since `X` may be in a file."""
        parts = np.array_split(some, len(some) // 64 + 1)
        return np.vstack([dense(X[part][:, columns]) for part in parts])

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
            text = f"feature {_check.listed(pd.Index(names[columns[found]]))} {what}"
            yield f"{text}; leave it out, for example with mask_var, if it is no measurement"


@dataclass(frozen=True, kw_only=True)
class NewCells(Values):
    """Cells, and the map that places them."""

    model: CentroidEncoder
    index: Codes
    """(d,) columns of the map's features, −1 for a missing one."""
    max_missing: float | None
    """Share of the features that a cell may lack; None if a gap is an error, and 0 if cells with
    gaps are left out."""
    all_classes: bool = False
    """Whether `placed` returns the probabilities of all classes."""

    @property
    def absent(self) -> Mask:
        """(d,) mask of the map's features that all cells lack."""
        return self.index < 0

    def imputed(self, x: Any, start: int = 0) -> Imputed:
        """Find the map's features in rows of the matrix, from `start` on, and their gaps."""
        if not np.array_equal(self.index, np.arange(x.shape[1])):
            x = x[:, np.maximum(self.index, 0)]
        allowed, there = 1.0 if self.max_missing is None else self.max_missing, self.index >= 0
        cells = Imputed(self.model.fitted_map, x, ~there, allowed)
        if self.max_missing is None and cells.n_gaps.any():
            stop, names = start + len(cells.n_gaps), getattr(self.model, "feature_names_in_", None)
            where = f"{self.where} (cells {start:,} to {stop - 1:,})"
            names, obs_names = None if names is None else names[there], self.obs_names[start:stop]
            values = Values(X=x[:, there], where=where, names=names, obs_names=obs_names)
            raise InputError(f"{values.describe_gaps(cells.n_gaps)}; {ESTIMATE}", "missing")
        return cells

    def placed(self, X: Any, start: int = 0, n_threads: int = 1) -> Iterator[Placed]:
        """Place X, the rows of the matrix from `start` on, in chunks."""
        from centroid_encoder.core.threads import in_threads

        # Sparse rows become dense after the features of the map have been selected.
        width = n_threads * (len(self.index) if matrix.is_sparse(X) else X.shape[1])
        parts = ((start + part.start, in_memory(X[part])) for part in chunks_of(X, width))
        return in_threads(self._placed, parts, n_threads)

    def _placed(self, chunk: tuple[int, Matrix]) -> Placed:
        is_mps = self.model.fitted_map.device.type == "mps"
        with ONE_AT_A_TIME if is_mps else nullcontext():
            cells = self.imputed(*chunk[::-1])
            places, probabilities, predicted = cells.judge()
        confidence = probabilities[np.arange(len(predicted)), predicted]
        wanted = probabilities if self.all_classes else probabilities[:, :0]
        found = [x.astype(np.float32) for x in (places, confidence, cells.novelty(), wanted)]
        for values in found:
            values[cells.unusable] = np.nan
        places, confidence, novelty, wanted = found
        return predicted, places, confidence, novelty, wanted

    def have_values(self) -> Mask:
        """(n_obs,) mask of the cells that do not lack too many values; reads all of them."""
        parts = (self.imputed(in_memory(self.X[part])).unusable for part in chunks_of(self.X))
        return ~np.concatenate([np.empty(0, dtype=bool), *parts])


def read_new_cells(
    adata: AnnData, model: CentroidEncoder, source: Source, max_missing: float | None = 1.0
) -> tuple[NewCells, list[str]]:
    """Return the cells of an AnnData as a map takes them, and warnings.

    `max_missing` is the share of the map's features that may be missing, or None if a missing one
    is an error.
    """
    values, wanted = source.read(adata), getattr(model, "feature_names_in_", None)
    index, notices = np.arange(model.n_features_in_), []
    if wanted is None or values.names is None:
        n, n_known = values.X.shape[1], model.n_features_in_
        text = f"{values.where} has {n} columns, but the map was trained on {n_known}, and there"
        check(n == n_known, f"{text} are no names to match them")
        if values.names is not None:
            text = f"the map has no names: columns of {values.where} are taken in their order"
            notices = [text]
    elif not np.array_equal(values.names, wanted):
        index, notices = _match(values, wanted)
        notices += _lacking(values, model, index, max_missing)
    cells = NewCells(**vars(values), model=model, index=index, max_missing=max_missing)
    return cells, notices


def _match(values: Values, wanted: NDArray[np.object_]) -> tuple[Codes, list[str]]:
    """Return the columns of the features `wanted`, −1 for a missing one, and warnings."""
    names = pd.Index(values.names)
    exact = index = names.get_indexer(wanted)
    lower, wanted_lower = names.str.casefold(), pd.Index(wanted).str.casefold()
    if (exact < 0).any() and lower.is_unique and wanted_lower.is_unique:
        index = lower.get_indexer(wanted_lower)
    if not len(other := np.flatnonzero(exact != index)):
        return index, []
    example = f"{names[index[other[0]]]!r} for {wanted[other[0]]!r}"
    notice = (
        f"{len(other)} features of {values.where} match those of the map only without regard to "
        f"case, such as {example}; check that they are the same genes: names of human and mouse "
        "genes often differ in case alone"
    )
    return index, [notice]


def _lacking(
    values: Values, model: CentroidEncoder, index: Codes, max_missing: float | None
) -> list[str]:
    """Return a warning about features of the map that all cells lack; check that they may."""
    used = model.feature_weights_ > 0
    absent = pd.Index(model.feature_names_in_[(index < 0) & used])
    if not len(absent):
        return []
    share = len(absent) / used.sum()
    text = f"{values.where} lacks {len(absent)} of the {used.sum()} features that the map uses: "
    text += _check.listed(absent)
    example = f"It has features like {pd.Index(values.names)[0]!r}"
    check(share < 1, f"{text}. {example}: are these names of another kind?")
    cure = ESTIMATE + (", and a larger max_missing" if share > MAX_MISSING else "")
    if max_missing:
        cure = f"pass max_missing={share:.2g} or more to estimate them"
    blamed = "max_missing" if max_missing else "missing"
    check(max_missing and share <= max_missing, f"{text} ({share:.0%}); {cure}", blamed)
    of_confidence = ", which confidence does not allow for in a map without novelty"
    has_novelty = model.fitted_map.novelty is not None
    return [f"{text}; they are estimated from the others{'' if has_novelty else of_confidence}"]


def chunks_of(X: Any, width: int = 1) -> Iterator[slice]:
    """Slices of the rows of a matrix that are read at once; rows with gaps become dense.

    If several slices are used at once, `width` is the number of columns of all of them together.
    """
    n_rows = max(1, min(matrix.CHUNK, matrix.VALUES_AT_ONCE // max(width, X.shape[1])))
    return matrix.chunks(X.shape[0], n_rows)


def placed_chunks(cells: NewCells, X: Any) -> Iterator[Placed]:
    """Place the chunks of a dask array by dask's scheduler, `BLOCKS` at a time."""
    from dask.base import compute
    from dask.delayed import delayed

    # The matrix and the names of the cells are not sent to the workers.
    alone = replace(cells, X=None, names=None, obs_names=pd.RangeIndex(len(cells.obs_names)))
    shared, starts = delayed(alone, pure=False, traverse=False), np.cumsum([0, *X.chunks[0]])
    blocks = zip(X.to_delayed()[:, 0], starts.tolist(), strict=False)
    tasks = [delayed(_placed_block)(shared, block, start) for block, start in blocks]
    for i in range(0, len(tasks), BLOCKS):
        yield from chain.from_iterable(compute(*tasks[i : i + BLOCKS]))


def _placed_block(cells: NewCells, block: Any, start: int) -> list[Placed]:
    """Place the cells of a chunk of a dask array."""
    return list(cells.placed(in_memory(block), start))
