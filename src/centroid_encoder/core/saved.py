"""Conversion of a fitted map to plain arrays and a config of JSON types, and back.

Every release reads the files of earlier releases: a parameter that a file lacks has its default.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialize
from torch import Tensor

from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.discriminant import Discriminant
from centroid_encoder.core.inputs import Inputs, Standardizer
from centroid_encoder.core.layout import Layout
from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.placement import Placer, Scatter
from centroid_encoder.core.targets import CentroidTargets
from centroid_encoder.errors import InputError
from centroid_encoder.files import replacing

FORMAT = "centroid-encoder"
VERSION = 1  # of the format; it is increased by a change that older releases would misread
KINDS = {"O": str, "U": str, "i": int, "u": int, "b": bool, "f": float}
"""Python types of labels, by the kind of their dtype."""
Arrays = dict[str, NDArray[Any]]
ARRAYS = {
    "mean": ("d", "inputs.standardizer.mean"),
    "scale": ("d", "inputs.standardizer.scale"),
    "weight": ("d", "inputs.standardizer.weight"),
    "centers": ("cm", "centers"),
    "targets": ("ct", "targets.coordinates"),
    "origin": ("k", "targets.origin"),
    "basis": ("tk", "targets.basis"),
    "axes": ("nrk", "inputs.axes"),
    "knots": ("qk", "inputs.knots"),
    "placement_targets": ("co", "placer.targets"),
    "placement_axes": ("ak", "placer.scatter.axes"),
    "placement_means": ("ca", "placer.scatter.means"),
    "placement_directions": ("cma", "placer.scatter.directions"),
    "placement_linear_axes": ("bk", "placer.linear.axes"),
    "placement_linear_means": ("cb", "placer.linear.means"),
    "placement_voice": ("1", "placer.voice"),
    "placement_sharpness": ("1", "placer.sharpness"),
    "placement_offsets": ("c", "placer.offsets"),
    "novelty_axes": ("dp", "novelty.axes"),
    "novelty_offset": ("p", "novelty.offset"),
    "novelty_reference": ("sp", "novelty.reference"),
    "novelty_codes": ("s", "novelty.codes"),
    "novelty_location": ("2", "novelty.location"),
    "novelty_spread": ("2", "novelty.spread"),
    "novelty_known": ("s", "novelty.known"),
}
"""Shape of each array, and the attribute of a `FittedMap` that it holds. A letter stands for the
same length in all arrays: d features, k of them with a weight, c classes, m components of the
embedding, t coordinates of a target, n networks with r axes and o outputs, q knots of a feature, a
axes of the scatter, b axes of the discriminant analysis, p axes and s samples of the novelty."""


class InvalidStateError(ValueError):
    """Stored arrays or a stored config are not those of a fitted map."""


def to_arrays(fitted: FittedMap) -> tuple[dict[str, Any], Arrays]:
    """Return the config and the arrays of a map; the inverse of `from_arrays`."""
    clip = float(fitted.standardizer.clip)
    config: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": version("centroid-encoder"),
        "network": fitted.network.shape,
        # JSON has no infinity.
        "clip": clip if np.isfinite(clip) else None,
        "calibration": asdict(fitted.calibration),
    }
    parts: dict[str, Any] = {}
    for name, value in fitted.network.state_dict().items():
        # Some file formats read a dot in a name as a level of nesting.
        parts[name.replace(".", "_")] = _transposed(value)
    for name, (_, path) in ARRAYS.items():
        part: Any = fitted
        for attribute in path.split("."):
            part = getattr(part, attribute, None)  # None for a part that the map lacks
        parts[name] = part
    arrays = {}
    for name, part in parts.items():
        if part is not None:
            array = part.cpu().numpy() if isinstance(part, torch.Tensor) else part
            # A copy, which does not change with the map. Files need C order and floats.
            dtype = np.float64 if name == "novelty_codes" else None
            arrays[name] = np.array(array, dtype, order="C", ndmin=1)
    return config, arrays


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
        # On the device "meta", shapes are known and no memory is allocated.
        with torch.device("meta"):
            network = Network(**config["network"])
        arrays = _checked(arrays, network)
        if not (arrays["scale"] > 0).all():
            raise ValueError("'scale' must be positive")
        weights = {
            name: _transposed(torch.tensor(arrays[name.replace(".", "_")], dtype=torch.float32))
            for name in network.state_dict()
        }
        network.load_state_dict(weights, strict=True, assign=True)
        clip, found = config["clip"], config["calibration"]
        curve = float(found["temperature"]), float(found["exponent"])
        of_classes = [np.array(found.get(name, ()), float) for name in ("offsets", "terms")]
        # A value of NaN is above nothing.
        if not all(0 < value < np.inf for value in (*curve, 1 if clip is None else clip)):
            raise ValueError("the clip or the calibration is not in its range")
        for array in of_classes:
            if len(array) not in (0, len(arrays["centers"])) or not np.isfinite(array).all():
                raise ValueError("the calibration does not fit the classes")
        scaling = arrays["mean"], arrays["scale"], arrays["weight"], clip or np.inf
        standardizer = Standardizer(*scaling)
        span = (arrays["origin"], arrays["basis"]) if "basis" in arrays else ()
        axes = knots = placer = novelty = None
        if "placement_axes" in arrays:
            axes = torch.tensor(arrays["axes"]).to(device)
            knots = torch.tensor(arrays["knots"]).to(device) if "knots" in arrays else None
            placer = _placer(arrays)
        if any(name.startswith("novelty_") for name in arrays):
            stored = (arrays[f"novelty_{part.name}"] for part in fields(Novelty)[1:])
            novelty = Novelty(standardizer, *stored)
            novelty = replace(novelty, codes=novelty.codes.astype(np.intp))
        inputs = Inputs(standardizer, axes, knots)
        if inputs.n != network.shape["n_inputs"]:
            raise ValueError(f"{inputs.n} inputs for a network of {network.shape}")
        return FittedMap(
            inputs,
            network.to(device),
            CentroidTargets(torch.tensor(arrays["targets"]).float().to(device), *span),
            arrays["centers"],
            placer,
            Calibration(*curve, *(tuple(array.tolist()) for array in of_classes)),
            novelty,
        )


def _placer(arrays: Mapping[str, NDArray[Any]]) -> Placer:
    """Rebuild a placement by odds."""
    kind = "placement_"
    own = {name.removeprefix(kind): arrays[name] for name in arrays if name.startswith(kind)}
    return Placer(
        own["targets"],
        Scatter(own["axes"], own["means"], own["directions"]),
        Layout(arrays["centers"]),
        Discriminant(own["linear_axes"], own["linear_means"]),
        float(own["sharpness"][0]),
        float(own["voice"][0]),
        own["offsets"],
    )


def _transposed(value: Tensor) -> Tensor:
    """Transpose weights of several networks: in files, outputs come before inputs."""
    return value.mT.contiguous() if value.dim() == 3 else value


@contextmanager
def refusing_damage(config: Mapping[str, Any]) -> Iterator[None]:
    """Replace any error by an InvalidStateError: damaged parts can have any type and value."""
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


def _checked(arrays: Mapping[str, NDArray[Any]], network: Network) -> Arrays:
    """Return the arrays of `ARRAYS` and of a network, contiguous and in native byte order.

    A ValueError is raised if one is not finite or has a wrong shape.
    """
    shape, k = network.shape, int(np.count_nonzero(arrays["weight"]))
    sizes = {"1": 1, "2": 2, "k": k, "n": shape["n_networks"]}
    if "placement_axes" in arrays:
        sizes["o"] = shape["n_components"]
    else:
        sizes |= {"m": shape["n_components"], "t": shape["n_outputs"]}
    if "basis" not in arrays and sizes.setdefault("t", k) != k:
        raise ValueError(f"outputs of shape {sizes['t']} for {k} features")
    # `load_state_dict` checks the shapes of these.
    of_network = {name.replace(".", "_") for name in network.state_dict()}
    checked = {}
    for name in sorted(arrays.keys() & {*ARRAYS, *of_network}):
        array = np.array(arrays[name], order="C")
        fits = name in of_network or all(
            sizes.setdefault(letter, length) == length
            for letter, length in zip(ARRAYS[name][0], array.shape, strict=True)
        )
        if not fits or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(f"array {name!r}: {array.dtype} of shape {array.shape}")
        checked[name] = array.astype(array.dtype.newbyteorder("="))
    return checked


def save(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a ``.safetensors`` file beside `path`, and rename it when it is complete."""
    content = serialize(arrays, metadata={FORMAT: json.dumps(config)})
    with replacing(path, len(content)) as beside:
        beside.write_bytes(content)


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Read the config and arrays that `save` has written; `from_arrays` checks the values.

    An InvalidStateError is raised if the file is truncated or was not written by this package.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "this is a folder, not a file", str(path))
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, AttributeError, TypeError, ValueError) as error:
        # Some errors are about dtypes of the format that NumPy lacks.
        raise InvalidStateError(f"{path} is not a readable .safetensors file: {error}") from error
    if FORMAT not in metadata:
        raise InvalidStateError(f"{path} was not written by centroid-encoder")
    return parse_config(metadata[FORMAT]), arrays


