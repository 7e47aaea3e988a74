"""Reliability of confidence, novelty, cross-validation and permutation tests.

    python -m benchmarks.honesty transfer       # ingest cells of a technology that did not train
    python -m benchmarks.honesty novelty        # AUROC of each class of pbmc3k, when it is unknown
    python -m benchmarks.honesty calibration    # calibration errors of held-out cells
    python -m benchmarks.honesty permutation    # how often shuffled labels are significant
    python -m benchmarks.honesty rare           # confidence by predicted class, on new samples
    python -m benchmarks.honesty composition    # confidence for hand-picked labels, other queries
    python -m benchmarks.honesty wrong_labels   # recall and precision for labels that were changed
    python -m benchmarks.honesty pipelines      # k-NN after fit_transform, on noise and real tables
    python -m benchmarks.honesty throughput     # time and memory to ingest a million cells on disk
    python -m benchmarks.honesty noise          # errors with placement="voronoi" on random data
    python -m benchmarks.honesty donors         # errors with random donors of unequal sizes
    python -m benchmarks.honesty intervals      # how often 95 % intervals cover the error
    python -m benchmarks.honesty thresholds     # what thresholds of novelty flag, in 32 queries
    python -m benchmarks.honesty new_donors     # novelty of simulated donors
    python -m benchmarks.honesty missing        # confidence of cells whose features are estimated

A command may name several parts. All parts except `throughput`, `noise`, `new_donors`, `intervals`
and `rare` need the data folder.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anndata as ad
import numpy as np
import pandas as pd
from anndata import AnnData
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor, NearestNeighbors
from sklearn.pipeline import make_pipeline

import centroid_encoder as ce
from benchmarks import datasets, doubts, placement
from benchmarks.cell_sets import load, pbmc68k
from benchmarks.methods import BOTTLENECK
from benchmarks.parts import expected_calibration_error, peak_memory, run_named
from centroid_encoder.core import novelty as core_novelty
from centroid_encoder.core.splits import stratified_holdout

N_SEEDS = 5
N_DRAWS = 40  # of data for the coverage of intervals


def transfer() -> None:
    """Print the accuracy on cells of a technology that did not train.

    A map of two technologies of pbmc_3tech ingests the cells of the third, and is compared with
    5-NN in PCA. Then a cross-validation holds out each of the three technologies in turn.
    """
    adata = datasets.read_h5ad("pbmc_3tech/pbmc_3tech.h5ad")
    new = (adata.obs["donor"] == "5p").to_numpy()
    known, query = adata[~new].copy(), adata[new].copy()
    truth = query.obs["cell_type"].astype(str)
    rows = []
    for seed in range(N_SEEDS):
        ce.tl.centroid_encoder(known, "cell_type", random_state=seed, progress=False)
        ce.tl.ingest(query, known, progress=False)
        found = query.obs["ce_label"].astype(str)
        rows.append((accuracy_score(truth, found), balanced_accuracy_score(truth, found)))
    print(
        f"map of 3' cells, {len(query)} 5' cells: accuracy {spread(*np.transpose(rows)[:1])}",
        end="",
    )
    print(f", balanced {spread(*np.transpose(rows)[1:])}")
    pca = PCA(30, random_state=0).fit(dense(known.X))
    knn = KNeighborsClassifier(5).fit(
        pca.transform(dense(known.X)), known.obs["cell_type"].astype(str)
    )
    found = knn.predict(pca.transform(dense(query.X)))
    print(
        f"PCA (30) and 5-NN: accuracy {accuracy_score(truth, found):.3f}, "
        f"balanced {balanced_accuracy_score(truth, found):.3f}"
    )
    ce.tl.cross_validate(adata, "cell_type", group_key="donor", progress=False)
    print("each technology held out in turn:", errors(adata))


def novelty() -> None:
    """Print the AUROC of novelty for each class of pbmc3k, with the class left out of training.

    It compares the cells of that class with held-out cells of the other classes. Simpler scores
    are compared with novelty.
    """
    adata = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
    y = adata.obs["classified"].astype(str).to_numpy()
    table = {}
    for unknown in np.unique(y):
        known = np.flatnonzero(y != unknown)
        _, codes = np.unique(y[known], return_inverse=True)
        held_out = stratified_holdout(codes, 0.2, 0)
        train, tested = known[~held_out], np.append(known[held_out], np.flatnonzero(y == unknown))
        model = ce.CentroidEncoder(random_state=0).fit(adata.X[train], y[train])
        model.fit_novelty(adata.X[train], y[train])
        scores = {"novelty": model.novelty(adata.X[tested])}
        scores |= dict(simple_scores(model, adata, train, tested))
        truth = y[tested] == unknown
        table[unknown] = {name: roc_auc_score(truth, score) for name, score in scores.items()}
        exceeding = (scores["novelty"][~truth] > 0.95).mean()
        print(f"{unknown}: {100 * exceeding:.1f} % of the known cells above 0.95", flush=True)
    frame = pd.DataFrame(table).T
    print(pd.concat([frame, frame.mean().to_frame("mean").T]).round(3).to_string())


def simple_scores(
    model: ce.CentroidEncoder, adata: AnnData, train: NDArray[np.intp], tested: NDArray[np.intp]
) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """Yield the names and values of simpler scores for the rows in ``tested``."""
    yield "1 - probability", 1 - model.predict_proba(adata.X[tested]).max(axis=1)
    near = NearestNeighbors(n_neighbors=5).fit(model.transform(adata.X[train]))
    yield "5-NN in the map", near.kneighbors(model.transform(adata.X[tested]))[0].mean(axis=1)
    X = dense(adata.X[train])
    # The 2,000 most variable genes, as is usual for cells.
    genes = np.argsort(-X.var(axis=0))[:2000]
    mean, deviation = X[:, genes].mean(axis=0), X[:, genes].std(axis=0)
    z, z_tested = (
        np.clip((dense(adata.X[rows])[:, genes] - mean) / deviation, -10, 10)
        for rows in (train, tested)
    )
    pca = PCA(20, random_state=0).fit(z)
    points, query = pca.transform(z), pca.transform(z_tested)
    yield "PCA residual", np.square(z_tested - pca.inverse_transform(query)).sum(axis=1)
    near = NearestNeighbors(n_neighbors=5).fit(points)
    yield "PCA and 5-NN", near.kneighbors(query)[0].mean(axis=1)
    yield "isolation forest", -IsolationForest(random_state=0).fit(points).score_samples(query)
    yield "local outliers", -LocalOutlierFactor(novelty=True).fit(points).score_samples(query)


def calibration() -> None:
    """Print the expected calibration error of held-out cells without and with calibration.

    USPS has as many held-out samples as in the paper, 3,000 of 11,000.
    """
    cells = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
    table = datasets.read_h5ad("vectra_6plex/cells.h5ad")
    X, y = datasets.usps()
    digits = AnnData(X.astype(np.float32), obs=pd.DataFrame({"digit": pd.Categorical(y)}))
    digits.obs_names = [f"image{i}" for i in range(len(y))]
    for name, adata, label_key, share in (
        ("pbmc3k", cells, "classified", 0.2),
        ("vectra_6plex", table, "phenotype", 0.2),
        ("USPS", digits, "digit", 3 / 11),
    ):
        rows = []
        for seed in range(N_SEEDS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ce.tl.centroid_encoder(
                    adata,
                    label_key,
                    missing="mean",
                    test_size=share,
                    random_state=seed,
                    progress=False,
                )
            quality = adata.uns["ce"]["quality"]["test"]
            rows.append((quality["uncalibrated_error"], quality["calibration_error"]))
        before, after = np.transpose(rows)
        print(
            f"{name}, {quality['n']} held-out cells: expected calibration error without "
            f"calibration {spread(before)}, with it {spread(after)}",
            flush=True,
        )
    ce.tl.cross_validate(cells, "classified", progress=False)
    quality = cells.uns["ce_cv"]["quality"]
    print(
        f"pbmc3k, out of fold, {quality['n']} cells: without {quality['uncalibrated_error']:.3f}, "
        f"with calibration {quality['calibration_error']:.3f}"
    )


def permutation() -> None:
    """Print how many of 100 shuffled labelings have p < 0.05; 5 are expected."""
    n_repetitions, n_permutations = 100, 39
    pbmc = pbmc68k()
    some = np.random.default_rng(0).permutation(pbmc.n_obs)[:300]
    iris = load_iris()
    X, y = datasets.sonar()
    # A small network is quick, and the level of the test does not depend on the network.
    model = ce.CentroidEncoder(**BOTTLENECK, hidden=(16,), max_epochs=5)
    kwargs: dict[str, Any] = {
        "n_folds": 2,
        "model": model,
        "progress": False,
        "n_permutations": n_permutations,
    }
    for name, adata in (
        ("sonar", table_of(X, y)),
        ("iris", table_of(iris.data, iris.target_names[iris.target])),
        (
            "300 cells of pbmc68k_reduced",
            table_of(pbmc.X[some], pbmc.obs["bulk_labels"].to_numpy()[some]),
        ),
    ):
        real = _p_value(adata, 0, kwargs)
        shuffled = [adata.copy() for _ in range(n_repetitions)]
        for repetition, one in enumerate(shuffled):
            labels = adata.obs["class"].to_numpy()
            one.obs["class"] = np.random.default_rng(repetition).permutation(labels)
        jobs = (delayed(_p_value)(one, i, kwargs) for i, one in enumerate(shuffled))
        found = Parallel(-1)(jobs)
        p_values = np.array(found)
        print(
            f"{name}: p = {real:.3f} on the real labels (the smallest possible: "
            f"{1 / (1 + n_permutations):.3f}); on shuffled ones p < 0.05 in "
            f"{(p_values < 0.05).sum()} of {n_repetitions}, mean p {p_values.mean():.2f}",
            flush=True,
        )


def _p_value(adata: AnnData, seed: int, options: dict[str, Any]) -> float:
    with warnings.catch_warnings(), parallel_config("sequential"):
        warnings.simplefilter("ignore")
        ce.tl.cross_validate(adata, "class", random_state=seed, **options)
    return float(adata.uns["ce_cv"]["permutation"]["p_value"])


def rare() -> None:
    """Print confidence and share right by predicted class, on samples that were not used at all.

    Gaussian classes of unequal sizes: two of 95 and 5 %, eight like those of blood cells in 30
    features, and eight with 300 weak features. Numbers are pooled over 20 draws of
    20,000 new samples, after `tl.centroid_encoder` with a fifth of the cells held out, and after
    `CentroidEncoder.fit` of all.
    """
    blood = (0.42, 0.18, 0.12, 0.1, 0.08, 0.05, 0.03, 0.02)
    for name, n, shares, width, distance in (
        ("95 and 5 %", 2500, (0.95, 0.05), 10, 2.0),
        ("blood", 2500, blood, 30, 0.55),
        ("blood, 10,000 cells", 10_000, blood, 30, 0.45),
        ("weak features", 2500, blood, 300, 0.15),
    ):
        jobs = (delayed(_confidences)(n, shares, width, distance, seed) for seed in range(20))
        found = pd.concat(Parallel(-1)(jobs)).groupby(["call", "predicted"]).sum()
        share = found[["confidence", "unweighted", "right"]].div(found["n"], axis=0)
        share["off"] = share["confidence"] - share["right"]
        print(
            name, pd.concat([found["n"], share.round(3)], axis=1).to_string(), sep="\n", flush=True
        )


def _confidences(
    n: int, shares: tuple[float, ...], width: int, distance: float, seed: int
) -> pd.DataFrame:
    """Return sums of confidences and right predictions by predicted class, for one draw."""
    rng, n_classes = np.random.default_rng(100 + seed), len(shares)
    means = distance * rng.normal(size=(n_classes, width))
    if n_classes == 2:
        means = np.zeros((2, width))
        means[1, 0] = distance
    y, y_new = (rng.choice(n_classes, size, p=shares) for size in (n, 20_000))
    X, X_new = (means[codes] + rng.normal(size=(len(codes), width)) for codes in (y, y_new))
    adata = table_of(X, y)
    with warnings.catch_warnings(), parallel_config("sequential"):
        warnings.simplefilter("ignore")
        ce.tl.centroid_encoder(adata, "class", random_state=seed, progress=False)
        model = ce.CentroidEncoder(random_state=seed).fit(X, y.astype(str))
    frames = []
    for call, fitted in (("tl", ce.tl.fitted_model(adata)), ("fit", model)):
        probabilities = fitted.predict_proba(X_new.astype(np.float32))
        predicted = fitted.predict(X_new.astype(np.float32)).astype(int)
        values = {
            "call": call,
            "predicted": predicted,
            "n": 1,
            "confidence": probabilities[np.arange(len(predicted)), predicted],
            "unweighted": probabilities.argmax(axis=1) == predicted,
            "right": predicted == y_new,
        }
        frames.append(pd.DataFrame(values))
    return pd.concat(frames)


def composition() -> None:
    """Print confidence and share right if the training cells or the query are composed otherwise.

    A map of 60 % of pbmc3k ingests the other cells. It is trained on all labels or on twenty cells
    of each class, as a person picks them. The query has all cells, or 15 % of the T cells. Then the
    share of cells below a confidence of 0.5 is printed for each predicted class.
    """
    cells = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
    variances = dense(cells.X).var(axis=0)
    cells, rows, tables = cells[:, np.argsort(-variances)[:2000]].copy(), [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        new = rng.random(cells.n_obs) < 0.4
        known, query = cells[~new].copy(), cells[new].copy()
        labels, picked = known.obs["classified"].astype(str), pd.Series(index=known.obs_names)
        picked = picked.astype(object)
        for name in labels.unique():
            own = labels.index[labels == name]
            picked[rng.choice(own, min(len(own), 20), replace=False)] = name
        known.obs["picked"] = picked.astype("category")
        for label_key in ("classified", "picked"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ce.tl.centroid_encoder(known, label_key, random_state=seed, progress=False)
                ce.tl.ingest(query, known, progress=False)
            truth, confidence = query.obs["classified"].astype(str), query.obs["ce_confidence"]
            right, low = query.obs["ce_label"].astype(str) == truth, confidence < 0.5
            kept = rng.random(query.n_obs) < np.where(truth.str.contains("CD4|CD8"), 0.15, 1)
            for name, own in (("all cells", np.ones(query.n_obs, bool)), ("few T cells", kept)):
                shares = confidence[own].mean(), right[own].mean(), low[own].mean()
                rows.append((label_key, name, own.sum(), *shares))
            if label_key == "classified":
                tables.append(low.groupby(query.obs["ce_label"], observed=True).mean())
    names = ["labels", "query", "cells", "confidence", "right", "below 0.5"]
    found = pd.DataFrame(rows, columns=names).groupby(names[:2], sort=False)
    print(found.agg(["mean", "std"]).round(3).to_string())
    print(pd.concat(tables, axis=1).mean(axis=1).round(3).to_string())


RATES = (0.05, 0.1, 0.2)


def wrong_labels() -> None:
    """Print how many of the wrong labels `mislabeled` lists, and how many of its cells are wrong.

    Wrong labels are uniform, or those of the class that is most often confused with the true one,
    in all classes or in a quarter of one class. With no wrong label, and with shuffled labels, the
    list should be nearly empty. Numbers are means over three seeds.
    """
    for name, X, truth in _tables():
        kinds = ("uniform",) if len(np.unique(truth)) == 2 else ("uniform", "neighbouring")
        right = Parallel(-1)(delayed(_with_wrong_labels)(X, truth, seed) for seed in range(3))
        cases = [(kind, rate) for kind in kinds for rate in RATES]
        cases += [("one class", 0.25), ("shuffled", 0.0)]
        others = Parallel(-1)(
            delayed(_with_wrong_labels)(X, truth, seed, *case, right[seed][1])
            for case in cases
            for seed in range(3)
        )
        found = pd.DataFrame([row for row, _ in [*right, *others]])
        table = found.groupby(["kind", "rate"], sort=False).mean().round(3)
        print(f"{name}, {len(truth)} cells", table.to_string(), sep="\n", flush=True)


def _with_wrong_labels(
    X: NDArray[Any],
    truth: NDArray[Any],
    seed: int,
    kind: str = "none",
    rate: float = 0.0,
    nearest: NDArray[np.intp] | None = None,
) -> tuple[dict[str, Any], NDArray[np.intp]]:
    """Return the results for one seed, and the class with which each class is confused most."""
    classes, codes = np.unique(truth, return_inverse=True)
    rng = np.random.default_rng(1000 + seed)
    changed = rng.random(len(codes)) < rate
    other = (codes + rng.integers(1, len(classes), len(codes))) % len(classes)
    if kind in ("neighbouring", "one class") and nearest is not None:
        other = nearest[codes]
        if kind == "one class":
            # The largest class that is not larger than its neighbour.
            size = np.bincount(codes)
            changed &= codes == np.where(size <= size[nearest], size, 0).argmax()
    given = rng.permutation(codes) if kind == "shuffled" else np.where(changed, other, codes)
    adata = table_of(X, classes[given])
    with warnings.catch_warnings(), parallel_config("sequential"):
        warnings.simplefilter("ignore")
        ce.tl.cross_validate(adata, "class", random_state=seed, progress=False)
        found = adata.obs_names.isin(ce.tl.mislabeled(adata).index)
    hits, nothing = (found & changed).sum(), np.nan  # without changed labels
    row = {
        "kind": kind,
        "rate": rate,
        "wrong": changed.sum(),
        "listed": found.sum(),
        "recall": hits / changed.sum() if rate else nothing,
        "precision": hits / max(found.sum(), 1) if rate else nothing,
        "share listed": found.mean(),
        "error": adata.uns["ce_cv"]["quality"]["voronoi_error"],
    }
    return row, _most_confused(adata, codes)


def _most_confused(adata: AnnData, codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the class with which each class is confused most; of several, the nearest one."""
    z = (dense(adata.X) - dense(adata.X).mean(axis=0)) / (dense(adata.X).std(axis=0) + 1e-6)
    means = pd.DataFrame(z).groupby(codes).mean().to_numpy()
    confusion = adata.uns["ce_cv"]["confusion"] + 1 / (1 + cdist(means, means))
    np.fill_diagonal(confusion, -1)
    return np.asarray(confusion.argmax(axis=1))


