"""What a training says from epoch to epoch and when it is over, and how it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from centroid_encoder.errors import Message

Ended = TypeVar("Ended")


@dataclass(frozen=True)
class Report:
    """What happened in one epoch."""

    stage: str
    """``"pretrain 1"`` … ``"pretrain k"``, ``"train"`` or ``"merge"``."""
    epoch: int
    """1-based, within the stage."""
    n_epochs: int
    """Number of epochs the stage has at most."""
    step: int
    """1-based, over all stages."""
    n_steps: int
    """Number of epochs of all stages together, at most."""
    loss: float
    """Mean training loss over the epoch's batches."""
    validation_loss: float
    """Loss of the validation rows after the epoch; NaN without any."""
    validation_error: float
    """Share of validation rows whose nearest centroid is not their own; NaN without any."""
    batch_size: int
    """Rows per step; smaller than asked for after the device ran out of memory."""
    embedding: NDArray[np.float32] | None = None
    """(n_rows, m) embedding of all rows after the epoch, if asked for. Of networks side by side,
    a row of the training is embedded by the one that is not trained on it."""
    centers: NDArray[np.float64] | None = None
    """(M, m) positions that the classes have in it from the start, in the order of the caller; NaN
    for those that are not trained on. None where they are the means of what is embedded."""

    def frame(self) -> Shown | None:
        """Embedding of all rows and positions of the classes now; None where there is none yet."""
        return None if self.embedding is None else (self.embedding, self.centers)


Callback = Callable[[Report | None], bool]
"""Called with a report after every epoch, and with None before every batch; True ends a training
and keeps the best state so far."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    reports: list[Report]
    """All reports, without embeddings."""
    interrupted: bool
    """Whether a KeyboardInterrupt cut it short."""
    batch_size: int
    """Rows per step that were asked for."""

    @property
    def merged(self) -> bool:
        """Whether the network was trained on the validation rows in the end."""
        return self.reports[-1].stage == "merge"

    @property
    def notices(self) -> list[tuple[Message, type[Warning]]]:
        """What a user should be told of the training, and as which kind of warning."""
        last = self.reports[-1]
        notices: list[tuple[Message, type[Warning]]] = []
        if last.batch_size < self.batch_size:
            text = (
                f"the device ran out of memory: trained with a batch size of {last.batch_size} "
                f"instead of {self.batch_size}"
            )
            notices.append((Message(text), ResourceWarning))
        if self.interrupted:
            text = (
                f"training was interrupted after {last.step} of {last.n_steps} epochs; "
                "the best state so far is kept"
            )
            notices.append((Message(text), ConvergenceWarning))
        return notices


class StoppedTooEarly(Exception):
    """Training was stopped before its first epoch was over: there is no state worth keeping."""


def never() -> bool:
    """Return False: neither stop nor take a snapshot."""
    return False


Shown = tuple[NDArray[np.float32], NDArray[np.float64] | None]
"""Embedding and centers of a `Report`."""


def drained(reports: Generator[Report, None, Ended]) -> Ended:
    """Run a training to its end, and return what it returns."""
    while True:
        try:
            next(reports)
        except StopIteration as end:
            return cast(Ended, end.value)
