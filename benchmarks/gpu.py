"""A GPU, for real: is it right, and how fast is it? What `make gpu` runs; no network is needed.

    python -m benchmarks.gpu                             # all of it
    python -m benchmarks.gpu right                       # whether it is right, alone
    python -m benchmarks.gpu fast --results mine.csv     # how fast, alone
    python -m benchmarks.gpu --device cpu --samples 600  # a small one, where there is no GPU

The images come from `benchmarks.datasets`, and are left out where they are not to be had; the cells
are drawn at random. `python -m benchmarks.render` puts the results into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import csv
import platform
import time
import warnings
from collections.abc import Callable, Iterator
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
from centroid_encoder.core import rows, training
from centroid_encoder.core.network import Network
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.steps import Steps

RESULTS = Path(__file__).parent / "results" / "gpu.csv"
COLUMNS = (
    "data", "samples", "placement", "precision", "steps", "epoch_seconds", "training_seconds",
    "share_of_peak", "error", "device", "versions",
)  # fmt: skip
TOLERANCE = 1e-3
"""What a map says of samples on a GPU may differ by so much from what it says on the CPU, in
standard deviations of the embedding."""
CELLS, N_CELLS, N_GENES = "cells", 1_000_000, 2_000


@dataclass(frozen=True)
class Data:
    """Samples to train on and, if something can be learned from them, others to be judged."""

    name: str
    X: Any
    y: NDArray[Any]
    X_test: Any = None
    y_test: Any = None


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["right", "fast"], metavar="right | fast")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, help="of each data set, at most; default: all")
    parser.add_argument("--results", type=Path, help=f"default: {RESULTS.name} of all samples")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(options.device)
    print(f"{device_name(device)}, PyTorch {torch.__version__}", flush=True)
    if "right" in options.parts:
        right(device, options.samples or 4000)
    if "fast" in options.parts:
        results = options.results or (None if options.samples else RESULTS)
        fast(device, options.samples, results)


# --- Is it right? ---------------------------------------------------------------------------------


def right(device: torch.device, n: int) -> None:
    """Check what must hold, and stop at what does not."""
    X, y = groups(n, 60)
    for placement in get_args(Placement):
        make = partial(CentroidEncoder, placement=placement, random_state=0, max_epochs=5)
        for kind, data in (("dense", X), ("CSR", sparse.csr_array(X))):
            model = make(device=str(device)).fit(data, y)
            there, name = model.transform(data), f"{placement}, {kind}"
            here = CentroidEncoder.from_state(*model.to_state(), device="cpu").transform(data)
            apart = np.abs(there - here).max() / here.std()
            check(f"{name}: a map on the CPU says the same, to {apart:.1e}", apart < TOLERANCE)
            again = make(device=str(device)).fit(data, y).transform(data)
            check(f"{name}: the same seed, the same bits", np.array_equal(again, there))
            on_cpu = make(device="cpu").fit(data, y).score(data, y)
            gap = abs(model.score(data, y) - on_cpu)
            check(f"{name}: trained on the CPU it is as accurate, to {gap:.3f}", gap < 0.02)
            if device.type != "cuda":
                continue
            with mock.patch.object(rows, "SHARE", 0.0):
                kept_off = make(device=str(device)).fit(data, y).transform(data)
            check(f"{name}: rows kept off the GPU, the same bits", np.array_equal(kept_off, there))
    if device.type == "cuda":
        out_of_memory()


def out_of_memory() -> None:
    """Train with batches, and then on data, that are too much for a limit on memory."""
    X, y = groups(60_000, 2000)
    of_data = f"{X.nbytes / 1e6:.0f} MB of data"
    for placement in get_args(Placement):
        settings: dict[str, Any] = {
            "placement": placement, "max_epochs": 2, "n_networks": 2, "random_state": 0
        }  # fmt: skip
        wide: dict[str, Any] = {"hidden": (2000, 1000, 500)}
        with at_most(1200), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            CentroidEncoder(batch_size=50_000, **settings, **wide).fit(X, y)
        said = [str(one.message) for one in caught if "out of memory" in str(one.message)]
        told = said[0] if said else "it fits"
        check(f"{placement}: {of_data} and large batches in 1200 MB: {told}", bool(said))
        plenty = CentroidEncoder(batch_size=512, **settings).fit(X, y).transform(X)
        with at_most(450):
            model = CentroidEncoder(batch_size=512, **settings).fit(X, y)
        same = np.array_equal(model.transform(X), plenty)
        check(f"{placement}: {of_data} in 450 MB: the same bits as with plenty", same)


@contextmanager
def at_most(n_mb: int) -> Iterator[None]:
    """Let this process have so many MB of the device."""
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(n_mb * 1e6 / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def check(what: str, holds: bool) -> None:
    """Print what was checked; end the run where it does not hold."""
    print(f"{'ok' if holds else 'NO'}  {what}", flush=True)
    if not holds:
        raise SystemExit(1)


def groups(n: int, d: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Draw samples of ten overlapping groups; half of the values are 0."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 10
    X = rng.normal(size=(10, d), scale=3 / np.sqrt(d))[y]
    X += rng.standard_normal((n, d), dtype=np.float32)
    return np.maximum(X, 0).astype(np.float32), y


# --- How fast is it? ------------------------------------------------------------------------------


class Eager(Steps):
    """Steps operation by operation."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._captures = False


