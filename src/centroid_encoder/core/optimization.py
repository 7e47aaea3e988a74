"""How a training takes its steps: optimiser and learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

Optimizer = Literal["adamw", "adam", "amsgrad"]
Schedule = Literal["one_cycle", "constant"]


@dataclass(frozen=True)
class TrainingConfig:
    """How to train. The meaning of each field is that of `CentroidEncoder`'s parameter."""

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
    """The three of them, by torch's own functions for a step.

    Torch's classes are not asked: the first of a process that is made imports torch's compiler,
    which takes a second, and each of their steps costs a third more.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], config: TrainingConfig) -> None:
        self._parameters, self._config = parameters, config
        device = parameters[0].device
        # A graph that was captured on the device reads the rate there.
        self._rate = torch.zeros((), device=device) if device.type == "cuda" else None
        self.learning_rate = config.learning_rate
        # Of each parameter the number of its steps, and the moments of its gradient.
        self._kept: dict[torch.nn.Parameter, list[Tensor]] = {}

    @property
    def learning_rate(self) -> float:
        """Length of a step."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._learning_rate = value
        if self._rate is not None:
            self._rate.fill_(value)

    @torch.no_grad()
    def step(self) -> None:
        """Take a step with the parameters that have a gradient."""
        config = self._config
        moved = [parameter for parameter in self._parameters if parameter.grad is not None]
        amsgrad = config.optimizer == "amsgrad"
        for parameter in moved:
            if parameter not in self._kept:
                count = torch.zeros((), dtype=torch.float32, device=parameter.device)
                moments = [torch.zeros_like(parameter) for _ in range(2 + amsgrad)]
                self._kept[parameter] = [count, *moments]
        kept = [self._kept[parameter] for parameter in moved]
        # Adam's own weight decay is the paper program's penalty ½·λ·Σ‖θ‖² on the loss.
        function = adamw if config.optimizer == "adamw" else adam
        function(
            cast(list[Tensor], moved),
            [cast(Tensor, parameter.grad) for parameter in moved],
            [one[1] for one in kept],
            [one[2] for one in kept],
            [one[3] for one in kept if amsgrad],
            [one[0] for one in kept],
            fused=True,
            amsgrad=amsgrad,
            beta1=0.9,
            beta2=0.999,
            lr=self._learning_rate if self._rate is None else self._rate,
            weight_decay=config.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None


def learning_rate_share(progress: float, config: TrainingConfig) -> float:
    """Share of the peak learning rate when `progress` ∈ [0, 1) of a stage is over.

    ``"one_cycle"`` rises and falls along half cosines (Smith & Topin 2019).
    """
    if config.schedule == "constant":
        return 1.0
    if progress < config.warmup:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * progress / config.warmup)) / 2
    return (1 + math.cos(math.pi * (progress - config.warmup) / (1 - config.warmup))) / 2


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero in this thread, and restore its setting afterwards.

    Moments of the optimiser decay into them, and some processors compute slowly with them.
    """
    tiny = torch.tensor(torch.finfo(torch.float32).tiny)
    flushed = float(tiny * 0.5) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
