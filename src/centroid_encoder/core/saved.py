"""A fitted map, and the same as plain arrays and a JSON-able config.

Every release reads the files of earlier releases. Something that only a newer release knows is an
error that names that release.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from importlib.metadata import version
from typing import Any, get_args

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
from centroid_encoder.core.placement import Layout, Odds, Placement, Placer, Scatter
from centroid_encoder.core.standardization import Standardizer
from centroid_encoder.files import replacing

FORMAT = "centroid-encoder"
VERSION = 1
"""Of the format; only a change that older releases would misread needs another."""
OBJECTIVE = "centroid"
"""What the network of a map was trained for; there is one kind so far."""

LARGEST_WEIGHT = 1e12
"""Weights of a network are within it: no training comes near, and more would make no numbers."""
CENTROIDS_PER_BYTE = 16
"""Numbers that all centroids may have for each byte of the map they come from."""

SINGLE = (
    "targets",
    "placement_targets",
    "placement_axes",
    "novelty_axes",
    "novelty_reference",
    "novelty_held_out",
)
"""Arrays of single precision, beside those of the network."""

Arrays = dict[str, NDArray[Any]]


class InvalidStateError(ValueError):
    """Stored arrays or config are not those of a fitted map."""

    def __init__(self, message: str) -> None:
        # What is wrong may be a megabyte of text.
        super().__init__(message if len(message) <= 500 else f"{message[:499]}…")


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
    if fitted.placer is not None:
        scatter, odds = fitted.placer.scatter, fitted.placer.odds
        offsets = np.zeros(len(fitted.centers)) if odds.offsets is None else odds.offsets
        config |= {"sharpness": odds.sharpness, "steepness": fitted.placer.layout.steepness}
        arrays |= {
            "placement_targets": fitted.placer.targets,
            "placement_axes": scatter.axes,
            "placement_means": scatter.means,
            "placement_directions": scatter.directions,
            "placement_offsets": offsets,
        }
    if fitted.novelty is not None:
        arrays |= {f"novelty_{name}": array for name, array in fitted.novelty.to_arrays().items()}
    for name, value in fitted.network.state_dict().items():
        arrays[_plain(name)] = value.cpu().numpy()
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
    if config.get("objective") != OBJECTIVE:
        raise newer(config, f"objective {config.get('objective')!r}")
    architecture = _architecture(config, arrays)
    clip = config.get("clip")
    if clip is not None and not _is_positive(clip):
        raise InvalidStateError(f"clip must be a positive number, not {clip!r}")
    calibration = _calibration(config)
    n_classes = len(np.atleast_1d(arrays["targets"])) if "targets" in arrays else 0
    if n_classes < 1:
        raise InvalidStateError("array 'targets' is missing or empty")
    # On the device without memory: widths that are not trusted must not allocate anything.
    with torch.device("meta"):
        network = architecture.network()
    placed = architecture.placement != "bottleneck"
    shapes = _shapes(architecture, n_classes, arrays)
    shapes |= {_plain(name): tuple(value.shape) for name, value in network.state_dict().items()}
    knows_novelty = any(name.startswith("novelty_") for name in arrays)
    if knows_novelty:
        n_known = len(np.atleast_1d(arrays.get("novelty_known", 0)))
        n_axes = len(np.atleast_1d(arrays.get("novelty_offset", 0)))
        if not (n_known and n_axes):
            raise InvalidStateError("'novelty_known' and 'novelty_offset' must not be empty")
        own_shapes = Novelty.shapes(architecture.n_features, n_known, n_axes)
        shapes |= {f"novelty_{name}": shape for name, shape in own_shapes.items()}
    unknown = sorted(set(arrays) - set(shapes))
    if unknown:
        raise InvalidStateError(f"array {unknown[0]!r} does not belong to this network")
    own = {name: _checked(name, arrays, shape) for name, shape in shapes.items()}
    n_bytes = sum(array.nbytes for array in own.values())
    if n_classes * architecture.n_features > max(2**25, CENTROIDS_PER_BYTE * n_bytes):
        raise InvalidStateError("the map has more classes and features than its arrays tell of")
    if not ((own["scale"] > 0).all() and (own["weight"] >= 0).all()):
        raise InvalidStateError("'scale' must be positive, and 'weight' must not be negative")
    if np.count_nonzero(own["weight"]) != architecture.n_inputs:
        raise InvalidStateError("'n_inputs' is not the number of features that have a weight")

    # Copied to where torch puts its own: products of what lies otherwise differ in the last digits.
    weights = {name: torch.tensor(own[_plain(name)]) for name in network.state_dict()}
    if max(float(value.abs().max()) for value in weights.values()) > LARGEST_WEIGHT:
        raise InvalidStateError(f"weights of the network are beyond ±{LARGEST_WEIGHT:.0e}")
    network.load_state_dict(weights, assign=True)
    fitted = FittedMap(
        architecture,
        Standardizer(
            own["mean"], own["scale"], own["weight"], np.inf if clip is None else float(clip)
        ),
        network.to(device),
        CentroidTargets(own["targets"], own.get("origin"), own.get("basis"), device),
        own["centers"],
        calibration,
        _novelty(own, n_classes) if knows_novelty else None,
        _placer(config, own) if placed else None,
    )
    if not _says_numbers(fitted):
        raise InvalidStateError("the network makes no finite numbers of its own classes")
    return fitted


def sealed(config: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the config with a checksum of all that is saved."""
    return dict(config) | {"checksum": _checksum(config, arrays)}


