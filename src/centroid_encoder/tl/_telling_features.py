"""Features that separate two classes, or a class from all others, and their values in a cell."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.checks import Number
from centroid_encoder.core.arrays import Codes, Doubles, Mask
from centroid_encoder.core.effects import different, effects
from centroid_encoder.core.gaps import dense
from centroid_encoder.core.matrix import VALUES_AT_ONCE
from centroid_encoder.core.splits import at_most
from centroid_encoder.errors import MissingKeyError, check
from centroid_encoder.tl._cells import NewCells, Source, read_new_cells
from centroid_encoder.tl._check import check_known
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._result import Result, read_result

MAX_CELLS = 1000
"""Largest number of cells of a class that are compared; a larger class is sampled."""
QUANTILES = (0.1, 0.5, 0.9)
CANDIDATES = 10
"""Number of best features, for each wanted one, among which those that are not alike are chosen."""


def telling_features(
    adata: AnnData,
    cell: str | None = None,
    *,
    classes: str | tuple[str, str] | None = None,
    key: str = "ce",
    n_features: int = 5,
) -> pd.DataFrame:
    """List the features that best separate two classes, with the values of one cell.

    The classes are the label and the predicted class of the cell. If these are the same, or the
    cell has no label, they are the predicted class and the second likeliest one. `adata` is not
    changed. For all features, and groups that are no classes, see `rank_features`.

    Parameters
    ----------
    adata
        Annotated data after `centroid_encoder` or `ingest`.
    cell
        Name of the cell in ``obs_names``.
    classes
        Instead of a cell: a class, which is compared with all others, or two classes.
    key
        Name of the result, as given to the `key_added` of that function.
    n_features
        Number of features.

    Returns
    -------
    DataFrame
        One row for each feature, under its name, best first, with the columns

        ``class``, ``other``
            The two classes, the same in all rows; ``other`` is ``"rest"`` for all other classes.
        ``auroc`` : dtype ``float64``
            Area under the ROC curve: the probability that a cell of ``class`` has a larger value
            than a cell of ``other``; 0.5 if the classes do not differ. Features are ordered by the
            distance to 0.5. A feature whose ranks within the classes have a correlation of 0.7 or
            more with those of a better feature is left out as long as there are enough others.
        ``value``
            Value of the cell; NaN if it is missing. Not with `classes`.
        ``low``, ``median``, ``high``, ``other_low``, ``other_median``, ``other_high``
            10 %, 50 % and 90 % quantiles of each class, without missing values.

        The features are those of the map or, if they are an unnamed representation, such as
        principal components, the variables of ``adata.X``. If a class has more than 1,000 labeled
        cells, a random sample of them is compared, always the same one.

    Raises
    ------
    KeyError
        If there is no such cell or no such result, or if a part of it is missing.
    ValueError
        If the cell is not in the map, if there is no such class, or if one of the classes has no
        labeled cell; if not one of `cell` and `classes` is given.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> worst = ce.tl.misplaced(adata).index[0]
    >>> table = ce.tl.telling_features(adata, worst)
    >>> ce.tl.telling_features(adata, classes="CD19+ B", n_features=2).index.tolist()
    ['CD79A', 'CD79B']
    """
    check((cell is None) != (classes is None), "pass either a cell or classes", "cell")
    Number(1, integer=True).check("n_features", n_features)
    result = read_result(adata, key)
    if classes is not None:
        pair = (classes,) if pd.api.types.is_scalar(classes) else tuple(classes)
        return TellingFeatures(adata, result).of_classes(pair, n_features)
    check_known(cell, adata.obs_names, f"obs_names has no {cell!r}", None, MissingKeyError)
    row = int(adata.obs_names.get_indexer_for([cell])[0])
    return TellingFeatures(adata, result).of_cell(row, n_features)


class TellingFeatures:
    """The features of a map, and the comparisons of its classes so far."""

    def __init__(self, adata: AnnData, result: Result) -> None:
        self._result = result
        # Not `functools.cache`, which would keep the matrix until the next garbage collection.
        self._compared: dict[tuple[int, int, int], pd.DataFrame] = {}
        self._cells, self._X, self._columns, self._names = read_features(adata, result)

    def of_cell(self, row: int, n_features: int) -> pd.DataFrame:
        """Return the table of `telling_features` for the cell in a row of the AnnData."""
        pair = self._classes(row)
        if (*pair, n_features) not in self._compared:
            self._compared[*pair, n_features] = self._compare(pair, n_features)
        table = self._compared[*pair, n_features].copy()
        columns = self._columns[self._names.get_indexer(table.index)]
        table.insert(3, "value", dense(self._X[row : row + 1][:, columns])[0].astype(np.float64))
        return table

    def of_classes(self, names: tuple[Any, ...], n_features: int) -> pd.DataFrame:
        """Return the table of `telling_features` for two classes, or one and the rest."""
        fits, known = len(names) in (1, 2) and len(set(names)) == len(names), self._result.classes
        check(fits, f"classes must be a class or two; got {names!r}", "classes")
        for name in names:
            check_known(name, known, f"the map has no class {name!r}", "classes")
        first, other = [*known.get_indexer(list(names)).tolist(), -1][:2]
        return self._compare((first, other), n_features)

    def _classes(self, row: int) -> tuple[int, int]:
        """Return the codes of the two classes that are compared for a cell."""
        result = self._result
        label, predicted = int(result.codes[row]), int(result.predicted[row])
        check(predicted >= 0, "the cell is not in the map, or is not assigned to a class")
        if label not in (-1, predicted):
            return label, predicted
        likeliness = -np.linalg.norm(result.centers - result.embedding[row], axis=1)
        if self._cells is not None:
            _, probabilities, _ = self._cells.imputed(self._cells.X[row : row + 1]).judge()
            classes = pd.Index(self._cells.model.classes_.tolist())
            likeliness = probabilities[0, classes.get_indexer(result.classes)]
        likeliness[predicted] = -np.inf
        return predicted, int(likeliness.argmax())

    def _compare(self, pair: tuple[int, int], n: int) -> pd.DataFrame:
        """Return the table of the best features without values of a cell."""
        codes, titles = self._result.codes, [*self._result.classes, "rest"]
        first, other = codes == pair[0], codes == pair[1] if pair[1] >= 0 else codes >= 0
        groups = first, other & ~first
        for code, mask in zip(pair, groups, strict=True):
            check(mask.any(), f"no cell has the label {titles[code]!r}")
        most = max(20, min(MAX_CELLS, VALUES_AT_ONCE // (2 * max(1, len(self._columns)))))
        found, best, quantiles = compare(self._X, self._columns, groups, most, n, n * CANDIDATES)
        # A feature without values in one of the classes separates nothing.
        areas = np.nan_to_num(found["auroc"][0, best], nan=0.5)
        table = pd.DataFrame({"auroc": areas}, index=self._names[best])
        table.insert(0, "class", titles[pair[0]])
        table.insert(1, "other", titles[pair[1]])
        table[["low", "median", "high", "other_low", "other_median", "other_high"]] = quantiles
        return table


def read_features(
    adata: AnnData, result: Result | None
) -> tuple[NewCells | None, Any, Codes, pd.Index]:
    """Return the cells as a map takes them, and a matrix, its columns that are compared, and names.

    The columns are the features of the map. If there is no map, or its features are a
    representation without names, they are the variables of X.
    """
    cells, source = None, Source() if result is None else result.stored.source
    # A KeyError if the map is not stored; a ValueError if features of the map are missing.
    with suppress(KeyError, ValueError):
        if result is not None:
            model = fitted_model(adata, result.key, device="cpu")
            cells, _ = read_new_cells(adata, model, source)
    if cells is not None and cells.names is not None:
        columns = cells.index[~cells.absent]
        return cells, cells.X, columns, pd.Index(cells.names)[columns]
    values = Source(layer=source.layer, use_raw=source.use_raw).read(adata)
    return cells, values.X, np.arange(values.X.shape[1]), pd.Index(values.names)


def compare(
    X: Any,
    columns: Codes,
    groups: tuple[Mask, Mask],
    n_most: int,
    n_best: int,
    n_candidates: int,
) -> tuple[dict[str, Doubles], Codes, Doubles]:
    """Compare some columns of two groups of cells, which have no cell in common.

    At most `n_most` cells of each group take part, always the same ones. Returns the effects of the
    (d,) `columns`; `n_best` of them that are not alike among the `n_candidates` with the largest
    effects, best first; and the (n_best, 6) `QUANTILES` of both groups.
    """
    samples = [at_most(n_most, np.flatnonzero(mask)) for mask in groups]
    both = np.sort(np.concatenate(samples))
    is_first, values = np.isin(both, samples[0]), X[both]
    if not np.array_equal(columns, np.arange(values.shape[1])):
        values = values[:, columns]
    found = effects(values, np.where(is_first, 0, 1), 2)
    away = np.abs(np.nan_to_num(found["auroc"][0], nan=0.5) - 0.5)
    best = np.argsort(-away, kind="stable")[:n_candidates]
    shown = dense(values[:, best]).astype(np.float64)
    shown[~np.isfinite(shown)] = np.nan
    chosen = different(shown, is_first, n_best)
    best, shown = best[chosen], shown[:, chosen]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a group without values
        sides = [np.nanquantile(shown[mask], QUANTILES, axis=0) for mask in (is_first, ~is_first)]
    return found, best, np.concatenate(sides).T
