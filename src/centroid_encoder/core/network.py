"""The centroid-encoder network: an encoder, a linear bottleneck and a mirrored decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import leaky_relu, linear, relu

Activation = Literal["relu", "leaky_relu", "tanh", "sigmoid"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "leaky_relu": leaky_relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
assert tuple(ACTIVATIONS) == get_args(Activation)


class Network(nn.Module):
    """Autoencoder-shaped network f = h∘g with a linear bottleneck and a linear output.

    The encoder g has the layers ``n_inputs → hidden[0] → … → hidden[-1] → n_components``; the
    decoder h mirrors the widths with weights of its own, as in the paper.

    Layer-freeze pre-training needs no surgery on the network: stage *s* trains the sub-network
    that ends at encoder layer *s* and resumes at the decoder layer that mirrors it, so a stage is
    just a `depth` at which encoder and decoder meet. ``depth == n_stages - 1`` is the whole
    network.

    Parameters
    ----------
    n_inputs
        Number of inputs: the features that are not left out.
    hidden
        Widths of the encoder's hidden layers; may be empty (a linear map).
    n_components
        Width m ≥ 1 of the bottleneck.
    n_outputs
        Width of the decoder's last layer; 0 builds no decoder at all.
    activation
        Non-linearity of every hidden layer. Bottleneck and output are linear.
    batch_norm
        Whether the encoder's hidden layers are batch-normalised (Ioffe & Szegedy 2015) before the
        non-linearity while the network is trained. `fold_batch_norm` makes them plain layers.
    n_networks
        Number K of such networks side by side, each with weights of its own. With more than one,
        each takes its own (b, n_inputs) slice of (K, b, n_inputs) inputs, or all take the same
        (b, n_inputs), and codes and outputs are (K, b, …); there is neither a decoder nor batch
        normalisation.
    n_axes
        Number r of axes along which the first layer takes the inputs, each network its own: `axes`
        are (r, n_inputs), or (K, r, n_inputs). They are not trained. 0 for the inputs themselves.
    generator
        CPU generator that draws the initial weights. The weights are the same whatever the device
        and the global random state stays as it is. Without it the weights are uninitialised, to be
        loaded.
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
        n_axes: int = 0,
    ) -> None:
        super().__init__()
        widths = [n_axes or n_inputs, *hidden, n_components]
        mirrored = [n_components, *reversed(hidden), n_outputs]
        self.activation = ACTIVATIONS[activation]
        self.n_networks = n_networks
        self.encoder = _linear_layers(widths, n_networks)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in hidden if batch_norm)
        self.decoder = _linear_layers(mirrored) if n_outputs else nn.ModuleList()
        self.axes: Tensor | None
        self.register_buffer("axes", None)
        self.votes: Tensor
        self.register_buffer("votes", None)
        if n_networks > 1:
            self.votes = torch.full((n_networks,), 1 / n_networks)
        if n_axes:
            shape = (n_networks, n_axes, n_inputs) if n_networks > 1 else (n_axes, n_inputs)
            self.axes = torch.empty(shape, device=torch.get_default_device())
        if generator is not None:
            self._initialize(activation, generator)

    @property
    def n_stages(self) -> int:
        """Number of depths at which encoder and decoder can meet: hidden layers + 1."""
        return len(self.encoder)

    @torch.no_grad()
    def _initialize(self, activation: Activation, generator: torch.Generator) -> None:
        # As in the authors' program: Xavier for saturating units, Kaiming for rectifying ones,
        # zero biases; the two linear layers (bottleneck, output) keep the framework's default.
        for layers in (self.encoder, self.decoder):
            for i, layer in enumerate(cast(Iterable[nn.Linear], layers)):
                if i == len(layers) - 1:
                    bound = 1 / math.sqrt(layer.in_features)
                    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
                    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
                    continue
                # Of networks side by side, each is initialised by itself.
                for weight in layer.weight if layer.weight.dim() == 3 else [layer.weight]:
                    if activation in ("tanh", "sigmoid"):
                        nn.init.xavier_uniform_(weight, generator=generator)
                    else:
                        nn.init.kaiming_uniform_(weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(layer.bias)

    def encode(self, x: Tensor, *, first: int = 0, depth: int | None = None) -> Tensor:
        """Apply encoder layers `first` … `depth` (default: all, giving the embedding)."""
        last = len(self.encoder) - 1
        if first == 0 and self.axes is not None:
            x = x @ self.axes.mT
        if self.n_networks > 1 and self.activation is relu and first == 0 and depth in (None, last):
            layers = cast(Iterable[Linears], self.encoder)
            shared = x if x.dim() == 3 else x.expand(self.n_networks, *x.shape)
            weights = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
            return cast(Tensor, _Rectified.apply(shared, *weights))  # type: ignore[no-untyped-call]
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
        """(b, r) outputs of the whole network for (b, n_inputs) inputs; of several, by `votes`.

        Of several networks, inputs may be (K, b, n_inputs), each network's own, and (b,) `folds`
        says for each row which one is asked alone; where it is −1, all are.
        """
        if self.n_networks == 1:
            return self.decode(self.encode(x))
        if folds is None:
            return self._voted(x)
        n_outputs = cast(Linears, self.encoder[-1]).bias.shape[1]
        outputs = torch.empty(len(folds), n_outputs, device=x.device)
        for k in range(-1, self.n_networks):
            some = torch.nonzero(folds == k)[:, 0]
            if not len(some):
                continue
            inputs = x[..., some, :]
            outputs[some] = self._voted(inputs) if k < 0 else self._alone(k, inputs)
        return outputs

    def _voted(self, x: Tensor) -> Tensor:
        """(b, r) mean of the outputs of several networks, weighted by `votes`."""
        return torch.einsum("k,kbr->br", self.votes, self.encode(x))

    def _alone(self, k: int, x: Tensor) -> Tensor:
        """(b, r) outputs of one of several networks."""
        x = x[k] if x.dim() == 3 else x
        if self.axes is not None:
            x = x @ self.axes[k].mT
        for i, layer in enumerate(cast(Iterable[Linears], self.encoder)):
            x = linear(self.activation(x) if i else x, layer.weight[k], layer.bias[k])
        return x

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

        γ · (W x + b − μ) / σ + β is again a linear layer: the embedding stays what it is in
        evaluation mode, to rounding, and the network is one without batch normalisation.
        """
        layers = cast(Iterable[nn.Linear], self.encoder)
        norms = cast(Iterable[nn.BatchNorm1d], self.norms)
        for layer, norm in zip(layers, norms, strict=False):
            mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
            factor = norm.weight / torch.sqrt(variance + norm.eps)
            layer.weight.mul_(factor[:, None])
            layer.bias.sub_(mean).mul_(factor).add_(norm.bias)
        self.norms = nn.ModuleList()


def _layer(n_networks: int, in_features: int, out_features: int) -> nn.Module:
    if n_networks > 1:
        return Linears(n_networks, in_features, out_features)
    return Linear(in_features, out_features)


class Linear(nn.Linear):
    """A linear layer without initial weights: to draw them would take from the global state.

    `torch.nn.utils.skip_init` does the same, and imports sympy for it, which takes as long as a
    short training.
    """

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class _Rectified(Function):
    """All layers of networks side by side, with rectifiers between them.

    The same operations as one layer after the other, and the same bits, as one step of autograd
    instead of three for each layer: with small batches, the bookkeeping takes as long as a layer.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        """Map (K, b, n_in) inputs by (K, n_out, n_in) weights and (K, n_out) biases in turn."""
        inputs: list[Tensor] = []
        for weight, bias in zip(weights[::2], weights[1::2], strict=True):
            inputs.append(x.relu_() if inputs else x)
            x = torch.baddbmm(bias[:, None], x, weight.mT)
        ctx.save_for_backward(*inputs, *weights[::2])
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of inputs, weights and biases for that of the output."""
        n = len(ctx.saved_tensors) // 2
        inputs, weights = ctx.saved_tensors[:n], ctx.saved_tensors[n:]
        found: list[Tensor | None] = []
        for i in reversed(range(n)):
            found = [torch.bmm(gradient.mT, inputs[i]), gradient.sum(dim=1), *found]
            if i or ctx.needs_input_grad[0]:
                gradient = torch.bmm(gradient, weights[i])
            if i:
                gradient = torch.ops.aten.threshold_backward(gradient, inputs[i], 0)
        return gradient if ctx.needs_input_grad[0] else None, *found


class Linears(nn.Module):
    """Linear layers of one shape, side by side."""

    def __init__(self, n_networks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, device = in_features, torch.get_default_device()
        self.weight = nn.Parameter(
            torch.empty(n_networks, out_features, in_features, device=device)
        )
        self.bias = nn.Parameter(torch.empty(n_networks, out_features, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Map (K, b, n_in) inputs, or (b, n_in) that are the same for all, to (K, b, n_out)."""
        x = x if x.dim() == 3 else x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias[:, None], x, self.weight.transpose(1, 2))


def _linear_layers(widths: Sequence[int], n_networks: int = 1) -> nn.ModuleList:
    return nn.ModuleList(_layer(n_networks, *shape) for shape in pairwise(widths))
