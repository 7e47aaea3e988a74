"""Which features of a row the networks use: integrated gradients of the margin of a class."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from centroid_encoder.core.arrays import Singles
from centroid_encoder.core.discriminant import LEAST
from centroid_encoder.core.map import FittedMap

N_STEPS = 32
"""Places on the line from the baseline to a row at which gradients are computed."""


def attribute(
    map_: FittedMap, z: Tensor, baseline: Tensor, group: int, others: list[int]
) -> Singles:
    """(n, k) contributions of the features of (n, k) standardised rows to the margin of a class.

    The sum over the features is the margin of the row less that of the (k,) `baseline`, except for
    the error of the Gauss-Legendre quadrature (Sundararajan, Taly & Yan 2017).
    """
    nodes, weights = np.polynomial.legendre.leggauss(N_STEPS)
    total = torch.zeros_like(z)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        x = (baseline + node * (z - baseline)).requires_grad_()
        (slope,) = torch.autograd.grad(margins(map_, x, group, others).sum(), x)
        total += weight * slope
    return np.asarray((total * (z - baseline)).cpu())


def margins(map_: FittedMap, z: Tensor, group: int, others: list[int]) -> Tensor:
    """(n,) logit of a class less that of all `others` together, for (n, k) standardised rows."""
    inputs = map_.inputs(z)
    outputs = map_.network.outputs(inputs)
    if map_.placer is None:
        calibration = map_.calibration
        distances = map_.targets.distances(outputs)
        logits = -((distances / calibration.temperature) ** calibration.exponent)
    else:
        placer, linear = map_.placer, map_.placer.linear
        targets, axes, means, offsets = (
            torch.tensor(values, dtype=outputs.dtype, device=outputs.device)
            for values in (placer.targets, linear.axes, linear.means, placer.offsets)
        )
        squared = (outputs[:, None] - targets).square().mean(dim=-1)
        away = ((z @ axes.T)[:, None] - means).square().sum(dim=-1) / 2
        less = away - away.min(dim=1, keepdim=True).values
        likelihoods = LEAST * torch.tanh(less / -LEAST)
        logits = offsets - placer.sharpness * squared + placer.voice * likelihoods
    return logits[:, group] - logits[:, others].logsumexp(dim=1)
