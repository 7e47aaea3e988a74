"""Losses of the rivals: an `Objective` for each family, written from the papers.

Probabilities are computed from the logarithms of kernels, which do not overflow or underflow in
float32. The similarity of a sample to itself is left out. A sample that is the only one of its
class in a batch attracts no other sample; it repels others if the normalisation of the paper
includes it. There are no class weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from centroid_encoder.core.targets import Batch

N_BISECTIONS = 20
"""Steps of a bisection for log bandwidths, which starts with an interval of length 25."""
RIDGE = 1e-4
"""Regularisation of an inverted scatter matrix, as a share of the mean variance."""


class NoDecision:
    """Base of objectives without a decision about the class, and by default without a decoder."""

    n_outputs: int = 0

    def distances(self, output: Tensor) -> Tensor:
        """Raise NotImplementedError; `train` calls this for validation rows, which are not used."""
        raise NotImplementedError


class Reconstruction(NoDecision):
    """Squared error of the reconstructed input (Hinton & Salakhutdinov 2006).

    Parameters
    ----------
    inputs
        (n, k) standardised data, which are both inputs and targets.
    """

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs
        self.n_outputs = inputs.shape[1]

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean over samples and features."""
        return (batch.output - self.inputs[batch.rows]).square().mean()


class NCA(NoDecision):
    """Neighbourhood components analysis of the code.

    The loss is the expected error of a stochastic nearest-neighbour rule,

        1 − 1/b Σ_i Σ_{j≠i, y_j=y_i} q_{j|i},   q_{j|i} = k(z_i, z_j) / Σ_{l≠i} k(z_i, z_l),

    with a Gaussian kernel k in Salakhutdinov & Hinton (2007) and dG-NCA, and Student's t in dt-NCA
    (Min et al. 2010).

    Parameters
    ----------
    dof
        Degrees of freedom of Student's t; None for the Gaussian.
    """

    def __init__(self, dof: float | None) -> None:
        self.dof = dof

    def loss(self, batch: Batch) -> Tensor:
        """Return the expected leave-one-out error; it is 1 for the only sample of a class."""
        logits = _without_self(log_kernel(batch.code, batch.code, self.dof))
        same = _same_class(batch.labels)
        return 1 - (logits.softmax(dim=1) * same).sum(dim=1).mean()


class RegularizedNCA(NCA):
    """Nonlinear NCA with an autoencoder as regulariser (Salakhutdinov & Hinton 2007, section 3.1).

    The loss is λ · NCA + (1 − λ) · reconstruction error. The reconstruction error of the paper is a
    sum over pixels in nats. Here it is half the squared error, summed over the features, which is
    the error in nats for a Gaussian with unit variance.

    Parameters
    ----------
    inputs
        (n, k) standardised data.
    nca_weight
        λ; 0.99 in the paper.
    """

    def __init__(self, inputs: Tensor, nca_weight: float) -> None:
        super().__init__(None)
        self.reconstruction = Reconstruction(inputs)
        self.n_outputs = self.reconstruction.n_outputs
        self.nca_weight = nca_weight

    def loss(self, batch: Batch) -> Tensor:
        """Return the weighted sum of both losses."""
        nats = self.reconstruction.loss(batch) * self.n_outputs / 2
        return self.nca_weight * super().loss(batch) + (1 - self.nca_weight) * nats


class MCML(NoDecision):
    """Maximally collapsing metric learning of the code: dG-MCML and dt-MCML (Min et al. 2010).

    The loss is KL(P‖Q) over all ordered pairs i ≠ j. p_ij has the same value for all pairs of one
    class and is 0 for other pairs; q_ij = k(z_i, z_j) / Σ_{k≠l} k(z_k, z_l).

    Parameters
    ----------
    dof
        Degrees of freedom of Student's t; None for the Gaussian.
    """

    def __init__(self, dof: float | None) -> None:
        self.dof = dof

    def loss(self, batch: Batch) -> Tensor:
        """Return the divergence over the pairs of the batch; 0 without a pair of one class."""
        same = _same_class(batch.labels)
        return joint_divergence(same / same.sum().clamp(min=1), batch.code, self.dof)


class TSNE(NoDecision):
    """Parametric t-SNE (van der Maaten 2009), unsupervised: KL(P‖Q) over the pairs of a batch.

    p_ij = (p_{j|i} + p_{i|j}) / 2b, where p_{j|i} is a Gaussian in input space. The bandwidth of
    each sample is chosen to have the given perplexity. q_ij is that of dt-MCML.

    Parameters
    ----------
    inputs
        (n, k) standardised data.
    perplexity
        Effective number of neighbours in a batch, at most a third of the other samples.
    dof
        Degrees of freedom of Student's t.
    """

    def __init__(self, inputs: Tensor, perplexity: float, dof: float) -> None:
        self.inputs = inputs
        self.perplexity = perplexity
        self.dof = dof

    def loss(self, batch: Batch) -> Tensor:
        """Return the divergence over the pairs of the batch."""
        x = self.inputs[batch.rows]
        perplexity = max(1.0, min(self.perplexity, (len(x) - 1) / 3))
        p = neighbor_probabilities(torch.cdist(x, x).square(), perplexity)
        return joint_divergence((p + p.T) / (2 * len(x)), batch.code, self.dof)


