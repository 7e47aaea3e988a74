from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from centroid_encoder.core.network import ACTIVATIONS, Activation, Network

Array = NDArray[np.float64]

HIDDEN: list[tuple[int, ...]] = [(), (7,), (7, 4), (4, 9, 3)]

REFERENCE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def make(
    hidden: Sequence[int] = (7, 4),
    *,
    n_inputs: int = 6,
    n_components: int = 2,
    n_outputs: int = 5,
    activation: Activation = "tanh",
    seed: int = 0,
) -> Network:
    generator = torch.Generator().manual_seed(seed)
    return Network(n_inputs, hidden, n_components, n_outputs, activation, generator)


def with_random_biases(network: Network) -> Network:
    """Zero biases would hide a bias that is left out."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in [*network.encoder, *network.decoder]:
            layer.bias.normal_(generator=generator)
    return network


def samples(n_inputs: int = 6) -> torch.Tensor:
    return torch.randn(20, n_inputs, generator=torch.Generator().manual_seed(2))


def apply(x: Array, layers: Sequence[nn.Module], activations: Sequence[bool], name: str) -> Array:
    """Float64 reference: affine maps, each followed by the activation where told so."""
    for layer, active in zip(layers, activations, strict=True):
        x = x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        x = REFERENCE[name](x) if active else x
    return x


def agree(actual: torch.Tensor, expected: Array) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_every_activation_has_a_reference_here() -> None:
    assert set(ACTIVATIONS) == set(REFERENCE)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_decoder_mirrors_the_encoders_widths(hidden: tuple[int, ...], m: int) -> None:
    network = make(hidden, n_components=m)

    widths = [6, *hidden, m]
    mirrored = [m, *hidden[::-1], 5]
    assert [tuple(layer.weight.shape[::-1]) for layer in network.encoder] == [*pairwise(widths)]
    assert [tuple(layer.weight.shape[::-1]) for layer in network.decoder] == [*pairwise(mirrored)]
    assert network.n_stages == len(hidden) + 1
    z = network.encode(samples())
    assert z.shape == (20, m)
    assert network.decode(z).shape == (20, 5)


def test_decoder_has_weights_of_its_own() -> None:
    network = make((6,), n_inputs=6, n_outputs=6)

    # Every parameter is there once, and a mirrored pair starts out different.
    assert len({parameter.data_ptr() for parameter in network.parameters()}) == 8
    assert not torch.equal(network.encoder[0].weight, network.decoder[1].weight.T)


@pytest.mark.parametrize("activation", REFERENCE)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_bottleneck_and_output_are_linear_and_the_rest_is_not(
    hidden: tuple[int, ...], activation: Activation
) -> None:
    network = with_random_biases(make(hidden, activation=activation))
    x = samples()
    active = [True] * len(hidden) + [False]

    z = apply(x.double().numpy(), network.encoder, active, activation)

    agree(network.encode(x), z)
    agree(network.decode(network.encode(x)), apply(z, network.decoder, active, activation))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_depth_is_where_encoder_and_decoder_meet(depth: int) -> None:
    # Stage 1 is 6 → h1 → 5, stage 2 is 6 → h1 → h2 → h1 → 5, and so on (findings §1).
    network = with_random_biases(make((7, 4, 3)))
    x = samples()
    layers = {
        0: [network.encoder[0], network.decoder[3]],
        1: [*network.encoder[:2], *network.decoder[2:]],
        2: [*network.encoder[:3], *network.decoder[1:]],
    }[depth]
    active = [True] * (len(layers) - 1) + [False]

    output = network.decode(network.encode(x, depth=depth), depth=depth)

    agree(output, apply(x.double().numpy(), layers, active, "tanh"))


@pytest.mark.parametrize("hidden", HIDDEN)
def test_last_depth_is_the_whole_network(hidden: tuple[int, ...]) -> None:
    network = make(hidden)
    x = samples()

    z = network.encode(x, depth=len(hidden))

    assert torch.equal(z, network.encode(x))
    assert torch.equal(network.decode(z, depth=len(hidden)), network.decode(z))


def test_encoding_goes_on_from_a_code() -> None:
    network = make((7, 4, 3))
    x = samples()

    for depth in range(3):
        code = network.encode(x, depth=depth)
        assert torch.equal(network.encode(code, first=depth + 1), network.encode(x))


def test_stages_share_out_all_parameters() -> None:
    network = make((7, 4, 3))

    stages = [network.stage_parameters(depth) for depth in range(network.n_stages)]

    assert stages[0][0] is network.encoder[0].weight
    assert stages[0][2] is network.decoder[3].weight
    assert stages[3][0] is network.encoder[3].weight
    assert stages[3][2] is network.decoder[0].weight
    found = [id(parameter) for stage in stages for parameter in stage]
    assert sorted(found) == sorted(id(parameter) for parameter in network.parameters())


@pytest.mark.parametrize("hidden", HIDDEN)
def test_without_decoder_the_code_is_the_output(hidden: tuple[int, ...]) -> None:
    network = make(hidden, n_outputs=0)

    assert not len(network.decoder)
    for depth in [*range(network.n_stages), None]:
        code = network.encode(samples(), depth=depth)
        assert torch.equal(network.decode(code, depth=depth), code)
    assert len(network.stage_parameters(0)) == 2


@pytest.mark.parametrize(
    ("activation", "bound"),
    [
        ("tanh", lambda n_in, n_out: math.sqrt(6 / (n_in + n_out))),
        ("sigmoid", lambda n_in, n_out: math.sqrt(6 / (n_in + n_out))),
        ("relu", lambda n_in, n_out: math.sqrt(6 / n_in)),
        ("leaky_relu", lambda n_in, n_out: math.sqrt(6 / n_in)),
    ],
)
def test_initial_weights_are_uniform_within_the_published_bounds(
    activation: Activation, bound: Callable[[int, int], float]
) -> None:
    network = make((300, 200), n_inputs=100, n_outputs=90, activation=activation)

    def is_uniform(values: torch.Tensor, limit: float) -> bool:
        values = values.detach()
        return 0.9 * limit < float(values.abs().max()) <= limit * (1 + 1e-6) and math.isclose(
            float(values.std()), limit / math.sqrt(3), rel_tol=0.1
        )

    for layers in (network.encoder, network.decoder):
        *hidden, last = layers
        for layer in hidden:
            assert is_uniform(layer.weight, bound(layer.in_features, layer.out_features))
            assert not layer.bias.any()
        # PyTorch's own default for a linear layer.
        assert is_uniform(last.weight, 1 / math.sqrt(last.in_features))
        assert 0 < float(last.bias.detach().abs().max()) <= 1 / math.sqrt(last.in_features)


def test_weights_come_from_the_generator_alone() -> None:
    state = torch.get_rng_state()

    one, same, other = make(seed=3), make(seed=3), make(seed=4)
    Network(6, (7,), 2, 5, "relu")  # uninitialised

    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.encoder[0].weight, other.encoder[0].weight)


# --- batch normalisation -------------------------------------------------------------------------


def make_normalized(hidden: Sequence[int] = (7, 4)) -> Network:
    generator = torch.Generator().manual_seed(0)
    network = Network(6, hidden, 2, 5, "tanh", generator, batch_norm=True)
    generator.manual_seed(1)
    with torch.no_grad():
        for norm in network.norms:
            norm.weight.uniform_(0.5, 2, generator=generator)
            norm.bias.normal_(generator=generator)
            norm.running_mean.normal_(generator=generator)
            norm.running_var.uniform_(0.1, 3, generator=generator)
    return network


def test_hidden_layers_of_the_encoder_are_normalised_over_the_batch() -> None:
    network = Network(6, (7,), 2, 5, "tanh", torch.Generator().manual_seed(0), batch_norm=True)
    x = samples().double().numpy()
    first, last = network.encoder
    hidden = apply(x, [first], [False], "tanh")
    hidden = (hidden - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + 1e-5)
    expected = apply(np.tanh(hidden), [last], [False], "tanh")
    np.testing.assert_allclose(network.train().encode(samples()).detach(), expected, atol=1e-5)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_folding_makes_plain_layers_of_the_same_map(hidden: tuple[int, ...]) -> None:
    network = make_normalized(hidden).eval()
    before = network.encode(samples()).detach()
    network.fold_batch_norm()
    plain = make(hidden)
    plain.load_state_dict(network.state_dict())  # strict: the names of a network without it
    torch.testing.assert_close(plain.encode(samples()), before, rtol=1e-5, atol=1e-6)


def test_folding_twice_or_nothing_changes_nothing() -> None:
    network = make()
    before = network.encode(samples())
    network.fold_batch_norm()
    assert torch.equal(network.encode(samples()), before)


def test_stages_share_out_the_normalisation_with_its_layer() -> None:
    network = make_normalized()
    stages = [network.stage_parameters(depth) for depth in range(network.n_stages)]
    ids = [id(parameter) for stage in stages for parameter in stage]
    assert sorted(ids) == sorted(id(parameter) for parameter in network.parameters())
    for depth, norm in enumerate(network.norms):
        assert id(norm.weight) in [id(parameter) for parameter in stages[depth]]


def test_initial_weights_are_the_same_with_and_without_normalisation() -> None:
    one = Network(6, (7, 4), 2, 5, "tanh", torch.Generator().manual_seed(0), batch_norm=True)
    for name, value in make().state_dict().items():
        assert torch.equal(one.state_dict()[name], value)


def side_by_side(hidden: tuple[int, ...]) -> Network:
    generator = torch.Generator().manual_seed(0)
    return Network(6, hidden, 4, 0, "relu", generator, n_networks=3)


def layer_by_layer(network: Network, x: torch.Tensor) -> torch.Tensor:
    for i, layer in enumerate(network.encoder):
        x = layer(torch.relu(x) if i else x)
    return x


@pytest.mark.parametrize("shape", [(3, 7, 6), (7, 6)])
@pytest.mark.parametrize("hidden", [(), (9,), (9, 8, 5)])
def test_networks_side_by_side_learn_as_autograd_has_it_to_the_bit(
    hidden: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    network = side_by_side(hidden)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = []
    for run in (lambda x: network.encode(x), lambda x: layer_by_layer(network, x)):
        network.zero_grad()
        own = x.clone().requires_grad_()
        output = run(own)
        output.square().sum().backward()
        found.append([output, own.grad, *(p.grad.clone() for p in network.parameters())])
        assert torch.equal(own, x)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
    assert all(bool(gradient.any()) for gradient in found[0])
