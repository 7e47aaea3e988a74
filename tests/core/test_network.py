from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from centroid_encoder.core.network import ACTIVATIONS, Network

HIDDEN: list[tuple[int, ...]] = [(), (7,), (4, 9, 3)]


def make(hidden: Sequence[int] = (7, 4), activation: Any = "tanh", **options: Any) -> Network:
    """6 → hidden → 2 → hidden reversed → 5, with random weights, biases and statistics."""
    generator = torch.Generator().manual_seed(0)
    n_outputs = options.pop("n_outputs", 5)
    network = Network(6, hidden, 2, n_outputs, activation, generator, **options)
    with torch.no_grad():
        for layer in [*network.encoder, *network.decoder]:
            layer.bias.normal_(generator=generator)
        for norm in network.norms:
            norm.weight.uniform_(0.5, 2, generator=generator)
            norm.bias.normal_(generator=generator)
            norm.running_mean.normal_(generator=generator)
            norm.running_var.uniform_(0.1, 3, generator=generator)
    return network


def samples(*shape: int) -> Tensor:
    return torch.randn(*(shape or (20, 6)), generator=torch.Generator().manual_seed(2))


def applied(x: Tensor, layers: Sequence[nn.Module], activation: str) -> Tensor:
    """Linear layers, each but the last followed by the activation."""
    for i, layer in enumerate(layers):
        x = x @ layer.weight.T + layer.bias
        x = ACTIVATIONS[activation](x) if i < len(layers) - 1 else x
    return x


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_bottleneck_and_output_are_linear_and_the_decoder_mirrors_the_widths(
    hidden: tuple[int, ...], activation: str
) -> None:
    network = make(hidden, activation)
    for layers, widths in (
        (network.encoder, [6, *hidden, 2]),
        (network.decoder, [2, *hidden[::-1], 5]),
    ):
        assert [tuple(layer.weight.shape[::-1]) for layer in layers] == [*pairwise(widths)]
    z = applied(samples(), network.encoder, activation)
    torch.testing.assert_close(network.encode(samples()), z)
    torch.testing.assert_close(network.decode(z), applied(z, network.decoder, activation))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("n_networks", [1, 3])
def test_initial_weights_are_uniform_within_the_published_bounds(
    activation: Any, n_networks: int
) -> None:
    generator, state = torch.Generator().manual_seed(0), torch.get_rng_state()
    network = Network(100, (300, 200), 90, 0, activation, generator, n_networks=n_networks)
    assert torch.equal(torch.get_rng_state(), state)
    *hidden, last = network.encoder
    for layer in hidden:
        n_in, n_out = layer.in_features, layer.bias.shape[-1]
        limit = math.sqrt(6 / (n_in + n_out) if activation == "tanh" else 6 / n_in)
        assert not layer.bias.any()
        assert float(layer.weight.detach().abs().max()) == pytest.approx(limit, rel=0.01)
        std = float(layer.weight.detach().std())
        assert std == pytest.approx(limit / math.sqrt(3), rel=0.02)
    assert float(last.weight.detach().abs().max()) == pytest.approx(1 / math.sqrt(200), rel=0.01)
    assert 0 < float(last.bias.detach().abs().max()) <= 1 / math.sqrt(200)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_folding_batch_norm_gives_plain_layers_with_the_same_outputs(
    hidden: tuple[int, ...],
) -> None:
    network = make(hidden, batch_norm=True).eval()
    before = network.encode(samples()).detach()
    network.fold_batch_norm()
    plain = make(hidden)
    plain.load_state_dict(network.state_dict())  # strict: the names of a network without it
    torch.testing.assert_close(plain.encode(samples()), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_each_of_several_networks_computes_the_same_as_alone(hidden: tuple[int, ...]) -> None:
    several = make(hidden, n_outputs=0, n_networks=3)
    several.votes.copy_(torch.tensor([0.5, 0.3, 0.2]))
    x = samples(3, 20, 6)
    alone = []
    for k in range(3):
        single = make(hidden, n_outputs=0)
        state = {name: value[k] for name, value in several.state_dict().items() if name != "votes"}
        state = {name: value.mT if value.dim() == 2 else value for name, value in state.items()}
        single.load_state_dict(state, strict=False)
        alone.append(single.outputs(x[k]))
    torch.testing.assert_close(several.encode(x), torch.stack(alone), rtol=1e-5, atol=1e-5)
    mean = 0.5 * alone[0] + 0.3 * alone[1] + 0.2 * alone[2]
    torch.testing.assert_close(several.outputs(x), mean, rtol=1e-5, atol=1e-5)
    folds = torch.arange(20) % 4 - 1
    expected = torch.where((folds < 0)[:, None], mean, torch.stack(alone)[folds, torch.arange(20)])
    torch.testing.assert_close(several.outputs(x, folds), expected, rtol=1e-5, atol=1e-5)
