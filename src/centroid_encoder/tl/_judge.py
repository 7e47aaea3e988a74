"""A map at work on new cells: a part of them after the other."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from centroid_encoder import __version__
from centroid_encoder.core.map import CodedMap
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.errors import Message, Problem
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._jobs import Progress
from centroid_encoder.tl._journal import Journal
from centroid_encoder.tl._new_cells import VALUES_AT_ONCE, NewCells

CHUNK = 4096
"""Cells that go through at once, at most."""

logger = logging.getLogger("centroid_encoder")

Found = NDArray[np.void]
"""(n,) what a map says of cells: records of a `Judge`'s `dtype`."""


@dataclass(frozen=True)
class Judge:
    """What a map says of cells, and of which."""

    cells: NewCells
    model: CentroidEncoder
    map_: CodedMap
    excess: float
    """What is taken off every score of novelty."""

    @property
    def n_at_once(self) -> int:
        """Cells that go through at once. The last bits of what is found depend on it."""
        return max(1, min(CHUNK, VALUES_AT_ONCE // int(self.model.n_features_in_)))

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Of a record: where a cell lies, of which class it is, how sure, and how novel."""
        n_components = self.map_.centers.shape[1]
        return np.dtype(
            [
                ("embedding", np.float32, (n_components,)),
                ("predicted", np.int32),
                ("confidence", np.float32),
                ("novelty", np.float32),
            ]
        )

    def __call__(self, x: Any, start: int, notices: list[Message]) -> Found:
        """Judge the cells from number `start` on, of which `x` are the rows."""
        x, missing = self.cells.prepared(x, start, self.model, notices)
        found = np.empty(x.shape[0], self.dtype)
        map_ = self.map_
        decided = map_.decide(map_.judge(x), x.shape[0])
        found["embedding"], found["predicted"], found["confidence"] = decided
        found["novelty"] = map_.novelty(x, missing, self.excess) if map_.knows_novelty else np.nan
        return found

    def one_by_one(
        self, stop: Callable[[], bool], notices: list[Message], journal: Journal | None = None
    ) -> Generator[Progress, None, Found]:
        """Judge all cells here, a part after the other; of what is in a journal, the first alone.

        That part tells whether these are the values that the map was trained on. A journal is
        removed if they, or others, are not: the next run would end there as well.
        """
        n = len(self.cells.obs_names)
        found = np.empty(n, self.dtype)
        n_known = 0 if journal is None else journal.read(found, self.n_at_once)
        if n_known:
            logger.info("    going on after %d of %d cells, of which it is known", n_known, n)
        try:
            for part in gen_batches(n, self.n_at_once):
                if stop():
                    raise StoppedTooEarly
                is_known = part.stop <= n_known
                if part.start == 0 or not is_known:
                    found[part] = self(self.cells.X[part], part.start, notices)
                if journal is not None and not is_known and n > self.n_at_once:
                    journal.add(part.start, found[part])
                yield Progress(part.stop, n)
        except Problem:
            if journal is not None:
                journal.remove()
            raise
        return found

    def told(self) -> Iterator[bytes]:
        """All that what is found depends on, but for the values of the cells."""
        cells, (config, arrays) = self.cells, self.model.to_state()
        index = [] if cells.index is None else cells.index.tolist()
        of_cells = [cells.where, cells.missing, index, len(cells.obs_names), self.n_at_once]
        aligned = [cells.alignment is not None, float(self.excess)]
        of_map = [config, self.map_.known.tolist(), str(self.map_.fitted.device)]
        yield json.dumps([__version__, *of_cells, *aligned, *of_map], sort_keys=True).encode()
        for name in sorted(arrays):
            yield name.encode()
            yield np.ascontiguousarray(arrays[name]).tobytes()
