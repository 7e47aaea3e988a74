"""Errors of the centroid-encoder and its rivals in the paper's experiments.

    python -m benchmarks.errors letter --method SNeRV --run 3       # one run of one method
    python -m benchmarks.errors usps iris --method centroid-encoder # as many runs as the paper
    python -m benchmarks.errors --quick                             # first runs of quick methods
    python -m benchmarks.errors --all                               # everything

Prints the 5-NN error of the test samples in two dimensions. With `--results`, the runs are added to
a CSV file, and runs that the file has already are not repeated. From this file,
`python -m benchmarks.render` makes the tables of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import csv
import platform
import time
import warnings
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.methods import METHODS, Method
from benchmarks.protocols import EXPERIMENTS, Experiment

COLUMNS = (
    "experiment",
    "method",
    "run",
    "n_train",
    "n_test",
    "knn_error",
    "voronoi_error",
    "decoder_error",
    "seconds",
    "versions",
)
"""Columns of the CSV file."""

QUICK = ("centroid-encoder", "supervised UMAP", "kernel supervised PCA", "LDA", "PCA", "5-NN")
"""Methods that `--quick` runs."""
QUICK_RUNS = {"mnist": 1, "usps": 1} | dict.fromkeys(
    ("letter", "landsat", "phoneme", "iris", "sonar", "usps-1000"), 5
)
"""Largest number of runs of each experiment with `--quick`."""


def evaluate(experiment: Experiment, method: Method, run: int) -> dict[str, object]:
    """Train a method on the training samples of a run; return its errors on the test samples."""
    X, y, X_test, y_test = experiment.run(run)
    classes, codes = np.unique(y, return_inverse=True)
    codes_test = np.searchsorted(classes, y_test)
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Rivals warn about their settings; the effects are part of the errors.
        warnings.simplefilter("ignore")
        decisions = method.run(experiment.name, X, codes, X_test, run)
    seconds = time.perf_counter() - start
    errors = {rule: (found != codes_test).mean() for rule, found in decisions.items()}
    return {
        "experiment": experiment.name,
        "method": method.name,
        "run": run,
        "n_train": len(y),
        "n_test": len(y_test),
        **{f"{rule}_error": f"{error:.6f}" for rule, error in errors.items()},
        "seconds": f"{seconds:.2f}",
        "versions": versions(),
    }


def versions() -> str:
    """Return the versions of the packages on which the results depend."""
    packages = ("centroid-encoder", "torch", "scikit-learn", "umap-learn", "numpy")
    named = [f"{package} {version(package)}" for package in packages]
    return "; ".join([f"Python {platform.python_version()}", *named])


def read_results(path: Path) -> list[dict[str, str]]:
    """Return the runs in a CSV file, or an empty list if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add_result(path: Path, row: dict[str, object]) -> None:
    """Add a run to a CSV file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    """Run the methods on the experiments that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", choices=[*EXPERIMENTS, []])
    parser.add_argument("--method", action="append", choices=METHODS, help="default: all")
    parser.add_argument("--run", type=int, action="append", help="number of a run, from 0")
    parser.add_argument("--runs", type=int, help="number of runs; default: as many as the paper")
    parser.add_argument("--results", type=Path, help="CSV file to add the runs to")
    parser.add_argument("--all", action="store_true", help="run all experiments")
    parser.add_argument(
        "--quick", action="store_true", help="the first runs of quick methods in all experiments"
    )
    arguments = parser.parse_args()
    names = list(EXPERIMENTS) if arguments.all or arguments.quick else arguments.experiments
    if not names:
        parser.error("name an experiment, or pass --all or --quick")
    run_cases(
        (
            (EXPERIMENTS[name], METHODS[method], run)
            for name in names
            for method in arguments.method or (QUICK if arguments.quick else METHODS)
            for run in arguments.run or range(n_runs(name, arguments))
        ),
        arguments.results,
    )


def n_runs(name: str, arguments: argparse.Namespace) -> int:
    """Return the number of runs of an experiment with the options of the command line."""
    n: int = arguments.runs or EXPERIMENTS[name].n_runs
    return min(n, QUICK_RUNS[name]) if arguments.quick else n


def run_cases(cases: Iterable[tuple[Experiment, Method, int]], results: Path | None) -> None:
    """Evaluate and print experiments, methods and numbers of runs.

    With a file, only the cases that it does not have are evaluated, and they are added to it.
    """
    rows = read_results(results) if results else []
    done = {(row["experiment"], row["method"], int(row["run"])) for row in rows}
    n_skipped = 0
    for experiment, method, run in cases:
        if experiment.name in method.missing:
            continue
        if (experiment.name, method.name, run) in done:
            n_skipped += 1
            continue
        row = evaluate(experiment, method, run)
        print(
            f"{experiment.title}, {method.name}, run {run}: "
            f"5-NN error {100 * float(str(row['knn_error'])):.2f} %, {row['seconds']} s",
            flush=True,
        )
        if results:
            add_result(results, row)
    if n_skipped:
        print(f"{n_skipped} runs are in {results} already and were not repeated")


if __name__ == "__main__":
    main()
