from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import centroid_encoder as ce
from centroid_encoder.core import inputs, saved
from centroid_encoder.core.saved import InvalidStateError, from_arrays, load, save

CPU = torch.device("cpu")
STRINGS = np.array(["a", "b", "c"])
MAPS: dict[str, dict[str, Any]] = {
    "voronoi": {},
    "one network": {"n_networks": 1, "n_components": 1, "scale": "feature"},
    "axes": {"hidden": (), "n_components": 3},
    "bottleneck": {"placement": "bottleneck", "hidden": (6, 5), "activation": "tanh"},
    "full": {"placement": "bottleneck", "output": "full", "clip": None, "max_features": 4},
}
State = tuple[dict[str, Any], dict[str, Any]]


def fitted(labels: Any = STRINGS, n_features: int = 7, **params: Any) -> ce.CentroidEncoder:
    """A map of three classes; novelty is learned."""
    codes = np.arange(60) % 3
    X = np.random.default_rng(0).normal(size=(60, n_features)) + 2 * np.eye(3, n_features)[codes]
    defaults = {"hidden": (5,), "max_epochs": 2, "random_state": 0, "device": "cpu"}
    model = ce.CentroidEncoder(**(defaults | params)).fit(X, labels[codes])
    return model.fit_novelty(X, labels[codes])


@pytest.fixture(scope="module")
def models() -> dict[str, ce.CentroidEncoder]:
    return {
        name: fitted(n_features=120 if name == "axes" else 7, **params)
        for name, params in MAPS.items()
    }


@pytest.fixture
def state(models: dict[str, ce.CentroidEncoder]) -> Callable[[str], State]:
    """Factory of a copy of a map's config and arrays."""

    def copied(name: str) -> State:
        config, arrays = models[name].to_state()
        return json.loads(json.dumps(config, allow_nan=False)), arrays

    return copied


def results(model: ce.CentroidEncoder) -> list[np.ndarray]:
    X = 2 * np.random.default_rng(1).normal(size=(50, model.n_features_in_))
    Z = model.transform(X)
    found = [Z, model.inverse_transform(Z), model.decoder_distances(Z), model.predict_proba(X)]
    return [*found, model.novelty(X), model.predict(X), model.centroids_, model.centers_]


def assert_same(one: ce.CentroidEncoder, other: ce.CentroidEncoder) -> None:
    for a, b in zip(results(one), results(other), strict=True):
        assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


@pytest.mark.parametrize("name", MAPS)
def test_a_stored_map_is_read_with_the_same_bits(
    name: str, models: dict[str, ce.CentroidEncoder], state: Any, tmp_path: Path
) -> None:
    models[name].save(tmp_path / "map.safetensors")
    back = ce.load(tmp_path / "map.safetensors", device="cpu")
    assert back.get_params() == models[name].get_params()
    assert back.history_["loss"] == models[name].history_["loss"]
    assert back.fitted_map.network.shape == models[name].fitted_map.network.shape
    config, arrays = state(name)
    for convert in (
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        np.asfortranarray,
        lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
    ):
        converted = {key: convert(array) for key, array in arrays.items()}
        assert_same(ce.CentroidEncoder.from_state(config, converted, device="cpu"), models[name])
    for array in arrays.values():
        array += 1  # the arrays are copies
    assert_same(back, models[name])
    assert all(key.replace("_", "").isalnum() for key in arrays)


@pytest.mark.parametrize("dtype", ["datetime64[ns]", np.longdouble, "S1"])
def test_labels_that_cannot_be_saved_are_refused_before_training(dtype: Any) -> None:
    # scikit-learn itself refuses some of them.
    with pytest.raises((ValueError, TypeError), match=r"strings|label type|bytes"):
        fitted(np.array([1, 2, 3]).astype(dtype))


