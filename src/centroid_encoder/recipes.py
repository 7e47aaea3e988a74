"""Named settings of `CentroidEncoder`."""

from __future__ import annotations

from typing import Any

# Settings of the authors' published program: z-scores are not clipped, the output is the input
# space, AMSGrad minimises the loss plus ½·2e-5·Σ‖θ‖² with a constant learning rate, and each stage
# of the layer-freeze pre-training has 25 epochs. There are no early stopping, no class weights and
# no loss at the bottleneck.
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

# The paper's procedure for data sets without a published program: 10 % of the training samples
# validate, the training stops when their error no longer falls, and it continues with these samples
# merged back. The numbers of epochs are our own choice, and so is ReLU for Iris and Sonar. The
# other settings are those of the program for MNIST and USPS.
_PROCEDURE = _PROGRAM | {"validation_fraction": 0.1, "patience": 30, "merge_epochs": 25}

_COLUMNS = "hidden", "activation", "learning_rate", "batch_size", "max_epochs"
_EXPERIMENTS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "paper-mnist": (_PROGRAM, ((1000, 500, 125), "tanh", 8e-4, 512, 200)),
    "paper-usps": (_PROGRAM, ((2000, 1000, 500), "relu", 1e-3, 64, 50)),
    "paper-letter": (_PROCEDURE, ((250, 150), "relu", 0.01, 50, 300)),
    "paper-landsat": (_PROCEDURE, ((250, 150), "relu", 0.01, 50, 300)),
    "paper-phoneme": (_PROCEDURE, ((250, 150), "relu", 0.01, 50, 300)),
    "paper-iris": (_PROCEDURE, ((100,), "relu", 0.001, 16, 300)),
    "paper-sonar": (_PROCEDURE, ((500, 250), "relu", 0.001, 16, 300)),
}

RECIPES: dict[str, dict[str, Any]] = {
    # One small network, few steps, and the features with the largest weights.
    "draft": {
        "n_networks": 1,
        "hidden": (250, 100, 50),
        "max_features": 400,
        "max_epochs": "few",
        "learning_rate": 0.01,
    },
    **{
        name: common | dict(zip(_COLUMNS, values, strict=True))
        for name, (common, values) in _EXPERIMENTS.items()
    },
}
"""Parameters of `CentroidEncoder` for a first look, and for each experiment of the paper."""
