"""Labels that are corrected by hand, in a column of their own, with undo and redo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.pl._colors import default_palette, label_colors
from centroid_encoder.tl._read import obs_column
from centroid_encoder.tl._result import colors_key

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._result import Result

SUFFIX = "_relabeled"
Step = tuple[str, NDArray[np.intp], NDArray[Any], NDArray[Any]]
"""Description, rows, their labels now, and those that undo or redo gives them."""
NEW_COLOR = "#d3d3d3"
"""Colour of a new label if every other colour is in use."""


class Relabeling:
    """Corrections of a label column; the column itself is only read.

    The corrections begin as a copy of the labels, in ``f"{label_key}_relabeled"``, which exists
    while it differs from them. A column that a map was trained on stays as it is: further
    corrections of it have a column of their own.

    Parameters
    ----------
    adata
        Annotated data. A view becomes a copy with the first step.
    label_key
        Column of ``adata.obs`` with the labels.

    Attributes
    ----------
    column
        Column that the corrected labels are written to.
    """

    def __init__(self, adata: AnnData, label_key: str) -> None:
        self.adata = adata
        self.column = correction_column(adata, label_key)
        self._done: list[Step] = []
        self._undone: list[Step] = []

    @property
    def labels(self) -> pd.Categorical:
        """(n_obs,) labels as they are now."""
        column = self.column if self.column in self.adata.obs else self._original
        return as_categories(obs_column(self.adata, column))

    @property
    def steps(self) -> tuple[str, str]:
        """Descriptions of the steps that `undo` and `redo` would take; empty for none."""
        undo, redo = ((steps[-1][0] if steps else "") for steps in (self._done, self._undone))
        return undo, redo

    def relabel(self, cells: ArrayLike, label: object) -> None:
        """Give cells another label, as one step, unless all of them have it.

        Parameters
        ----------
        cells
            Rows of the AnnData.
        label
            A label, the name of a new one, or None to remove the labels of the cells. Text stands
            for a number if the labels are numbers.

        Raises
        ------
        KeyError
            If the label column is gone.
        TypeError
            If the column holds measurements.
        ValueError
            If `label` is of another kind than the labels.
        """
        labels = self.labels
        name = None if label is None else _as_category(label, labels.categories)
        rows = np.unique(np.asarray(cells, dtype=np.intp))
        old = _values(labels[rows])
        rows, old = rows[old != name], old[old != name]
        if not len(rows):
            return
        n = f"{len(rows):,} {'cell' if len(rows) == 1 else 'cells'}"
        text = f"Remove the label of {n}" if label is None else f"Relabel {n} as {label}"
        new = np.full(len(rows), name, dtype=object)
        self._replace(rows, old, new)
        self._done.append((text, rows, new, old))
        self._undone.clear()

    def undo(self) -> None:
        """Undo the last step; a RuntimeError if something else has changed these labels."""
        self._take_back(self._done, self._undone)

    def redo(self) -> None:
        """Take the step again that was undone last; a RuntimeError as in `undo`."""
        self._take_back(self._undone, self._done)

    @property
    def _original(self) -> str:
        return self.column.removesuffix(SUFFIX)

    def _take_back(self, steps: list[Step], others: list[Step]) -> None:
        if steps:
            text, rows, now, before = steps[-1]
            self._replace(rows, now, before)
            steps.pop()
            others.append((text, rows, before, now))

    def _replace(self, rows: NDArray[np.intp], old: NDArray[Any], new: NDArray[Any]) -> None:
        """Write new labels in the place of old ones; drop all steps if these are not there."""
        adata, labels = self.adata, self.labels.copy()
        if rows[-1] >= len(labels) or not np.array_equal(_values(labels[rows]), old):
            self._done.clear()
            self._undone.clear()
            raise RuntimeError(
                f"obs[{self.column!r}] was changed elsewhere; earlier relabelling cannot be undone "
                "or redone"
            )
        original = as_categories(adata.obs[self._original])
        named = pd.Index(new[new != None].tolist()).unique()  # noqa: E711
        labels = labels.add_categories(named.difference(labels.categories, sort=False))
        labels[rows] = new
        used = original.categories.append(labels.remove_unused_categories().categories)
        labels = labels.set_categories(labels.categories[labels.categories.isin(used)])
        if adata.is_view:
            # anndata would do this below, with a warning.
            adata._init_as_actual(adata.copy())
        if np.array_equal(_values(labels), _values(original)):
            del adata.obs[self.column]
            adata.uns.pop(colors_key(self.column), None)
        else:
            colors = self._colors(labels.categories)
            adata.obs[self.column] = labels
            adata.uns[colors_key(self.column)] = colors

    def _colors(self, categories: pd.Index) -> list[str]:
        """Return the colours of known labels, and colours not in use for the others."""
        known: dict[object, str] = {}
        for column in (self.column, self._original):
            if column in self.adata.obs:
                known |= label_colors(self.adata, column)
        for name in categories.difference(list(known), sort=False):
            used = set(known.values())
            free = (color for color in default_palette(len(used) + 1) if color not in used)
            known[name] = next(free, NEW_COLOR)
        return [known[name] for name in categories]


def corrected(adata: AnnData, label_key: str) -> str:
    """Return the column with the corrections of a label column, or the column itself."""
    while (column := f"{label_key}{SUFFIX}") in adata.obs and not has_fractions(adata.obs[column]):
        label_key = column
    return label_key


def corrected_classes(adata: AnnData, result: Result) -> tuple[pd.Index, NDArray[np.intp]]:
    """Return the classes of a map and, after them, those named since, and the cells' codes."""
    classes, codes, column = result.classes, result.codes, corrected(adata, result.label_key)
    if column == result.label_key:
        return classes, codes
    was, now = (as_categories(adata.obs[name]) for name in (result.label_key, column))
    moved = np.append(now.categories.get_indexer(was.categories), -1)[was.codes] != now.codes
    named = now[moved].remove_unused_categories().categories
    classes = classes.append(named.difference(classes, sort=False))
    places = np.append(classes.get_indexer(now.categories), -1)
    return classes, np.where(moved, places[now.codes], codes)


