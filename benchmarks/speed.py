"""Speed, mostly as ratios to the time of other methods. Run it on a machine without other work.

    python -m benchmarks.speed scanpy      # a default call against scanpy's PCA, neighbours, UMAP
    python -m benchmarks.speed busy        # the same beside processes that use all cores
    python -m benchmarks.speed mnist       # a default fit against supervised UMAP
    python -m benchmarks.speed umap        # time to reach the error of supervised UMAP
    python -m benchmarks.speed schedule    # time to reach the paper's error
    python -m benchmarks.speed scaling     # time and memory from 10,000 to 1,000,000 cells
    python -m benchmarks.speed transform   # samples that are embedded per second
    python -m benchmarks.speed jobs        # a cross-validation in two processes and in one
    python -m benchmarks.speed profile     # time in the parts of a training

A command may name several parts.
"""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from joblib import cpu_count
from joblib.externals.loky import get_reusable_executor
from numpy.typing import NDArray
from scipy import sparse

import centroid_encoder as ce
from benchmarks import datasets
from benchmarks.methods import BOTTLENECK, in_float32
from benchmarks.parts import peak_memory, run_named
from benchmarks.protocols import EXPERIMENTS, Split
from centroid_encoder import CentroidEncoder
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import knn_predict
from centroid_encoder.core.reports import Report
from centroid_encoder.core.settings import HIDDEN
from centroid_encoder.core.train import has_bfloat16
from centroid_encoder.recipes import RECIPES

SHORT: dict[str, Any] = BOTTLENECK | {"learning_rate": 0.01, "dropout": 0.1}
"""A bottleneck with less dropout and a larger learning rate, for trainings of few epochs."""
BUDGETS: tuple[dict[str, Any], ...] = (
    *(RECIPES["draft"] | {"max_epochs": n_epochs} for n_epochs in (1, 2, 4, 8)),
    *(SHORT | {"max_epochs": n_epochs} for n_epochs in (4, 5, 6, 8, 12, 16, 20)),
)
"""Settings in increasing order of their cost."""
N_TIMED = 3
"""Number of measurements; their median is reported."""


def scanpy() -> None:
    """Compare default calls with scanpy's PCA, neighbours and UMAP; first calls do not count."""
    logging.getLogger("centroid_encoder").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for name, (adata, label_key) in tables().items():
        default = partial(ce.tl.centroid_encoder, adata, label_key, progress=False)

        def slowly(default: Callable[[], object] = default) -> None:
            with in_float32():
                default()

        acts: dict[str, Callable[[], object]]
        acts = {"PCA, neighbours and UMAP": partial(umap_pipeline, adata), "default": default}
        if has_bfloat16():
            acts["default, products in float32"] = slowly
        acts["one network on everything"] = partial(default, model=CentroidEncoder(n_networks=1))
        compare(f"{name}, {adata.n_obs:,} × {adata.n_vars:,}", acts, warm=adata.n_obs > 10_000)


def busy() -> None:
    """Compare default calls with scanpy's pipeline beside processes that use the cores, too.

    The loads are none, one process less than cores, one for each core, and two for each.
    """
    logging.getLogger("centroid_encoder").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    n_cores = cpu_count()
    for name, (adata, label_key) in tables(most=10_000).items():
        acts = {
            "PCA, neighbours and UMAP": partial(umap_pipeline, adata),
            "centroid-encoder": partial(ce.tl.centroid_encoder, adata, label_key, progress=False),
        }
        for n_processes in (0, n_cores - 1, n_cores, 2 * n_cores):
            others = [
                subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(n_processes)
            ]
            try:
                compare(f"{name}, beside {n_processes} busy processes", acts)
            finally:
                for other in others:
                    other.kill()
                    other.wait()


def umap_pipeline(adata: AnnData) -> None:
    """Compute principal axes, neighbours and a UMAP with scanpy."""
    import scanpy as sc

    sc.pp.pca(adata)
    sc.pp.neighbors(adata)
    sc.tl.umap(adata)


