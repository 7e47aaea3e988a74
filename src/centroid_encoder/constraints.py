"""What `CentroidEncoder` may be given: parameters, labels, a device, a source of randomness."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, column_or_1d

from centroid_encoder.core.features import Scale
from centroid_encoder.core.matrix import Matrix
from centroid_encoder.core.network import Activation
from centroid_encoder.core.optimization import Optimizer, Schedule
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.targets import Output
from centroid_encoder.errors import InputError, InputTypeError, Setting

RandomState = int | np.random.Generator | np.random.RandomState | None


@dataclass(frozen=True)
class Number:
    """A number in a range, or one value that is none."""

    least: float
    integer: bool = False
    above: bool = False
    """Whether the number must be above `least`."""
    below: float = math.inf
    instead: tuple[Any, ...] = ()
    """What else there may be: ``("auto",)`` or ``(None,)``."""

    def check(self, name: str, value: Any, place: str = "") -> None:
        """Raise an InputError that names the parameter, and the place in it, if it is wrong."""
        if any(
            value is other or (isinstance(value, str) and value == other) for other in self.instead
        ):
            return
        kind = numbers.Integral if self.integer else numbers.Real
        parameter = Setting(name)
        if not isinstance(value, kind) or isinstance(value, bool | np.bool_):
            wanted = "an integer" if self.integer else "a number"
            raise InputError("{}{} must be {}; got {}", parameter, place, wanted, repr(value))
        try:
            least, number = self.least, float(value)
        except OverflowError:
            least, number = self.least, math.inf
        if not (least < number if self.above else least <= number) or not number < self.below:
            upper = "" if self.below == math.inf else f" and below {self.below:g}"
            bound = f"{'above' if self.above else 'at least'} {least:g}{upper}"
            raise InputError("{}{} must be {}; got {}", parameter, place, bound, repr(value))


WIDTH = Number(1, integer=True, below=2**16)
"""Units of a layer: many more fit into no memory, and what torch then says names no parameter."""
MOST_TRAININGS = 1_000_000
"""Repeats and permutations below which a list of all trainings fits into memory."""
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
CHOICES = {
    "placement": get_args(Placement),
    "activation": get_args(Activation),
    "output": get_args(Output),
    "scale": get_args(Scale),
    "optimizer": get_args(Optimizer),
    "schedule": get_args(Schedule),
}


def check_parameters(params: Mapping[str, Any]) -> None:
    """Check the parameters of an estimator, but for its random state and that its device exists.

    Raises
    ------
    InputError
        If one of them is not what `CentroidEncoder` documents.
    """
    for name, choices in CHOICES.items():
        if params[name] not in choices:
            listed = ", ".join(choices)
            raise InputError(
                "{} must be one of {}; got {}", Setting(name), listed, repr(params[name])
            )
    hidden = params["hidden"]
    automatic = isinstance(hidden, str) and hidden == "auto"
    if not automatic and (isinstance(hidden, str) or not isinstance(hidden, Sequence | np.ndarray)):
        raise InputError(
            '{} must be "auto" or a sequence of widths; got {}', Setting("hidden"), repr(hidden)
        )
    for i, width in enumerate(() if automatic else hidden):
        WIDTH.check("hidden", width, f"[{i}]")
    for name, number in NUMBERS.items():
        number.check(name, params[name])
    batch_norm = params["batch_norm"]
    if batch_norm != "auto" and not isinstance(batch_norm, bool | np.bool_):
        raise InputError(
            "{} must be True, False or 'auto'; got {}", Setting("batch_norm"), repr(batch_norm)
        )
    weights = params["class_weight"]
    if isinstance(weights, Mapping):
        known = all(isinstance(weight, numbers.Real) for weight in weights.values())
    else:
        known = weights is None or (isinstance(weights, str) and weights in ("sqrt", "balanced"))
    if not known:
        raise InputError(
            "{} must be 'sqrt', 'balanced', None or a number for each class; got {}",
            Setting("class_weight"),
            repr(weights),
        )
    device = params["device"]
    if not isinstance(device, str | torch.device):
        raise InputError("{} must be a name; got {}", Setting("device"), repr(device))
    if not params["validation_fraction"] and (params["patience"] or params["merge_epochs"]):
        named = [Setting(name) for name in ("patience", "merge_epochs", "validation_fraction")]
        raise InputError("{} and {} need a {} above 0", *named)


def plain(X: Any) -> Any:
    """Return a torch tensor without its gradient and on the CPU, and anything else as it is."""
    return X.detach().cpu() if isinstance(X, torch.Tensor) else X


def check_effects(params: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse parameters of an estimator that change nothing, given the others.

    A value that agrees with the others, such as one network with a bottleneck, is no error.

    Raises
    ------
    InputError
        It names both parameters.
    """
    placement, scale, hidden = params["placement"], params["scale"], params["hidden"]
    for name, agreeing, other, is_without_effect in (
        ("compactness", 0, "placement", placement == "voronoi"),
        ("output", None, "placement", placement == "voronoi"),
        ("n_networks", 1, "placement", placement == "bottleneck"),
        ("max_features", None, "scale", scale != "supervised"),
        ("activation", None, "hidden", len(hidden) == 0),
    ):
        if is_without_effect and params[name] not in (defaults[name], agreeing):
            settings = Setting(name, params[name]), Setting(other, params[other])
            raise InputError("{} has no effect with {}", *settings)


def labels_of(X: Matrix, y: ArrayLike) -> NDArray[Any]:
    """Return the labels of all samples.

    Raises
    ------
    TypeError
        If labels cannot be sorted, such as numbers and strings.
    ValueError
        If there are not as many labels as samples.
    """
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
    """Return the indices of labels into sorted classes.

    Raises
    ------
    ValueError
        If one is not among them.
    """
    labels = np.asarray(labels)
    unknown = sorted(set(labels.tolist()) - set(classes.tolist()), key=str)
    if unknown:
        raise ValueError(f"y holds {unknown[0]!r}, which is not among the classes of the map")
    return np.searchsorted(classes, labels)


def embedding_of(X: ArrayLike, n_components: int) -> NDArray[np.floating]:
    """Return finite points of an embedding.

    Raises
    ------
    ValueError
        If they are not `n_components` numbers each.
    """
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
        # There and back: the device "meta" takes values, but keeps none.
        torch.zeros(1, device=resolved).cpu()
    except (RuntimeError, AssertionError) as error:
        # The first sentence: torch goes on with a list of all that it knows.
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise InputError(
            "{} {} is not available here: {}", Setting("device"), repr(device), reason
        ) from error
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
    raise InputError(
        "{} must be an int in [0, 2**32), a numpy Generator, a RandomState or None; got {}",
        Setting("random_state"),
        repr(random_state),
    )
