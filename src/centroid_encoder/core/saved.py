"""A fitted map as plain arrays and a JSON-able config, and back.

Every release reads the files of earlier releases: a parameter that a file lacks has its default.
"""

from __future__ import annotations

import errno
import json
import numbers
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialize

from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.features import Standardizer
from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.placement import Placer
from centroid_encoder.core.targets import CentroidTargets
from centroid_encoder.errors import InputError
from centroid_encoder.files import replacing

FORMAT = "centroid-encoder"
VERSION = 1
"""Version of the format; it rises with a change that older releases would misread."""
KINDS = {"O": str, "U": str, "i": int, "u": int, "b": bool, "f": float}
"""Types of labels in JSON, by the kind of their dtype."""
Arrays = dict[str, NDArray[Any]]


class InvalidStateError(ValueError):
    """Stored arrays or config are not those of a fitted map."""


def to_arrays(fitted: FittedMap) -> tuple[dict[str, Any], Arrays]:
    """Return (config, arrays), from which `from_arrays` rebuilds the map."""
    standardizer, targets = fitted.standardizer, fitted.targets
    config: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": version("centroid-encoder"),
        "network": fitted.network.shape,
        # JSON has no infinity.
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
    if fitted.placer is not None and fitted.axes is not None:
        arrays |= {"axes": fitted.axes.cpu().numpy()} | fitted.placer.to_arrays()
    if fitted.novelty is not None:
        arrays |= fitted.novelty.to_arrays()
    for name, value in fitted.network.state_dict().items():
        # A dot in a name would nest in some files.
        arrays[name.replace(".", "_")] = value.cpu().numpy()
    # The copies do not change with the map.
    return config, {name: array.copy() for name, array in arrays.items()}


def from_arrays(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], device: torch.device
) -> FittedMap:
    """Rebuild a map; the inverse of `to_arrays`, bit for bit.

    An InvalidStateError is raised if the format or its version is unknown, or if an array is
    missing, of a wrong shape or not finite.
    """
    if config.get("format") != FORMAT:
        raise InvalidStateError("these are not the contents of a centroid-encoder model")
    if config.get("version") != VERSION:
        raise InvalidStateError(
            f"model format version {config.get('version')!r} is not supported: this release reads "
            f"version {VERSION}. Update centroid-encoder, or train the model again."
        )
    with refusing_damage(config):
        return _rebuilt(config, arrays, device)


@contextmanager
def refusing_damage(config: Mapping[str, Any]) -> Iterator[None]:
    """Turn any error into an InvalidStateError: damaged parts have any type and value."""
    try:
        yield
    except InvalidStateError:
        raise
    except Exception as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else repr(error)
        raise InvalidStateError(
            f"the model cannot be read: it is damaged, or a newer release has written it (this is "
            f"{version('centroid-encoder')}, the writer {config.get('written_by')}): {what}"
        ) from error


def _rebuilt(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], device: torch.device
) -> FittedMap:
    # Shapes are compared before memory is allocated for them.
    with torch.device("meta"):
        network = Network(**config["network"])
    d, k = len(arrays["mean"]), int(np.count_nonzero(arrays["weight"]))
    n_classes, m = arrays["centers"].shape

    def array(name: str, *shape: int | None) -> NDArray[Any]:
        """Return a finite array; None stands for any length."""
        found = np.array(arrays[name], order="C")
        fits = [size in (None, own) for size, own in zip(shape, found.shape, strict=True)]
        if not all(fits) or found.dtype.kind != "f" or not np.isfinite(found).all():
            raise ValueError(f"array {name!r}: {found.dtype} of shape {found.shape}, not {shape}")
        return found.astype(found.dtype.newbyteorder("="))

    clip = np.inf if config["clip"] is None else _positive(config["clip"])
    means, scales, weights = (array(name, d) for name in ("mean", "scale", "weight"))
    standardizer = Standardizer(means, scales, weights, clip)
    if not (scales > 0).all():
        raise ValueError("'scale' must be positive")
    own = {
        name: torch.tensor(array(name.replace(".", "_"), *value.shape), dtype=torch.float32)
        for name, value in network.state_dict().items()
    }
    network.load_state_dict(own, strict=True, assign=True)
    spanned, placed = "basis" in arrays, "placement_axes" in arrays
    rank = len(arrays["basis"]) if spanned else k
    if not placed and rank != network.shape["n_outputs"]:
        raise ValueError(f"{rank} targets for {network.shape['n_outputs']} outputs")
    targets = CentroidTargets(
        array("targets", n_classes, rank),
        array("origin", k) if spanned else None,
        array("basis", rank, k) if spanned else None,
        device,
    )
    centers, placer, axes = array("centers", n_classes, m), None, None
    if placed:
        axes = torch.tensor(array("axes", network.n_networks, network.shape["n_inputs"], k))
        placer = Placer.from_arrays(array, centers)
        found = placer.targets.shape[1], placer.scatter.axes.shape[1]
        if found != (network.shape["n_components"], k):
            raise ValueError(f"the placement has {found} outputs and inputs")
    calibration = {name: _positive(value) for name, value in config["calibration"].items()}
    has_novelty = any(name.startswith("novelty_") for name in arrays)
    return FittedMap(
        standardizer,
        network.to(device),
        targets,
        centers,
        None if axes is None else axes.to(device),
        placer,
        Calibration(**calibration),
        Novelty.from_arrays(array, d, n_classes) if has_novelty else None,
    )


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < np.inf:
        raise ValueError(f"{value} is not a positive number")
    return number