class Half(Steps):
    """Captured steps whose products are in bfloat16."""

    def __init__(
        self, gather: Any, gradients: Callable[[Tensor, Tensor], Tensor], *args: Any, **options: Any
    ) -> None:
        def in_half(numbers: Tensor, inputs: Tensor) -> Tensor:
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                return gradients(numbers, inputs)

        super().__init__(gather, in_half, *args, **options)


@contextmanager
def compiled() -> Iterator[None]:
    """Steps whose forward pass is compiled, and with it the backward pass."""
    with (
        mock.patch.object(training, "Steps", Eager),
        mock.patch.object(Network, "encode", torch.compile(Network.encode)),
        mock.patch.object(Network, "decode", torch.compile(Network.decode)),
    ):
        yield
    torch.compiler.reset()


@contextmanager
def tf32() -> Iterator[None]:
    """Matrix products of float32 with ten bits after the point."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


WAYS: tuple[tuple[str, str, Callable[[], Any]], ...] = (
    ("float32", "one by one", lambda: mock.patch.object(training, "Steps", Eager)),
    ("float32", "compiled", compiled),
    ("float32", "captured", nullcontext),
    ("TF32", "captured", tf32),
    ("bfloat16", "captured", lambda: mock.patch.object(training, "Steps", Half)),
)
"""Precision of the products, how steps are asked for, and what makes it so."""


def fast(device: torch.device, n: int | None, results: Path | None) -> None:
    """Time trainings in each of the ways that the device has."""
    ways = WAYS if device.type == "cuda" else WAYS[:1]
    lines = []
    for data in data_sets(n):
        for placement in get_args(Placement):
            for precision, steps, way in ways:
                if data.name == CELLS and steps == "compiled":
                    # It lost already, and takes minutes here.
                    continue
                with way():
                    line = measured(data, placement, device)
                line |= {"precision": precision, "steps": steps}
                line["share_of_peak"] = round(
                    line.pop("flops") / product_rate(device, precision), 4
                )
                print(
                    f"{data.name}, {placement}, {precision}, {steps}: "
                    f"{line['epoch_seconds']} s an epoch, {line['training_seconds']} s in all, "
                    f"{100 * line['share_of_peak']:.1f} % of the peak, error {line['error']}",
                    flush=True,
                )
                lines.append(line)
    if results is not None:
        with results.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(lines)


def data_sets(n: int | None) -> Iterator[Data]:
    """Images, where they are to be had, and a million cells drawn at random."""
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
    """Time one training; of cells drawn at random, four epochs."""
    few: dict[str, Any] = {} if data.X_test is not None else {"max_epochs": 4}
    model = CentroidEncoder(placement=placement, random_state=0, device=str(device), **few)
    start, times = time.perf_counter(), []
    for _ in model.fit_reports(data.X, data.y):
        synchronize(device)
        times.append(time.perf_counter() - start)
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
    """Arithmetic of an epoch: forward, backward to weights, and to inputs but for the first layer.

    Of networks side by side each sees all samples but its own fold's, along its axes.
    """
    network = model._fitted.network
    weights = [p.numel() for name, p in network.named_parameters() if name.endswith("weight")]
    count = (6 * sum(weights) - 2 * weights[0]) / network.n_networks
    if network.axes is not None:
        count += 2 * network.axes.numel() / network.n_networks
    return n * max(1, network.n_networks - 1) * count


def product_rate(device: torch.device, precision: str) -> float:
    """Return the rate of products of 4096 × 4096 matrices, the median of ten."""
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
    """Wait until a device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """What a device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()


if __name__ == "__main__":
    main()
