"""Rivals that train the `Network` of this project, each with the loss of its paper.

Encoder, optimiser and schedule are those of `CentroidEncoder`, so the comparison is one of losses.
The initial weights are random, also where a paper starts from a stack of restricted Boltzmann
machines.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans

from benchmarks.rivals.objectives import (
    MCML,
    NCA,
    TSNE,
    Discriminant,
    ExemplarMCML,
    Reconstruction,
    RegularizedNCA,
)
from centroid_encoder.core.inputs import fit_standardizer
from centroid_encoder.core.matrix import row_chunks
from centroid_encoder.core.network import Network
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.settings import input_dropout
from centroid_encoder.core.targets import Objective
from centroid_encoder.core.train import Run, TrainingData

CLIP = 10.0
"""Largest absolute z-score, as in `CentroidEncoder`."""
N_FEW = 3_000
"""Number of samples up to which the number of steps is ``n_steps``."""
MAX_FACTOR = 4.0
"""Largest number of steps, relative to ``n_steps``."""


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkRival(TransformerMixin, BaseEstimator):
    """Base of the rivals: it scales the data, builds the network and trains it.

    Features are centred and divided by one number.

    Parameters
    ----------
    n_components
        Width of the code, which is the embedding.
    hidden
        Widths of the encoder's hidden layers.
    dropout
        Input dropout; None gives that of `CentroidEncoder`, `core.settings.input_dropout`.
    n_steps
        Number of training steps for up to 3,000 samples. It grows with the square root of the
        number of samples, up to four times as many.
    batch_size
        Samples in a batch; the losses compare the samples of a batch with each other.
    learning_rate, weight_decay
        As in `CentroidEncoder`, with the same defaults unless a rival is better with others.
    random_state
        Seed of all random numbers.
    """

    n_components: int = 2
    hidden: tuple[int, ...] = (500, 250, 125)
    dropout: float | None = None
    n_steps: int = 1000
    batch_size: int = 500
    learning_rate: float = 3e-3
    weight_decay: float = 1.0
    random_state: int = 0

    @abstractmethod
    def _objective(self, data: TrainingData, network: Network) -> Objective:
        """Return the loss for the data and the network."""

    def fit(self, X: NDArray[Any], y: NDArray[Any] | None = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X
            (n, d) data.
        y
            (n,) class labels; unsupervised rivals ignore them.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C is pressed. `train` itself would return the best state so far, but a benchmark
            has no use for a part of a training.
        """
        labels = np.zeros(len(X), dtype=np.intp)
        if y is not None:
            _, labels = np.unique(y, return_inverse=True)
        generator = torch.Generator().manual_seed(self.random_state)
        self.standardizer_, *_ = fit_standardizer(
            X, np.arange(len(X)), labels, "global", CLIP, max_features=None
        )
        index = torch.arange(len(X))
        data = TrainingData(self.standardizer_(X), torch.from_numpy(labels), index, index[:0])
        # An objective may use the encoder, so the network exists before it. Only some objectives
        # need a decoder.
        network = self._network(data, 0, generator)
        objective = self._objective(data, network)
        if objective.n_outputs:
            network.decoder = self._network(data, objective.n_outputs, generator).decoder
        dropout = self.dropout
        if dropout is None:
            dropout = input_dropout(data.inputs.shape[1], len(data.labels))
        n_batches = math.ceil(len(X) / self.batch_size)
        n_steps = self.n_steps * min(MAX_FACTOR, max(1.0, math.sqrt(len(X) / N_FEW)))
        config = TrainingConfig(
            batch_size=self.batch_size,
            max_epochs=math.ceil(n_steps / n_batches),
            optimizer="adamw",
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule="one_cycle",
            dropout=dropout,
        )
        run = Run(network, objective, data, config, generator).start()
        if run.interrupted:
            raise KeyboardInterrupt
        self.losses_ = [report.loss for report in run.reports]
        self.network_ = network
        return self

    @torch.no_grad()
    def transform(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Return the (n, n_components) embedding of (n, d) samples."""
        codes = [self.network_.encode(self.standardizer_(chunk)) for _, chunk in row_chunks(X)]
        return np.asarray(torch.cat(codes), dtype=np.float32)

    def _network(self, data: TrainingData, n_outputs: int, generator: torch.Generator) -> Network:
        n_inputs = data.inputs.shape[1]
        return Network(n_inputs, self.hidden, self.n_components, n_outputs, "relu", generator)


@dataclass(eq=False, repr=False, kw_only=True)
class Autoencoder(NetworkRival):
    """Deep autoencoder (Hinton & Salakhutdinov 2006): ‖x − f(x)‖², unsupervised."""

    # The loss does not compare pairs, so small batches allow more steps in the same time.
    batch_size: int = 64
    n_steps: int = 3000
    weight_decay: float = 0.1

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return Reconstruction(data.inputs)


@dataclass(eq=False, repr=False, kw_only=True)
class NonlinearNCA(NetworkRival):
    """Nonlinear NCA (Salakhutdinov & Hinton 2007), regularised by an autoencoder.

    Parameters
    ----------
    nca_weight
        λ of the paper; the weight of the reconstruction is 1 − λ.
    """

    # The loss does not bound distances: with less weight decay, the code grows until the gradient
    # is 0.
    learning_rate: float = 2e-3
    weight_decay: float = 3.0
    nca_weight: float = 0.99

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return RegularizedNCA(data.inputs, self.nca_weight)


@dataclass(eq=False, repr=False, kw_only=True)
class DeepGaussianNCA(NetworkRival):
    """dG-NCA (Min et al. 2010): NCA of the code with a Gaussian kernel."""

    # The loss does not bound distances: with less weight decay, the code grows until the gradient
    # is 0.
    learning_rate: float = 2e-3
    weight_decay: float = 3.0

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return NCA(None)


@dataclass(eq=False, repr=False, kw_only=True)
class DeepTNCA(NetworkRival):
    """dt-NCA (Min et al. 2010): NCA of the code with Student's t."""

    # The loss does not bound distances: with less weight decay, the code grows until the gradient
    # is 0.
    learning_rate: float = 2e-3
    weight_decay: float = 3.0

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return NCA(_dof(self.n_components))


@dataclass(eq=False, repr=False, kw_only=True)
class DeepGaussianMCML(NetworkRival):
    """dG-MCML (Min et al. 2010): MCML of the code with a Gaussian kernel."""

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return MCML(None)


@dataclass(eq=False, repr=False, kw_only=True)
class LinearMCML(DeepGaussianMCML):
    """MCML (Globerson & Roweis 2005): the objective of dG-MCML for a linear projection.

    The paper solves a convex problem for a full metric, and projects on the leading eigenvectors of
    the metric. Here the projection of rank two is optimised directly.
    """

    hidden: tuple[int, ...] = ()
    dropout: float | None = 0.0
    weight_decay: float = 0.0


@dataclass(eq=False, repr=False, kw_only=True)
class DeepTMCML(NetworkRival):
    """dt-MCML (Min et al. 2010): MCML of the code with Student's t."""

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return MCML(_dof(self.n_components))


@dataclass(eq=False, repr=False, kw_only=True)
class HOPE(NetworkRival):
    """Exemplar-centred supervised embedding (Min, Guo & Song 2017).

    The network of this project replaces the paper's shallow map of high-order feature products. The
    objective and the exemplars are those of the paper; the exemplars of a class are its k-means
    centers in input space.

    Parameters
    ----------
    n_exemplars
        Exemplars of each class, at most as many as it has distinct samples.
    """

    n_exemplars: int = 10

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        exemplars, labels = [], []
        for label in data.labels.unique().tolist():
            X = data.inputs[data.labels == label].cpu().numpy()
            # Equal samples can have only one center.
            n_exemplars = min(self.n_exemplars, len(np.unique(X, axis=0)))
            k_means = KMeans(n_exemplars, random_state=self.random_state).fit(X)
            exemplars.append(k_means.cluster_centers_)
            labels += [label] * n_exemplars
        device = data.labels.device
        return ExemplarMCML(
            torch.from_numpy(np.concatenate(exemplars)).to(device),
            torch.tensor(labels, device=device),
            network.encode,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class ParametricTSNE(NetworkRival):
    """Parametric t-SNE (van der Maaten 2009), unsupervised.

    Parameters
    ----------
    perplexity
        Effective number of neighbours within a batch.
    """

    n_steps: int = 2000
    perplexity: float = 30.0

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return TSNE(data.inputs, self.perplexity, _dof(self.n_components))


@dataclass(eq=False, repr=False, kw_only=True)
class GerDA(NetworkRival):
    """Generalised discriminant analysis (Stuhlsatz, Lippel & Zielke 2012)."""

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return Discriminant()


def _dof(n_components: int) -> float:
    """Return the degrees of freedom of Student's t as in the papers of van der Maaten and Min."""
    return float(max(1, n_components - 1))
