"""Errors of two-dimensional embeddings, and measures of how well they show the inputs.

    python -m benchmarks.placement                     # two draws of thirteen data sets
    python -m benchmarks.placement letter paul15       # two draws of two data sets
    python -m benchmarks.placement --method voronoi --first 10  # other draws of one method
    python -m benchmarks.placement digits --flipped 0.1  # a tenth of the training labels is wrong
    python -m benchmarks.placement blood --class-weight none  # without class weights
    python -m benchmarks.placement --every --results benchmarks/results/pictures.csv

By default, the methods are both placements of the centroid-encoder, UMAP and supervised UMAP. With
`--every`, they are all methods with an embedding, and each is trained only once. The draws are not
those of the tables of errors. With `--results`, the draws are added to a CSV file, from which
`python -m benchmarks.render` makes a table of docs/benchmarks.md; draws that the file has already
are not repeated. Prints for each data set and method, as means over the draws:

- decision, cells, neighbours: error of the test samples by the model's own decision, by Voronoi
  cells and by five neighbours, in percent;
- balanced: mean of the errors of the classes by the model's own decision, in percent;
- likelihood and calibration: negative log-likelihood and expected calibration error of the class
  probabilities of the test samples;
- trust: whether neighbours in the plane are neighbours in the inputs; continuity: whether
  neighbours in the inputs are neighbours in the plane. Both are `trustworthiness` of scikit-learn
  with 15 neighbours and at most 1,000 test samples; the inputs are the first 50 principal
  components of the z-scores. "Within" are the same measures for the samples of one class, as means
  over the classes with at least 25 samples;
- border: distance in the plane between two samples of different classes that are neighbours in the
  inputs (each is among the ten nearest of the other), relative to the median distance between
  samples of the two classes;
- order: rank correlation between the distances of class means in the plane and in the inputs;
- edge: share of the training samples whose 30 nearest training samples lie on one side of them;
- area: share of the 30 × 30 squares of the plane that contain any of 1,000 training samples;
- sizes: standard deviation over the classes of log(spread in the plane / spread in the inputs); 0
  means that all classes are drawn to the same scale;
- room: share of the plane, within 99 % of the training samples, that lies in the Voronoi cells of
  the largest classes, which have at least 80 % of the training samples together;
- halves: disparity between the class means in the plane of two trainings, each with one half of the
  training samples. Classes have the square roots of their sizes as weights, and one picture may be
  moved and scaled, but not turned or mirrored (not with `--every`);
- seeds: Procrustes disparity of the embeddings of the test samples by two trainings with different
  seeds (not with `--every`);
- wrong found, with `--flipped`: share of the wrong labels whose samples lie in another Voronoi cell
  than that of their label;
- found wrong, with `--flipped`: share of the samples in another Voronoi cell whose label is wrong;
- ranked, with `--flipped`: average precision for wrong labels, if the samples are sorted by the
  probability of their label;
- seconds: processor time of one thread.

All data sets except ``digits`` and ``pbmc68k`` need the data folder.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.metrics import average_precision_score
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.preprocessing import StandardScaler

from benchmarks import datasets
from benchmarks.few import PAUL, TECH, Data, cells, outside
from benchmarks.methods import NETWORKS
from benchmarks.parts import append, expected_calibration_error
from benchmarks.rivals import classical
from benchmarks.rivals.selection import embed
from centroid_encoder import CentroidEncoder
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import class_centers, knn_predict, nearest_center

Array = NDArray[np.floating]
Codes = NDArray[np.intp]
N_DRAWS = 2
N_MEASURED = 1000
"""Largest number of test samples for trust, continuity and border."""
RIVALS = classical.SUPERVISED | classical.UNSUPERVISED
USUAL = (*get_args(Placement), "UMAP", "supervised UMAP")
"""Methods that run by default."""
TITLES = dict(
    zip(get_args(Placement), ("centroid-encoder", "centroid-encoder, bottleneck"), strict=True)
)
"""Names of the placements in tables and figures."""
EVERY = (*get_args(Placement), *NETWORKS, *RIVALS)
"""All methods with an embedding."""
RESULTS = Path(__file__).parent / "results" / "pictures.csv"
KEYS = ("set", "method", "draw")
"""Columns that identify a draw."""
COLUMNS = (
    *("decision", "cells", "neighbours", "trust", "continuity", "trust within"),
    *("continuity within", "border", "order", "edge", "area", "sizes", "seconds"),
)
"""Columns of measures in the file."""
HEADINGS = {
    "neighbours": "5-NN error, %",
    "cells": "Voronoi error, %",
    "decision": "error of predict, %",
    "likelihood": "negative log-likelihood",
    "calibration": "calibration error",
    "wrong found": "recall",
    "found wrong": "precision",
    "ranked": "average precision",
}
"""Headings of printed columns that have other names in the file."""


def pbmc68k() -> Data:
    """Return the 700 blood cells that scanpy ships, and their types."""
    import scanpy as sc

    adata = sc.datasets.pbmc68k_reduced()
    return adata.X, adata.obs["bulk_labels"].astype(str).to_numpy()


SETS: dict[str, tuple[Callable[[], Data], int, int]] = {
    "letter": (lambda: outside(datasets.letter()), 1350, 3000),
    "landsat": (lambda: outside(datasets.landsat()), 1350, 3000),
    "phoneme": (lambda: outside(datasets.phoneme()), 1350, 800),
    "usps": (datasets.usps, 700, 3000),
    "digits": (lambda: load_digits(return_X_y=True), 400, 1300),
    "mnist": (lambda: datasets.mnist()[0], 4000, 3000),
    "sonar": (datasets.sonar, 145, 63),
    "paul15": (lambda: cells(*PAUL, 240, counts=True), 1500, 800),
    "blood": (lambda: cells(*TECH, 1000), 700, 600),
    "pbmc3k": (lambda: cells("pbmc3k/pbmc3k_annotated.h5ad", "classified", 8, 2000), 1800, 800),
    "pbmc68k": (pbmc68k, 490, 210),
    "lung": (lambda: cells("vectra_6plex/cells.h5ad", "phenotype", 8, 184), 1500, 3000),
    "tumour": (
        lambda: cells("scimap_example/example_data.h5ad", "phenotype", 12, 33),
        1500,
        3000,
    ),
}
"""Function that loads the data, and numbers of training and test samples."""


def drawn(data: Data, n_train: int, n_test: int, seed: int) -> tuple[NDArray[Any], ...]:
    """Return training data and class indices, and test data and class indices, of a draw.

    Classes with fewer than five training samples are left out.
    """
    X, y = np.asarray(data[0], dtype=np.float32), np.asarray(data[1])
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    train, test = order[:n_train], order[n_train : n_train + n_test]
    names, counts = np.unique(y[train], return_counts=True)
    known = names[counts >= 5]
    train, test = (index[np.isin(y[index], known)] for index in (train, test))
    return X[train], np.searchsorted(known, y[train]), X[test], np.searchsorted(known, y[test])


CELLS = ("paul15", "blood", "pbmc3k", "pbmc68k", "lung", "tumour")
"""Data sets of cells. Here rivals get the first 50 principal components, as is usual."""


def main_axes(X: Array, X_test: Array) -> tuple[Array, Array]:
    """Return the first 50 principal components of z-scores, for training and test data."""
    z, z_test = z_scores(X, X_test)
    axes = PCA(min(50, *z.shape), random_state=0).fit(z)
    return axes.transform(z), axes.transform(z_test)


def z_scores(X: Array, X_test: Array) -> tuple[Array, Array]:
    """Return training and test data, standardised with the training data."""
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test)


def placed(
    name: str, method: str, X: Array, y: Codes, X_test: Array, seed: int, class_weight: Any = "sqrt"
) -> tuple[Array, Array, CentroidEncoder | None, Any]:
    """Return the embeddings of training and test samples, and the model and its fit.

    Rivals have None instead of model and fit.
    """
    if method in get_args(Placement):
        model = CentroidEncoder(random_state=seed, device="cpu", class_weight=class_weight)
        model.set_params(placement=method)
        fit = model.fit_codes(X, y, np.arange(y.max() + 1))
        return fit.embed(), model.transform(X_test), model, fit
    if name in CELLS:
        X, X_test = main_axes(X, X_test)
    elif method in RIVALS:
        X, X_test = z_scores(X, X_test)
    rival = NETWORKS[method](random_state=seed) if method in NETWORKS else RIVALS[method](seed)
    return *embed(rival, X, y, X_test), None, None


def evaluate(
    name: str,
    data: Data,
    n_train: int,
    n_test: int,
    seed: int,
    method: str,
    flipped: float = 0.0,
    class_weight: Any = "sqrt",
    stability: bool = True,
) -> dict[str, float]:
    """Return the measures of one draw; ``stability`` adds "seeds", from a second training."""
    X, y, X_test, y_test = drawn(data, n_train, n_test, seed)
    rng, n_classes = np.random.default_rng(seed), int(y.max()) + 1
    wrong = rng.random(len(y)) < flipped
    given = np.where(wrong, (y + rng.integers(1, n_classes, len(y))) % n_classes, y)
    inputs, inputs_test = main_axes(X, X_test)
    start = time.process_time()
    train, test, model, fit = placed(name, method, X, given, X_test, seed, class_weight)
    seconds = time.process_time() - start
    found: dict[str, float] = {}
    centers = class_centers(train, given, n_classes)
    if model is not None:
        centers = model.centers_
        found = _decisions(model, X_test, y_test)
    found["cells"] = 100 * (nearest_center(test, centers) != y_test).mean()
    found["neighbours"] = 100 * (knn_predict(train, given, test) != y_test).mean()
    found |= picture(inputs, given, train, inputs_test, y_test, test)
    found["room"] = room(train, given, centers)
    if stability:
        found["halves"] = halves(name, method, X, given, X_test, seed, class_weight)
        again = placed(name, method, X, given, X_test, seed + 100, class_weight)[1]
        found["seeds"] = procrustes(test, again)[2]
    if flipped and model is not None:
        elsewhere = nearest_center(train, centers) != given
        distances = np.concatenate([distances for _, distances in fit.judge()])
        of_label = model.calibration_.probabilities(distances)[np.arange(len(y)), given]
        found["wrong found"] = (elsewhere & wrong).sum() / max(wrong.sum(), 1)
        found["found wrong"] = (elsewhere & wrong).sum() / max(elsewhere.sum(), 1)
        found["ranked"] = average_precision_score(wrong, -of_label)
    return found | {"seconds": seconds}


def _decisions(model: CentroidEncoder, X: Array, y: Codes) -> dict[str, float]:
    """Return the measures that need class probabilities."""
    probabilities, predicted = model.predict_proba(X), model.predict(X)
    right = predicted == y
    likely = probabilities[np.arange(len(y)), y]
    return {
        "decision": 100 * (~right).mean(),
        "balanced": 100 * np.mean([1 - right[y == j].mean() for j in np.unique(y)]),
        "likelihood": -np.log(np.maximum(likely, 1e-12)).mean(),
        "calibration": expected_calibration_error(
            probabilities[np.arange(len(y)), predicted], right
        ),
    }


def picture(
    inputs: Array, y: Codes, train: Array, inputs_test: Array, y_test: Codes, test: Array
) -> dict[str, float]:
    """Return the measures that compare an embedding (``train``, ``test``) with the inputs."""
    n_classes = int(y.max()) + 1
    some = np.random.default_rng(0).permutation(len(y_test))[:N_MEASURED]
    x, places, codes = inputs_test[some], test[some], y_test[some]
    found = dict(zip(("trust", "continuity"), _kept(x, places), strict=True))
    within = [codes == j for j in range(n_classes) if (codes == j).sum() >= 25]
    if within:
        kept = np.array([_kept(x[own], places[own]) for own in within])
        means = np.average(kept, axis=0, weights=[own.sum() for own in within])
        found |= {"trust within": means[0], "continuity within": means[1]}
    graph = kneighbors_graph(x, 10).toarray() > 0
    a, b = np.nonzero(np.triu(graph & graph.T) & (codes[:, None] != codes))
    distances = cdist(places, places)
    pairs = zip(codes[a], codes[b], strict=True)
    usual = [np.median(distances[np.ix_(codes == i, codes == j)]) for i, j in pairs]
    found["border"] = float(np.mean(distances[a, b] / usual)) if len(a) else np.nan
    means, means_test = class_centers(inputs, y, n_classes), class_centers(test, y_test, n_classes)
    there = np.isfinite(means_test).all(axis=1)
    found["order"] = np.nan
    if there.sum() > 2:
        found["order"] = spearmanr(pdist(means_test[there]), pdist(means[there]))[0]
    near = NearestNeighbors(n_neighbors=30).fit(train).kneighbors(return_distance=False)
    ways = train[near] - train[:, None]
    usual_way = np.linalg.norm(ways, axis=2).mean(axis=1)
    one_sided = np.linalg.norm(ways.mean(axis=1), axis=1) > 0.6 * usual_way
    found["edge"] = one_sided.mean()
    low, high = np.quantile(train, [0.005, 0.995], axis=0)
    chosen = np.random.default_rng(0).permutation(len(train))[:1000]
    squares = np.floor(30 * (train[chosen] - low) / (high - low))
    squares = squares[((squares >= 0) & (squares < 30)).all(axis=1)]
    found["area"] = len(np.unique(squares, axis=0)) / 900
    spreads = [
        np.log(_spread(train[y == j]) / _spread(inputs[y == j]))
        for j in range(n_classes)
        if (y == j).sum() >= 5
    ]
    found["sizes"] = float(np.std(spreads))
    return found


def room(train: Array, y: Codes, centers: Array) -> float:
    """Return the share of the plane that belongs to the classes of most training samples."""
    sizes = np.bincount(y, minlength=len(centers))
    order = np.argsort(-sizes, kind="stable")
    largest = order[: 1 + np.searchsorted(sizes[order].cumsum(), 0.8 * sizes.sum())]
    low, high = np.quantile(train, [0.005, 0.995], axis=0)
    sides = np.linspace(low, high, 200).T
    squares = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    return float(np.isin(nearest_center(squares, centers), largest).mean())


def halves(
    name: str, method: str, X: Array, y: Codes, X_test: Array, seed: int, class_weight: Any
) -> float:
    """Return how much the class means differ between pictures of two halves of the samples."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
    weights, pictures = np.sqrt(np.bincount(y)), []
    for part in parts:
        train = placed(name, method, X[part], y[part], X_test, seed, class_weight)[0]
        pictures.append(class_centers(train, y[part], len(weights)))
    there = np.isfinite(pictures).all(axis=(0, 2))
    weights = (weights * there / weights[there].sum())[there][:, None]
    for i, means in enumerate(pictures):
        means = means[there] - (weights * means[there]).sum(axis=0)
        pictures[i] = means / np.sqrt((weights * np.square(means)).sum())
    return float((weights * np.square(pictures[0] - pictures[1])).sum() / 2)