@pytest.mark.parametrize("name", ["voronoi", "bottleneck"])
def test_any_damaged_array_is_refused(name: str, state: Any) -> None:
    config, arrays = state(name)
    for key, array in arrays.items():
        nan = np.array(array, dtype=float)
        nan.flat[-1] = np.nan
        longer = np.concatenate([array, array[:1]])
        for value in (None, nan, longer, array[None], np.float64(0), array.astype("U5")):
            damaged = arrays | {key: value}
            if value is None:
                del damaged[key]
            with pytest.raises(InvalidStateError):
                from_arrays(config, damaged, CPU)
    with pytest.raises(InvalidStateError, match="'scale' must be positive"):
        from_arrays(config, arrays | {"scale": np.zeros(7)}, CPU)
    with pytest.raises(InvalidStateError, match="shape"):
        from_arrays(config, arrays | {"weight": np.zeros(7)}, CPU)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        *(("network", {"hidden": value}) for value in ([6, 6], [2**31] * 2, "abc", [-1], [2.5])),
        ("network", {"activation": "eval"}),
        ("network", {"device": "cuda"}),
        ("network", {"n_networks": 10**9}),
        *(("calibration", {"temperature": value}) for value in ("x", float("nan"), 0.0)),
        *(("", {"clip": value}) for value in (-3.0, "ten")),
        *(("", {"network": value}) for value in (None, [])),
        *(("", {"estimator": value}) for value in (None, {})),
        *(("estimator", {"params": value}) for value in (None, {"magic": 1}, {"class_weight": {}})),
        *(("estimator", {"classes": value}) for value in (["a"], ["a", 1, "c"])),
        *(("estimator", {"classes_dtype": value}) for value in ("<i8", "no")),
        ("estimator", {"feature_names": ["a"]}),
        ("estimator", {"history": {"stage": 1}}),
    ],
)
def test_a_damaged_config_is_refused(part: str, changes: dict[str, Any], state: Any) -> None:
    config, arrays = state("bottleneck")
    (config[part] if part else config).update(changes)
    with pytest.raises(InvalidStateError):
        ce.CentroidEncoder.from_state(config, arrays, device="cpu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "scvi"}, "not the contents of a centroid-encoder model"),
        ({"version": 2}, "version 2 is not supported.*Update centroid-encoder"),
        ({"written_by": "99.0", "calibration": {"prior": 1}}, "a newer release.*the writer 99.0"),
    ],
)
def test_the_error_says_that_a_file_is_foreign_or_newer(
    changes: Any, words: str, state: Any
) -> None:
    config, arrays = state("bottleneck")
    with pytest.raises(InvalidStateError, match=words):
        from_arrays(config | changes, arrays, CPU)


def test_a_parameter_that_an_older_file_lacks_has_its_default(state: Any, models: Any) -> None:
    config, arrays = state("bottleneck")
    del config["estimator"]["params"]["compactness"], config["estimator"]["params"]["hidden"]
    old = ce.CentroidEncoder.from_state(config, arrays, device="cpu")
    assert old.get_params() == models["bottleneck"].get_params() | {"hidden": "auto"}
    assert_same(old, models["bottleneck"])


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000, None])
def test_a_config_that_is_no_json_object_is_refused(text: Any) -> None:
    with pytest.raises(InvalidStateError, match="config is not"):
        saved.parse_config(text)


def test_truncated_and_foreign_files_are_refused(state: Any, tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    save(path, *state("bottleneck"))
    content = path.read_bytes()
    strange = [np.random.default_rng(0).bytes(1000), pickle.dumps({}), b"\x89HDF" + bytes(200)]
    for damaged in [content[:n] for n in [*range(0, len(content), 97), len(content) - 1]] + strange:
        path.write_bytes(damaged)
        with pytest.raises(InvalidStateError, match=r"map\.safetensors is not a readable"):
            load(path)
    for metadata in (None, {"format": "pt"}, {"centroid-encoder": "{" * 100_000}):
        save_file({"weight": np.zeros(3)}, path, metadata=metadata)
        with pytest.raises(InvalidStateError, match=r"not written by|not valid JSON"):
            ce.load(path)
    with pytest.raises(IsADirectoryError, match="a folder, not a file"):
        ce.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        ce.load(tmp_path / "nothing.safetensors")


def test_a_map_has_the_ramps_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later release may learn another number of ramps."""
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "N_RAMPS", 3)
        model = fitted()
        expected = results(model)
    config, arrays = model.to_state()
    assert len(arrays["knots"]) == 4
    for found, wanted in zip(
        results(ce.CentroidEncoder.from_state(config, arrays)), expected, strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    arrays["knots"] = arrays["knots"][::3]
    with pytest.raises(InvalidStateError, match="inputs"):
        ce.CentroidEncoder.from_state(config, arrays)
