"""The network of a centroid-encoder, and several networks without bottleneck side by side."""

from __future__ import annotations

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
    """Autoencoder-shaped network f = h∘g with a linear bottleneck and a linear output.

    The encoder g has the layers ``n_inputs → hidden[0] → … → hidden[-1] → n_components``; the
    decoder h mirrors the widths with weights of its own, as in the paper.

    Stage *s* of layer-freeze pre-training trains the sub-network that ends at encoder layer *s* and
    resumes at the decoder layer that mirrors it: a stage is a `depth` at which encoder and decoder
    meet. ``depth == n_stages - 1`` is the whole network.

    Without hidden layers it is a linear map. With ``n_outputs=0`` there is no decoder, and the
    `n_components` numbers are the output. `activation` follows every hidden layer; with
    `batch_norm`, the encoder's hidden layers are batch-normalised (Ioffe & Szegedy 2015) before it
    during training, and `fold_batch_norm` turns them into plain layers.

    `n_networks` is the number K of such networks side by side, each with its own weights. More than
    one take (K, b, n_inputs) inputs and return (K, b, n_components) outputs; they have neither a
    decoder nor batch normalisation. The CPU `generator` draws the initial weights, which are thus
    the same on each device; without it they are not initialised, for loading.
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

    shape: dict[str, Any]
    """Arguments from which the fitted network, without batch normalisation, can be built anew."""
    votes: Tensor
    """(K,) weight of each network for rows that no network was trained on; their sum is 1."""

    @property
    def n_stages(self) -> int:
        """Number of depths at which encoder and decoder can meet: hidden layers + 1."""
        return len(self.encoder)

    @torch.no_grad()
    def _initialize(self, activation: Activation, generator: torch.Generator) -> None:
        # As in the authors' program: Xavier for tanh, Kaiming for ReLU, zero biases; the two linear
        # layers (bottleneck, output) keep the framework's default.
        for layers in (self.encoder, self.decoder):
            for i, layer in enumerate(cast(Iterable[nn.Linear], layers)):
                if i == len(layers) - 1:
                    bound = 1 / math.sqrt(layer.in_features)
                    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
                    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
                    continue
                for weight in layer.weight if layer.weight.dim() == 3 else [layer.weight]:
                    if activation == "tanh":
                        nn.init.xavier_uniform_(weight, generator=generator)
                    else:
                        nn.init.kaiming_uniform_(weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(layer.bias)

    def encode(self, x: Tensor, *, first: int = 0, depth: int | None = None) -> Tensor:
        """Apply encoder layers `first` … `depth` (default: all, giving the embedding)."""
        last = len(self.encoder) - 1
        for i in range(first, last + 1 if depth is None else depth + 1):
            x = self.encoder[i](x)
            if i < last:
                x = self.activation(self.norms[i](x) if self.norms else x)
        return x

    def decode(self, code: Tensor, *, depth: int | None = None) -> Tensor:
        """Apply the decoder from the layer that mirrors encoder layer `depth` to the output.

        Without a decoder the code is the output.
        """
        last = len(self.decoder) - 1
        for i in range(0 if depth is None else max(0, last - depth), last + 1):
            code = self.decoder[i](code)
            if i < last:
                code = self.activation(code)
        return code

    def outputs(self, x: Tensor, folds: Tensor | None = None) -> Tensor:
        """(b, r) outputs of the whole network for (b, n_inputs) inputs.

        K > 1 networks take (K, b, n_inputs). Where (b,) `folds` is k ≥ 0, the output is that of
        network k; otherwise it is the mean over the networks, weighted by `votes`.
        """
        if self.n_networks == 1:
            return self.decode(self.encode(x))
        found = self.encode(x)
        outputs = torch.einsum("k,kbr->br", self.votes, found)
        if folds is None:
            return outputs
        alone = found[folds.clamp_min(0), torch.arange(len(folds), device=x.device)]
        return torch.where(folds[:, None] < 0, outputs, alone)

    def stage_parameters(self, depth: int) -> list[nn.Parameter]:
        """Parameters that layer-freeze stage `depth` adds: one encoder and one decoder layer."""
        layers = [self.encoder[depth]]
        if depth < len(self.norms):
            layers.append(self.norms[depth])
        if len(self.decoder):
            layers.append(self.decoder[len(self.decoder) - 1 - depth])
        return [parameter for layer in layers for parameter in layer.parameters()]

    @torch.no_grad()
    def fold_batch_norm(self) -> None:
        """Make the running statistics of batch normalisation part of the layers before it.

        γ · (W x + b − μ) / σ + β is again a linear layer: the embedding remains that of evaluation
        mode, to rounding, and the network is one without batch normalisation.
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
    """K linear layers of one shape, side by side: (K, b, n_in) inputs, (K, b, n_out) outputs."""

    def __init__(self, n_networks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.weight = nn.Parameter(torch.empty(n_networks, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(n_networks, out_features))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each layer to its own inputs."""
        return torch.baddbmm(self.bias[:, None], x, self.weight.mT)


def _layers(widths: Sequence[int], n_networks: int) -> nn.ModuleList:
    if n_networks == 1:
        # Drawing initial weights would use the global random state.
        return nn.ModuleList(skip_init(nn.Linear, *shape) for shape in pairwise(widths))
    return nn.ModuleList(Linears(n_networks, *shape) for shape in pairwise(widths))
