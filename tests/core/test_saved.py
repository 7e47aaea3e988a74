from __future__ import annotations

import json
import os
import pickle
import stat
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy import sparse
from scipy.spatial.distance import cdist

import centroid_encoder as ce
from centroid_encoder.core import saved
from centroid_encoder.core.map import Architecture, FittedMap
from centroid_encoder.core.network import Activation, Network
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.objective import CentroidTargets, Output
from centroid_encoder.core.rows import CHUNK
from centroid_encoder.core.saved import (
    Arrays,
    InvalidStateError,
    from_arrays,
    load,
    parse_config,
    save,
    to_arrays,
)
from centroid_encoder.core.standardization import Standardizer

CPU = torch.device("cpu")
N_CLASSES, N_FEATURES = 4, 7
Config = dict[str, Any]


def make(
    output: Output = "span",
    *,
    hidden: Sequence[int] = (6, 5),
    n_components: int = 2,
    activation: Activation = "relu",
    clip: float = 10.0,
) -> FittedMap:
    """A map with random weights; one of its features is left out."""
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 1.5, N_FEATURES)
    weight[2] = 0
    n_inputs = N_FEATURES - 1
    targets = CentroidTargets.fit(rng.normal(size=(N_CLASSES, n_inputs)), output, CPU)
    architecture = Architecture(
        n_features=N_FEATURES,
        n_inputs=n_inputs,
        hidden=tuple(hidden),
        n_components=n_components,
        n_outputs=targets.n_outputs,
        activation=activation,
        output=output,
    )
    generator = torch.Generator().manual_seed(0)
    network = Network(n_inputs, hidden, n_components, targets.n_outputs, activation, generator)
    standardizer = Standardizer(
        rng.normal(size=N_FEATURES), rng.uniform(0.5, 2, N_FEATURES), weight, clip
    )
    centers = rng.normal(size=(N_CLASSES, n_components))
    return FittedMap(architecture, standardizer, network, targets, centers)


def data(n: int = 50) -> NDArray[np.float64]:
    return np.random.default_rng(1).normal(size=(n, N_FEATURES))


def through_a_file(fitted: FittedMap, path: Path) -> FittedMap:
    save(path, *to_arrays(fitted))
    return from_arrays(*load(path), CPU)


def same_bits(one: FittedMap, other: FittedMap) -> bool:
    X = data()
    z = one.embed(X)
    pairs = [
        (one.embed(X), other.embed(X)),
        (one.decode(z), other.decode(z)),
        (one.distances(z), other.distances(z)),
        (one.centroids(), other.centroids()),
        (one.centers, other.centers),
    ]
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def changed(**arrays: Any) -> tuple[Config, Arrays]:
    """Valid state with some arrays exchanged; None leaves one out."""
    config, own = to_arrays(make())
    own |= arrays
    return config, {name: array for name, array in own.items() if array is not None}


def reconfigured(**changes: Any) -> tuple[Config, Arrays]:
    """Valid state with changes to the architecture."""
    config, arrays = to_arrays(make())
    return config | {"architecture": config["architecture"] | changes}, arrays


def spoilt(name: str, value: float) -> tuple[Config, Arrays]:
    """Valid state with one number exchanged."""
    _, arrays = to_arrays(make())
    arrays[name].flat[-1] = value
    return changed(**{name: arrays[name]})


# The map itself


def test_the_map_is_standardisation_network_and_targets_one_after_the_other() -> None:
    fitted, X = make(), data()
    kept = [0, 1, 3, 4, 5, 6]
    s = fitted.standardizer
    x = torch.from_numpy((((X - s.mean) / s.scale).clip(-10, 10) * s.weight)[:, kept]).float()

    with torch.no_grad():
        z = fitted.network.encode(x)
        output = fitted.network.decode(z)

    np.testing.assert_allclose(fitted.embed(X), z, rtol=1e-5, atol=1e-6)
    in_input_space = output.numpy() @ fitted.targets.basis + fitted.targets.origin
    back = fitted.decode(z.numpy())
    expected = in_input_space / s.weight[kept] * s.scale[kept] + s.mean[kept]
    np.testing.assert_allclose(back[:, kept], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(back[:, 2], s.mean[2], rtol=1e-6)
    # Distances to the centroids, in one unit for all.
    centroids = fitted.targets.to_input(fitted.targets.coordinates.numpy())
    ratio = fitted.distances(z.numpy()) / cdist(in_input_space, centroids)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)
    np.testing.assert_allclose(
        (fitted.centroids()[:, kept] - s.mean[kept]) / s.scale[kept] * s.weight[kept],
        centroids,
        rtol=1e-4,
        atol=1e-5,
    )


