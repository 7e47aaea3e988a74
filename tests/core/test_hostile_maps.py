"""Maps from strangers: whatever is in the file loads to something harmless, or says what is wrong.

``python -m tests.core.test_hostile_maps N SEED PLACEMENT FOLDER`` loads N mutants of a small map.
"""

from __future__ import annotations

import copy
import json
import os
import resource
import struct
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from safetensors.numpy import save_file

import centroid_encoder as ce
from centroid_encoder.core import saved
from centroid_encoder.core.saved import InvalidStateError
from tests.cases import cases

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit of memory")
Config, Arrays = dict[str, Any], dict[str, Any]
MEMORY = 2**28
"""Bytes beyond those of the libraries that loading a mutant may take; the file has 6,000."""


def small_map(placement: str = "bottleneck") -> tuple[Config, Arrays]:
    rng = np.random.default_rng(0)
    y = np.array(["b", "c", "a"])[np.arange(60) % 3]
    X = 3 * rng.normal(size=(3, 5))[np.arange(60) % 3] + rng.normal(size=(60, 5))
    model = ce.CentroidEncoder(
        placement=placement, n_networks=3 if placement == "voronoi" else 1, hidden=(4,),
        max_epochs=2, random_state=0,
        device="cpu", class_weight={"a": 2.0},
    )  # fmt: skip
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    return model.fit(frame, y).fit_novelty(frame, y).to_state()


def write(path: Path, config: Config, arrays: Arrays) -> None:
    text = json.dumps(config)
    save_file(
        {name: np.ascontiguousarray(a) for name, a in arrays.items()}, path, {saved.FORMAT: text}
    )


# One thing at a time


def architecture(**changes: Any) -> Callable[[Config, Arrays], None]:
    return lambda config, arrays: config["architecture"].update(changes)


def described(**changes: Any) -> Callable[[Config, Arrays], None]:
    return lambda config, arrays: config["estimator"].update(changes)


def params(**changes: Any) -> Callable[[Config, Arrays], None]:
    return lambda config, arrays: config["estimator"]["params"].update(changes)


def weight(name: str, value: float) -> Callable[[Config, Arrays], None]:
    return lambda config, arrays: arrays[name].flat.__setitem__(0, value)


def many_classes(config: Config, arrays: Arrays) -> None:
    """A few hundred thousand classes and features, whose product no file holds."""
    n = 200_000
    config["architecture"].update(n_features=n, n_inputs=1, n_outputs=1)
    for name in ("mean", "scale", "weight"):
        arrays[name] = np.zeros(n) + (name == "scale")
    arrays["weight"][0] = 1
    arrays.update(
        targets=np.zeros((n, 1), np.float32), centers=np.zeros((n, 2)), origin=np.zeros(1),
        basis=np.ones((1, 1)), encoder_0_weight=np.zeros((4, 1), np.float32),
        decoder_1_weight=np.zeros((1, 4), np.float32), decoder_1_bias=np.zeros(1, np.float32),
    )  # fmt: skip
    for name in [name for name in arrays if name.startswith("novelty_")]:
        del arrays[name]


