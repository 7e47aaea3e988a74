"""Which labels look wrong, judged by models that were not trained on them.

A wrong label is as improbable for its cell as for the other cells of the true class, whereas labels
of cells between two classes are nearly always more probable. The notes of `tl.mislabeled` have the
rule and its sources.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from scipy.stats import hypergeom

from centroid_encoder.core.arrays import Codes, Doubles, Floats
from centroid_encoder.core.discriminant import Discriminant
from centroid_encoder.core.inputs import Standardizer, principal_axes, project
from centroid_encoder.core.matrix import row_chunks
from centroid_encoder.core.splits import at_most

P_VALUE = 0.01  # largest p value, over all pairs (Bonferroni), that two classes are told apart
SHARES = 0.4, 0.5, 0.6  # of the wrong labels, at most as probable as these quantiles
PRIOR = 10  # cells of all pairs that are added to those of each pair
N_KNOWN = 10_000  # largest number of samples of the discriminant analysis
N_AXES = 50


def linear_probabilities(
    X: Any, standardizer: Standardizer, known: Codes, codes: Codes, rows: Codes, n_classes: int
) -> Doubles:
    """(q, M) probabilities of the classes for q rows of X by a linear discriminant analysis.

    It is fitted to the `known` rows; `codes` holds the classes of all rows. The points are weighted
    z-scores on their principal axes.
    """
    known = at_most(N_KNOWN, known)
    z = torch.cat([standardizer(chunk) for _, chunk in row_chunks(X, known)])
    axes, _ = principal_axes(z - z.mean(dim=0), N_AXES)
    classes, index, sizes = np.unique(codes[known], return_inverse=True, return_counts=True)
    linear, found = Discriminant.fit(z, axes, index, len(classes)), np.zeros((len(rows), n_classes))
    for part, chunk in row_chunks(X, rows):
        distances = linear.distances(project(standardizer(chunk), linear.axes))
        found[part, classes] = softmax(np.log(sizes) - distances, axis=1)
    return found


def joined(first: Floats, second: Floats) -> Doubles:
    """(n, M) geometric means of two sets of (n, M) probabilities, with sums of 1."""
    means = np.sqrt((first + 1e-9) * (second + 1e-9))
    return np.asarray(means / means.sum(axis=1, keepdims=True))


def suspects(labels: Codes, probabilities: Floats) -> tuple[Floats, Codes, str]:
    """Return the doubt about each label, the probable classes, and the reason if there is no doubt.

    Parameters
    ----------
    labels
        (n,) given labels.
    probabilities
        (n, M) probabilities of the classes, by models that were not trained on the cell.

    Returns
    -------
    (n,) ranks of the labels that look wrong, from 1 for the worst to near 0, and 0 for the others;
    (n,) most probable classes if labels are wrong as often as estimated; ``"agree"``,
    ``"confused"``, ``"between"`` or ``""``.
    """
    predicted = probabilities.argmax(axis=1)
    doubt, wrong, reason = _doubts(labels, probabilities, predicted)
    if not wrong.any():
        return doubt, predicted, reason
    # The probabilities are those of labels, right or wrong: rates[j, i] is the probability that a
    # cell of class j has label i.
    n_true = np.bincount(labels, minlength=len(wrong)) - wrong.sum(axis=1) + wrong.sum(axis=0)
    rates = wrong.T / np.maximum(n_true, 1)[:, None]
    np.fill_diagonal(rates, 1 - rates.sum(axis=1))
    predicted = (probabilities @ np.linalg.pinv(rates)).argmax(axis=1)
    doubt, _, reason = _doubts(labels, probabilities, predicted)
    return doubt, predicted, reason


def _doubts(labels: Codes, probabilities: Floats, predicted: Codes) -> tuple[Floats, Doubles, str]:
    """Return the doubt and the reason of `suspects`, given (n,) probable classes.

    The second of three results is the (M, M) number of cells with label i that are of class j.
    """
    n_classes, doubt = probabilities.shape[1], np.zeros(len(labels))
    confusion, wrong = np.zeros((2, n_classes, n_classes))
    differs = np.flatnonzero(labels != predicted)
    if not len(differs):
        return doubt, wrong, "agree"
    np.add.at(confusion, (labels, predicted), 1)
    size, right = confusion.sum(axis=1), np.diag(confusion)
    i, j = labels[differs], predicted[differs]
    # Fisher's exact test: is j predicted more often for the cells of j than for those of i?
    p = hypergeom.sf(right[j] - 1, size[i] + size[j], right[j] + confusion[i, j], size[j])
    pairs = i * n_classes + j
    told_apart = np.asarray(p < P_VALUE / len(np.unique(pairs)))
    if not told_apart.any():
        return doubt, wrong, "confused"
    rows, pair = differs[told_apart], pairs[told_apart]
    own, usual = probabilities[rows, labels[rows]], np.full((len(SHARES), len(rows)), 1e-30)
    for j in np.unique(predicted[rows]):
        of_class = np.quantile(probabilities[(labels == j) & (predicted == j)], SHARES, axis=0)
        into = predicted[rows] == j
        usual[:, into] = np.maximum(of_class[:, labels[rows[into]]], 1e-30)
    found, pair, n_of_pair = np.unique(pair, return_inverse=True, return_counts=True)
    estimates = [
        np.bincount(pair, low) / part for low, part in zip(own <= usual, SHARES, strict=True)
    ]
    *sums, most = (np.bincount(found % n_classes, n) for n in (*estimates, n_of_pair))
    totals = np.minimum(sums, most).sum(axis=1)
    n_listed, n_wrong = int(totals.max()), np.minimum(estimates[totals.argmax()], n_of_pair)
    share = n_wrong.sum() / len(rows)
    odds = (n_wrong + PRIOR * share) / (n_of_pair - n_wrong + PRIOR * (1 - share) + 1e-9)
    order = np.argsort(own / np.sqrt(usual[1]) / np.maximum(odds, 1e-9)[pair], kind="stable")
    doubt[rows[order[:n_listed]]] = 1 - np.arange(n_listed) / max(n_listed, 1)
    wrong.flat[found] = n_wrong
    return doubt, wrong, "" if n_listed else "between"
