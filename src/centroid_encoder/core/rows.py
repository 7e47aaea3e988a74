"""Standardisation, and the rows of a dense or CSR matrix as the network sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from centroid_encoder.core.axes import principal_axes

Scale = Literal["supervised", "feature", "global", "none"]
# As text: scipy's matrices have no parameters at run time before scipy 1.16.
CSR: TypeAlias = "sparse.csr_matrix[Any] | sparse.csr_array[Any]"
Matrix: TypeAlias = "NDArray[Any] | CSR"

CPU = torch.device("cpu")
COPY_LIMIT = 2**28
"""Bytes of CSR data up to which a copy without the features left out is made."""
SHARE = 0.5
"""Of the free memory of a CUDA device that rows may take: training them takes some, too."""
CHUNK = 4096
"""Rows that pass through the network at once when no gradient is needed."""
N_PROJECTED = 10_000
"""Rows whose principal axes are found, at most."""
N_ITERATIONS = 2
"""Of the search for them: what is last among a hundred may be another direction."""
PROJECTED, PROJECTED_ON_CUDA = 2**27, 2**30
"""Bytes that rows take along their axes, up to which those of all rows are kept."""
CACHED = 512
"""Rows of dense data whose moments are taken at once: of 784 features, 3 MB."""


@dataclass(frozen=True)
class Standardizer:
    """z-scores with weights, ``clip((x − mean) / scale) · weight``, fitted on the training rows.

    New data can lie far outside the training range of a nearly constant feature; the clip keeps
    such a value from dominating the map.
    """

    mean: NDArray[np.float64]
    """(d,) what is subtracted."""
    scale: NDArray[np.float64]
    """(d,) what is divided by; 1 for constant features."""
    weight: NDArray[np.float64]
    """(d,) what the z-score is multiplied by; 0 leaves the feature out altogether."""
    clip: float
    """Largest absolute z-score; inf for none."""
    of_networks: NDArray[np.float64] | None = None
    """(K, d) the weights by which each of K networks learns, of which `weight` is the mean; None if
    all learn by that. The axes of `ProjectedRows` make up for the difference."""

    @cached_property
    def kept(self) -> NDArray[np.intp]:
        """(k,) features with a weight: the inputs of the network."""
        return np.flatnonzero(self.weight)

    @classmethod
    def fit(
        cls,
        X: Matrix,
        index: NDArray[np.integer],
        codes: NDArray[np.integer],
        scale: Scale,
        clip: float,
        max_features: int | None,
        folds: NDArray[np.integer] | None = None,
    ) -> Standardizer:
        """Learn from the rows `index` of (n, d) data.

        Parameters
        ----------
        X
            Data, dense or CSR.
        index
            (n_train,) rows that count.
        codes
            (n_train,) their class indices.
        scale
            ``"feature"`` divides each feature by its own (population) standard deviation;
            ``"supervised"`` also multiplies it by its correlation ratio with the classes;
            ``"global"`` divides all features by their root mean square deviation, for features
            that share a unit, such as pixels; ``"none"`` leaves the data as they are.
        clip
            Largest absolute z-score.
        max_features
            With ``"supervised"``, how many features of largest weight to keep; None keeps all.
        folds
            (n_train,) with ``"supervised"``, which of the networks side by side is not trained on
            each of these rows. Its weights and its choice of features know nothing of them either.
        """
        ones = np.ones(X.shape[1])
        if scale == "none":
            return cls(np.zeros(X.shape[1]), ones, ones, np.inf)
        # scikit-learn accumulates in float64 and tells constant features from rounding noise. In
        # chunks, so that no second copy of the data is needed.
        scaler = StandardScaler(with_mean=not sparse.issparse(X))
        for chunk in _chunks(index, CHUNK if sparse.issparse(X) else CACHED):
            rows: Any = X[chunk]
            if sparse.issparse(X):
                # Of CSR it takes the precision as it is, and each entry for a cell of its own.
                rows = _without_duplicates(rows.astype(np.float64))
            scaler.partial_fit(rows)
        deviation, weight, weights = scaler.scale_, ones, None
        if scale == "global":
            rms = float(np.sqrt(scaler.var_.mean()))
            deviation = np.full(X.shape[1], rms if rms > 0 else 1.0)
        if scale == "supervised":
            weights = _supervised_weights(
                X, index, codes, np.square(deviation), max_features, folds
            )
            weight = weights[0] if folds is None else _normalized(weights.mean(axis=0))
        return cls(scaler.mean_, deviation, weight, clip, None if folds is None else weights)

    def __call__(self, X: NDArray[Any], device: torch.device = CPU) -> Tensor:
        """Standardise dense (n, d) data to (n, k) float32 inputs on a device.

        Differences are taken in float64: on the device, or on the CPU for one that has none.
        """
        if len(self.kept) < X.shape[1]:
            X = X[:, self.kept]
        exact = CPU if device.type == "mps" else device
        # torch: on all threads, and without a copy for each step.
        z = torch.from_numpy(X.astype(np.float64)).to(exact)
        mean, scale, weight = (
            torch.from_numpy(values[self.kept]).to(exact)
            for values in (self.mean, self.scale, self.weight)
        )
        z.sub_(mean).div_(scale).clamp_(-self.clip, self.clip).mul_(weight)
        return z.float().to(device)

    def inverse(self, inputs: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, k) inputs back to (n, d) data; a feature left out gets its mean."""
        X = np.broadcast_to(self.mean, (len(inputs), len(self.mean))).astype(np.float32)
        z = inputs / self.weight[self.kept]
        X[:, self.kept] = z * self.scale[self.kept] + self.mean[self.kept]
        return X


