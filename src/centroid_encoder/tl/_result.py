"""The results in an AnnData: the stored values, and functions that read them.

`anndata.concat` can put the cells of several results into one table, and joins what is under one
key of ``uns``. The column ``…_map`` has the id of the result of each cell, and ``parts`` of ``uns``
names what belongs to the result, so that the first one can be read.

Classes are stored sorted, as in the map. `read_result` and `StoredCrossValidation.read` return them
in the order of the categories of the label column, the order of figures and tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar, Literal, Self, TypeGuard

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.core.arrays import Codes, Floats, Mask
from centroid_encoder.core.quality import nearest_center
from centroid_encoder.errors import InputError, MissingKeyError, check, check_name, issue_warning
from centroid_encoder.tables import (
    Column,
    colors_key,
    cv_key,
    embedding_key,
    keys_in,
    obs_key,
    plain_key,
)
from centroid_encoder.tl._cells import Source
from centroid_encoder.tl._check import check_choice, check_read

Regions = Literal["voronoi", "decoder"]
SELECTIONS = "ce_selections"
"""Key of ``uns`` with how each boolean column of a selection was made."""
CONCATENATED = 'if ad.concat made this table, it left a part of the result: pass uns_merge="first"'

TRAIN, TEST, UNLABELED, UNUSED = SPLITS = ("train", "test", "unlabeled", "unused")
"""Splits of the cells of `tl.centroid_encoder`. Unused cells have a label, but were neither trained
on nor held out."""
BY_GROUP = "by_group"
"""Entry of ``quality`` with the errors of all cells that were judged by networks that have seen no
cell of their group."""
QUERY = "query"
"""Split of the cells of `tl.ingest`."""
UNASSIGNED = "unassigned"
"""Label of cells beyond a threshold of `tl.ingest`."""
MAP_COLUMNS: tuple[Column, ...] = ("label", "split", "confidence", "novelty", "map")
CV_COLUMNS: tuple[Column, ...] = ("label", "judged", "confidence", "own", "suspect", "doubt", "map")
"""Columns of ``obs`` that the result of a map has, and those of a cross-validation."""
REPEATED = "n_repeated"
"""Entry of ``quality`` with the number of held-out cells whose values a training cell has."""
LARGEST = "largest_class"
"""Rule that predicts the largest of the judged classes in the training."""
NO_BETTER = "no_better_than_largest_class"
"""Whether the predictions may be no better than those of this rule."""
CALIBRATION_ERRORS = (
    *("calibration_error", "uncalibrated_error"),
    *("calibration_error_low", "calibration_error_high"),
)
"""Errors after and before calibration, and the ends of the 95 % interval of the first."""
COLUMN_TAKEN = (
    "obs[{!r}] exists already and is no result; choose another key_added, or rename that column "
    "first"
)


def panel_column(key: str, size: int) -> str:
    """Name in ``var`` of the column with the feature panel of a size."""
    return f"{key}_{size}"


def color_predictions(adata: AnnData, label_key: str) -> None:
    """Give predicted classes, and those of maps, the colours of the label column, if it has some.

    A map keeps the colours of its classes that a selection of the cells lacks.
    """
    names = label_categories(adata.obs[label_key]) if label_key in adata.obs else ()
    colors = dict(zip(names, adata.uns.get(colors_key(label_key), ()), strict=False))
    for key, stored in list(adata.uns.items()):
        column, params = obs_key(key, "label"), isinstance(stored, Mapping) and stored.get("params")
        if not params or params.get("label_key") != label_key:
            continue
        if StoredMap.is_kind_of(stored):
            classes = np.asarray(stored["classes"]).tolist()
            of_map = dict(zip(classes, stored.get("colors", ()), strict=False)) | colors
            if all(name in of_map for name in classes):
                adata.uns[key] = {**stored, "colors": np.array([of_map[x] for x in classes])}
        if column != label_key:
            names = label_categories(adata.obs[column]) if column in adata.obs else ()
            if colors and len(names) and all(name in colors for name in names):
                adata.uns[colors_key(column)] = [colors[name] for name in names]


@dataclass(frozen=True)
class Stored:
    """An entry of ``uns``: the attributes are its parts, without those that are None.

    The functions of `tl` that write it describe them.
    """

    params: Mapping[str, Any]
    """Arguments of the function that wrote it, except those that were None."""
    classes: pd.Index
    id: str | None = field(default=None, kw_only=True)
    """Entry of the column ``…_map`` of its cells, see `id_of`."""
    MARK: ClassVar[str]
    """A part that only results of this kind have."""
    NAME: ClassVar[Any] = staticmethod(plain_key)
    """Function that returns the name in ``uns`` for a key."""

    @classmethod
    def is_kind_of(cls, stored: Any) -> TypeGuard[Mapping[str, Any]]:
        """Return whether an entry of ``uns`` is a result of this kind, which may be damaged."""
        return isinstance(stored, Mapping) and cls.MARK in stored

    @classmethod
    def read(cls, adata: AnnData, key: str) -> Self | None:
        """Return the result `key` of this kind, or None if there is none.

        An InputError is raised if it is damaged.
        """
        check_name(key, "key", "a result")
        check_read(adata)
        name = cls.NAME(key)
        stored = adata.uns.get(name)
        if not cls.is_kind_of(stored):
            return None
        try:
            if "parts" in stored:
                stored = _pruned(stored, set(np.asarray(stored["parts"]).tolist()))
            stored["params"]["label_key"]
            parts = {
                part.name: stored[part.name] if part.default is MISSING else stored.get(part.name)
                for part in fields(cls)
            }
            # The type of the classes after reading depends on the file format.
            parts["classes"] = pd.Index(np.asarray(stored["classes"]).tolist())
            return cls(**cls._checked(parts, adata))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            text = f"{error} is missing; {CONCATENATED}" if isinstance(error, KeyError) else error
            raise InputError(f"uns[{name!r}] is damaged: {text}") from error

    @classmethod
    def _checked(cls, parts: dict[str, Any], adata: AnnData) -> dict[str, Any]:
        """Return the parts as attributes; any error means that they are damaged."""
        return parts

    @property
    def label_key(self) -> str:
        """Column of ``obs`` with the classes."""
        return str(self.params["label_key"])

    def to_uns(self) -> dict[str, Any]:
        """Return the entries to write into ``uns``."""
        uns = {name: value for name, value in vars(self).items() if value is not None}
        uns["classes"] = np.asarray(self.classes.tolist())
        # The colours may follow later.
        return uns | {"parts": np.array([*_paths(uns), "colors"])}


@dataclass(frozen=True)
class StoredMap(Stored):
    """``uns[key]`` of `tl.centroid_encoder` and `tl.ingest`; the classes are sorted.

    Only a training has a history and a quality, and only `tl.ingest` compares cells or has parents.
    """

    MARK = "centers"
    centers: Floats
    history: pd.DataFrame | None = None
    quality: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None
    """``config`` (JSON) and ``arrays`` of `CentroidEncoder.to_state`."""
    compared: pd.DataFrame | None = None
    parents: pd.DataFrame | None = None
    colors: NDArray[np.str_] | None = None

    @classmethod
    def _checked(cls, parts: dict[str, Any], adata: AnnData) -> dict[str, Any]:
        classes, centers = parts["classes"], np.asarray(parts["centers"])
        if centers.ndim != 2 or len(centers) != len(classes):
            raise ValueError(f"{len(classes)} classes, centers of shape {centers.shape}")
        colors = parts["colors"] if np.shape(parts["colors"]) == (len(classes),) else None
        return parts | {"centers": centers, "colors": colors}

    @property
    def ingested_from(self) -> str | None:
        """Name of the reference after `tl.ingest`; None for the cells of the training."""
        return None if self.history is not None else self.params.get("ingested_from")

    @property
    def source(self) -> Source:
        """Where the values of the training cells are."""
        prefix = "" if self.ingested_from is None else "reference_"
        names = ("use_rep", "layer", "use_raw")
        use_rep, layer, use_raw = (self.params.get(f"{prefix}{name}") for name in names)
        return Source(use_rep, layer, bool(use_raw))

    @property
    def has_decoder(self) -> bool:
        """Whether a decoder predicts; otherwise a cell has the class of its Voronoi cell."""
        return self.model is None or "placement_targets" not in self.model.get("arrays", {})

    @property
    def held_out(self) -> str:
        """Entry of ``quality`` with the errors to expect of new cells or, if known, of new groups.

        A group that was held out is one of few. `BY_GROUP` counts all of them.
        """
        return BY_GROUP if BY_GROUP in (self.quality or {}) else TEST

    def errors(self, split: str) -> Mapping[str, Any]:
        """Errors of the cells of a split and their number ``n``; NaN if unknown."""
        counted = (self.quality or {}).get(split, {"n": 0, NO_BETTER: False})
        return defaultdict(lambda: np.nan, counted)


@dataclass(frozen=True, kw_only=True)
class StoredCrossValidation(Stored):
    """``uns[cv_key(key)]`` of `tl.cross_validate`; the classes are in the order of categories."""

    MARK, NAME = "confusion", staticmethod(cv_key)
    confusion: NDArray[np.int64]
    quality: Mapping[str, Any]
    per_class: pd.DataFrame
    errors: pd.DataFrame
    warnings: NDArray[np.str_]
    permutation: Mapping[str, Any] | None = None
    model: str
    levels: pd.DataFrame | None = None
    reason: str
    """One of those of `suspects`."""

    @classmethod
    def _checked(cls, parts: dict[str, Any], adata: AnnData) -> dict[str, Any]:
        classes, confusion = parts["classes"], np.asarray(parts["confusion"], dtype=np.int64)
        if confusion.shape != 2 * (len(classes),):
            raise ValueError(f"{len(classes)} classes, confusion of shape {confusion.shape}")
        if (test := parts["permutation"]) is not None:
            parts["permutation"] = {x: test[x] for x in ("observed", "shuffled", "p_value")}
        order = _category_order(adata, str(parts["params"]["label_key"]), classes)
        return parts | {
            "classes": classes[order],
            "confusion": confusion[np.ix_(order, order)],
            "per_class": parts["per_class"].iloc[order].reset_index(drop=True),
            "reason": str(parts["reason"]),
            "warnings": np.array([*parts["warnings"]], dtype=str),
        }


@dataclass(frozen=True)
class StoredPanel(Stored):
    """``uns[key]`` of `tl.feature_panel`."""

    MARK = "chosen_from"
    errors: pd.DataFrame
    features: pd.DataFrame
    chosen_from: NDArray[np.object_]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the panels, sorted; the last row of the errors is that of all features."""
        return [int(size) for size in self.errors["size"].unique()[:-1]]

    def of_judge(self, judge: str) -> pd.DataFrame:
        """Return the errors of a judge: a row for each size, and one for all features."""
        return self.errors[self.errors["judge"] == judge].reset_index(drop=True)


