"""How far groups of rows differ in each feature: areas under the ROC curve and means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.utils import gen_batches

from centroid_encoder.core.matrix import VALUES_AT_ONCE, Codes, Lazy, Matrix, is_sparse, row_chunks

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Effects:
    """Differences of G groups to their references: (G, d) arrays.

    Missing values are left out. NaN where a group or its reference has no value.
    """

    auroc: Doubles
    """Probability that a row of the group has a larger value than one of the reference; equal
    values count half (Mann & Whitney 1947)."""
    difference: Doubles
    """Difference of the means divided by the pooled standard deviation (Cohen's d)."""
    mean: Doubles
    mean_rest: Doubles
    positive: Doubles
    """Share of the values of the group that are above 0."""
    positive_rest: Doubles


def effects(X: Matrix | Lazy, codes: Codes, n_groups: int, reference: int | None = None) -> Effects:
    """Compare groups of the rows of (n, d) data, each to all others or to one of them.

    `codes` holds the (n,) groups, −1 for rows that are left out. Rows are ranked once for all
    groups, and zeros are counted, not sorted.
    """
    if reference is not None and n_groups > 2:
        # The ranks of a pair do not depend on other groups.
        pairs = [
            effects(X, np.select([codes == j, codes == reference], [0, 1], -1), 2)
            for j in range(n_groups)
        ]
        first = ([getattr(pair, field.name)[0] for pair in pairs] for field in fields(Effects))
        return Effects(*map(np.stack, first))
    sums = np.zeros((5, n_groups, X.shape[1]))
    used = np.flatnonzero(codes >= 0)
    codes = codes[used]
    sizes = np.bincount(codes, minlength=n_groups)
    for part, block in _blocks(X, used):
        for j in range(part.start, part.stop):
            values, rows = _column(block, j - part.start)
            sums[:, :, j] = _sums(values, codes[rows], sizes)
    return Effects(*_compared(*sums))


def _blocks(X: Matrix | Lazy, used: Codes) -> Iterator[tuple[slice, Any]]:
    """Read some rows of blocks of columns; a sparse matrix is one block."""
    if is_sparse(X):
        rows: Any = X[used]
        rows.sum_duplicates()
        yield slice(0, X.shape[1]), rows.tocsc()
        return
    for part in gen_batches(X.shape[1], max(1, 4 * VALUES_AT_ONCE // max(len(used), 1))):
        chunks: Any = (x for _, x in row_chunks(X, used))
        yield part, np.concatenate([x[:, part] for x in chunks])


def _column(block: Any, j: int) -> tuple[Doubles, Codes]:
    """Values of a column that are not 0, and their rows."""
    if not isinstance(block, np.ndarray):
        part = slice(*block.indptr[j : j + 2])
        values, rows = block.data[part], block.indices[part]
    else:
        values, rows = block[:, j], np.arange(len(block))
    kept = values != 0
    return values[kept].astype(np.float64), rows[kept]


def _sums(values: Doubles, codes: Codes, sizes: Codes) -> NDArray[np.float64]:
    """(5, G) numbers of values, sums of ranks and values, squares, and numbers above 0.

    The squares are those of the differences to the mean of the column. `values` are those that are
    not 0, `codes` their groups, and `sizes` the (G,) numbers of rows.
    """

    def add(codes: Codes, weights: Any = None) -> Any:
        return np.bincount(codes, weights, len(sizes))

    known = np.isfinite(values)
    n = sizes - add(codes[~known])
    values, codes = values[known], codes[known]
    n_zeros = n - add(codes)
    ranks = rankdata(values) + np.where(values > 0, n_zeros.sum(), 0)
    of_zero = (values < 0).sum() + (n_zeros.sum() + 1) / 2
    ranks = add(codes, ranks) + n_zeros * of_zero
    mean = values.sum() / max(n.sum(), 1)
    squares = add(codes, np.square(values - mean)) + n_zeros * mean**2
    return np.array([n, ranks, add(codes, values), squares, add(codes[values > 0])])


@np.errstate(invalid="ignore", divide="ignore")
def _compared(
    n: Doubles, ranks: Doubles, total: Doubles, squares: Doubles, above: Doubles
) -> tuple[Doubles, ...]:
    """Fields of `Effects`, each group against all others, from (G, d) sums."""
    n_rest, rest = n.sum(axis=0) - n, total.sum(axis=0) - total
    auroc = (ranks - n * (n + 1) / 2) / (n * n_rest)
    mean, mean_rest = total / n, rest / n_rest
    middle = total.sum(axis=0) / n.sum(axis=0)
    within = squares.sum(axis=0) - n * np.square(mean - middle)
    within -= n_rest * np.square(mean_rest - middle)
    deviation = np.sqrt(np.maximum(within, 0) / (n + n_rest - 2))
    apart = mean - mean_rest
    # Rounding errors of the means are no difference.
    is_none = np.abs(apart) <= 1e-12 * np.abs(middle)
    difference = np.where(is_none, apart * 0, apart / deviation)
    positive_rest = (above.sum(axis=0) - above) / n_rest
    return auroc, difference, mean, mean_rest, above / n, positive_rest