def correction_column(adata: AnnData, label_key: str) -> str:
    """Return the column that further corrections of a label column are written to."""
    column = corrected(adata, label_key)
    is_correction = column.endswith(SUFFIX) and column.removesuffix(SUFFIX) in adata.obs
    results = [value for value in adata.uns.values() if isinstance(value, Mapping)]
    trained_on = [result["params"].get("label_key") for result in results if "params" in result]
    return column if is_correction and column not in trained_on else f"{column}{SUFFIX}"


def has_fractions(column: pd.Series) -> bool:
    """Whether a column holds measurements; integers with missing values are floats, too."""
    return pd.api.types.is_float_dtype(column.dtype) and bool((column.dropna() % 1 != 0).any())


def as_categories(column: pd.Series) -> pd.Categorical:
    """Return labels with the categories that `tl.centroid_encoder` gives them."""
    if has_fractions(column):
        raise TypeError(f"obs[{column.name!r}] holds fractional numbers, not labels")
    if pd.api.types.is_float_dtype(column.dtype):
        column = column.astype("Int64")
    return column.astype("category").array


def _values(labels: pd.Categorical) -> NDArray[Any]:
    """Return labels as an array of objects; None for cells without a label."""
    return np.asarray(np.where(pd.isna(labels), None, labels.astype(object)))


def _as_category(label: object, categories: pd.Index) -> object:
    """Return the category with this text, or a new one of the same kind."""
    text = str(label).strip()
    by_text = {str(name): name for name in categories}
    if text in by_text:
        return by_text[text]
    if not text:
        raise ValueError("a label needs a name")
    if pd.api.types.is_integer_dtype(categories.dtype) and text.removeprefix("-").isdecimal():
        return int(text)
    if not all(isinstance(name, str) for name in categories):
        raise ValueError(f"{text!r} is none of the labels, which are not text")
    return text
