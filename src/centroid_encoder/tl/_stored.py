"""What `centroid_encoder` stored in an AnnData, read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.quality import nearest_center

if TYPE_CHECKING:
    from anndata import AnnData


Regions = Literal["voronoi", "decoder"]

QUERY = "query"
"""Split of cells that `tl.ingest` has sent through the map of others."""
UNASSIGNED = "unassigned"
"""Label of those of which the map is not sure enough."""


@dataclass(frozen=True)
class Result:
    """An embedding that `tl.centroid_encoder` stored, in the order of the label's categories."""

    key: str
    label_key: str
    embedding: NDArray[np.floating]
    """(n_obs, m)."""
    codes: NDArray[np.intp]
    """(n_obs,) index into `classes`; −1 for unlabeled cells."""
    predicted: NDArray[np.intp]
    """(n_obs,) index into `classes` of the predicted class; −1 for cells left out."""
    split: pd.Series
    """``"train"``, ``"test"`` or ``"unlabeled"`` for every cell; after `ingest` ``"query"``."""
    classes: pd.Index
    categories: pd.Index
    """Categories of the label column as it is now: what ``uns[f"{label_key}_colors"]`` counts."""
    centers: NDArray[np.floating]
    """(M, m) means of the embedded training cells."""
    stored: Mapping[str, Any]
    """``uns[key]``."""

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
            raise ValueError(f"regions must be one of {get_args(Regions)}; got {regions!r}")
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


def embedding_key(key: str) -> str:
    """Where in ``obsm`` the embedding of the result `key` is."""
    return "X_ce" if key == "ce" else key


def read_result(adata: AnnData, key: str) -> Result:
    """Read what `tl.centroid_encoder` stored under `key`.

    Raises
    ------
    KeyError
        If there is no such result, or if a column that belongs to it is gone.
    ValueError
        If the label column holds other classes than those of the result.
    """
    obsm_key = embedding_key(key)
    stored = adata.uns.get(key)
    if not isinstance(stored, Mapping) or "centers" not in stored or obsm_key not in adata.obsm:
        raise KeyError(f"no result {key!r}; run ce.tl.centroid_encoder(adata, label_key) first")
    label_key = str(stored["params"]["label_key"])
    if label_key not in adata.obs:
        raise KeyError(f"obs[{label_key!r}], the labels this embedding was made with, is gone")
    for column in (f"{key}_split", f"{key}_label"):
        if column not in adata.obs:
            raise KeyError(f"obs[{column!r}], a part of the result {key!r}, is gone")
    labels, split = adata.obs[label_key], adata.obs[f"{key}_split"]
    classes = pd.Index(np.asarray(stored["classes"]).tolist())
    categories = _categories(labels, classes, stored["params"].get("unlabeled_category"))
    if label_key != f"{key}_label" and (split == QUERY).any():
        # Cells of two tables in one: those sent through the map have what it says of them.
        labels = labels.astype(object).where(split != QUERY, adata.obs[f"{key}_label"])
    labeled = split.isin(["train", "test", QUERY])
    codes = np.where(labeled, classes.get_indexer(labels.astype(object)), -1)
    unassigned = (split == QUERY) & (labels.isna() | (labels == UNASSIGNED))
    unknown = labels[labeled & (codes < 0) & ~unassigned].unique()
    if len(unknown):
        raise ValueError(
            f"obs[{label_key!r}] has changed since the embedding was made: "
            f"{', '.join(map(repr, unknown[:5]))} was not among its classes. Run "
            "ce.tl.centroid_encoder again, or restore the labels"
        )
    predicted = adata.obs[f"{key}_label"].cat
    return Result(
        key=key,
        label_key=label_key,
        embedding=np.asarray(adata.obsm[obsm_key]),
        codes=codes,
        predicted=np.append(classes.get_indexer(predicted.categories), -1)[predicted.codes],
        split=split,
        classes=classes,
        categories=categories,
        centers=np.asarray(stored["centers"]),
        stored=stored,
    )


def check_trained(adata: AnnData, key: str) -> None:
    """Raise a ValueError for cells that `ingest` has labeled: nothing says which are right."""
    stored = adata.uns.get(key)
    if isinstance(stored, Mapping) and "ingested_from" in stored.get("params", {}):
        raise ValueError(
            f"the result {key!r} is that of ce.tl.ingest: these cells went through the map of "
            f"{stored['params']['ingested_from']}, and nothing tells which labels are right. Draw "
            "the reference, or ce.pl.voronoi for where the cells lie"
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


def _categories(labels: pd.Series, classes: pd.Index, unlabeled: object) -> pd.Index:
    found = label_categories(labels)
    if isinstance(labels.dtype, pd.CategoricalDtype):
        return found
    # In a selection of cells some may be missing, and `uns` counts them nevertheless.
    rest = [] if unlabeled is None else [unlabeled]
    return pd.Categorical([*found.tolist(), *classes.tolist(), *rest]).categories
