"""Threads of Python, each with one thread of PyTorch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

import torch
from joblib import cpu_count

T = TypeVar("T")
R = TypeVar("R")
_active: list[tuple[int, int]] = []
"""Thread of each active `one_thread`, and the number that PyTorch had before the first of them."""


@contextmanager
def one_thread() -> Iterator[int]:
    """Let PyTorch use one thread here; yield the number that it and the process may use otherwise.

    Threads that share small operations wait for each other: beside programs that use all cores,
    preparing and judging a map of 700 cells took ten times as long as in one thread. PyTorch gives
    its number to new threads, so that a training which starts while another one runs would find 1.
    """
    n_threads = _active[0][1] if _active else torch.get_num_threads()
    own = get_ident(), n_threads
    is_inner = own in _active
    _active.append(own)
    torch.set_num_threads(1)
    try:
        yield min(n_threads, cpu_count())
    finally:
        _active.remove(own)
        if not is_inner:
            torch.set_num_threads(n_threads)


def in_threads(work: Callable[[T], R], items: Iterable[T], n_threads: int) -> Iterator[R]:
    """Yield the results for some items in order; `n_threads` are computed at once.

    Each thread has one thread of PyTorch. The items are read here.
    """
    limit: Any = {"initializer": torch.set_num_threads, "initargs": (1,)}
    with ThreadPoolExecutor(n_threads, **limit) as pool:
        started: deque[Future[R]] = deque()
        for item in items:
            started.append(pool.submit(work, item))
            if len(started) > n_threads:
                yield started.popleft().result()
        while started:
            yield started.popleft().result()


def on_cores(work: Callable[[T], R], items: Iterable[T], device: torch.device) -> list[R]:
    """Return the results for some items; on a CPU, as many are computed at once as it may use."""
    with one_thread() as n_threads:
        return list(in_threads(work, items, n_threads if device.type == "cpu" else 1))
