"""What each ingredient of the recipe with a bottleneck buys: take one away at a time.

    python -m benchmarks.ablation letter --method "without compactness"   # a cell of the table
    python -m benchmarks.ablation --all                                   # the table

Five runs of each experiment, other ones than those of the tables of errors; five seeds. With
`--results`, adds the runs to a file, where what is there already is not run again.
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
"""First run of each experiment: the tables of errors hold those before."""
WITHOUT: dict[str, dict[str, Any]] = {
    "batch normalisation": {"batch_norm": False},
    "pre-training": {"pretrain_epochs": 0},
    "compactness": {"compactness": 0.0},
    "dropout": {"dropout": 0.0},
    "weight decay": {"weight_decay": 0.0},
    "weights of features": {"scale": "feature"},
    "output in the span": {"output": "full"},
    "the one-cycle schedule": {"schedule": "constant", "learning_rate": 1e-3},
}
"""Ingredients, and the parameters that take each away."""
ONLY = {"batch normalisation": ["usps"], "pre-training": ["letter"]}
"""Where an ingredient is there at all, if not everywhere."""


def _without(name: str) -> Method:
    missing = {
        experiment: "there is none of it here"
        for experiment in FIRST
        if experiment not in ONLY.get(name, FIRST)
    }
    return Method(
        f"without {name}", centroid_encoder(**BOTTLENECK | WITHOUT[name]), "ablation", missing
    )


METHODS = {
    method.name: method
    for method in (
        Method("all of them", centroid_encoder(**BOTTLENECK), "ablation"),
        *(_without(name) for name in WITHOUT),
    )
}


def main() -> None:
    """Run what is named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", choices=[*FIRST, []])
    parser.add_argument("--method", action="append", choices=METHODS, help="default: each")
    parser.add_argument("--results", type=Path, help="file to add the runs to")
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
