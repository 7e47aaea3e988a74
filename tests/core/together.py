"""Trainings shared by processes, for `test_processes`: each process writes what it has found.

Arguments: the folder to write to, and the names of what is to be done.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from scipy import sparse
from torch import Tensor

import centroid_encoder as ce
from centroid_encoder.core import rows
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.network import BatchNorm, Network
from centroid_encoder.core.objective import Batch, CentroidTargets
from centroid_encoder.core.processes import Processes
from centroid_encoder.core.reports import never

CPU = torch.device("cpu")
RANK = int(os.environ.get("RANK", "0"))
N, N_CLASSES = 203, 4
BOTTLENECK = {"placement": "bottleneck", "hidden": (12, 7)}
NORMALIZED = BOTTLENECK | {"batch_norm": True}
KINDS: dict[str, dict[str, Any]] = {
    "voronoi": {"hidden": (12,), "class_weight": "balanced", "n_networks": 5},
    "wide": {"n_features": 130, "hidden": (12,)},
    "sparse": {"n_features": 130, "hidden": (12,), "sparse": True, "kept": 0},
    "bottleneck": BOTTLENECK | {"class_weight": "balanced"},
    "normalized": NORMALIZED
    | {"validation_fraction": 0.2, "patience": 2, "merge_epochs": 2, "max_epochs": 6},
    "pretrained": NORMALIZED | {"pretrain_epochs": 2, "output": "full", "dropout": 0.3},
    # Fewer rows than processes.
    "tiny batches": BOTTLENECK
    | {"batch_size": 2, "max_epochs": 1, "n_features": 130, "sparse": True},
    "tiny batches of several": {"hidden": (12,), "batch_size": 2, "max_epochs": 1}
    | {"n_features": 130, "kept": 0},
}


def trained(
    *,
    together: bool = True,
    n_features: int = 9,
    sparse_: bool = False,
    kept: int = rows.PROJECTED,
    labels: int = 0,
    values: int = 0,
    stop: Callable[[], bool] = never,
    random_state: int = 0,
    **params: Any,
) -> dict[str, Any]:
    """Train, and return what can be compared of it."""
    codes = np.random.default_rng(labels).integers(0, N_CLASSES, N)
    rng = np.random.default_rng(values)
    X = rng.normal(size=(N_CLASSES, n_features))[codes] + rng.normal(size=(N, n_features))
    X[rng.random(X.shape) < 0.3] = 0
    defaults = {"max_epochs": 3, "batch_size": 32, "dropout": 0.1, "random_state": random_state}
    model = ce.CentroidEncoder(device="cpu", **(defaults | params))
    reports = model.fit_codes(
        sparse.csr_array(X) if sparse_ else X,
        codes,
        np.arange(N_CLASSES),
        together=together,
        stop=stop,
    )
    sizes = []
    with patch.object(rows, "PROJECTED", kept):
        while True:
            try:
                sizes.append(next(reports).batch_size)
            except StopIteration as end:
                fit: Fit = end.value
                break
    embedding = fit.embed()
    return {
        "loss": model.history_["loss"],
        "validation_loss": [x for x in model.history_["validation_loss"] if x == x],
        "stages": model.history_["stage"],
        "sizes": sizes,
        "interrupted": fit.outcome.interrupted,
        "embedding": embedding.tolist(),
        "bits": hashlib.sha256(embedding.tobytes()).hexdigest(),
    }


def raised(work: Callable[[], object]) -> str:
    """Name and text of what some work raises."""
    try:
        work()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def gradients() -> float:
    """Largest difference from one process after some steps, in float64: of gradients, of all."""
    torch.set_default_dtype(torch.float64)
    try:
        generator = torch.Generator().manual_seed(0)
        n = 17
        x = torch.randn((n, 6), generator=generator) * 3 + 20
        labels = torch.arange(n) % N_CLASSES
        weights = torch.rand(n, generator=generator)
        targets = CentroidTargets.fit(
            np.random.default_rng(0).normal(size=(4, 6)), "full", CPU, 0.5
        )
        targets.coordinates = targets.coordinates.double()
        found: list[list[Tensor]] = []
        for processes in (None, Processes(CPU)):
            generator.manual_seed(1)
            network = Network(6, (5, 4), 2, 6, "tanh", generator, batch_norm=True)

            def step(network: Network = network, processes: Any = processes) -> Tensor:
                code = network.encode(x if processes is None else x[processes.part(n)])
                output = network.decode(code)
                if processes is not None:
                    both = processes.whole(torch.cat([code, output], dim=1), n)
                    code, output = both[:, :2], both[:, 2:]
                loss = targets.loss(Batch(torch.arange(n), labels, weights, code, output))
                loss.backward()
                if processes is not None:
                    processes.sum_gradients(network.parameters())
                return loss.detach()

            network.train()
            if processes is not None:
                network.normalize_over(processes)
            for _ in range(20):
                network.zero_grad()
                if processes is None:
                    step()
                else:
                    processes.take(step, stop=False)
                with torch.no_grad():
                    for parameter in network.parameters():
                        parameter.sub_(0.1 * cast(Tensor, parameter.grad))
            gradients = [cast(Tensor, parameter.grad) for parameter in network.parameters()]
            buffers = [buffer.double() for buffer in network.buffers()]
            found.append([*gradients, *network.parameters(), *buffers])
        assert len(found[0]) == len(found[1])
        return max(float((a - b).detach().abs().max()) for a, b in zip(*found, strict=True))
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def scarce(where: str) -> Iterator[None]:
    """Let one process run out of memory with large batches: the one whose weights are kept."""
    if RANK:
        yield
        return
    normalize, loss = BatchNorm.forward, CentroidTargets.loss
    limit, whole = 4, 12
    failed: list[Tensor] = []

    def forward(self: BatchNorm, x: Tensor) -> Tensor:
        # The second layer: the first has had its sums.
        if self.training and self.num_features == 7 and len(x) > limit:
            raise torch.OutOfMemoryError
        return normalize(self, x)

    def backward(self: CentroidTargets, batch: Batch) -> Tensor:
        value = loss(self, batch)
        # Once for each batch: without rows, there is memory enough.
        again = failed and torch.equal(failed[-1], batch.rows)
        if value.requires_grad and len(batch.rows) > whole and not again:
            failed.append(batch.rows)
            value.register_hook(_fail)
        return value

    def gather(self: rows.DenseRows, index: Tensor) -> Tensor:
        # What is asked in training alone.
        if limit < len(index) < 16:
            raise torch.OutOfMemoryError
        return self._dense[index]

    target, name, function = {
        "forward": (BatchNorm, "forward", forward),
        "backward": (CentroidTargets, "loss", backward),
        "gather": (rows.DenseRows, "gather", gather),
    }[where]
    with patch.object(target, name, function):
        yield


def _fail(gradient: Tensor) -> None:
    raise torch.OutOfMemoryError


def short_of_memory(where: str) -> dict[str, Any]:
    with scarce(where):
        return trained(**NORMALIZED)


def after(n: int, act: Callable[[], bool], rank: int = 1) -> Callable[[], bool]:
    """Return a `stop` with which one process acts when it is asked for the n-th time."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return rank == RANK and asked >= n and act()

    return stop


