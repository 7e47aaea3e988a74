"""How a training takes its steps: optimiser, learning rate, threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from centroid_encoder.core.network import Network

Optimizer = Literal["adamw", "adam", "amsgrad"]
Schedule = Literal["one_cycle", "constant"]

MIN_FLOPS_PER_THREAD = 5e7
"""Below this much arithmetic per batch, a further thread costs more than it brings."""


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


def optimizer_of(
    parameters: list[torch.nn.Parameter], config: TrainingConfig
) -> torch.optim.Optimizer:
    """Return a fresh optimiser of some parameters."""
    # Adam's own weight decay is the paper program's penalty ½·λ·Σ‖θ‖² on the loss.
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(
        parameters,
        config.learning_rate,
        weight_decay=config.weight_decay,
        amsgrad=config.optimizer == "amsgrad",
        fused=True,
    )


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
def suitable_numerics(network: Network, batch_size: int) -> Iterator[None]:
    """Set torch's threads to suit the problem and flush denormals; restore both afterwards.

    Small networks run several times slower on many threads than on one, and moments of the
    optimiser that decay into denormal numbers slow the arithmetic down on some processors.
    """
    n_weights = sum(parameter.numel() for parameter in network.parameters())
    n_threads = torch.get_num_threads()
    # A multiply and an add per weight: forward, and backward for inputs and for weights.
    wanted = int(6 * n_weights * batch_size / MIN_FLOPS_PER_THREAD)
    tiny = torch.tensor(torch.finfo(torch.float32).tiny)
    flushed = float(tiny * 0.5) == 0
    torch.set_num_threads(max(1, min(n_threads, wanted)))
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(n_threads)
