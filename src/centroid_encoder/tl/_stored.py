"""What is stored in an AnnData: its names, its parts, and how it is read.

Only this module spells the names and takes the parts apart (`_names` says which may be chosen):

- ``obsm``: `embedding_key`;
- ``obs``: `obs_key`, of a result or of `cv_key`; `keys_in` finds results by their columns;
- ``uns``: the key itself (`StoredMap`), `cv_key` (`StoredCrossValidation`), `colors_key`.

`read_result` gives the map together with the cells as they are now. What an earlier version did
not write has a default; what is damaged is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.quality import nearest_center
from centroid_encoder.errors import Call, InputError, MissingKeyError, Setting, check_name

if TYPE_CHECKING:
    from anndata import AnnData

Regions = Literal["voronoi", "decoder"]
Column = Literal["label", "confidence", "split", "novelty", "own"]

TRAIN, TEST, UNLABELED = SPLITS = ("train", "test", "unlabeled")
"""Splits of cells that `tl.centroid_encoder` has read."""
QUERY = "query"
"""Split of cells that `tl.ingest` has sent through the map of others."""
UNASSIGNED = "unassigned"
"""Label of those of which the map is not sure enough."""
RULES = ("knn", "voronoi", "decoder", "input_knn")
"""Ways to tell the class of a cell. The last one, only in a cross-validation, is without a map."""


def embedding_key(key: str) -> str:
    """Name in ``obsm`` of the embedding of the result `key`."""
    return "X_ce" if key == "ce" else key


def obs_key(key: str, column: Column) -> str:
    """Name in ``obs`` of a column of the result `key`, or of the cross-validation `cv_key`."""
    return f"{key}_{column}"


def cv_key(key: str) -> str:
    """Name in ``uns`` of the cross-validation beside the result `key`."""
    return f"{key}_cv"


def colors_key(column: str) -> str:
    """Name in ``uns`` of the colours of a column of ``obs``, as scanpy has it."""
    return f"{column}_colors"


def keys_in(columns: Iterable[object]) -> list[str]:
    """Keys of the results that have a split and labels among these columns of ``obs``."""
    names = set(map(str, columns))
    ending = obs_key("", "split")
    keys = (name.removesuffix(ending) for name in sorted(names) if name.endswith(ending))
    return [key for key in keys if obs_key(key, "label") in names]


class Errors(dict[str, Any]):
    """Errors by name, such as ``"knn_error"``; NaN for what was not counted."""

    def __missing__(self, name: str) -> float:
        return np.nan


@dataclass(frozen=True)
class Stored:
    """What both kinds of results have."""

    params: Mapping[str, Any]
    """Arguments of the function that wrote it, but for those that were None."""
    classes: pd.Index

    @classmethod
    def _parts(cls, adata: AnnData, key: str, needed: str) -> dict[str, Any] | None:
        """Return the fields that are there; None for what is of another program."""
        stored = adata.uns.get(key)
        if not isinstance(stored, Mapping) or needed not in stored:
            return None
        params = stored.get("params")
        if not isinstance(params, Mapping) or "label_key" not in params:
            raise _damaged(key, "params with a label_key are missing")
        if "classes" not in stored:
            raise _damaged(key, "classes are missing")
        parts = {field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        # As plain values, whichever file they have been in.
        return parts | {"classes": pd.Index(np.asarray(stored["classes"]).tolist())}

    @property
    def label_key(self) -> str:
        """Column of ``obs`` with the classes."""
        return str(self.params["label_key"])

    def to_uns(self) -> dict[str, Any]:
        """Return what to write: without None, which not every AnnData can write."""
        uns = {name: value for name, value in vars(self).items() if value is not None}
        return uns | {"classes": np.asarray(self.classes.tolist())}


@dataclass(frozen=True)
class StoredMap(Stored):
    """``uns[key]``: a map and what is known of its training."""

    centers: NDArray[np.floating]
    """(M, m) what the Voronoi cells are about: means of the embedded training cells, or positions
    that the classes have been given."""
    history: pd.DataFrame | None = None
    """One row an epoch; None after `tl.ingest`."""
    quality: Mapping[str, Any] | None = None
    """``train`` and ``test``, see `errors`, and ``per_class``; None after `tl.ingest`."""
    model: Mapping[str, Any] | None = None
    """``config`` (JSON) and ``arrays`` of `CentroidEncoder.to_state`."""

    @classmethod
    def read(cls, adata: AnnData, key: str) -> Self | None:
        """Read what is stored under a key; None if that is no map.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        check_name(key, "key", "a result")
        parts = cls._parts(adata, key, "centers")
        if parts is None:
            return None
        centers, n_classes = np.asarray(parts["centers"]), len(parts["classes"])
        if centers.ndim != 2 or len(centers) != n_classes:
            raise _damaged(key, f"{n_classes} classes, centers of shape {centers.shape}")
        return cls(**parts | {"centers": centers})

    @property
    def ingested_from(self) -> str | None:
        """What the map was read from; None for cells that it was trained on."""
        origin = self.params.get("ingested_from")
        return None if origin is None else str(origin)

    @property
    def has_decoder(self) -> bool:
        """Whether a decoder decides; if not, a cell is of the class in whose Voronoi cell it is."""
        return self.model is None or "placement_targets" not in self.model.get("arrays", {})

    def errors(self, split: str) -> Errors:
        """Errors of the ``"train"`` or ``"test"`` cells, with their number ``n``."""
        counted = (self.quality or {}).get(split, {})
        return Errors({"n": 0, "at_chance": False, **counted})

    @property
    def per_class(self) -> pd.DataFrame:
        """(M, …) ``n_test``, ``test_knn_error`` and so on of each class.

        ``n_predicted`` is how many of all cells the model takes for the class, and ``n_in_cell``
        how many lie in its Voronoi cell: the same number without a decoder.
        """
        columns = [f"{split}_{rule}_error" for split in (TRAIN, TEST) for rule in RULES[:3]]
        table = (self.quality or {}).get("per_class")
        counts = ["n_train", "n_test", *columns, "n_predicted", "n_in_cell"]
        return _per_class(table, self.classes, counts)


