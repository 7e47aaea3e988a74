"""Which cells to label next: typical ones first, then those between two classes."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from centroid_encoder.core.features import fit_standardizer, principal_axes
from centroid_encoder.core.matrix import Codes, Matrix, row_chunks

Reason = Literal["typical", "unsure", "novel"]

N_AXES = 20
N_SAMPLE = 2_000
"""Cells from which the axes are computed, at most."""
CLIP = 10
"""Largest absolute z-score."""
PER_CLASS, FEW = 4, 20
"""Labels per class, on average, and labels in all, up to which typical cells are chosen."""
MOST_CLUSTERS = 500
N_NEIGHBORS = 20
"""Neighbours in the cluster by which a cell is typical (Hacohen et al. 2022)."""
SMALL = 5
"""Clusters of fewer cells come last, since they are often outliers."""
LARGE = 5_000
"""Cells above which clusters are found by batches."""
N_CANDIDATES = 3
"""Cells with small margins from which one is chosen."""
NOVEL = 0.99
"""Novelty from which on a cell may be of a class without a label."""
EVERY = 10
"""One in so many of the chosen cells is novel, if there are novel ones."""

Mask = NDArray[np.bool_]
Floats = NDArray[np.floating]


def principal_points(X: Matrix) -> NDArray[np.float32]:
    """(N, k) principal components of the z-scores of (N, d) finite data, 20 at most."""
    rows = np.arange(X.shape[0])
    codes = np.zeros_like(rows)
    standardizer = fit_standardizer(X, rows, codes, "feature", CLIP, None)[0]
    sample = np.random.default_rng(0).permutation(rows)[:N_SAMPLE]
    axes, _ = principal_axes(standardizer(X[np.sort(sample)]), N_AXES)
    return torch.cat([standardizer(chunk) @ axes.T for _, chunk in row_chunks(X)]).numpy()


def choose(
    points: Floats,
    is_labelled: Mask,
    groups: Codes,
    n: int,
    probabilities: Floats | None,
    novelty: Floats | None,
    seed: int,
) -> tuple[Codes, list[Reason]]:
    """Choose cells without a label, the most useful first, and the reason for each.

    Up to `FEW` labels, and `PER_CLASS` per class, the cells are `typical`, and from then on
    `unsure`: with few labels, cells between two classes of a bad map teach little (Hacohen et al.
    2022).

    Parameters
    ----------
    points
        (N, k) features of all cells.
    is_labelled
        (N,) cells that have a label.
    groups
        (N,) image of each cell; the chosen cells are spread over them.
    n
        Number of cells that are wanted; there are fewer if all others are labelled.
    probabilities
        (N, M) probabilities of the classes of a map; None without a map.
    novelty
        (N,) novelty; None without one.
    seed
        Seed of the choice.
    """
    n_classes = 0 if probabilities is None else probabilities.shape[1]
    if probabilities is None or is_labelled.sum() < max(FEW, PER_CLASS * n_classes):
        rows = typical(points, is_labelled, groups, n, seed)
        return rows, ["typical"] * len(rows)
    free = np.flatnonzero(~is_labelled)
    new = np.empty(0, dtype=np.intp)
    if novelty is not None:
        order = free[np.argsort(-novelty[free], kind="stable")]
        new = order[novelty[order] >= NOVEL][: n // EVERY]
    free = np.setdiff1d(free, new)
    two = np.partition(probabilities[free], -2, axis=1)[:, -2:]
    chosen = unsure(points[free], two[:, 1] - two[:, 0], groups[free], n - len(new), seed)
    at = (EVERY - 1) * np.arange(1, len(new) + 1)
    at = np.minimum(at, len(chosen))
    reasons = np.insert(np.full(len(chosen), "unsure", dtype=object), at, "novel")
    return np.insert(free[chosen], at, new), reasons.tolist()


def typical(points: Floats, is_labelled: Mask, groups: Codes, n: int, seed: int) -> Codes:
    """Rows of typical cells in parts of the data without a label, those of large parts first.

    TypiClust (Hacohen, Dekel & Weinshall 2022): k-means with as many clusters as there will be
    labels; from the clusters with the fewest labels, the largest first, the cell with the smallest
    mean distance to its neighbours in the cluster. Parameters are those of `choose`.
    """
    n = min(n, int((~is_labelled).sum()))
    if not n:
        return np.empty(0, dtype=np.intp)
    n_clusters = min(int(is_labelled.sum()) + n, MOST_CLUSTERS, len(points))
    kind = MiniBatchKMeans if len(points) > LARGE else KMeans
    with warnings.catch_warnings():
        # Equal cells make fewer clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = kind(n_clusters, n_init=1, random_state=seed).fit_predict(points)
    members = [np.flatnonzero(clusters == c) for c in range(n_clusters)]
    sizes = np.array([len(rows) for rows in members])
    n_labels = np.bincount(clusters[is_labelled], minlength=n_clusters).astype(float)
    is_free, of_group, chosen = ~is_labelled, np.zeros(groups.max() + 1), list[int]()
    while len(chosen) < n:
        order = np.lexsort((-sizes, n_labels, sizes < SMALL, np.isinf(n_labels)))
        for cluster in order[: n - len(chosen)]:
            rows = members[cluster][is_free[members[cluster]]]
            if not len(rows):
                n_labels[cluster] = np.inf
                continue
            served = of_group[groups[rows]]
            rows = rows[served == served.min()]
            row = rows[_neighbor_distances(points[members[cluster]], points[rows]).argmin()]
            chosen.append(row)
            is_free[row] = False
            n_labels[cluster] += 1
            of_group[groups[row]] += 1
    return np.array(chosen, dtype=np.intp)


def _neighbor_distances(cluster: Floats, points: Floats) -> Floats:
    """(n,) mean distance of points of a cluster to their nearest neighbours in it."""
    n = min(N_NEIGHBORS + 1, len(cluster))
    distances, _ = NearestNeighbors(n_neighbors=n).fit(cluster).kneighbors(points)
    means: Floats = distances.mean(axis=1)
    return means


def unsure(points: Floats, margins: Floats, groups: Codes, n: int, seed: int) -> Codes:
    """Rows of cells between two classes, spread over the features; the least margin first.

    k-means++ chooses n cells that are far from each other, so that no two answers teach the same,
    from the `N_CANDIDATES` · n cells with the smallest margins, as many of each image.

    Parameters
    ----------
    points, groups
        (N, k) features and (N,) images of cells without a label.
    margins
        (N,) probability of the likeliest class minus that of the runner-up.
    n, seed
        As for `choose`.
    """
    n = min(n, len(points))
    if not n:
        return np.empty(0, dtype=np.intp)
    order = np.argsort(margins, kind="stable")
    # Place of each cell among those of its image.
    by_group = order[np.argsort(groups[order], kind="stable")]
    counts = np.bincount(groups)
    place = np.empty(len(points), dtype=np.intp)
    place[by_group] = np.arange(len(points)) - np.repeat(np.cumsum(counts) - counts, counts)
    candidates = order[np.argsort(place[order], kind="stable")][: N_CANDIDATES * n]
    # A map of few labels can be sure of all cells, and not all weights may be 0.
    weights = 1 - margins[candidates].astype(np.float64) + np.finfo(np.float32).eps
    _, found = kmeans_plusplus(
        points[candidates].astype(np.float64), n, sample_weight=weights, random_state=seed
    )
    # Equal cells can be found twice.
    found = np.unique(found)
    others = np.setdiff1d(np.arange(len(candidates)), found)[: n - len(found)]
    rows: Codes = candidates[np.concatenate([found, others])]
    return rows[np.argsort(margins[rows], kind="stable")]