def interrupt() -> bool:
    os.kill(os.getpid(), signal.SIGINT)
    return False


def broken(n: int) -> Callable[[], object]:
    """Return a training in which one process fails within the step number n."""
    loss, done = CentroidTargets.loss, 0

    def failing(self: CentroidTargets, batch: Batch) -> Tensor:
        nonlocal done
        done += 1
        if RANK == 1 and done == n:
            raise ArithmeticError("broken")
        return loss(self, batch)

    def work() -> object:
        with patch.object(CentroidTargets, "loss", failing):
            return trained(**NORMALIZED)

    return work


def compared(**params: Any) -> dict[str, Any]:
    params = {("sparse_" if k == "sparse" else k): value for k, value in params.items()}
    alone = trained(together=False, **params) if RANK == 0 else None
    return {"alone": alone, "together": trained(**params)}


# 7 batches an epoch, of 29 rows; `stop` is asked before each.
WORK: dict[str, Callable[[], Any]] = {
    "gradients": gradients,
    **{kind: partial(compared, **params) for kind, params in KINDS.items()},
    "memory forward": lambda: short_of_memory("forward"),
    "memory backward": lambda: short_of_memory("backward"),
    "memory gather": lambda: short_of_memory("gather"),
    "stop": lambda: trained(**NORMALIZED, stop=after(18, lambda: True)),
    "stop early": lambda: raised(lambda: trained(**NORMALIZED, stop=after(3, lambda: True))),
    "interrupt": lambda: trained(**NORMALIZED, stop=after(18, interrupt)),
    "interrupt early": lambda: raised(lambda: trained(**NORMALIZED, stop=after(3, interrupt))),
    "handler": lambda: signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "failure": lambda: raised(broken(5)),
    "seeds": lambda: raised(lambda: trained(**BOTTLENECK, random_state=RANK)),
    "labels": lambda: raised(lambda: trained(**BOTTLENECK, labels=RANK)),
    "values": lambda: raised(lambda: trained(**BOTTLENECK, values=RANK)),
    "parameters": lambda: raised(lambda: trained(**BOTTLENECK, learning_rate=0.01 + RANK)),
    # After all that, they still understand each other; and nothing else asks for the others.
    "well": lambda: trained(**BOTTLENECK),
    "one alone": lambda: RANK or trained(**BOTTLENECK, together=False)["bits"],
}


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    found = {name: WORK[name]() for name in names}
    Path(folder, f"{RANK}.json").write_text(json.dumps(found), "utf-8")
    dist.destroy_process_group()