class ExemplarMCML(NoDecision):
    """MCML against a few exemplars instead of all other samples: HOPE (Min, Guo & Song 2017).

    The loss is 1/b Σ_i KL(p_{·|i} ‖ q_{·|i}) over the exemplars j. p_{j|i} has the same value for
    all exemplars of the sample's class and is 0 for others; q_{j|i} = k(z_i, e_j) / Σ_l k(z_i, e_l)
    with Student's t of one degree of freedom as k.

    Parameters
    ----------
    exemplars
        (z, k) network inputs.
    labels
        (z,) class indices of the exemplars; every class has at least one exemplar.
    encode
        The encoder of the network, which also embeds the exemplars.
    """

    def __init__(
        self, exemplars: Tensor, labels: Tensor, encode: Callable[[Tensor], Tensor]
    ) -> None:
        self.exemplars = exemplars
        self.labels = labels
        self.encode = encode

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean divergence over the samples."""
        codes = self.encode(self.exemplars)
        log_q = log_kernel(batch.code, codes, dof=1.0).log_softmax(dim=1)
        same = (batch.labels[:, None] == self.labels).to(log_q.dtype)
        p = same / same.sum(dim=1, keepdim=True)
        return (torch.xlogy(p, p) - p * log_q).sum(dim=1).mean()


class Discriminant(NoDecision):
    """Generalised discriminant analysis of the code: GerDA (Stuhlsatz, Lippel & Zielke 2012).

    The loss is m − trace(S_T⁻¹ S_B), with S_T = S_W + S_B and

        S_B = 1/(2b²) Σ_ij n_i n_j δ_ij (m_i − m_j)(m_i − m_j)ᵀ,   δ_ij ∝ 1/‖m_i − m_j‖².

    The weights δ_ij of the paper reduce the influence of pairs of classes that are far apart. They
    would also make the loss smaller for a smaller code. Therefore they are scaled so that S_B has
    the same trace as without weights, and they are treated as constants in the gradient.
    """

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the batch, between 0 and m."""
        code, n_rows = batch.code, len(batch.code)
        _, classes = batch.labels.unique(return_inverse=True)
        members = one_hot(classes).to(code.dtype)
        counts = members.sum(dim=0)
        means = members.T @ code / counts[:, None]
        deviations = code - means[classes]
        within = deviations.T @ deviations / n_rows

        differences = means[:, None] - means
        shares = counts[:, None] * counts / (2 * n_rows**2)
        squared = differences.detach().square().sum(dim=2)
        tiny = torch.finfo(code.dtype).tiny
        spread = (shares * squared).sum().clamp(min=tiny)
        # If two means coincide, their difference has no direction, and the pair gets no weight.
        inverse = torch.where(squared > 1e-12 * spread, 1 / squared.clamp(min=tiny), 0.0)
        weights = shares * inverse * spread / (shares * (inverse > 0)).sum().clamp(min=tiny)
        between = torch.einsum("ij,ijk,ijl->kl", weights, differences, differences)

        total = within + between
        ridge = RIDGE * total.detach().diagonal().mean() + tiny
        total = total + ridge * torch.eye(len(total), dtype=code.dtype, device=code.device)
        explained: Tensor = torch.linalg.solve(total, between).trace()
        return len(total) - explained


def log_kernel(a: Tensor, b: Tensor, dof: float | None) -> Tensor:
    """Return (n, k) logarithms of similarities of (n, m) and (k, m) codes, up to a constant.

    The Gaussian is exp(−‖a − b‖²), without a factor ½, as in the papers.
    """
    # ‖a‖² − 2ab + ‖b‖² is inexact for near neighbours.
    squared = (a[:, None] - b).square().sum(dim=2)
    if dof is None:
        return -squared
    return -(dof + 1) / 2 * torch.log1p(squared / dof)


def joint_divergence(p: Tensor, code: Tensor, dof: float | None) -> Tensor:
    """Return KL(P‖Q) of (b, b) joint probabilities with a zero diagonal, and those of the code."""
    logits = log_kernel(code, code, dof)
    log_q = logits - _without_self(logits).flatten().logsumexp(dim=0)
    return (torch.xlogy(p, p) - p * log_q).sum()


def neighbor_probabilities(squared: Tensor, perplexity: float) -> Tensor:
    """Return (b, b) p_{j|i} ∝ exp(−β_i d²_ij) whose rows have the given perplexity."""
    tiny = torch.finfo(squared.dtype).tiny
    squared = squared / squared.mean(dim=1, keepdim=True).clamp(min=tiny)
    # With this distance to itself, a sample is not its own neighbour.
    squared = squared.masked_fill(_diagonal(squared), 1e9)
    squared = squared - squared.amin(dim=1, keepdim=True)
    low = torch.full_like(squared[:, :1], -10.0)
    high = low + 25
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        beta = middle.exp()
        p = torch.exp(-beta * squared)
        total = p.sum(dim=1, keepdim=True)
        entropy = total.log() + beta * (p * squared).sum(dim=1, keepdim=True) / total
        too_wide = entropy > math.log(perplexity)
        low, high = torch.where(too_wide, middle, low), torch.where(too_wide, high, middle)
    return (p / total).masked_fill(_diagonal(p), 0.0)


def _same_class(labels: Tensor) -> Tensor:
    """Return (b, b) 1.0 for two different samples of one class, else 0.0."""
    same = labels[:, None] == labels
    return same.masked_fill(_diagonal(same), False).float()


def _without_self(logits: Tensor) -> Tensor:
    # Minus infinity would become NaN for a batch of one sample.
    return logits.masked_fill(_diagonal(logits), torch.finfo(logits.dtype).min)


def _diagonal(square: Tensor) -> Tensor:
    return torch.eye(len(square), dtype=torch.bool, device=square.device)
