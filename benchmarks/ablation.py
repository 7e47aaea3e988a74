"""Errors of the two recipes, default and bottleneck, with one ingredient left out at a time.

    python -m benchmarks.ablation letter --method "default without dropout"   # a cell of a table
    python -m benchmarks.ablation --all                                       # both tables

Each experiment has five runs with different seeds. They use other splits than the runs of
`benchmarks.errors`. With `--results`, the runs are added to a CSV file, and runs that the file has
already are not repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.errors import run_cases
from benchmarks.methods import BOTTLENECK, Method, centroid_encoder
from benchmarks.protocols import EXPERIMENTS, N_FOLDS

N_RUNS = 5
FIRST = {"usps": 10, "usps-1000": 25} | dict.fromkeys(
    ("letter", "landsat", "phoneme"), 10 * N_FOLDS
)
"""Number of the first run of each experiment; `benchmarks.errors` has the runs before it."""

_COMMON: dict[str, dict[str, Any]] = {
    "dropout": {"dropout": 0.0},
    "weight decay": {"weight_decay": 0.0},
    "weights of features": {"scale": "feature"},
    "the one-cycle schedule": {"schedule": "constant", "learning_rate": 1e-3},
}
WITHOUT: dict[str, dict[str, dict[str, Any]]] = {
    "default": {
        "other networks": {"n_networks": 1},
        "class weights": {"class_weight": None},
        **_COMMON,
    },
    "bottleneck": {
        "batch normalisation": {"batch_norm": False},
        "pre-training": {"pretrain_epochs": 0},
        "compactness": {"compactness": 0.0},
        "output in the span": {"output": "full"},
        **_COMMON,
    },
}
"""For each recipe, the ingredients and the parameters of `CentroidEncoder` without them."""
WHOLE: dict[str, dict[str, Any]] = {"default": {}, "bottleneck": BOTTLENECK}
"""Parameters of each recipe with all its ingredients."""
ONLY = {"batch normalisation": ["usps"], "pre-training": ["letter"]}
"""For ingredients that only some experiments use, the names of these experiments."""


def methods(recipe: str) -> dict[str, Method]:
    """Return the rows of a recipe's table: the whole recipe, and without each ingredient."""
    found = [Method(recipe, centroid_encoder(**WHOLE[recipe]), "ablation")]
    for name, params in WITHOUT[recipe].items():
        missing = {
            experiment: "not used here"
            for experiment in FIRST
            if experiment not in ONLY.get(name, FIRST)
        }
        run = centroid_encoder(**WHOLE[recipe] | params)
        found.append(Method(f"{recipe} without {name}", run, "ablation", missing))
    return {method.name: method for method in found}


METHODS = {name: method for recipe in WITHOUT for name, method in methods(recipe).items()}


def main() -> None:
    """Run the cases that are named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", choices=[*FIRST, []])
    parser.add_argument("--method", action="append", choices=METHODS, help="default: each")
    parser.add_argument("--results", type=Path, help="CSV file to add the runs to")
    parser.add_argument("--all", action="store_true", help="all experiments")
    arguments = parser.parse_args()
    names = list(FIRST) if arguments.all else arguments.experiments
    if not names:
        parser.error("name an experiment, or pass --all")
    run_cases(
        (
            (EXPERIMENTS[name], METHODS[method], run)
            for name in names
            for method in arguments.method or METHODS
            for run in range(FIRST[name], FIRST[name] + N_RUNS)
        ),
        arguments.results,
    )


if __name__ == "__main__":
    main()
