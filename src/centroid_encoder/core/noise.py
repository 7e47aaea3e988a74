"""The noise of a training, epoch for epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Self

import torch
from torch import Tensor

from centroid_encoder.core.rows import Rows
from centroid_encoder.core.threads import Aside

PATIENCE = 0.05
"""Seconds after which whoever waits for noise can ask whether to go on."""


class Noise:
    """Noise of some rows: that of the next epoch is made while one is learned from.

    It is the same noise, in the same order, as if it were made between epochs. A context: when it
    is left, what was made for an epoch that did not come is as good as not drawn.

    Parameters
    ----------
    rows
        What makes it, of whatever `drop` leaves of them.
    index
        (n,) rows that are learned from.
    drop
        Draws noise.
    generator
        Where it draws from; nothing else may draw from there meanwhile.
    """

    def __init__(
        self,
        rows: Rows,
        index: Tensor,
        drop: Callable[[Tensor], Tensor],
        generator: torch.Generator,
    ) -> None:
        self._rows, self._index, self._drop = rows, index, drop
        self._generator, self._aside = generator, Aside()
        self._made: Future[None] | None = None
        self._before: Tensor | None = None
        self._left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left = True
        self._aside.close()
        if self._made is not None and self._before is not None:
            # Where it has got to by now is up to chance.
            self._generator.set_state(self._before)

    def renewed(self, n_threads: int, *, again: bool) -> Iterator[None]:
        """Have the noise of an epoch; yield now and then meanwhile.

        Parameters
        ----------
        n_threads
            How many make the noise of the next epoch from now on; with 0, it is not made ahead.
        again
            Whether there is a next epoch.
        """
        if self._made is None:
            yield from self._rows.renew(self._index, self._drop)
        else:
            while wait([self._made], PATIENCE).not_done:
                yield
            self._made.result()
            self._rows.turn()
        self._made = None
        if n_threads and again:
            self._before = self._generator.get_state()
            self._made = self._aside.do(self._make, n_threads)

    def _make(self) -> None:
        # As `suitable_numerics` does it where noise is made between epochs.
        torch.set_flush_denormal(True)
        for _ in self._rows.renew(self._index, self._drop, ahead=True):
            if self._left:
                return
