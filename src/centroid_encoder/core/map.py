"""A fitted map: data → embedding, decisions and distances to the classes, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from centroid_encoder.core.calibration import UNCALIBRATED, Calibration
from centroid_encoder.core.features import Standardizer, on_axes
from centroid_encoder.core.matrix import CHUNK, Codes, Lazy, Matrix, row_chunks
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.placement import Placer
from centroid_encoder.core.targets import CentroidTargets

Judged = tuple[NDArray[np.float32], NDArray[np.float32]]
"""(n, m) embedding of rows, and (n, M) distances to the classes."""


@dataclass
class FittedMap:
    """A trained network with its standardisation and targets. Its classes are sorted."""

    standardizer: Standardizer
    network: Network
    targets: CentroidTargets
    centers: NDArray[np.float64]
    """(M, m) class means of the embedded training rows, or the positions of the classes."""
    axes: Tensor | None = None
    """(K, r, k) axes along which each network receives the features; None with a bottleneck."""
    placer: Placer | None = None
    """Places in Voronoi cells; None with a bottleneck, whose code is the embedding."""
    calibration: Calibration = UNCALIBRATED
    novelty: Novelty | None = None

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    @property
    def n_components(self) -> int:
        """Dimension m of the embedding."""
        return int(self.centers.shape[1])

    def embed(self, X: Matrix) -> NDArray[np.float32]:
        """(n, m) embedding of (n, d) data."""
        empty = np.empty((0, self.n_components), np.float32)
        return np.concatenate([empty, *(places for places, _ in self.judge(X))])

    def judge(self, X: Matrix | Lazy) -> Iterator[Judged]:
        """Embed (n, d) data in chunks of rows.

        Yields the (b, m) embedding and (b, M) distances to the classes. Through a bottleneck, these
        are the `distances` of the embedding. A place in a Voronoi cell shows less than the networks
        have found; the distances here contain all of it.
        """
        for _, chunk in row_chunks(X):
            yield self.judge_inputs(*self.inputs(chunk))

    def inputs(self, X: Matrix) -> tuple[Tensor, NDArray[np.float32] | None]:
        """Inputs of the networks for (b, d) rows, and their coordinates along the scatter."""
        z = self.standardizer(X, self.device)
        along = None if self.placer is None else self.placer.scatter.project(z)
        return on_axes(z, self.axes), along

    @torch.no_grad()
    def judge_inputs(
        self, inputs: Tensor, along: NDArray[np.float32] | None, folds: Tensor | None = None
    ) -> Judged:
        """Embedding and distances for the inputs of rows.

        Parameters
        ----------
        inputs
            As `on_axes` returns them.
        along
            (n, a) coordinates of the rows along the axes of the scatter, for the `placer`.
        folds
            (n,) network that places each row alone; −1 for all of them.
        """
        if self.placer is None or along is None:
            embedding = np.asarray(self.network.encode(inputs).cpu())
            return embedding, self.distances(embedding)
        outputs = self.network.outputs(inputs, folds)
        return self.placer.judge(outputs.cpu().numpy(), along)

    def decide(
        self, judged: Iterable[Judged], n: int
    ) -> tuple[NDArray[np.float32], Codes, NDArray[np.float32]]:
        """Embedding of n rows, (n,) predicted classes, and the probability of each.

        Distances to all classes would take a multiple of the memory: they are reduced by chunks.
        """
        embedding = np.empty((n, self.n_components), dtype=np.float32)
        predicted, confidence = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.float32)
        done = 0
        for places, distances in judged:
            part = slice(done, done + len(places))
            embedding[part], predicted[part] = places, distances.argmin(axis=1)
            confidence[part] = self.calibration.probabilities(distances).max(axis=1)
            done = part.stop
        return embedding, predicted, confidence

    def distances(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """(n, M) distances of the decoder's output h(z), for (n, m) points, to each centroid.

        In units in which the centroids have unit mean square; their order and ratios are those of
        ‖h(z) − c_j‖ in the standardised input space. In a map with Voronoi cells, those of
        `Layout.distances`.
        """
        parts = [np.empty((0, len(self.centers)), np.float32)]
        for start in range(0, len(embedding), CHUNK):
            part = embedding[start : start + CHUNK]
            if self.placer is not None:
                parts.append(self.placer.layout.distances(part))
            else:
                parts.append(self.targets.distances(self._decoded(part)).cpu().numpy())
        return np.concatenate(parts)

    def decode(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, m) points of the embedding to (n, d) data, in the units of the data."""
        data = np.empty((len(embedding), len(self.standardizer.mean)), np.float32)
        centroids = self.targets.to_input(self.targets.coordinates.cpu().numpy())
        for start in range(0, len(embedding), CHUNK):
            part = slice(start, start + CHUNK)
            if self.placer is not None:
                components, codes = self.placer.layout.components(embedding[part])
                within = self.placer.scatter.inverse(components, codes)
                z = (centroids[codes] + within).astype(np.float32)
            else:
                z = self.targets.to_input(self._decoded(embedding[part]).cpu().numpy())
            data[part] = self.standardizer.inverse(z)
        return data

    def centroids(self) -> NDArray[np.float32]:
        """(M, d) centroids, the targets of the training, in the units of the data."""
        targets = self.targets.coordinates.cpu().numpy()
        return self.standardizer.inverse(self.targets.to_input(targets))

    @torch.no_grad()
    def _decoded(self, embedding: NDArray[np.floating]) -> Tensor:
        z = torch.from_numpy(np.array(embedding, dtype=np.float32)).to(self.device)
        return self.network.decode(z)
