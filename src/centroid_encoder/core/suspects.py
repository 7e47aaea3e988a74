"""Which labels look wrong, judged by networks that were not trained on them.

A wrong label is as improbable for its cell as for the other cells of the true class. Half of the
wrong labels are therefore at most as probable as is typical (the median) of these cells, whereas
labels of cells between two classes are nearly always more probable. Among the cells labelled i and
predicted to be j, twice the number of those that are at most as probable as is typical are taken to
be wrong. Thresholds are thus relative to each class, as in confident learning (Northcutt, Jiang &
Chuang, Journal of Artificial Intelligence Research 70, 2021); unlike there, they are those of the
given label and the predicted class together, so that classes that overlap are not listed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

P_VALUE = 0.01  # largest p value of Fisher's test that two classes are told apart
DEVIATIONS = 4.0  # by which agreements must exceed those of shuffled labels

Codes = NDArray[np.intp]
Floats = NDArray[np.floating]


def typical_probabilities(probabilities: Floats, labels: Codes, predicted: Codes) -> Floats:
    """(M, M) medians of (n, M) probabilities; 0 for classes without such cells.

    Row j has the medians over the cells that are labelled j and predicted to be j.
    """
    table = np.zeros((probabilities.shape[1],) * 2)
    for j in np.unique(labels[labels == predicted]):
        table[j] = np.median(probabilities[(labels == j) & (predicted == j)], axis=0)
    return table


def suspects(
    labels: Codes, predicted: Codes, own: Floats, typical: Floats
) -> tuple[NDArray[np.intp], str]:
    """Return the cells whose label looks wrong, worst first, and the reason if there are none.

    Parameters
    ----------
    labels, predicted
        (n,) given labels and predicted classes.
    own
        (n,) probabilities of the given labels.
    typical
        The result of `typical_probabilities`.

    Returns
    -------
    Indices of cells, sorted by the geometric mean of the probability of the label and its ratio to
    the typical one; and ``"chance"``, ``"agree"``, ``"confused"``, ``"between"`` or ``""``.
    """
    n, (n_classes, _), none = len(labels), typical.shape, np.empty(0, dtype=np.intp)
    confusion = np.zeros((n_classes, n_classes))
    np.add.at(confusion, (labels, predicted), 1)
    size, n_predicted, right = confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)
    # Mean and variance of the number of agreements if the labels were shuffled.
    both = size * n_predicted
    spread = (both * (n - size) * (n - n_predicted)).sum() + both.sum() ** 2 - (both**2).sum()
    deviation = np.sqrt(spread / max(n, 1) ** 2 / max(n - 1, 1))
    if right.sum() - both.sum() / max(n, 1) <= DEVIATIONS * deviation:
        return none, "chance"
    differs = np.flatnonzero(labels != predicted)
    if not len(differs):
        return none, "agree"
    # Fisher's exact test: is j predicted more often for the cells of j than for those of i?
    i, j = labels[differs], predicted[differs]
    p = hypergeom.sf(right[j] - 1, size[i] + size[j], right[j] + confusion[i, j], size[j])
    told_apart = np.asarray(p < P_VALUE)
    if not told_apart.any():
        return none, "confused"
    rows, pair = differs[told_apart], (i * n_classes + j)[told_apart]
    usual = np.maximum(typical[predicted[rows], labels[rows]], 1e-30)
    _, pair, n_of_pair = np.unique(pair, return_inverse=True, return_counts=True)
    n_low = np.bincount(pair, own[rows] <= usual)
    n_wrong = int(np.minimum(2 * n_low, n_of_pair).sum())
    order = np.argsort(own[rows] / np.sqrt(usual), kind="stable")
    return rows[order[:n_wrong]], "" if n_wrong else "between"
