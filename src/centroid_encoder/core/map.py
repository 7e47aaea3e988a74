"""The fitted map: from data to embedding, decisions and distances to the classes, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp
from torch import Tensor

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Singles
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.inputs import Inputs, Standardizer
from centroid_encoder.core.matrix import Lazy, Matrix, chunks, row_chunks
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.placement import Placer
from centroid_encoder.core.targets import CentroidTargets

Judged = tuple[Singles, Singles]
"""(n, m) embedding of rows, and their (n, M) distances to the classes."""


@dataclass
class FittedMap:
    """Trained networks with their inputs and targets. The classes are sorted."""

    inputs: Inputs
    network: Network
    targets: CentroidTargets
    centers: Doubles
    """(M, m) class means of the embedded training rows, or the positions of the classes."""
    placer: Placer | None
    """Places rows in Voronoi cells; None with a bottleneck, whose code is the embedding."""
    calibration: Calibration
    novelty: Novelty | None = None

    @property
    def standardizer(self) -> Standardizer:
        """The weighted z-scores."""
        return self.inputs.standardizer

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        return next(self.network.parameters()).device

    @property
    def n_components(self) -> int:
        """Dimension m of the embedding."""
        return int(self.centers.shape[1])

    def embed(self, X: Matrix) -> Singles:
        """(n, m) embedding of (n, d) data."""
        return np.concatenate([places for places, _ in self.judge(X)])

    def judge(self, X: Matrix | Lazy) -> Iterator[Judged]:
        """Embed (n, d) data in chunks of rows.

        Yields the (b, m) embedding and (b, M) distances to the classes. With a bottleneck, these
        are the `distances` of the embedding. With Voronoi cells they come from the outputs of the
        networks, which contain more than a place in the plane shows.
        """
        for _, chunk in row_chunks(X):
            yield self.judge_inputs(*self.read(self.standardizer(chunk, self.device)))

    def read(self, z: Tensor, folds: Codes | None = None) -> tuple[Tensor, Singles, Codes]:
        """Arguments of `judge_inputs` for (b, k) standardised rows.

        These are the inputs of the networks; the (b, a) result of `Placer.project`, with a = 0 for
        a bottleneck; and the (b,) `folds`: the one network that places a row, or −1 for all
        networks, as by default.
        """
        inputs, along = self.inputs(z), np.empty((len(z), 0), np.float32)
        folds = np.full(len(z), -1) if folds is None else folds
        if self.placer is not None:
            along = self.placer.project(z, inputs, folds)
        return inputs, along, folds

    @torch.no_grad()
    def judge_inputs(self, inputs: Tensor, along: Singles, folds: Codes) -> Judged:
        """Embedding of rows and distances to the classes, from the result of `read`."""
        if self.placer is None:
            embedding = np.asarray(self.network.encode(inputs).cpu())
            return embedding, self.distances(embedding)
        outputs = self.network.outputs(inputs, torch.from_numpy(folds)).cpu().numpy()
        return self.placer.judge(outputs, along, folds)

    def judge_draws(
        self, expected: Matrix, draws: Iterable[Matrix]
    ) -> tuple[Singles, Singles, Doubles]:
        """Embedding, distances to the classes and (n, M) probabilities of rows of random values.

        `draws` are (n, d) arrays with random values of the rows, and `expected` is their
        expectation. The probabilities are means over the draws. With Voronoi cells, so are the
        odds that decide on the class and the place. With a bottleneck, the expectation decides,
        since the mean of several places can be in the region of a class that none is in.
        """
        judged = [np.concatenate([found for _, found in self.judge(x)]) for x in draws]
        probabilities = np.mean([self.calibration.probabilities(x) for x in judged], axis=0)
        if self.placer is None:
            embedding = self.embed(expected)
            return embedding, self.distances(embedding), probabilities
        logits = [log_softmax(-np.square(x, dtype=np.float64), axis=1) for x in judged]
        z = (self.standardizer(chunk, self.device) for _, chunk in row_chunks(expected))
        along = np.concatenate([self.read(part)[1] for part in z])
        return *self.placer.judge_logits(logsumexp(logits, axis=0), along), probabilities

    def decide(
        self, judged: Iterable[Judged], n: int, out: Singles | None = None
    ) -> tuple[Singles, Codes, Singles]:
        """Embedding of n rows, (n,) predicted classes, and the (n,) probabilities of these.

        The distances are reduced chunk by chunk, since those of all rows would take much memory.
        The (n, M) probabilities of all classes are written to `out`, if it is given.
        """
        embedding = np.empty((n, self.n_components), dtype=np.float32)
        predicted, confidence = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.float32)
        done = 0
        for places, distances in judged:
            part = slice(done, done + len(places))
            embedding[part], predicted[part] = places, distances.argmin(axis=1)
            probabilities = self.calibration.probabilities(distances)
            confidence[part] = probabilities[np.arange(len(places)), predicted[part]]
            if out is not None:
                out[part] = probabilities
            done = part.stop
        return embedding, predicted, confidence

    def distances(self, embedding: Floats) -> Singles:
        """(n, M) distances of (n, m) points of the embedding to the classes.

        With a bottleneck, distances of the decoder's output h(z) to the centroids, proportional to
        ‖h(z) − c_j‖ in the standardised input space; the centroids have unit mean square. With
        Voronoi cells, `Layout.distances`.
        """
        found = np.empty((len(embedding), len(self.centers)), np.float32)
        for part in chunks(len(embedding)):
            if self.placer is not None:
                found[part] = self.placer.layout.distances(embedding[part])
            else:
                found[part] = self.targets.distances(self._decoded(embedding[part])).cpu().numpy()
        return found

    def decode(self, embedding: Floats) -> Singles:
        """Map (n, m) points of the embedding to (n, d) data, in the units of the data."""
        data = np.empty((len(embedding), len(self.standardizer.mean)), np.float32)
        centroids = self.targets.centroids()
        for part in chunks(len(embedding)):
            if self.placer is not None:
                components, codes = self.placer.layout.components(embedding[part])
                within = self.placer.scatter.inverse(components, codes)
                z = (centroids[codes] + within).astype(np.float32)
            else:
                z = self.targets.to_input(self._decoded(embedding[part]).cpu().numpy())
            data[part] = self.standardizer.inverse(z)
        return data

    def centroids(self) -> Singles:
        """(M, d) centroids, the targets of the training, in the units of the data."""
        return self.standardizer.inverse(self.targets.centroids())

    @torch.no_grad()
    def _decoded(self, embedding: Floats) -> Tensor:
        z = torch.from_numpy(np.array(embedding, dtype=np.float32)).to(self.device)
        return self.network.decode(z)
