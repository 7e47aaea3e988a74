"""A fitted map: what a training leaves, and what it says of data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from centroid_encoder.core.confidence import UNCALIBRATED, Calibration
from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.core.network import Activation, Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.objective import CentroidTargets, Output
from centroid_encoder.core.placement import Placement, Placer
from centroid_encoder.core.rows import CHUNK, Rows, standardized
from centroid_encoder.core.standardization import Standardizer

Codes = NDArray[np.intp]
Judged = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Embedding of rows, and how far they are from the classes."""


@dataclass(frozen=True)
class Architecture:
    """What has to be known before the arrays of a network make sense."""

    n_features: int
    n_inputs: int
    hidden: tuple[int, ...]
    n_components: int
    n_outputs: int
    activation: Activation
    output: Output
    placement: Placement = "bottleneck"
    n_networks: int = 1
    n_axes: int = 0

    def network(
        self, generator: torch.Generator | None = None, *, batch_norm: bool = False
    ) -> Network:
        """Build the network; see `Network` for the arguments."""
        squeezed = self.placement == "bottleneck"
        return Network(
            self.n_inputs,
            self.hidden,
            self.n_components if squeezed else self.n_outputs,
            self.n_outputs if squeezed else 0,
            self.activation,
            generator,
            batch_norm=batch_norm,
            n_networks=self.n_networks,
            n_axes=self.n_axes,
        )


