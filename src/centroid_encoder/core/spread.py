"""Soft targets of unlabelled rows: labels that are spread over a graph of neighbours.

The paper names training with few labels as future work.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import kneighbors_graph
from torch import Tensor

from centroid_encoder.core.features import principal_axes
from centroid_encoder.core.matrix import Codes

MOST = 10_000
"""Largest number of unlabelled rows in a graph."""
N_AXES = 20
N_NEIGHBORS = 15
DAMPING, N_ROUNDS = 0.9, 30
SUREST = 0.8
"""Share of the unlabelled rows that become targets: those with the largest probabilities."""
SHARPNESS = 4
"""Exponent of these probabilities, which are too even after so many rounds."""


def neighbor_graph(z: Tensor) -> sparse.csr_array:
    """(n, n) graph of the nearest neighbours of (n, k) z-scores, along their principal axes."""
    axes, _ = principal_axes(z, N_AXES)
    points = (z @ axes.T).cpu().numpy()
    return sparse.csr_array(kneighbors_graph(points, min(N_NEIGHBORS, len(points) - 1)))


def soft_labels(
    graph: sparse.csr_array, codes: Codes, folds: Codes, n_networks: int, n_classes: int
) -> tuple[Codes, NDArray[np.float32]]:
    """Spread labels over a graph for each network, from the rows that it is trained on.

    `codes` holds the (n,) classes of the rows of the graph, −1 for unlabelled rows, and `folds` the
    network that is not trained on a row. The method is the label spreading of Zhou et al. (2004);
    labels of a class of n labels have the weight 1/√n.

    Returns, for each of K networks, the (K, s) indices of the unlabelled rows whose classes are
    surest, and their (K, s, M) class probabilities.
    """
    graph = sparse.csr_array(graph.maximum(graph.T))
    graph.sort_indices()
    roots = 1 / np.sqrt(np.maximum(graph.sum(axis=1), 1e-12))
    steps = sparse.csr_array(sparse.diags_array(roots) @ graph @ sparse.diags_array(roots))
    steps.sort_indices()  # Sums then do not depend on the storage of the graph.
    unlabeled = np.flatnonzero(codes < 0)
    n_sure = max(1, int(SUREST * len(unlabeled)))
    rows = np.empty((n_networks, n_sure), dtype=np.intp)
    soft = np.empty((n_networks, n_sure, n_classes), dtype=np.float32)
    for k in range(n_networks):
        known = np.flatnonzero((codes >= 0) & (folds != k))
        start = np.zeros((len(codes), n_classes))
        # Otherwise the large classes would win wherever two meet.
        start[known, codes[known]] = 1 / np.sqrt(np.bincount(codes[known])[codes[known]])
        spread = start
        for _ in range(N_ROUNDS):
            spread = DAMPING * (steps @ spread) + (1 - DAMPING) * start
        own = spread[unlabeled]
        # A row that no label reaches has no surest class.
        shares = own / np.maximum(own.sum(axis=1, keepdims=True), 1e-12)
        order = np.sort(np.argsort(-shares.max(axis=1).round(6), kind="stable")[:n_sure])
        rows[k], soft[k] = unlabeled[order], shares[order]
    return rows, soft


def targets(soft: NDArray[np.float32], coordinates: Tensor) -> Tensor:
    """(K, s, r) means of the (M, r) targets of the classes, weighted by sharpened probabilities."""
    sharp = torch.from_numpy(soft).to(coordinates.device) ** SHARPNESS
    return sharp / sharp.sum(dim=-1, keepdim=True).clamp_min(1e-12) @ coordinates
