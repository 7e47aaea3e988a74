"""Settings of a training: the numbers that ``"auto"`` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from centroid_encoder.errors import check

MIN_NORMALIZED = 3  # smallest batch size with batch normalisation: no batch may have one row
HIDDEN = (500, 250, 125)  # widths of the hidden layers of most networks with hidden="auto"


def resolved(
    params: Mapping[str, Any], n_train: int, n_inputs: int, n_classes: int
) -> dict[str, Any]:
    """Return the parameters of an estimator with numbers in place of ``"auto"``, and a ``warmup``.

    `n_train`, `n_inputs` and `n_classes` are the numbers of training samples, of features that a
    network receives, and of classes. `CentroidEncoder` documents the rules. An InputError is raised
    if the batches are too small for batch normalisation.
    """
    placed, many_classes = params["placement"] == "voronoi", n_classes > 15
    few_samples, many_inputs = n_train <= 5_000, n_inputs > 100
    batch_size = params["batch_size"]
    tiny_batches = batch_size != "auto" and batch_size < MIN_NORMALIZED
    batch_norm = params["batch_norm"]
    if batch_norm == "auto":
        # Networks with batch normalisation overfit fewer samples.
        batch_norm = n_train >= 4_000 and not tiny_batches
    batch_norm = bool(batch_norm) and not placed
    text = f"batch_norm needs a batch_size of at least {MIN_NORMALIZED}; got {batch_size}"
    check(not (batch_norm and tiny_batches), text, "batch_norm")
    n_epochs = params["max_epochs"]
    if n_epochs == "auto":
        n_epochs = min(max(300_000 // n_train, 20), 30 if placed and many_inputs else 60)
        # Without a bottleneck, many classes are no harder than few.
        n_epochs *= 2 if many_classes and not placed else 1
        n_epochs = min(n_epochs, max(5, 1_200_000 // n_train))
    elif n_epochs == "few":
        n_epochs = min(max(120_000 // n_train, 2), 8)
    hidden = HIDDEN
    if placed and few_samples:
        # Wider layers are no more accurate.
        hidden = (250, 150, 75) if many_inputs else (300, 200, 100)
    automatic = {
        "n_networks": 4 if few_samples else 3 if n_train <= 50_000 else 2,
        "hidden": hidden,
        # Without a bottleneck, half as many steps with larger batches are as accurate.
        "batch_size": min(max(n_train // (16 if placed else 32), 16), 512 if batch_norm else 256),
        "pretrain_epochs": n_epochs // 2 if many_classes and not placed else 0,
        "dropout": input_dropout(n_inputs, n_train),
        "weight_decay": min(1.0, n_inputs / (2 * n_classes), 20_000 / n_train),
        "learning_rate": 7e-3 if placed else 6e-3 if batch_norm else 3e-3,
    }
    settings = {
        name: automatic.get(name, value) if isinstance(value, str) and value == "auto" else value
        for name, value in params.items()
    }
    settings |= {"batch_norm": batch_norm, "max_epochs": n_epochs}
    settings |= {"compactness": 0.0} if placed else {"n_networks": 1}
    # With batch normalisation, the learning rate can rise faster.
    settings["warmup"] = 0.1 if batch_norm else 0.3
    return settings


def input_dropout(n_inputs: int, n_train: int) -> float:
    """Share of input values that ``dropout="auto"`` sets to zero in training."""
    return max(0.02, 0.5 - 50 / n_inputs, min(0.15, 25 / n_train))
