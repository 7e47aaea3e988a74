"""A fitted map, and the same as plain arrays and a JSON-able config."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialize
from torch import Tensor

from centroid_encoder.core.confidence import UNCALIBRATED, Calibration
from centroid_encoder.core.network import Activation, Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.objective import CentroidTargets, Output
from centroid_encoder.core.rows import CHUNK, Matrix, Rows, Standardizer
from centroid_encoder.core.training import suitable_numerics
from centroid_encoder.files import replacing

FORMAT = "centroid-encoder"
VERSION = 1

Arrays = dict[str, NDArray[Any]]


class InvalidStateError(ValueError):
    """Stored arrays or config are not those of a fitted map."""


@dataclass(frozen=True)
class Architecture:
    """What has to be known before the arrays of a network make sense."""

    n_features: int
    n_inputs: int
    hidden: tuple[int, ...]
    n_components: int
    n_outputs: int
    activation: Activation
    output: Output

    def network(
        self, generator: torch.Generator | None = None, *, batch_norm: bool = False
    ) -> Network:
        """Build the network; see `Network` for the arguments."""
        return Network(
            self.n_inputs,
            self.hidden,
            self.n_components,
            self.n_outputs,
            self.activation,
            generator,
            batch_norm=batch_norm,
        )


@dataclass
class FittedMap:
    """A trained network with its standardisation and targets: data → embedding → data."""

    architecture: Architecture
    standardizer: Standardizer
    network: Network
    targets: CentroidTargets
    centers: NDArray[np.float64]
    """(M, m) class means of the embedded training rows."""
    calibration: Calibration = UNCALIBRATED
    """How distances to the centroids become probabilities."""
    novelty: Novelty | None = None
    """How unlike the training rows others are, if that has been learned."""

    @property
    def device(self) -> torch.device:
        """Where the network lives."""
        return next(self.network.parameters()).device

    def embed(self, X: Matrix) -> NDArray[np.float32]:
        """Map (n, d) data to the (n, m) embedding, a chunk of rows at a time."""
        embedding = np.empty((X.shape[0], self.architecture.n_components), np.float32)
        for start in range(0, X.shape[0], CHUNK):
            rows = Rows(X[start : start + CHUNK], self.standardizer, self.device)
            everything = torch.arange(rows.n_rows, device=self.device)
            embedding[start : start + CHUNK] = self.embed_rows(rows, everything)
        return embedding

    @torch.no_grad()
    def embed_rows(self, rows: Rows, index: Tensor) -> NDArray[np.float32]:
        """Map standardised rows, those at the (n,) `index`, to the (n, m) embedding."""
        with suitable_numerics(self.network, CHUNK):
            parts = [self.network.encode(rows[part]) for part in index.split(CHUNK)]
        return torch.cat(parts).cpu().numpy()

    def calibrate(self, embedding: NDArray[np.floating], codes: NDArray[np.integer]) -> None:
        """Fit the probabilities to (n, m) embedded rows and their (n,) class indices."""
        self.calibration = Calibration.fit(self.distances(embedding), codes)

    def learn_novelty(
        self, X: Matrix, index: NDArray[np.integer], codes: NDArray[np.integer]
    ) -> None:
        """Learn what is usual from the rows of X at `index`, which are of the classes `codes`."""
        self.novelty = Novelty.fit(X, index, codes, self.standardizer)

    def distances(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """(n, M) distances of the decoder's output h(z) to each class's centroid.

        In units in which the centroids have unit mean square; their order and ratios are those of
        ‖h(z) − c_j‖ in the standardised input space.
        """
        return self._through_decoder(embedding, with_distances=True)

    def decode(self, embedding: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, m) points of the embedding to (n, d) data, in the units of the data."""
        outputs = self._through_decoder(embedding, with_distances=False)
        return self.standardizer.inverse(self.targets.to_input(outputs))

    def centroids(self) -> NDArray[np.float32]:
        """(M, d) centroids, the targets of the training, in the units of the data."""
        targets = self.targets.coordinates.cpu().numpy()
        return self.standardizer.inverse(self.targets.to_input(targets))

    @torch.no_grad()
    def _through_decoder(
        self, embedding: NDArray[np.floating], *, with_distances: bool
    ) -> NDArray[np.float32]:
        z = torch.from_numpy(np.array(embedding, dtype=np.float32)).to(self.device)
        width = len(self.targets.coordinates) if with_distances else self.architecture.n_outputs
        result = np.empty((len(z), width), np.float32)
        with suitable_numerics(self.network, CHUNK):
            for start in range(0, len(z), CHUNK):
                output = self.network.decode(z[start : start + CHUNK])
                if with_distances:
                    output = self.targets.distances(output)
                result[start : start + CHUNK] = output.cpu().numpy()
        return result