def test_chunks_fit_together() -> None:
    fitted, X = make(), data(2 * CHUNK + 3)

    z = fitted.embed(X)

    assert z.shape == (2 * CHUNK + 3, 2)
    part = slice(CHUNK - 2, CHUNK + 2)
    np.testing.assert_allclose(z[part], fitted.embed(X[part]), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(fitted.embed(sparse.csr_array(X)), z)
    for through in (fitted.decode, fitted.distances):
        np.testing.assert_allclose(through(z)[part], through(z[part]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_of_the_embedding_may_be_read_only_and_of_any_float(dtype: type) -> None:
    fitted = make()
    z = fitted.embed(data())
    points = np.asfortranarray(z.astype(dtype))
    points.flags.writeable = False

    np.testing.assert_array_equal(fitted.decode(points), fitted.decode(z))


# There and back


@pytest.mark.parametrize(
    ("output", "m", "activation", "hidden"),
    [
        ("span", 2, "relu", (6, 5)),
        ("span", 1, "leaky_relu", ()),
        ("span", 3, "tanh", (6, 5)),
        ("span", 2, "sigmoid", ()),
        ("full", 2, "relu", ()),
        ("full", 1, "leaky_relu", (6, 5)),
        ("full", 3, "tanh", ()),
        ("full", 2, "sigmoid", (6, 5)),
    ],
)
def test_a_map_comes_back_to_the_bit(
    output: Output, m: int, activation: Activation, hidden: tuple[int, ...], tmp_path: Path
) -> None:
    fitted = make(output, n_components=m, activation=activation, hidden=hidden)

    config, arrays = to_arrays(fitted)
    in_memory = from_arrays(json.loads(json.dumps(config)), arrays, CPU)
    from_file = through_a_file(fitted, tmp_path / "map.safetensors")

    for back in (in_memory, from_file):
        assert same_bits(fitted, back)
        assert back.architecture == fitted.architecture
        assert back.standardizer.clip == 10
        assert back.device == CPU


def test_no_clip_comes_back_as_no_clip(tmp_path: Path) -> None:
    back = through_a_file(make(clip=np.inf), tmp_path / "map.safetensors")

    assert back.standardizer.clip == np.inf


def test_config_is_plain_json_and_names_are_safe_in_every_store() -> None:
    config, arrays = to_arrays(make(clip=np.float32(5)))

    assert json.loads(json.dumps(config, allow_nan=False)) == config
    assert config["format"] == "centroid-encoder"
    assert config["version"] == 1
    assert all(name.replace("_", "").isalnum() for name in arrays)
    assert all(array.dtype.kind == "f" for array in arrays.values())


def test_arrays_and_map_share_no_memory() -> None:
    fitted, untouched = make(), make()
    config, arrays = to_arrays(fitted)
    back = from_arrays(config, arrays, CPU)

    for array in arrays.values():
        array += 1

    assert same_bits(fitted, untouched)
    assert same_bits(back, untouched)


@pytest.mark.parametrize(
    "convert",
    [
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        np.asfortranarray,
        lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
    ],
    ids=["big-endian", "Fortran", "read-only"],
)
def test_stored_arrays_may_have_any_layout(convert: Callable[[Any], Any]) -> None:
    config, arrays = to_arrays(make())

    back = from_arrays(config, {name: convert(array) for name, array in arrays.items()}, CPU)

    assert same_bits(back, make())


def test_extra_keys_of_the_config_are_somebody_elses() -> None:
    config, arrays = to_arrays(make())

    assert same_bits(from_arrays(config | {"estimator": {"x": 1}}, arrays, CPU), make())


# Damaged state


@pytest.mark.parametrize(
    ("config_and_arrays", "words"),
    [
        (changed(encoder_0_weight=None), "'encoder_0_weight' is missing"),
        (changed(targets=None), "'targets' is missing"),
        (changed(weight=None), "'weight' is missing"),
        (changed(encoder_9_weight=np.zeros(3)), "'encoder_9_weight' does not belong"),
        (changed(encoder_0_weight=np.zeros((6, 7))), r"shape \(6, 7\), not \(6, 6\)"),
        (changed(mean=np.float64(0)), "'mean' has shape"),
        (changed(targets=np.float64(0)), "damaged"),
        (changed(centers=np.zeros((5, 2))), "'centers' has shape"),
        (changed(decoder_2_bias=np.zeros(3, dtype=int)), "'decoder_2_bias'.*floats"),
        (spoilt("encoder_1_weight", np.nan), "'encoder_1_weight'.*finite"),
        (spoilt("mean", -np.inf), "'mean'.*finite"),
        (spoilt("scale", 0), "'scale' must be positive"),
        (spoilt("weight", 0), "'weight' nonzero for each input"),
        (reconfigured(n_inputs=5), "shape"),
        (reconfigured(hidden=[6, 6]), "shape"),
        (reconfigured(hidden=[6]), "does not belong"),
        (reconfigured(hidden=[6, 5, 5]), "shape"),
        (reconfigured(hidden=[2**31, 2**31]), "damaged"),
        (reconfigured(hidden=[2**80]), "damaged"),
        (reconfigured(hidden=[1] * 10**6), "more layers than there are arrays"),
        (reconfigured(hidden=None), "damaged"),
        (reconfigured(activation="eval"), "activation 'eval'.*Update centroid-encoder"),
        (reconfigured(device="cuda"), "architecture with 'device'.*Update centroid-encoder"),
    ],
)
def test_arrays_and_architecture_have_to_fit_each_other(
    config_and_arrays: tuple[Config, Arrays], words: str
) -> None:
    with pytest.raises(InvalidStateError, match=words):
        from_arrays(*config_and_arrays, CPU)


@pytest.mark.parametrize(
    ("writer", "words"),
    [
        ({"written_by": "99.0"}, "written by centroid-encoder 99.0, which is newer"),
        ({"written_by": 3}, "written by a newer centroid-encoder"),
    ],
)
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"objective": "triplets"}, "objective 'triplets'"),
        ({"calibration": {"temperature": 1.0, "prior": 1.0}}, "calibration with 'prior'"),
    ],
)
def test_what_only_a_newer_release_knows_is_refused_with_its_version(
    writer: Config, words: str, changes: Config, what: str
) -> None:
    config, arrays = to_arrays(make())

    with pytest.raises(InvalidStateError, match=f"the model's {what}.*{words}"):
        from_arrays(config | changes | writer, arrays, CPU)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "scvi"}, "not the contents of a centroid-encoder model"),
        ({"format": None}, "not the contents of a centroid-encoder model"),
        ({"version": 2}, "version 2 is not supported.*Update centroid-encoder"),
        ({"architecture": None}, "damaged"),
        ({"clip": -3.0}, "clip must be a positive number"),
        ({"clip": "10"}, "clip must be a positive number"),
        ({"calibration": None}, "damaged"),
        ({"calibration": {"temperature": 0.0}}, "temperature must be a positive number"),
    ],
)
def test_a_config_that_is_not_ours_is_refused(changes: Config, words: str) -> None:
    config, arrays = to_arrays(make())

    with pytest.raises(InvalidStateError, match=words):
        from_arrays(config | changes, arrays, CPU)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "null", "[" * 100_000, None],
    ids=["empty", "open", "list", "null", "deep", "None"],
)
def test_a_config_that_is_no_json_object_is_refused(text: Any) -> None:
    with pytest.raises(InvalidStateError, match="config is not"):
        parse_config(text)


