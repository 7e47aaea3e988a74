"""Optimiser, learning rate, and training steps as CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

Optimizer = Literal["adamw", "amsgrad"]
Schedule = Literal["one_cycle", "constant"]


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of a `Run`: the parameters of `CentroidEncoder` with these names, and `warmup`."""

    batch_size: int
    max_epochs: int
    pretrain_epochs: int = 0
    merge_epochs: int = 0
    patience: int | None = None
    optimizer: Optimizer = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Schedule = "one_cycle"
    warmup: float = 0.3
    """Share of a one-cycle schedule during which the learning rate rises."""
    dropout: float = 0.0


class Adam:
    """AdamW and AMSGrad through torch's functional interface.

    The first instance of ``torch.optim.AdamW`` imports torch's compiler, which takes more than a
    second, and each of its steps takes a third longer.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], config: TrainingConfig) -> None:
        self._parameters, is_amsgrad = parameters, config.optimizer == "amsgrad"
        # A tensor, because a CUDA graph reads the learning rate from the device.
        self.learning_rate = torch.full((), config.learning_rate, device=parameters[0].device)
        mean, square = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        largest = [torch.zeros_like(p) for p in parameters if is_amsgrad]
        self._state = mean, square, largest, [torch.zeros((), device=p.device) for p in parameters]
        # The weight decay of `adam` is the penalty ½·λ·Σ‖θ‖² in the loss of the paper's program.
        function: Any = adam if is_amsgrad else adamw
        rates = {"lr": self.learning_rate, "weight_decay": config.weight_decay}
        constants = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "maximize": False, "fused": True}
        self._update = partial(function, amsgrad=is_amsgrad, **rates, **constants)

    @torch.no_grad()
    def step(self, gradients: Iterable[Tensor]) -> None:
        """Change the parameters by one step, given their gradients."""
        # A fused step needs gradients with the memory layout of the parameters.
        own = [gradient.contiguous() for gradient in gradients]
        self._update(self._parameters, own, *self._state)


def learning_rate_share(progress: float, config: TrainingConfig) -> float:
    """Learning rate relative to its largest value, after the share `progress` ∈ [0, 1) of a stage.

    With ``"one_cycle"`` it rises and falls along half cosines (Smith & Topin 2019).
    """
    if config.schedule == "constant":
        return 1.0
    if progress < config.warmup:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * progress / config.warmup)) / 2
    return (1 + math.cos(math.pi * (progress - config.warmup) / (1 - config.warmup))) / 2


def captured(
    step: Callable[[Tensor], Tensor], noise: Sequence[torch.Generator]
) -> Callable[[Tensor], Tensor]:
    """Return a training step that runs as a CUDA graph on a GPU, and unchanged elsewhere.

    A GPU finishes an operation of such small networks before the processor has launched the next
    one. The second step with batches of some size is captured as a CUDA graph, and later steps of
    that size launch the whole graph at once. All tensors except the row numbers must keep their
    places in memory: inputs, parameters, and the state and learning rate of the optimiser.

    `step` trains on (b,) or (K, b) rows and returns the loss. If it cannot be captured, because
    memory is short or an objective copies a number from the device, it runs unchanged. `noise` are
    its random generators, on the device of the training.
    """
    if noise[0].device.type != "cuda":
        return step
    graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None] = {}
    pool = torch.cuda.graph_pool_handle()
    possible = True

    def replay(rows: Tensor) -> Tensor:
        nonlocal possible
        if not possible or rows.shape not in graphs:
            # The first step of a size also allocates lasting memory: moments and workspaces.
            graphs[rows.shape] = None
            return step(rows)
        if graphs[rows.shape] is None:
            graph, own = torch.cuda.CUDAGraph(), rows.clone()
            for generator in noise:
                graph.register_generator_state(generator)
            try:
                # Other threads may use the device at the same time.
                with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                    loss = step(own)
            except RuntimeError:
                possible = False
                graphs.clear()
                return step(rows)
            graphs[rows.shape] = graph, own, loss
        graph, own, loss = graphs[rows.shape]  # type: ignore[misc]
        own.copy_(rows)
        graph.replay()
        return loss

    return replay
