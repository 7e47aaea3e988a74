"""Checks of the arguments of `CentroidEncoder`: parameters, labels, device and random state."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d

from centroid_encoder.errors import InputError, InputTypeError, check

RandomState = int | np.random.Generator | np.random.RandomState | None


@dataclass(frozen=True)
class Number:
    """Allowed range of a numeric parameter, and other values that it may have."""

    least: float
    integer: bool = False
    above: bool = False
    """Whether the number must be larger than `least`, not equal to it."""
    below: float = math.inf
    instead: tuple[str | None, ...] = ()
    """Other allowed values, such as ``("auto",)`` or ``(None,)``."""

    def check(self, name: str, value: Any, place: str = "") -> None:
        """Raise an InputError if a value is not allowed.

        `name` is the parameter, and `place` an index into it such as ``"[0]"``.
        """
        if (value is None or isinstance(value, str)) and value in self.instead:
            return
        kind = numbers.Integral if self.integer else numbers.Real
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = "an integer" if self.integer else "a number"
        else:
            number = cast(float, value)
            if self.least <= number < self.below and not (self.above and number == self.least):
                return
            wanted = f"{'above' if self.above else 'at least'} {self.least:g}"
            wanted += "" if self.below == math.inf else f" and below {self.below:g}"
        raise InputError(f"{name}{place} must be {wanted}; got {value!r}", name)


def are_shares(values: Any) -> bool:
    """Return whether a number, or each of several, is in [0, 1]."""
    shares = np.asarray(values)
    return shares.dtype.kind in "biuf" and bool(((shares >= 0) & (shares <= 1)).all())


WIDTH = Number(1, integer=True, below=2**16)  # of a layer; far more units do not fit into memory
MOST_TRAININGS = 1_000_000  # repeats or permutations, whose list must fit into memory
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


def check_parameters(estimator: BaseEstimator) -> None:
    """Raise an InputError if a parameter of an estimator has none of its documented values.

    `draw_seed` checks the random state, and `resolve_device` the device.
    """
    params = estimator.get_params(deep=False)
    hidden, weights = params["hidden"], params["class_weight"]
    is_sequence = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str)
    is_weights = isinstance(weights, Mapping) or weights in ("sqrt", "balanced", None)
    words = "'sqrt', 'balanced', None or a number for each class"
    tests = [
        ("batch_norm", params["batch_norm"] in (True, False, "auto"), "a bool or 'auto'"),
        ("hidden", is_sequence or hidden == "auto", '"auto" or a sequence of widths'),
        ("class_weight", is_weights, words),
    ]
    for name, hint in get_type_hints(type(estimator).__init__).items():
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            tests.append((name, params[name] in choices, f"one of {', '.join(choices)}"))
    for name, is_right, wanted in tests:
        check(is_right, f"{name} must be {wanted}; got {params[name]!r}", name)
    for name, number in NUMBERS.items():
        number.check(name, params[name])
    for i, width in enumerate(hidden if is_sequence else ()):
        WIDTH.check("hidden", width, f"[{i}]")
    if not params["validation_fraction"] and (params["patience"] or params["merge_epochs"]):
        text = "patience and merge_epochs need a validation_fraction above 0"
        raise InputError(text, "validation_fraction")


def check_effects(estimator: BaseEstimator) -> None:
    """Raise an InputError if a parameter of an estimator has no effect with the others.

    The default is always allowed, and so is a value that describes what happens anyway, such as one
    network with a bottleneck.
    """
    params, defaults = (one.get_params(deep=False) for one in (estimator, type(estimator)()))
    is_placed = params["placement"] == "voronoi"
    for name, allowed, other, has_no_effect in (
        ("batch_norm", False, "placement", is_placed),
        ("pretrain_epochs", 0, "placement", is_placed),
        ("compactness", 0, "placement", is_placed),
        ("output", None, "placement", is_placed),
        ("n_networks", 1, "placement", not is_placed),
        ("max_features", None, "scale", params["scale"] in ("feature", "global")),
        ("activation", None, "hidden", len(params["hidden"]) == 0),
    ):
        text = f"{name}={params[name]!r} has no effect with {other}={params[other]!r}"
        check(not has_no_effect or params[name] in (defaults[name], allowed), text, name)


def plain(X: Any) -> Any:
    """Return a torch tensor without its gradient and on the CPU, and other objects unchanged."""
    return X.detach().cpu() if isinstance(X, torch.Tensor) else X


def classes_of(y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the sorted classes, and the (n,) index of each label among them.

    The labels must be of one type that can be sorted, and none may be missing.
    """
    labels = column_or_1d(plain(y), warn=True)
    is_missing = pd.isna(labels)
    try:
        classes = np.unique(labels[~is_missing])
    except TypeError as error:
        kinds = " and ".join(sorted({type(label).__name__ for label in labels[~is_missing]}))
        raise InputTypeError(f"y has labels of type {kinds}; make them strings") from error
    check(not is_missing.any(), f"y has {is_missing.sum()} missing labels; leave these samples out")
    return classes, np.searchsorted(classes, labels)


def resolve_device(device: str) -> torch.device:
    """Return the torch device of a name; ``"auto"`` is the first available of CUDA, MPS, CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        # The value is read back, which fails on the device "meta": it stores no values.
        torch.zeros(1, device=resolved).cpu()
    except (RuntimeError, AssertionError, TypeError) as error:
        # Only the first sentence: torch adds a list of all devices.
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise InputError(f"device {device!r} is not available here: {reason}", "device") from error
    return resolved


def draw_seed(random_state: RandomState) -> int:
    """Return a seed in [0, 2**32).

    None takes entropy of the operating system. The global random state is not used.
    """
    if isinstance(random_state, numbers.Integral) and 0 <= random_state < 2**32:
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.int64))
    if random_state is None or isinstance(random_state, np.random.Generator):
        return int(np.random.default_rng(random_state).integers(2**32))
    wanted = "an int in [0, 2**32), a numpy Generator, a RandomState or None"
    raise InputError(f"random_state must be {wanted}; got {random_state!r}", "random_state")
