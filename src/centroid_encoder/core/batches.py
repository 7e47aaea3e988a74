"""Rows of a dense or CSR matrix as standardised device batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from torch import Tensor

Scale = Literal["feature", "global", "none"]
Matrix = NDArray[np.generic] | sparse.csr_matrix | sparse.csr_array

CHUNK = 4096
"""Rows that pass through the network at once when no gradient is needed."""


@dataclass(frozen=True)
class Standardizer:
    """z-scores: ``clip((x − mean) / scale)``, fitted on the training rows.

    New data can lie far outside the training range of a nearly constant feature; the clip keeps
    such a value from dominating the map.
    """

    mean: NDArray[np.float64]
    """(d,) what is subtracted."""
    scale: NDArray[np.float64]
    """(d,) what is divided by; 1 for constant features."""
    clip: float
    """Largest absolute z-score; inf for none."""

    @classmethod
    def fit(cls, X: Matrix, index: NDArray[np.integer], scale: Scale, clip: float) -> Standardizer:
        """Learn from the rows `index` of (n, d) data.

        Parameters
        ----------
        X
            Data, dense or CSR.
        index
            Rows that count.
        scale
            ``"feature"`` divides each feature by its own (population) standard deviation,
            ``"global"`` all features by their root mean square deviation, for features that share
            a unit, such as pixels; ``"none"`` leaves the data as they are.
        clip
            Largest absolute z-score.
        """
        if scale == "none":
            return cls(np.zeros(X.shape[1]), np.ones(X.shape[1]), np.inf)
        # scikit-learn accumulates in float64, reads CSR as it is and tells constant features from
        # rounding noise. In chunks, so that no second copy of the data is needed.
        scaler = StandardScaler(with_mean=not sparse.issparse(X))
        for chunk in np.array_split(index, -(-len(index) // CHUNK)):
            scaler.partial_fit(X[chunk])
        deviation = scaler.scale_
        if scale == "global":
            rms = float(np.sqrt(scaler.var_.mean()))
            deviation = np.full(X.shape[1], rms if rms > 0 else 1.0)
        return cls(scaler.mean_, deviation, clip)

    def __call__(self, X: NDArray[np.generic]) -> NDArray[np.float32]:
        """Standardise dense (n, d) data; differences are taken in float64."""
        z = (X - self.mean) / self.scale
        return np.clip(z, -self.clip, self.clip, out=z).astype(np.float32)

    def inverse(self, z: NDArray[np.floating]) -> NDArray[np.float32]:
        """Map (n, d) z-scores back to the units of the data."""
        return (z * self.scale + self.mean).astype(np.float32)


class Rows:
    """Random access to the standardised rows of a matrix, as float32 tensors on a device.

    Dense data are standardised once and stay on the device as one tensor. CSR data stay CSR there,
    and only the rows asked for become dense.
    """

    def __init__(self, X: Matrix, standardizer: Standardizer, device: torch.device) -> None:
        self.n_rows, self.n_features = X.shape
        self.device = device
        self._dense: Tensor | None = None
        if not sparse.issparse(X):
            dense = np.empty(X.shape, np.float32)
            for start in range(0, self.n_rows, CHUNK):
                dense[start : start + CHUNK] = standardizer(X[start : start + CHUNK])
            self._dense = torch.from_numpy(dense).to(device)
            return
        self._mean = torch.from_numpy(standardizer.mean.astype(np.float32)).to(device)
        self._scale = torch.from_numpy(standardizer.scale.astype(np.float32)).to(device)
        self._clip = standardizer.clip
        self._indptr = torch.from_numpy(X.indptr.astype(np.int64)).to(device)
        self._indices = _to_tensor(X.indices, device)
        self._data = _to_tensor(X.data.astype(np.float32, copy=False), device)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return (b, d) standardised rows for (b,) int64 indices on the same device."""
        if self._dense is not None:
            return self._dense[rows]
        x = self._densify(rows).sub_(self._mean).div_(self._scale)
        return x.clamp_(-self._clip, self._clip)

    def _densify(self, rows: Tensor) -> Tensor:
        starts = self._indptr[rows]
        counts = self._indptr[rows + 1] - starts
        ends = counts.cumsum(0)
        n_values = int(ends[-1])
        # Position of every stored value of these rows, in row order.
        positions = torch.arange(n_values, device=self.device)
        positions += torch.repeat_interleave(starts - ends + counts, counts, output_size=n_values)
        offsets = torch.arange(len(rows), device=self.device) * self.n_features
        cells = torch.repeat_interleave(offsets, counts, output_size=n_values)
        cells += self._indices[positions]
        dense = torch.zeros(len(rows) * self.n_features, device=self.device)
        return dense.scatter_(0, cells, self._data[positions]).view(len(rows), self.n_features)


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
    (M, d) means, summed in float64.
    """
    sums = torch.zeros(n_classes, rows.n_features, dtype=torch.float64)
    for chunk in index.split(CHUNK):
        sums.index_add_(0, labels[chunk].cpu(), rows[chunk].cpu().double())
    counts = torch.bincount(labels[index].cpu(), minlength=n_classes)
    return (sums / counts[:, None]).numpy()
