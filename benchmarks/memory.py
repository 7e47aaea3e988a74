"""How much memory: peaks of processes of their own, of cells of 20,000 genes, 5 % of them there.

    python -m benchmarks.memory backed                   # a default call on a file of 8 GB
    python -m benchmarks.memory backed --cells 100000    # of a tenth of it
    python -m benchmarks.memory streamed --limit 0.01    # batches from a file
    python -m benchmarks.memory validated --limit 0.1 --cells 100000  # two folds of a file
    python -m benchmarks.memory loaded --cells 100000    # on the same cells in memory
    python -m benchmarks.memory ingest                   # the cells of the file through a map
    python -m benchmarks.memory draw --cells 100000      # batches from memory and from a file

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
import torch
from anndata import AnnData
from anndata.io import write_elem
from numpy.typing import NDArray
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core.kept import Entries
from centroid_encoder.core.pieces import Pieces
from centroid_encoder.core.rows import CSRRows, StoredCSRRows
from centroid_encoder.core.standardization import CPU, Standardizer

FOLDER = Path(__file__).parents[1] / "build" / "memory"
N_CLASSES, N_GENES, STEP = 10, 20_000, 20
"""Each cell has a value in one of so many genes that stand beside each other: 5 %."""
N_AT_ONCE = 10_000
N_KEPT, N_OF_BATCH = 2_000, 256
"""Columns that are kept, and rows of a batch, of `draw`."""
N_EPOCHS = 1
BESIDE = 1e9
"""Bytes that programs and all else may take beside the data."""


def backed(n: int) -> None:
    """Train on a file that is read a part at a time."""
    found = measured("train", file_of(n))
    report(found, "kept columns as CSR", found["kept"])


def streamed(n: int, limit: float = 1.0) -> None:
    """Train on a file; of what is kept of it, so many GB may be in memory."""
    report(measured("train_streamed", file_of(n), limit), "limit", 1e9 * limit, times=1)


def validated(n: int, limit: float = 1.0) -> None:
    """Cross-validate a file that is not to be in memory; so many GB may be."""
    report(measured("validate", file_of(n), limit), "limit", 1e9 * limit, times=1)


def loaded(n: int) -> None:
    """Train on a CSR matrix in memory."""
    found = measured("train_loaded", file_of(n))
    report(found, "the data", found["data"])


def ingest(n: int) -> None:
    """Send the cells of a file through a map of others."""
    report(measured("place", file_of(n)), "nothing", 0)


def draw(n: int) -> None:
    """Draw the batches of an epoch from memory and from a file: of 2,000 columns, 5 % there."""
    n_columns, n_values = N_KEPT, N_KEPT // STEP
    rng = np.random.default_rng(0)
    arrays = {limit: (Pieces(np.int32, limit), Pieces(np.float32, limit)) for limit in (1e12, 0)}
    for first in range(0, n, N_AT_ONCE):
        some = (min(n - first, N_AT_ONCE), n_values)
        columns = rng.integers(STEP, size=some, dtype=np.int32)
        columns += np.arange(0, n_columns, STEP, dtype=np.int32)
        values = rng.standard_exponential(some, dtype=np.float32)
        for indices, data in arrays.values():
            indices.add(columns.ravel())
            data.add(values.ravel())
    one = np.ones(n_columns)
    scale, indptr = Standardizer(one / STEP, one, one, 10.0), np.arange(n + 1) * n_values
    of_memory, of_file = (
        Entries(indptr, indices.joined(), data.joined()) for indices, data in arrays.values()
    )
    for where, rows in (
        ("memory", CSRRows(of_memory, scale, CPU)),
        ("a file", StoredCSRRows(of_file, scale)),
    ):
        start = time.process_time()
        for index in torch.from_numpy(rng.permutation(n)).split(N_OF_BATCH):
            rows.gather(index)
        print(f"  from {where}: {time.process_time() - start:.2f} s of a processor")


def report(found: dict[str, float], what: str, n_bytes: float, times: float = 1.25) -> None:
    """Print a peak, and what it may be."""
    most = times * n_bytes + BESIDE
    verdict = "within" if found["peak"] <= most else "above"
    print(
        f"  {found['seconds']:.0f} s, peak of memory {found['peak'] / 1e9:.2f} GB; "
        f"{what} {n_bytes / 1e9:.2f} GB: "
        f"{verdict} {times} × that + 1 GB = {most / 1e9:.2f} GB",
        flush=True,
    )


def measured(what: str, file: Path, *more: float) -> dict[str, float]:
    """Do something with a file in a process of its own; return what it prints."""
    print(f"{what} {file.name}, {file.stat().st_size / 1e9:.1f} GB", flush=True)
    code = f"from benchmarks import memory; memory.{what}(memory.Path({str(file)!r}), *{more})"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def train(file: Path) -> None:
    """Train on a file."""
    _train(ad.read_h5ad(file, backed="r"))


def train_streamed(file: Path, limit: float) -> None:
    """Train on a file, with so many GB for what is kept."""
    _train(ad.read_h5ad(file, backed="r"), limit)


def train_loaded(file: Path) -> None:
    """Read a file and train on it."""
    _train(ad.read_h5ad(file))


def _train(adata: AnnData, limit: float | None = None) -> None:
    start = time.perf_counter()
    model = ce.CentroidEncoder(max_epochs=N_EPOCHS)
    ce.tl.centroid_encoder(adata, "kind", model=model, memory_limit=limit, progress=False)
    seconds, most = time.perf_counter() - start, peak()
    weights = np.asarray(adata.uns["ce"]["model"]["arrays"]["weight"])
    kept, data = 0, 0
    for first in range(0, adata.n_obs, N_AT_ONCE):
        x = adata.X[first : first + N_AT_ONCE]
        kept += int((weights[x.indices] > 0).sum())
        data += x.nnz
    tell(most, seconds, kept=8 * (kept + adata.n_obs), data=8 * (data + adata.n_obs))


def validate(file: Path, limit: float) -> None:
    """Cross-validate a file in two folds."""
    start, adata = time.perf_counter(), ad.read_h5ad(file, backed="r")
    model = ce.CentroidEncoder(max_epochs=N_EPOCHS)
    ce.tl.cross_validate(adata, "kind", n_folds=2, model=model, memory_limit=limit, progress=False)
    tell(peak(), time.perf_counter() - start)


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
    acts = {act.__name__: act for act in (backed, streamed, validated, loaded, ingest, draw)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("acts", nargs="+", choices=acts)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--limit", type=float, default=1.0, help="GB, of streamed and validated")
    given = parser.parse_args()
    for name in given.acts:
        limit = (given.limit,) if name in ("streamed", "validated") else ()
        acts[name](given.cells, *limit)
