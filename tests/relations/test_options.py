"""Each parameter of the estimator has an effect, or is an error."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.datasets import load_wine

import centroid_encoder as ce

# `patience` depends on the data.
VALUES = {
    "n_components": [3],
    "placement": ["bottleneck"],
    "n_networks": [3],
    "hidden": [(8,), ()],
    "activation": ["tanh"],
    "batch_norm": [True],
    "output": ["full"],
    "compactness": [1.0],
    "scale": ["global"],
    "max_features": [5],
    "max_samples": [40],
    "clip": [1.0],
    "dropout": [0.4],
    "class_weight": [None],
    "pretrain_epochs": [2],
    "max_epochs": [3, "few"],
    "validation_fraction": [0.3],
    "merge_epochs": [2],
    "batch_size": [7],
    "optimizer": ["amsgrad"],
    "learning_rate": [0.05],
    "weight_decay": [0.0, 0.3],
    "schedule": ["constant"],
}
CONTEXTS = [{}, {"placement": "bottleneck"}]


@pytest.fixture(scope="module")
def fitted():
    """Return the bits of a map with some parameters, or the message of an error."""
    X, y = load_wine(return_X_y=True)
    X, y = X[::3].astype(np.float32), y[::3]
    found: dict[str, object] = {}

    def fit(**params) -> object:
        name = repr(sorted(params.items()))
        if name not in found:
            params = {"hidden": (12,), "max_epochs": 4, "random_state": 0} | params
            try:
                model = ce.CentroidEncoder(**params).fit(X, y)
            except ValueError as error:
                found[name] = str(error)
            else:
                found[name] = model.transform(X).tobytes() + model.predict_proba(X).tobytes()
        return found[name]

    return fit


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS, ids=["voronoi", "bottleneck"])
@pytest.mark.parametrize(
    "other",
    [pytest.param(name, marks=() if name == "scale" else pytest.mark.slow) for name in VALUES],
)
def test_each_parameter_has_an_effect_or_is_an_error(other, context, fitted) -> None:
    for other_value in VALUES[other]:
        given = context | {other: other_value}
        without = fitted(**given)
        if isinstance(without, str):
            continue
        for name, values in VALUES.items():
            for value in values:
                if name in given:
                    continue
                found = fitted(**given, **{name: value})
                assert found != without, f"{name}={value!r} changes nothing given {given}"
                if isinstance(found, str):
                    assert re.search(rf"\b{name}\b", found), found


@pytest.mark.parametrize("context", CONTEXTS, ids=["voronoi", "bottleneck"])
def test_defaults_are_no_errors(context, fitted) -> None:
    defaults = ce.CentroidEncoder().get_params()
    for name, value in defaults.items():
        if name not in ("hidden", "max_epochs", "random_state", "device", "patience", *context):
            assert not isinstance(fitted(**context, **{name: value}), str)
