"""Losses of the training, and weights of the classes in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from sklearn.utils import compute_class_weight
from torch import Tensor

from centroid_encoder.core.arrays import Doubles, Floats, Singles
from centroid_encoder.core.matrix import product
from centroid_encoder.errors import check

Output = Literal["span", "full"]
ClassWeight = Literal["sqrt", "balanced"] | Mapping[Any, float] | None


@dataclass(frozen=True)
class Batch:
    """Inputs of a loss. All tensors are on the training device."""

    rows: Tensor  #: (b,) indices of the samples in the training data
    labels: Tensor  #: (b,) class indices
    weights: Tensor | None  #: (b,) sample weights, with mean 1 over the training rows; None for 1
    code: Tensor  #: (b, m) output of the encoder: embedding, or hidden layer in pre-training
    output: Tensor  #: (b, n_outputs) output of the decoder; without a decoder, the code


class Objective(Protocol):
    """A loss that a `Run` can minimise."""

    @property
    def n_outputs(self) -> int:
        """Width of the decoder's last layer; 0 if the network has no decoder."""

    def loss(self, batch: Batch) -> Tensor:
        """Return the scalar to be minimised, a mean over the batch."""

    def distances(self, output: Tensor) -> Tensor:
        """(b, n_classes) distances of outputs to the classes, for the error of validation rows."""


@dataclass(frozen=True)
class CentroidTargets:
    """Centroid targets: every sample is mapped to the centroid of its class.

    The loss is that of the paper, ‖c_j − f(x)‖² for a sample x of class j, averaged over samples
    and output coordinates, plus `compactness` times the `within_share` of the code. Without the
    second term, classes can be elongated in the bottleneck: regions of the decoder can bend around
    them, but Voronoi cells cannot. Bottleneck centroid-encoders (Ghosh & Kirby) have such a term;
    here it is a ratio, so that it does not depend on the scale of the code.

    All targets lie in the affine span of the M centroids. With ``output="span"``, outputs are
    coordinates in an orthonormal basis of that span (at most M − 1), scaled to unit mean square.
    Distances are those in input space times one factor, so that the minimum and the nearest
    centroids are the same, at a fraction of the cost. ``output="full"`` is the d-dimensional output
    of the paper.
    """

    coordinates: Tensor
    """(M, r) float32 targets in output coordinates."""
    origin: Doubles | None = None
    basis: Doubles | None = None
    """(k,) and (r, k): an output o is ``o @ basis + origin`` in the standardised input space. None
    if the output space is the input space."""
    compactness: float = 0.0
    """Weight of the second term of the loss, at least 0."""

    @property
    def n_outputs(self) -> int:
        """Number r of coordinates."""
        return self.coordinates.shape[1]

    @classmethod
    def fit(
        cls, centroids: Floats, output: Output, device: torch.device, compactness: float = 0.0
    ) -> CentroidTargets:
        """Return the targets for (M, k) class means in the standardised input space."""
        if output == "full":
            return cls(_on_device(centroids, device), compactness=compactness)
        centroids = centroids.astype(np.float64)
        origin = centroids.mean(axis=0)
        parts = torch.linalg.svd(torch.from_numpy(centroids - origin), full_matrices=False)
        singular_values, directions = parts.S.numpy(), parts.Vh.numpy()
        epsilon = np.finfo(np.float32).eps
        tolerance = singular_values[0] * max(centroids.shape) * epsilon
        # If all centroids are equal, they span a point, but the network needs one output.
        rank = max(1, int((singular_values > tolerance).sum()))
        # One factor for all coordinates keeps the ratios of distances. Nothing is scaled if the
        # centroids differ only by rounding errors.
        scale = 1.0
        if singular_values[0] > np.abs(centroids).max() * epsilon:
            scale = np.sqrt(np.square(singular_values).sum() / (len(centroids) * rank))
        directions = directions[:rank]
        coordinates = product(centroids - origin, directions.T) / scale
        return cls(_on_device(coordinates, device), origin, directions * scale, compactness)

    @classmethod
    def spread_out(cls, centroids: Floats, device: torch.device) -> CentroidTargets:
        """Return targets whose squared distances are proportional to the centroids' distances.

        Without a bottleneck, the targets need not lie in the span of the (M, k) centroids. Square
        roots of distances can always be embedded in M − 1 dimensions, by classical scaling. Near
        centroids are then further apart relative to far ones, and each pair has its own direction.
        """
        centroids = centroids.astype(np.float64)
        distances = squareform(pdist(centroids))
        centering = np.eye(len(centroids)) - 1 / len(centroids)
        values, vectors = np.linalg.eigh(-0.5 * centering @ distances @ centering)
        epsilon = np.finfo(np.float32).eps
        kept = values > max(values[-1], 0) * len(centroids) * epsilon
        # If all centroids are equal, no value is kept, but the network needs one output.
        kept[-1] = True
        coordinates = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0))
        scale = np.sqrt(np.square(coordinates).mean()) or 1.0
        return cls(_on_device(coordinates / scale, device))

    def loss(self, batch: Batch) -> Tensor:
        """Mean squared distance to the target of the class, plus the term of `compactness`."""
        error = (batch.output - self.coordinates[batch.labels]).square().mean(dim=-1)
        loss = (error if batch.weights is None else error * batch.weights).mean()
        if self.compactness:
            share = within_share(batch.code, batch.labels, batch.weights, len(self.coordinates))
            loss = loss + self.compactness * share
        return loss

    def distances(self, output: Tensor) -> Tensor:
        """Distances of (b, r) outputs to the centroids; the nearest is the model's decision."""
        return torch.cdist(output, self.coordinates, compute_mode="donot_use_mm_for_euclid_dist")

    def centroids(self) -> Singles:
        """(M, k) centroids in the standardised input space."""
        return self.to_input(self.coordinates.cpu().numpy())

    def to_input(self, output: Floats) -> Singles:
        """Map (n, n_outputs) decoder outputs to the (n, k) standardised input space."""
        if self.basis is None or self.origin is None:
            return np.asarray(output, dtype=np.float32)
        return np.asarray(output @ self.basis + self.origin, dtype=np.float32)


