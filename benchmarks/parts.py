"""Functions for several benchmarks: a command line of parts, a CSV file, the peak of memory."""

from __future__ import annotations

import argparse
import csv
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from centroid_encoder.core.calibration import calibration_bins


def run_named(description: str | None, *parts: Callable[[], None]) -> None:
    """Run the functions that the command line names, in its order."""
    by_name = {part.__name__: part for part in parts}
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=by_name)
    for name in parser.parse_args().parts:
        by_name[name]()


def append(path: Path, row: Mapping[str, object]) -> None:
    """Add a row to a CSV file, and create the file if needed; all rows have the same columns."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(
            {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in row.items()}
        )


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in GB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if sys.platform == "darwin" else 1024) / 1e9


def expected_calibration_error(confidence: NDArray[np.floating], right: NDArray[np.bool_]) -> float:
    """Mean of | mean confidence − share right | over bins, weighted by size (Guo et al., 2017).

    It grows when the predictions are few.
    """
    mean, share, bins = calibration_bins(confidence, right)
    return float(np.average(np.abs(mean - share), weights=np.bincount(bins)))
