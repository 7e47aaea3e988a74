"""Rivals with losses of contrastive and metric learning, from libraries that offer them.

The codes of the papers lie on a sphere, which is a circle in two dimensions. Here the losses
compare codes by their distance in the plane, so that the codes can fill the plane.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from benchmarks.rivals.networks import NetworkRival
from benchmarks.rivals.objectives import NoDecision
from benchmarks.rivals.selection import Array, Labels
from centroid_encoder.core.network import Network
from centroid_encoder.core.targets import Batch, Objective
from centroid_encoder.core.train import TrainingData


class LibraryLoss(NoDecision):
    """A loss of `pytorch_metric_learning`: a function of codes and labels."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean loss of the batch."""
        value: Tensor = self.function(batch.code, batch.labels)
        return value


@dataclass(eq=False, repr=False, kw_only=True)
class SupervisedContrastive(NetworkRival):
    """Supervised contrastive learning (Khosla et al. 2020), NeurIPS 33.

    Parameters
    ----------
    temperature
        Divisor of the squared distances.
    """

    temperature: float = 1.0

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        from pytorch_metric_learning.distances import LpDistance
        from pytorch_metric_learning.losses import SupConLoss

        distance = LpDistance(normalize_embeddings=False, power=2)
        return LibraryLoss(SupConLoss(self.temperature, distance=distance))


@dataclass(eq=False, repr=False, kw_only=True)
class ProxyAnchor(NetworkRival):
    """Proxy anchor loss (Kim et al. 2020), CVPR: each class has a proxy, which is trained as well.

    Parameters
    ----------
    margin, sharpness
        δ and α of the paper, with the values of the paper.
    """

    margin: float = 0.1
    sharpness: float = 32.0

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        from pytorch_metric_learning.distances import LpDistance
        from pytorch_metric_learning.losses import ProxyAnchorLoss

        distance = LpDistance(normalize_embeddings=False)
        n_classes = int(data.labels.max()) + 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            loss = ProxyAnchorLoss(
                n_classes, self.n_components, self.margin, self.sharpness, distance=distance
            )
        # The optimiser trains only parameters of the network, so the proxies become such.
        network.register_parameter("proxies", loss.proxies)
        return LibraryLoss(loss)


class Cebra(BaseEstimator):
    """CEBRA with discrete labels (Schneider, Lee & Mathis 2023), Nature 617.

    The library `cebra` trains 5,000 steps of 512 samples, with its network for single samples,
    codes that are not normalised, and Euclidean distances.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Seed.
    """

    n_steps = 5_000

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Train the network."""
        with warnings.catch_warnings():
            # The library uses a deprecated part of PyTorch.
            warnings.simplefilter("ignore", DeprecationWarning)
            from cebra import CEBRA  # slow to import
        # The library uses the global random generators.
        torch.manual_seed(self.random_state or 0)
        np.random.seed(self.random_state or 0)  # noqa: NPY002
        self.model_ = CEBRA(
            model_architecture="offset1-model-mse",
            distance="euclidean",
            output_dimension=self.n_components,
            max_iterations=self.n_steps,
            batch_size=512,
            device="cpu",
        )
        codes = np.unique(y, return_inverse=True)[1]
        self.model_.fit(np.asarray(X, dtype=np.float32), codes)
        return self

    def transform(self, X: Array) -> Array:
        """Embed samples."""
        return np.asarray(self.model_.transform(np.asarray(X, dtype=np.float32)), dtype=np.float64)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit and embed the training data."""
        return self.fit(X, y).transform(X)