# Damaged and foreign files


@pytest.mark.parametrize(
    "content",
    [
        b"",
        np.random.default_rng(0).bytes(1000),
        pickle.dumps({"centroid-encoder": {}}),
        b"\x89HDF\r\n\x1a\n" + bytes(200),
        struct.pack("<Q", 2**63),
    ],
    ids=["empty", "random", "pickle", "HDF5", "long"],
)
def test_a_file_that_is_no_model_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "strange.safetensors"
    path.write_bytes(content)

    with pytest.raises(InvalidStateError, match=r"strange\.safetensors is not a readable"):
        load(path)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    save(path, *to_arrays(make()))
    content = path.read_bytes()

    for n in [*range(0, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:n])
        with pytest.raises(InvalidStateError, match="is not a readable"):
            load(path)


def test_somebody_elses_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    save_file({"weight": np.zeros((3, 3), np.float32)}, path, metadata={"format": "pt"})
    with pytest.raises(InvalidStateError, match="was not written by centroid-encoder"):
        load(path)

    save_file({"weight": np.zeros((3, 3), np.float32)}, path)
    with pytest.raises(InvalidStateError, match="was not written by centroid-encoder"):
        load(path)

    save_file({"weight": np.zeros(3)}, path, metadata={"centroid-encoder": "{" * 100_000})
    with pytest.raises(InvalidStateError, match="not valid JSON"):
        load(path)