def tables(most: int = 100_000) -> dict[str, tuple[AnnData, str]]:
    """Return the data sets of `scanpy`, without missing values, and their label columns.

    Tables of overlapping normal classes are among them, with at most `most` rows.
    """
    import scanpy as sc

    pbmc3k = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
    sc.pp.highly_variable_genes(pbmc3k, n_top_genes=2000)
    pbmc3k = pbmc3k[:, pbmc3k.var["highly_variable"]].copy()
    vectra = datasets.read_h5ad("vectra_6plex/cells.h5ad")
    vectra.X = np.where(np.isnan(vectra.X), np.nanmean(vectra.X, axis=0), vectra.X)
    found = {
        "pbmc3k": (pbmc3k, "classified"),
        "pbmc68k_reduced": (sc.datasets.pbmc68k_reduced(), "bulk_labels"),
        "vectra_6plex": (vectra, "phenotype"),
    }
    sizes = (3_000, 50), (10_000, 50), (100_000, 50), (100_000, 2_000)
    for n, d in sizes:
        if n <= most:
            found[f"made, {n:,} × {d:,}"] = made(n, d), "class"
    return found


def made(n: int, d: int) -> AnnData:
    """Return n rows of ten overlapping classes; with more than 100 features, a CSR of counts."""
    rng = np.random.default_rng(0)
    codes, centers = rng.integers(10, size=n), rng.normal(size=(10, d))
    obs = pd.DataFrame({"class": pd.Categorical(codes.astype(str))}, index=np.arange(n).astype(str))
    if d <= 100:
        return AnnData((centers[codes] + 1.5 * rng.normal(size=(n, d))).astype(np.float32), obs)
    # A few thousand rows at a time, since all would take gigabytes.
    parts = [
        sparse.csr_matrix(np.log1p(rng.poisson(0.1 * np.exp(centers[part]))), dtype=np.float32)
        for part in np.array_split(codes, n // 5_000)
    ]
    return AnnData(sparse.vstack(parts, format="csr"), obs)


def mnist() -> None:
    """Compare a default fit and transform of MNIST with those of supervised UMAP."""
    from umap import UMAP

    X, y, X_test, _ = EXPERIMENTS["mnist"].run(0)
    warnings.simplefilter("ignore")
    UMAP().fit(X[:500], y[:500]).transform(X_test[:500])  # compiles
    CentroidEncoder(max_epochs=1, random_state=0).fit(X[:5000], y[:5000])

    def call(placement: Placement) -> Callable[[], object]:
        model = CentroidEncoder(placement=placement, random_state=0)
        return lambda: model.fit(X, y).transform(X_test)

    acts: dict[str, Callable[[], object]] = {
        "supervised UMAP": lambda: UMAP().fit(X, y).transform(X_test)
    }
    acts |= {placement: call(placement) for placement in get_args(Placement)}
    compare(f"mnist, {len(X):,} × {X.shape[1]}", acts, warm=True)


def compare(name: str, acts: Mapping[str, Callable[[], object]], *, warm: bool = False) -> None:
    """Print the median seconds of each function, and their ratio to those of the first function.

    The functions are called in turn. The processor time is the sum over all threads; it is more
    reliable than the seconds on a machine with other work. The first round does not count, unless
    all functions are ``warm``.
    """
    found: dict[str, list[tuple[float, float]]] = {title: [] for title in acts}
    for turn in range(N_TIMED + (not warm)):
        for title, act in acts.items():
            start, processors = time.perf_counter(), time.process_time()
            act()
            spent = time.perf_counter() - start, time.process_time() - processors
            if warm or turn:
                found[title].append(spent)
    medians = {title: np.median(spent, axis=0) for title, spent in found.items()}
    rival = next(iter(medians.values()))
    print(f"{name}, {torch.get_num_threads()} threads")
    for title, (seconds, processors) in medians.items():
        print(
            f"  {title}: {seconds:.2f} s, {seconds / rival[0]:.2f} ×; "
            f"processor time {processors:.2f} s, {processors / rival[1]:.2f} ×",
            flush=True,
        )


def umap() -> None:
    """Compare the time to reach the error of supervised UMAP with its fit and transform."""
    from umap import UMAP

    # The first call of UMAP compiles; its time should not count.
    X, y = EXPERIMENTS["iris"].run(0)[:2]
    UMAP().fit(X, y).transform(X)
    for name in ("usps", "mnist"):
        split = EXPERIMENTS[name].run(0)
        X, y, X_test, y_test = split
        start = time.perf_counter()
        rival = UMAP().fit(X, y)
        placed = rival.transform(X_test)
        rival_seconds = time.perf_counter() - start
        rival_error = (knn_predict(rival.embedding_, y, placed) != y_test).mean()
        print(f"{name}, supervised UMAP: {100 * rival_error:.2f} %, {rival_seconds:.1f} s")
        budget, error, seconds = seconds_to(rival_error, split)
        print(
            f"{name}, centroid-encoder ({budget}): {100 * error:.2f} %, {seconds:.2f} s: "
            f"UMAP takes {rival_seconds / seconds:.0f} times as long",
            flush=True,
        )


def schedule() -> None:
    """Compare the time to reach the paper's error on MNIST with the schedule of its program.

    The schedule has four stages of 25 epochs and 200 further epochs. One epoch of each is timed.
    """
    split = EXPERIMENTS["mnist"].run(0)
    budget, error, seconds = seconds_to(0.0261, split)
    print(f"mnist, centroid-encoder ({budget}): {100 * error:.2f} %, {seconds:.1f} s")
    X, y = split[:2]
    pretraining, training = epoch_seconds(X, y)
    rival_seconds = 25 * sum(pretraining) + 200 * training
    print(
        f"the paper's schedule, extrapolated from one epoch of each stage: {rival_seconds:.0f} s, "
        f"{rival_seconds / seconds:.0f} times as long"
    )


def seconds_to(error: float, split: Split) -> tuple[str, float, float]:
    """Return the name, the error and the seconds of the cheapest budget that reaches an error.

    The budget is chosen on a held-out tenth of the training samples, where its error must be
    smaller by one standard error. The seconds are the time to train on all training samples and to
    place the test samples. Raises RuntimeError if no budget reaches the error.
    """
    X, y, X_test, y_test = split
    held_out = np.random.default_rng(0).random(len(y)) < 0.1
    wanted = error - math.sqrt(error * (1 - error) / held_out.sum())
    for budget in BUDGETS:
        model = CentroidEncoder(random_state=0, **budget)
        model.fit(X[~held_out], y[~held_out])
        if error_of(model, X[~held_out], y[~held_out], X[held_out], y[held_out]) > wanted:
            continue
        seconds = []
        for _ in range(N_TIMED):
            start = time.perf_counter()
            model.fit(X, y).transform(X_test)
            seconds.append(time.perf_counter() - start)
        widths = "-".join(map(str, budget.get("hidden", HIDDEN)))
        name = f"{widths}, {model.n_epochs_} epochs"
        return name, error_of(model, X, y, X_test, y_test), float(np.median(seconds))
    raise RuntimeError(f"an error of {100 * error:.2f} % was not reached")


def error_of(
    model: CentroidEncoder,
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    y_test: NDArray[Any],
) -> float:
    """Return the 5-NN error of test samples, for a bottleneck or a single network."""
    return float((knn_predict(model.transform(X), y, model.transform(X_test)) != y_test).mean())


def epoch_seconds(X: NDArray[Any], y: NDArray[Any]) -> tuple[list[float], float]:
    """Return the seconds of an epoch on MNIST with the training loop of the paper's program.

    The loop is rewritten here: a DataLoader that collates sample by sample, a dense matrix of
    targets, and the loss over all features; layers of 784-1000-500-125-2 units with tanh, batches
    of 512, Adam with amsgrad. The first result has the seconds for each of the four stages of
    pre-training, the second those of the training of all layers.
    """
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    z = torch.as_tensor((X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1))
    z = z.float()
    codes = torch.as_tensor(y.astype(np.int64))
    centroids = torch.stack([z[codes == c].mean(dim=0) for c in range(10)])
    loader = DataLoader(TensorDataset(z, centroids[codes]), batch_size=512, shuffle=True)
    widths = [784, 1000, 500, 125, 2]

    def epoch(depth: int, trained: slice) -> float:
        encoder = [nn.Linear(a, b) for a, b in pairwise(widths[: depth + 1])]
        decoder = [nn.Linear(layer.out_features, layer.in_features) for layer in reversed(encoder)]
        layers = [*encoder, *decoder]
        for layer in layers:
            layer.requires_grad_(False)
        for layer in layers[trained]:
            layer.requires_grad_(True)
        steps: list[nn.Module] = []
        for i, layer in enumerate(layers):
            linear = i == len(layers) - 1 or i == depth - 1 == len(widths) - 2
            steps += [layer] if linear else [layer, nn.Tanh()]
        network = nn.Sequential(*steps)
        parameters = [p for p in network.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=8e-4, amsgrad=True)
        start = time.perf_counter()
        for batch, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(batch), target)
            penalty = sum(parameter.square().sum() for parameter in parameters)
            (loss + 0.5 * 2e-5 * penalty).backward()
            optimizer.step()
        return time.perf_counter() - start

    pretraining = [epoch(depth, slice(depth - 1, depth + 1)) for depth in range(1, 5)]
    return pretraining, epoch(4, slice(None))


