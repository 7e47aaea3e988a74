"""Section 7 of the paper: what a centroid-encoder does to the variance that two components keep.

    python -m benchmarks.variance

Digits 0 and 1 lie apart in the plane of two principal components, 4 and 9 do not. A
centroid-encoder without bottleneck, 784 → 784 (tanh) → 784, brings most of the variance of 4 and 9
into two dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from benchmarks import datasets
from centroid_encoder.core.network import Network
from centroid_encoder.core.objective import CentroidTargets
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.problem import Problem
from centroid_encoder.core.rows import class_means
from centroid_encoder.core.training import train

N_EPOCHS = 25
PAPER = {(0, 1): (41, None), (4, 9): (22, 89)}
"""Percent of the variance of training images before and after, where the paper has it."""


def kept(points: NDArray[Any]) -> float:
    """Percent of the variance that two principal components keep."""
    pca = PCA(2, svd_solver="randomized", random_state=0).fit(points)
    return 100 * float(pca.explained_variance_ratio_.sum())


def through_network(X: NDArray[Any], codes: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
    """Train 784 → 784 → 784; return the standardised images, the hidden layer and the output."""
    device = torch.device("cpu")
    problem = Problem.of(X, codes, device, scale="global", clip=None, max_features=None)
    data, rows = problem.data, problem.data.rows
    everything = data.train
    centroids = class_means(rows, everything, data.labels, int(problem.codes.max()) + 1)
    targets = CentroidTargets.fit(centroids, "full", device)
    generator = torch.Generator().manual_seed(0)
    # The first stage of pre-training is this very network.
    network = Network(rows.n_inputs, (rows.n_inputs,), 2, targets.n_outputs, "tanh", generator)
    config = TrainingConfig(
        512, 1, pretrain_epochs=N_EPOCHS, optimizer="amsgrad", learning_rate=8e-4,
        schedule="constant", weight_decay=2e-5,
    )  # fmt: skip
    for report in train(network, targets, data, config, generator):
        if report.step == N_EPOCHS:
            break
    with torch.no_grad():
        hidden = network.encode(rows.gather(everything), depth=0)
        output = network.decode(hidden, depth=0)
    return rows.gather(everything).numpy(), hidden.numpy(), output.numpy()


def main() -> None:
    """Print the table."""
    (X, y), _ = datasets.mnist()
    for pair, (before, after) in PAPER.items():
        chosen = np.isin(y, pair)
        images, hidden, output = through_network(X[chosen], np.searchsorted(pair, y[chosen]))
        print(
            f"digits {pair[0]} and {pair[1]}: two components keep {kept(images):.1f} % of the "
            f"variance of the images (paper {before} %), {kept(hidden):.1f} % of that of the "
            f"hidden layer, {kept(output):.1f} % of that of the output"
            + (f" (paper {after} %)" if after else "")
        )


if __name__ == "__main__":
    main()