def check_seal(config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Compare what `from_arrays` has taken with its checksum, if it has one.

    Damage is found; who changes a file on purpose can change the checksum too.

    Raises
    ------
    InvalidStateError
        If they differ.
    """
    if "checksum" in config and config["checksum"] != _checksum(config, arrays):
        raise InvalidStateError(
            "the model is damaged: its contents are not those that were saved. Take another copy, "
            "or train it again."
        )


def _checksum(config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    told = {name: value for name, value in config.items() if name != "checksum"}
    seen = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        # In the byte order of the format, whatever the machine has.
        array = np.ascontiguousarray(array, dtype=np.dtype(_dtype(name)).newbyteorder("<"))
        seen.update(f"{name} {array.dtype.str} {array.shape}".encode())
        seen.update(array.data)
    return seen.hexdigest()


def _says_numbers(fitted: FittedMap) -> bool:
    """Whether all steps of a map are finite, as far as its first classes go."""
    centers, device = fitted.centers[:4], fitted.device
    with np.errstate(all="ignore"):
        inputs = fitted.targets.to_input(fitted.targets.coordinates[:4].cpu().numpy())
        asked = torch.tensor(inputs, device=device)
        with torch.no_grad():
            outputs = fitted.network.outputs(asked).cpu().numpy()
        said = [inputs, outputs, fitted.decode(centers), fitted.distances(centers)]
        if fitted.placer is not None:
            said += fitted.placer.judge(outputs, fitted.placer.scatter.project(asked))
    return all(bool(np.isfinite(numbers).all()) for numbers in said)


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
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "this is a device or a pipe, not a file", str(path))
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


def newer(config: Mapping[str, Any], what: str) -> InvalidStateError:
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
        raise newer(config, f"{name} with {unknown[0]!r}")
    return stored


def _plain(name: str) -> str:
    """Name of an array for one in a network; some stores read "." as nesting, none "_"."""
    return name.replace(".", "_")


def _shapes(
    architecture: Architecture, n_classes: int, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a map, but for those of its network."""
    features, k = (architecture.n_features,), architecture.n_inputs
    m, r = architecture.n_components, architecture.n_outputs
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "scale", "weight"), features)
    shapes["centers"] = (n_classes, m)
    if architecture.placement == "voronoi":
        # The networks give other outputs than the coordinates of centroids.
        n_axes = len(np.atleast_1d(arrays.get("placement_axes", 0)))
        shapes |= {
            "placement_targets": (n_classes, r),
            "placement_axes": (n_axes, k),
            "placement_means": (n_classes, n_axes),
            "placement_directions": (n_classes, m, n_axes),
            "placement_offsets": (n_classes,),
        }
        r = len(np.atleast_1d(arrays.get("basis", 0))) if architecture.output == "span" else k
    shapes["targets"] = (n_classes, r)
    return shapes | ({"origin": (k,), "basis": (r, k)} if architecture.output == "span" else {})


