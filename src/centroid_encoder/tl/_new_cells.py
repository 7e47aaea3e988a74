"""New cells: their features are found by name, and a map places them some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from centroid_encoder.core import matrix
from centroid_encoder.errors import InputError
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._gaps import count_gaps, describe_gaps
from centroid_encoder.tl._lazy import in_memory
from centroid_encoder.tl._read import listed, logger

Placed = NDArray[np.float32]
"""(n, m + 3) embedding of cells, index of the class, confidence and novelty."""

BLOCKS = 64
"""Chunks of a dask array that are computed between two checks for Stop."""
TAKE_MEAN = 'pass missing="mean" to use the mean of the training cells instead'


def match_features(
    model: CentroidEncoder, n_columns: int, found: Any, where: str, max_missing: float | None
) -> tuple[NDArray[np.intp] | None, list[str]]:
    """Return `NewCells.index`, found by the names that were `found`, and warnings."""
    wanted = getattr(model, "feature_names_in_", None)
    if wanted is None or found is None:
        if n_columns != model.n_features_in_:
            raise InputError(
                f"{where} has {n_columns} columns, but the map was trained on "
                f"{model.n_features_in_}, and there are no names to match them"
            )
        unnamed = f"the map has no names: columns of {where} are taken in their order"
        return None, [] if found is None else [unnamed]
    if np.array_equal(found, wanted):
        return None, []
    names = pd.Index(found)
    index: NDArray[np.intp] = names.get_indexer(wanted)
    lower, wanted_lower = names.str.casefold(), pd.Index(wanted).str.casefold()
    if (index < 0).any() and lower.is_unique and wanted_lower.is_unique:
        n_found, index = (index >= 0).sum(), lower.get_indexer(wanted_lower)
        n_more = int((index >= 0).sum() - n_found)
        logger.info("    %d features are matched without regard to case", n_more)
    used = model.feature_weights_ > 0
    absent = wanted[(index < 0) & used]
    if not len(absent):
        return index, []
    text = f"{where} lacks {len(absent)} of the {used.sum()} features that the map uses"
    text = f"{text}: {listed(pd.Index(absent))}"
    if (index < 0).all():
        text = f"{text}. It has features like {names[0]!r}: are these names of another kind?"
        raise InputError(text)
    lacking = len(absent) / used.sum()
    if max_missing is None:
        raise InputError(f"{text} ({lacking:.0%}); {TAKE_MEAN}", parameter="missing")
    if lacking > max_missing:
        text = f"{text}. That is {lacking:.0%}, more than {max_missing=} allows"
        raise InputError(text, parameter="max_missing")
    return index, [f"{text}; the mean of the training cells is used instead"]


@dataclass(frozen=True)
class NewCells:
    """The cells of a query, and the map that places them."""

    X: Any
    obs_names: pd.Index
    where: str
    """Name of the matrix."""
    model: CentroidEncoder
    index: NDArray[np.intp] | None
    """(d,) columns of the map's features, −1 for a missing one; None for all columns in order."""
    max_missing: float | None
    """Share of the features that a cell may lack; None if a gap is an error."""

    @property
    def n_columns(self) -> int:
        """Number of columns of what `placed` yields."""
        return self.model.fitted_map.n_components + 3

    def placed(self, X: Any, start: int = 0) -> Iterator[Placed]:
        """Place X, the rows of the matrix from `start` on, some at a time."""
        map_ = self.model.fitted_map
        # Rows with gaps become dense.
        n_rows = max(1, min(matrix.CHUNK, matrix.VALUES_AT_ONCE // max(1, X.shape[1])))
        for part in gen_batches(X.shape[0], n_rows) if X.shape[0] else ():
            x, unusable = self.prepared(in_memory(X[part]), start + part.start)
            embedding, predicted, confidence = map_.decide(map_.judge(x), x.shape[0])
            novelty = np.full(len(predicted), np.nan)
            if map_.novelty is not None:
                novelty = map_.novelty.quantiles(x, map_.standardizer)
            found = np.column_stack([embedding, predicted, confidence, novelty])
            found[unusable] = np.nan
            yield found.astype(np.float32)

    def probabilities(self, rows: slice) -> NDArray[np.floating]:
        """(n, M) probability of each class, in the order of the model's, for some cells."""
        x, _ = self.prepared(in_memory(self.X[rows]), rows.start)
        distances = np.concatenate([d for _, d in self.model.fitted_map.judge(x)])
        return self.model.calibration_.probabilities(distances)

    def prepared(self, x: Any, start: int = 0) -> tuple[Any, NDArray[np.bool_]]:
        """Return finite values of the map's features, and which cells lack too many of them."""
        absent = np.empty(0, dtype=np.intp)
        if self.index is not None:
            x, absent = x[:, np.maximum(self.index, 0)], np.flatnonzero(self.index < 0)
        n_gaps = count_gaps(x)
        if self.max_missing is None and n_gaps.any():
            stop = start + len(n_gaps)
            names = getattr(self.model, "feature_names_in_", None)
            where = f"{self.where} (cells {start:,} to {stop - 1:,})"
            text = describe_gaps(x, n_gaps, where, self.obs_names[start:stop], names)
            raise InputError(f"{text}; {TAKE_MEAN}", parameter="missing")
        if not n_gaps.any() and not len(absent):
            return x, np.zeros(x.shape[0], dtype=bool)
        dense = np.array(x if isinstance(x, np.ndarray) else x.toarray(), dtype=np.float64)
        gaps = ~np.isfinite(dense)
        gaps[:, absent] = True
        filled = np.where(gaps, self.model.fitted_map.standardizer.mean, dense)
        share = gaps[:, self.model.feature_weights_ > 0].mean(axis=1)
        allowed = 1 if self.max_missing is None else self.max_missing
        return filled, (share > allowed) | gaps.all(axis=1)


def _placed_block(block: Any, cells: NewCells, block_info: Any = None) -> Placed:
    """Place the cells of a chunk of a dask array."""
    (start, _), _ = block_info[0]["array-location"]
    none = np.empty((0, cells.n_columns), np.float32)
    return np.concatenate([none, *cells.placed(in_memory(block), start)])


def placed_chunks(cells: NewCells, X: Any) -> Iterator[Placed]:
    """Place the chunks of a dask array by dask's scheduler, `BLOCKS` at a time."""
    from dask.delayed import delayed

    # Neither the matrix nor the names of cells go to the workers.
    alone = replace(cells, X=None, obs_names=pd.RangeIndex(len(cells.obs_names)))
    shared, widths = delayed(alone, pure=False, traverse=False), (cells.n_columns,)
    meta = np.empty((0, 0), np.float32)
    placed = X.map_blocks(_placed_block, shared, chunks=(X.chunks[0], widths), meta=meta)
    for blocks in gen_batches(placed.numblocks[0], BLOCKS):
        yield placed.blocks[blocks].compute()
