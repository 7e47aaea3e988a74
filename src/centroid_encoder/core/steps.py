"""The steps of a training: operation by operation or, on CUDA, each as one captured graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Gradients = Callable[[Tensor, Tensor], Tensor]
"""Leaves the gradients of a batch with the parameters, given its rows and its inputs, and returns
its loss."""


class Steps:
    """Takes steps, each with the rows of a batch and with the inputs that they are.

    A network this small is through with an operation on a GPU before the processor has asked for
    the next. There, what the first step with a batch of some size has done is captured as a graph
    (`torch.cuda.CUDAGraph`), which later steps of that size ask for at once. All but the inputs has
    to be where it was: parameters, the optimiser's state and its rate.

    Parameters
    ----------
    gradients
        Leaves gradients with the parameters.
    follow
        Takes a step along them.
    """

    def __init__(self, gradients: Gradients, follow: Callable[[], None]) -> None:
        self._gradients, self._follow = gradients, follow
        self._captures = torch.cuda.is_available()
        self._captured: dict[torch.Size, _Captured | None] = {}
        self._pool: Any = None

    def __call__(self, rows: Tensor, inputs: Tensor) -> Tensor:
        """Return the loss of (b,) or (K, b) rows, whose inputs are (…, b, k), before the step."""
        if not (self._captures and inputs.is_cuda):
            return self._step(rows, inputs)
        if rows.shape not in self._captured:
            # The first step of a shape also makes what lasts: state of the optimiser, workspaces.
            self._captured[rows.shape] = None
            return self._step(rows, inputs)
        captured = self._captured[rows.shape]
        if captured is None:
            captured = self._capture(rows, inputs)
        return self._step(rows, inputs) if captured is None else captured(rows, inputs)

    def _step(self, rows: Tensor, inputs: Tensor) -> Tensor:
        loss = self._gradients(rows, inputs)
        self._follow()
        return loss

    def _capture(self, rows: Tensor, inputs: Tensor) -> _Captured | None:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            captured = _Captured(self._step, rows, inputs, self._pool)
        except RuntimeError:
            # Too little memory for it, or an objective that asks the device for a number.
            self._captures = False
            self._captured.clear()
            return None
        self._captured[rows.shape] = captured
        return captured


class _Captured:
    """A step with batches of one shape, as a graph."""

    def __init__(self, step: Gradients, rows: Tensor, inputs: Tensor, pool: Any) -> None:
        self._rows, self._inputs = rows.clone(), inputs.clone()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads, such as one that draws a map meanwhile, may do as they like.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._loss = step(self._rows, self._inputs)

    def __call__(self, rows: Tensor, inputs: Tensor) -> Tensor:
        self._rows.copy_(rows)
        self._inputs.copy_(inputs)
        self._graph.replay()
        return self._loss
