"""CUDA graphs of training steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def captured(
    step: Callable[[Tensor], Tensor], noise: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Return a training step that runs as a CUDA graph on a GPU, and as it is elsewhere.

    Networks this small finish an operation on a GPU before the processor has launched the next one.
    The second step with batches of some size is captured as a graph (`torch.cuda.CUDAGraph`), which
    later steps of that size launch at once. A graph requires that everything but the row numbers
    stays in its place in memory: inputs, parameters, the optimiser's state and its learning rate.

    Parameters
    ----------
    step
        Takes a step with (b,) or (K, b) rows, and returns its loss. If it cannot be captured, for
        lack of memory or because an objective copies a number from the device, it runs as it is.
    noise
        Random generator of the step; its device is that of the training.
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
