"""A fitted map, and the same as plain arrays and a JSON-able config.

A file is read by every release from the one that wrote it on. What an older release did not know
has a default, or is supplied by `_completed`; what only a newer release knows is an error that
names that release.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from importlib.metadata import version
from typing import Any, Self, TypeGuard, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialize

from centroid_encoder.core.confidence import Calibration
from centroid_encoder.core.map import Architecture, FittedMap
from centroid_encoder.core.network import Activation
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.objective import CentroidTargets, Output
from centroid_encoder.core.rows import Standardizer
from centroid_encoder.core.training import Report
from centroid_encoder.files import replacing

FORMAT = "centroid-encoder"
VERSION = 1
"""Of the format; only a change that older releases would misread needs another."""
OBJECTIVE = "centroid"
"""What the network of a map was trained for; there is one kind so far."""
HISTORY = ("stage", "epoch", "loss", "validation_loss", "validation_error")
"""What is kept of each report."""

Arrays = dict[str, NDArray[Any]]


class InvalidStateError(ValueError):
    """Stored arrays or config are not those of a fitted map."""


def to_arrays(fitted: FittedMap) -> tuple[dict[str, Any], Arrays]:
    """Return (config, arrays): everything that `from_arrays` needs, nothing that can run."""
    architecture, standardizer, targets = fitted.architecture, fitted.standardizer, fitted.targets
    config = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": version("centroid-encoder"),
        "objective": OBJECTIVE,
        # JSON knows neither tuples nor infinity.
        "architecture": vars(architecture) | {"hidden": list(architecture.hidden)},
        "clip": float(standardizer.clip) if np.isfinite(standardizer.clip) else None,
        "calibration": asdict(fitted.calibration),
    }
    arrays: Arrays = {
        "mean": standardizer.mean,
        "scale": standardizer.scale,
        "weight": standardizer.weight,
        "centers": fitted.centers,
        "targets": targets.coordinates.cpu().numpy(),
    }
    if targets.origin is not None and targets.basis is not None:
        arrays |= {"origin": targets.origin, "basis": targets.basis}
    if fitted.novelty is not None:
        arrays |= {f"novelty_{name}": array for name, array in fitted.novelty.to_arrays().items()}
    for name, value in fitted.network.state_dict().items():
        # h5ad and zarr read "/" as nesting, and some stores "." too; "_" is safe everywhere.
        arrays[name.replace(".", "_")] = value.cpu().numpy()
    # Copies: whoever changes an array must not change the map.
    return config, {name: array.copy() for name, array in arrays.items()}


def from_arrays(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], device: torch.device
) -> FittedMap:
    """Rebuild a map; the inverse of `to_arrays`, bit for bit.

    Raises
    ------
    InvalidStateError
        If the format or version is unknown, if something in the config is known to newer releases
        only, or if an array is missing, is not known, has a wrong shape or holds values that are
        not finite. Nothing is allocated before the shapes are known to fit.
    """
    if config.get("format") != FORMAT:
        raise InvalidStateError("these are not the contents of a centroid-encoder model")
    if config.get("version") != VERSION:
        raise InvalidStateError(
            f"model format version {config.get('version')!r} is not supported: this release reads "
            f"version {VERSION}. Update centroid-encoder, or train the model again."
        )
    config, arrays = _completed(config, arrays)
    if config["objective"] != OBJECTIVE:
        raise _newer(config, f"objective {config['objective']!r}")
    architecture = _architecture(config)
    clip = config.get("clip")
    if clip is not None and not _is_positive(clip):
        raise InvalidStateError(f"clip must be a positive number, not {clip!r}")
    calibration = _calibration(config)
    n_classes = len(np.atleast_1d(arrays["targets"])) if "targets" in arrays else 0
    if n_classes < 1:
        raise InvalidStateError("array 'targets' is missing or empty")
    shapes = architecture.shapes(n_classes)
    knows_novelty = any(name.startswith("novelty_") for name in arrays)
    if knows_novelty:
        n_known = len(np.atleast_1d(arrays.get("novelty_known", 0)))
        n_axes = len(np.atleast_1d(arrays.get("novelty_offset", 0)))
        if not (n_known and n_axes):
            raise InvalidStateError("'novelty_known' and 'novelty_offset' must not be empty")
        shapes |= {
            f"novelty_{name}": shape
            for name, shape in Novelty.shapes(architecture.n_features, n_known, n_axes).items()
        }
    unknown = sorted(set(arrays) - set(shapes))
    if unknown:
        raise InvalidStateError(f"array {unknown[0]!r} does not belong to this network")
    own = {name: _checked(name, arrays, shape) for name, shape in shapes.items()}
    if not ((own["scale"] > 0).all() and (own["weight"] >= 0).all()):
        raise InvalidStateError("'scale' must be positive, and 'weight' must not be negative")
    if np.count_nonzero(own["weight"]) != architecture.n_inputs:
        raise InvalidStateError("'n_inputs' is not the number of features that have a weight")

    network = architecture.network()
    network.load_state_dict(
        {name: torch.from_numpy(own[name.replace(".", "_")]) for name in network.state_dict()}
    )
    return FittedMap(
        architecture,
        Standardizer(
            own["mean"], own["scale"], own["weight"], np.inf if clip is None else float(clip)
        ),
        network.to(device),
        CentroidTargets(own["targets"], own.get("origin"), own.get("basis"), device),
        own["centers"],
        calibration,
        _novelty(own, n_classes) if knows_novelty else None,
    )


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


def save(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a ``.safetensors`` file, beside the target first: no half a file is ever left."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = serialize(contiguous, metadata={FORMAT: json.dumps(config)})
    with replacing(path) as beside:
        beside.write_bytes(content)


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Read what `save` wrote. The values are checked by `from_arrays`.

    Raises
    ------
    InvalidStateError
        If the file is truncated, is no ``.safetensors`` file, or is not ours.
    OSError
        If there is no such file.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "this is a folder, not a file", str(path))
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, AttributeError, TypeError, ValueError) as error:
        # The format has more dtypes than numpy.
        raise InvalidStateError(f"{path} is not a readable .safetensors file: {error}") from error
    if FORMAT not in metadata:
        raise InvalidStateError(f"{path} was not written by centroid-encoder")
    return parse_config(metadata[FORMAT]), arrays


def parse_config(text: str) -> dict[str, Any]:
    """Read the JSON config of a map.

    Raises
    ------
    InvalidStateError
        If it is not a JSON object.
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise InvalidStateError(f"the model's config is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise InvalidStateError("the model's config is not a JSON object")
    return config


def history_of(reports: Iterable[Report]) -> dict[str, list[Any]]:
    """Return what is kept of the reports of a training."""
    reports = list(reports)
    return {name: [getattr(report, name) for report in reports] for name in HISTORY}


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
        left out, and keep their default.
    config
        Config of the map that they belong to, which says what release wrote them.

    InvalidStateError if it is no dictionary, or has an argument that is not known.
    """
    if not isinstance(params, dict):
        raise InvalidStateError("the model's config lacks 'params'")
    unknown = [name for name in params if name not in known]
    if unknown:
        raise _newer(config or {}, f"parameter {unknown[0]!r}")
    params = dict(params)
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
        return value.item()
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [int(width) for width in value]
    return value


def _completed(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a state with what the releases before the first one did not write yet."""
    config = {"objective": OBJECTIVE, "calibration": {}} | dict(config)
    arrays = dict(arrays)
    architecture = config.get("architecture")
    if isinstance(architecture, dict) and "n_inputs" not in architecture:
        # Every feature was an input, and counted the same.
        config["architecture"] = architecture | {"n_inputs": architecture.get("n_features")}
        arrays.setdefault("weight", np.ones_like(arrays.get("scale", np.ones(0))))
    if "novelty" in config:
        # Novelty was judged in another way, in one number of components. It has to be learned anew.
        arrays = {name: a for name, a in arrays.items() if not name.startswith("novelty_")}
    return config, arrays


def _newer(config: Mapping[str, Any], what: str) -> InvalidStateError:
    """Error for something that this release does not know, whoever wrote it."""
    own, writer = version("centroid-encoder"), config.get("written_by")
    by = "a newer centroid-encoder"
    if isinstance(writer, str):
        by = f"centroid-encoder {writer[:40]}" + (", which is newer" if writer != own else "")
    return InvalidStateError(
        f"centroid-encoder {own} does not know the model's {what}: it was written by {by}. Update "
        "centroid-encoder, or train the model again."
    )


def _fields(kind: type, config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what a config has for a dataclass: no field that is not known, none missing."""
    stored = config.get(name)
    known = {field.name: field for field in fields(kind)}
    required = {name for name, field in known.items() if field.default is MISSING}
    if not isinstance(stored, dict) or not required <= set(stored):
        raise InvalidStateError(f"the model's config lacks a complete {name!r}")
    unknown = [entry for entry in stored if entry not in known]
    if unknown:
        raise _newer(config, f"{name} with {unknown[0]!r}")
    return stored


def _architecture(config: Mapping[str, Any]) -> Architecture:
    stored = _fields(Architecture, config, "architecture")
    hidden = stored["hidden"]
    widths = [stored[name] for name in ("n_features", "n_inputs", "n_components", "n_outputs")]
    if not isinstance(hidden, list) or not all(
        type(width) is int and 1 <= width <= 2**31 for width in widths + hidden
    ):
        raise InvalidStateError("widths of the network must be positive integers")
    for name, choices in (("activation", get_args(Activation)), ("output", get_args(Output))):
        if stored[name] not in choices:
            raise InvalidStateError(f"unknown {name} {stored[name]!r}")
    if stored["output"] == "full" and stored["n_outputs"] != stored["n_inputs"]:
        raise InvalidStateError("'n_outputs' of a full output must be 'n_inputs'")
    return Architecture(**{**stored, "hidden": tuple(hidden)})


def _calibration(config: Mapping[str, Any]) -> Calibration:
    stored = _fields(Calibration, config, "calibration")
    for name, value in stored.items():
        if not _is_positive(value):
            raise InvalidStateError(f"{name} must be a positive number, not {value!r}")
    return Calibration(**{name: float(value) for name, value in stored.items()})


def _novelty(own: Arrays, n_classes: int) -> Novelty:
    """Rebuild what knows novelty from arrays of the right shapes."""
    if not (own["novelty_spread"] > 0).all() or not (np.diff(own["novelty_known"]) >= 0).all():
        raise InvalidStateError("'novelty_spread' must be positive and 'novelty_known' sorted")
    if not np.isin(own["novelty_codes"], np.arange(n_classes)).all():
        raise InvalidStateError("'novelty_codes' must be indices of classes")
    return Novelty.from_arrays(
        {
            name.removeprefix("novelty_"): array
            for name, array in own.items()
            if name.startswith("novelty_")
        }
    )


def _checked(name: str, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    if name not in arrays:
        raise InvalidStateError(f"array {name!r} is missing")
    array = np.asarray(arrays[name])
    if array.shape != shape:
        raise InvalidStateError(f"array {name!r} has shape {array.shape}, not {shape}")
    floats = array.dtype.kind == "f"
    if floats:
        # A copy, in the machine's byte order. A float64 may be infinite as a float32.
        with np.errstate(over="ignore"):
            array = np.array(array, dtype=_dtype(name))
    if not floats or not np.isfinite(array).all():
        raise InvalidStateError(f"array {name!r} holds values that are not finite floats")
    return array


def _dtype(name: str) -> type[np.floating]:
    single = name in ("targets", "novelty_axes", "novelty_reference")
    return np.float32 if single or name.startswith(("encoder", "decoder")) else np.float64


def _is_positive(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value <= sys.float_info.max


def _classes(stored: Mapping[str, Any], n_classes: int) -> NDArray[Any]:
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


def _history(history: object) -> dict[str, list[Any]]:
    """Return the history, with NaN where JSON has null."""
    if not isinstance(history, dict) or not set(HISTORY) <= set(history):
        raise InvalidStateError("the model's config lacks a complete 'history'")
    columns = [history[name] for name in HISTORY]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        raise InvalidStateError("'history' must be lists of one length")
    if not is_list_of(history["stage"], str):
        raise InvalidStateError("'history' must name the stage of every epoch")
    return {
        name: [np.nan if value is None else value for value in history[name]] for name in HISTORY
    }
