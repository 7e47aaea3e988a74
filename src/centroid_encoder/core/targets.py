"""Objectives of the training, and weights of the classes in them."""

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

from centroid_encoder.core.matrix import product
from centroid_encoder.errors import InputError

Output = Literal["span", "full"]
ClassWeight = Literal["sqrt", "balanced"] | Mapping[Any, float] | None


@dataclass(frozen=True)
class Batch:
    """Inputs of a loss. All tensors are on the training device."""

    rows: Tensor
    """(b,) indices of the samples in the training data."""
    labels: Tensor
    """(b,) class indices."""
    weights: Tensor | None
    """(b,) sample weights with mean 1 over the training set, or None for all ones."""
    code: Tensor
    """(b, m) encoder output: the embedding, or a hidden code during pre-training."""
    output: Tensor
    """(b, n_outputs) decoder output; the code itself for a network without decoder."""


class Objective(Protocol):
    """A loss that `train` can minimise.

    An autoencoder keeps its data and indexes them by ``batch.rows``; NCA and related methods set
    ``n_outputs = 0`` and compare ``batch.code`` within the batch.
    """

    @property
    def n_outputs(self) -> int:
        """Width of the decoder's last layer; 0 for a network without decoder."""
        ...

    def loss(self, batch: Batch) -> Tensor:
        """Return the scalar to be minimised: the mean over the batch."""
        ...

    def distances(self, output: Tensor) -> Tensor:
        """(b, n_classes) distance of the output to each class, for the error of validation rows."""
        ...


