"""The network of a centroid-encoder, or several networks without bottleneck side by side."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

Activation = Literal["relu", "tanh"]
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class Network(nn.Module):
    """Network f = h∘g in the shape of an autoencoder, with linear bottleneck and output.

    The encoder g has the layers ``n_inputs → hidden[0] → … → hidden[-1] → n_components``. The
    decoder h has the same widths in reverse order and weights of its own, as in the paper.

    Layer-freeze pre-training has a stage for each encoder layer. The stage of layer `depth` trains
    a network of encoder layers 0 to `depth` and the decoder layers that mirror them.

    Without hidden layers the network is a linear map. With ``n_outputs=0`` it has no decoder, and
    its output are the `n_components` numbers. `activation` follows every hidden layer. With
    `batch_norm`, the encoder's hidden layers are batch-normalised before the activation during
    training (Ioffe & Szegedy 2015), and `fold_batch_norm` turns them into plain layers.

    `n_networks` is the number K of such networks side by side, each with its own weights. If
    K > 1, they map (K, b, n_inputs) inputs to (K, b, n_components) outputs, and have neither a
    decoder nor batch normalisation. The CPU `generator` draws the initial weights, so that they are
    the same on all devices. Without it they are not initialised, as for a stored network.
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        n_components: int,
        n_outputs: int,
        activation: Activation,
        generator: torch.Generator | None = None,
        *,
        batch_norm: bool = False,
        n_networks: int = 1,
    ) -> None:
        super().__init__()
        # The arguments of the fitted network, which has no batch normalisation.
        self.shape: dict[str, Any] = {
            "n_inputs": n_inputs,
            "hidden": list(map(int, hidden)),
            "n_components": n_components,
            "n_outputs": n_outputs,
            "activation": activation,
            "n_networks": n_networks,
        }
        self.activation = ACTIVATIONS[activation]
        self.n_networks = n_networks
        self.encoder = _layers([n_inputs, *hidden, n_components], n_networks)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in hidden if batch_norm)
        mirrored = [n_components, *reversed(hidden), n_outputs]
        self.decoder = _layers(mirrored, 1) if n_outputs else nn.ModuleList()
        self.register_buffer("votes", torch.full((n_networks,), 1 / n_networks))
        if generator is not None:
            self._initialize(activation, generator)

    votes: Tensor
    """(K,) weight of each network for rows that no network was trained on; their sum is 1."""

    @torch.no_grad()
    def _initialize(self, activation: Activation, generator: torch.Generator) -> None:
        # As in the authors' program: Xavier for tanh, Kaiming for ReLU, and zero biases. The two
        # linear layers (bottleneck and output) have torch's default.
        for layers in (self.encoder, self.decoder):
            for i, layer in enumerate(cast(Iterable[nn.Linear], layers)):
                if i == len(layers) - 1:
                    bound = 1 / math.sqrt(layer.in_features)
                    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
                    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
                    continue
                for weight in layer.weight.mT if layer.weight.dim() == 3 else [layer.weight]:
                    if activation == "tanh":
                        nn.init.xavier_uniform_(weight, generator=generator)
                    else:
                        nn.init.kaiming_uniform_(weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(layer.bias)

    def encode(self, x: Tensor, *, first: int = 0, depth: int | None = None) -> Tensor:
        """Apply encoder layers `first` … `depth`; by default all, whose result is the embedding."""
        last = len(self.encoder) - 1
        for i in range(first, last + 1 if depth is None else depth + 1):
            x = self.encoder[i](x)
            if i < last:
                x = self.activation(self.norms[i](x) if self.norms else x)
        return x

    def decode(self, code: Tensor, *, depth: int | None = None) -> Tensor:
        """Apply the decoder layers from the one that mirrors encoder layer `depth` to the last.

        Without a decoder, the code is returned.
        """
        last = len(self.decoder) - 1
        for i in range(0 if depth is None else max(0, last - depth), last + 1):
            code = self.decoder[i](code)
            if i < last:
                code = self.activation(code)
        return code

    def outputs(self, x: Tensor, folds: Tensor | None = None) -> Tensor:
        """(b, r) outputs of the whole network for (b, n_inputs) inputs, or (K, b, n_inputs).

        With several networks, a row with k ≥ 0 in (b,) `folds` has the output of network k. Other
        rows have the mean over the networks, weighted by `votes`.
        """
        if self.n_networks == 1:
            return self.decode(self.encode(x))
        found = self.encode(x)
        outputs = torch.einsum("k,kbr->br", self.votes, found)
        if folds is None:
            return outputs
        folds = folds.to(x.device)
        alone = found[folds.clamp_min(0), torch.arange(len(folds), device=x.device)]
        return torch.where(folds[:, None] < 0, outputs, alone)

    def stage_parameters(self, depth: int) -> list[nn.Parameter]:
        """Parameters of the encoder layer and the decoder layer that stage `depth` adds."""
        layers = [self.encoder[depth]]
        if depth < len(self.norms):
            layers.append(self.norms[depth])
        if len(self.decoder):
            layers.append(self.decoder[len(self.decoder) - 1 - depth])
        return [parameter for layer in layers for parameter in layer.parameters()]

    def some(self, which: slice) -> Network:
        """Return some of the networks; their parameters are parts of those of all."""
        part = copy.deepcopy(self)
        for own, of_all in zip(part.parameters(), self.parameters(), strict=True):
            own.data = of_all.data[which]
        return part

    @torch.no_grad()
    def fold_batch_norm(self) -> None:
        """Merge batch normalisation into the linear layers before it.

        γ · (W x + b − μ) / σ + β, with the running statistics μ and σ, is again a linear layer. The
        embedding is that of evaluation mode, except for rounding.
        """
        layers = cast(Iterable[nn.Linear], self.encoder)
        norms = cast(Iterable[nn.BatchNorm1d], self.norms)
        for layer, norm in zip(layers, norms, strict=False):
            mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
            factor = norm.weight / torch.sqrt(variance + norm.eps)
            layer.weight.mul_(factor[:, None])
            layer.bias.sub_(mean).mul_(factor).add_(norm.bias)
        self.norms = nn.ModuleList()


class Linears(nn.Module):
    """K linear layers of one shape side by side, from (K, b, n_in) to (K, b, n_out)."""

    def __init__(self, n_networks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        # With this order of the dimensions, no gradient is copied.
        self.weight = nn.Parameter(torch.empty(n_networks, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(n_networks, out_features))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each layer to its own (b, n_in) inputs, in their precision."""
        return torch.baddbmm(self.bias[:, None].to(x.dtype), x, self.weight.to(x.dtype))


def _layers(widths: Sequence[int], n_networks: int) -> nn.ModuleList:
    if n_networks == 1:
        # Without initial weights, because torch would draw them from the global random state.
        return nn.ModuleList(skip_init(nn.Linear, *shape) for shape in pairwise(widths))
    return nn.ModuleList(Linears(n_networks, *shape) for shape in pairwise(widths))
