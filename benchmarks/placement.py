"""The bottleneck's places and those in Voronoi cells, on draws that no table of errors tests.

    python -m benchmarks.placement                     # two draws of ten data sets
    python -m benchmarks.placement letter paul15       # of some
    python -m benchmarks.placement digits --flipped 0.1  # a tenth of the training labels is wrong
    python -m benchmarks.placement blood --class-weight none  # all samples count alike

Prints for each data set and placement, as means over the draws:

- error of test samples by five neighbours, by Voronoi cells and by the model's own decision, %;
- balanced: mean of the classes' errors by the latter, %;
- negative log-likelihood and expected calibration error of the probabilities, of samples that
  neither trained nor calibrated;
- within: how well neighbours within a class are kept (trustworthiness of the test samples' places,
  against their standardised features; ten neighbours, classes of 25 samples or more);
- order: rank correlation of the distances of classes in the plane with those of their centroids;
- spread: median distance of training samples to the mean of their class, over the median distance
  of a class to its nearest one;
- seeds: Procrustes disparity of the test samples' places of two seeds;
- with ``--flipped``, the share of the wrong labels whose samples lie in another cell, the share of
  those in another cell whose label is wrong, and ranked: average precision of the samples in order
  of the probability of their label;
- seconds of processor time, one thread.

Needs the data folder for all but ``digits``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist, pdist
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness
from sklearn.metrics import average_precision_score

from benchmarks import datasets
from benchmarks.few import PAUL, TECH, Data, cells, outside
from centroid_encoder import CentroidEncoder
from centroid_encoder.core.calibration import expected_calibration_error
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import class_centers, knn_predict

N_DRAWS = 2
SETS: dict[str, tuple[Callable[[], Data], int, int]] = {
    "letter": (lambda: outside(datasets.letter()), 1350, 3000),
    "landsat": (lambda: outside(datasets.landsat()), 1350, 3000),
    "phoneme": (lambda: outside(datasets.phoneme()), 1350, 800),
    "usps": (datasets.usps, 700, 3000),
    "digits": (lambda: load_digits(return_X_y=True), 400, 1300),
    "sonar": (datasets.sonar, 145, 63),
    "paul15": (lambda: cells(*PAUL, 240, counts=True), 1500, 800),
    "blood": (lambda: cells(*TECH, 1000), 700, 600),
    "lung": (lambda: cells("vectra_6plex/cells.h5ad", "phenotype", 8, 184), 1500, 3000),
    "tumour": (
        lambda: cells("scimap_example/example_data.h5ad", "phenotype", 12, 33),
        1500,
        3000,
    ),
}
"""Data, and the numbers of training and test samples."""


def drawn(data: Data, n_train: int, n_test: int, seed: int) -> tuple[NDArray[Any], ...]:
    """Return training data and codes, and test data and codes, of classes of five at least."""
    X, y = np.asarray(data[0], dtype=np.float32), np.asarray(data[1])
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    train, test = order[:n_train], order[n_train : n_train + n_test]
    names, counts = np.unique(y[train], return_counts=True)
    known = names[counts >= 5]
    train, test = (index[np.isin(y[index], known)] for index in (train, test))
    return X[train], np.searchsorted(known, y[train]), X[test], np.searchsorted(known, y[test])


def evaluate(
    data: Data, n_train: int, n_test: int, seed: int, flipped: float, **params: Any
) -> dict[str, float]:
    """Return the numbers of one draw."""
    X, y, X_test, y_test = drawn(data, n_train, n_test, seed)
    rng, n_classes = np.random.default_rng(seed), int(y.max()) + 1
    wrong = rng.random(len(y)) < flipped
    y_given = np.where(wrong, (y + rng.integers(1, n_classes, len(y))) % n_classes, y)
    start = time.process_time()
    model = CentroidEncoder(random_state=seed, device="cpu", **params)
    fit = model.fit_codes(X, y_given, np.arange(n_classes))
    seconds = time.process_time() - start
    embedding, placed, known = fit.embed(), model.transform(X), model.transform(X_test)
    inputs = model.fitted_map.standardizer(X).numpy().astype(np.float64)
    centroids = np.stack([inputs[y_given == j].mean(axis=0) for j in range(n_classes)])
    centers = class_centers(placed, y_given, n_classes)
    probabilities = model.predict_proba(X_test)
    right = probabilities.argmax(axis=1) == y_test
    of_classes = [1 - right[y_test == j].mean() for j in np.unique(y_test)]
    other = CentroidEncoder(random_state=seed + 100, device="cpu", **params).fit(X, y_given)
    own = np.linalg.norm(placed - centers[y_given], axis=1)
    apart = cdist(centers, centers) + np.diag(np.full(n_classes, np.inf))
    found = cdist(embedding, model.centers_).argmin(axis=1) != y_given
    distances = np.concatenate([distances for _, distances in fit.judge()])
    of_label = model.calibration_.probabilities(distances)[np.arange(len(y)), y_given]
    likely = probabilities[np.arange(len(y_test)), y_test]
    return {
        "neighbours": 100 * (knn_predict(placed, y_given, known) != y_test).mean(),
        "cells": 100 * (model.predict_voronoi(X_test) != y_test).mean(),
        "decision": 100 * (~right).mean(),
        "balanced": 100 * np.mean(of_classes),
        "likelihood": -np.log(np.maximum(likely, 1e-12)).mean(),
        "calibration": expected_calibration_error(probabilities.max(axis=1), right),
        "within": _within(model.fitted_map.standardizer(X_test).numpy(), known, y_test),
        "order": spearmanr(pdist(centers), pdist(centroids))[0] if n_classes > 2 else np.nan,
        "spread": np.median(own) / np.median(apart.min(axis=1)),
        "seeds": procrustes(known, other.transform(X_test))[2],
        "wrong found": (found & wrong).sum() / max(wrong.sum(), 1) if flipped else np.nan,
        "found wrong": (found & wrong).sum() / max(found.sum(), 1) if flipped else np.nan,
        "ranked": average_precision_score(wrong, -of_label) if flipped else np.nan,
        "seconds": seconds,
    }


def _within(inputs: NDArray[Any], places: NDArray[Any], codes: NDArray[np.intp]) -> float:
    kept = n = 0.0
    for j in np.unique(codes):
        of_class = np.flatnonzero(codes == j)[:400]
        if len(of_class) >= 25:
            kept += len(of_class) * trustworthiness(
                inputs[of_class], places[of_class], n_neighbors=10
            )
            n += len(of_class)
    return kept / n if n else np.nan


def main() -> None:
    """Print a row for each data set and placement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # An empty list of choices is all of them.
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--flipped", type=float, default=0.0)
    parser.add_argument("--class-weight", choices=("sqrt", "balanced", "none"), default="sqrt")
    arguments = parser.parse_args()
    params = {"class_weight": None if arguments.class_weight == "none" else arguments.class_weight}
    torch.set_num_threads(1)
    heading = None
    for name in arguments.sets or SETS:
        load, n_train, n_test = SETS[name]
        data = load()
        for placement in get_args(Placement):
            rows = [
                evaluate(
                    data, n_train, n_test, seed, arguments.flipped, placement=placement, **params
                )
                for seed in range(N_DRAWS)
            ]
            if heading is None:
                heading = [column for column in rows[0] if not np.isnan(rows[0][column])]
                print("| |", " | ".join(heading), "|")
                print("|---" * (len(heading) + 1) + "|")
            means = [np.mean([row[column] for row in rows]) for column in heading]
            numbers = [f"{mean:.1f}" if mean >= 1 else f"{mean:.3f}" for mean in means]
            print(f"| {name}, {placement} |", " | ".join(numbers), "|", flush=True)


if __name__ == "__main__":
    main()
