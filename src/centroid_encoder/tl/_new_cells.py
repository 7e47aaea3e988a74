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
from centroid_encoder.tl._matrix import count_gaps, describe_gaps, fill, in_memory, is_gap
from centroid_encoder.tl._read import listed, read_matrix

Floats = NDArray[np.floating]
Placed = NDArray[np.float32]
"""(n, m + 3) embedding of cells, index of the predicted class, confidence and novelty."""

BLOCKS = 64
"""Chunks of a dask array that are computed before the next check for Stop."""
MAX_MISSING = 0.2
"""Default share of the features that may be missing."""
ESTIMATE = 'pass missing="estimate" to estimate them from the other values of each cell'


@dataclass(frozen=True)
class Prepared:
    """Rows of a matrix with the map's features, all finite."""

    x: Any
    """(n, d) values with a mean for each missing one; those of absent features have no meaning."""
    unusable: NDArray[np.bool_]
    """(n,) mask of the cells that lack too many values."""
    rows: NDArray[np.intp]
    """(r,) usable cells that lack a feature that the networks use; it is estimated."""
    gaps: NDArray[np.bool_]
    """(r, d) mask of their missing values."""
    lost: NDArray[np.float64]
    """(n,) share of the features that is missing, as in `Novelty.quantiles`."""


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
        for part in chunks_of(X):
            cells = self.prepared(in_memory(X[part]), start + part.start)
            embedding, probabilities, predicted = self.judged(cells)
            confidence = probabilities[np.arange(len(predicted)), predicted]
            found = np.column_stack([embedding, predicted, confidence, self.novelty(cells)])
            found[cells.unusable] = np.nan
            yield found.astype(np.float32)

    def have_values(self) -> NDArray[np.bool_]:
        """(n_obs,) mask of the cells that do not lack too many values; reads all of them."""
        parts = (self.prepared(in_memory(self.X[part])).unusable for part in chunks_of(self.X))
        return ~np.concatenate([np.empty(0, dtype=bool), *parts])

    @property
    def absent(self) -> NDArray[np.bool_]:
        """(d,) mask of the map's features that all cells lack."""
        n = self.model.n_features_in_
        return np.zeros(n, dtype=bool) if self.index is None else self.index < 0

    def novelty(self, cells: Prepared) -> NDArray[np.floating]:
        """(n,) novelty of prepared cells; NaN if the map has none."""
        map_ = self.model.fitted_map
        if map_.novelty is None:
            return np.full(cells.x.shape[0], np.nan)
        novelty, standardizer = map_.novelty, map_.standardizer
        found = novelty.quantiles(cells.x, standardizer, self.absent, cells.lost)
        if len(rows := cells.rows):
            expected = next(self.estimates(cells))
            found[rows] = novelty.quantiles(expected, standardizer, lost=cells.lost[rows])
        return found

    def judged(self, cells: Prepared) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """(n, m) places of prepared cells, (n, M) probabilities of the classes, and predictions."""
        map_, rows = self.model.fitted_map, cells.rows
        places, distances = (np.concatenate(x) for x in zip(*map_.judge(cells.x), strict=True))
        probabilities = map_.calibration.probabilities(distances)
        if len(rows):
            expected, *draws = self.estimates(cells)
            of_rows = map_.judge_draws(expected, draws or [expected])
            places[rows], distances[rows], probabilities[rows] = of_rows
        return places, probabilities, distances.argmin(axis=1)

    def estimates(self, cells: Prepared) -> Iterator[NDArray[np.float64]]:
        """Yield the values of the cells that lack some: expected ones, and then random ones."""
        map_, x = self.model.fitted_map, cells.x[cells.rows]
        x = np.array(x if isinstance(x, np.ndarray) else x.toarray(), dtype=np.float64)
        if map_.novelty is None:
            return iter([np.where(cells.gaps, map_.standardizer.mean, x)])
        return map_.novelty.estimates(x, cells.gaps, map_.standardizer)

    def expected(self, x: Any) -> Any:
        """Rows of the matrix with the map's features, and expected values in the gaps."""
        cells = self.prepared(x)
        if not len(cells.rows):
            return cells.x
        x = np.array(cells.x if isinstance(x, np.ndarray) else cells.x.toarray(), dtype=np.float64)
        x[cells.rows] = next(self.estimates(cells))
        return x

    def prepared(self, x: Any, start: int = 0) -> Prepared:
        """Find the map's features in rows of the matrix, from `start` on, and their gaps."""
        names, absent = getattr(self.model, "feature_names_in_", None), self.absent
        found = x if self.index is None else x[:, self.index[~absent]]
        n_gaps = count_gaps(found)
        if self.max_missing is None and n_gaps.any():
            stop = start + len(n_gaps)
            where = f"{self.where} (cells {start:,} to {stop - 1:,})"
            names = None if names is None else names[~absent]
            text = describe_gaps(found, n_gaps, where, self.obs_names[start:stop], names)
            raise InputError(f"{text}; {ESTIMATE}", parameter="missing")
        x = found if self.index is None or not absent.any() else x[:, np.maximum(self.index, 0)]
        used, map_ = self.model.feature_weights_ > 0, self.model.fitted_map
        rows = np.flatnonzero(n_gaps) if not absent[used].any() else np.arange(len(n_gaps))
        gaps = is_gap(x[rows])
        gaps = (gaps if isinstance(gaps, np.ndarray) else gaps.toarray()) | absent
        share, unusable = gaps[:, used].mean(axis=1), np.zeros(len(n_gaps), dtype=bool)
        allowed = 1 if self.max_missing is None else self.max_missing
        unusable[rows] = (share > allowed) | (share == 1)
        means, weights = map_.standardizer.mean, np.ones(len(used))
        if map_.novelty is not None:
            axes = map_.novelty.axes
            means = means + map_.standardizer.scale * (axes @ map_.novelty.offset)
            weights = np.square(axes).sum(axis=1)
        lost = np.full(len(n_gaps), weights @ absent)
        lost[rows] = gaps @ weights
        kept = (share > 0) & ~unusable[rows]
        return Prepared(fill(x, means), unusable, rows[kept], gaps[kept], lost / weights.sum())


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


def chunks_of(X: Any) -> Iterator[slice]:
    """Slices of the rows of a matrix that are read at once; rows with gaps become dense."""
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
