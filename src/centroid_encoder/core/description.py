"""What an estimator knows beside its map, as JSON in the map's config."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.reports import Report
from centroid_encoder.core.saved import InvalidStateError, newer
from centroid_encoder.errors import InputError

HISTORY = ("stage", "epoch", "loss", "validation_loss", "validation_error")
"""What is kept of each report."""
BEFORE = {"placement": "bottleneck", "class_weight": None}
"""What arguments were before there was a choice, where the default is something else now."""
LABEL_BYTES = 2**24
"""More than these no names of classes take."""


@dataclass(frozen=True)
class Description:
    """What an estimator knows beside its map, as JSON in the map's config."""

    params: dict[str, Any]
    """Arguments of the estimator."""
    classes: NDArray[Any]
    """(M,) labels in their own type."""
    feature_names: NDArray[np.object_] | None
    trained_on_counts: bool
    history: dict[str, list[Any]]
    """A list of one length for each of `HISTORY`."""

    def to_config(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        names = self.feature_names
        return {
            "params": params_to(self.params),
            "classes": _labels_to(self.classes),
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
        """Read it from the config of the map `fitted`, trusting nothing.

        Of the estimator's arguments, whose names are `known`, those that the file lacks are left
        out. InvalidStateError if anything else is missing, or only newer releases know it.
        """
        stored = config.get("estimator")
        if not isinstance(stored, dict):
            raise InvalidStateError("the model's config lacks 'estimator'")
        names = stored.get("feature_names")
        if names is not None:
            if not is_list_of(names, str) or len(names) != fitted.architecture.n_features:
                raise InvalidStateError("'feature_names' must be one string for each feature")
            names = np.array(names, dtype=object)
        # The first releases did not look.
        counts = stored.get("trained_on_counts", False)
        if not isinstance(counts, bool):
            raise InvalidStateError("'trained_on_counts' must be true or false")
        return cls(
            params_from(stored.get("params"), known, config),
            _classes(stored, len(fitted.centers)),
            names,
            counts,
            _history(stored.get("history")),
        )


def history_of(reports: Iterable[Report]) -> dict[str, list[Any]]:
    """Return what is kept of the reports of a training."""
    reports = list(reports)
    return {name: [getattr(report, name) for report in reports] for name in HISTORY}


def check_labels(classes: NDArray[Any]) -> None:
    """Check that a map of these classes can be saved.

    Raises
    ------
    InputError
        If they are not strings, integers, truth values, or floats of at most 64 bits.
    """
    _labels_to(classes)


def params_to(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an estimator as JSON knows them; the inverse of `params_from`."""
    return {name: _jsonable(value) for name, value in params.items()}


def params_from(
    params: object, known: Collection[str], config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of an estimator that were stored.

    Parameters
    ----------
    params, known
        What `params_to` returned, and the names of all arguments. Those that are not stored are
        left out, and keep their default; but for those of `BEFORE`.
    config
        Config of the map that they belong to, which says what release wrote them.

    InvalidStateError if it is no dictionary, or has an argument that is not known.
    """
    if not isinstance(params, dict):
        raise InvalidStateError("the model's config lacks 'params'")
    unknown = [name for name in params if name not in known]
    if unknown:
        raise newer(config or {}, f"parameter {unknown[0]!r}")
    params = {**BEFORE, **params}
    if isinstance(params.get("hidden"), list):
        params["hidden"] = tuple(params["hidden"])
    if isinstance(params.get("class_weight"), dict):
        try:
            params["class_weight"] = dict(params["class_weight"]["weights"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidStateError("'class_weight' is not readable") from error
    return params


def is_list_of(values: object, kind: type) -> TypeGuard[list[Any]]:
    """Tell whether `values` is a list of nothing but `kind`, subclasses excluded."""
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _jsonable(value: object) -> object:
    """Return a parameter as JSON knows it; sources of randomness other than an int are dropped."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    if isinstance(value, Mapping):
        # JSON's keys are strings; class labels need not be.
        return {"weights": [[_jsonable(key), float(weight)] for key, weight in value.items()]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, numbers.Real) and not isinstance(value, bool | int):
        # Fractions, and what else may stand for a number.
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [int(width) for width in value]
    return value


def _labels_to(classes: NDArray[Any]) -> list[Any]:
    """Return labels as JSON knows them."""
    values = [one.item() if isinstance(one, np.generic) else one for one in classes.tolist()]
    if not _are_labels(values, classes.dtype):
        raise InputError(
            "labels of type {} cannot be saved with a map; make strings of them",
            classes.dtype if classes.dtype != object else type(values[0]).__name__,
        )
    if classes.dtype.itemsize * len(classes) > LABEL_BYTES:
        raise InputError("the names of the classes are too long to be saved; shorten them")
    return values


def _are_labels(values: object, dtype: np.dtype[Any]) -> bool:
    """Whether an array of that type may hold the labels, which are all as JSON knows them."""
    kind = {"O": str, "U": str, "i": int, "u": int, "b": bool, "f": float}.get(dtype.kind)
    wide = kind is float and dtype.itemsize > 8
    return kind is not None and not wide and is_list_of(values, kind)


def _classes(stored: Mapping[str, Any], n_classes: int) -> NDArray[Any]:
    """Return (n_classes,) labels in their own type, as a training sorts them."""
    values, name = stored.get("classes"), stored.get("classes_dtype")
    try:
        dtype = np.dtype(name if isinstance(name, str) else "V")
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype("V")
    if not _are_labels(values, dtype) or not isinstance(values, list) or len(values) != n_classes:
        raise InvalidStateError("'classes' must hold one label of one type for each class")
    if dtype.itemsize * n_classes > LABEL_BYTES:
        raise InvalidStateError("'classes_dtype' is larger than any names of classes")
    if not all(one < another for one, another in pairwise(values)) or values[0] != values[0]:
        raise InvalidStateError("'classes' must be sorted, and different from each other")
    try:
        classes = np.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidStateError(f"'classes' are not readable: {error}") from error
    if classes.tolist() != values:
        raise InvalidStateError("'classes_dtype' is too small for the names of the classes")
    return classes


def _history(history: object) -> dict[str, list[Any]]:
    """Return the history, with NaN where JSON has null."""
    if not isinstance(history, dict) or not set(HISTORY) <= set(history):
        raise InvalidStateError("the model's config lacks a complete 'history'")
    columns = [history[name] for name in HISTORY]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        raise InvalidStateError("'history' must be lists of one length")
    if not is_list_of(history["stage"], str):
        raise InvalidStateError("'history' must name the stage of every epoch")
    told = [value for name in HISTORY[1:] for value in history[name]]
    if not all(value is None or type(value) in (int, float) for value in told):
        raise InvalidStateError("'history' must hold numbers")
    return {
        name: [np.nan if value is None else value for value in history[name]] for name in HISTORY
    }
