"""A fitted map as plain arrays and a JSON-able config, and back.

Every release reads the files of earlier releases: a parameter that a file lacks has its default.
"""

from __future__ import annotations

import errno
import json
import numbers
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
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
from centroid_encoder.core.placement import Layout, Odds, Placer, Scatter
from centroid_encoder.core.targets import CentroidTargets
from centroid_encoder.errors import InputError
from centroid_encoder.files import replacing

FORMAT = "centroid-encoder"
VERSION = 1
"""Version of the format; it rises with a change that older releases would misread."""
KINDS = {"O": str, "U": str, "i": int, "u": int, "b": bool, "f": float}
"""Types of labels in JSON, by the kind of their dtype."""
Arrays = dict[str, NDArray[Any]]
SHAPES = {
    "d": "mean scale weight",
    "cm": "centers",
    "ct": "targets",
    "k": "origin",
    "tk": "basis",
    "nik": "axes",
    "co": "placement_targets",
    "ak": "placement_axes",
    "ca": "placement_means",
    "cma": "placement_directions",
    "1": "placement_sharpness",
    "c": "placement_offsets",
    "dp": "novelty_axes",
    "p": "novelty_offset",
    "sp": "novelty_reference",
    "s": "novelty_codes novelty_known",
    "2": "novelty_location novelty_spread",
}
"""Arrays of each shape. A letter is the same length in all of them: d features, k of them with a
weight, c classes, m components of the embedding, t coordinates of a target, n networks with i
inputs and o outputs, a axes of the scatter, p axes and s samples of the novelty."""


class InvalidStateError(ValueError):
    """Stored arrays or config are not those of a fitted map."""


def to_arrays(fitted: FittedMap) -> tuple[dict[str, Any], Arrays]:
    """Return (config, arrays), from which `from_arrays` rebuilds the map."""
    standardizer, targets, placer = fitted.standardizer, fitted.targets, fitted.placer
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
    if placer is not None and fitted.axes is not None:
        arrays |= {
            "axes": fitted.axes.cpu().numpy(),
            "placement_targets": placer.targets,
            "placement_axes": placer.scatter.axes,
            "placement_means": placer.scatter.means,
            "placement_directions": placer.scatter.directions,
            "placement_sharpness": np.array([placer.odds.sharpness]),
            "placement_offsets": placer.odds.offsets,
        }
    if fitted.novelty is not None:
        for part in fields(fitted.novelty):
            arrays[f"novelty_{part.name}"] = getattr(fitted.novelty, part.name)
        arrays["novelty_codes"] = fitted.novelty.codes.astype(np.float64)
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
        # Shapes are compared before memory is allocated for them.
        with torch.device("meta"):
            network = Network(**config["network"])
        arrays = _checked(arrays, network)
        if not (arrays["scale"] > 0).all():
            raise ValueError("'scale' must be positive")
        weights = {
            name: torch.tensor(arrays[name.replace(".", "_")], dtype=torch.float32)
            for name in network.state_dict()
        }
        network.load_state_dict(weights, strict=True, assign=True)
        origin, basis, axes, placer, novelty = None, None, None, None, None
        if "basis" in arrays:
            origin, basis = arrays["origin"], arrays["basis"]
        if "placement_axes" in arrays:
            axes = torch.tensor(arrays["axes"]).to(device)
            names = ("targets", "axes", "means", "directions", "sharpness", "offsets")
            targets, *scatter, sharpness, offsets = (arrays[f"placement_{name}"] for name in names)
            odds = Odds(float(sharpness[0]), offsets)
            placer = Placer(targets, Scatter(*scatter), Layout(arrays["centers"]), odds)
        if any(name.startswith("novelty_") for name in arrays):
            novelty = Novelty(*(arrays[f"novelty_{part.name}"] for part in fields(Novelty)))
            novelty = replace(novelty, codes=novelty.codes.astype(np.intp))
            if not np.isin(novelty.codes, np.arange(len(arrays["centers"]))).all():
                raise ValueError("array 'novelty_codes' has unknown classes")
        clip = np.inf if config["clip"] is None else _positive(config["clip"])
        calibration = {name: _positive(value) for name, value in config["calibration"].items()}
        return FittedMap(
            Standardizer(arrays["mean"], arrays["scale"], arrays["weight"], clip),
            network.to(device),
            CentroidTargets(torch.tensor(arrays["targets"]).float().to(device), origin, basis),
            arrays["centers"],
            axes,
            placer,
            Calibration(**calibration),
            novelty,
        )


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


def _checked(arrays: Mapping[str, NDArray[Any]], network: Network) -> Arrays:
    """Return the known arrays; a ValueError is raised if one is not finite or of a wrong shape."""
    shape, k = network.shape, int(np.count_nonzero(arrays["weight"]))
    sizes = {"1": 1, "2": 2, "k": k, "n": shape["n_networks"], "i": shape["n_inputs"]}
    if "placement_axes" in arrays:
        sizes["o"] = shape["n_components"]
    else:
        sizes |= {"m": shape["n_components"], "t": shape["n_outputs"]}
    if "basis" not in arrays and sizes.setdefault("t", k) != k:
        raise ValueError(f"outputs of shape {sizes['t']} for {k} features")
    expected: dict[str, Iterable[str | int]] = {
        name: letters for letters, names in SHAPES.items() for name in names.split()
    }
    for name, value in network.state_dict().items():
        expected[name.replace(".", "_")] = value.shape
    checked = {}
    for name, lengths in expected.items():
        if name not in arrays:
            continue
        array = np.array(arrays[name], order="C")
        fits = [
            own == (sizes.setdefault(length, own) if isinstance(length, str) else length)
            for length, own in zip(lengths, array.shape, strict=True)
        ]
        if not all(fits) or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(f"array {name!r}: {array.dtype} of shape {array.shape}")
        checked[name] = array.astype(array.dtype.newbyteorder("="))
    return checked


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