def panel_of(adata: AnnData, names: NDArray[np.object_]) -> tuple[StoredPanel, int] | None:
    """Return the stored panels and the size of the panel with these features, if there is one."""
    size, parts = len(names), {part.name for part in fields(StoredPanel)} - {"id"}
    # `anndata.concat` may leave some parts of a panel.
    keys = [key for key, x in adata.uns.items() if isinstance(x, Mapping) and parts <= x.keys()]
    for panel in filter(None, (StoredPanel.read(adata, str(key)) for key in keys)):
        rank = panel.features["rank"]
        if size in panel.sizes and rank.reindex(names).between(1, size).all():
            return panel, size
    return None


def fold_words(validated: Stored) -> str:
    """Describe the folds: ``"5 folds × 2 repeats"``, ``"5 folds by donor"``."""
    params = validated.params
    repeats = f" × {params['n_repeats']} repeats" if is_repeated(validated) else ""
    groups = f" by {params['group_key']}" if "group_key" in params else ""
    return f"{params['n_folds']} folds{repeats}{groups}"


def is_repeated(validated: Stored) -> bool:
    """Return whether cells were divided into folds more than once.

    Errors are then means over the repeats, those of one map. The predicted classes and the
    confidences follow from mean probabilities, and err less often.
    """
    return bool(validated.params.get("n_repeats", 1) > 1)