def scaling() -> None:
    """Measure fits to 10,000 to 1,000,000 samples of 2,000 features, each in its own process.

    Supervised UMAP is fitted only to the three smallest sizes, which take up to a few minutes. The
    exponent is the slope of log(seconds) over log(samples).
    """
    sizes = (10_000, 31_623, 100_000, 316_228, 1_000_000)
    for method, sizes_ in (("centroid_encoder", sizes), ("umap", sizes[:3])):
        found = []
        for n in sizes_:
            code = f"from benchmarks.speed import fit_classes; fit_classes({method!r}, {n})"
            done = subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True
            )
            seconds, before, peak = map(float, done.stdout.split())
            found.append(seconds)
            print(
                f"{method}, {n:,} samples: {seconds:.1f} s, peak of memory {peak:.2f} GB; before "
                f"the fit {before:.2f} GB",
                flush=True,
            )
        slope = np.polyfit(np.log(sizes_), np.log(found), 1)[0]
        last = math.log(found[-1] / found[-2]) / math.log(sizes_[-1] / sizes_[-2])
        print(f"{method}: exponent {slope:.2f} over all, {last:.2f} over the last step")


def fit_classes(method: str, n: int) -> None:
    """Fit to synthetic classes; print the seconds, and the peak of memory before and after."""
    X, y = synthetic(n, 2000)
    if method == "umap":
        from umap import UMAP

        UMAP().fit(X[:100], y[:100])  # compiles
        model: Any = UMAP()
    else:
        model = CentroidEncoder(**BOTTLENECK, random_state=0)
    before = peak_memory()
    start = time.perf_counter()
    model.fit(X, y)
    print(time.perf_counter() - start, before, peak_memory())


