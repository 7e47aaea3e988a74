"""A map at work on new cells: a part of them after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.errors import Message
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._new_cells import VALUES_AT_ONCE, NewCells
from centroid_encoder.tl._run import Callback, Progress, check_stop

CHUNK = 4096
"""Cells that go through at once, at most."""

Found = NDArray[np.void]
"""(n,) what a map says of cells: records of a `Judge`'s `dtype`."""


@dataclass(frozen=True)
class Judge:
    """What a map says of cells, and of which."""

    cells: NewCells
    model: CentroidEncoder
    map_: FittedMap
    novelty: Novelty | None
    """Novelty by the features that the cells have, if the map has learned it."""

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
        x, unusable = self.cells.prepared(x, start, self.model, notices)
        found = np.empty(x.shape[0], self.dtype)
        map_ = self.map_
        decided = map_.decide(map_.judge(x), x.shape[0])
        found["embedding"], found["predicted"], found["confidence"] = decided
        found["novelty"] = np.nan
        if self.novelty is not None:
            found["novelty"] = self.novelty.quantiles(x, map_.standardizer)
        for name in ("embedding", "confidence", "novelty"):
            found[name][unusable] = np.nan
        return found

    def one_by_one(self, callback: Callback, notices: list[Message]) -> Found:
        """Judge all cells here, a part after the other."""
        n = len(self.cells.obs_names)
        found = np.empty(n, self.dtype)
        check_stop(callback, None)
        for part in gen_batches(n, self.n_at_once):
            found[part] = self(self.cells.X[part], part.start, notices)
            check_stop(callback, Progress(part.stop, n))
        return found