HOSTILE: dict[str, tuple[Callable[[Config, Arrays], None], str]] = {
    "long labels": (described(classes_dtype="<U500000000"), "larger than any names"),
    "short labels": (described(classes=["ab", "ac", "b"], classes_dtype="<U1"), "too small"),
    "structured labels": (described(classes_dtype="i4,i4"), "one label of one type"),
    "long doubles": (described(classes=[1.0, 2.0, 3.0], classes_dtype="<f16"), "one label of one"),
    "dates": (described(classes_dtype="<M8[ns]"), "one label of one type"),
    "equal classes": (described(classes=["a", "b", "b"]), "sorted, and different"),
    "unsorted classes": (described(classes=["b", "a", "c"]), "sorted, and different"),
    "missing class": (
        described(classes=[1.0, 2.0, float("nan")], classes_dtype="<f8"),
        "sorted, and different",
    ),
    "classes of two types": (described(classes=["a", 1, "c"], classes_dtype="|O"), "of one type"),
    "numbers of another size": (described(classes=[1, 2, 999], classes_dtype="|i1"), "classes"),
    "a million layers": (architecture(hidden=[1] * 10**6), "wider or deeper"),
    "a wide layer": (architecture(hidden=[10**9]), "wider or deeper"),
    "a huge number": (architecture(n_components=10**300), "wider or deeper"),
    "classes times features": (many_classes, "more classes and features"),
    "no activation": (params(activation=[[]]), "activation must be one of"),
    "no width": (params(hidden=[0]), "hidden[0] must be at least 1"),
    "no number": (params(dropout="half"), "dropout must be a number"),
    "too large a number": (params(learning_rate=10**400), "learning_rate must be above 0"),
    "no class weights": (params(class_weight={"weights": [["a", "b"]]}), "class_weight"),
    "no device": (params(device=3), "device must be a name"),
    "no seed": (params(random_state=-1), "random_state must be an int"),
    "weights beyond reason": (weight("encoder_0_weight", 1e30), "beyond ±1e+12"),
    "weights that make no numbers": (
        lambda config, arrays: arrays.update(
            {n: np.full_like(a, 1e12) for n, a in arrays.items() if n.startswith(("enc", "dec"))}
        ),
        "no finite numbers",
    ),
    "history of words": (
        lambda config, arrays: config["estimator"]["history"].update(loss=["a", "b"]),
        "'history' must hold numbers",
    ),
}


def described_as(**told: float) -> Callable[[Config, Arrays], None]:
    return lambda config, arrays: config.update(told)


def moved(by: float) -> Callable[[Config, Arrays], None]:
    return lambda config, arrays: arrays.update(centers=arrays["centers"] * by)


PLACED: dict[str, tuple[Callable[[Config, Arrays], None], str]] = {
    "fewer networks": (architecture(n_networks=2), "'axes' has shape"),
    "one network": (architecture(n_networks=1), "'votes' does not belong"),
    "inputs instead of axes": (architecture(n_axes=0), "'axes' does not belong"),
    "more axes than inputs": (architecture(n_axes=10**6), "cannot have 1000000 axes"),
    "true axes": (architecture(n_axes=True), "cannot have True axes"),
    "no network": (architecture(n_networks=0), "cannot be of 0 networks"),
    "true networks": (architecture(n_networks=True), "cannot be of True networks"),
    "long axes": (weight("placement_axes", 1e30), "must be of length 1"),
    "the longest axes": (weight("placement_axes", 3e38), "must be of length 1"),
    "no axes": (weight("placement_axes", float("nan")), "not finite"),
    "not sharp": (described_as(sharpness=0), "sharpness must be a positive number"),
    "less than not sharp": (described_as(sharpness=-1), "sharpness must be a positive number"),
    "sharp as nothing": (described_as(sharpness=np.nan), "sharpness must be a positive number"),
    "flat": (described_as(steepness=0), "steepness must be a positive number"),
    "far positions": (moved(1e40), "no finite numbers"),
    "positions in one place": (moved(1e-200), "no finite numbers"),
}


@pytest.fixture(scope="module")
def state() -> tuple[Config, Arrays]:
    return small_map()


@pytest.fixture(scope="module")
def placed_state() -> tuple[Config, Arrays]:
    config, arrays = small_map("voronoi")
    # It shall not be the checksum that finds what is wrong.
    del config["checksum"]
    return config, arrays


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("sealed", [False, True])
def test_is_refused_with_a_sentence(
    name: str, sealed: bool, state: tuple[Config, Arrays], tmp_path: Path
) -> None:
    config, arrays = copy.deepcopy(state)
    change, words = HOSTILE[name]
    change(config, arrays)
    config = saved.sealed(config, arrays) if sealed else config
    write(tmp_path / "map.safetensors", config, arrays)

    with pytest.raises(InvalidStateError) as caught:
        ce.load(tmp_path / "map.safetensors")

    assert words in str(caught.value)
    assert len(str(caught.value)) <= 500