def _on_device(coordinates: Floats, device: torch.device) -> Tensor:
    return torch.as_tensor(coordinates, dtype=torch.float32, device=device)


def within_share(code: Tensor, labels: Tensor, weights: Tensor | None, n_classes: int) -> Tensor:
    """Share of the scatter of a (b, m) code that is within classes, in [0, 1].

    It is Σ_i w_i ‖z_i − z̄_j(i)‖² / Σ_i w_i ‖z_i − z̄‖² with the means of the batch: one minus the
    squared correlation ratio. It is 0 if all samples of each class have the same code.
    """
    w = torch.ones_like(code[:, 0]) if weights is None else weights
    # Products, because indexed sums and the gradients of indexing add up in an order that varies
    # between runs on a GPU and on several threads.
    member = torch.nn.functional.one_hot(labels, n_classes).to(code.dtype)
    weighted = member * w[:, None]
    tiny, epsilon = torch.finfo(code.dtype).tiny, torch.finfo(code.dtype).eps
    means = (weighted.T @ code) / weighted.sum(dim=0).clamp_min(tiny)[:, None]
    mean = (w @ code) / w.sum().clamp_min(tiny)
    within = w @ (code - member @ means).square().sum(dim=1)
    total = w @ (code - mean).square().sum(dim=1)
    # If all codes are equal, their scatter consists of rounding errors.
    rounding = 100 * epsilon**2 * (w @ code.detach().square().sum(dim=1))
    return within / torch.maximum(total, rounding + tiny)


def class_weights(
    weight: ClassWeight, labels: NDArray[Any], classes: NDArray[Any], absent: NDArray[Any]
) -> Doubles:
    """(K,) weight of each class that is trained on, in any unit; weights of `absent` are ignored.

    `labels` holds the labels of the training rows, and `classes` the (K,) classes among them.
    """
    if isinstance(weight, Mapping):
        weight = {label: weight[label] for label in weight.keys() - set(absent.tolist())}
    is_rooted = isinstance(weight, str) and weight == "sqrt"
    per_class: Doubles = compute_class_weight(
        "balanced" if is_rooted else weight, classes=classes, y=labels
    )
    check((per_class > 0).all(), "class_weight must be above 0 for every class", "class_weight")
    return np.sqrt(per_class) if is_rooted else per_class