CALIBRATION_ERRORS = (
    *("calibration_error", "uncalibrated_error"),
    *("calibration_error_low", "calibration_error_high"),
)
"""In ``quality``: after and before calibration, and the ends of the 95 % interval of the first."""


def calibration_interval(quality: Mapping[str, Any]) -> tuple[float, float] | None:
    """95 % interval of the calibration error; None where an earlier version stored none."""
    low, high = (float(quality.get(name, np.nan)) for name in CALIBRATION_ERRORS[2:])
    return (low, high) if np.isfinite(low) and np.isfinite(high) else None


@dataclass(frozen=True)
class PermutationTest:
    """What shuffled labels gave."""

    observed: float
    """Error with the real labels."""
    errors: NDArray[np.float64]
    """(n_permutations,) errors with shuffled ones."""
    p_value: float


@dataclass(frozen=True)
class StoredCrossValidation(Stored):
    """``uns[cv_key(key)]``: what `tl.cross_validate` found."""

    confusion: NDArray[np.int64]
    """(M, M) cells by their own class and the one they were taken for."""
    quality: Mapping[str, Any]
    """Number of cells ``n``; errors and their standard deviation over the folds, ``…_sd``."""
    per_class: pd.DataFrame
    """(M, …) ``n``, ``knn_error`` and so on of each class; ``n_predicted``, see `StoredMap`."""
    errors: pd.DataFrame | None = None
    """One row a fold."""
    warnings: tuple[str, ...] = ()
    """What makes it say less than it seems to, in the words of Python."""
    permutation: PermutationTest | None = None
    model: str | None = None
    """Parameters of the estimator, as JSON."""

    @classmethod
    def read(cls, adata: AnnData, key: str) -> Self | None:
        """Read the cross-validation beside the result `key`; None if there is none.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        check_name(key, "key", "a result")
        key = cv_key(key)
        parts = cls._parts(adata, key, "confusion")
        if parts is None:
            return None
        classes, confusion = parts["classes"], np.asarray(parts["confusion"], dtype=np.int64)
        if confusion.shape != 2 * (len(classes),):
            raise _damaged(key, f"{len(classes)} classes, confusion of shape {confusion.shape}")
        if (test := parts.get("permutation")) is not None:
            names = [field.name for field in fields(PermutationTest)]
            if not isinstance(test, Mapping) or not set(names) <= set(test):
                raise _damaged(key, f"permutation needs {', '.join(names)}")
            null = np.asarray(test["errors"], dtype=np.float64)
            test = PermutationTest(float(test["observed"]), null, float(test["p_value"]))
        columns = ["n", *(f"{rule}_error" for rule in RULES), "n_predicted"]
        read = {
            "confusion": confusion,
            "quality": Errors({"n": int(confusion.sum()), **parts.get("quality", {})}),
            "per_class": _per_class(parts.get("per_class"), classes, columns),
            "warnings": tuple(map(str, np.atleast_1d(parts.get("warnings", [])))),
            "permutation": test,
        }
        return cls(**parts | read)

    def to_uns(self) -> dict[str, Any]:
        """Return what to write into ``uns[cv_key(key)]``."""
        uns = super().to_uns() | {"warnings": np.array(self.warnings, dtype=str)}
        return uns if self.permutation is None else uns | {"permutation": vars(self.permutation)}


def _per_class(table: Any, classes: pd.Index, columns: list[str]) -> pd.DataFrame:
    table = pd.DataFrame({"class": [str(name) for name in classes]}) if table is None else table
    return table.reindex(columns=["class", *columns])


def _damaged(key: str, what: str) -> InputError:
    return InputError(f"uns[{key!r}] is damaged: {what}")


@dataclass(frozen=True)
class Result:
    """A stored map with the cells as they are now; classes are in the order of their categories."""

    key: str
    stored: StoredMap
    embedding: NDArray[np.floating]
    """(n_obs, m)."""
    codes: NDArray[np.intp]
    """(n_obs,) index into `classes`; −1 for unlabeled cells."""
    predicted: NDArray[np.intp]
    """(n_obs,) index into `classes` of the predicted class; −1 for cells left out."""
    split: pd.Series
    """``"train"``, ``"test"`` or ``"unlabeled"`` for every cell; after `ingest` ``"query"``."""
    categories: pd.Index
    """Categories of the label column as it is now: what ``uns[colors_key(label_key)]`` counts."""

    @property
    def label_key(self) -> str:
        """Column of ``obs`` with the classes."""
        return self.stored.label_key

    @property
    def classes(self) -> pd.Index:
        """The classes of the map."""
        return self.stored.classes

    @property
    def centers(self) -> NDArray[np.floating]:
        """(M, m) what the Voronoi cells are about."""
        return self.stored.centers

    @property
    def embedded(self) -> NDArray[np.bool_]:
        """(n_obs,) cells that have a place in the map."""
        embedded: NDArray[np.bool_] = ~np.isnan(self.embedding[:, 0])
        return embedded

    @property
    def is_query(self) -> bool:
        """Whether the cells were not trained on, but sent through the map of others."""
        return bool((self.split == QUERY).any())

    def found_in(self, regions: Regions) -> NDArray[np.intp]:
        """(n_obs,) class in whose region each cell lies; −1 for cells left out.

        Parameters
        ----------
        regions
            ``"voronoi"``: cells of the class centers; ``"decoder"``: what the model predicted.

        Raises
        ------
        ValueError
            If `regions` is neither.
        """
        if regions not in get_args(Regions):
            known = get_args(Regions)
            raise InputError("{} must be one of {}; got {!r}", Setting("regions"), known, regions)
        return self.predicted if regions == "decoder" else self._nearest

    def misplaced(self, regions: Regions) -> NDArray[np.bool_]:
        """(n_obs,) mask of the labeled cells that lie in another class's region."""
        found = self.found_in(regions)
        misplaced: NDArray[np.bool_] = (self.codes >= 0) & (found >= 0) & (found != self.codes)
        return misplaced

    @cached_property
    def _nearest(self) -> NDArray[np.intp]:
        there = self.embedded
        found = np.full(len(there), -1, dtype=np.intp)
        found[there] = nearest_center(self.embedding[there], self.centers, self.codes[there])
        return found


