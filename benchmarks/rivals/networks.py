"""Rivals that are networks: the project's own `Network` and `train`, each with its paper's loss.

Encoder, optimiser and schedule are those of `CentroidEncoder`, so that the comparison is one of
losses. Where a paper starts from a stack of restricted Boltzmann machines, ``pretrain_epochs``
trains an autoencoder layer by layer; with 0, the initial weights are random.
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
from centroid_encoder.checks import resolve_device
from centroid_encoder.core.features import Scale, fit_standardizer
from centroid_encoder.core.matrix import row_chunks
from centroid_encoder.core.network import Activation, Network
from centroid_encoder.core.optimization import Optimizer, Schedule, TrainingConfig
from centroid_encoder.core.targets import Objective
from centroid_encoder.core.train import TrainingData, train
from centroid_encoder.recipes import input_dropout

CLIP = 10.0
"""Largest absolute z-score, as in `CentroidEncoder`."""
FEW = 3_000
"""Samples up to which the number of steps is the smallest."""
MOST = 4.0
"""Largest number of steps, relative to that of `FEW` samples."""
PRETRAIN_BATCH = 256
"""Rows per step while pre-training, which compares no pairs."""


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkRival(TransformerMixin, BaseEstimator):
    """Base of the rivals: scaling, network, training.

    Parameters
    ----------
    n_components
        Width of the code.
    hidden
        Widths of the encoder's hidden layers.
    activation
        Non-linearity of the hidden layers.
    batch_norm
        Whether the encoder's hidden layers are batch-normalised in the training itself.
    scale
        ``"global"`` centres the features and divides all by one number; ``"feature"`` takes
        z-scores; ``"supervised"`` and ``"none"`` as in `CentroidEncoder`.
    dropout
        Input dropout; None takes that of `CentroidEncoder`, `recipes.input_dropout`.
    pretrain_epochs
        Epochs of each layer-wise stage of an autoencoder, and then of all its layers together.
    max_epochs
        Epochs of the training itself; None takes as many as `n_steps` batches need.
    n_steps
        Number of batches to train on of up to 3,000 samples, if `max_epochs` is None; of n it
        grows as √n, up to four times as many.
    batch_size
        Samples that are compared with each other at a time.
    optimizer, schedule, learning_rate, weight_decay
        As in `CentroidEncoder`, with the same defaults unless a rival is better with others.
    random_state
        Seed of everything random.
    device
        ``"auto"`` or a torch device.
    """

    n_components: int = 2
    hidden: tuple[int, ...] = (500, 250, 125)
    activation: Activation = "relu"
    batch_norm: bool = False
    scale: Scale = "global"
    dropout: float | None = None
    pretrain_epochs: int = 0
    max_epochs: int | None = None
    n_steps: int = 1000
    batch_size: int = 500
    optimizer: Optimizer = "adamw"
    schedule: Schedule = "one_cycle"
    learning_rate: float = 3e-3
    weight_decay: float = 1.0
    random_state: int = 0
    device: str = "cpu"

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
            Also if the training loop has a state to keep: a benchmark has no use for half a
            training.
        """
        labels = np.zeros(len(X), dtype=np.intp)
        if y is not None:
            _, labels = np.unique(y, return_inverse=True)
        device = resolve_device(self.device)
        generator = torch.Generator().manual_seed(self.random_state)
        self.standardizer_, *_ = fit_standardizer(
            X, np.arange(len(X)), labels, self.scale, CLIP, max_features=None
        )
        index = torch.arange(len(X), device=device)
        data = TrainingData(
            self.standardizer_(X, device), torch.from_numpy(labels).to(device), index, index[:0]
        )
        pretrained = None
        if self.pretrain_epochs:
            reconstruction = Reconstruction(data.inputs)
            pretrained = self._network(data, reconstruction.n_outputs, generator)
            config = self._config(data, PRETRAIN_BATCH, self.pretrain_epochs, layer_wise=True)
            self._train(pretrained, reconstruction, data, config, generator)
        # The objective may use the encoder; whether a decoder is needed depends on the objective.
        network = self._network(data, 0, generator, batch_norm=self.batch_norm)
        objective = self._objective(data, network)
        if objective.n_outputs:
            network.decoder = self._network(data, objective.n_outputs, generator).decoder
        if pretrained is not None:
            network.encoder.load_state_dict(pretrained.encoder.state_dict())
            if objective.n_outputs:
                network.decoder.load_state_dict(pretrained.decoder.state_dict())
        n_batches = math.ceil(len(X) / self.batch_size)
        n_steps = self.n_steps * min(MOST, max(1.0, math.sqrt(len(X) / FEW)))
        max_epochs = self.max_epochs or math.ceil(n_steps / n_batches)
        config = self._config(data, self.batch_size, max_epochs)
        self.losses_ = self._train(network, objective, data, config, generator)
        network.fold_batch_norm()
        self.network_ = network
        return self

    @torch.no_grad()
    def transform(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Embed (n, d) samples, in the units of the training data."""
        device = next(self.network_.parameters()).device
        codes = [
            self.network_.encode(self.standardizer_(chunk, device)).cpu()
            for _, chunk in row_chunks(X)
        ]
        return np.asarray(torch.cat(codes), dtype=np.float32)

    def _network(
        self,
        data: TrainingData,
        n_outputs: int,
        generator: torch.Generator,
        *,
        batch_norm: bool = False,
    ) -> Network:
        network = Network(
            data.inputs.shape[1],
            self.hidden,
            self.n_components,
            n_outputs,
            self.activation,
            generator,
            batch_norm=batch_norm,
        )
        return network.to(data.inputs.device)

    def _config(
        self, data: TrainingData, batch_size: int, max_epochs: int, *, layer_wise: bool = False
    ) -> TrainingConfig:
        dropout = self.dropout
        if dropout is None:
            dropout = input_dropout(data.inputs.shape[1], data.n_rows)
        return TrainingConfig(
            batch_size=batch_size,
            max_epochs=max_epochs,
            pretrain_epochs=max_epochs if layer_wise else 0,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            dropout=dropout,
        )

    @staticmethod
    def _train(
        network: Network,
        objective: Objective,
        data: TrainingData,
        config: TrainingConfig,
        generator: torch.Generator,
    ) -> list[float]:
        """Train to the end; return the mean loss of every epoch."""
        outcome = train(network, objective, data, config, generator)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return [report.loss for report in outcome.reports]


@dataclass(eq=False, repr=False, kw_only=True)
class Autoencoder(NetworkRival):
    """Deep autoencoder (Hinton & Salakhutdinov 2006): ‖x − f(x)‖², unsupervised.

    `pretrain_epochs` replace the paper's stack of restricted Boltzmann machines.
    """

    # No pairs are compared: small batches allow more steps in the same time.
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

    # The loss bounds no distance: with less weight decay, the code grows until its gradient is 0.
    learning_rate: float = 2e-3
    weight_decay: float = 3.0
    nca_weight: float = 0.99

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return RegularizedNCA(data.inputs, self.nca_weight)


@dataclass(eq=False, repr=False, kw_only=True)
class DeepGaussianNCA(NetworkRival):
    """dG-NCA (Min et al. 2010): NCA of the code with a Gaussian kernel."""

    # The loss bounds no distance: with less weight decay, the code grows until its gradient is 0.
    learning_rate: float = 2e-3
    weight_decay: float = 3.0

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        return NCA(None)


@dataclass(eq=False, repr=False, kw_only=True)
class DeepTNCA(NetworkRival):
    """dt-NCA (Min et al. 2010): NCA of the code with Student's t."""

    # The loss bounds no distance: with less weight decay, the code grows until its gradient is 0.
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

    The paper finds a full metric, a convex problem, and projects on its leading eigenvectors. The
    projection of rank two is optimised directly here.
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

    The project's network replaces the paper's shallow map of high-order feature products; the
    objective and the exemplars, k-means centers of each class in input space, are the paper's.

    Parameters
    ----------
    n_exemplars
        Exemplars of each class; a class with fewer distinct samples has as many as those.
    """

    n_exemplars: int = 10

    def _objective(self, data: TrainingData, network: Network) -> Objective:
        exemplars, labels = [], []
        for label in data.labels.unique().tolist():
            X = data.inputs[data.labels == label].cpu().numpy()
            # Samples that coincide have one center.
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
    """Degrees of freedom of Student's t, m − 1, as in the papers of van der Maaten and Min."""
    return float(max(1, n_components - 1))
