"""Maps that earlier versions wrote still load, and say what they said then.

Beside each file in ``tests/data/maps`` stands what its map said of `samples` when it was written.
The files are small: four hidden units, sixty samples of five features.

- ``47a4583``: the first commit of the repository. No weights of features, no calibration.
- ``46b2e80``: calibrated; novelty in one number of components, which has to be learned anew now.
- ``b6e40a7``: the last commit that did not name the version that wrote the file.
- ``0.1.0.dev0``: says who wrote it and for which objective.
- ``1328ceb``: one of the last whose default had a bottleneck; this map is placed in Voronoi cells.

Every release adds one: ``python tests/core/test_old_maps.py VERSION`` with that version installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.base import clone

import centroid_encoder as ce
from centroid_encoder.core import saved

MAPS = Path(__file__).parents[1] / "data" / "maps"


def samples() -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 3
    X = (3 * rng.normal(size=(3, 5))[codes] + rng.normal(size=(60, 5))).round(2)
    return X, np.array(["b", "c", "a"])[codes]


def what_it_says(model: ce.CentroidEncoder, X: NDArray[np.float64]) -> dict[str, NDArray]:
    said = {
        "embedding": model.transform(X),
        "predicted": model.predict(X),
        "distances": model.decoder_distances(model.transform(X)),
        "probabilities": model.predict_proba(X),
    }
    return said | ({"novelty": model.novelty(X)} if model.knows_novelty else {})


@pytest.mark.parametrize("name", sorted(path.stem for path in MAPS.glob("*.safetensors")))
def test_loads_and_says_what_it_said(name: str, tmp_path: Path) -> None:
    X, y = samples()
    model = ce.load(MAPS / f"{name}.safetensors", device="cpu")
    said = what_it_says(model, X)
    with np.load(MAPS / f"{name}.npz") as expected:
        # The first version had no probabilities.
        assert set(expected) <= set(said)
        assert_array_equal(said["predicted"], expected["predicted"])
        # A place at the edge of its last digit steps by 1e-5 on another processor, of which the
        # decoder makes more.
        said["distances"] = model.decoder_distances(expected["embedding"])
        for what in set(expected) - {"predicted"}:
            assert_allclose(said[what], expected[what], atol=1e-5)
    # It may be trained anew, and saved as maps are today.
    clone(model).set_params(max_epochs=1).fit(X, y)
    model.save(tmp_path / "again.safetensors")
    again = ce.load(tmp_path / "again.safetensors", device="cpu")
    assert_array_equal(again.transform(X), model.transform(X))


def test_there_is_one_of_each_kind() -> None:
    assert len(list(MAPS.glob("*.safetensors"))) >= 5


@pytest.mark.parametrize("name", ["47a4583", "46b2e80", "b6e40a7", "0.1.0.dev0", "1328ceb"])
def test_what_has_another_default_now_is_what_it_was(name: str) -> None:
    model = ce.load(MAPS / f"{name}.safetensors", device="cpu")
    assert model.placement == ("voronoi" if name == "1328ceb" else "bottleneck")
    assert model.class_weight is None


@pytest.mark.parametrize("parameter", ["placement", "class_weight"])
def test_what_was_no_choice_yet_has_the_value_of_then(parameter: str) -> None:
    X, y = samples()
    then = {"placement": "bottleneck", "class_weight": None}
    model = ce.CentroidEncoder(**then, hidden=(4,), max_epochs=1, device="cpu").fit(X, y)
    config, arrays = model.to_state()
    params = config["estimator"]["params"]
    without = {name: value for name, value in params.items() if name != parameter}
    config["estimator"] |= {"params": without}
    again = ce.CentroidEncoder.from_state(saved.sealed(config, arrays), arrays, device="cpu")
    assert again.get_params()[parameter] == then[parameter]
    assert ce.CentroidEncoder().get_params()[parameter] != then[parameter]


def write(name: str) -> None:
    """Write a map and what it says, with the version that is installed."""
    X, y = samples()
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=20, random_state=0, device="cpu").fit(X, y)
    model.fit_novelty(X, y).save(MAPS / f"{name}.safetensors")
    np.savez_compressed(MAPS / f"{name}.npz", **what_it_says(model, X))


if __name__ == "__main__":
    write(*sys.argv[1:])