def _kept(inputs: Array, places: Array) -> tuple[float, float]:
    """Return trustworthiness and continuity of an embedding."""
    n = min(15, len(places) // 2 - 1)
    return (
        trustworthiness(inputs, places, n_neighbors=n),
        trustworthiness(places, inputs, n_neighbors=n),
    )


def _spread(points: Array) -> float:
    """Return the root mean square distance of points to their mean."""
    return float(np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=1).mean()))


def main() -> None:
    """Print a row for each data set and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"data sets; default: all of {', '.join(SETS)}"
    )
    parser.add_argument(
        "--method", action="append", choices=EVERY, help=f"default: {', '.join(USUAL)}"
    )
    parser.add_argument("--every", action="store_true", help="run all methods with an embedding")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="number of draws")
    parser.add_argument(
        "--flipped", type=float, default=0.0, help="share of wrong labels among training samples"
    )
    parser.add_argument(
        "--class-weight",
        choices=("sqrt", "balanced", "none"),
        default="sqrt",
        help="class_weight of the centroid-encoder",
    )
    parser.add_argument("--results", type=Path, help="CSV file to add the draws to")
    arguments = parser.parse_args()
    weight = None if arguments.class_weight == "none" else arguments.class_weight
    torch.set_num_threads(1)
    path, heading = arguments.results, list[str]()
    done = pd.read_csv(path) if path and path.exists() else pd.DataFrame(columns=KEYS)
    for name in arguments.sets or SETS:
        load, n_train, n_test = SETS[name]
        data = load()
        for method in arguments.method or (EVERY if arguments.every else USUAL):
            rows = []
            for draw in range(arguments.first, arguments.first + arguments.draws):
                is_there = (done[list(KEYS)] == (name, method, draw)).all(axis=1)
                if is_there.any():
                    continue
                with warnings.catch_warnings():
                    # Rivals warn about their settings; the effects are part of the measures.
                    warnings.simplefilter("ignore")
                    row = evaluate(
                        name, data, n_train, n_test, draw, method, arguments.flipped, weight,
                        stability=not arguments.every,
                    )  # fmt: skip
                rows.append(row)
                if path:
                    kept = {column: row.get(column, np.nan) for column in COLUMNS}
                    append(path, {"set": name, "method": method, "draw": draw} | kept)
            if not rows:
                continue
            if not heading:
                heading = list(rows[0])
                print("| |", " | ".join(HEADINGS.get(column, column) for column in heading), "|")
                print("|---" * (len(heading) + 1) + "|")
            means = [np.mean([row.get(column, np.nan) for row in rows]) for column in heading]
            numbers = [f"{mean:.1f}" if mean >= 1 else f"{mean:.3f}" for mean in means]
            numbers = ["" if text == "nan" else text for text in numbers]
            print(f"| {name}, {method} |", " | ".join(numbers), "|", flush=True)


if __name__ == "__main__":
    main()
