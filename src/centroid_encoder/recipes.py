"""What to train with: the default by the size of the problem, other settings by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from centroid_encoder.core.train import MIN_NORMALIZED
from centroid_encoder.errors import InputError

SAMPLES_SEEN = 300_000
SAMPLES_SEEN_OF_MANY = 1_200_000
"""Training samples that ``max_epochs="auto"`` wants the network to see, of few and of many."""
SAMPLES_GLANCED_AT, MOST_GLANCES = 120_000, 8
"""Samples seen with ``max_epochs="few"``, about, and its largest number of epochs."""
MANY_SAMPLES = 4_000
"""Training samples from which ``batch_norm="auto"`` normalises: fewer are then fitted too well."""
DECAYED_SAMPLES = 20_000
"""Training samples from which ``weight_decay="auto"`` falls."""
FEW_SAMPLES = 25
"""``dropout="auto"`` is at least this over the number of training samples, as far as 0.15."""
FEW_CLASSES = 15
"""More classes than these are pre-trained by default, and trained twice as long."""
HIDDEN = (500, 250, 125)
"""Widths of layers with ``hidden="auto"``."""
HIDDEN_OF_FEW, HIDDEN_OF_AXES = (300, 200, 100), (250, 150, 75)
"""The same without a bottleneck for few samples, and for few samples of more features than
`FEW_FEATURES`: wider layers are no more accurate."""
NETWORKS_BY_SAMPLES = 5_000, 50_000
"""Few training samples, up to which ``n_networks="auto"`` is 4, and those up to which it is 3."""
FEW_FEATURES = 100
"""Networks without a bottleneck need half of the epochs for more features than these."""
STEPS_PER_EPOCH, STEPS_WITHOUT_SQUEEZE = 32, 16
"""Optimiser steps of an epoch with ``batch_size="auto"``, with a bottleneck and without: half as
many steps with larger batches are as accurate there in two thirds of the time."""


def resolved(
    params: Mapping[str, Any], n_train: int, n_inputs: int, n_classes: int
) -> dict[str, Any]:
    """Return the parameters of an estimator with numbers in place of ``"auto"``, and a ``warmup``.

    `n_train`, `n_inputs` and `n_classes` are the numbers of training samples, of features that the
    network receives, and of classes. Batches too small for batch normalisation are an InputError.
    """
    settings = dict(params)

    def auto(name: str, value: Any) -> None:
        if isinstance(params[name], str) and params[name] == "auto":
            settings[name] = value

    placed = params["placement"] != "bottleneck"
    if placed:
        settings["compactness"] = 0.0
        few, many = NETWORKS_BY_SAMPLES
        auto("n_networks", 4 if n_train <= few else 3 if n_train <= many else 2)
        settings["batch_norm"] = False
    else:
        settings["n_networks"] = 1
    of_few = HIDDEN_OF_FEW if n_inputs <= FEW_FEATURES else HIDDEN_OF_AXES
    auto("hidden", of_few if placed and n_train <= NETWORKS_BY_SAMPLES[0] else HIDDEN)
    too_few = params["batch_size"] != "auto" and params["batch_size"] < MIN_NORMALIZED
    auto("batch_norm", n_train >= MANY_SAMPLES and not too_few and not placed)
    batch_norm = settings["batch_norm"] = bool(settings["batch_norm"])
    if batch_norm and too_few:
        text = f"batch_norm needs a batch_size of at least {MIN_NORMALIZED}; got "
        raise InputError(f"{text}{params['batch_size']}", "batch_norm")
    largest = 512 if batch_norm else 256
    n_steps = STEPS_WITHOUT_SQUEEZE if placed else STEPS_PER_EPOCH
    auto("batch_size", min(max(n_train // n_steps, 16), largest))
    many_classes = n_classes > FEW_CLASSES
    most = 30 if placed and n_inputs > FEW_FEATURES else 60
    # Without the squeeze, many classes are no harder than few.
    n_epochs = min(max(SAMPLES_SEEN // n_train, 20), most) * (
        2 if many_classes and not placed else 1
    )
    auto("max_epochs", min(n_epochs, max(5, SAMPLES_SEEN_OF_MANY // n_train)))
    if settings["max_epochs"] == "few":
        settings["max_epochs"] = min(max(SAMPLES_GLANCED_AT // n_train, 2), MOST_GLANCES)
    auto("pretrain_epochs", settings["max_epochs"] // 2 if many_classes and not placed else 0)
    auto("dropout", input_dropout(n_inputs, n_train))
    auto("weight_decay", min(1.0, n_inputs / (2 * n_classes), DECAYED_SAMPLES / n_train))
    auto("learning_rate", 7e-3 if placed else 6e-3 if batch_norm else 3e-3)
    # Normalised layers bear a fast start, and the time is worth more at the end.
    settings["warmup"] = 0.1 if batch_norm else 0.3
    return settings


def input_dropout(n_inputs: int, n_train: int) -> float:
    """Share of input values that ``dropout="auto"`` sets to zero in training."""
    return max(0.02, 0.5 - 50 / n_inputs, min(0.15, FEW_SAMPLES / n_train))


# Common to the authors' published program: z-scores without clip, input-space output, Adam with
# amsgrad and ½·2e-5·Σ‖θ‖² on the loss, a constant learning rate, layer-freeze pre-training with 25
# epochs a stage, no early stopping, no class weights, nothing at the bottleneck.
_PROGRAM: dict[str, Any] = {
    "placement": "bottleneck",
    "scale": "feature",
    "clip": None,
    "batch_norm": False,
    "output": "full",
    "compactness": 0.0,
    "optimizer": "amsgrad",
    "weight_decay": 2e-5,
    "schedule": "constant",
    "dropout": 0.0,
    "pretrain_epochs": 25,
    "validation_fraction": 0.0,
    "patience": None,
    "merge_epochs": 0,
    "class_weight": None,
}

# The paper's procedure where no program is published: 10 % of the training samples validate, stop
# when their error no longer falls, merge them back and go on. The numbers of epochs here are our
# own choice, and so is ReLU for Iris and Sonar; what the program fixes for MNIST and USPS is taken
# over.
_PAPER: dict[str, Any] = _PROGRAM | {
    "validation_fraction": 0.1,
    "max_epochs": 300,
    "patience": 30,
    "merge_epochs": 25,
    "activation": "relu",
}

_SMALL = _PAPER | {"hidden": (250, 150), "learning_rate": 0.01, "batch_size": 50}

RECIPES: dict[str, dict[str, Any]] = {
    # One small network in few steps, on the features that matter most.
    "draft": {
        "n_networks": 1,
        "hidden": (250, 100, 50),
        "max_features": 400,
        "max_epochs": "few",
        "learning_rate": 0.01,
    },
    "paper-mnist": _PROGRAM
    | {
        "hidden": (1000, 500, 125),
        "activation": "tanh",
        "learning_rate": 8e-4,
        "batch_size": 512,
        "max_epochs": 200,
    },
    "paper-usps": _PROGRAM
    | {
        "hidden": (2000, 1000, 500),
        "activation": "relu",
        "learning_rate": 1e-3,
        "batch_size": 64,
        "max_epochs": 50,
    },
    "paper-letter": _SMALL,
    "paper-landsat": _SMALL,
    "paper-phoneme": _SMALL,
    "paper-iris": _PAPER | {"hidden": (100,), "learning_rate": 0.001, "batch_size": 16},
    "paper-sonar": _PAPER | {"hidden": (500, 250), "learning_rate": 0.001, "batch_size": 16},
}
"""Parameters of `CentroidEncoder` for a first look, and for each experiment of the paper."""
