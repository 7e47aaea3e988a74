"""The features that separate the class of a cell from another class, and its values of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.utils import gen_batches

from centroid_encoder.core.matrix import VALUES_AT_ONCE
from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.errors import InputError, MissingKeyError
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._lazy import LazyMatrix, in_memory, is_lazy, issparse
from centroid_encoder.tl._new_cells import NewCells, match_features
from centroid_encoder.tl._read import near_matches, read_matrix
from centroid_encoder.tl._result import Result, read_result

if TYPE_CHECKING:
    from anndata import AnnData

MAX_CELLS = 1000
"""Cells of a class that are compared; of a larger class, a sample."""
QUANTILES = (0.1, 0.5, 0.9)
ALIKE = 0.7
"""Rank correlation within the classes from which on two features are alike."""
CANDIDATES = 10
"""Best features among which different ones are looked for, for each that is wanted."""


def telling_features(
    adata: AnnData, cell: str, *, key: str = "ce", n_features: int = 5
) -> pd.DataFrame:
    """List the features that best separate two classes, with the values of one cell.

    The classes are the label and the predicted class of the cell or, where these are the same, the
    predicted class and the second likeliest one. `adata` is not changed.

    Parameters
    ----------
    adata
        Annotated data after `centroid_encoder` or `ingest`.
    cell
        Name of the cell in ``obs_names``.
    key
        The ``key_added`` of that function.
    n_features
        Number of features.

    Returns
    -------
    DataFrame
        One row for each feature, under its name, best first, with the columns

        ``class``, ``other``
            The two classes, the same in all rows.
        ``auroc`` : dtype ``float64``
            Probability that a cell of ``class`` has a larger value than one of ``other``: 1 if all
            have, 0 if none has, 0.5 if there is no difference. Features are ordered by the
            distance to 0.5. One whose ranks correlate by 0.7 or more with those of a better one,
            within the classes, is left out while there are others.
        ``value``
            Value of the cell; NaN if it is missing.
        ``low``, ``median``, ``high``, ``other_low``, ``other_median``, ``other_high``
            10 %, 50 % and 90 % quantiles of each class.

        The features are those of the map. If these are an unnamed representation, such as
        principal components, they are the variables of ``adata.X``. A class with more than 1,000
        labeled cells is represented by a random sample, always the same one.

    Raises
    ------
    KeyError
        If there is no such cell or no such result, or if a part of it is missing.
    ValueError
        If the cell is not in the map, or if one of the classes has no labeled cell.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> worst = ce.tl.misplaced(adata).index[0]
    >>> table = ce.tl.telling_features(adata, worst)
    """
    if cell not in adata.obs_names:
        raise MissingKeyError(f"obs_names has no {cell!r}{near_matches(cell, adata.obs_names)}")
    if n_features < 1:
        raise InputError(f"n_features must be at least 1; got {n_features}", "n_features")
    row = int(adata.obs_names.get_indexer_for([cell])[0])
    return TellingFeatures(adata, read_result(adata, key)).of_cell(row, n_features)


class TellingFeatures:
    """The features of a map, and what was found out about pairs of its classes."""

    def __init__(self, adata: AnnData, result: Result) -> None:
        self._result = result
        self._compared: dict[tuple[int, int, int], tuple[NDArray[np.intp], pd.DataFrame]] = {}
        names, rep = ("use_rep", "layer", "use_raw"), result.stored.params
        options: dict[str, Any] = {name: rep.get(name) for name in names}
        self._model: NewCells | None = None
        X, where, found = read_matrix(adata, **options | {"use_raw": bool(options["use_raw"])})
        try:
            model = fitted_model(adata, result.key, device="cpu")
            index, _ = match_features(model, X.shape[1], found, where, 1.0)
        except (KeyError, ValueError, InvalidStateError):
            index = None
        else:
            self._model = NewCells(_readable(X, where), adata.obs_names, where, model, index, 1.0)
        if found is None:
            index = None
            X, where, found = read_matrix(adata, use_rep=None, layer=None, use_raw=False)
        assert found is not None
        self._columns = np.arange(len(found)) if index is None else index[index >= 0]
        self._names, self._X = pd.Index(found[self._columns]), _readable(X, where)

    def of_cell(self, row: int, n_features: int) -> pd.DataFrame:
        """Return the table of `telling_features` for the cell in a row of the AnnData."""
        pair = self._classes(row)
        if (*pair, n_features) not in self._compared:
            self._compared[*pair, n_features] = self._compare(pair, n_features)
        columns, table = self._compared[*pair, n_features]
        table = table.copy()
        table.insert(3, "value", _dense(self._X[row : row + 1], columns)[0])
        return table

    def _classes(self, row: int) -> tuple[int, int]:
        """Label and predicted class of a cell or, if these are the same, that and the next."""
        result = self._result
        label, predicted = int(result.codes[row]), int(result.predicted[row])
        if predicted < 0:
            raise InputError("the cell is not in the map, or is not assigned to a class")
        if label not in (-1, predicted):
            return label, predicted
        nearness = -np.linalg.norm(result.centers - result.embedding[row], axis=1)
        if self._model is not None:
            probabilities = self._model.probabilities(slice(row, row + 1))[0]
            # The columns are the sorted classes.
            classes = pd.Index(self._model.model.classes_.tolist())
            nearness = probabilities[classes.get_indexer(result.classes)]
        nearness[predicted] = -np.inf
        return predicted, int(nearness.argmax())

    def _compare(
        self, pair: tuple[int, int], n_features: int
    ) -> tuple[NDArray[np.intp], pd.DataFrame]:
        """Return the columns of the best features, and their table without values of a cell."""
        result, rng = self._result, np.random.default_rng(0)
        n_most = max(20, min(MAX_CELLS, VALUES_AT_ONCE // (2 * max(1, len(self._columns)))))
        members = [np.flatnonzero(result.codes == code) for code in pair]
        for code, rows in zip(pair, members, strict=True):
            if not len(rows):
                raise InputError(f"no cell has the label {result.classes[code]!r}")
        members = [
            rng.choice(rows, n_most, replace=False) if len(rows) > n_most else rows
            for rows in members
        ]
        rows = np.sort(np.concatenate(members))
        first, part = result.codes[rows] == pair[0], self._X[rows]
        part = part.tocsc() if issparse(part) else part
        # A part of the columns is dense at a time.
        batches = gen_batches(len(self._columns), max(1, VALUES_AT_ONCE // 16 // len(rows)))
        found = [auroc(_dense(part, self._columns[some]), first) for some in batches]
        areas = np.concatenate(found)
        order = np.argsort(-np.abs(areas - 0.5), kind="stable")[: n_features * CANDIDATES]
        values = _dense(part, self._columns[order])
        chosen = _different(values, first, n_features)
        order, values = order[chosen], values[:, chosen]
        table = pd.DataFrame(
            {
                "class": result.classes[pair[0]],
                "other": result.classes[pair[1]],
                "auroc": areas[order],
            },
            index=self._names[order],
        )
        for start, mask in (("", first), ("other_", ~first)):
            ranges = np.quantile(_filled(values)[mask], QUANTILES, axis=0)
            for name, ends in zip(("low", "median", "high"), ranges, strict=True):
                table[f"{start}{name}"] = ends
        return self._columns[order], table


def auroc(values: NDArray[np.floating], first: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(d,) areas under the ROC curves of (n, d) values as scores of the `first` of two classes.

    A missing value counts as the mean of its column. Ties count half.
    """
    n, m = int(first.sum()), int((~first).sum())
    sums = rankdata(_filled(values), axis=0)[first].sum(axis=0)
    return np.asarray((sums - n * (n + 1) / 2) / (n * m))


