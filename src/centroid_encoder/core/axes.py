"""Principal axes of rows, found where the rows are."""

from __future__ import annotations

import torch
from torch import Tensor

N_MORE = 10
"""Directions in the search beyond the axes that are wanted."""
N_ITERATIONS = 2
"""Power iterations of the search. With so few, the last of a hundred axes are inexact."""


def principal_axes(inputs: Tensor, n_axes: int) -> tuple[Tensor, Tensor]:
    """Find the leading right singular vectors of (n, k) inputs, the same each time.

    By the randomised search of Halko, Martinsson & Tropp (2011, algorithm 4.3), with a random
    generator of its own.

    Parameters
    ----------
    inputs
        (n, k) rows.
    n_axes
        How many, at most n and k.

    Returns
    -------
    axes
        (n_axes, k) orthonormal directions, where the inputs are.
    values
        (n_axes,) singular values, the largest first.
    """
    n_sought = min(n_axes + N_MORE, *inputs.shape)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(inputs.shape[1], n_sought, generator=generator, dtype=inputs.dtype)
    found = inputs @ start.to(inputs.device)
    for _ in range(N_ITERATIONS):
        found, _ = torch.linalg.qr(inputs.T @ found)
        found = inputs @ found
    found, _ = torch.linalg.qr(found)
    # The singular vectors of a small triangle take a fifth of the time of those of many columns.
    found, triangle = torch.linalg.qr(inputs.T @ found)
    vectors, values, _ = torch.linalg.svd(triangle)
    return (found @ vectors[:, :n_axes]).T.contiguous(), values[:n_axes]
