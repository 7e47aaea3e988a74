"""What a thread does while a training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Found = TypeVar("Found")


class Aside:
    """A thread that does one thing after the other."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def do(self, act: Callable[[], Found], n_threads: int = 1) -> Future[Found]:
        """Do something; torch, which counts for each thread that asks, may use `n_threads`."""

        def acted() -> Found:
            torch.set_num_threads(n_threads)
            # As `suitable_numerics` does it.
            torch.set_flush_denormal(True)
            return act()

        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="centroid-encoder")
        return self._executor.submit(acted)

    def close(self) -> None:
        """Let the thread go, when it has done what it is at."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
