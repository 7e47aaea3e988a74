"""Params, labels, feature names and history of an estimator, as JSON in the config of its map."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.reports import Report
from centroid_encoder.core.saved import InvalidStateError, newer, refusing_damage
from centroid_encoder.errors import InputError

HISTORY = ("stage", "epoch", "loss", "validation_loss", "validation_error")
"""Columns of the history: one value of each report."""
KINDS = {"O": str, "U": str, "i": int, "u": int, "b": bool, "f": float}
"""Type in JSON of labels of each kind of dtype."""


@dataclass(frozen=True)
class Description:
    """What a fitted estimator has beside its map."""

    params: dict[str, Any]
    """Arguments of the estimator."""
    classes: NDArray[Any]
    """(M,) labels in their own type."""
    feature_names: NDArray[np.object_] | None
    trained_on_counts: bool
    history: dict[str, list[Any]]
    """A list of one length for each of `HISTORY`."""

    def to_config(self) -> dict[str, Any]:
        """Return it as JSON."""
        check_labels(self.classes)
        names = self.feature_names
        return {
            "params": params_to(self.params),
            "classes": self.classes.tolist(),
            "classes_dtype": self.classes.dtype.str,
            "feature_names": None if names is None else names.tolist(),
            "trained_on_counts": self.trained_on_counts,
            # JSON has no NaN.
            "history": {
                name: [None if value != value else value for value in values]
                for name, values in self.history.items()
            },
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], known: Collection[str], fitted: FittedMap
    ) -> Self:
        """Read it from the config of the map `fitted`.

        `known` are the names of the arguments of the estimator.

        Raises
        ------
        InvalidStateError
            If something is missing or damaged, or if an argument is unknown.
        """
        with refusing_damage():
            stored = config["estimator"]
            params = params_from(stored["params"], known, config)
            names, history = stored["feature_names"], stored["history"]
            classes, dtype = stored["classes"], np.dtype(stored["classes_dtype"])
            labels = np.array(classes, "U" if dtype.kind == "U" else dtype)
            if (
                not all(type(label) is KINDS.get(dtype.kind) for label in classes)
                or (len(labels), labels.tolist()) != (len(fitted.centers), classes)
                or (names is not None and len(names) != fitted.architecture.n_features)
                or len({len(history[name]) for name in HISTORY}) > 1
            ):
                raise InvalidStateError("the model's labels, names or history do not fit its map")
            return cls(
                params,
                labels,
                None if names is None else np.array(names, dtype=object),
                stored["trained_on_counts"],
                {n: [np.nan if v is None else v for v in history[n]] for n in HISTORY},
            )


def history_of(reports: Iterable[Report]) -> dict[str, list[Any]]:
    """Return the history of a training from its reports."""
    reports = list(reports)
    return {name: [getattr(report, name) for report in reports] for name in HISTORY}


def check_labels(classes: NDArray[Any]) -> None:
    """Check that a map of these classes can be saved.

    Raises
    ------
    InputError
        If they are not strings, integers, truth values, or floats of at most 64 bits.
    """
    kind = KINDS.get(classes.dtype.kind, type(None))
    wide = classes.dtype.kind == "f" and classes.dtype.itemsize > 8
    if wide or not all(isinstance(label, kind) for label in classes.tolist()):
        raise InputError(
            "labels of type {} cannot be saved with a map; make strings of them",
            classes.dtype if classes.dtype != object else type(classes[0]).__name__,
        )


def params_to(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an estimator as JSON; the inverse of `params_from`."""
    return {name: _jsonable(value) for name, value in params.items()}


def params_from(
    params: Mapping[str, Any], known: Collection[str], config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return arguments of an estimator from JSON; those that are not stored keep their default.

    `known` are the names of all arguments, and `config` is the config of the map. InvalidStateError
    if an argument is unknown.
    """
    for name in params:
        if name not in known:
            raise newer(config or {}, f"parameter {name!r}")
    params = dict(params)
    if isinstance(params.get("hidden"), list):
        params["hidden"] = tuple(params["hidden"])
    if isinstance(params.get("class_weight"), dict):
        params["class_weight"] = dict(params["class_weight"]["weights"])
    return params


def _jsonable(value: object) -> object:
    """Return a parameter as JSON; sources of randomness other than an int are dropped."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    if isinstance(value, Mapping):
        # Keys in JSON are strings; class labels need not be.
        return {"weights": [[_jsonable(key), float(weight)] for key, weight in value.items()]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, numbers.Real) and not isinstance(value, bool | int):
        # Fractions, and other types of numbers.
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [int(width) for width in value]
    return value