def _architecture(config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Architecture:
    stored = _fields(Architecture, config, "architecture")
    hidden = stored["hidden"]
    widths = [stored[name] for name in ("n_features", "n_inputs", "n_components", "n_outputs")]
    if not isinstance(hidden, list) or not all(
        type(width) is int and width >= 1 for width in widths + hidden
    ):
        raise InvalidStateError("widths of the network must be positive integers")
    # Each layer has an array of its own, as long as it is wide.
    largest = max((np.size(array) for array in arrays.values()), default=0)
    if len(hidden) > len(arrays) or max(widths + hidden) > largest:
        raise InvalidStateError("the network is wider or deeper than the shapes of its arrays")
    for name, choices in (("activation", get_args(Activation)), ("output", get_args(Output))):
        if stored[name] not in choices:
            raise InvalidStateError(f"unknown {name} {stored[name]!r}")
    placement, n_networks = stored.get("placement", "bottleneck"), stored.get("n_networks", 1)
    if placement not in get_args(Placement):
        raise newer(config, f"placement {placement!r}")
    # Networks side by side are the first axis of each array of theirs.
    if type(n_networks) is not int or not 1 <= n_networks <= (
        1 if placement == "bottleneck" else max(map(len, map(np.atleast_1d, arrays.values())))
    ):
        raise InvalidStateError(f"the map cannot be of {n_networks!r} networks")
    squeezed, n_axes = placement == "bottleneck", stored.get("n_axes", 0)
    if type(n_axes) is not int or not 0 <= n_axes <= (0 if squeezed else stored["n_inputs"]):
        raise InvalidStateError(f"the network cannot have {n_axes!r} axes")
    if squeezed and stored["output"] == "full" and stored["n_outputs"] != stored["n_inputs"]:
        raise InvalidStateError("'n_outputs' of a full output must be 'n_inputs'")
    return Architecture(**{**stored, "hidden": tuple(hidden)})


def _placer(config: Mapping[str, Any], own: Arrays) -> Placer:
    """Rebuild what places samples from arrays of the right shapes."""
    for name in ("sharpness", "steepness"):
        if not _is_positive(config.get(name)):
            raise InvalidStateError(f"{name} must be a positive number: {config.get(name)!r}")
    positions = own["centers"]
    if len(np.unique(positions, axis=0)) < len(positions):
        raise InvalidStateError("two classes have the same position")
    # Beyond it by rounding alone.
    if np.abs(own["placement_axes"]).max() > 1.01:
        raise InvalidStateError("'placement_axes' must be of length 1")
    return Placer(
        own["placement_targets"],
        Scatter(own["placement_axes"], own["placement_means"], own["placement_directions"]),
        Layout(positions, float(config["steepness"])),
        Odds(float(config["sharpness"]), own["placement_offsets"]),
    )


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
    for name in ("novelty_residual", "novelty_unrest"):
        if (own[name] < 0).any():
            raise InvalidStateError(f"{name!r} must not be negative")
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
    # Arrays that are still in a file are read only if their shape is right.
    found = np.shape(arrays[name])
    if found != shape:
        raise InvalidStateError(f"array {name!r} has shape {found}, not {shape}")
    array = np.asarray(arrays[name])
    floats = array.dtype.kind == "f"
    if floats:
        # A copy, in the byte order of the machine. A float64 may be infinite as a float32.
        with np.errstate(over="ignore"):
            array = np.array(array, dtype=_dtype(name), order="C")
    if not floats or not np.isfinite(array).all():
        raise InvalidStateError(f"array {name!r} holds values that are not finite floats")
    return array


def _dtype(name: str) -> type[np.floating]:
    network = ("encoder", "decoder", "axes", "votes")
    return np.float32 if name in SINGLE or name.startswith(network) else np.float64


def _is_positive(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value <= sys.float_info.max