def _supervised_weights(
    X: Matrix,
    index: NDArray[np.integer],
    codes: NDArray[np.integer],
    variance: NDArray[np.float64],
    max_features: int | None,
    folds: NDArray[np.integer] | None,
) -> NDArray[np.float64]:
    """(K, d) weights of features: correlation ratios with the classes, the largest ones of them.

    Of each of the K parts of the rows that leave one of the `folds` out; of all rows if there are
    no folds.
    """
    n_folds, n_classes = 1 if folds is None else int(folds.max()) + 1, int(codes.max()) + 1
    groups = codes if folds is None else folds * n_classes + codes
    counts = np.bincount(groups, minlength=n_folds * n_classes).reshape(n_folds, n_classes)
    sums = _sums(X, index, groups, counts.size).reshape(n_folds, n_classes, -1)
    if folds is not None:
        counts, sums = counts.sum(axis=0) - counts, sums.sum(axis=0) - sums
    weights = np.empty((n_folds, X.shape[1]))
    for k in range(n_folds):
        ratio = _correlation_ratio(counts[k], sums[k], variance)
        # Where nothing is related to the classes, all features count the same.
        weights[k] = ratio if ratio.any() else 1
        if max_features is not None and max_features < len(ratio):
            weights[k, np.argsort(-weights[k], kind="stable")[max_features:]] = 0
        weights[k] = _normalized(weights[k])
    return weights


