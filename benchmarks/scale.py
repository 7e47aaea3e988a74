"""Time and memory to train on 10,000 to 10,000,000 cells that are not in memory, and to place them.

    python -m benchmarks.scale                          # four sizes, to results/scale.csv
    python -m benchmarks.scale 10000 100000 -o mine.csv

The training has default settings, with which it uses at most 1,000,000 cells (``max_samples``).
Then all cells are placed, with class and confidence. Each size is measured in a process of its own.
The peak of memory includes the program, and the seconds include the time to generate the cells.

The cells are generated when they are read. They have 2,000 genes, 5 % of the values are not 0, and
there are 12 classes in four families. **Rows repeat**: each block of 4,096 rows is drawn at random
from a pool of 49,152 cells. With more cells than the pool has, the error is that of cells whose
copies trained. Time and memory do not depend on this.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.parts import peak_memory
from centroid_encoder import CentroidEncoder
from centroid_encoder.core.arrays import Codes
from centroid_encoder.core.matrix import CHUNK, Lazy, Matrix

RESULTS = Path(__file__).parent / "results" / "scale.csv"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
N_GENES, N_CLASSES, N_FAMILIES = 2_000, 12, 4
N_POOL = 12 * CHUNK
"""Number of different cells."""
BLOCK = 4_096
"""Number of rows that are drawn with the same seed."""


class Cells(Lazy):
    """(n, 2000) CSR matrix of cells that are generated when they are indexed."""

    is_sparse = True
    dtype = np.dtype(np.float32)

    def __init__(self, n: int) -> None:
        self.shape = n, N_GENES
        self.pool, self._pool_codes = pool()
        self.seconds = 0.0
        """Time spent to generate rows."""

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Matrix:
        """Return the rows of a slice or of sorted indices."""
        start = time.perf_counter()
        index = np.arange(self.shape[0])[rows] if isinstance(rows, slice) else rows
        found: Matrix = self.pool[self._in_pool(index)]
        self.seconds += time.perf_counter() - start
        return found

    def codes(self) -> Codes:
        """Return the (n,) class indices."""
        return self._pool_codes[self._in_pool(np.arange(self.shape[0]))]

    def _in_pool(self, rows: NDArray[np.integer]) -> Codes:
        """Return the positions in the pool of the rows with sorted indices."""
        blocks, starts = np.unique(rows // BLOCK, return_index=True)
        parts = np.split(rows % BLOCK, starts[1:])
        return np.concatenate(
            [np.empty(0, np.intp)]
            + [
                np.random.default_rng(block).choice(N_POOL, BLOCK, replace=False)[part]
                for block, part in zip(blocks.tolist(), parts, strict=True)
            ]
        )


def pool() -> tuple[Any, Codes]:
    """Return the different cells and their classes.

    The values are log(1 + count) of Poisson counts, whose rates depend on class, family and depth.
    """
    rng = np.random.default_rng(0)
    families = rng.normal(scale=0.5, size=(N_FAMILIES, N_GENES))
    kinds = families[np.arange(N_CLASSES) % N_FAMILIES]
    kinds += rng.normal(scale=0.3, size=kinds.shape)
    rates = rng.exponential(0.043, size=N_GENES) * np.exp(kinds)
    codes = rng.integers(N_CLASSES, size=N_POOL)
    depths = rng.lognormal(sigma=0.3, size=(N_POOL, 1))
    parts = []
    for part in np.split(np.arange(N_POOL), N_POOL // 1024):
        counts = sparse.csr_matrix(rng.poisson(rates[codes[part]] * depths[part]), dtype=np.float32)
        parts.append(counts.log1p())
    return sparse.vstack(parts, format="csr"), codes


def measure(n: int) -> dict[str, Any]:
    """Train on n cells, place all of them, and return a row of the results."""
    cells = Cells(n)
    codes = cells.codes()
    start = time.perf_counter()
    model = CentroidEncoder(random_state=0)
    fit = model.fit_codes(cells, codes, np.arange(N_CLASSES))
    trained = time.perf_counter()
    _, predicted, _ = fit.map.decide(fit.judge(), n)
    placed = time.perf_counter()
    return {
        "cells": n,
        "training_seconds": round(trained - start, 1),
        "placing_seconds": round(placed - trained, 1),
        "generating_seconds": round(cells.seconds, 1),
        "peak_gb": round(peak_memory(), 2),
        "error": round(float(np.mean(predicted != codes)), 4),
        "threads": torch.get_num_threads(),
        "versions": f"Python {platform.python_version()}; torch {version('torch')}",
    }


def main() -> None:
    """Measure the numbers of cells that the command line names, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="*", type=int, default=list(SIZES), help="numbers of cells")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="CSV file to write")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for n in arguments.cells:
        code = f"import json; from benchmarks import scale; print(json.dumps(scale.measure({n})))"
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
        rows.append(json.loads(done.stdout))
        table = pd.DataFrame(rows)
        table.to_csv(arguments.output, index=False)
        print(table.drop(columns="versions").tail(1).to_string(index=False), flush=True)
    print(f"\n{table.drop(columns='versions').to_string(index=False)}")


if __name__ == "__main__":
    main()
