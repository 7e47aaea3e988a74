"""What each ingredient of the recipes gains.

    python -m benchmarks.ablation letter --method "default without dropout"   # a cell of a table
    python -m benchmarks.ablation --all                                       # all tables

One table goes in steps from the paper's method to the default. Two others leave out one ingredient
of the default and of the bottleneck at a time. Each experiment has five runs with different seeds,
on other splits than the runs of `benchmarks.errors`. With `--results`, the runs are added to a CSV
file, and runs that the file has already are not repeated.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.errors import run_cases
from benchmarks.methods import (
    BOTTLENECK,
    Decisions,
    Method,
    Run,
    centroid_encoder,
    without_linear_score,
)
from benchmarks.protocols import EXPERIMENTS, N_FOLDS
from centroid_encoder.core import inputs

N_RUNS = 5
FIRST = {"usps": 10, "usps-1000": 25, "sonar": 25} | dict.fromkeys(
    ("letter", "landsat", "phoneme"), 10 * N_FOLDS
)
"""Number of the first run of each experiment; `benchmarks.errors` has the runs before it."""
IN_STEPS = ("usps-1000", "letter", "landsat", "phoneme", "sonar")
ONE_AT_A_TIME = ("usps", "usps-1000", "letter", "landsat", "phoneme")
"""Experiments of the tables."""

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
    missing = dict.fromkeys(set(FIRST) - set(ONE_AT_A_TIME), "not used here")
    found = [Method(recipe, centroid_encoder(**WHOLE[recipe]), "ablation", missing)]
    for name, params in WITHOUT[recipe].items():
        missing = {
            experiment: "not used here"
            for experiment in FIRST
            if experiment not in ONLY.get(name, ONE_AT_A_TIME)
        }
        run = centroid_encoder(**WHOLE[recipe] | params)
        found.append(Method(f"{recipe} without {name}", run, "ablation", missing))
    return {method.name: method for method in found}


def networks_only(*, further_inputs: bool = False, **params: Any) -> Run:
    """Return a run of the estimator without the linear score, and without the further inputs."""
    run = centroid_encoder(**params)

    def patched(*arguments: Any) -> Decisions:
        with ExitStack() as stack:
            stack.enter_context(without_linear_score())
            if not further_inputs:
                stack.enter_context(patch.object(inputs, "RICH", (inputs.RICH[0], 0)))
            return run(*arguments)

    return patched


_PLAIN: dict[str, Any] = {"scale": "feature", "class_weight": None}
_WEIGHTED: dict[str, Any] = {"class_weight": None}
STEPS: dict[str, Run] = {
    "the paper's recipe": centroid_encoder(recipe=True),
    "the training of this project": centroid_encoder(**BOTTLENECK | _PLAIN),
    "places from the odds of the classes": networks_only(n_networks=1, **_PLAIN),
    "several cross-fitted networks": networks_only(**_PLAIN),
    "weights of features": networks_only(**_WEIGHTED),
    "class weights": networks_only(),
    "further inputs": networks_only(further_inputs=True),
    "a linear score: the default": centroid_encoder(),
}
"""From the paper's method to the default: each step adds to the one before."""
_NOT_IN_STEPS = dict.fromkeys(set(FIRST) - set(IN_STEPS), "not used here")
METHODS = {name: method for recipe in WITHOUT for name, method in methods(recipe).items()}
METHODS |= {name: Method(name, run, "ablation", _NOT_IN_STEPS) for name, run in STEPS.items()}


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