def _normalized(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of unit mean square over the features kept, as z-scores have."""
    return np.asarray(weight / np.sqrt(np.square(weight).sum() / np.count_nonzero(weight)))


def _sums(
    X: Matrix, index: NDArray[np.integer], groups: NDArray[np.integer], n_groups: int
) -> NDArray[np.float64]:
    """(n_groups, d) sums of the rows `index` by their (n,) groups."""
    sums = np.zeros((n_groups, X.shape[1]))
    for chunk, of_chunk in zip(_chunks(index), _chunks(groups), strict=True):
        n = len(chunk)
        one_hot = sparse.csr_array((np.ones(n), of_chunk, np.arange(n + 1)), shape=(n, n_groups))
        part: Any = one_hot.T @ X[chunk]
        sums += part if isinstance(part, np.ndarray) else part.toarray()
    return sums


def _correlation_ratio(
    counts: NDArray[np.integer], sums: NDArray[np.float64], variance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(d,) correlation ratio of features with the classes, adjusted for chance.

    The square root of Kelley's (1935) ε², the share of a feature's variance that lies between the
    classes, less what as many random classes would be expected to show; 0 where that is negative.
    From (M,) numbers of samples and (M, d) sums of classes, and (d,) variances of features.
    """
    counts, sums = counts[counts > 0], sums[counts > 0]
    n, n_classes = int(counts.sum()), len(counts)
    between = counts @ np.square(sums / counts[:, None] - sums.sum(axis=0) / n) / n
    within = np.maximum(variance - between, 0) / max(n - n_classes, 1)
    share = np.minimum((between - (n_classes - 1) * within) / variance, 1)
    # Rounding errors are no relation.
    return np.sqrt(np.where(share > 1e-9, share, 0))


def _chunks(index: NDArray[np.integer], size: int = CHUNK) -> list[NDArray[np.integer]]:
    return np.array_split(index, max(1, -(-len(index) // size)))


def looks_like_counts(X: Matrix) -> bool:
    """Tell whether data are raw counts, by their first values: integers, some of them large."""
    values = _first_values(X)
    return _whole(values) and bool(values.max() > 20)


def looks_whole(X: Matrix) -> bool:
    """Tell whether data are whole numbers of at least 0, but for a few filled gaps."""
    return _whole(_first_values(X))


def _first_values(X: Matrix) -> NDArray[Any]:
    # Enough to tell, and no copy of all. Zeros are whole whatever has been done to counts.
    values = (X.data if sparse.issparse(X) else X[: 100_000 // X.shape[1] + 1].ravel())[:100_000]
    return cast(NDArray[Any], values[np.isfinite(values) & (values != 0)])


def _whole(values: NDArray[Any]) -> bool:
    return len(values) > 0 and bool((values > 0).all() and (values % 1 == 0).mean() > 0.95)


class Rows(Protocol):
    """Rows of data as the network sees them: standardised, float32, on its device.

    Whoever trains or embeds asks for rows by number, and does not know where they are.
    """

    n_rows: int
    n_inputs: int
    device: torch.device
    fixed: bool = False
    """Whether to gather rows takes the same operations on the device, whichever rows they are."""

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        ...

    def batches(self, index: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and rows, `CHUNK` at a time and in order; of all rows or of those at an index."""
        if index is None:
            index = torch.arange(self.n_rows, device=self.device)
        for part in index.split(CHUNK) if len(index) else ():
            yield part, self.gather(part)

    def renew(self, index: Tensor, drop: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Prepare for an epoch of the rows at (n,) `index`, in which `drop` makes noise of them.

        It is a generator so that whoever runs it can stop now and then to ask whether to go on.
        """
        return iter(())

    def noisy(self, index: Tensor, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """(…, n_inputs) rows at (…,) indices, with the noise of `drop`."""
        return drop(self.gather(index.reshape(-1))).reshape(*index.shape, -1)


def standardized(X: Matrix, standardizer: Standardizer, device: torch.device) -> Rows:
    """Return the standardised rows of dense or CSR data; on the CPU and CUDA, to the same bits.

    Rows that would take more than `SHARE` of the free memory of a CUDA device stay off it, and go
    there in batches.
    """
    kind: Any = CSRRows if sparse.issparse(X) else DenseRows
    rows: Rows
    if device.type != "cuda":
        rows = kind(X, standardizer, device)
        return rows
    if kind.n_bytes(X, standardizer) <= SHARE * torch.cuda.mem_get_info(device)[0]:
        try:
            rows = kind(X, standardizer, device)
        except torch.OutOfMemoryError:
            # A limit of the process's own may leave less than is free.
            torch.cuda.empty_cache()
        else:
            return rows
    return HostRows(kind(X, standardizer, CPU), device)


class HostRows(Rows):
    """Rows that are too many for a device: they stay in the memory of the processor."""

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self.n_rows, self.n_inputs, self.device = rows.n_rows, rows.n_inputs, device
        self._rows = rows

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        found = self._rows.gather(index.cpu())
        # From memory that is not swapped, the copy goes on while the processor does something else.
        return found.pin_memory().to(self.device, non_blocking=True)


class DenseRows(Rows):
    """Dense data, standardised once: one tensor on the device."""

    fixed = True

    @staticmethod
    def n_bytes(X: NDArray[Any], standardizer: Standardizer) -> int:
        """Memory that these take on the device."""
        return 4 * len(X) * len(standardizer.kept)

    def __init__(self, X: NDArray[Any], standardizer: Standardizer, device: torch.device) -> None:
        self.n_rows, self.n_inputs, self.device = len(X), len(standardizer.kept), device
        self._dense = torch.empty((self.n_rows, self.n_inputs), device=device)
        for start in range(0, self.n_rows, CHUNK):
            part = slice(start, start + CHUNK)
            self._dense[part] = standardizer(X[part], device)

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        return self._dense[index]


class CSRRows(Rows):
    """CSR data, which stay CSR on the device: only the rows asked for become dense."""

    @staticmethod
    def n_bytes(X: CSR, standardizer: Standardizer) -> int:
        """Memory that these take on the device, at most."""
        return int(X.data.nbytes + X.indices.nbytes + 8 * len(X.indptr))

    def __init__(self, X: CSR, standardizer: Standardizer, device: torch.device) -> None:
        kept = standardizer.kept
        self.n_rows, self.n_inputs, self.device = X.shape[0], len(kept), device
        csr: CSR = _without_duplicates(X)
        column = np.full(X.shape[1], -1)
        column[kept] = np.arange(self.n_inputs)
        if self.n_inputs < X.shape[1] and csr.data.nbytes + csr.indices.nbytes <= COPY_LIMIT:
            # Without the features left out, each batch is made in a fraction of the time.
            csr = csr[:, kept]
            column = np.arange(self.n_inputs)
        self._column = torch.from_numpy(column).to(device)
        self._indptr = torch.from_numpy(csr.indptr.astype(np.int64)).to(device)
        self._indices = _to_tensor(csr.indices, device)
        # Differences in float64, as for dense data; MPS has none.
        dtype = torch.float32 if device.type == "mps" else torch.float64
        narrow = np.can_cast(csr.dtype, np.float32) or dtype == torch.float32
        data = csr.data.astype(np.float32 if narrow else np.float64, copy=False)
        self._data = _to_tensor(data, device)
        self._mean, self._scale, self._weight = (
            torch.from_numpy(values[kept]).to(dtype).to(device)
            for values in (standardizer.mean, standardizer.scale, standardizer.weight)
        )
        self._clip = standardizer.clip
        self._zero = standardizer(np.zeros((1, X.shape[1])), device)

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        starts = self._indptr[index]
        counts = self._indptr[index + 1] - starts
        ends = counts.cumsum(0)
        n_values = int(ends[-1])
        # Position of every stored value of these rows, in row order.
        positions = torch.arange(n_values, device=self.device)
        positions += torch.repeat_interleave(starts - ends + counts, counts, output_size=n_values)
        columns = self._column[self._indices[positions]]
        cells = torch.arange(len(index), device=self.device) * self.n_inputs
        cells = torch.repeat_interleave(cells, counts, output_size=n_values) + columns
        values = self._data[positions]
        if self.n_inputs < len(self._column):
            found = columns >= 0
            cells, columns, values = cells[found], columns[found], values[found]
        # Only stored values need arithmetic: all zeros of a feature standardise to the same.
        z = (values - self._mean[columns]).div_(self._scale[columns])
        z.clamp_(-self._clip, self._clip).mul_(self._weight[columns])
        dense = self._zero.repeat(len(index), 1)
        return dense.view(-1).scatter_(0, cells, z.float()).view_as(dense)


class ProjectedRows(Rows):
    """Rows as each of K networks side by side learns from them.

    By weights of its own and, of many features, along their principal axes alone. A network does
    not know of the rows of its fold: weights and axes are those of the others. Noise is made of the
    rows themselves, once an epoch for each of them, and projected: a network then takes a fraction
    of the arithmetic. Once it has learned, it takes the features through the axes.

    What that leaves of all rows is kept up to `PROJECTED` bytes. Of more rows, those of a batch are
    projected when they are drawn, so that memory does not grow with their number.
    """

    def __init__(
        self,
        rows: Rows,
        train: Tensor,
        folds: Tensor | None,
        shares: NDArray[np.floating] | None,
        n_axes: int,
    ) -> None:
        """Find the axes.

        Parameters
        ----------
        rows
            The (n_rows, k) data.
        train
            (n,) indices of the rows that train.
        folds
            (n_rows,) which network is not trained on a row; None for one network, of all rows.
        shares
            (K, k) by how much more each network weighs each feature; None for no more.
        n_axes
            How many axes there are, of more features than these and of as many rows.
        """
        self.n_rows, self.device, self._rows = rows.n_rows, rows.device, rows
        self._folds = folds
        of_networks = [train]
        if folds is not None:
            of_networks = [train[folds[train] != k] for k in range(int(folds.max()) + 1)]
        n_networks = len(of_networks)
        if shares is None:
            shares = np.ones((n_networks, rows.n_inputs))
        self.n_inputs = rows.n_inputs
        if n_axes < rows.n_inputs:
            self.n_inputs = max(1, min(n_axes, *map(len, of_networks)))
        axes = []
        for own, weights in zip(of_networks, torch.tensor(shares).float(), strict=True):
            weights = weights.to(rows.device)
            if self.n_inputs == rows.n_inputs:
                axes.append(torch.diag(weights))
                continue
            if len(own) > N_PROJECTED:
                order = np.random.default_rng(0).permutation(len(own))[:N_PROJECTED]
                own = own[torch.from_numpy(order).to(own.device)]
            inputs = torch.empty((len(own), rows.n_inputs), device=rows.device)
            for i, (part, found) in enumerate(rows.batches(own)):
                torch.mul(found, weights, out=inputs[i * CHUNK : i * CHUNK + len(part)])
            axes.append(principal_axes(inputs, self.n_inputs, N_ITERATIONS) * weights)
        self.axes = torch.stack(axes) if folds is not None else axes[0]
        most = PROJECTED_ON_CUDA if self.device.type == "cuda" else PROJECTED
        self._kept = 4 * n_networks * self.n_rows * self.n_inputs <= most
        self.fixed = self._kept or rows.fixed
        self._clean: Tensor | None = None
        self._noisy: Tensor | None = None

    def gather(self, index: Tensor) -> Tensor:
        """(K, b, n_inputs) rows at (b,) int64 indices on the same device; of one, (b, n_inputs)."""
        if not self._kept:
            return self._rows.gather(index) @ self.axes.mT
        if self._clean is None:
            parts = [inputs @ self.axes.mT for _, inputs in self._rows.batches()]
            self._clean = torch.cat(parts, dim=-2)
        return self._clean[..., index, :]

    def renew(self, index: Tensor, drop: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Make the noise of an epoch of the rows at (n,) `index`, if it is kept."""
        if not self._kept:
            return
        if self._noisy is None:
            shape = (*self.axes.shape[:-2], self.n_rows, self.n_inputs)
            self._noisy = torch.empty(shape, device=self.device)
        for part, inputs in self._rows.batches(index):
            noisy = drop(inputs)
            if self._folds is None:
                self._noisy[part] = noisy @ self.axes.T
            else:
                for k, axes in enumerate(self.axes):
                    learns = self._folds[part] != k
                    self._noisy[k, part[learns]] = noisy[learns] @ axes.T
            yield

    def noisy(self, index: Tensor, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """(K, b, n_inputs) rows at (K, b) indices, with the noise of the epoch."""
        if self._noisy is None:
            # One network after the other: the inputs are wider than what is left of them.
            axes = self.axes.reshape(-1, *self.axes.shape[-2:])
            each = zip(index.reshape(len(axes), -1), axes, strict=True)
            parts = [drop(self._rows.gather(own)) @ along.T for own, along in each]
            return torch.stack(parts).reshape(*index.shape, -1)
        if index.dim() == 1:
            return self._noisy[index]
        return self._noisy[torch.arange(len(index), device=self.device)[:, None], index]


def _without_duplicates(X: Matrix) -> Any:
    # CSR may hold several entries for one cell, which stand for their sum.
    if isinstance(X, np.ndarray) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def _to_tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    # torch has no read-only tensors and warns when it shares memory with a read-only array.
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device)


def class_means(rows: Rows, index: Tensor, labels: Tensor, n_classes: int) -> NDArray[np.float64]:
    """Mean of each class over the rows `index`, in standardised units.

    Parameters
    ----------
    rows
        The data.
    index
        (n,) rows that count.
    labels
        (n_rows,) class index of every row of the data.
    n_classes
        Number M of classes; each must have a row.

    Returns
    -------
    (M, n_inputs) means, summed in float64.
    """
    sums = torch.zeros(n_classes, rows.n_inputs, dtype=torch.float64)
    for part, inputs in rows.batches(index):
        if rows.device.type == "cuda":
            # A product: on a GPU the order of an indexed sum is not always the same.
            member = torch.nn.functional.one_hot(labels[part], n_classes).double()
            sums += (member.T @ inputs.double()).cpu()
        else:
            sums.index_add_(0, labels[part].cpu(), inputs.cpu().double())
    counts = torch.bincount(labels[index].cpu(), minlength=n_classes)
    return (sums / counts[:, None]).numpy()
