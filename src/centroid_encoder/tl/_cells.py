"""Labeled cells, read once from an AnnData and checked before anything is computed."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.matrix import Lazy, Matrix, looks_like_counts
from centroid_encoder.errors import (
    Advice,
    InputError,
    InputTypeError,
    Message,
    MissingKeyError,
    Setting,
    check_name,
)
from centroid_encoder.tl._lazy import LazyMatrix, in_memory, is_lazy, usable
from centroid_encoder.tl._matrix import (
    Source,
    check_finite,
    check_real,
    check_varied,
    rows_with_gaps,
)
from centroid_encoder.tl._names import check_key, check_text

if TYPE_CHECKING:
    from anndata import AnnData

Missing = Literal["error", "drop", "mean"]
MaskVar = NDArray[np.bool_] | str | None

LIKE_MISSING = {"", "nan", "na", "n/a", "<na>", "none", "null"}
"""Names of classes that ``astype(str)`` and tables make of missing labels."""

logger = logging.getLogger("centroid_encoder")


@dataclass(frozen=True, kw_only=True)
class Cells(Source):
    """The cells of an AnnData as a job needs them.

    Rows of `X` are the cells that take part, `kept`; all else is of all cells.
    """

    X: Matrix | Lazy
    """(n_kept, d), dense or CSR; the AnnData's own until `detached`, or not in memory."""
    names: NDArray[np.object_] | None
    """(d,) names of the features; None for a representation without."""
    codes: NDArray[np.intp]
    """(n_obs,) index into `classes`; −1 for cells without a label or left out."""
    classes: pd.Index
    """Classes with at least one cell, sorted; everything stored is in that order."""
    categories: pd.Index
    """All categories of the label column, empty ones included."""
    groups: NDArray[np.intp] | None
    """(n_obs,) group of each cell, if there are groups."""
    group_names: pd.Index
    """Names of the groups."""
    kept: NDArray[np.bool_]
    """(n_obs,) cells that take part; the others have missing values."""
    params: Mapping[str, Any]
    """What they were read with, but for None."""
    notices: tuple[Message, ...]
    """What to warn of."""

    @property
    def kept_codes(self) -> NDArray[np.intp]:
        """(n_kept,) `codes` of the rows of X."""
        return self.codes[self.kept]

    @property
    def class_labels(self) -> NDArray[Any]:
        """(M,) `classes` as plain values: what is stored, and what an estimator takes."""
        return np.asarray(self.classes.tolist())

    def spread(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """Put (n_kept, …) values to their cells; NaN for those left out."""
        spread = np.full((len(self.kept), *values.shape[1:]), np.nan, dtype=np.float32)
        spread[self.kept] = values
        return spread

    def labels_of(self, codes: NDArray[np.intp]) -> pd.Categorical:
        """(n_obs,) labels for (n_kept,) codes, with all categories; missing for cells left out."""
        at = np.full(len(self.kept), -1)
        at[self.kept] = self.categories.get_indexer(self.classes)[codes]
        return pd.Categorical.from_codes(at, self.categories)


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
    *,
    by_parts: bool = False,
) -> Cells:
    """Read the cells that `tl.centroid_encoder` documents; `adata` stays as it is.

    A matrix that is not in memory comes into it, or, with `by_parts`, is read a part at a time.

    Raises
    ------
    KeyError
        If a key does not exist; near matches are named.
    TypeError
        If the label column holds measurements rather than classes, or the matrix no numbers.
    ValueError
        If the data cannot be used as they are.
    """
    codes, classes, categories = _read_labels(adata, label_key, unlabeled_category)
    logger.info("computing centroid-encoder of %r", label_key)
    if missing not in get_args(Missing):
        text = "{} must be 'error', 'drop' or 'mean'; got {!r}"
        raise InputError(text, Setting("missing"), missing)
    if not adata.obs_names.is_unique:
        raise InputError("obs_names are not unique; call adata.obs_names_make_unique() first")
    X, where, names = _read_features(
        adata,
        use_rep=use_rep,
        layer=layer,
        mask_var=mask_var,
        use_raw=use_raw,
        by_parts=by_parts,
    )
    kept = ~_find_missing(X, where, missing, adata.obs_names, names)
    notices = _named_as_missing(codes, classes)
    if (use_rep is None or use_rep == "X") and looks_like_counts(X):
        text = f"{where} looks like raw counts; log-normalise first "
        notices.append(Message(f"{text}(sc.pp.normalize_total, sc.pp.log1p) unless you mean it"))
    codes = np.where(kept, codes, -1)
    empty = ~np.isin(np.arange(len(classes)), codes)
    if empty.any():
        raise InputError(f"no cell of {listed(classes[empty])} is left without missing values")
    if not kept.all():
        rows = np.flatnonzero(kept)
        X = X.selected(rows=rows) if isinstance(X, LazyMatrix) else X[rows]
    check_varied(X, where)
    groups, group_names = _read_groups(adata, group_key, codes >= 0)
    params = {
        "label_key": label_key,
        "use_rep": use_rep,
        "layer": layer,
        "use_raw": True if use_raw else None,
        "mask_var": mask_var if isinstance(mask_var, str) else None,
        "unlabeled_category": unlabeled_category,
        "missing": missing,
        "group_key": group_key,
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
        # Not every supported anndata writes None.
        params={name: value for name, value in params.items() if value is not None},
        notices=tuple(notices),
    )


