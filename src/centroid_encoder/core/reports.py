"""Reports of a training after each epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from centroid_encoder.core.arrays import Doubles, Singles

Frame: TypeAlias = tuple[Singles, Doubles | None]
"""(n_rows, m) embedding during a training, NaN for rows without a place; and the (M, m) positions
of the classes, or None if these are the means of the embedded rows."""


@dataclass(frozen=True)
class Report:
    """One epoch of a training."""

    stage: str
    """``"start"`` before the first epoch, ``"pretrain 1"`` … ``"pretrain k"``, ``"train"`` or
    ``"merge"``."""
    epoch: int
    """Number of the epoch within the stage, from 1; 0 at the start."""
    n_epochs: int
    """Largest number of epochs of the stage."""
    step: int
    """Number of epochs so far, over all stages."""
    n_steps: int
    """Largest number of epochs of all stages together."""
    loss: float = np.nan
    """Mean training loss over the epoch's batches; NaN at the start."""
    validation_loss: float = np.nan
    """Loss of the validation rows after the epoch; NaN without any."""
    validation_error: float = np.nan
    """Share of validation rows whose nearest centroid is that of another class; NaN without any."""
    frame: Callable[[], Frame | None] = field(default=lambda: None, repr=False, compare=False)
    """Computes the embedding at this time. None if there is none, as in pre-training."""


Callback: TypeAlias = Callable[[Report | None], bool]
"""Called with a report after every epoch, and with None before every batch. If it returns True, the
training ends and keeps the best state so far."""


class StoppedTooEarly(Exception):
    """The training was stopped before the end of its first epoch, so there is no state to keep."""
