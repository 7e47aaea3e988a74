"""Section 7 of the paper: share of the variance in two principal components.

    python -m benchmarks.variance

Two principal components separate the digits 0 and 1, but not 4 and 9. A centroid-encoder without
bottleneck, 784 → 784 (tanh) → 784, maps 4 and 9 so that two principal components have most of the
variance. Prints the percentages for the images, the hidden layer and the output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from benchmarks import datasets
from centroid_encoder.core.inputs import fit_standardizer
from centroid_encoder.core.network import Network
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.core.targets import CentroidTargets
from centroid_encoder.core.train import Run, TrainingData

N_EPOCHS = 25
PAPER = {(0, 1): (41, None), (4, 9): (22, 89)}
"""Pairs of digits, and the paper's percentages for images and output (None: not reported)."""


def kept(points: NDArray[Any]) -> float:
    """Return the percentage of the variance in the first two principal components."""
    pca = PCA(2, svd_solver="randomized", random_state=0).fit(points)
    return 100 * float(pca.explained_variance_ratio_.sum())


Layers = Callable[[NDArray[Any]], tuple[NDArray[Any], ...]]
"""Function of (n, d) images: the standardised images, the hidden layer and the output, (n, d)."""


def trained(X: NDArray[Any], codes: NDArray[np.intp]) -> Layers:
    """Train d → d → d on (n, d) images and their (n,) class indices."""
    device = torch.device("cpu")
    index = np.arange(len(X))
    standardizer, *_ = fit_standardizer(X, index, codes, "global", np.inf, max_features=None)
    inputs, rows = standardizer(X), torch.from_numpy(index)
    means = np.stack([inputs[codes == j].mean(dim=0) for j in np.unique(codes)])
    targets = CentroidTargets.fit(means, "full", device)
    generator = torch.Generator().manual_seed(0)
    n_inputs = inputs.shape[1]
    # The first stage of pre-training trains only the first and the last layer, which are this
    # network. The training stops after this stage.
    network = Network(n_inputs, (n_inputs,), 2, targets.n_outputs, "tanh", generator)
    config = TrainingConfig(
        512, 1, pretrain_epochs=N_EPOCHS, optimizer="amsgrad", learning_rate=8e-4,
        schedule="constant", weight_decay=2e-5,
    )  # fmt: skip
    data = TrainingData(inputs, torch.from_numpy(codes), rows, rows[:0])
    with suppress(StoppedTooEarly):
        Run(
            network, targets, data, config, generator,
            callback=lambda report: report is not None and report.step == N_EPOCHS,
        ).start()  # fmt: skip

    @torch.no_grad()
    def layers(images: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        z = standardizer(images)
        hidden = network.encode(z, depth=0)
        return z.numpy(), hidden.numpy(), network.decode(hidden, depth=0).numpy()

    return layers


def main() -> None:
    """Print the percentages of both pairs of digits."""
    (X, y), _ = datasets.mnist()
    for pair, (before, after) in PAPER.items():
        chosen = np.isin(y, pair)
        layers = trained(X[chosen], np.searchsorted(pair, y[chosen]))
        images, hidden, output = layers(X[chosen])
        print(
            f"digits {pair[0]} and {pair[1]}: two principal components have {kept(images):.1f} % "
            f"of the variance of the images (paper {before} %), {kept(hidden):.1f} % in the "
            f"hidden layer, {kept(output):.1f} % in the output"
            + (f" (paper {after} %)" if after else "")
        )


if __name__ == "__main__":
    main()