def _different(
    values: NDArray[np.floating], first: NDArray[np.bool_], n_features: int
) -> NDArray[np.intp]:
    """Choose columns that are not alike within the classes; better ones come first."""
    ranks = rankdata(_filled(values), axis=0)
    for mask in (first, ~first):
        ranks[mask] -= ranks[mask].mean(axis=0)
    ranks /= np.maximum(np.linalg.norm(ranks, axis=0), 1e-12)
    alike = np.abs(ranks.T @ ranks) >= ALIKE
    chosen: list[int] = []
    for i in range(len(alike)):
        if not alike[i, chosen].any():
            chosen.append(i)
    others = [i for i in range(len(alike)) if i not in chosen]
    return np.sort([*chosen, *others][:n_features])


def _filled(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Replace missing values by the mean of their column, as a training can do."""
    gaps = ~np.isfinite(values)
    if not gaps.any():
        return values
    means = np.where(gaps, 0, values).sum(axis=0) / np.maximum((~gaps).sum(axis=0), 1)
    return np.where(gaps, means, values)


def _readable(X: Any, where: str) -> Any:
    """Return a matrix whose rows can be read by sorted indices."""
    if is_lazy(X):
        return LazyMatrix(X, where)
    return X if issparse(X) else in_memory(X)


def _dense(X: Any, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return some columns of rows, dense."""
    part = X[:, columns]
    return np.asarray(part.toarray() if issparse(part) else part, dtype=np.float64)
