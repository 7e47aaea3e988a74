"""Which features of a row the networks use: integrated gradients of the margin of a class."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from centroid_encoder.core.features import on_axes
from centroid_encoder.core.map import FittedMap

N_STEPS = 32
"""Places on the line from the baseline to a row at which gradients are computed."""


def attribute(
    map_: FittedMap, z: Tensor, baseline: Tensor, group: int, others: list[int]
) -> NDArray[np.float32]:
    """(n, k) contributions of the features of (n, k) standardised rows to the margin of a class.

    The sum over the features is the margin of the row less that of the (k,) `baseline`, except for
    the error of the Gauss-Legendre quadrature (Sundararajan, Taly & Yan 2017).
    """
    nodes, weights = np.polynomial.legendre.leggauss(N_STEPS)
    # Without ramps, the inputs are linear in z: gradients by the fewer inputs are sufficient.
    axes = map_.axes if map_.knots is None else None
    start, end = on_axes(baseline.expand_as(z), axes), on_axes(z, axes)
    total = torch.zeros_like(end)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        x = (start + node * (end - start)).requires_grad_()
        inputs = map_.inputs_of(x) if axes is None else x
        (slope,) = torch.autograd.grad(margins(map_, inputs, group, others).sum(), x)
        total += weight * slope
    if axes is not None:
        total = (total.reshape(len(axes), len(z), -1) @ axes).sum(dim=0)
    return np.asarray((total * (z - baseline)).cpu())


def margins(map_: FittedMap, inputs: Tensor, group: int, others: list[int]) -> Tensor:
    """(n,) logit of a class less that of all `others` together, for inputs of the networks."""
    outputs = map_.network.outputs(inputs)
    if map_.placer is None:
        calibration = map_.calibration
        distances = map_.targets.distances(outputs)
        logits = -((distances / calibration.temperature) ** calibration.exponent)
    else:
        targets = torch.tensor(map_.placer.targets, device=outputs.device)
        offsets = torch.tensor(map_.placer.offsets, dtype=outputs.dtype, device=outputs.device)
        squared = (outputs[:, None] - targets).square().mean(dim=-1)
        logits = offsets - map_.placer.sharpness * squared
    return logits[:, group] - logits[:, others].logsumexp(dim=1)