def read_result(adata: AnnData, key: str) -> Result:
    """Read what `tl.centroid_encoder` or `tl.ingest` stored under `key`.

    Raises
    ------
    KeyError
        If there is no such result, or if a column that belongs to it is gone.
    ValueError
        If the label column holds other classes than those of the result, or if the result is
        damaged.
    """
    stored, obsm_key = StoredMap.read(adata, key), embedding_key(key)
    if stored is None or obsm_key not in adata.obsm:
        raise no_result(key)
    label_key, classes, part = stored.label_key, stored.classes, f"a part of the result {key!r}"
    labels = stored_column(adata, label_key, "the labels this embedding was made with")
    split = stored_column(adata, obs_key(key, "split"), part)
    found = stored_column(adata, obs_key(key, "label"), part)
    embedding = np.asarray(adata.obsm[obsm_key])
    if embedding.ndim != 2 or embedding.shape[1] != stored.centers.shape[1]:
        raise _damaged(
            key, f"centers of shape {stored.centers.shape}, obsm[{obsm_key!r}] of {embedding.shape}"
        )
    if label_key != obs_key(key, "label") and (split == QUERY).any():
        # Cells of two tables in one: those sent through the map have what it says of them.
        labels = labels.astype(object).where(split != QUERY, found)
    labeled = split.isin([TRAIN, TEST, QUERY])
    codes = np.where(labeled, classes.get_indexer(labels.astype(object)), -1)
    unassigned = (split == QUERY) & (labels.isna() | (labels == UNASSIGNED))
    check_classes(labels, labeled & (codes < 0) & ~unassigned, label_key, "centroid_encoder")
    return Result(
        key=key,
        stored=stored,
        embedding=embedding,
        codes=codes,
        predicted=np.append(classes.get_indexer(found.cat.categories), -1)[found.cat.codes],
        split=split,
        categories=_categories(adata.obs[label_key], stored),
    )


