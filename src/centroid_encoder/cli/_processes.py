"""A command in several processes, started by torchrun: all train, the first speaks and writes."""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

PATIENCE = timedelta(minutes=10)
"""How long a process waits for another one that does not answer, but has not ended either."""
GRACE = 5.0
"""Seconds in which the first process may say what is wrong, before another one does."""
WATCHED = 0.1
"""Seconds between two looks at how the first process has ended."""
FIRST = "centroid-encoder/0"
"""Where the exit status of the first process is, once it has ended."""


def are_several() -> bool:
    """Whether torchrun has started this process and others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Whether this process is the one that speaks and writes."""
    return not are_several() or os.environ["RANK"] == "0"


def in_all(run: Callable[[], int]) -> int:
    """Run a command in each of several processes, and return its exit status.

    A process other than the first that did well has the status of the first. What is wrong says
    the first as well, if it is wrong there.
    """
    if is_first():
        status, store = _run(run)
        if store is not None:
            store.set(FIRST, str(status))
        return status
    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        status, store = _run(run)
    # Writing may take long, and ends: with the first process goes what it is asked through.
    of_first = _of_first(store, GRACE if status else math.inf)
    if status and not of_first:
        click.echo(f"Process {os.environ['RANK']}: {said.getvalue()}", err=True, nl=False)
    return status or (1 if of_first is None else of_first)


def _run(run: Callable[[], int]) -> tuple[int, Store | None]:
    """Return the exit status of a command, and where the processes tell each other of it."""
    # Before all else: what ends a process then ends its connections, of which the others hear.
    try:
        store = _join()
    except (RuntimeError, ValueError) as error:
        click.echo(f"Error: the processes have not found each other: {error}", err=True)
        return 1, None
    return run(), store


def _join() -> Store:
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    n_gpus = torch.cuda.device_count()
    n_here = int(os.environ["LOCAL_WORLD_SIZE"])
    if 0 < n_gpus < n_here:
        raise ValueError(
            f"{n_here} processes on {n_gpus} GPUs; start one for each, or set CUDA_VISIBLE_DEVICES "
            "to nothing to train on processors"
        )
    if n_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if n_gpus else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=PATIENCE,
    )
    return cast("Store", store)


def _of_first(store: Store | None, seconds: float) -> int | None:
    """Exit status of the first process; None if it has not ended in time, or cannot be asked."""
    end = time.monotonic() + seconds
    try:
        while store is not None and time.monotonic() < end:
            # Not `wait`, which hears of no signal.
            if store.check([FIRST]):
                return int(store.get(FIRST))
            time.sleep(WATCHED)
    except RuntimeError:  # it is gone
        pass
    return None
