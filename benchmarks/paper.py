"""How far the choices get that the paper leaves open.

    python -m benchmarks.paper letter landsat sonar
    python -m benchmarks.paper letter --splits 3

For the first five splits of an experiment, prints 5-NN errors of test samples in percent: of the
recipe; with learning rate, batch size and weight decay chosen by cross-validation in the training
samples, from twelve settings out of the paper's lists; with other scales of the inputs; and without
validation, after a number of epochs. "Best case" is the number of epochs with the fewest test
errors in each split: it was chosen with the test samples, and is comparable with nothing.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.methods import decide
from benchmarks.protocols import EXPERIMENTS
from centroid_encoder import CentroidEncoder

N_SPLITS, N_FOLDS = 5, 3
GRID = {
    "learning_rate": (0.01, 0.001),
    "batch_size": (16, 50, 256),
    "weight_decay": (2e-5, 1e-3),
}
EPOCHS = (10, 30, 100, 300)
TO_THE_END = {"validation_fraction": 0.0, "patience": None, "merge_epochs": 0}
Data = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def error(name: str, data: Data, seed: int, **settings: Any) -> float:
    """5-NN error of test samples after a training with the recipe and some other settings."""
    X, y, X_test, y_test = data
    classes, codes = np.unique(y, return_inverse=True)
    model = CentroidEncoder.from_recipe(f"paper-{name}", random_state=seed, **settings)
    model.fit(X, codes)
    found = decide(model.transform(X), codes, model.transform(X_test))["knn"]
    return float((classes[found] != y_test).mean())


def chosen(name: str, X: NDArray[Any], y: NDArray[Any], seed: int) -> dict[str, Any]:
    """Settings with the fewest errors in a cross-validation on the training samples."""
    folds = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(X, y))
    settings = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    errors = [
        np.mean([error(name, (X[a], y[a], X[b], y[b]), seed, **one) for a, b in folds])
        for one in settings
    ]
    return settings[int(np.argmin(errors))]


def run(name: str, n_splits: int) -> None:
    """Print the errors of an experiment in its first splits."""
    rows: dict[str, list[float]] = {}

    def add(title: str, found: float) -> None:
        rows.setdefault(title, []).append(100 * found)

    for seed in range(n_splits):
        data: Data = EXPERIMENTS[name].run(seed)
        add("the recipe", error(name, data, seed))
        best = chosen(name, *data[:2], seed)
        print(f"{name}, split {seed}: {best}", flush=True)
        add("chosen by cross-validation", error(name, data, seed, **best))
        add("one scale for all features", error(name, data, seed, scale="global", **best))
        after = [error(name, data, seed, max_epochs=n, **TO_THE_END, **best) for n in EPOCHS]
        for n, found in zip(EPOCHS, after, strict=True):
            add(f"{n} epochs", found)
        add("best case", min(after))
    for title, errors in rows.items():
        print(f"{name}, {title}: {np.mean(errors):.1f} ± {np.std(errors, ddof=1):.1f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", choices=("letter", "landsat", "sonar"))
    parser.add_argument("--splits", type=int, default=N_SPLITS)
    arguments = parser.parse_args()
    for name in arguments.experiments:
        run(name, arguments.splits)