@dataclass(frozen=True)
class CentroidTargets:
    """Centroid targets: every sample is mapped to the centroid of its class.

    The loss is the paper's, ‖c_j − f(x)‖² for a sample x of class j, averaged over samples and
    output coordinates; and `compactness` times the `within_share` of the code. The paper's loss
    alone does not keep classes round in the bottleneck: the decoder can bend its regions around
    elongated classes, but Voronoi cells cannot. A term at the bottleneck that draws classes
    together is that of bottleneck centroid-encoders (Ghosh & Kirby), here as a ratio, so that it
    does not depend on the scale of the code.

    All targets lie in the affine span of the M centroids. With ``output="span"`` the network's
    output is expressed in an orthonormal basis of that span (at most M − 1 coordinates), scaled to
    unit mean square: an isometry up to one factor, hence the same minimum and the same nearest
    centroid as in input space, at a fraction of the cost. ``output="full"`` is the paper's
    d-dimensional output.
    """

    coordinates: Tensor
    """(M, r) float32 targets in output coordinates."""
    origin: NDArray[np.float64] | None = None
    basis: NDArray[np.float64] | None = None
    """(k,) and (r, k): an output o stands for ``o @ basis + origin`` in the standardised input
    space. None where the output is the input space."""
    compactness: float = 0.0
    """Weight of the second part of the loss, at least 0."""

    @property
    def n_outputs(self) -> int:
        """Number r of coordinates."""
        return self.coordinates.shape[1]

    @classmethod
    def fit(
        cls,
        centroids: NDArray[np.floating],
        output: Output,
        device: torch.device,
        compactness: float = 0.0,
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
        # Coincident centroids span a point; one output keeps the network well formed.
        rank = max(1, int((singular_values > tolerance).sum()))
        # One factor for all coordinates keeps the proportions of distances. Rounding errors alone
        # are not scaled up.
        scale = 1.0
        if singular_values[0] > np.abs(centroids).max() * epsilon:
            scale = np.sqrt(np.square(singular_values).sum() / (len(centroids) * rank))
        directions = directions[:rank]
        coordinates = product(centroids - origin, directions.T) / scale
        return cls(_on_device(coordinates, device), origin, directions * scale, compactness)

    @classmethod
    def spread_out(cls, centroids: NDArray[np.floating], device: torch.device) -> CentroidTargets:
        """Return targets whose squared distances are proportional to the centroids' distances.

        Without a bottleneck, the targets need not lie in the span of the (M, k) centroids. Square
        roots of distances can always be embedded in M − 1 dimensions, by classical scaling; near
        centroids are then further apart relative to far ones, and each pair has its own direction.
        """
        centroids = centroids.astype(np.float64)
        distances = squareform(pdist(centroids))
        centering = np.eye(len(centroids)) - 1 / len(centroids)
        values, vectors = np.linalg.eigh(-0.5 * centering @ distances @ centering)
        epsilon = np.finfo(np.float32).eps
        kept = values > max(values[-1], 0) * len(centroids) * epsilon
        # Coincident centroids have no distance: one output keeps the network well formed.
        kept[-1] = True
        coordinates = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0))
        scale = np.sqrt(np.square(coordinates).mean()) or 1.0
        return cls(_on_device(coordinates / scale, device))

    def loss(self, batch: Batch) -> Tensor:
        """Mean squared distance to the class's target, plus the term of `compactness`."""
        error = (batch.output - self.coordinates[batch.labels]).square().mean(dim=-1)
        loss = (error if batch.weights is None else error * batch.weights).mean()
        if self.compactness:
            share = within_share(batch.code, batch.labels, batch.weights, len(self.coordinates))
            loss = loss + self.compactness * share
        return loss

    def distances(self, output: Tensor) -> Tensor:
        """Distance to every centroid; the smallest is the model's decision."""
        return torch.cdist(output, self.coordinates, compute_mode="donot_use_mm_for_euclid_dist")

    def to_input(self, output: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, n_outputs) decoder outputs to the (n, k) standardised input space."""
        if self.basis is None or self.origin is None:
            return np.asarray(output, dtype=np.float32)
        return np.asarray(output @ self.basis + self.origin, dtype=np.float32)


def _on_device(coordinates: NDArray[np.floating], device: torch.device) -> Tensor:
    return torch.as_tensor(coordinates, dtype=torch.float32, device=device)


def within_share(code: Tensor, labels: Tensor, weights: Tensor | None, n_classes: int) -> Tensor:
    """Share of the scatter of a (b, m) code that is within classes, in [0, 1].

    Σ_i w_i ‖z_i − z̄_j(i)‖² / Σ_i w_i ‖z_i − z̄‖², with the means of the batch: one minus the
    squared correlation ratio. 0 where all samples of each class are in one place.
    """
    w = torch.ones_like(code[:, 0]) if weights is None else weights
    # The order of an indexed sum, and of the gradient of an index, varies between runs on a GPU and
    # on several threads; that of a product does not.
    member = torch.nn.functional.one_hot(labels, n_classes).to(code.dtype)
    weighted = member * w[:, None]
    tiny, epsilon = torch.finfo(code.dtype).tiny, torch.finfo(code.dtype).eps
    means = (weighted.T @ code) / weighted.sum(dim=0).clamp_min(tiny)[:, None]
    mean = (w @ code) / w.sum().clamp_min(tiny)
    within = w @ (code - member @ means).square().sum(dim=1)
    total = w @ (code - mean).square().sum(dim=1)
    # The scatter of a code in one place consists of rounding errors.
    rounding = 100 * epsilon**2 * (w @ code.detach().square().sum(dim=1))
    return within / torch.maximum(total, rounding + tiny)


def class_weights(
    weight: ClassWeight, labels: NDArray[Any], classes: NDArray[Any], absent: NDArray[Any]
) -> NDArray[np.float64] | None:
    """(K,) weight of each class that is trained on, in any unit; absent ones are ignored."""
    if weight is None:
        return None
    if isinstance(weight, Mapping):
        weight = {label: weight[label] for label in weight.keys() - set(absent.tolist())}
    rooted = isinstance(weight, str) and weight == "sqrt"
    per_class: NDArray[np.float64] = compute_class_weight(
        "balanced" if rooted else weight, classes=classes, y=labels
    )
    if rooted:
        per_class = np.sqrt(per_class)
    if not (per_class > 0).all():
        raise InputError("class_weight must be above 0 for every class", parameter="class_weight")
    return per_class