@pytest.mark.parametrize("name", PLACED)
def test_of_a_placed_map_is_refused_with_a_sentence(
    name: str, placed_state: tuple[Config, Arrays]
) -> None:
    config, arrays = copy.deepcopy(placed_state)
    change, words = PLACED[name]
    change(config, arrays)
    with pytest.raises(InvalidStateError, match=words):
        ce.CentroidEncoder.from_state(config, arrays, device="cpu")


def test_every_flipped_bit_is_found(state: tuple[Config, Arrays], tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    write(path, *state)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    start = 8 + struct.unpack("<Q", content[:8])[0]

    for position in rng.integers(start, len(content), 300):
        broken = bytearray(content)
        broken[position] ^= 1 << rng.integers(8)
        path.write_bytes(broken)
        with pytest.raises(InvalidStateError):
            ce.load(path)


def test_what_is_changed_in_the_description_is_found(state: tuple[Config, Arrays]) -> None:
    config, arrays = copy.deepcopy(state)
    config["estimator"]["classes"] = ["a", "b", "d"]
    with pytest.raises(InvalidStateError, match=r"the model is damaged.*Take another copy"):
        ce.CentroidEncoder.from_state(config, arrays)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "map.safetensors")
    with pytest.raises(OSError, match="a device or a pipe, not a file"):
        ce.load(tmp_path / "map.safetensors")


# Labels and parameters of a training


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
def test_labels_come_back(labels: Any, tmp_path: Path) -> None:
    X = np.arange(20.0)[:, None]
    model = ce.CentroidEncoder(hidden=(2,), max_epochs=1, device="cpu", dropout=Fraction(1, 4))
    model.fit(X, labels[np.arange(20) % 2]).save(tmp_path / "map.safetensors")
    again = ce.load(tmp_path / "map.safetensors", device="cpu")
    assert again.classes_.dtype == model.classes_.dtype
    assert_array_equal(again.classes_, model.classes_)
    assert again.dropout == 0.25


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[ns]"),
        np.array([1, 2], dtype=np.longdouble),
        np.array([b"a", b"b"]),
        np.array([pd.Timestamp(0), pd.Timestamp(1)], dtype=object),
        pytest.param(np.array(["a" * 2**22, "b"]), marks=pytest.mark.slow),
    ],
    ids=["datetime64", "longdouble", "bytes", "Timestamp", "long"],
)
def test_labels_that_cannot_be_saved_are_refused_before_training(labels: Any) -> None:
    X = np.arange(20.0)[:, None]
    model = ce.CentroidEncoder(hidden=(2,), max_epochs=1, device="cpu")
    reports = model.fit_reports(X, labels[np.arange(20) % 2])
    # Some of them scikit-learn refuses itself.
    with pytest.raises((ValueError, TypeError), match=r"strings|too long|label type|bytes"):
        next(reports)


# Mutants

NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 3, 10**30, 10**400, 1e308, -1e308, float("nan"), float("inf"),
    "", "a", "auto", "<U500000000", "|O", "x" * 5000, [], {}, [[]], [1] * 5000, ["a", "b", "c"],
    {"weights": [[[], 1]]}, [None], {"a": {"a": {}}},
]  # fmt: skip
VALUES = [0, -1, 1e30, -1e30, np.nan, np.inf, 1e-300, 0.5, 2**53]