def _named_as_missing(codes: NDArray[np.intp], classes: pd.Index) -> list[Message]:
    """Warn of classes that are called as if their cells had no label."""
    named = [name for name in classes if str(name).strip().casefold() in LIKE_MISSING]
    if not named:
        return []
    n = int(np.isin(codes, classes.get_indexer(named)).sum())
    text = (
        "{} cells are trained on as a class of their own though its name, {}, looks like a missing "
        "label; {} to mark them as unlabeled"
    )
    also = " and replace the others by NaN" if len(named) > 1 else ""
    advice = Message("{}" + also, Advice("unlabeled_category", named[0]))
    return [Message(text, n, " or ".join(map(repr, named)), advice)]


def _read_labels(
    adata: AnnData, label_key: str, unlabeled_category: str | None
) -> tuple[NDArray[np.intp], pd.Index, pd.Index]:
    """Return (n_obs,) codes, the classes that have cells, and all categories."""
    if not adata.n_obs:
        raise InputError("adata has no cells")
    column, where = obs_column(adata, label_key), f"obs[{label_key!r}]"
    check_key(str(label_key), Setting("label_key"))
    if not isinstance(column.dtype, pd.CategoricalDtype):
        values = column.dropna()
        # First of all: pandas does not always find text again that is none.
        for name in {name for name in values if isinstance(name, str)}:
            check_text(name, f"a class in {where}")
        n_values = values.nunique()
        if pd.api.types.is_float_dtype(column.dtype) and (values % 1 != 0).any():
            raise InputTypeError(
                f"{where} holds fractional numbers ({n_values} different ones), not classes; to "
                "use bins of it, cut it first, e.g. with pandas.cut"
            )
        if pd.api.types.is_numeric_dtype(column.dtype) and n_values > max(10, len(values) / 10):
            raise InputTypeError(
                f"{where} has {n_values} different numbers in {len(values)} cells; this looks "
                "like a measurement or an identifier, not like classes"
            )
        if pd.api.types.is_float_dtype(column.dtype):
            column = column.astype("Int64")
        column = column.astype("category")
    categories = column.cat.categories
    if unlabeled_category is not None:
        if not pd.api.types.is_scalar(unlabeled_category):
            check_name(unlabeled_category, "unlabeled_category", f"a class in {where}")
        if unlabeled_category not in categories:
            near = near_matches(unlabeled_category, categories)
            text = "{} {!r} does not occur in {}{}"
            raise InputError(text, Setting("unlabeled_category"), unlabeled_category, where, near)
        # remove_categories would sort those that stay.
        labels = [name for name in categories if name != unlabeled_category]
        column = column.cat.set_categories(labels)
    used = column.cat.remove_unused_categories()
    classes = used.cat.categories
    if not len(classes):
        raise InputError(f"no cell has a label in {where}")
    if len(classes) == 1:
        raise InputError(
            f"{where} has one class only ({classes[0]!r}); a supervised embedding needs two or more"
        )
    if len(classes) == used.count() > 2:
        raise InputTypeError(
            f"{where} gives each of {len(classes)} cells a class of its own; this looks like their "
            "names, not like classes"
        )
    # The subclass np.str_ is a string as well, and a bool is an int.
    kinds = {
        next((kind for kind in (str, bool, int) if isinstance(name, kind)), type(name))
        for name in classes.tolist()
    }
    if len(kinds) > 1 or not kinds <= {str, int, bool}:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise InputTypeError(
            f"the classes in {where} are of type {names}; make them strings, e.g. "
            f"adata.{where}.astype(str)"
        )
    for name in categories[[isinstance(name, str) for name in categories]]:
        check_text(name, f"a class in {where}")
    # `Cells.labels_of` puts the order of the categories back.
    classes = classes.sort_values()
    return classes.get_indexer(column.astype(object)).astype(np.intp), classes, categories


