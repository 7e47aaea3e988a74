"""An estimator's parameters, classes and history as JSON, and back, trusting nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from centroid_encoder.core.saved import InvalidStateError

HISTORY = ("stage", "epoch", "loss", "validation_loss", "validation_error")
"""What is kept of each report."""


def jsonable(value: object) -> object:
    """Return a parameter as JSON knows it; sources of randomness other than an int are dropped."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    if isinstance(value, Mapping):
        # JSON's keys are strings; class labels need not be.
        return {"weights": [[jsonable(key), float(weight)] for key, weight in value.items()]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [int(width) for width in value]
    return value


def params_to(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an estimator as JSON knows them; the inverse of `params_from`."""
    return {name: jsonable(value) for name, value in params.items()}


def params_from(params: object, known: set[str]) -> dict[str, Any]:
    """Return the arguments of the estimator; `known` are their names."""
    if not isinstance(params, dict) or set(params) != known:
        raise InvalidStateError("the model's config lacks a complete 'params'")
    params = dict(params)
    if isinstance(params["hidden"], list):
        params["hidden"] = tuple(params["hidden"])
    if isinstance(params["class_weight"], dict):
        try:
            params["class_weight"] = dict(params["class_weight"]["weights"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidStateError("'class_weight' is not readable") from error
    return params


def classes_from(stored: Mapping[str, Any], n_classes: int) -> NDArray[Any]:
    """Return (n_classes,) labels in their own type."""
    values, dtype = stored.get("classes"), stored.get("classes_dtype")
    allowed = {"O": str, "U": str, "i": int, "u": int, "b": bool, "f": float}
    kind = dtype[1:2] if isinstance(dtype, str) else ""
    if kind not in allowed or not is_list_of(values, allowed[kind]) or len(values) != n_classes:
        raise InvalidStateError("'classes' must hold one label of one type for each class")
    try:
        return np.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidStateError(f"'classes' are not readable: {error}") from error


def history_from(history: object) -> dict[str, list[Any]]:
    """Return the history, with NaN where JSON has null."""
    if not isinstance(history, dict) or set(history) != set(HISTORY):
        raise InvalidStateError("the model's config lacks a complete 'history'")
    columns = list(history.values())
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        raise InvalidStateError("'history' must be lists of one length")
    if not is_list_of(history["stage"], str):
        raise InvalidStateError("'history' must name the stage of every epoch")
    return {
        name: [np.nan if value is None else value for value in history[name]] for name in HISTORY
    }


def is_list_of(values: object, kind: type) -> TypeGuard[list[Any]]:
    """Tell whether `values` is a list of nothing but `kind`, subclasses excluded."""
    return isinstance(values, list) and all(type(value) is kind for value in values)
