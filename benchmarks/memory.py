"""Peaks of memory: cells of 20,000 genes, with 5 % of the values other than 0.

    python -m benchmarks.memory backed                   # a default call on a file of 8 GB
    python -m benchmarks.memory backed --cells 100000    # on a tenth of it
    python -m benchmarks.memory loaded --cells 100000    # on the same cells in memory
    python -m benchmarks.memory ingest                   # the cells of the file are ingested

Several may be named at once; each is measured in a process of its own. The file is written to
`build/` once. A training is the default one, but of one epoch.
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
"""Each cell has a value in one of `STEP` neighbouring genes: 5 %."""
N_AT_ONCE = 10_000
N_EPOCHS = 1
TIMES, BESIDE = 1.25, 1e9
"""Memory that is allowed: `TIMES` the bytes of the data, and `BESIDE` bytes."""


def backed(n: int) -> None:
    """Train on a file that is read in parts."""
    found = measured("train", file_of(n))
    report(found, "inputs of the networks", found["inputs"])


def loaded(n: int) -> None:
    """Train on a CSR matrix in memory."""
    found = measured("train_loaded", file_of(n))
    report(found, "the data and the inputs of the networks", found["data"] + found["inputs"])


def ingest(n: int) -> None:
    """Ingest the cells of a file by a map of others."""
    report(measured("place", file_of(n)), "nothing", 0)


def report(found: dict[str, float], what: str, n_bytes: float) -> None:
    """Print a peak, and the memory that is allowed."""
    most = TIMES * n_bytes + BESIDE
    verdict = "within" if found["peak"] <= most else "above"
    print(
        f"  {found['seconds']:.0f} s, peak of memory {found['peak'] / 1e9:.2f} GB; "
        f"{what} {n_bytes / 1e9:.2f} GB: "
        f"{verdict} {TIMES} × that + 1 GB = {most / 1e9:.2f} GB",
        flush=True,
    )


def measured(what: str, file: Path) -> dict[str, float]:
    """Call a function of this module with a file in a process of its own; return its results."""
    print(f"{what} {file.name}, {file.stat().st_size / 1e9:.1f} GB", flush=True)
    code = f"from benchmarks import memory; memory.{what}(memory.Path({str(file)!r}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def train(file: Path) -> None:
    """Train on a file."""
    _train(ad.read_h5ad(file, backed="r"))


def train_loaded(file: Path) -> None:
    """Read a file and train on it."""
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
    """Train on some cells of a file, and place all of them."""
    known = ad.read_h5ad(file, backed="r")[:N_AT_ONCE].to_memory()
    model = ce.CentroidEncoder(max_epochs=N_EPOCHS)
    ce.tl.centroid_encoder(known, "kind", model=model, progress=False)
    start = time.perf_counter()
    ce.tl.ingest(ad.read_h5ad(file, backed="r"), known, progress=False)
    print_results(peak_memory(), time.perf_counter() - start)


def print_results(peak: float, seconds: float, **sizes: int) -> None:
    """Print a peak in GB, seconds, and sizes in bytes, for `measured`."""
    print(json.dumps({"peak": 1e9 * peak, "seconds": seconds, **sizes}))


def file_of(n: int) -> Path:
    """Write a `.h5ad` file of n cells, sorted by class, in parts; if there is none yet."""
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
    """Draw cells of classes with (M, d) means."""
    n, n_values = len(codes), N_GENES // STEP
    indices = rng.integers(STEP, size=(n, n_values), dtype=np.int32)
    indices += np.arange(0, N_GENES, STEP, dtype=np.int32)
    data = rng.standard_exponential(indices.shape, dtype=np.float32)
    data *= means[codes[:, None], indices]
    return sparse.csr_matrix(
        (data.ravel(), indices.ravel(), np.arange(n + 1) * n_values), (n, N_GENES)
    )


def table_of(codes: NDArray[np.intp]) -> pd.DataFrame:
    """Return the classes of cells."""
    names = pd.Index([f"kind {j}" for j in range(N_CLASSES)])
    index = pd.Index(np.arange(len(codes)).astype(str))
    return pd.DataFrame({"kind": pd.Categorical.from_codes(codes, names)}, index=index)


def gene_names() -> list[str]:
    """Return names of genes."""
    return [f"gene {j}" for j in range(N_GENES)]


if __name__ == "__main__":
    acts = {act.__name__: act for act in (backed, loaded, ingest)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("acts", nargs="+", choices=acts)
    parser.add_argument("--cells", type=int, default=1_000_000)
    given = parser.parse_args()
    for name in given.acts:
        acts[name](given.cells)