def _tables() -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Yield the name, the features and the classes of each table of `wrong_labels`."""
    X, y = load_breast_cancer(return_X_y=True)
    yield "two classes (wdbc)", X, y
    digits: Any = load_digits()
    X, y = digits.data, digits.target
    yield "four classes (digits 0 to 3)", X[y < 4], y[y < 4]
    X, y = datasets.usps()
    some = np.flatnonzero(y.astype(int) < 7)
    rows = np.sort(np.random.default_rng(0).choice(some, 1000, replace=False))
    yield "seven classes (usps, digits 0 to 6)", X[rows], y[rows]
    for name in ("pbmc3k", "paul15"):
        X, y, _ = load(name)
        yield name, X[:, np.argsort(-X.var(axis=0))[:2000]], y


def pipelines() -> None:
    """Print what a k-NN step learns from `fit_transform`, on noise and on real tables.

    On noise, the 5-NN error of its places is compared with chance, and the confidence of a k-NN
    step (50 neighbours) for new samples with the share that is right, for `fit_transform` and for
    ``fit().transform()``, which places samples by networks that were trained on them. On real
    tables, the error of the pipeline is that of a five-fold cross-validation, in which
    a grid search chooses the number of neighbours.
    """
    rows = pd.concat(Parallel(-1)(delayed(_on_noise)(seed) for seed in range(10)))
    print(rows.groupby("places").agg(["mean", "std"]).round(3).to_string())
    jobs = (delayed(_searched)(*table, seed) for table in list(_tables())[:4] for seed in range(3))
    rows = pd.DataFrame(Parallel(-1)(jobs)).groupby("table", sort=False)
    print(rows.agg(["mean", "std"]).round(4).to_string())


class _InSample(ce.CentroidEncoder):
    """The estimator with the places of `transform` for training samples."""

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """Place samples by the networks that were trained on them."""
        return self.fit(X, y, **options).transform(X)


def _on_noise(seed: int) -> pd.DataFrame:
    rng, rows = np.random.default_rng(seed), []
    X, X_new = rng.normal(size=(300, 60)), rng.normal(size=(3000, 60))
    y, y_new = rng.integers(0, 3, 300), rng.integers(0, 3, 3000)
    for kind in (ce.CentroidEncoder, _InSample):
        places = kind(random_state=seed).fit_transform(X, y)
        near = KNeighborsClassifier(6).fit(places, y).kneighbors(places, return_distance=False)
        votes = np.stack([(y[near[:, 1:]] == j).sum(axis=1) for j in range(3)], axis=1)
        pipe = make_pipeline(kind(random_state=seed), KNeighborsClassifier(50)).fit(X, y)
        p = pipe.predict_proba(X_new)
        rows.append(
            {
                "places": "fit_transform" if kind is ce.CentroidEncoder else "in sample",
                "5-NN error": np.mean(votes.argmax(axis=1) != y),
                "confidence": p.max(axis=1).mean(),
                "right": np.mean(p.argmax(axis=1) == y_new),
            }
        )
    return pd.DataFrame(rows)


def _searched(name: str, X: NDArray[Any], y: NDArray[Any], seed: int) -> dict[str, Any]:
    row: dict[str, Any] = {"table": name}
    for title, kind in (("fit_transform", ce.CentroidEncoder), ("in sample", _InSample)):
        grid = {"kneighborsclassifier__n_neighbors": [1, 5, 15, 50]}
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)
        with tempfile.TemporaryDirectory() as cache, parallel_config("sequential"):
            steps = kind(random_state=seed), KNeighborsClassifier()
            search = GridSearchCV(make_pipeline(*steps, memory=cache), grid, cv=3)
            found = cross_validate(search, X, y, cv=folds, scoring=("accuracy", "neg_log_loss"))
        row[f"{title}: error"] = 1 - found["test_accuracy"].mean()
        row[f"{title}: log loss"] = -found["test_neg_log_loss"].mean()
    return row


def throughput() -> None:
    """Print time and memory to ingest a million sparse cells on disk, with a bottleneck map."""
    n, d = 1_000_000, 2_000
    rng = np.random.default_rng(0)
    known = random_cells(2000, d)
    known.obs["class"] = pd.Categorical(rng.integers(10, size=2000).astype(str))
    model = ce.CentroidEncoder(**BOTTLENECK, max_epochs=2)
    ce.tl.centroid_encoder(known, "class", model=model, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cells.h5ad"
        # Another process writes the file, so that this does not raise the peak of memory here.
        code = f"from benchmarks.honesty import write_cells; write_cells({str(path)!r}, {n}, {d})"
        subprocess.run([sys.executable, "-c", code], check=True)
        size = path.stat().st_size
        cells = ad.read_h5ad(path, backed="r+")
        started = time.perf_counter()
        ce.tl.ingest(cells, known, progress=False)
        seconds = time.perf_counter() - started
        print(
            f"{cells.n_obs:,} cells of {d:,} genes, {size / 1e9:.1f} GB on disk: {seconds:.0f} s, "
            f"{cells.n_obs / seconds:,.0f} cells per second, peak of memory {peak_memory():.2f} GB"
        )


def write_cells(path: str, n: int, d: int) -> None:
    """Write n random sparse cells of d genes to a `.h5ad` file; 20,000 cells are repeated."""
    cells = random_cells(20_000, d)
    X = sparse.vstack([cells.X] * (n // 20_000), format="csr")
    AnnData(X, var=cells.var).write_h5ad(path)


def random_cells(n: int, d: int) -> AnnData:
    """Return n random cells of d genes in CSR format; 5 % of the values are not zero."""
    rng = np.random.default_rng(0)
    X = sparse.random(n, d, density=0.05, format="csr", dtype=np.float32, rng=rng)
    return AnnData(X, var=pd.DataFrame(index=[f"gene{i}" for i in range(d)]))


def table_of(X: NDArray[Any], y: NDArray[np.generic]) -> AnnData:
    """Return an AnnData of features and classes, which are in ``obs["class"]``."""
    names = [f"row{i}" for i in range(len(y))]
    return AnnData(X.astype(np.float32), obs=pd.DataFrame({"class": y.astype(str)}, index=names))


def dense(X: Any) -> NDArray[np.floating]:
    """Return a dense array."""
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def errors(adata: AnnData) -> str:
    """Return the errors of a cross-validation as text."""
    quality = adata.uns["ce_cv"]["quality"]
    names = ("knn", "voronoi", "balanced_voronoi", "input_knn", "largest_class")
    return ", ".join(f"{name} {100 * quality[f'{name}_error']:.1f} %" for name in names)


def noise() -> None:
    """Print Voronoi errors of training and held-out cells for random data with three classes."""
    for n, d in ((300, 60), (300, 3000), (1000, 200), (1000, 3000)):
        rows = []
        for seed in range(N_SEEDS):
            rng = np.random.default_rng(seed)
            cells = AnnData(rng.normal(size=(n, d)).astype(np.float32))
            cells.obs["class"] = rng.integers(0, 3, n).astype(str)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ce.tl.centroid_encoder(cells, "class", placement="voronoi", progress=False)
            quality = cells.uns["ce"]["quality"]
            errors = [quality[part]["voronoi_error"] for part in ("train", "test")]
            rows.append([*errors, quality["test"]["largest_class_error"]])
        train, test, chance = map(spread, np.transpose(rows))
        print(
            f"{n} cells, {d} features: Voronoi error of training cells {train}, of held-out ones "
            f"{test}; chance {chance}",
            flush=True,
        )


def donors() -> None:
    """Print errors when cells are divided into random donors of unequal sizes.

    First, two thirds of each data set train, with the donors as groups, and the errors are those of
    the other third. Then a cross-validation holds out each of three donors in turn, and the errors
    are those of the two small donors. For comparison, a map without groups is trained on the cells
    of all other donors for each small donor.
    """
    X, y = load_digits(return_X_y=True)
    digits = AnnData(X.astype(np.float32), obs=pd.DataFrame({"class": y.astype(str)}))
    three = datasets.read_h5ad("pbmc_3tech/pbmc_3tech.h5ad")
    pbmc = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
    for name, adata, label_key in (
        ("digits", digits, "class"),
        ("pbmc_3tech", three, "cell_type"),
        ("pbmc3k", pbmc, "classified"),
    ):
        adata.obs_names = [f"cell {i}" for i in range(adata.n_obs)]
        y = adata.obs[label_key].astype(str).to_numpy()
        for shares in (None, (0.95, 0.05), (0.9, 0.05, 0.05), (0.8, *4 * [0.05])):
            by_fit, by_tl = [], []
            for seed in range(N_SEEDS):
                rng = np.random.default_rng(seed)
                options: dict[str, Any] = {"random_state": seed, "progress": False}
                new = rng.random(adata.n_obs) < 1 / 3
                known, query = adata[~new].copy(), adata[new].copy()
                group_key, groups = None, None
                if shares is not None:
                    group_key = "random donor"
                    groups = rng.choice(len(shares), size=known.n_obs, p=shares).astype(str)
                    known.obs[group_key] = groups
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = ce.CentroidEncoder(random_state=seed)
                    model.fit(known.X, y[~new], groups=groups)
                    ce.tl.centroid_encoder(
                        known, label_key, group_key=group_key, test_size=0, **options
                    )
                ce.tl.ingest(query, known, progress=False)
                by_fit.append(np.mean(model.predict(query.X) != y[new]))
                by_tl.append(np.mean(query.obs["ce_label"].astype(str) != y[new]))
            named = (
                "(no groups)" if shares is None else " / ".join(f"{share:g}" for share in shares)
            )
            print(
                f"{name}, shares of donors {named}: error of CentroidEncoder "
                f"{spread(np.array(by_fit))}, of tl.centroid_encoder {spread(np.array(by_tl))}",
                flush=True,
            )
        grouped, alone = [], []
        for seed in range(N_SEEDS):
            rng = np.random.default_rng(seed)
            donor = rng.choice(3, size=adata.n_obs, p=(0.9, 0.05, 0.05))
            adata.obs["random donor"] = donor.astype(str)
            options = {"random_state": seed, "progress": False}
            ce.tl.cross_validate(adata, label_key, group_key="random donor", n_folds=3, **options)
            wrong = (adata.obs["ce_cv_label"].astype(str) != y).to_numpy()
            grouped.append(np.mean(wrong[donor > 0]))
            found = []
            for small in (1, 2):
                out = donor == small
                model = ce.CentroidEncoder(random_state=seed).fit(adata.X[~out], y[~out])
                found.append(model.predict(adata.X[out]) != y[out])
            alone.append(np.mean(np.concatenate(found)))
        print(
            f"{name}, error on small donors of 0.9 / 0.05 / 0.05: cross-validation "
            f"{spread(np.array(grouped))}, map without groups {spread(np.array(alone))}",
            flush=True,
        )


def intervals() -> None:
    """Print how often 95 % intervals cover the error, for held-out cells and for new donors.

    Four classes of 40, 30, 20 and 10 % in 30 features. Donors have 100 cells, and differ by 0.4
    standard deviations in each feature; "odd" donors, a quarter of them, by 1, and have other
    shares of the classes. The true errors are those on 6,000 new cells of 60 new donors: of the
    same map and, for a cross-validation, of a map of all cells. Without donors, two thirds of the
    cells train. Trainings have 20 epochs.
    """
    kinds = [("cells", n, False) for n in (20, 60, 200)]
    kinds += [("donors", n, odd) for n, odd in ((4, False), (6, False), (6, True), (10, False))]
    for kind, n, odd in kinds:
        jobs = (delayed(_covered)(kind, n, odd, seed) for seed in range(N_DRAWS))
        found = pd.concat(Parallel(-1)(jobs))
        by_call = found.groupby(["call", "number"])[["stated", "true", "covered"]]
        table = by_call.mean().join(found.groupby(["call", "number"])["stated"].size().rename("n"))
        difference = found["stated"] - found["true"]
        table["rms difference"] = np.sqrt(
            difference.pow(2).groupby([found["call"], found["number"]]).mean()
        )
        title = f"{n} held-out cells" if kind == "cells" else f"{n} donors{', some odd' * odd}"
        print(title, table.round(3).to_string(), sep="\n", flush=True)


def _covered(kind: str, n: int, odd: bool, seed: int) -> pd.DataFrame:
    """Return stated and true errors of a draw, and whether the interval covers the true one."""
    rng = np.random.default_rng(5000 + seed)
    means, by_donor = rng.normal(size=(4, 30)) * 3.2 / np.sqrt(60), kind == "donors"
    sizes = [*(n * [100] if by_donor else [3 * n]), *60 * [100]]
    is_odd = (rng.random(len(sizes)) < 0.25) & odd
    shifts = rng.normal(size=(len(sizes), 30)) * np.where(is_odd, 1, 0.4)[:, None] * by_donor
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    y = np.concatenate(
        [
            rng.choice(4, size, p=shares[::-1] if one else shares)
            for size, one in zip(sizes, is_odd, strict=True)
        ]
    )
    donors = np.repeat(np.arange(len(sizes)), sizes)
    adata = table_of(means[y] + shifts[donors] + rng.normal(size=(len(y), 30)), y)
    adata.obs["donor"] = pd.Categorical(donors.astype(str))
    known = adata[: len(y) - 6000].copy()
    query, options = adata[len(y) - 6000 :].copy(), dict[str, Any](random_state=seed)
    options |= {"group_key": "donor"} if by_donor else {"test_size": 1 / 3}
    options["model"] = ce.CentroidEncoder(max_epochs=20)
    with warnings.catch_warnings(), parallel_config("sequential"):
        warnings.simplefilter("ignore")
        ce.tl.centroid_encoder(known, "class", progress=False, **options)
        options.pop("test_size", None)
        ce.tl.cross_validate(known, "class", progress=False, **options)
        # The error of a cross-validation is that of a map of all cells.
        options |= {"test_size": 0, "key_added": "all"}
        ce.tl.centroid_encoder(known, "class", progress=False, **options)
        for key in ("ce", "all"):
            ce.tl.ingest(query, known, key=key, progress=False)
    truth = query.obs["class"].astype(str)
    calls = {"ce": "by_group" if by_donor else "test", "ce_cv": ""}
    rows = []
    for call, part in calls.items():
        found = query.obs["ce_label" if part else "all_label"].astype(str)
        wrong = (found != truth).to_numpy()
        quality = known.uns[call]["quality"]
        per_class = (known.uns[call]["per_class"] if not part else quality["per_class"]).set_index(
            "class"
        )
        quality, prefix = quality[part] if part else quality, f"{part}_" if part else ""
        numbers = [("error", quality, "voronoi_error", wrong.mean())]
        of_classes = [wrong[(truth == name).to_numpy()].mean() for name in per_class.index]
        numbers.append(("balanced error", quality, "balanced_voronoi_error", np.mean(of_classes)))
        for name, error in zip(per_class.index, of_classes, strict=True):
            row = per_class.loc[name]
            numbers.append(("error of a class", row, f"{prefix}voronoi_error", error))
            right = 1 - wrong[(found == name).to_numpy()].mean()
            numbers.append(("right of a prediction", row, f"{prefix}right", right))
        for number, values, name, true in numbers:
            ends = values[f"{name}_low"], values[f"{name}_high"]
            if np.isfinite(ends).all() and np.isfinite(true):
                covered = ends[0] <= true <= ends[1]
                rows.append((call, number, values[name], true, covered))
    return pd.DataFrame(rows, columns=["call", "number", "stated", "true", "covered"])


UNKNOWN = {
    "pbmc3k": ("T_CD4", "Mono", "DC"),
    "paul15": ("Monocytes", "GMP", "Neutrophils", "Multipotent progenitors"),
    "pbmc68k": ("CD14+ Monocyte", "CD19+ B", "CD8+ Cytotoxic T", "CD56+ NK"),
    "vectra": ("CK+", "CD68+", "CD8+", "FoxP3+"),
    "scimap": ("ASMA+ cells", "Non-immune cells", "M2 Macrophages", "NK cells", "CD8 T cells"),
    "3pv1": ("T_CD8", "T_CD4", "DC", ""),
    "3pv2": ("T_CD8", "T_CD4", "DC", ""),
    "5p": ("T_CD8", "T_CD4", "DC", ""),
}
"""Data sets, or technologies (donors) that are the query, and classes that the map lacks."""


def thresholds() -> None:
    """Print what thresholds of novelty and confidence flag, in queries that chose none of them.

    In each query, the map lacks one class. The query is 30 % of the other cells, or a donor, and
    at most a quarter as many cells of this class.
    """
    rows: list[dict[str, Any]] = []
    for name, unknown in UNKNOWN.items():
        for kind in unknown:
            rng = np.random.default_rng(0)
            adata = _labelled(name, rng)
            codes = np.unique(adata.obs["kind"], return_inverse=True)[1]
            is_query = stratified_holdout(codes, 0.3, 0)
            if is_donor := "donor" in adata.obs:
                is_query = (adata.obs["donor"] == name).to_numpy()
            unlike = (adata.obs["kind"] == kind).to_numpy()
            known = adata[~is_query & ~unlike].copy()
            new = np.flatnonzero(unlike & is_query if is_donor else unlike)
            familiar = np.flatnonzero(
                is_query & ~unlike & adata.obs["kind"].isin(known.obs["kind"])
            )
            n_new = min(len(new), int(doubts.MAX_UNKNOWN * len(familiar)))
            query = adata[np.append(familiar, rng.choice(new, n_new, replace=False))].copy()
            # The test cells of a donor would leave one donor to train on.
            options: dict[str, Any] = {"group_key": "donor", "test_size": 0} if is_donor else {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ce.tl.centroid_encoder(known, "kind", missing="mean", progress=False, **options)
                shifted = doubts.ingested(query, known)
            novelty, confidence = query.obs["ce_novelty"], query.obs["ce_confidence"]
            right = query.obs["ce_label"].astype(str) == query.obs["kind"].astype(str)
            is_new = query.obs["kind"] == kind
            row: dict[str, Any] = {
                "query": f"{name}, without {kind or 'nothing'}",
                "shifted": shifted,
                "n_unknown": n_new,
            }
            for limit in doubts.LEVELS:
                row[f"known > {limit}"] = (novelty > limit)[~is_new].mean()
                row[f"unknown > {limit}"] = (novelty > limit)[is_new].mean() if n_new else np.nan
            row["right"] = right.mean()
            for limit in (0.5, *doubts.LEVELS[1:]):
                kept = confidence >= 0.5 if limit == 0.5 else novelty <= limit
                row[f"right | {limit}"], row[f"lost | {limit}"] = (
                    right[kept].mean(),
                    1 - kept[right].mean(),
                )
            print(pd.DataFrame([row]).round(3).to_json(orient="records"), flush=True)
            rows.append(row)
    table = pd.DataFrame(rows)
    table["set"] = np.where(
        table["n_unknown"] == 0,
        "known cells only",
        np.where(table["shifted"], "warned", "not warned"),
    )
    for title, part in table.groupby("set"):
        numbers = part.drop(columns=["query", "shifted", "set"]).dropna(axis=1)
        print(f"\n{title}: {len(part)} queries")
        print(numbers.agg(["median", "min", "max"]).T.round(3).to_string())


def _labelled(name: str, rng: np.random.Generator) -> AnnData:
    """Return a data set with classes in obs["kind"]; those of fewer than 20 cells are left out."""
    if name in ("3pv1", "3pv2", "5p"):
        adata = datasets.read_h5ad("pbmc_3tech/pbmc_3tech.h5ad")
        adata.obs["kind"] = adata.obs["cell_type"].astype(str)
    elif name in ("pbmc3k", "paul15"):
        adata = doubts.table(doubts.read(name), "as it is", rng)
    elif name == "pbmc68k":
        adata = pbmc68k()
        adata = AnnData(adata.raw.X, adata.obs[["bulk_labels"]], adata.raw.var)
        adata.obs["kind"] = adata.obs["bulk_labels"]
    else:
        path = {"vectra": "vectra_6plex/cells.h5ad", "scimap": "scimap_example/example_data.h5ad"}
        adata = datasets.read_h5ad(path[name])
        adata.obs["kind"] = adata.obs["phenotype"]
    kinds = adata.obs["kind"].astype(str)
    adata.obs["kind"] = pd.Categorical(kinds)
    return adata[(kinds.map(kinds.value_counts()) >= 20).to_numpy()].copy()


def new_donors() -> None:
    """Print which share of the cells of new donors has a novelty above 0.95.

    Donors differ by 0.8 standard deviations in each of 40 features, and the five classes by 1.5.
    """
    for n in (2, 3, 4, 5, 8, 16):
        found = np.array([_novel_donors(n, 3000 + seed) for seed in range(20)]).T
        for i, kind in enumerate(("known", "unknown")):
            for j, name in enumerate(("without groups", "with groups")):
                values = found[i, j]
                ends = f"{values.min():.3f} to {values.max():.3f}"
                print(f"{n} donors, {kind}, {name}: {spread(values)} ({ends})", flush=True)


def _novel_donors(n: int, seed: int) -> list[list[float]]:
    """Shares of known and of unknown cells above 0.95, without and with groups."""
    rng = np.random.default_rng(seed)
    means = rng.normal(scale=1.5, size=(6, 40))
    donors = rng.normal(scale=0.8, size=(n + 8, 40))
    groups, new = np.repeat(np.arange(n), 120), np.repeat(np.arange(n, n + 8), 120)
    y, kinds = rng.integers(5, size=len(groups)), rng.integers(5, size=len(new))
    X = means[y] + donors[groups] + rng.normal(size=(len(y), 40))
    noise = donors[new] + rng.normal(size=(len(new), 40))
    model = ce.CentroidEncoder(max_epochs=1, random_state=0).fit(X, y)
    found = []
    for given in (None, groups):
        model.fit_novelty(X, y, groups=given)
        queries = means[kinds] + noise, means[5] + noise
        found.append([float((model.novelty(query) > 0.95).mean()) for query in queries])
    return found


def missing() -> None:
    """Print accuracy, mean confidence and calibration errors of samples that lack features.

    "Without draws", labels and confidence are those of the expected values.
    The data sets are those of `benchmarks.placement`, in two draws that chose nothing. The same
    random features are missing for all samples of a query.
    """
    shares, rows = (0.0, 0.5, 0.75, 0.9), list[dict[str, Any]]()
    for name, (load_set, n_train, n_test) in placement.SETS.items():
        data = load_set()
        for draw in (302, 303):
            X, y, X_test, y_test = placement.drawn(data, n_train, n_test, draw)
            known, new = table_of(X, y), table_of(X_test, y_test)
            ce.tl.centroid_encoder(known, "class", test_size=0, random_state=0, progress=False)
            order = np.random.default_rng(draw).permutation(new.n_vars)
            for share in shares:
                query = new[:, np.sort(order[: round((1 - share) * new.n_vars)])].copy()
                right, confidence = _estimated(query, known)
                with patch.object(core_novelty, "DRAWN", 0.0):
                    without = _estimated(query, known)
                rows.append(
                    {
                        "set": name,
                        "missing": share,
                        "right": right.mean(),
                        "confidence": confidence.mean(),
                        "calibration error": expected_calibration_error(confidence, right),
                        "right without draws": without[0].mean(),
                        "error without draws": expected_calibration_error(*without[::-1]),
                    }
                )
        print(pd.DataFrame(rows).query("set == @name").groupby("missing").mean(numeric_only=True))
    table = pd.DataFrame(rows).groupby(["set", "missing"]).mean().unstack()
    print(table.round(3).to_string())
    print(table.mean().unstack(0).round(3))


def _estimated(query: AnnData, known: AnnData) -> tuple[NDArray[np.bool_], NDArray[np.floating]]:
    """Return whether the labels of cells that lack features are right, and the confidences."""
    ce.tl.ingest(query, known, missing="estimate", max_missing=1, progress=False)
    right = query.obs["ce_label"].astype(str) == query.obs["class"]
    return right.to_numpy(), query.obs["ce_confidence"].to_numpy()


def spread(values: NDArray[np.floating]) -> str:
    """Return mean and standard deviation as text."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


if __name__ == "__main__":
    run_named(
        __doc__,
        transfer,
        novelty,
        calibration,
        permutation,
        rare,
        composition,
        wrong_labels,
        pipelines,
        throughput,
        noise,
        donors,
        intervals,
        thresholds,
        new_donors,
        missing,
    )