def parse_config(text: Any) -> dict[str, Any]:
    """Read the JSON config of a map; an InvalidStateError is raised if it is no JSON object."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        raise InvalidStateError(f"the model's config is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise InvalidStateError("the model's config is not a JSON object")
    return config


def check_labels(classes: NDArray[Any]) -> None:
    """Raise an InputError unless labels are strings, integers, booleans or floats of ≤ 64 bits."""
    kind = KINDS.get(classes.dtype.kind, type(None))
    is_wide = classes.dtype.kind == "f" and classes.dtype.itemsize > 8
    if is_wide or not all(isinstance(label, kind) for label in classes.tolist()):
        found = classes.dtype if classes.dtype != object else type(classes[0]).__name__
        raise InputError(f"labels of type {found} cannot be saved with a map; make them strings")


def labels_from(stored: Mapping[str, Any], n: int) -> NDArray[Any]:
    """Return n labels of the original dtype; a ValueError is raised if they do not fit it."""
    classes, dtype = stored["classes"], np.dtype(stored["classes_dtype"])
    if len(classes) != n or not all(type(label) is KINDS[dtype.kind] for label in classes):
        raise ValueError(f"{len(classes)} labels of type {dtype} do not fit {n} classes")
    return np.array(classes, "U" if dtype.kind == "U" else dtype)


def params_to(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator as JSON; the inverse of `params_from`."""
    weights = params.get("class_weight")
    if isinstance(weights, Mapping):
        # Keys of JSON objects are strings, but class labels can have other types.
        params = {**params, "class_weight": {"weights": list(weights.items())}}
    plain: dict[str, Any] = json.loads(json.dumps(dict(params), default=_plain))
    return plain


def _plain(value: object) -> object:
    """Convert a part of a parameter to a JSON type; random generators become None."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value) if isinstance(value, torch.device) else None


def params_from(params: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the parameters of an estimator from JSON; missing ones have their default.

    An InvalidStateError is raised if one is not among the names `known`.
    """
    if unknown := [name for name in params if name not in known]:
        raise InvalidStateError(
            f"the model has the parameter {unknown[0]!r}, which this release "
            f"({version('centroid-encoder')}) does not have; update centroid-encoder"
        )
    params = dict(params)
    if isinstance(params.get("hidden"), list):
        params["hidden"] = tuple(params["hidden"])
    if isinstance(params.get("class_weight"), dict):
        params["class_weight"] = dict(params["class_weight"]["weights"])
    return params
