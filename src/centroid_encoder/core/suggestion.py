"""Choice of the cells to label next: typical cells first, then cells between two classes."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from centroid_encoder.core.arrays import Codes, Floats, Mask, Singles
from centroid_encoder.core.inputs import NONE, fit_standardizer, principal_axes
from centroid_encoder.core.matrix import Matrix, row_chunks

Reason = Literal["typical", "unsure", "novel"]

N_AXES = 20
N_SAMPLE = 2_000  # largest number of cells from which the axes are computed
CLIP = 10  # largest absolute z-score
# With fewer labels than these, per class or in all, typical cells are chosen.
PER_CLASS, FEW = 4, 20
MOST_CLUSTERS = 500
N_NEIGHBORS = 20  # of a cell in its cluster; a typical cell has a small mean distance to them
SMALL = 5  # clusters of fewer cells come last, since they are often outliers
LARGE = 5_000  # with more cells, k-means works in batches
N_CANDIDATES = 3  # number of candidates for each cell that is chosen
NOVEL = 0.99  # novelty above which a cell may be of a class without a label
EVERY = 10  # if there are novel cells, one of every ten chosen cells is novel


def principal_points(X: Matrix) -> Singles:
    """(N, k) principal components of the z-scores of (N, d) finite data, with k ≤ 20."""
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
    """Choose cells without a label, the most useful first, and return the reason for each.

    With fewer than `FEW` labels, or `PER_CLASS` per class, the cells are `typical`, and otherwise
    `unsure`. With few labels the map is bad, and cells between its classes are not useful (Hacohen
    et al. 2022).

    There are (N, k) features `points` of all cells, an (N,) mask of those with a label, the (N,)
    images `groups`, over which the chosen cells are spread, and from a map, if there is one, (N, M)
    probabilities and (N,) novelty. All cells are chosen if fewer than `n` have no label.
    """
    n_classes = 0 if probabilities is None else probabilities.shape[1]
    if probabilities is None or is_labelled.sum() < max(FEW, PER_CLASS * n_classes):
        rows = typical(points, is_labelled, groups, n, seed)
        return rows, ["typical"] * len(rows)
    free = np.flatnonzero(~is_labelled)
    new = NONE
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
    """Rows of typical cells from clusters with few labels; cells of large clusters come first.

    The method is TypiClust (Hacohen, Dekel & Weinshall 2022). k-means finds as many clusters as
    there will be labels. They are visited by their number of labels, fewest first, and then by
    size, largest first. In each, the cell with the smallest mean distance to its neighbours is
    chosen. Parameters are those of `choose`.
    """
    n = min(n, int((~is_labelled).sum()))
    n_clusters = min(int(is_labelled.sum()) + n, MOST_CLUSTERS, len(points))
    kind = MiniBatchKMeans if len(points) > LARGE else KMeans
    with warnings.catch_warnings():
        # With equal cells, k-means finds fewer clusters and warns; that does not matter here.
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
            of_cluster = points[members[cluster]]
            knn = NearestNeighbors(n_neighbors=min(N_NEIGHBORS + 1, len(of_cluster)))
            distances, _ = knn.fit(of_cluster).kneighbors(points[rows])
            row = rows[distances.mean(axis=1).argmin()]
            chosen.append(row)
            is_free[row] = False
            n_labels[cluster] += 1
            of_group[groups[row]] += 1
    return np.array(chosen, dtype=np.intp)


def in_turn(groups: Codes) -> Codes:
    """Order of (n,) samples: the first one of each group, then the second ones, and so on."""
    by_group, counts = np.argsort(groups, kind="stable"), np.bincount(groups)
    place = np.empty_like(by_group)
    place[by_group] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.argsort(place, kind="stable")


def unsure(points: Floats, margins: Floats, groups: Codes, n: int, seed: int) -> Codes:
    """Rows of cells that lie between two classes; those with the smallest margins come first.

    The candidates are the `N_CANDIDATES` · n cells with the smallest margins, with equal numbers
    from all images. k-means++ chooses n of them whose features are far from each other, so that
    each new label adds information.

    `points` and `groups` hold the (N, k) features and (N,) images of cells without a label, and
    `margins` the (N,) probabilities of the most probable class minus those of the second.
    """
    n = min(n, len(points))
    if not n:
        return NONE
    order = np.argsort(margins, kind="stable")
    candidates = order[in_turn(groups[order])][: N_CANDIDATES * n]
    # With few labels all margins can be 1, but k-means++ fails if all weights are 0.
    weights = 1 - margins[candidates].astype(np.float64) + np.finfo(np.float32).eps
    _, found = kmeans_plusplus(
        points[candidates].astype(np.float64), n, sample_weight=weights, random_state=seed
    )
    # k-means++ can choose equal cells twice; other candidates take their place.
    found = np.unique(found)
    others = np.setdiff1d(np.arange(len(candidates)), found)[: n - len(found)]
    rows: Codes = candidates[np.concatenate([found, others])]
    return rows[np.argsort(margins[rows], kind="stable")]
