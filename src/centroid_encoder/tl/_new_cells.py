"""Cells that a map places: their features are found by name, and chunks of rows are placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from centroid_encoder.core import matrix
from centroid_encoder.errors import InputError, check
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._matrix import count_gaps, describe_gaps, in_memory
from centroid_encoder.tl._read import listed, read_matrix

Placed = NDArray[np.float32]
"""(n, m + 3) embedding of cells, index of the predicted class, confidence and novelty."""

BLOCKS = 64
"""Chunks of a dask array that are computed before the next check for Stop."""
MAX_MISSING = 0.2
"""Default share of the features that may be missing."""
ESTIMATE = 'pass missing="estimate" to estimate them from the other values of each cell'


@dataclass(frozen=True)
class Prepared:
    """Cells with finite values of the map's features."""

    x: Any
    unusable: NDArray[np.bool_]
    """(n,) mask of the cells that lack too many values."""
    rows: NDArray[np.intp]
    """Cells with estimated values."""
    draws: Iterator[NDArray[np.float64]]
    """Random values of `rows`, given the other values of these cells; they can be read once."""


@dataclass(frozen=True)
class NewCells:
    """Cells, and the map that places them."""

    X: Any
    obs_names: pd.Index
    where: str
    """Name of the matrix."""
    names: NDArray[np.object_] | None
    """Names of its columns."""
    model: CentroidEncoder
    index: NDArray[np.intp] | None
    """(d,) columns of the map's features, −1 for a missing one; None for all columns in order."""
    max_missing: float | None
    """Share of the features that a cell may lack; None if a gap is an error, and 0 if cells with
    gaps are left out."""

    def placed(self, X: Any, start: int = 0) -> Iterator[Placed]:
        """Place X, the rows of the matrix from `start` on, in chunks."""
        map_ = self.model.fitted_map
        for part in _chunks(X):
            cells = self.prepared(in_memory(X[part]), start + part.start)
            embedding, predicted, confidence = map_.decide(map_.judge(cells.x), cells.x.shape[0])
            if len(rows := cells.rows):
                embedding[rows], distances, of_draws = map_.judge_draws(cells.x[rows], cells.draws)
                predicted[rows] = own = distances.argmin(axis=1)
                confidence[rows] = of_draws[np.arange(len(rows)), own]
            found = np.column_stack([embedding, predicted, confidence, self.novelty(cells.x)])
            found[cells.unusable] = np.nan
            yield found.astype(np.float32)

    def have_values(self) -> NDArray[np.bool_]:
        """(n_obs,) mask of the cells that do not lack too many values; reads all of them."""
        parts = (self.prepared(in_memory(self.X[part])).unusable for part in _chunks(self.X))
        return ~np.concatenate([np.empty(0, dtype=bool), *parts])

    def novelty(self, x: Any) -> NDArray[np.floating]:
        """(n,) novelty of prepared cells; NaN if the map has none."""
        map_ = self.model.fitted_map
        if map_.novelty is None:
            return np.full(x.shape[0], np.nan)
        return map_.novelty.quantiles(x, map_.standardizer)

    def probabilities(self, cells: Prepared) -> tuple[NDArray[np.floating], NDArray[np.intp]]:
        """(n, M) probabilities of the classes of the model, and (n,) predicted classes."""
        map_ = self.model.fitted_map
        distances = np.concatenate([found for _, found in map_.judge(cells.x)])
        probabilities = map_.calibration.probabilities(distances)
        if len(rows := cells.rows):
            found = map_.judge_draws(cells.x[rows], cells.draws)
            distances[rows], probabilities[rows] = found[1:]
        return probabilities, distances.argmin(axis=1)

    def prepared(self, x: Any, start: int = 0) -> Prepared:
        """Find the map's features in rows of the matrix, from `start` on, and fill the gaps."""
        names = getattr(self.model, "feature_names_in_", None)
        found, absent = x, np.empty(0, dtype=np.intp)
        if self.index is not None:
            there, absent = self.index >= 0, np.flatnonzero(self.index < 0)
            found, names = x[:, self.index[there]], None if names is None else names[there]
            x = x[:, np.maximum(self.index, 0)] if len(absent) else found
        n_gaps = count_gaps(found)
        if self.max_missing is None and n_gaps.any():
            stop = start + len(n_gaps)
            where = f"{self.where} (cells {start:,} to {stop - 1:,})"
            text = describe_gaps(found, n_gaps, where, self.obs_names[start:stop], names)
            raise InputError(f"{text}; {ESTIMATE}", parameter="missing")
        if not n_gaps.any() and not len(absent):
            return Prepared(x, np.zeros(x.shape[0], dtype=bool), np.arange(0), iter(()))
        dense = np.array(x if isinstance(x, np.ndarray) else x.toarray(), dtype=np.float64)
        gaps = ~np.isfinite(dense)
        gaps[:, absent] = True
        standardizer, novelty = self.model.fitted_map.standardizer, self.model.fitted_map.novelty
        share = gaps[:, self.model.feature_weights_ > 0].mean(axis=1)
        allowed = 1 if self.max_missing is None else self.max_missing
        unusable = (share > allowed) | (share == 1)
        np.copyto(dense, standardizer.mean, where=gaps)
        if novelty is None:
            return Prepared(dense, unusable, np.arange(0), iter(()))
        rows = np.flatnonzero(gaps.any(axis=1) & ~unusable)
        draws = novelty.estimates(dense[rows], gaps[rows], standardizer)
        dense[rows] = next(draws)
        return Prepared(dense, unusable, rows, draws)


