"""A fitted map: what a training leaves, and what it says of data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from centroid_encoder.core.confidence import UNCALIBRATED, Calibration
from centroid_encoder.core.network import Activation, Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.objective import CentroidTargets, Output
from centroid_encoder.core.rows import CHUNK, Matrix, Rows, Standardizer, standardized
from centroid_encoder.core.training import suitable_numerics


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

    def network(
        self, generator: torch.Generator | None = None, *, batch_norm: bool = False
    ) -> Network:
        """Build the network; see `Network` for the arguments."""
        return Network(
            self.n_inputs,
            self.hidden,
            self.n_components,
            self.n_outputs,
            self.activation,
            generator,
            batch_norm=batch_norm,
        )

    def shapes(self, n_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of a map, by the names under which they are saved.

        The network's are those of its `state_dict`, which is not asked: widths that are not
        trusted must not allocate anything.
        """
        d, k, m, r = self.n_features, self.n_inputs, self.n_components, self.n_outputs
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "scale", "weight"), (d,))
        shapes |= {"centers": (n_classes, m), "targets": (n_classes, r)}
        if self.output == "span":
            shapes |= {"origin": (k,), "basis": (r, k)}
        for side, widths in (
            ("encoder", [k, *self.hidden, m]),
            ("decoder", [m, *reversed(self.hidden), r]),
        ):
            for i, (n_in, n_out) in enumerate(pairwise(widths)):
                shapes |= {f"{side}_{i}_weight": (n_out, n_in), f"{side}_{i}_bias": (n_out,)}
        return shapes


@dataclass
class FittedMap:
    """A trained network with its standardisation and targets: data → embedding → data."""

    architecture: Architecture
    standardizer: Standardizer
    network: Network
    targets: CentroidTargets
    centers: NDArray[np.float64]
    """(M, m) class means of the embedded training rows."""
    calibration: Calibration = UNCALIBRATED
    """How distances to the centroids become probabilities."""
    novelty: Novelty | None = None
    """How unlike the training rows others are, if that has been learned."""

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

    @torch.no_grad()
    def embed_rows(self, rows: Rows, index: Tensor | None = None) -> NDArray[np.float32]:
        """Map standardised rows, all or those at the (n,) `index`, to the (n, m) embedding."""
        with suitable_numerics(self.network, CHUNK):
            parts = [self.network.encode(inputs) for _, inputs in rows.batches(index)]
        return torch.cat(parts).cpu().numpy()

    def calibrate(self, embedding: NDArray[np.floating], codes: NDArray[np.integer]) -> None:
        """Fit the probabilities to (n, m) embedded rows and their (n,) class indices."""
        self.calibration = Calibration.fit(self.distances(embedding), codes)

    def learn_novelty(
        self, X: Matrix, index: NDArray[np.integer], codes: NDArray[np.integer]
    ) -> None:
        """Learn what is usual from the rows of X at `index`, which are of the classes `codes`."""
        self.novelty = Novelty.fit(X, index, codes, self.standardizer)

    def distances(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """(n, M) distances of the decoder's output h(z) to each class's centroid.

        In units in which the centroids have unit mean square; their order and ratios are those of
        ‖h(z) − c_j‖ in the standardised input space.
        """
        return self._through_decoder(embedding, with_distances=True)

    def decode(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, m) points of the embedding to (n, d) data, in the units of the data."""
        outputs = self._through_decoder(embedding, with_distances=False)
        return self.standardizer.inverse(self.targets.to_input(outputs))

    def centroids(self) -> NDArray[np.float32]:
        """(M, d) centroids, the targets of the training, in the units of the data."""
        targets = self.targets.coordinates.cpu().numpy()
        return self.standardizer.inverse(self.targets.to_input(targets))

    @torch.no_grad()
    def _through_decoder(
        self, embedding: NDArray[np.floating], *, with_distances: bool
    ) -> NDArray[np.float32]:
        z = torch.from_numpy(np.array(embedding, dtype=np.float32)).to(self.device)
        width = len(self.targets.coordinates) if with_distances else self.architecture.n_outputs
        result = np.empty((len(z), width), np.float32)
        with suitable_numerics(self.network, CHUNK):
            for start in range(0, len(z), CHUNK):
                output = self.network.decode(z[start : start + CHUNK])
                if with_distances:
                    output = self.targets.distances(output)
                result[start : start + CHUNK] = output.cpu().numpy()
        return result