def mutate_json(value: Any, rng: np.random.Generator) -> Any:
    """Change one thing somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = list(value)[rng.integers(len(value))]
        if rng.random() < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if rng.random() < 0.05:
            return value | {f"{key}_": value[key]}
        return value | {key: mutate_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = int(rng.integers(len(value)))
        changed = [mutate_json(value[at], rng)] if rng.random() < 0.7 else []
        return value[:at] + changed * int(rng.integers(1, 3)) + value[at + 1 :]
    if type(value) in (int, float) and abs(value) < 2**60 and rng.random() < 0.4:
        return [value + 1, value - 1, -value, value * 2**20, value / 2**20][rng.integers(5)]
    return NASTY[rng.integers(len(NASTY))]


def mutate_arrays(arrays: Arrays, rng: np.random.Generator) -> None:
    name = sorted(arrays)[rng.integers(len(arrays))]
    other = sorted(arrays)[rng.integers(len(arrays))]
    array = np.array(arrays[name])
    match rng.integers(8):
        case 0:
            del arrays[name]
        case 1:
            arrays[name] = arrays[other]
        case 2:
            arrays[name] = array.reshape(-1)
        case 3:
            arrays[name] = array[: rng.integers(len(array) + 1)] if array.ndim else array
        case 4:
            kinds = [np.float16, np.float32, np.float64, np.int8, np.bool_, np.uint64]
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arrays[name] = array.astype(kinds[rng.integers(len(kinds))])
        case 5:
            arrays["more"] = array
        case 6:
            arrays[name] = np.zeros((0, 10**9), np.float32)
        case _:
            with np.errstate(all="ignore"):
                array.flat[: rng.integers(1, 3)] = VALUES[rng.integers(len(VALUES))]
            arrays[name] = array


def mutate_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(changed) if rng.random() < 0.5 else min(len(changed), 3000)))
        match rng.integers(4):
            case 0:
                changed[at] = rng.integers(256)
            case 1:
                changed[at] ^= 1 << rng.integers(8)
            case 2:
                del changed[at : at + int(rng.integers(1, 50))]
            case _:
                changed[at:at] = rng.bytes(int(rng.integers(1, 50)))
        if not changed:
            break
    return bytes(changed)


def mutant(state: tuple[Config, Arrays], path: Path, rng: np.random.Generator) -> None:
    config, arrays = copy.deepcopy(state)
    if rng.random() < 0.3:
        write(path, config, arrays)
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
        return
    for _ in range(rng.integers(1, 4)):
        if rng.random() < 0.6:
            part = "estimator" if rng.random() < 0.5 else None
            if part and isinstance(config, dict) and part in config:
                config[part] = mutate_json(config[part], rng)
            else:
                config = mutate_json(config, rng)
        elif arrays:
            mutate_arrays(arrays, rng)
    if isinstance(config, dict) and rng.random() < 0.9:
        # Of most, it shall not be the checksum that finds what is wrong.
        config.pop("checksum", None)
    write(path, config, arrays)


def load_mutants(n: int, seed: int, placement: str, folder: Path) -> Counter[str]:
    """Load mutants within a limit of memory; count what came of them."""
    state, rng = small_map(placement), np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(4, 5)), columns=list("vwxyz"))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    found: Counter[str] = Counter()
    path = folder / "mutant.safetensors"
    for i in range(n):
        mutant(state, path, rng)
        try:
            model = ce.load(path, device="cpu")
        except InvalidStateError as error:
            found["refused" if str(error).strip() else "without a word"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"mutant {i} of {seed}") from error
        found["loaded"] += 1
        if model.n_features_in_ == X.shape[1]:
            assert len(model.predict(X.to_numpy())) == len(X)
        model.save(folder / "again.safetensors")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
@pytest.mark.parametrize(("n", "seed"), [(150, 0), (cases(5_000), 1)])
def test_mutants_are_harmless_or_refused(n: int, seed: int, placement: str, tmp_path: Path) -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("the limit of memory is counted from /proc")
    module = [sys.executable, "-W", "ignore", "-m", "tests.core.test_hostile_maps"]
    command = [*module, str(n), str(seed), placement, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert sum(found.values()) == n
    assert set(found) == {"loaded", "refused"}
    assert found["refused"] > n / 2
    assert found["loaded"] > n / 50


if __name__ == "__main__":
    n_mutants, own_seed, of = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print(json.dumps(load_mutants(n_mutants, own_seed, of, Path(sys.argv[4]))))
