"""A fitted map as plain arrays and a JSON-able config, and back.

Every release reads the files of earlier releases. A file with a part that only a newer release can
read is refused, and the error names that release.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
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
"""Version of the format; it rises only with a change that older releases would misread."""
OBJECTIVE = "centroid"
"""The one objective that networks are trained for so far."""
Arrays = dict[str, NDArray[Any]]


class InvalidStateError(ValueError):
    """Stored arrays or config are not those of a fitted map."""


def to_arrays(fitted: FittedMap) -> tuple[dict[str, Any], Arrays]:
    """Return (config, arrays): everything that `from_arrays` needs."""
    architecture, standardizer, targets = fitted.architecture, fitted.standardizer, fitted.targets
    config = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": version("centroid-encoder"),
        "objective": OBJECTIVE,
        # JSON has neither tuples nor infinity.
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
    # Copies, so that the map does not change with the arrays.
    return config, {name: array.copy() for name, array in arrays.items()}


def from_arrays(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], device: torch.device
) -> FittedMap:
    """Rebuild a map; the inverse of `to_arrays`, bit for bit.

    Raises
    ------
    InvalidStateError
        If the format or version is unknown, if only newer releases can read something in the
        config, or if an array is missing, superfluous, of a wrong shape or not finite.
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
    with refusing_damage():
        return _rebuilt(config, arrays, device)


@contextmanager
def refusing_damage() -> Iterator[None]:
    """Turn any error into an InvalidStateError: damaged parts may have any type and value."""
    try:
        yield
    except InvalidStateError:
        raise
    except KeyError as error:
        raise InvalidStateError(f"the model is damaged: {error} is missing") from error
    except Exception as error:
        raise InvalidStateError(f"the model is damaged: {error!r}") from error


def _rebuilt(
    config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], device: torch.device
) -> FittedMap:
    architecture = Architecture(**_fields(Architecture, config, "architecture"))
    architecture = replace(architecture, hidden=tuple(architecture.hidden))
    for name, kind in (("activation", Activation), ("output", Output), ("placement", Placement)):
        value = getattr(architecture, name)
        if value not in get_args(kind):
            raise newer(config, f"{name} {value!r}")
    if len(architecture.hidden) > len(arrays):
        raise InvalidStateError("the network has more layers than there are arrays")
    # Without memory: the widths have not been compared with the arrays yet.
    with torch.device("meta"):
        network = architecture.network()
    parameters = {_plain(name): (name, value) for name, value in network.state_dict().items()}
    shapes = _shapes(architecture, arrays)
    own = _checked(arrays, shapes | {n: tuple(value.shape) for n, (_, value) in parameters.items()})
    if not (own["scale"] > 0).all() or np.count_nonzero(own["weight"]) != architecture.n_inputs:
        raise InvalidStateError("'scale' must be positive, and 'weight' nonzero for each input")
    # Copies with torch's own alignment, on which the last digits of products depend.
    weights = {
        name: torch.tensor(own[plain], dtype=torch.float32)
        for plain, (name, _) in parameters.items()
    }
    network.load_state_dict(weights, strict=True, assign=True)
    placer = None
    if architecture.placement == "voronoi":
        placer = Placer(
            own["placement_targets"],
            Scatter(own["placement_axes"], own["placement_means"], own["placement_directions"]),
            Layout(own["centers"], _positive(config, "steepness")),
            Odds(_positive(config, "sharpness"), own["placement_offsets"]),
        )
    clip = np.inf if config["clip"] is None else _positive(config, "clip")
    calibration = _fields(Calibration, config, "calibration")
    prefix = "novelty_"
    novelty = {name[len(prefix) :]: own[name] for name in own if name.startswith(prefix)}
    return FittedMap(
        architecture,
        Standardizer(own["mean"], own["scale"], own["weight"], clip),
        network.to(device),
        CentroidTargets(own["targets"], own.get("origin"), own.get("basis"), device),
        own["centers"],
        Calibration(**{name: _positive(calibration, name) for name in calibration}),
        Novelty.from_arrays(novelty) if novelty else None,
        placer,
    )


def save(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a ``.safetensors`` file beside `path`, then rename it: `path` is always whole."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = serialize(contiguous, metadata={FORMAT: json.dumps(config)})
    with replacing(path, len(content)) as beside:
        beside.write_bytes(content)


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Read what `save` wrote. `from_arrays` checks the values.

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
    """Return the error for something that this release cannot read."""
    own, writer = version("centroid-encoder"), config.get("written_by")
    by = "a newer centroid-encoder"
    if isinstance(writer, str):
        by = f"centroid-encoder {writer}" + (", which is newer" if writer != own else "")
    return InvalidStateError(
        f"centroid-encoder {own} cannot read the model's {what}: it was written by {by}. Update "
        "centroid-encoder, or train the model again."
    )


def _fields(kind: type, config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields of a dataclass from a config."""
    known = {field.name for field in fields(kind)}
    for entry in config[name]:
        if entry not in known:
            raise newer(config, f"{name} with {entry!r}")
    return dict(config[name])


def _plain(name: str) -> str:
    """Return the name of an array of a network for files, some of which nest at each dot."""
    return name.replace(".", "_")


def _shapes(
    architecture: Architecture, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of a map, except those of its network."""
    d, k, m = architecture.n_features, architecture.n_inputs, architecture.n_components
    r, n_classes = architecture.n_outputs, len(arrays["targets"])
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "scale", "weight"), (d,))
    shapes["centers"] = (n_classes, m)
    if architecture.placement == "voronoi":
        # The networks give other outputs than the coordinates of centroids.
        n_axes = len(arrays["placement_axes"])
        shapes |= {
            "placement_targets": (n_classes, r),
            "placement_axes": (n_axes, k),
            "placement_means": (n_classes, n_axes),
            "placement_directions": (n_classes, m, n_axes),
            "placement_offsets": (n_classes,),
        }
        r = len(arrays["basis"]) if architecture.output == "span" else k
    shapes["targets"] = (n_classes, r)
    if architecture.output == "span":
        shapes |= {"origin": (k,), "basis": (r, k)}
    if any(name.startswith("novelty_") for name in arrays):
        novelty = Novelty.shapes(d, len(arrays["novelty_known"]), len(arrays["novelty_offset"]))
        shapes |= {f"novelty_{name}": shape for name, shape in novelty.items()}
    return shapes


def _checked(arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    """Return copies of finite arrays of these shapes, in the byte order of the machine."""
    for name in arrays:
        if name not in shapes:
            raise InvalidStateError(f"array {name!r} does not belong to this network")
    own = {}
    for name, shape in shapes.items():
        array = np.asarray(arrays[name])
        if array.shape != shape:
            raise InvalidStateError(f"array {name!r} has shape {array.shape}, not {shape}")
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise InvalidStateError(f"array {name!r} holds values that are not finite floats")
        own[name] = np.array(array, array.dtype.newbyteorder("="), order="C")
    return own


def _positive(values: Mapping[str, Any], name: str) -> float:
    """Return a positive, finite number from a config."""
    value: Any = values[name]
    if type(value) not in (int, float) or not 0 < value <= np.finfo(float).max:
        raise InvalidStateError(f"{name} must be a positive number, not {value!r}")
    return float(value)