def save(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a ``.safetensors`` file beside `path`, then rename it: `path` is always complete."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = serialize(contiguous, metadata={FORMAT: json.dumps(config)})
    with replacing(path, len(content)) as beside:
        beside.write_bytes(content)


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Read a file that `save` has written; `from_arrays` checks the values.

    An InvalidStateError is raised if it is truncated or no ``.safetensors`` file of this package.
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


def parse_config(text: Any) -> dict[str, Any]:
    """Read the JSON config of a map; InvalidStateError if it is not a JSON object."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise InvalidStateError(f"the model's config is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise InvalidStateError("the model's config is not a JSON object")
    return config


def check_labels(classes: NDArray[Any]) -> None:
    """Refuse labels that are no strings, integers, booleans, or floats of at most 64 bits."""
    kind = KINDS.get(classes.dtype.kind, type(None))
    wide = classes.dtype.kind == "f" and classes.dtype.itemsize > 8
    if wide or not all(isinstance(label, kind) for label in classes.tolist()):
        found = classes.dtype if classes.dtype != object else type(classes[0]).__name__
        raise InputError(f"labels of type {found} cannot be saved with a map; make them strings")


def labels_to(classes: NDArray[Any]) -> dict[str, Any]:
    """Return labels as JSON; the inverse of `labels_from`."""
    return {"classes": classes.tolist(), "classes_dtype": classes.dtype.str}


def labels_from(stored: Mapping[str, Any], n: int) -> NDArray[Any]:
    """Return n labels from JSON in their own type."""
    classes, dtype = stored["classes"], np.dtype(stored["classes_dtype"])
    if len(classes) != n or not all(type(label) is KINDS[dtype.kind] for label in classes):
        raise ValueError(f"{len(classes)} labels of type {dtype} do not fit {n} classes")
    return np.array(classes, "U" if dtype.kind == "U" else dtype)


def params_to(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator as JSON; the inverse of `params_from`."""
    weights = params.get("class_weight")
    if isinstance(weights, Mapping):
        # Keys in JSON are strings; class labels need not be.
        params = {**params, "class_weight": {"weights": list(weights.items())}}
    plain: dict[str, Any] = json.loads(json.dumps(dict(params), default=_plain))
    return plain


def _plain(value: object) -> object:
    """Return a part of a parameter as JSON; sources of randomness other than an int are dropped."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, numbers.Real):
        return float(value)
    return str(value) if isinstance(value, torch.device) else None


def params_from(params: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return parameters of an estimator from JSON; those that are not stored keep their default.

    An InvalidStateError is raised if one is not among the names `known`.
    """
    for name in params:
        if name not in known:
            raise InvalidStateError(
                f"the model has the parameter {name!r}, which this release "
                f"({version('centroid-encoder')}) does not know; update centroid-encoder"
            )
    params = dict(params)
    if isinstance(params.get("hidden"), list):
        params["hidden"] = tuple(params["hidden"])
    if isinstance(params.get("class_weight"), dict):
        params["class_weight"] = dict(params["class_weight"]["weights"])
    return params
