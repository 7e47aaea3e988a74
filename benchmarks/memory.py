"""How much memory: peaks of processes of their own, of cells of 20,000 genes, 5 % of them there.

    python -m benchmarks.memory backed                   # a default call on a file of 8 GB
    python -m benchmarks.memory backed --cells 100000    # of a tenth of it
    python -m benchmarks.memory loaded --cells 100000    # on the same cells in memory
    python -m benchmarks.memory ingest                   # the cells of the file through a map

Several may be named at once. The file is made in `build/`, once. A training is the default one, but
of one epoch.
"""

from __future__ import annotations

import argparse
import json
import resource
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

FOLDER = Path(__file__).parents[1] / "build" / "memory"
N_CLASSES, N_GENES, STEP = 10, 20_000, 20
"""Each cell has a value in one of so many genes that stand beside each other: 5 %."""
N_AT_ONCE = 10_000
N_EPOCHS = 1
TIMES, BESIDE = 1.25, 1e9
"""Memory that is allowed: so many times the bytes of the data, and so many beside them."""


def backed(n: int) -> None:
    """Train on a file that is read a part at a time."""
    found = measured("train", file_of(n))
    report(found, "kept columns as CSR", found["kept"])


def loaded(n: int) -> None:
    """Train on a CSR matrix in memory."""
    found = measured("train_loaded", file_of(n))
    report(found, "the data", found["data"])


def ingest(n: int) -> None:
    """Send the cells of a file through a map of others."""
    report(measured("place", file_of(n)), "nothing", 0)


def report(found: dict[str, float], what: str, n_bytes: float) -> None:
    """Print a peak, and what it may be."""
    most = TIMES * n_bytes + BESIDE
    verdict = "within" if found["peak"] <= most else "above"
    print(
        f"  {found['seconds']:.0f} s, peak of memory {found['peak'] / 1e9:.2f} GB; "
        f"{what} {n_bytes / 1e9:.2f} GB: "
        f"{verdict} {TIMES} × that + 1 GB = {most / 1e9:.2f} GB",
        flush=True,
    )


def measured(what: str, file: Path) -> dict[str, float]:
    """Do something with a file in a process of its own; return what it prints."""
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
    seconds, most = time.perf_counter() - start, peak()
    weights = np.asarray(adata.uns["ce"]["model"]["arrays"]["weight"])
    kept, data = 0, 0
    for first in range(0, adata.n_obs, N_AT_ONCE):
        x = adata.X[first : first + N_AT_ONCE]
        kept += int((weights[x.indices] > 0).sum())
        data += x.nnz
    tell(most, seconds, kept=8 * (kept + adata.n_obs), data=8 * (data + adata.n_obs))


def place(file: Path) -> None:
    """Train on some cells, and place all of a file."""
    known = ad.read_h5ad(file, backed="r")[:N_AT_ONCE].to_memory()
    model = ce.CentroidEncoder(max_epochs=N_EPOCHS)
    ce.tl.centroid_encoder(known, "kind", model=model, progress=False)
    start = time.perf_counter()
    ce.tl.ingest(ad.read_h5ad(file, backed="r"), known, progress=False)
    tell(peak(), time.perf_counter() - start)


def tell(most: int, seconds: float, **sizes: int) -> None:
    """Print what `measured` reads."""
    print(json.dumps({"peak": most, "seconds": seconds, **sizes}))


def peak() -> int:
    """Largest resident memory so far, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def file_of(n: int) -> Path:
    """Make a `.h5ad` file of n cells, sorted by class, a part at a time; once."""
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
    """Draw cells of the classes `codes`."""
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
