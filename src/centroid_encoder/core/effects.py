"""How far groups of rows differ in each feature: areas under the ROC curve and means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import rankdata
from sklearn.utils import gen_batches

from centroid_encoder.core.arrays import Codes, Doubles, Mask
from centroid_encoder.core.matrix import Lazy, Matrix, is_sparse, row_chunks

BYTES_AT_ONCE = 2**32
"""Largest size of the columns of a matrix in a file that are in memory at the same time."""
PARTS = 8
"""Number of parts in which the columns of a matrix in memory are copied."""
ALIKE = 0.7
"""Least rank correlation within the groups of two features that count as alike."""


def effects(
    X: Matrix | Lazy,
    codes: Codes,
    n_groups: int,
    reference: int | None = None,
    step: Callable[[], object] = lambda: None,
) -> dict[str, Doubles]:
    """Compare groups of the rows of (n, d) data, each to all others or to one of them.

    `codes` holds the (n,) groups, −1 for rows that are left out. Each value is read once for all
    groups, and zeros are counted, not sorted. `step` is called after each feature.

    Returns (G, d) arrays: ``auroc``, the probability that a row of the group has a larger value
    than one of the reference, where equal values count half (Mann & Whitney 1947);
    ``difference``, that of the means divided by the pooled standard deviation (Cohen's d); and,
    for group and reference, ``mean``, ``mean_rest``, and the shares of values above 0,
    ``positive``, ``positive_rest``. Missing values are left out. NaN where a group or its reference
    has no value.
    """
    sums = np.zeros((5, n_groups, X.shape[1]))
    used = np.flatnonzero(codes >= 0)
    codes = codes[used]
    sizes = np.bincount(codes, minlength=n_groups)
    for j, values, rows in _columns(X, used):
        sums[:, :, j] = _sums(values, codes[rows], sizes, reference)
        step()
    return _compared(sums, reference)


def _columns(X: Matrix | Lazy, used: Codes) -> Iterator[tuple[int, Doubles, Codes]]:
    """Yield the number of each column, its values that are not 0 in some rows, and their rows."""
    n, d, n_parts = len(used), X.shape[1], PARTS
    if isinstance(X, Lazy):
        size = d * X.dtype.itemsize
        if X.is_sparse:
            # A part is in memory by rows and by columns, with an index for each value.
            some: Any = X[: min(200, X.shape[0])]
            size = 2 * (X.dtype.itemsize + 8) * some.nnz // len(some.indptr)
        n_parts = -(-n * size // BYTES_AT_ONCE)
    for part in gen_batches(d, -(-d // max(1, n_parts))):
        for j, (values, rows) in enumerate(_read_columns(X, used, part)):
            kept = values != 0
            yield part.start + j, values[kept].astype(np.float64), rows[kept]


def _read_columns(X: Matrix | Lazy, used: Codes, part: slice) -> Iterator[tuple[Any, Codes]]:
    """Yield the stored values of each column of a part, and their rows."""
    if not is_sparse(X):
        block: Any = np.empty((len(used), part.stop - part.start), X.dtype)
        for rows, x in row_chunks(X, used):
            block[rows] = x[:, part]
        every = np.arange(len(used))
        yield from ((column, every) for column in block.T)
        return
    chunks: list[Any] = [x[:, part] for _, x in row_chunks(X, used)]
    block = sparse.vstack(chunks, "csr") if chunks else sparse.csr_array((0, 0))
    chunks.clear()
    block.sum_duplicates()
    block = block.tocsc()
    for start, stop in zip(block.indptr, block.indptr[1:], strict=False):
        yield block.data[start:stop], block.indices[start:stop]


def _sums(values: Doubles, codes: Codes, sizes: Codes, reference: int | None) -> Doubles:
    """(5, G) numbers of values, wins, sums, squares, and numbers above 0.

    The wins of a group are the numbers of smaller values, and half the numbers of equal ones, that
    each of its values has in the reference, or in all rows; the squares are those of the
    differences to the mean of the group. `values` are those that are not 0, `codes` their groups,
    and `sizes` the (G,) numbers of rows.
    """

    def add(codes: Codes, weights: Any = None) -> Any:
        return np.bincount(codes, weights, len(sizes))

    known = np.isfinite(values)
    n = sizes - add(codes[~known])
    values, codes = values[known], codes[known]
    n_zeros = n - add(codes)
    if reference is None:
        of_others, zeros, below = values, n_zeros.sum(), rankdata(values) - 0.5
    else:
        of_others, zeros = np.sort(values[codes == reference]), n_zeros[reference]
        below = (of_others.searchsorted(values) + of_others.searchsorted(values, "right")) / 2
    below += np.where(values > 0, zeros, 0)
    wins = add(codes, below) + n_zeros * ((of_others < 0).sum() + zeros / 2)
    total = add(codes, values)
    means = total / np.maximum(n, 1)
    squares = add(codes, np.square(values - means[codes])) + n_zeros * means**2
    return np.array([n, wins, total, squares, add(codes[values > 0])])


@np.errstate(invalid="ignore", divide="ignore")
def _compared(sums: Doubles, reference: int | None) -> dict[str, Doubles]:
    """`effects` of each group against all others, or against the reference, from `_sums`."""
    n, wins, total, squares, above = sums

    def of_rest(sums: Doubles) -> Doubles:
        return sums.sum(axis=0) - sums if reference is None else sums[[reference]] + 0 * sums

    n_rest, mean = of_rest(n), total / n
    mean_rest, within = of_rest(total) / n_rest, squares + of_rest(squares)
    if reference is None:
        wins = wins - n**2 / 2  # those of the values of a group over one another
        middle = total.sum(axis=0) / n.sum(axis=0)
        between = np.where(n > 0, n * np.square(mean - middle), 0)
        within += of_rest(between) - n_rest * np.square(mean_rest - middle)
    deviation = np.sqrt(np.maximum(within, 0) / (n + n_rest - 2))
    apart = mean - mean_rest
    # Rounding errors of the means are no difference.
    is_none = np.abs(apart) <= 1e-12 * np.maximum(np.abs(mean), np.abs(mean_rest))
    difference = np.where(is_none, apart * 0, apart / deviation)
    found = {"auroc": wins / (n * n_rest), "difference": difference}
    found |= {"mean": mean, "mean_rest": mean_rest}
    return found | {"positive": above / n, "positive_rest": of_rest(above) / n_rest}


def different(values: Doubles, is_first: Mask, n_features: int) -> Codes:
    """Choose columns that are not alike within two groups; earlier columns have precedence.

    `values` holds (n, d) values of both groups, NaN where one is missing.
    """
    ranks = rankdata(values, axis=0, nan_policy="omit")
    for mask in (is_first, ~is_first):
        known = np.isfinite(ranks[mask])
        means = np.where(known, ranks[mask], 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        ranks[mask] = np.where(known, ranks[mask] - means, 0)
    ranks /= np.maximum(np.linalg.norm(ranks, axis=0), 1e-12)
    alike = np.abs(ranks.T @ ranks) >= ALIKE
    chosen: list[int] = []
    for i in range(len(alike)):
        if not alike[i, chosen].any():
            chosen.append(i)
    others = np.setdiff1d(np.arange(len(alike)), chosen)
    return np.sort([*chosen, *others][:n_features])