def read_new_cells(
    adata: AnnData, model: CentroidEncoder, source: Mapping[str, Any], max_missing: float | None
) -> tuple[NewCells, list[str]]:
    """Return the cells of an AnnData as a map takes them, and warnings.

    `source` holds the arguments of `read_matrix`. `max_missing` is the share of the map's features
    that may be missing, or None if a missing one is an error.
    """
    X, where, found = read_matrix(adata, **source)
    wanted = getattr(model, "feature_names_in_", None)
    cells = NewCells(X, adata.obs_names, where, found, model, None, max_missing)
    if wanted is None or found is None:
        n, n_known = X.shape[1], model.n_features_in_
        text = f"{where} has {n} columns, but the map was trained on {n_known}, and there are no"
        check(n == n_known, f"{text} names to match them")
        unnamed = f"the map has no names: columns of {where} are taken in their order"
        return cells, [] if found is None else [unnamed]
    if np.array_equal(found, wanted):
        return cells, []
    names = pd.Index(found)
    index: NDArray[np.intp] = names.get_indexer(wanted)
    lower, wanted_lower = names.str.casefold(), pd.Index(wanted).str.casefold()
    notices, exact = [], index
    if (index < 0).any() and lower.is_unique and wanted_lower.is_unique:
        index = lower.get_indexer(wanted_lower)
    if len(other := np.flatnonzero(exact != index)):
        example = f"{found[index[other[0]]]!r} for {wanted[other[0]]!r}"
        text = f"{len(other)} features of {where} match those of the map only without regard to"
        text = f"{text} case, such as {example}; check that they are the same genes: names of human"
        notices.append(f"{text} and mouse genes often differ in case alone")
    cells, used = replace(cells, index=index), model.feature_weights_ > 0
    absent = wanted[(index < 0) & used]
    if not len(absent):
        return cells, notices
    text = f"{where} lacks {len(absent)} of the {used.sum()} features that the map uses"
    text = f"{text}: {listed(pd.Index(absent))}"
    question = f"It has features like {names[0]!r}: are these names of another kind?"
    check((index >= 0).any(), f"{text}. {question}")
    lacking = len(absent) / used.sum()
    check(lacking < 1, text)
    if not max_missing:
        also = ", and a larger max_missing" if lacking > MAX_MISSING else ""
        raise InputError(f"{text} ({lacking:.0%}); {ESTIMATE}{also}", parameter="missing")
    cure = f"pass max_missing={lacking:.2g} or more to estimate them"
    check(lacking <= max_missing, f"{text} ({lacking:.0%}); {cure}", "max_missing")
    text = f"{text}; they are estimated from the others"
    if model.fitted_map.novelty is None:
        text = f"{text}, which confidence does not allow for in a map without novelty"
    return cells, [*notices, text]


def _chunks(X: Any) -> Iterator[slice]:
    """Yield the rows of a matrix that are read at once; rows with gaps become dense."""
    n_rows = max(1, min(matrix.CHUNK, matrix.VALUES_AT_ONCE // max(1, X.shape[1])))
    yield from gen_batches(X.shape[0], n_rows) if X.shape[0] else ()


def placed_chunks(cells: NewCells, X: Any) -> Iterator[Placed]:
    """Place the chunks of a dask array by dask's scheduler, `BLOCKS` at a time."""
    from dask.delayed import delayed

    # The matrix and the names of the cells are not sent to the workers.
    alone = replace(cells, X=None, names=None, obs_names=pd.RangeIndex(len(cells.obs_names)))
    shared, meta = delayed(alone, pure=False, traverse=False), np.empty((0, 0), np.float32)
    chunks = (X.chunks[0], (cells.model.n_components + 3,))
    placed = X.map_blocks(_placed_block, shared, chunks=chunks, meta=meta)
    for blocks in gen_batches(placed.numblocks[0], BLOCKS):
        yield placed.blocks[blocks].compute()


def _placed_block(block: Any, cells: NewCells, block_info: Any = None) -> Placed:
    """Place the cells of a chunk of a dask array."""
    (start, _), _ = block_info[0]["array-location"]
    none = np.empty((0, cells.model.n_components + 3), np.float32)
    return np.concatenate([none, *cells.placed(in_memory(block), start)])