def _read_groups(
    adata: AnnData, group_key: str | None, labeled: NDArray[np.bool_]
) -> tuple[NDArray[np.intp] | None, pd.Index]:
    """(n_obs,) group indices, and names of the groups; every labeled cell must have a group."""
    if group_key is None:
        return None, pd.Index([])
    codes, names = pd.factorize(obs_column(adata, group_key, "group_key"))
    n_missing = int((codes[labeled] < 0).sum())
    if n_missing:
        text = "{} labeled cells have no value in obs[{!r}] ({})"
        raise InputError(text, n_missing, group_key, Setting("group_key"))
    if len(np.unique(codes[labeled])) < 2:
        raise InputError(
            "all labeled cells are in one group of obs[{!r}]: none can be held out ({})",
            group_key,
            Setting("group_key"),
        )
    return np.asarray(codes, dtype=np.intp), pd.Index(names)


def _read_features(
    adata: AnnData,
    *,
    use_rep: str | None,
    layer: str | None,
    mask_var: MaskVar,
    use_raw: bool,
    by_parts: bool,
) -> tuple[Matrix | Lazy, str, NDArray[np.object_] | None]:
    """Return the matrix to learn from, what it is called, and its columns' names."""
    X, where, names = read_matrix(adata, use_rep=use_rep, layer=layer, use_raw=use_raw)
    of_variables = use_rep is None or (use_rep == "X" and not use_raw)
    if not (of_variables or _is_auto(mask_var)) or (use_rep is not None and layer is not None):
        raise _excluded()
    columns: NDArray[np.intp] | None = None
    if names is not None and of_variables:
        source = adata.raw if use_raw else adata
        if not source.var_names.is_unique:
            raise InputError("var_names are not unique; call adata.var_names_make_unique() first")
        mask = _read_mask(source, mask_var)
        if mask is not None:
            columns, names = np.flatnonzero(mask), names[mask]
    elif names is not None and len(set(names)) < len(names):
        raise InputError(f"the columns of {where} have names that are not unique")
    if by_parts and is_lazy(X):
        logger.info("    reading %s a part at a time", where)
        X = LazyMatrix.of(X, where)
        if columns is not None:
            X = X.selected(columns=columns)
    else:
        if is_lazy(X):
            logger.info("    loading %s into memory", where)
        X = in_memory(X if columns is None else X[:, columns])
    if not X.shape[1]:
        raise InputError(f"{where} has no features")
    check_real(X, where)
    for name in () if names is None else names:
        check_text(name, f"a name of the columns of {where}")
    return X, where, names


def read_matrix(
    adata: AnnData, *, use_rep: str | None, layer: str | None, use_raw: bool
) -> tuple[Any, str, NDArray[np.object_] | None]:
    """Return what to learn from as it is, what it is called, and its columns' names.

    That is X, a layer, a representation or the X of ``adata.raw``.

    Raises
    ------
    KeyError
        If a key does not exist; near matches are named.
    ValueError
        If more than one is given, or if there is no X.
    """
    check_name(use_rep, "use_rep", "an entry of obsm", str | None)
    check_name(layer, "layer", "an entry of layers", str | None)
    if use_raw:
        if use_rep is not None or layer is not None:
            settings = (Setting(name) for name in ("use_raw", "use_rep", "layer"))
            raise InputError("{} excludes {} and {}", *settings)
        if adata.raw is None:
            raise InputError("adata.raw is empty, and {} asks for it", Setting("use_raw"))
        return usable(adata.raw.X), "raw.X", adata.raw.var_names.to_numpy().astype(object)
    if use_rep is not None and use_rep != "X":
        if layer is not None:
            raise _excluded()
        X = _entry(adata.obsm, use_rep, "obsm")
        names = None
        if isinstance(X, pd.DataFrame):
            names = X.columns.astype(str).to_numpy().astype(object)
        return usable(X), f"obsm[{use_rep!r}]", names
    X = adata.X if layer is None else _entry(adata.layers, layer, "layers")
    if X is None:
        raise InputError("adata.X is empty; name a {} or {}", Setting("layer"), Setting("use_rep"))
    where = "X" if layer is None else f"layers[{layer!r}]"
    return usable(X), where, adata.var_names.to_numpy().astype(object)


def _excluded() -> InputError:
    settings = (Setting(name) for name in ("use_rep", "layer", "mask_var"))
    return InputError("{} excludes {} and {}: a representation has neither", *settings)


