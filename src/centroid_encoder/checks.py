"""Checks of what `CentroidEncoder` takes: parameters, labels, a device, a random state."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, column_or_1d

from centroid_encoder.core.matrix import Matrix
from centroid_encoder.errors import InputError, InputTypeError

RandomState = int | np.random.Generator | np.random.RandomState | None


@dataclass(frozen=True)
class Number:
    """Range of a number, and values that may stand in its place."""

    least: float
    integer: bool = False
    above: bool = False
    """Whether the number must be above `least`."""
    below: float = math.inf
    instead: tuple[str | None, ...] = ()
    """Other values that are allowed: ``("auto",)`` or ``(None,)``."""

    def check(self, name: str, value: Any, place: str = "") -> None:
        """Raise an InputError that names the parameter, and the place in it, if it is wrong."""
        if (value is None or isinstance(value, str)) and value in self.instead:
            return
        kind = numbers.Integral if self.integer else numbers.Real
        if not isinstance(value, kind) or isinstance(value, bool | np.bool_):
            wanted = "an integer" if self.integer else "a number"
        elif self._holds(cast(float, value)):
            return
        else:
            wanted = f"{'above' if self.above else 'at least'} {self.least:g}"
            wanted += "" if self.below == math.inf else f" and below {self.below:g}"
        raise InputError(f"{name}{place} must be {wanted}; got {value!r}", name)

    def _holds(self, value: float) -> bool:
        return (self.least < value if self.above else self.least <= value) and value < self.below


WIDTH = Number(1, integer=True, below=2**16)
"""Units of a layer. Far more do not fit into memory, and the error of torch is hard to read."""
MOST_TRAININGS = 1_000_000
"""Bound of repeats and permutations: a list of all trainings must fit into memory."""
NUMBERS = {
    "n_components": WIDTH,
    "n_networks": Number(1, integer=True, below=101, instead=("auto",)),
    "max_features": Number(1, integer=True, instead=(None,)),
    "max_samples": Number(2, integer=True, instead=(None,)),
    "pretrain_epochs": Number(0, integer=True, instead=("auto",)),
    "max_epochs": Number(1, integer=True, instead=("auto", "few")),
    "patience": Number(1, integer=True, instead=(None,)),
    "merge_epochs": Number(0, integer=True),
    "batch_size": Number(1, integer=True, instead=("auto",)),
    "learning_rate": Number(0, above=True, instead=("auto",)),
    "compactness": Number(0),
    "weight_decay": Number(0, instead=("auto",)),
    "dropout": Number(0, below=1, instead=("auto",)),
    "validation_fraction": Number(0, below=1),
    "clip": Number(0, above=True, instead=(None,)),
}


def check_parameters(params: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise an InputError if a parameter of an estimator is not what `CentroidEncoder` documents.

    `hints` are the types of the parameters; those that are a Literal list what is allowed.
    `draw_seed` checks the random state, `resolve_device` the device.
    """
    for name, hint in hints.items():
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            _check(params, name, params[name] in choices, f"one of {', '.join(choices)}")
    _check(params, "batch_norm", params["batch_norm"] in (True, False, "auto"), "a bool or 'auto'")
    for name, number in NUMBERS.items():
        number.check(name, params[name])
    hidden, weights = params["hidden"], params["class_weight"]
    if not _is_word(hidden, "auto"):
        is_sequence = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str)
        _check(params, "hidden", is_sequence, '"auto" or a sequence of widths')
        for i, width in enumerate(hidden):
            WIDTH.check("hidden", width, f"[{i}]")
    if isinstance(weights, Mapping):
        are_weights = all(isinstance(weight, numbers.Real) for weight in weights.values())
    else:
        are_weights = weights is None or _is_word(weights, "sqrt", "balanced")
    wanted = "'sqrt', 'balanced', None or a number for each class"
    _check(params, "class_weight", are_weights, wanted)
    _check(params, "device", isinstance(params["device"], str | torch.device), "a name")
    if not params["validation_fraction"] and (params["patience"] or params["merge_epochs"]):
        text = "patience and merge_epochs need a validation_fraction above 0"
        raise InputError(text, "validation_fraction")


def _check(params: Mapping[str, Any], name: str, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise InputError(f"{name} must be {wanted}; got {params[name]!r}", name)


def _is_word(value: Any, *words: str) -> bool:
    return isinstance(value, str) and value in words


def plain(X: Any) -> Any:
    """Return a torch tensor without its gradient and on the CPU, and anything else as it is."""
    return X.detach().cpu() if isinstance(X, torch.Tensor) else X


def check_effects(params: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise an InputError if a parameter of an estimator changes nothing, given the others.

    The default is no error, nor is a value that agrees with the others, such as one network with a
    bottleneck.
    """
    placement, scale = params["placement"], params["scale"]
    for name, agreeing, other, has_no_effect in (
        ("compactness", 0, "placement", placement == "voronoi"),
        ("output", None, "placement", placement == "voronoi"),
        ("n_networks", 1, "placement", placement == "bottleneck"),
        ("max_features", None, "scale", scale != "supervised"),
        ("activation", None, "hidden", len(params["hidden"]) == 0),
    ):
        if has_no_effect and params[name] not in (defaults[name], agreeing):
            text = f"{name}={params[name]!r} has no effect with {other}={params[other]!r}"
            raise InputError(text, name)


def labels_of(X: Matrix, y: ArrayLike) -> NDArray[Any]:
    """Return the labels of all samples; they must be of one sortable type."""
    labels = cast(NDArray[Any], column_or_1d(plain(y), warn=True))
    if labels.dtype == object:
        present = labels[~pd.isna(labels)].tolist()
        try:
            sorted(set(present))
        except TypeError as error:
            kinds = " and ".join(sorted({type(label).__name__ for label in present}))
            raise InputTypeError(f"y has labels of type {kinds}; make them strings") from error
    if len(labels) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} samples, but y has {len(labels)} labels")
    return labels


def codes_of(labels: ArrayLike, classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices of labels into sorted classes, which must contain all of them."""
    labels = np.asarray(labels)
    unknown = sorted(set(labels.tolist()) - set(classes.tolist()), key=str)
    if unknown:
        raise ValueError(f"y holds {unknown[0]!r}, which is not among the classes of the map")
    return np.searchsorted(classes, labels)


def embedding_of(X: ArrayLike, n_components: int) -> NDArray[np.floating]:
    """Return points of an embedding as an array of finite numbers with `n_components` columns."""
    Z = cast(NDArray[np.floating], check_array(plain(X), dtype=[np.float32, np.float64]))
    if Z.shape[1] != n_components:
        raise ValueError(f"X has {Z.shape[1]} columns, but the embedding has {n_components}")
    return Z


def resolve_device(device: str) -> torch.device:
    """Return the torch device that a name stands for; ``"auto"`` is CUDA, MPS or the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        # The value is read back because the device "meta" takes values but stores none.
        torch.zeros(1, device=resolved).cpu()
    except (RuntimeError, AssertionError) as error:
        # The first sentence; torch adds a list of all devices.
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise InputError(f"device {device!r} is not available here: {reason}", "device") from error
    return resolved


def draw_seed(random_state: RandomState) -> int:
    """Return a seed in [0, 2**32); None draws fresh entropy, not the global random state."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**32))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.int64))
    if isinstance(random_state, numbers.Integral) and 0 <= random_state < 2**32:
        return int(random_state)
    wanted = "an int in [0, 2**32), a numpy Generator, a RandomState or None"
    raise InputError(f"random_state must be {wanted}; got {random_state!r}", "random_state")
