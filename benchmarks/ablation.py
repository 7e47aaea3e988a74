"""What each ingredient of the default gains.

    python -m benchmarks.ablation letter --method "class weights"  # a cell of the table
    python -m benchmarks.ablation --all

The table goes in steps from the paper's method to the default. Each experiment has five runs with
different seeds, on other splits than the runs of `benchmarks.errors`. With `--results`, runs are
added to a CSV file, and those that the file has already are not repeated.
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
FIRST = {"usps-1000": 25, "sonar": 25} | dict.fromkeys(
    ("letter", "landsat", "phoneme"), 10 * N_FOLDS
)
"""Number of the first run of each experiment; `benchmarks.errors` has the runs before it."""
IN_STEPS = ("usps-1000", "letter", "landsat", "phoneme", "sonar")
"""Experiments of the table."""


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


PLAIN: dict[str, Any] = {"scale": "feature", "class_weight": None}
WEIGHTED: dict[str, Any] = {"scale": "supervised"}
STEPS: dict[str, Run] = {
    "the paper's recipe": centroid_encoder(recipe=True),
    "the training of this project": centroid_encoder(**BOTTLENECK | PLAIN),
    "places from the odds of the classes": networks_only(n_networks=1, **PLAIN),
    "several cross-fitted networks": networks_only(**PLAIN),
    "weights of features": networks_only(class_weight=None, **WEIGHTED),
    "class weights": networks_only(**WEIGHTED),
    "further inputs": networks_only(further_inputs=True, **WEIGHTED),
    "a linear score": centroid_encoder(**WEIGHTED),
    "weights where they help: the default": centroid_encoder(),
}
"""From the paper's method to the default: each step adds to the one before."""
METHODS = {name: Method(name, run, "ablation", {}) for name, run in STEPS.items()}


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