def test_a_missing_file_is_python_s_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.safetensors")


# Saving


def test_saving_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    save(path, *to_arrays(make()))

    save(str(path), *to_arrays(make("full")))

    assert from_arrays(*load(path), CPU).architecture.output == "full"
    assert os.listdir(tmp_path) == ["map.safetensors"]


@pytest.mark.parametrize("error", [OSError("no space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write", "replace", "serialize", "json"])
def test_an_error_while_saving_leaves_the_old_file_and_no_litter(
    error: BaseException, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "map.safetensors"
    save(path, *to_arrays(make()))
    before = path.read_bytes()

    def fail(*args: Any, **kwargs: Any) -> None:
        if step == "write":
            with open(args[0], "wb") as file:
                file.write(b"half a fi")
        raise error

    target, name = {
        "write": (Path, "write_bytes"),
        "serialize": (saved, "serialize"),
        "replace": (saved.os, "replace"),
        "json": (saved.json, "dumps"),
    }[step]
    config, arrays = to_arrays(make("full"))
    with monkeypatch.context() as patch:
        patch.setattr(target, name, fail)
        with pytest.raises(type(error)):
            save(path, config, arrays)

    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["map.safetensors"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_a_saved_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    # Not those of a temporary file: colleagues want to read it.
    (tmp_path / "plain").touch()
    save(tmp_path / "map.safetensors", *to_arrays(make()))

    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "nowhere" / "map.safetensors", *to_arrays(make()))


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match="file"):
        save(tmp_path / "file" / "map.safetensors", *to_arrays(make()))


@pytest.mark.skipif(
    os.name == "nt" or (hasattr(os, "geteuid") and os.geteuid() == 0),
    reason="root may write everywhere, and Windows has other permissions",
)
def test_an_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            save(tmp_path / "map.safetensors", *to_arrays(make()))
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_in_place_of_the_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    path.mkdir()

    with pytest.raises(OSError, match="map"):
        save(path, *to_arrays(make()))

    assert os.listdir(tmp_path) == ["map.safetensors"]


class TestNovelty:
    """The part of a map that is not always there."""

    @pytest.fixture
    def parts(self) -> tuple[Config, Arrays]:
        fitted, X = make(), data(40)
        codes = np.arange(40) % N_CLASSES
        fitted.novelty, _ = Novelty.fit(X, np.arange(40), codes, fitted.standardizer)
        return to_arrays(fitted)

    def test_comes_back_as_it_was(self, parts: tuple[Config, Arrays], tmp_path: Path) -> None:
        save(tmp_path / "map.safetensors", *parts)
        back = from_arrays(*load(tmp_path / "map.safetensors"), CPU)
        assert back.novelty is not None
        for name, array in back.novelty.to_arrays().items():
            assert np.array_equal(array, parts[1][f"novelty_{name}"])

    @pytest.mark.parametrize(
        ("name", "change", "words"),
        [
            ("axes", lambda a: a[:-1], "has shape"),
            ("codes", lambda a: a[:-1], "has shape"),
            ("reference", lambda a: a * np.nan, "not finite"),
            ("offset", lambda a: a[:1], "has shape"),
            ("reference", None, "is missing"),
        ],
    )
    def test_arrays_that_do_not_fit(
        self, parts: tuple[Config, Arrays], name: str, change: Callable | None, words: str
    ) -> None:
        config, arrays = parts
        if change is None:
            del arrays[f"novelty_{name}"]
        else:
            arrays[f"novelty_{name}"] = change(arrays[f"novelty_{name}"])
        with pytest.raises(InvalidStateError, match=words):
            from_arrays(config, arrays, CPU)


class TestEstimator:
    """Parameters, labels and history beside the map."""

    def fitted(self, labels: Any, **params: Any) -> ce.CentroidEncoder:
        model = ce.CentroidEncoder(hidden=(2,), max_epochs=1, device="cpu", **params)
        return model.fit(np.arange(20.0)[:, None], labels[np.arange(20) % 2])

    @pytest.mark.parametrize(
        "labels",
        [
            np.array(["a", "b"]),
            np.array(["a", "b"], dtype=object),
            np.array([np.str_("a"), np.str_("b")], dtype=object),
            np.array([3, -1]),
            np.array([2, 1], dtype=np.uint8),
            np.array([7, -1], dtype=np.float32),
            np.array([False, True]),
        ],
        ids=lambda labels: f"{labels.dtype} {type(labels[0]).__name__}",
    )
    def test_labels_and_history_come_back(self, labels: Any, tmp_path: Path) -> None:
        model = self.fitted(labels, dropout=Fraction(1, 4))
        model.save(tmp_path / "map.safetensors")
        again = ce.load(tmp_path / "map.safetensors", device="cpu")
        assert again.classes_.dtype == model.classes_.dtype
        assert again.classes_.tolist() == model.classes_.tolist()
        assert again.dropout == 0.25
        assert again.history_["loss"] == model.history_["loss"]

    @pytest.mark.parametrize(
        "labels",
        [
            np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[ns]"),
            np.array([1, 2], dtype=np.longdouble),
            np.array([b"a", b"b"]),
        ],
        ids=["datetime64", "longdouble", "bytes"],
    )
    def test_labels_that_cannot_be_saved_are_refused_before_training(self, labels: Any) -> None:
        # scikit-learn itself refuses some of them.
        with pytest.raises((ValueError, TypeError), match=r"strings|label type|bytes"):
            self.fitted(labels)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"params": {"magic": 1}}, "parameter 'magic'.*written by .*Update centroid-encoder"),
            ({"params": {"activation": "eval"}}, "activation must be one of"),
            ({"params": None}, "damaged"),
            ({"classes": ["a"]}, "labels"),
            ({"classes_dtype": "<i8"}, "damaged"),
            ({"classes": [1, 2], "classes_dtype": "<M8[ns]"}, "labels"),
            ({"feature_names": ["a", "b"]}, "names"),
            ({"history": {}}, "'stage' is missing"),
        ],
    )
    def test_a_description_that_does_not_fit_is_refused(self, changes: Config, words: str) -> None:
        config, arrays = self.fitted(np.array(["a", "b"])).to_state()
        config = config | {"estimator": config["estimator"] | changes}
        with pytest.raises(InvalidStateError, match=words):
            ce.CentroidEncoder.from_state(config, arrays)


def test_a_folder_is_no_map(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="a folder, not a file"):
        saved.load(tmp_path)
