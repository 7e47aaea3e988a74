"""Principal axes of rows, found where the rows are."""

from __future__ import annotations

import torch
from torch import Tensor

N_MORE = 10
"""Directions in the search beyond the axes that are wanted."""


def principal_axes(
    inputs: Tensor, n_axes: int, n_iterations: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the leading right singular vectors of (n, k) inputs, the same each time.

    By the randomised search of Halko, Martinsson & Tropp (2011, algorithm 4.4), with a random
    generator of its own.

    Parameters
    ----------
    inputs
        (n, k) rows.
    n_axes
        How many, at most n and k.
    n_iterations
        Power iterations: with few of them, the last of many axes may be other directions.

    Returns
    -------
    axes
        (n_axes, k) orthonormal directions, where the inputs are.
    values
        (n_axes,) singular values, the largest first.
    left
        (n, n_axes) left singular vectors.
    """
    n_sought = min(n_axes + N_MORE, *inputs.shape)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(inputs.shape[1], n_sought, generator=generator, dtype=inputs.dtype)
    found = inputs @ start.to(inputs.device)
    for _ in range(n_iterations):
        found, _ = torch.linalg.qr(found)
        found, _ = torch.linalg.qr(inputs.T @ found)
        found = inputs @ found
    found, _ = torch.linalg.qr(found)
    left, values, axes = torch.linalg.svd(found.T @ inputs, full_matrices=False)
    return axes[:n_axes].contiguous(), values[:n_axes], found @ left[:, :n_axes]