def obs_column(adata: AnnData, key: str, parameter: str | None = None) -> pd.Series:
    """Return ``adata.obs[key]``; a KeyError names near matches, a TypeError the `parameter`."""
    if parameter is not None:
        check_name(key, parameter, "a column of obs")
    if key not in adata.obs:
        raise MissingKeyError(f"obs has no column {key!r}{near_matches(key, adata.obs.columns)}")
    column = adata.obs[key]
    if not isinstance(adata.obs, pd.DataFrame):
        # That of `anndata.experimental.read_lazy` is not in memory either.
        column = adata.obs[[key]].to_memory()[key]
    if isinstance(column, pd.DataFrame):
        raise InputError(f"obs has {column.shape[1]} columns {key!r}; rename or drop all but one")
    return column


def _entry(mapping: Any, key: str, name: str) -> Any:
    if key not in mapping:
        raise MissingKeyError(f"{name} has no {key!r}{near_matches(key, mapping)}")
    return mapping[key]


def near_matches(word: object, names: Iterable[object]) -> str:
    """End a message about a name that is nowhere: with those like it, or those there are."""
    # anndata 0.13 counts X among the layers, by the name None.
    others = [str(name) for name in names if name is not None]
    near = difflib.get_close_matches(str(word), others, n=3, cutoff=0.5)
    if near:
        return "; did you mean " + " or ".join(map(repr, near)) + "?"
    if not others:
        return "; there are none"
    return "; there are " + ", ".join(others[:10]) + (" …" if len(others) > 10 else "")


def listed(classes: pd.Index) -> str:
    """Name up to ten classes."""
    names = ", ".join(repr(name) for name in classes[:10].tolist())
    return f"{names} and {len(classes) - 10} more" if len(classes) > 10 else names


def _read_mask(adata: AnnData, mask_var: MaskVar) -> NDArray[np.bool_] | None:
    if mask_var is None:
        return None
    automatic = _is_auto(mask_var)
    if isinstance(mask_var, str):
        if automatic:
            if "highly_variable" not in adata.var:
                return None
            mask_var = "highly_variable"
        mask = np.asarray(_entry(adata.var, mask_var, "var"))
        name: object = f"var[{mask_var!r}]"
    else:
        name = Setting("mask_var")
        if isinstance(mask_var, pd.Series) and not isinstance(mask_var.index, pd.RangeIndex):
            missing = adata.var_names.difference(mask_var.index)
            if len(missing) or not mask_var.index.is_unique:
                lacks = f": it lacks {missing[0]!r}" if len(missing) else ""
                raise InputError("{} is a Series whose index is not var_names{}", name, lacks)
            mask_var = mask_var.reindex(adata.var_names)
        mask = np.asarray(mask_var)
    n_vars = len(adata.var_names)
    mask = _as_bool(mask, name)
    if mask.shape != (n_vars,):
        raise InputError("{} must hold one bool for each of the {} variables", name, n_vars)
    if n_vars and not mask.any():
        raise InputError("{} selects none of the {} variables", name, n_vars)
    if automatic:
        logger.info("    on the %d genes of %s (mask_var=None takes all)", int(mask.sum()), name)
    return mask


def _as_bool(mask: NDArray[Any], name: object) -> NDArray[np.bool_]:
    """Return a mask that may be written as 0 and 1, as tables from other programs have it."""
    unknown = pd.isna(mask)
    if unknown.any() and mask.ndim == 1 and set(mask[~unknown].tolist()) <= {0, 1}:
        text = "{} is NaN for {} variables; replace that, e.g. with {}.fillna(False).astype(bool)"
        raise InputError(text, name, int(unknown.sum()), name)
    if mask.dtype != bool and mask.dtype.kind in "iufO" and set(mask.ravel().tolist()) <= {0, 1}:
        mask = mask.astype(bool)
    if mask.dtype != bool:
        raise InputError("{} must hold True or False (or 1 and 0) for each variable", name)
    return mask


def _is_auto(mask_var: object) -> bool:
    return isinstance(mask_var, str) and mask_var == "auto"


def _find_missing(
    X: Matrix | Lazy,
    where: str,
    missing: Missing,
    obs_names: pd.Index,
    names: NDArray[np.object_] | None,
) -> NDArray[np.bool_]:
    """(n_obs,) mask of the cells to leave out; an error that names the first bad value."""
    left_out = np.zeros(X.shape[0], dtype=bool)
    if missing == "error":
        drop = Advice("missing", "drop", "to leave these cells out")
        mean = Setting("missing", "mean", "to put the feature's mean in their place")
        check_finite(X, where, obs_names, names, Message("; {} or {}", drop, mean))
        return left_out
    # With "mean", a cell without any value would be the mean itself.
    left_out = rows_with_gaps(X, 1 if missing == "drop" else X.shape[1])
    if left_out.any():
        logger.info("    leaving out %d cells with NaN or inf", int(left_out.sum()))
    return left_out