def out_of_fold_words(validated: StoredCrossValidation) -> str:
    """Describe the predicted classes, for a title."""
    together = " of all repeats" if is_repeated(validated) else ""
    return f"out-of-fold labels{together}, {fold_words(validated)}"


def _paths(entries: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yield the names of all entries, such as ``params/label_key``."""
    for name, value in entries.items():
        yield within + name
        if isinstance(value, Mapping):
            yield from _paths(value, f"{within}{name}/")


def _pruned(entries: Mapping[str, Any], paths: set[str], within: str = "") -> dict[str, Any]:
    """Return the entries with these names, without those that a concatenation has added."""
    return {
        name: _pruned(value, paths, f"{within}{name}/") if isinstance(value, Mapping) else value
        for name, value in entries.items()
        if within + name in paths
    }


def id_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the id of a result: a hash of its arrays without those of novelty."""
    found = blake2b(digest_size=6)
    for name, array in sorted(arrays.items()):
        found.update(b"" if name.startswith("novelty_") else name.encode() + array.tobytes())
    return found.hexdigest()


def own_cells(adata: AnnData, name: str, stored: Stored) -> Mask:
    """(n_obs,) mask of the cells of the result `stored` in ``uns[name]``.

    A warning has the number of the others; an InputError is raised if all are others. Cells without
    an id are counted as cells of the result.
    """
    ids = adata.obs.get(obs_key(name, "map"))
    if ids is None or stored.id is None:
        return np.ones(adata.n_obs, dtype=bool)
    is_other = (ids.notna() & ~ids.isin([stored.id])).to_numpy()
    if n := int(is_other.sum()):
        text = f"{n:,} of {len(ids):,} cells belong to another result than that in uns[{name!r}]"
        if n == len(ids):
            raise InputError(f"{text}; take the table in which that result was computed")
        issue_warning(f"{text}, and are left out", stacklevel=4)
    return np.asarray(~is_other)


@dataclass(frozen=True)
class Result:
    """A stored map and the cells of the AnnData; classes are in the order of their categories."""

    key: str
    stored: StoredMap
    """The map as it is stored; its classes are sorted."""
    classes: pd.Index
    centers: Floats
    """(M, m) centers of the Voronoi cells."""
    embedding: Floats
    """(n_obs, m); NaN for cells left out, also by `own_cells`."""
    codes: Codes
    """(n_obs,) index into `classes`; −1 for unlabeled cells."""
    predicted: Codes
    """(n_obs,) index into `classes` of the predicted class; −1 for cells left out or not judged."""
    split: pd.Series
    """One of `SPLITS` for every cell; after `ingest` ``"query"``; missing for cells left out."""
    unassigned: Mask
    """(n_obs,) mask of the ingested cells that got no class, and no parent of classes."""
    categories: pd.Index
    """Categories of the label column, to which the colours in ``uns`` belong."""

    @property
    def label_key(self) -> str:
        """Column of ``obs`` with the classes."""
        return self.stored.label_key

    @property
    def embedded(self) -> Mask:
        """(n_obs,) mask of the cells that have a place in the map."""
        return np.asarray(~np.isnan(self.embedding[:, 0]))

    @property
    def is_query(self) -> bool:
        """Whether `tl.ingest` placed any of the cells."""
        return bool((self.split == QUERY).any())

    def found_in(self, regions: Regions) -> Codes:
        """(n_obs,) index of the class in whose region each cell lies; −1 if it was not judged.

        For ``"decoder"``, it is the predicted class; an InputError is raised without a decoder.
        """
        self.check_regions(regions)
        return self.predicted if regions == "decoder" else self._nearest

    def check_regions(self, regions: Regions | None) -> None:
        """Raise an InputError if the map has no such regions."""
        if regions is not None:
            check_choice("regions", regions, Regions)
        text = 'this map has no decoder: its regions are the Voronoi cells; pass regions="voronoi"'
        check(regions != "decoder" or self.stored.has_decoder, text, "regions")

    @property
    def decided_by(self) -> Regions:
        """Kind of the regions whose class is the predicted one."""
        return "decoder" if self.stored.has_decoder else "voronoi"

    @property
    def unjudged(self) -> Mask:
        """(n_obs,) mask of cells with a place but without a prediction."""
        is_train = (self.split == TRAIN).to_numpy()
        return np.asarray(self.embedded & (self.predicted < 0) & is_train)

    def misplaced(self, regions: Regions) -> Mask:
        """(n_obs,) mask of the labeled cells that lie in another class's region."""
        found = self.found_in(regions)
        return np.asarray((self.codes >= 0) & (found >= 0) & (found != self.codes))

    @cached_property
    def _nearest(self) -> Codes:
        placed, found = self.embedded & ~self.unjudged, np.full(len(self.codes), -1, np.intp)
        found[placed] = nearest_center(self.embedding[placed], self.centers, self.codes[placed])
        return found


def read_result(
    adata: AnnData, key: str, *, changed: bool = False, trained: bool = False
) -> Result:
    """Read the result of `tl.centroid_encoder` or `tl.ingest` under `key`.

    A KeyError is raised if a part of it is missing, an InputError if it is damaged, or if the label
    column has other classes than the result; with `changed`, such labels count as missing. With
    `trained`, it is raised if all cells were ingested, since their labels are predictions.
    """
    stored, part = read_map(adata, key), f"a part of the result {key!r}"
    key, label_key, obsm_key = plain_key(key), stored.label_key, embedding_key(key)
    is_there = obsm_key in adata.obsm
    check(is_there, f"obsm[{obsm_key!r}], {part}, is gone", kind=MissingKeyError)
    labels = stored_column(adata, label_key, "the labels this embedding was made with")
    ours = own_cells(adata, key, stored)
    split = stored_column(adata, obs_key(key, "split"), part).where(ours)
    found = stored_column(adata, obs_key(key, "label"), part).where(ours)
    if label_key == obs_key(key, "label") and split.isin(SPLITS).any():
        text = f"uns[{key!r}] is that of ingested cells, but some cells are those of the training"
        advice = 'concatenate these first: ad.concat([reference, query], uns_merge="first")'
        raise InputError(f"{text}; {advice}")
    if trained and split.isin([QUERY]).any() and not split.isin(SPLITS).any():
        known, others = "the true ones are unknown", ""
        if (compared := stored.params.get("compared_with")) is not None:
            known = f"this function takes no others, such as those of obs[{compared!r}]"
            others = f", and ce.tl.misplaced to list those whose {compared!r} differs"
        raise InputError(
            f"the result {key!r} is that of ce.tl.ingest: the labels of these cells are those that "
            f"the map of the reference predicts, and {known}. Draw the reference, or call "
            f"ce.pl.voronoi to see where the cells lie{others}"
        )
    embedding = np.asarray(adata.obsm[obsm_key])
    if embedding.ndim != 2 or embedding.shape[1] != stored.centers.shape[1]:
        shapes = f"centers of shape {stored.centers.shape}, obsm[{obsm_key!r}] of {embedding.shape}"
        raise InputError(f"uns[{key!r}] is damaged: {shapes}")
    if not ours.all():
        embedding = np.where(ours[:, None], embedding, np.nan)
    order = _category_order(adata, label_key, stored.classes)
    classes, query = stored.classes[order], split == QUERY
    if label_key != obs_key(key, "label") and query.any():
        # If a table holds training cells and ingested cells, the latter have their predicted class.
        labels = labels.astype(object).where(~query, found)
    labeled = split.isin([TRAIN, TEST, UNUSED, QUERY])
    codes = np.where(labeled, classes.get_indexer(labels.astype(object)), -1)
    # Labels may have been removed since the training.
    no_label = labels.isna() | (labels == stored.params.get("unlabeled_category"))
    # The labels of ingested cells are predictions, and may be parents of classes.
    known = (codes >= 0) | no_label | query
    check_classes(labels[labeled & ~known & (not changed)], label_key, "centroid_encoder")
    predicted = np.append(classes.get_indexer(found.cat.categories), -1)[found.cat.codes]
    unassigned = query & (found.isna() | (found == UNASSIGNED))
    categories = label_categories(adata.obs[label_key])
    if not isinstance(adata.obs[label_key].dtype, pd.CategoricalDtype):
        # A subset of the cells may lack classes whose colours are in `uns`.
        unlabeled = stored.params.get("unlabeled_category", classes[0])
        categories = pd.Categorical([*categories, *classes, unlabeled]).categories
    of_cells = embedding, codes, predicted, split, unassigned.to_numpy()
    return Result(key, stored, classes, stored.centers[order], *of_cells, categories)


def read_map(adata: AnnData, key: str) -> StoredMap:
    """Read a map; a KeyError is raised if there is none."""
    if (stored := StoredMap.read(adata, key)) is None:
        if key in keys_in(adata.obs):
            lacking = f"obs has columns of a map {key!r}, but uns[{key!r}] lacks it"
            raise MissingKeyError(f"{lacking}; {CONCATENATED}")
        raise MissingKeyError(
            f"no result {key!r}; run ce.tl.centroid_encoder(adata, label_key) first, or pass the "
            "key of the map"
        )
    return stored


def stored_column(adata: AnnData, column: str, what: str) -> pd.Series:
    """Return a column of ``obs``; raise a KeyError that calls it `what` if it is missing."""
    check(column in adata.obs, f"obs[{column!r}], {what}, is gone", kind=MissingKeyError)
    return adata.obs[column]


def check_free(
    adata: AnnData, key: str, *, is_own: bool | None = None, levels: bool = False
) -> None:
    """Raise an InputError if something else is stored under the names of the result `key`.

    `is_own` is whether ``uns[key]`` is an earlier result of the same function, which may be
    replaced. By default that is any map, and everything under the default key of a map; its columns
    in ``obs`` are then checked as well, that of the `levels` of parents if they are to be written.
    """
    check_name(key, "key", "a result")
    if is_own is None:
        check_columns_free(adata, key, MAP_COLUMNS)
        level, split = obs_key(key, "level"), adata.obs.get(obs_key(key, "split"))
        # Only `tl.ingest` writes levels; each later result under this key deletes them.
        if (levels or key in adata.uns) and (split is None or not (split == QUERY).any()):
            is_free = level not in adata.obs or adata.obs[level].isna().all()
            check(is_free, COLUMN_TAKEN.format(level), "key_added")
        is_own = key == "ce" or StoredMap.read(adata, key) is not None
    for slot, name in (("uns", key), ("obsm", embedding_key(key))):
        text = f"{slot}[{name!r}] exists already and is another result; choose another key_added,"
        fits = is_own or name not in getattr(adata, slot)
        check(fits, f"{text} or delete it first", "key_added")


def check_columns_free(adata: AnnData, name: str, columns: Sequence[Column]) -> None:
    """Raise an InputError if ``obs`` has some of the columns of a result, but no such result.

    `name` is that in ``uns``, from which `anndata.concat` may have removed the result; then the
    first two of its columns are still there.
    """
    there = [obs_key(name, column) in adata.obs for column in columns]
    fits = name in adata.uns or all(there[:2]) or not any(there)
    found = obs_key(name, columns[int(np.argmax(there))])
    check(fits, COLUMN_TAKEN.format(found), "key_added")


def label_categories(column: pd.Series) -> pd.Index:
    """Categories of a label column, or those of the column converted to a categorical one."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.categories
    values = column.dropna()
    if pd.api.types.is_float_dtype(values.dtype) and (values % 1 == 0).all():
        # A column of integers with NaN holds floats.
        values = values.astype(np.int64)
    return values.astype("category").cat.categories


def _category_order(adata: AnnData, label_key: str, classes: pd.Index) -> Codes:
    """(M,) indices that put sorted classes into the order of the categories.

    A class without a category keeps its place.
    """
    column, order = adata.obs.get(label_key), np.arange(len(classes))
    if column is not None and isinstance(column.dtype, pd.CategoricalDtype):
        place = column.cat.categories.get_indexer(classes)
        there = np.flatnonzero(place >= 0)
        order[there] = there[np.argsort(place[there])]
    return order


def check_classes(unknown: pd.Series, label_key: str, function: str) -> None:
    """Raise an InputError if there are `unknown` labels: none of the classes of a result."""
    if len(unknown):
        since = "embedding was made" if function == "centroid_encoder" else "cross-validation"
        names = ", ".join(map(repr, unknown.unique()[:5]))
        raise InputError(
            f"obs[{label_key!r}] has changed since the {since}: {names} was not among its classes. "
            f"Run ce.tl.{function} again, or restore the labels"
        )
