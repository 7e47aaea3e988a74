"""The rows of a dense or CSR matrix as the network sees them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import gen_batches
from torch import Tensor
from torch.nn.functional import embedding, pad

from centroid_encoder.core.axes import principal_axes
from centroid_encoder.core.kept import Entries, held, stored_as
from centroid_encoder.core.matrix import (
    VALUES_AT_ONCE,
    Lazy,
    Matrix,
)
from centroid_encoder.core.standardization import CPU, Standardizer

SHARE = 0.5
"""Of the free memory of a CUDA device that rows may take: training them takes some, too."""
SMALL = 2**27
"""Bytes of standardised rows that are dense whatever they came as: they are gathered in no time."""
CHUNK = 4096
"""Rows that pass through the network at once when no gradient is needed."""
N_PROJECTED = 10_000
"""Rows whose principal axes are found, at most."""
N_ITERATIONS = 2
"""Of the search for them: what is last among a hundred may be another direction."""


class Rows(Protocol):
    """Rows of data as the network sees them: standardised, float32, on its device.

    The caller takes rows by number; where the data lie makes no difference.
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

    def noisy(self, index: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """(…, n_inputs) rows at (…,) indices, with noise as if `share` of the values were zero."""
        rows = self.gather(index.reshape(-1)).reshape(*index.shape, self.n_inputs)
        return dropped(rows, share, generator)


def dropped(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Set a share of the values to zero and scale the others up, so that their mean stays.

    The share is rounded to a multiple of 1/256.
    """
    # At most 255: something has to pass.
    threshold = min(255, round(256 * share))
    if not threshold:
        return x
    # Eight random numbers from each word: several times faster than Bernoulli draws.
    words = torch.empty(math.ceil(x.numel() / 8), dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None, generator=generator)
    noise = words.view(torch.uint8)[: x.numel()].view_as(x)
    # A product with zeros and ones takes a twentieth of the time of filling in zeros.
    kept = torch.ge(noise, threshold, out=torch.empty_like(x))
    return kept.mul_(x).mul_(256 / (256 - threshold))


def standardized(X: Matrix | Lazy, standardizer: Standardizer, device: torch.device) -> Rows:
    """Return the standardised rows of dense or CSR data; on the CPU and CUDA.

    Of data that are not in memory, the features that are kept come into it: as CSR, or dense if
    that takes less. Rows that would take more than `SHARE` of the free memory of a CUDA device stay
    off it, and go there in batches.
    """
    kept, standardizer = held(X, standardizer)
    kind: Any = CSRRows if isinstance(kept, Entries) else DenseRows
    if device.type == "cuda" and (
        kind.n_bytes(kept, standardizer) <= SHARE * torch.cuda.mem_get_info(device)[0]
    ):
        try:
            return _in_memory(kept, standardizer, device)
        except torch.OutOfMemoryError:
            # A limit of the process's own may leave less than is free.
            torch.cuda.empty_cache()
    if device.type == "mps":
        return _in_memory(kept, standardizer, device)
    rows = _in_memory(kept, standardizer, CPU)
    return HostRows(rows, device) if device.type == "cuda" else rows


def _in_memory(
    kept: NDArray[Any] | Lazy | Entries, standardizer: Standardizer, device: torch.device
) -> Rows:
    if not isinstance(kept, Entries):
        return DenseRows.of(kept, standardizer, device)
    rows = CSRRows(kept, standardizer, device)
    if 4 * rows.n_rows * rows.n_inputs > SMALL:
        return rows
    return DenseRows(rows.gather_many(torch.arange(rows.n_rows, device=device)))


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

    @classmethod
    def of(cls, X: NDArray[Any] | Lazy, standardizer: Standardizer, device: torch.device) -> Self:
        """Standardise (n, d) data, some at a time."""
        dense = torch.empty((X.shape[0], len(standardizer.kept)), device=device)
        for part, inputs in _standardized_parts(X, standardizer, device):
            dense[part] = inputs
        return cls(dense)

    def __init__(self, dense: Tensor) -> None:
        self.n_rows, self.n_inputs = dense.shape
        self.device, self._dense = dense.device, dense

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        return self._dense[index]


def _standardized_parts(
    X: NDArray[Any] | Lazy, standardizer: Standardizer, device: torch.device
) -> Iterator[tuple[slice, Tensor]]:
    for part in gen_batches(X.shape[0], max(1, min(CHUNK, VALUES_AT_ONCE // X.shape[1]))):
        rows: Any = X[part]
        yield part, standardizer(rows, device)


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
        # Differences in float64, as for dense data; MPS has none.
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self._hold(entries.indices, entries.data, dtype)
        self._mean, self._scale, self._weight = (
            torch.from_numpy(values[kept]).to(dtype).to(device)
            for values in (standardizer.mean, standardizer.scale, standardizer.weight)
        )
        self._clip = standardizer.clip
        self._zero = standardizer(np.zeros((1, n_features)), device)

    def _hold(self, indices: Any, data: Any, dtype: torch.dtype) -> None:
        """Keep the entries, to compute with values of a dtype."""
        exact = np.float32 if dtype == torch.float32 else stored_as(data.dtype)
        self._indices = _to_tensor(indices, self.device)
        self._data = _to_tensor(data, self.device, exact)

    def _entries(self, index: Tensor, starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Features and values of all entries of some rows, in their order."""
        ends = counts.cumsum(0)
        n_values = int(ends[-1]) if len(index) else 0
        positions = torch.arange(n_values, device=self.device)
        positions += torch.repeat_interleave(starts - ends + counts, counts, output_size=n_values)
        return self._indices[positions], self._data[positions]

    def gather(self, index: Tensor) -> Tensor:
        """(b, n_inputs) rows at (b,) int64 indices on the same device."""
        starts = self._indptr[index]
        counts = self._indptr[index + 1] - starts
        features, values = self._entries(index, starts, counts)
        columns, n_values = self._column[features], len(features)
        cells = torch.arange(len(index), device=self.device) * self.n_inputs
        cells = torch.repeat_interleave(cells, counts, output_size=n_values) + columns
        if self.n_inputs < len(self._column):
            found = columns >= 0
            cells, columns, values = cells[found], columns[found], values[found]
        # Only stored values need arithmetic: all zeros of a feature standardise to the same.
        z = (values - self._mean[columns]).div_(self._scale[columns])
        z.clamp_(-self._clip, self._clip).mul_(self._weight[columns])
        dense = self._zero.repeat(len(index), 1)
        return dense.view(-1).scatter_(0, cells, z.float()).view_as(dense)


class ProjectedRows(Rows):
    """Inputs of K networks side by side: (K, n_rows, n_inputs), in memory.

    Each network has weights of its own and, of many features, principal axes of its own. Both are
    learned from the rows outside its fold. After the training, the axes become the first layer of
    the network.

    Noise is Gaussian along axes: dropout of a share p of the features adds to each row noise of the
    covariance A diag(E[x²] p / (1 − p)) Aᵀ, where A are the axes. Without axes it is dropout.
    """

    fixed = True

    def __init__(
        self,
        rows: Rows,
        train: Tensor,
        folds: Tensor | None,
        shares: NDArray[np.floating] | None,
        n_axes: int,
        dropout: float,
    ) -> None:
        """Find the axes, and project all rows.

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
        dropout
            Share p of the features, in [0, 1).
        """
        self.n_rows, self.device = rows.n_rows, rows.device
        of_networks = [train]
        if folds is not None:
            of_networks = [train[folds[train] != k] for k in range(int(folds.max()) + 1)]
        n_networks = len(of_networks)
        if shares is None:
            shares = np.ones((n_networks, rows.n_inputs))
        weights = torch.tensor(shares).float().to(rows.device)
        has_axes = n_axes < rows.n_inputs
        self.n_inputs = min(n_axes, len(train)) if has_axes else rows.n_inputs

        def axes_of(own: Tensor, weight: Tensor) -> Tensor:
            if not has_axes:
                return torch.diag(weight)
            if len(own) > N_PROJECTED:
                order = np.random.default_rng(0).permutation(len(own))[:N_PROJECTED]
                own = own[torch.from_numpy(order).to(own.device)]
            inputs = rows.gather_many(own).mul_(weight)
            found, *_ = principal_axes(inputs, min(self.n_inputs, len(own)), N_ITERATIONS)
            found = found * weight
            # A network of fewer rows than axes has zeros for the rest.
            return pad(found, (0, 0, 0, self.n_inputs - len(found)))

        axes = torch.stack([axes_of(*of) for of in zip(of_networks, weights, strict=True)])
        self._inputs = torch.empty((n_networks, self.n_rows, self.n_inputs), device=self.device)
        of_train = torch.zeros(self.n_rows, device=self.device)
        of_train[train] = 1 / len(train)
        squares = torch.zeros(rows.n_inputs, device=self.device)
        for part, inputs in rows.batches():
            torch.matmul(inputs, axes.mT, out=self._inputs[:, part[0] : part[-1] + 1])
            squares += of_train[part] @ inputs.square()
        self._noise: Tensor | None = None
        if has_axes and dropout:
            variance = squares * dropout / (1 - dropout)
            self._noise = _square_roots((axes * variance) @ axes.mT)
        self.axes = axes if folds is not None else axes[0]
        # Of the rows of each network, when those of one follow those of the other.
        self._first = torch.arange(n_networks, device=self.device)[:, None] * self.n_rows

    def gather(self, index: Tensor) -> Tensor:
        """(K, b, n_inputs) rows at (b,) int64 indices on the same device; of one, (b, n_inputs)."""
        found = self._inputs[:, index]
        return found[0] if self.axes.dim() == 2 else found

    def noisy(self, index: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """(K, b, n_inputs) rows at (K, b) indices, with noise; of one, (b, n_inputs) at (b,)."""
        # Row for row, it takes a third of the time of what indexing with two tensors does.
        rows = embedding(index + self._first, self._inputs.view(-1, self.n_inputs))
        if self._noise is None:
            rows = dropped(rows, share, generator)
        else:
            drawn = torch.randn(rows.shape, device=self.device, generator=generator)
            rows = torch.baddbmm(rows, drawn, self._noise.mT)
        return rows[0] if self.axes.dim() == 2 else rows


def _square_roots(covariances: Tensor) -> Tensor:
    """(K, r, r) matrices L with L Lᵀ equal to positive semidefinite ones."""
    values, vectors = torch.linalg.eigh(covariances.double().cpu())
    roots: Tensor = vectors * values.clamp_min(0).sqrt()[:, None]
    return roots.float().to(covariances.device)


def _to_tensor(
    array: NDArray[Any], device: torch.device, dtype: type[np.generic] | None = None
) -> Tensor:
    array = array if dtype is None else array.astype(dtype, copy=False)
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
