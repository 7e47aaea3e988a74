"""New cells in a dask array are judged where its chunks are; what is found of them comes back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.errors import Message, Problem, WorkerError
from centroid_encoder.tl._judge import Found, Judge
from centroid_encoder.tl._lazy import is_by_columns, is_half, usable
from centroid_encoder.tl._run import Callback, Progress, check_stop

WATCHED = 0.1
"""Seconds between two looks at a cluster that has found nothing meanwhile."""
ALONE = 60.0
"""Seconds for which a cluster may be without any worker once it has had some."""

Block = tuple[int, Found | Problem, list[Message]]
"""Number of the first cell, what is found of the cells or wrong with them, and what to warn of."""


def has_own_chunks(X: Any) -> bool:
    """Tell whether a matrix is a dask array whose chunks can be judged one by one."""
    return hasattr(X, "dask") and not is_by_columns(X)


def where_chunks_are(judge: Judge, callback: Callback, notices: list[Message]) -> Found:
    """Judge all cells under the scheduler that dask has been told.

    The same cells go through together as where one part goes through after the other.

    Raises
    ------
    StoppedTooEarly
        `stop` said so; what waits on a cluster is cancelled.
    WorkerError
        Processes of a cluster died again and again, or all are gone.
    """
    from dask.base import get_scheduler
    from dask.delayed import delayed

    X, n, n_at_once = judge.cells.X, len(judge.cells.obs_names), judge.n_at_once
    bounds = _bounds(X.chunks[0], n_at_once)
    if is_half(X._meta):
        X = X.map_blocks(usable, dtype=np.float32)
    blocks = X.rechunk({0: tuple(np.diff(bounds).tolist()), 1: -1}, method="tasks").to_delayed()
    # Numbers instead of names, and no matrix: this goes to all workers.
    cells = replace(judge.cells, X=None, obs_names=pd.RangeIndex(n))
    sent = delayed(replace(judge, cells=cells), pure=False, traverse=False)
    of_block = delayed(_of_block, pure=False)
    tasks = [
        of_block(sent, block, start, n_at_once)
        for block, start in zip(blocks.ravel(), bounds[:-1].tolist(), strict=True)
    ]
    # A Client is found here even if nothing but its being there says so.
    client = getattr(get_scheduler(), "__self__", None)

    def stop() -> bool:
        return callback(None)

    done = _here(tasks, stop) if client is None else _on_cluster(client, tasks, stop)
    found, n_done = np.empty(n, judge.dtype), 0
    try:
        for start, part, of_part in done:
            if isinstance(part, Problem):
                # There, cells have no names. Here, the same is said with them.
                for rows in gen_batches(n, n_at_once):
                    if start <= rows.start:
                        judge.cells.prepared(judge.cells.X[rows], rows.start, judge.model, [])
                raise part
            found[start : start + len(part)] = part
            notices += of_part
            n_done += len(part)
            check_stop(callback, Progress(n_done, n))
    except BrokenExecutor as error:
        raise WorkerError("a process in which dask placed cells has died: {}", error) from error
    return found


def _bounds(chunks: Sequence[int], n_at_once: int) -> NDArray[np.intp]:
    """First cell of each block, and the number of cells: about where the chunks have theirs."""
    ends = np.cumsum(chunks)
    # What goes through together begins at these multiples, wherever the cells are.
    inside = np.rint(ends / n_at_once).astype(np.intp) * n_at_once
    return np.unique(np.r_[0, np.minimum(inside, ends[-1]), ends[-1]])


def _of_block(judge: Judge, block: Any, start: int, n_at_once: int) -> Block:
    """Judge some cells; this is what workers do."""
    notices: list[Message] = []
    block = usable(block)
    if hasattr(block, "tocsr"):
        block = block.tocsr()
    try:
        parts = [
            judge(block[part], start + part.start, notices)
            for part in gen_batches(block.shape[0], n_at_once)
        ]
    except Problem as problem:
        return start, problem, []
    return start, np.concatenate(parts), notices


def _here(tasks: Sequence[Any], stop: Callable[[], bool]) -> Iterator[Block]:
    """Do tasks in this process, or in processes that it starts."""
    from dask import config
    from dask.base import compute
    from dask.system import CPU_COUNT

    n_workers = config.get("num_workers", None) or CPU_COUNT
    for few in gen_batches(len(tasks), n_workers):
        if stop():
            raise StoppedTooEarly
        yield from compute(*tasks[few])


def _on_cluster(client: Any, tasks: Sequence[Any], stop: Callable[[], bool]) -> Iterator[Block]:
    """Do tasks on the workers of a cluster, in whichever order they have room for them."""
    from distributed import KilledWorker, as_completed

    with warnings.catch_warnings():
        # The map is a part of it, so that it is sent again if the worker that has it dies.
        warnings.filterwarnings("ignore", "Sending large graph")
        futures = client.compute(list(tasks))
    finished = as_completed(futures, with_results=True)
    seen = None
    try:
        while not finished.is_empty():
            if stop():
                raise StoppedTooEarly
            if finished.has_ready():
                seen = time.monotonic()
                yield next(finished)[1]
                continue
            time.sleep(WATCHED)
            if client.nthreads():
                seen = time.monotonic()
            elif seen is not None and time.monotonic() - seen > ALONE:
                raise WorkerError("the cluster has no workers any more that could place cells")
    except KilledWorker as error:
        text = "workers of the cluster died, one after the other, as they placed cells: {}"
        raise WorkerError(text, error) from error
    finally:
        # The cluster may be gone.
        with suppress(Exception):
            client.cancel(futures)