def synthetic(n: int, d: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return n samples of d features from ten Gaussian classes, and the class indices."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(10, d)).astype(np.float32)
    y = rng.integers(10, size=n)
    X = np.empty((n, d), dtype=np.float32)
    for start in range(0, n, 10_000):
        part = slice(start, min(n, start + 10_000))
        rng.standard_normal(dtype=np.float32, out=X[part])
        X[part] *= 5
        X[part] += means[y[part]]
    return X, y


def transform() -> None:
    """Print how many samples per second a bottleneck of default size embeds."""
    for d in (100, 2000):
        X, y = synthetic(50_000, d)
        model = CentroidEncoder(**BOTTLENECK, max_epochs=1, random_state=0).fit(X, y)
        model.transform(X[:1000])
        start = time.perf_counter()
        model.transform(X)
        seconds = time.perf_counter() - start
        print(f"transform, {d:,} features: {len(X) / seconds:,.0f} samples per second", flush=True)


def jobs() -> None:
    """Compare a cross-validation with permutations in two processes and in one."""
    rng = np.random.default_rng(0)
    codes = np.arange(600) % 4
    X = rng.normal(size=(4, 30))[codes] + rng.normal(size=(600, 30))
    adata = AnnData(X, obs={"label": codes.astype(str)})
    model = CentroidEncoder(**BOTTLENECK, hidden=(50, 20), max_epochs=20, device="cpu")
    seconds: dict[str, list[float]] = {"started": [], "1": [], "2": []}
    for _ in range(N_TIMED):
        for name, n_jobs in (("started", 2), ("1", 1), ("2", 2)):
            if name == "started":
                get_reusable_executor().shutdown(kill_workers=True)
            start = time.perf_counter()
            ce.tl.cross_validate(
                *(adata, "label"), model=model, n_permutations=10, n_jobs=n_jobs, progress=False
            )
            seconds[name].append(time.perf_counter() - start)
    one, two, started = (float(np.median(seconds[name])) for name in ("1", "2", "started"))
    print(
        f"cross-validation of 55 small trainings: {one:.1f} s in one process, {two:.1f} s in two: "
        f"{one / two:.2f} times as fast; {started:.1f} s if the two have to be started: "
        f"{one / started:.2f} times as fast"
    )


OPERATIONS = {
    "products": ("mm", "addmm"),
    "batch normalisation": ("native_batch_norm", "native_batch_norm_backward"),
    "optimiser": ("_fused_adamw_", "_foreach_add_"),
    "input dropout": ("random_", "ge", "mul"),
    "rows of the batch": ("index",),
}
"""Operations of torch for each purpose."""


def profile() -> None:
    """Print where the time of a training on MNIST with a bottleneck is spent.

    First the seconds before, in and after the epochs, then the shares of operations in an epoch.
    """
    X, y = EXPERIMENTS["mnist"].run(0)[:2]
    CentroidEncoder(**BOTTLENECK, max_epochs=1, random_state=0).fit(X[:5000], y[:5000])
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    ends: list[float] = []

    def note(report: Report | None) -> bool:
        if report is None:
            return False
        if report.epoch == 4:
            profiler.stop()
        ends.append(time.perf_counter())
        if report.epoch == 3:
            profiler.start()
        return False

    start = time.perf_counter()
    CentroidEncoder(**BOTTLENECK, max_epochs=4, random_state=0).fit(X, y, callback=note)
    after, epoch = time.perf_counter() - ends[-1], float(np.mean(np.diff(ends[:3])))
    before = ends[0] - start - epoch
    print(f"before the first epoch {before:.2f} s, an epoch {epoch:.2f} s, after {after:.2f} s")
    spent = {
        entry.key.removeprefix("aten::"): entry.self_cpu_time_total
        for entry in profiler.key_averages()
    }
    total = sum(spent.values())
    for what, names in OPERATIONS.items():
        share = sum(spent.pop(name, 0) for name in names) / total
        print(f"  {what}: {100 * share:.0f} % of an epoch")
    print(f"  all else: {100 * sum(spent.values()) / total:.0f} % of an epoch")


if __name__ == "__main__":
    run_named(__doc__, scanpy, busy, mnist, umap, schedule, scaling, transform, jobs, profile)
