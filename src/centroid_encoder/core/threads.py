"""On how many threads something is computed, and in which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

FEW = 10_000
"""Rows up to which what a map says of them is found in one thread."""

Item = TypeVar("Item")
Found = TypeVar("Found")


class Aside:
    """A thread that does one thing after the other while its owner does something else."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._thread: int | None = None

    def do(self, act: Callable[[], Found], n_threads: int = 1) -> Future[Found] | None:
        """Do something; None if the process is ending, when no thread does anything any more.

        Torch, which counts its threads for each thread that asks, may use `n_threads`.
        """

        def acted() -> Found:
            self._thread = get_ident()
            torch.set_num_threads(n_threads)
            return act()

        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="centroid-encoder")
        try:
            return self._executor.submit(acted)
        except RuntimeError:
            return None

    def close(self) -> None:
        """Wait until it has done what it is at, and let the thread go.

        What it limits, such as the threads of BLAS, counts for the process, and is put back then.
        """
        if self._executor is not None:
            # Of what nobody holds any more Python may tidy up in any thread, this one among them.
            self._executor.shutdown(wait=self._thread != get_ident())


def each(act: Callable[[Item], Found], items: Sequence[Item], n_threads: int) -> list[Found]:
    """Do something with each item, with up to `n_threads` of them at a time in a thread each.

    With one after the other if the process is ending, when it gets no other threads any more.
    """
    workers = [Aside() for _ in range(min(n_threads, len(items)))] if n_threads > 1 else []
    if not workers:
        return [act(item) for item in items]
    try:
        # BLAS has one limit for all threads: if each set it, the last would put back another's.
        with threadpool_limits(1):
            begun = [
                workers[i % len(workers)].do(partial(act, item)) for i, item in enumerate(items)
            ]
            return [
                act(item) if future is None else future.result()
                for future, item in zip(begun, items, strict=True)
            ]
    finally:
        for worker in workers:
            worker.close()


@contextmanager
def threads_for(n_rows: int) -> Iterator[None]:
    """Compute with few rows in one thread.

    What computes in several has several sets of them: torch, BLAS, and each library that brings an
    OpenMP of its own. Those of one still wait busily for more to do while those of the next are at
    it, which takes many times as long as a few rows do.
    """
    if n_rows > FEW:
        yield
        return
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(n_threads)
