"""Optimiser, learning rate, and steps of a training as CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

Optimizer = Literal["adamw", "amsgrad"]
Schedule = Literal["one_cycle", "constant"]


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of `train`. Each field is the parameter of `CentroidEncoder` of the same name."""

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
    """Share of a one-cycle schedule in which the learning rate rises."""
    dropout: float = 0.0


class Adam:
    """AdamW and AMSGrad by torch's functional interface.

    The first instance of ``torch.optim.AdamW`` in a process imports torch's compiler, which takes
    more than a second, and each of its steps takes a third longer.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], config: TrainingConfig) -> None:
        self._parameters, self._config = parameters, config
        # A tensor, because a CUDA graph reads the rate from the device.
        self.learning_rate = torch.full((), config.learning_rate, device=parameters[0].device)
        n_moments = 3 if config.optimizer == "amsgrad" else 2
        self._counts = [torch.zeros((), device=p.device) for p in parameters]
        self._moments = [[torch.zeros_like(p) for p in parameters] for _ in range(n_moments)]

    @torch.no_grad()
    def step(self, gradients: Iterable[Tensor]) -> None:
        """Take a step along the gradients of the parameters."""
        config = self._config
        mean, square, *largest = self._moments
        # Adam's own weight decay is the paper program's penalty ½·λ·Σ‖θ‖² on the loss.
        function = adamw if config.optimizer == "adamw" else adam
        function(
            cast(list[Tensor], self._parameters),
            # A fused step needs them in the layout of the parameters.
            [gradient.contiguous() for gradient in gradients],
            mean,
            square,
            largest[0] if largest else [],
            self._counts,
            fused=True,
            amsgrad=bool(largest),
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=config.weight_decay,
            eps=1e-8,
            maximize=False,
        )


def learning_rate_share(progress: float, config: TrainingConfig) -> float:
    """Share of the peak learning rate after the share `progress` ∈ [0, 1) of a stage.

    ``"one_cycle"`` rises and falls along half cosines (Smith & Topin 2019).
    """
    if config.schedule == "constant":
        return 1.0
    if progress < config.warmup:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * progress / config.warmup)) / 2
    return (1 + math.cos(math.pi * (progress - config.warmup) / (1 - config.warmup))) / 2


def captured(
    step: Callable[[Tensor], Tensor], noise: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Return a training step that runs as a CUDA graph on a GPU, and as it is elsewhere.

    Networks this small finish an operation on a GPU before the processor has launched the next one.
    The second step with batches of some size is captured as a CUDA graph, which
    later steps of that size launch at once. A graph requires that everything but the row numbers
    stays in its place in memory: inputs, parameters, the optimiser's state and its learning rate.

    `step` takes a step with (b,) or (K, b) rows, and returns its loss. If it cannot be captured,
    for lack of memory or because an objective copies a number from the device, it runs as it is.
    `noise` is its random generator, on the device of the training.
    """
    if noise.device.type != "cuda":
        return step
    graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None] = {}
    pool = torch.cuda.graph_pool_handle()
    possible = True

    def replay(rows: Tensor) -> Tensor:
        nonlocal possible
        if not possible or rows.shape not in graphs:
            # The first step of a size also allocates what stays: moments, workspaces.
            graphs[rows.shape] = None
            return step(rows)
        if graphs[rows.shape] is None:
            graph, own = torch.cuda.CUDAGraph(), rows.clone()
            graph.register_generator_state(noise)
            try:
                # Other threads may use the device meanwhile.
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
