"""The rows of a dense or CSR matrix as the network sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import gen_batches
from torch import Tensor

from centroid_encoder.core.axes import principal_axes
from centroid_encoder.core.matrix import (
    VALUES_AT_ONCE,
    Lazy,
    Matrix,
    is_sparse,
    without_duplicates,
)
from centroid_encoder.core.standardization import CPU, Standardizer

COPY_LIMIT, COPY_SHARE = 2**28, 1 / 8
"""Bytes that a copy of CSR data without the features left out may take, and its share of the data:
it is made if it is within one of them."""
SHARE = 0.5
"""Of the free memory of a CUDA device that rows may take: training them takes some, too."""
DENSE = 0.5
"""Share of values other than 0 from which on dense data take less memory than CSR."""
PIECE = 2**26
"""Bytes of the pieces that CSR is put together from: each goes back to the system when it is in."""
CHUNK = 4096
"""Rows that pass through the network at once when no gradient is needed."""
N_PROJECTED = 10_000
"""Rows whose principal axes are found, at most."""
N_ITERATIONS = 2
"""Of the search for them: what is last among a hundred may be another direction."""
PROJECTED, PROJECTED_ON_CUDA = 2**27, 2**30
"""Bytes that rows take along their axes, up to which those of all rows are kept."""


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

    def gather_many(self, index: Tensor) -> Tensor:
        """(n, n_inputs) rows at (n,) indices: as `gather`, a part of them after the other."""
        rows = torch.empty((len(index), self.n_inputs), device=self.device)
        for i, (part, inputs) in enumerate(self.batches(index)):
            rows[i * CHUNK : i * CHUNK + len(part)] = inputs
        return rows

    def renew(self, index: Tensor, drop: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Prepare for an epoch of the rows at (n,) `index`, in which `drop` makes noise of them.

        It is a generator so that whoever runs it can stop now and then to ask whether to go on.
        """
        return iter(())

    def noisy(self, index: Tensor, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """(…, n_inputs) rows at (…,) indices, with the noise of `drop`."""
        return drop(self.gather(index.reshape(-1))).reshape(*index.shape, self.n_inputs)


def standardized(X: Matrix | Lazy, standardizer: Standardizer, device: torch.device) -> Rows:
    """Return the standardised rows of dense or CSR data; on the CPU and CUDA, to the same bits.

    Of data that are not in memory, the features that are kept come into it: as CSR, or dense if
    that takes less. Rows that would take more than `SHARE` of the free memory of a CUDA device stay
    off it, and go there in batches.
    """
    held, standardizer = _held(X, standardizer)
    kind: Any = CSRRows if isinstance(held, Entries) else DenseRows
    rows: Rows
    if device.type != "cuda":
        rows = kind(held, standardizer, device)
        return rows
    if kind.n_bytes(held, standardizer) <= SHARE * torch.cuda.mem_get_info(device)[0]:
        try:
            rows = kind(held, standardizer, device)
        except torch.OutOfMemoryError:
            # A limit of the process's own may leave less than is free.
            torch.cuda.empty_cache()
        else:
            return rows
    return HostRows(kind(held, standardizer, CPU), device)


def _held(
    X: Matrix | Lazy, standardizer: Standardizer
) -> tuple[NDArray[Any] | Lazy | Entries, Standardizer]:
    """What is to be in memory of the data, and the standardisation of that."""
    kept = standardizer.kept
    if isinstance(X, Lazy):
        if is_sparse(X) or _share_of_values(X, kept) < DENSE:
            return _read_kept(X, kept), standardizer.of_kept
        return X, standardizer
    if not sparse.issparse(X):
        return X, standardizer
    csr = without_duplicates(X)
    if len(kept) < X.shape[1]:
        n_bytes = csr.data.nbytes + csr.indices.nbytes
        if _share_kept(csr, kept) * n_bytes <= max(COPY_LIMIT, COPY_SHARE * n_bytes):
            # Without the features left out, each batch is made in a fraction of the time.
            csr, standardizer = csr[:, kept], standardizer.of_kept
    return Entries(csr.indptr, csr.indices, csr.data), standardizer


def _share_kept(csr: Any, kept: NDArray[np.intp]) -> float:
    """Share of the entries that are in some columns."""
    n_of_column = np.zeros(csr.shape[1], np.int64)
    for part in gen_batches(csr.nnz, VALUES_AT_ONCE // 8):
        n_of_column += np.bincount(csr.indices[part], minlength=len(n_of_column))
    return float(n_of_column[kept].sum() / max(csr.nnz, 1))


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
    def n_bytes(X: NDArray[Any] | Lazy, standardizer: Standardizer) -> int:
        """Memory that these take on the device."""
        return 4 * int(X.shape[0]) * len(standardizer.kept)

    def __init__(
        self, X: NDArray[Any] | Lazy, standardizer: Standardizer, device: torch.device
    ) -> None:
        self.n_rows, self.n_inputs, self.device = X.shape[0], len(standardizer.kept), device
        self._dense = torch.empty((self.n_rows, self.n_inputs), device=device)
        for part in gen_batches(self.n_rows, max(1, min(CHUNK, VALUES_AT_ONCE // X.shape[1]))):
            rows: Any = X[part]
            self._dense[part] = standardizer(rows, device)

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        return self._dense[index]


class Entries(NamedTuple):
    """The arrays of CSR; scipy would want larger indices for more than 2³¹ entries."""

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]
    data: NDArray[Any]


def _share_of_values(X: Lazy, kept: NDArray[np.intp]) -> float:
    """Share of values other than 0 in the first rows of the columns that are kept."""
    _, rows = next(X.blocks())
    return float((np.asarray(rows)[:CHUNK, kept] != 0).mean())


def _read_kept(X: Lazy, kept: NDArray[np.intp]) -> Entries:
    """Read some columns as CSR. Beside what comes of it, no more is in memory than one piece."""
    counts = [np.zeros(1, np.int64)]
    indices, data = _Pieces(np.int32), _Pieces(_stored_as(X.dtype))
    for _, rows in X.blocks():
        csr = without_duplicates(sparse.csr_array(rows[:, kept]))
        counts.append(np.diff(csr.indptr))
        indices.add(csr.indices)
        data.add(csr.data)
    return Entries(np.concatenate(counts).cumsum(), indices.joined(), data.joined())


def _stored_as(dtype: np.dtype[Any]) -> type[np.floating]:
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64


class _Pieces:
    """A long array whose length is known at last: there are never two copies of it."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._dtype, self._pieces = dtype, [np.empty(0, dtype)]
        self._parts: list[NDArray[Any]] = []
        self._n_bytes = 0

    def add(self, part: NDArray[Any]) -> None:
        self._parts.append(part.astype(self._dtype, copy=False))
        self._n_bytes += self._parts[-1].nbytes
        if self._n_bytes > PIECE:
            self._pieces.append(np.concatenate(self._parts))
            self._parts, self._n_bytes = [], 0

    def joined(self) -> NDArray[Any]:
        pieces = [*self._pieces, *self._parts]
        self._pieces, self._parts = [], []
        joined, done = np.empty(sum(map(len, pieces)), self._dtype), 0
        for i, piece in enumerate(pieces):
            joined[done : done + len(piece)] = piece
            done += len(piece)
            pieces[i] = piece[:0].copy()
        return joined


class CSRRows(Rows):
    """CSR data, which stay CSR on the device: only the rows asked for become dense."""

    @staticmethod
    def n_bytes(entries: Entries, standardizer: Standardizer) -> int:
        """Memory that these take on the device, at most."""
        return int(entries.data.nbytes + entries.indices.nbytes + 8 * len(entries.indptr))

    def __init__(self, entries: Entries, standardizer: Standardizer, device: torch.device) -> None:
        kept, n_features = standardizer.kept, len(standardizer.mean)
        self.n_rows, self.n_inputs, self.device = len(entries.indptr) - 1, len(kept), device
        column = np.full(n_features, -1)
        column[kept] = np.arange(self.n_inputs)
        self._column = torch.from_numpy(column).to(device)
        self._indptr = torch.from_numpy(entries.indptr.astype(np.int64)).to(device)
        self._indices = _to_tensor(entries.indices, device)
        # Differences in float64, as for dense data; MPS has none.
        dtype = torch.float32 if device.type == "mps" else torch.float64
        stored_as = np.float32 if dtype == torch.float32 else _stored_as(entries.data.dtype)
        self._data = _to_tensor(entries.data.astype(stored_as, copy=False), device)
        self._mean, self._scale, self._weight = (
            torch.from_numpy(values[kept]).to(dtype).to(device)
            for values in (standardizer.mean, standardizer.scale, standardizer.weight)
        )
        self._clip = standardizer.clip
        self._zero = standardizer(np.zeros((1, n_features)), device)

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        starts = self._indptr[index]
        counts = self._indptr[index + 1] - starts
        ends = counts.cumsum(0)
        n_values = int(ends[-1]) if len(index) else 0
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
            inputs = rows.gather_many(own).mul_(weights)
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
            each = zip(index.reshape(len(axes), index.shape[-1]), axes, strict=True)
            parts = [drop(self._rows.gather(own)) @ along.T for own, along in each]
            return torch.stack(parts).reshape(*index.shape, self.n_inputs)
        if index.dim() == 1:
            return self._noisy[index]
        return self._noisy[torch.arange(len(index), device=self.device)[:, None], index]


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