def read_map(adata: AnnData, key: str) -> StoredMap:
    """Read a map that others can be sent through; a KeyError says that there is none."""
    stored = StoredMap.read(adata, key)
    if stored is None or stored.model is None:
        text = "uns has no map {!r}; run {} first, or name the key it was stored under"
        raise MissingKeyError(text, key, Call("tl.centroid_encoder"))
    return stored


def stored_column(adata: AnnData, column: str, what: str) -> pd.Series:
    """Return a column of ``obs`` that belongs to a result; a KeyError says what is gone."""
    if column not in adata.obs:
        raise MissingKeyError("obs[{!r}], {}, is gone", column, what)
    return adata.obs[column]


def no_result(key: str) -> MissingKeyError:
    """Return the error that there is no map under a key."""
    call = Call("tl.centroid_encoder", (Setting("label_key"),))
    return MissingKeyError("no result {!r}; run {} first", key, call)


def check_classes(
    labels: pd.Series, new: pd.Series | NDArray[np.bool_], label_key: str, function: str
) -> None:
    """Raise an InputError if there are labels which were not there when `function` was called."""
    names = labels[new].unique()
    if len(names):
        since = {"centroid_encoder": "the embedding was made"}.get(function, "the cross-validation")
        unknown, call = ", ".join(map(repr, names[:5])), Call(f"tl.{function}")
        text = (
            "obs[{!r}] has changed since {}: {} was not among its classes. Run {} again, or "
            "restore the labels"
        )
        raise InputError(text, label_key, since, unknown, call)


def check_trained(adata: AnnData, key: str) -> None:
    """Raise a ValueError for cells that `ingest` has labeled: nothing says which are right."""
    stored = StoredMap.read(adata, key)
    if stored is not None and stored.ingested_from is not None:
        raise InputError(
            "the result {!r} is that of {}: these cells went through the map of {}, and nothing "
            "tells which labels are right. Draw the reference, or {} for where the cells lie",
            key,
            Call("tl.ingest"),
            stored.ingested_from,
            Call("pl.voronoi"),
        )


def label_categories(column: pd.Series) -> pd.Index:
    """Categories of a label column, or those it would have if it were categorical."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.categories
    values = column.dropna()
    if pd.api.types.is_float_dtype(values.dtype) and (values % 1 == 0).all():
        # Integers, of which NaN has made floats.
        values = values.astype(np.int64)
    return values.astype("category").cat.categories


def _categories(labels: pd.Series, stored: StoredMap) -> pd.Index:
    found = label_categories(labels)
    if isinstance(labels.dtype, pd.CategoricalDtype):
        return found
    # In a selection of cells some may be missing, and `uns` counts them nevertheless.
    unlabeled = stored.params.get("unlabeled_category")
    rest = [] if unlabeled is None else [unlabeled]
    return pd.Categorical([*found.tolist(), *stored.classes.tolist(), *rest]).categories
