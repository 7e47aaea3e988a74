"""Largest memory of trainings and of ingesting, for random cells of 20,000 genes.

    python -m benchmarks.memory backed                   # train on a file of 8 GB, a million cells
    python -m benchmarks.memory backed --cells 100000    # train on a file of a tenth of the cells
    python -m benchmarks.memory loaded --cells 100000    # train on the same cells in memory
    python -m benchmarks.memory ingest                   # ingest the cells of the file

A command may name several parts; each is measured in a process of its own. 5 % of the values of the
cells are not 0. The file is written to `build/memory` once. Trainings have default settings, except
that they have one epoch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem
from numpy.typing import NDArray
from scipy import sparse

import centroid_encoder as ce
from benchmarks.parts import peak_memory

FOLDER = Path(__file__).parents[1] / "build" / "memory"
N_CLASSES, N_GENES, STEP = 10, 20_000, 20
"""Each cell has one value other than 0 in every `STEP` neighbouring genes."""
N_AT_ONCE = 10_000
"""Cells that are generated and written at a time, and cells that train the map for `ingest`."""
N_EPOCHS = 1
TIMES, BESIDE = 1.25, 1e9
"""Allowed memory: `TIMES` the bytes that must be in memory, plus `BESIDE` bytes."""


def backed(n: int) -> None:
    """Measure a training on a file of n cells that is read in parts."""
    found = measured("train", file_of(n))
    report(found, "inputs of the networks", found["inputs"])


def loaded(n: int) -> None:
    """Measure a training on n cells in memory, as a CSR matrix."""
    found = measured("train_loaded", file_of(n))
    report(found, "data and inputs of the networks", found["data"] + found["inputs"])


def ingest(n: int) -> None:
    """Measure how the n cells of a file are ingested."""
    report(measured("place", file_of(n)), "data that must be in memory", 0)


def report(found: dict[str, float], what: str, n_bytes: float) -> None:
    """Print the peak of memory, and the allowed memory for n bytes that must be in memory."""
    most = TIMES * n_bytes + BESIDE
    verdict = "within" if found["peak"] <= most else "above"
    print(
        f"  {found['seconds']:.0f} s, peak of memory {found['peak'] / 1e9:.2f} GB, {verdict} the "
        f"allowed {most / 1e9:.2f} GB ({TIMES} × {n_bytes / 1e9:.2f} GB of {what} + 1 GB)",
        flush=True,
    )


def measured(what: str, file: Path) -> dict[str, float]:
    """Call a function of this module with a file in a new process; return what it prints."""
    print(f"{what} {file.name}, {file.stat().st_size / 1e9:.1f} GB", flush=True)
    code = f"from benchmarks import memory; memory.{what}(memory.Path({str(file)!r}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def train(file: Path) -> None:
    """Train on a file that is read in parts, and print the results."""
    _train(ad.read_h5ad(file, backed="r"))


def train_loaded(file: Path) -> None:
    """Read a whole file, train on its cells, and print the results."""
    _train(ad.read_h5ad(file))


def _train(adata: AnnData) -> None:
    start = time.perf_counter()
    model = ce.CentroidEncoder(max_epochs=N_EPOCHS)
    ce.tl.centroid_encoder(adata, "kind", model=model, progress=False)
    seconds, most = time.perf_counter() - start, peak_memory()
    shape = ce.tl.fitted_model(adata).fitted_map.network.shape
    inputs = 4 * adata.n_obs * shape["n_networks"] * shape["n_inputs"]
    data = 8 * adata.n_obs * (N_GENES // STEP + 1)
    print_results(most, seconds, inputs=inputs, data=data)


def place(file: Path) -> None:
    """Train on the first cells of a file, ingest all of them, and print the results."""
    known = ad.read_h5ad(file, backed="r")[:N_AT_ONCE].to_memory()
    model = ce.CentroidEncoder(max_epochs=N_EPOCHS)
    ce.tl.centroid_encoder(known, "kind", model=model, progress=False)
    start = time.perf_counter()
    ce.tl.ingest(ad.read_h5ad(file, backed="r"), known, progress=False)
    print_results(peak_memory(), time.perf_counter() - start)


def print_results(peak: float, seconds: float, **sizes: int) -> None:
    """Print the peak of memory (given in GB, printed in bytes), seconds and sizes as JSON."""
    print(json.dumps({"peak": 1e9 * peak, "seconds": seconds, **sizes}))


def file_of(n: int) -> Path:
    """Return the `.h5ad` file of n cells, sorted by class; write it if it does not exist."""
    file = FOLDER / f"{n}.h5ad"
    if file.exists():
        return file
    FOLDER.mkdir(parents=True, exist_ok=True)
    beside, rng = file.with_suffix(".part"), np.random.default_rng(0)
    n_values = n * N_GENES // STEP
    means = rng.gamma(2, size=(N_CLASSES, N_GENES)).astype(np.float32)
    codes = np.arange(n) * N_CLASSES // n
    with h5py.File(beside, "w") as target:
        write_elem(target, "/", AnnData(obs=table_of(codes), var=pd.DataFrame(index=gene_names())))
        group = target.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        group.attrs["shape"] = (n, N_GENES)
        group["indptr"] = np.arange(n + 1) * (N_GENES // STEP)
        data = group.create_dataset("data", (n_values,), np.float32)
        indices = group.create_dataset("indices", (n_values,), np.int32)
        for first in range(0, n, N_AT_ONCE):
            x = drawn(codes[first : first + N_AT_ONCE], means, rng)
            part = slice(first * N_GENES // STEP, first * N_GENES // STEP + x.nnz)
            data[part], indices[part] = x.data, x.indices
    beside.rename(file)
    return file


def drawn(
    codes: NDArray[np.intp], means: NDArray[np.float32], rng: np.random.Generator
) -> sparse.csr_matrix:
    """Draw (n, d) cells of classes ``codes``, whose values have the (M, d) ``means``."""
    n, n_values = len(codes), N_GENES // STEP
    indices = rng.integers(STEP, size=(n, n_values), dtype=np.int32)
    indices += np.arange(0, N_GENES, STEP, dtype=np.int32)
    data = rng.standard_exponential(indices.shape, dtype=np.float32)
    data *= means[codes[:, None], indices]
    return sparse.csr_matrix(
        (data.ravel(), indices.ravel(), np.arange(n + 1) * n_values), (n, N_GENES)
    )


def table_of(codes: NDArray[np.intp]) -> pd.DataFrame:
    """Return a table with the classes of cells in the column ``"kind"``."""
    names = pd.Index([f"kind {j}" for j in range(N_CLASSES)])
    index = pd.Index(np.arange(len(codes)).astype(str))
    return pd.DataFrame({"kind": pd.Categorical.from_codes(codes, names)}, index=index)


def gene_names() -> list[str]:
    """Return the names of the genes."""
    return [f"gene {j}" for j in range(N_GENES)]


if __name__ == "__main__":
    parts = {part.__name__: part for part in (backed, loaded, ingest)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=parts)
    parser.add_argument("--cells", type=int, default=1_000_000, help="number of cells of the file")
    given = parser.parse_args()
    for name in given.parts:
        parts[name](given.cells)