def to_arrays(fitted: FittedMap) -> tuple[dict[str, Any], Arrays]:
    """Return (config, arrays): everything that `from_arrays` needs, nothing that can run."""
    architecture, standardizer, targets = fitted.architecture, fitted.standardizer, fitted.targets
    config = {
        "format": FORMAT,
        "version": VERSION,
        # Spelled out, since JSON knows neither tuples nor infinity.
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
        # h5ad and zarr read "/" as nesting and a "." invites the same; "_" is safe everywhere.
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
        If the format or version is unknown, or if an array is missing, is not known, has a wrong
        shape or holds values that are not finite. Nothing is allocated before the shapes are known
        to fit.
    """
    if config.get("format") != FORMAT:
        raise InvalidStateError("these are not the contents of a centroid-encoder model")
    if config.get("version") != VERSION:
        raise InvalidStateError(
            f"model format version {config.get('version')!r} is not supported: this release reads "
            f"version {VERSION}. Update centroid-encoder, or train the model again."
        )
    architecture = _architecture(config.get("architecture"))
    clip = config.get("clip")
    if clip is not None and not (_is_number(clip) and 0 < clip <= sys.float_info.max):
        raise InvalidStateError(f"clip must be a positive number, not {clip!r}")
    calibration = _calibration(config.get("calibration"))
    n_classes = len(np.atleast_1d(arrays["targets"])) if "targets" in arrays else 0
    if n_classes < 1:
        raise InvalidStateError("array 'targets' is missing or empty")
    shapes = _shapes(architecture, n_classes)
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
    targets = CentroidTargets(own["targets"], own.get("origin"), own.get("basis"), device)
    standardizer = Standardizer(
        own["mean"], own["scale"], own["weight"], np.inf if clip is None else float(clip)
    )
    return FittedMap(
        architecture,
        standardizer,
        network.to(device),
        targets,
        own["centers"],
        calibration,
        _novelty(own, n_classes) if knows_novelty else None,
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


def _architecture(config: object) -> Architecture:
    if not isinstance(config, dict) or set(config) != set(Architecture.__annotations__):
        raise InvalidStateError("the model's config lacks a complete 'architecture'")
    hidden = config["hidden"]
    widths = [config[name] for name in ("n_features", "n_inputs", "n_components", "n_outputs")]
    if not isinstance(hidden, list) or not all(
        type(width) is int and 1 <= width <= 2**31 for width in widths + hidden
    ):
        raise InvalidStateError("widths of the network must be positive integers")
    if config["activation"] not in get_args(Activation):
        raise InvalidStateError(f"unknown activation {config['activation']!r}")
    if config["output"] not in get_args(Output):
        raise InvalidStateError(f"unknown output {config['output']!r}")
    if config["output"] == "full" and config["n_outputs"] != config["n_inputs"]:
        raise InvalidStateError("'n_outputs' of a full output must be 'n_inputs'")
    return Architecture(**{**config, "hidden": tuple(hidden)})


def _calibration(config: object) -> Calibration:
    if not isinstance(config, dict) or set(config) != set(Calibration.__annotations__):
        raise InvalidStateError("the model's config lacks a complete 'calibration'")
    for name, value in config.items():
        if not (_is_number(value) and 0 < value <= sys.float_info.max):
            raise InvalidStateError(f"{name} must be a positive number, not {value!r}")
    return Calibration(**{name: float(value) for name, value in config.items()})


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


def _shapes(architecture: Architecture, n_classes: int) -> dict[str, tuple[int, ...]]:
    d, k = architecture.n_features, architecture.n_inputs
    m, r = architecture.n_components, architecture.n_outputs
    shapes: dict[str, tuple[int, ...]] = {
        "mean": (d,),
        "scale": (d,),
        "weight": (d,),
        "centers": (n_classes, m),
        "targets": (n_classes, r),
    }
    if architecture.output == "span":
        shapes |= {"origin": (k,), "basis": (r, k)}
    for side, widths in (
        ("encoder", [k, *architecture.hidden, m]),
        ("decoder", [m, *reversed(architecture.hidden), r]),
    ):
        for i, (n_in, n_out) in enumerate(pairwise(widths)):
            shapes |= {f"{side}_{i}_weight": (n_out, n_in), f"{side}_{i}_bias": (n_out,)}
    return shapes


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
