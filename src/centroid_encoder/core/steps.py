"""The steps of a training: operation by operation or, on CUDA, each as one captured graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Steps:
    """Takes steps, each with the rows of a batch.

    A network this small is through with an operation on a GPU before the processor has asked for
    the next. There, what the first step with a batch of some size has done is captured as a graph
    (`torch.cuda.CUDAGraph`), which later steps of that size ask for at once. All but the numbers of
    the rows has to be where it was: parameters, the optimiser's state and its rate.

    Parameters
    ----------
    gather
        Makes the inputs of rows, given their numbers.
    gradients
        Leaves the gradients of a batch with the parameters, given its rows and its inputs, and
        returns its loss.
    follow
        Takes a step along them.
    noise
        What `gather` draws from, on the device.
    fixed
        Whether gathering takes the same operations each time, whichever rows they are. It is then
        part of the graph.
    """

    def __init__(
        self,
        gather: Callable[[Tensor], Tensor],
        gradients: Callable[[Tensor, Tensor], Tensor],
        follow: Callable[[], None],
        noise: torch.Generator,
        *,
        fixed: bool,
    ) -> None:
        self._gather, self._gradients, self._follow = gather, gradients, follow
        self._noise, self._fixed = noise, fixed
        self._captures = noise.device.type == "cuda"
        self._captured: dict[torch.Size, _Captured | None] = {}
        self._pool: Any = None

    def __call__(self, rows: Tensor) -> Tensor:
        """Take a step with (b,) or (K, b) rows, and return their loss before it."""
        if not self._captures:
            return self._step(rows, self._gather(rows))
        if rows.shape not in self._captured:
            # The first step of a shape also makes what lasts: state of the optimiser, workspaces.
            self._captured[rows.shape] = None
            return self._step(rows, self._gather(rows))
        inputs = None if self._fixed else self._gather(rows)
        captured = self._captured[rows.shape] or self._capture(rows, inputs)
        if captured is None:
            return self._step(rows, self._gather(rows) if inputs is None else inputs)
        return captured(rows, inputs)

    def _step(self, rows: Tensor, inputs: Tensor) -> Tensor:
        loss = self._gradients(rows, inputs)
        self._follow()
        return loss

    def _capture(self, rows: Tensor, inputs: Tensor | None) -> _Captured | None:
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        # The graph reads them from where these are.
        rows, inputs = rows.clone(), None if inputs is None else inputs.clone()

        def step() -> Tensor:
            return self._step(rows, self._gather(rows) if inputs is None else inputs)

        try:
            captured = _Captured(step, rows, inputs, self._noise, self._pool)
        except RuntimeError:
            # Too little memory for it, or an objective that asks the device for a number.
            self._captures = False
            self._captured.clear()
            return None
        self._captured[rows.shape] = captured
        return captured


class _Captured:
    """A step with batches of one shape, as a graph."""

    def __init__(
        self,
        step: Callable[[], Tensor],
        rows: Tensor,
        inputs: Tensor | None,
        noise: torch.Generator,
        pool: Any,
    ) -> None:
        self._rows, self._inputs = rows, inputs
        self._graph = torch.cuda.CUDAGraph()
        self._graph.register_generator_state(noise)
        # Other threads, such as one that draws a map meanwhile, may do as they like.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._loss = step()

    def __call__(self, rows: Tensor, inputs: Tensor | None) -> Tensor:
        self._rows.copy_(rows)
        if self._inputs is not None and inputs is not None:
            self._inputs.copy_(inputs)
        self._graph.replay()
        return self._loss