@dataclass
class FittedMap:
    """A trained network with its standardisation and targets: data → embedding → data."""

    architecture: Architecture
    standardizer: Standardizer
    network: Network
    targets: CentroidTargets
    centers: NDArray[np.float64]
    """(M, m) class means of the embedded training rows; positions of the classes if placed."""
    calibration: Calibration = UNCALIBRATED
    """How distances to the centroids become probabilities."""
    novelty: Novelty | None = None
    """How unlike the training rows others are, if that has been learned."""
    placer: Placer | None = None
    """Where samples lie, if the network has no bottleneck whose code says it."""

    @property
    def device(self) -> torch.device:
        """Where the network lives."""
        return next(self.network.parameters()).device

    def embed(self, X: Matrix) -> NDArray[np.float32]:
        """Map (n, d) data to the (n, m) embedding, a chunk of rows at a time."""
        embedding = np.empty((X.shape[0], self.architecture.n_components), np.float32)
        for start in range(0, X.shape[0], CHUNK):
            rows = standardized(X[start : start + CHUNK], self.standardizer, self.device)
            embedding[start : start + CHUNK] = self.embed_rows(rows)
        return embedding

    def embed_rows(
        self, rows: Rows, index: Tensor | None = None, folds: Tensor | None = None
    ) -> NDArray[np.float32]:
        """Map standardised rows, all or those at the (n,) `index`, to the (n, m) embedding.

        Of networks side by side, (n_rows,) `folds` says which one a row is asked of; see
        `Network.outputs`.
        """
        n, done = rows.n_rows if index is None else len(index), 0
        embedding = np.empty((n, self.architecture.n_components), np.float32)
        for places in (
            (self._encoded(inputs) for _, inputs in rows.batches(index))
            if self.placer is None
            else (places for places, _ in self.judge_rows(rows, index, folds))
        ):
            embedding[done : done + len(places)] = places
            done += len(places)
        return embedding

    def judge(self, X: Matrix) -> Iterator[Judged]:
        """Map (n, d) data to the embedding, and say how far each row is from each class.

        Yields, a chunk of rows at a time, what `judge_rows` does.
        """
        for start in range(0, X.shape[0], CHUNK):
            rows = standardized(X[start : start + CHUNK], self.standardizer, self.device)
            yield from self.judge_rows(rows)

    def judge_rows(
        self, rows: Rows, index: Tensor | None = None, folds: Tensor | None = None
    ) -> Iterator[Judged]:
        """Map standardised rows to the embedding, and say how far each is from each class.

        Yields, a chunk of rows at a time, the (b, m) embedding and (b, M) distances. Through a
        bottleneck, these are what `distances` says of the embedding. A place in a Voronoi cell says
        less of a sample than the networks do that have placed it: here they tell all of it.
        Parameters are those of `embed_rows`.
        """
        for part, inputs in rows.batches(index):
            if self.placer is None:
                embedding = self._encoded(inputs)
                yield embedding, self.distances(embedding)
                continue
            with torch.no_grad():
                asked = None if folds is None else folds[part]
                outputs = self.network.outputs(inputs, asked).cpu().numpy()
            along = self.placer.scatter.project(inputs)
            yield self.placer.judge(outputs, along)

    @torch.no_grad()
    def _encoded(self, inputs: Tensor) -> NDArray[np.float32]:
        return np.asarray(self.network.encode(inputs).cpu())

    def calibrate(self, distances: NDArray[np.floating], codes: NDArray[np.integer]) -> None:
        """Fit the probabilities to (n, M) distances of rows, and their (n,) class indices."""
        self.calibration = Calibration.fit(distances, codes)

    def learn_novelty(
        self, X: Matrix | Lazy, index: NDArray[np.integer], codes: NDArray[np.integer]
    ) -> None:
        """Learn what is usual from the rows of X at `index`, which are of the classes `codes`."""
        self.novelty, _ = Novelty.fit(X, index, codes, self.standardizer)

    def distances(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """(n, M) distances of the decoder's output h(z), for (n, m) points, to each centroid.

        In units in which the centroids have unit mean square; their order and ratios are those of
        ‖h(z) − c_j‖ in the standardised input space. Of a map that places samples in Voronoi cells,
        those that `Layout.distances` reads off the plane.
        """
        if self.placer is not None:
            parts = np.array_split(embedding, max(1, -(-len(embedding) // CHUNK)))
            return np.concatenate([self.placer.layout.distances(part) for part in parts])
        return self._through_decoder(embedding, with_distances=True)

    def decode(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, m) points of the embedding to (n, d) data, in the units of the data."""
        if self.placer is not None:
            centroids = self.targets.to_input(self.targets.coordinates.cpu().numpy())
            data = np.empty((len(embedding), self.architecture.n_features), np.float32)
            for start in range(0, len(embedding), CHUNK):
                part = slice(start, start + CHUNK)
                components, codes = self.placer.layout.components(embedding[part])
                inputs = centroids[codes] + self.placer.scatter.inverse(components, codes)
                data[part] = self.standardizer.inverse(inputs)
            return data
        outputs = self._through_decoder(embedding, with_distances=False)
        return self.standardizer.inverse(self.targets.to_input(outputs))

    def centroids(self) -> NDArray[np.float32]:
        """(M, d) centroids, the targets of the training, in the units of the data."""
        targets = self.targets.coordinates.cpu().numpy()
        return self.standardizer.inverse(self.targets.to_input(targets))

    def decide(
        self, judged: Iterable[Judged], n: int
    ) -> tuple[NDArray[np.float32], Codes, NDArray[np.float32]]:
        """Embedding of n rows, (n,) predicted classes, and the probability of each.

        In chunks, since distances to all classes take a multiple of the memory.
        """
        # What comes of a chunk is put where it belongs at once: kept as it is, it would lie between
        # larger arrays that go, and memory would not get back what these took.
        embedding = np.empty((n, self.architecture.n_components), dtype=np.float32)
        predicted, confidence = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.float32)
        done = 0
        for places, distances in judged:
            part = slice(done, done + len(places))
            embedding[part], predicted[part] = places, distances.argmin(axis=1)
            confidence[part] = self.calibration.probabilities(distances).max(axis=1)
            done = part.stop
        return embedding, predicted, confidence

    @torch.no_grad()
    def _through_decoder(
        self, embedding: NDArray[np.floating], *, with_distances: bool
    ) -> NDArray[np.float32]:
        z = torch.from_numpy(np.array(embedding, dtype=np.float32)).to(self.device)
        width = len(self.targets.coordinates) if with_distances else self.architecture.n_outputs
        result = np.empty((len(z), width), np.float32)
        for start in range(0, len(z), CHUNK):
            output = self.network.decode(z[start : start + CHUNK])
            if with_distances:
                output = self.targets.distances(output)
            result[start : start + CHUNK] = output.cpu().numpy()
        return result


def own_codes(codes: Codes, known: Codes, n_classes: int) -> Codes:
    """Class indices of a map for those of a caller with `n_classes` classes.

    The map has K of them, `known` by the caller's indices. −1 stays −1, as do classes that it does
    not have.
    """
    own = np.full(n_classes + 1, -1)
    own[known] = np.arange(len(known))
    # The index −1 finds the last entry, which is −1.
    return own[codes]
