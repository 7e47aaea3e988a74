"""Checks of correctness and measurements of speed on a GPU. `make gpu` runs this program.

    python -m benchmarks.gpu                             # both parts
    python -m benchmarks.gpu right                       # correctness alone
    python -m benchmarks.gpu fast --results mine.csv     # speed alone
    python -m benchmarks.gpu --device cpu --samples 600  # a small run without a GPU

The program does not need a network connection. The images come from `benchmarks.datasets`; without
them, only random cells are used. `python -m benchmarks.render` writes the results into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import csv
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from benchmarks import datasets
from centroid_encoder import CentroidEncoder
from centroid_encoder.core import train
from centroid_encoder.core.inputs import N_AXES
from centroid_encoder.core.network import Network
from centroid_encoder.core.optimization import captured
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.reports import Report
from centroid_encoder.errors import InputError

RESULTS = Path(__file__).parent / "results" / "gpu.csv"
COLUMNS = (
    "data", "samples", "placement", "precision", "steps", "epoch_seconds", "training_seconds",
    "share_of_peak", "error", "device", "versions",
)  # fmt: skip
TOLERANCE = 1e-3
"""Largest difference between the embeddings of one map on the GPU and on the CPU, in standard
deviations of the embedding."""
CELLS, N_CELLS, N_GENES = "cells", 1_000_000, 2_000
"""Name and numbers of the random cells."""


@dataclass(frozen=True)
class Data:
    """Training samples, and test samples unless the cells are random."""

    name: str
    X: Any
    y: NDArray[Any]
    X_test: Any = None
    y_test: Any = None


def main() -> None:
    """Run the parts that are named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["right", "fast"], metavar="right | fast")
    parser.add_argument("--device", default="cuda", help="device of torch")
    parser.add_argument(
        "--samples", type=int, help="largest number of samples of a data set; default: all"
    )
    parser.add_argument(
        "--results",
        type=Path,
        help=f"CSV file to write; default: {RESULTS.name} without --samples, none with it",
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(options.device)
    print(f"{device_name(device)}, PyTorch {torch.__version__}", flush=True)
    if "right" in options.parts:
        right(device, options.samples or 4000)
    if "fast" in options.parts:
        results = options.results or (None if options.samples else RESULTS)
        fast(device, options.samples, results)


# --- Correctness ----------------------------------------------------------------------------------


def right(device: torch.device, n: int) -> None:
    """Check reproducibility, and agreement with the CPU; exit at the first check that fails."""
    X, y = groups(n, 60)
    for placement in get_args(Placement):
        make = partial(CentroidEncoder, placement=placement, random_state=0, max_epochs=5)
        for kind, data in (("dense", X), ("CSR", sparse.csr_array(X))):
            model = make(device=str(device)).fit(data, y)
            embedding, name = model.transform(data), f"{placement}, {kind}"
            on_cpu = CentroidEncoder.from_state(*model.to_state(), device="cpu").transform(data)
            apart = np.abs(embedding - on_cpu).max() / on_cpu.std()
            check(
                f"{name}: the map has the same embedding on the CPU: {apart:.1e}", apart < TOLERANCE
            )
            again = make(device=str(device)).fit(data, y).transform(data)
            check(f"{name}: the same seed gives the same bits", np.array_equal(again, embedding))
            score = make(device="cpu").fit(data, y).score(data, y)
            gap = abs(model.score(data, y) - score)
            check(f"{name}: a training on the CPU is as accurate: {gap:.3f}", gap < 0.02)
    if device.type == "cuda":
        out_of_memory()


def out_of_memory() -> None:
    """Check that batches that are too large for the memory give an error that names the option."""
    X, y = groups(60_000, 2000)
    for placement in get_args(Placement):
        model = CentroidEncoder(
            placement=placement, hidden=(2000, 1000, 500), batch_size=50_000, max_epochs=2
        )
        found = "no error"
        with at_most(1200):
            try:
                model.fit(X, y)
            except InputError as error:
                found = str(error)
        check(f"{placement}: too large batches in 1200 MB raise: {found}", "batch_size" in found)


@contextmanager
def at_most(n_mb: int) -> Iterator[None]:
    """Limit the memory of this process on the device to some MB within a block."""
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(n_mb * 1e6 / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def check(what: str, holds: bool) -> None:
    """Print the text of a check and whether it holds; exit with status 1 if it does not."""
    print(f"{'ok' if holds else 'NO'}  {what}", flush=True)
    if not holds:
        raise SystemExit(1)


def groups(n: int, d: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Draw n samples of ten overlapping groups with d features; half of the values are 0."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 10
    X = rng.normal(size=(10, d), scale=3 / np.sqrt(d))[y]
    X += rng.standard_normal((n, d), dtype=np.float32)
    return np.maximum(X, 0).astype(np.float32), y


# --- Speed ----------------------------------------------------------------------------------------

Step = Callable[[Tensor], Tensor]
"""A training step: from the rows of a batch to its loss."""


def one_by_one(step: Step, noise: Sequence[torch.Generator]) -> Step:
    """Return the step itself, which launches its operations one by one."""
    return step


def in_bfloat16(step: Step, noise: Sequence[torch.Generator]) -> Step:
    """Return a step that is captured as a CUDA graph, with matrix products in bfloat16."""

    def half(rows: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return step(rows)

    return captured(half, noise)


@contextmanager
def compiled() -> Iterator[None]:
    """Compile the forward and the backward pass of the steps within a block."""
    with (
        mock.patch.object(train, "captured", one_by_one),
        mock.patch.object(Network, "encode", torch.compile(Network.encode)),
        mock.patch.object(Network, "decode", torch.compile(Network.decode)),
    ):
        yield
    torch.compiler.reset()


@contextmanager
def tf32() -> Iterator[None]:
    """Compute float32 matrix products in TF32, with ten bits of mantissa, within a block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


WAYS: tuple[tuple[str, str, Callable[[], Any]], ...] = (
    ("float32", "one by one", lambda: mock.patch.object(train, "captured", one_by_one)),
    ("float32", "compiled", compiled),
    ("float32", "captured", nullcontext),
    ("TF32", "captured", tf32),
    ("bfloat16", "captured", lambda: mock.patch.object(train, "captured", in_bfloat16)),
)
"""Precision of the products, way to launch the steps, and a context manager that sets both."""


def fast(device: torch.device, n: int | None, results: Path | None) -> None:
    """Time trainings in each of the `WAYS` that the device supports; write the results."""
    ways = WAYS if device.type == "cuda" else WAYS[:1]
    lines = []
    for data in data_sets(n):
        for placement in get_args(Placement):
            for precision, steps, way in ways:
                if data.name == CELLS and steps == "compiled":
                    # Compiled steps take minutes on the cells and are the slowest on the images.
                    continue
                with way():
                    line = measured(data, placement, device)
                line |= {"precision": precision, "steps": steps}
                line["share_of_peak"] = round(
                    line.pop("flops") / product_rate(device, precision), 4
                )
                print(
                    f"{data.name}, {placement}, {precision}, {steps}: "
                    f"{line['epoch_seconds']} s per epoch, {line['training_seconds']} s in total, "
                    f"{100 * line['share_of_peak']:.1f} % of the peak rate, error {line['error']}",
                    flush=True,
                )
                lines.append(line)
    if results is not None:
        with results.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(lines)


def data_sets(n: int | None) -> Iterator[Data]:
    """Yield the images that are available, and a million random cells; at most n of each."""
    for name, load in (("MNIST", datasets.mnist), ("USPS", datasets.usps)):
        try:
            found: Any = load()
        except OSError as error:
            print(f"without {name}: {error}", flush=True)
            continue
        if name == "MNIST":
            (X, y), (X_test, y_test) = found
        else:
            order = np.random.default_rng(0).permutation(len(found[1]))
            X, y = found[0][order], found[1][order]
            X, y, X_test, y_test = X[:8000], y[:8000], X[8000:], y[8000:]
        yield Data(name, X[:n], y[:n], X_test[:n], y_test[:n])
    n_cells = n or N_CELLS
    rng = np.random.default_rng(0)
    codes = rng.integers(10, size=n_cells)
    counts = np.full(n_cells, N_GENES // 20)
    genes = rng.integers(N_GENES, size=counts.sum(), dtype=np.int32)
    values = rng.exponential(size=len(genes)).astype(np.float32)
    values += genes % 10 == np.repeat(codes, counts)
    cells = sparse.csr_array(
        (values, genes, np.append(0, counts.cumsum())), shape=(n_cells, N_GENES)
    )
    cells.sum_duplicates()
    yield Data(CELLS, cells, codes)


def measured(data: Data, placement: Placement, device: torch.device) -> dict[str, Any]:
    """Time one training, which has four epochs if the cells are random."""
    few: dict[str, Any] = {} if data.X_test is not None else {"max_epochs": 4}
    model = CentroidEncoder(placement=placement, random_state=0, device=str(device), **few)
    times: list[float] = []

    def note(report: Report | None) -> bool:
        if report is not None and report.epoch:
            synchronize(device)
            times.append(time.perf_counter())
        return False

    start = time.perf_counter()
    model.fit(data.X, data.y, callback=note)
    synchronize(device)
    seconds = time.perf_counter() - start
    error = "" if data.X_test is None else round(1 - model.score(data.X_test, data.y_test), 4)
    epoch = float(np.median(np.diff(times)))
    return {
        "data": data.name,
        "samples": len(data.y),
        "placement": placement,
        "epoch_seconds": round(epoch, 4),
        "training_seconds": round(seconds, 2),
        "flops": n_flop(model, len(data.y)) / epoch,
        "error": error,
        "device": device_name(device),
        "versions": f"Python {platform.python_version()}; torch {torch.__version__}",
    }


def n_flop(model: CentroidEncoder, n: int) -> float:
    """Return the number of operations in the matrix products of an epoch.

    Each sample needs one product with each weight matrix in the forward pass, and two in the
    backward pass, or one for the first layer. Each of several networks is trained on all samples
    except those of its own fold. If the inputs are principal axes, one more product computes the
    noise on them.
    """
    fitted = model.fitted_map
    network = fitted.network
    weights = [p.numel() for name, p in network.named_parameters() if name.endswith("weight")]
    count = (6 * sum(weights) - 2 * weights[0]) / network.n_networks
    if fitted.inputs.axes is not None and len(fitted.standardizer.kept) > N_AXES:
        count += 2 * N_AXES**2
    return n * max(1, network.n_networks - 1) * count


def product_rate(device: torch.device, precision: str) -> float:
    """Return the operations per second in products of square matrices, the median of ten.

    The matrices are 4096 × 4096 on a GPU and 512 × 512 on a CPU.
    """
    size = 4096 if device.type == "cuda" else 512
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = []
    with tf32() if precision == "TF32" else nullcontext():
        for _ in range(13):
            synchronize(device)
            start = time.perf_counter()
            a @ b
            synchronize(device)
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / float(np.median(seconds[3:]))


def synchronize(device: torch.device) -> None:
    """Wait until a device has finished all operations."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()


if __name__ == "__main__":
    main()
