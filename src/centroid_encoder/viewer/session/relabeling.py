"""Labels that are corrected by hand, in a column of their own, with undo and redo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.pl._colors import default_palette, label_colors
from centroid_encoder.tl._read import obs_column
from centroid_encoder.tl._result import Result, colors_key
from centroid_encoder.viewer.session.steps import Steps

SUFFIX = "_relabeled"
CHANGED = "obs[{!r}] was changed elsewhere; earlier labelling cannot be undone or redone"
NEW_COLOR = "#d3d3d3"
"""Colour of a new label if every other colour is in use."""


class Relabeling:
    """Corrections of a label column; the column itself does not change.

    The corrections begin as a copy of the labels, in ``f"{label_key}_relabeled"``, which exists
    while it differs from them. A column that a map was trained on stays as it is: further
    corrections of it have a column of their own.

    A view becomes a copy with the first step. `column` is the column that the corrected labels are
    written to.
    """

    def __init__(self, adata: AnnData, label_key: str) -> None:
        self.adata = adata
        self.column = correction_column(adata, label_key)
        self._original = self.column.removesuffix(SUFFIX)
        self._steps: Steps[tuple[pd.Categorical, pd.Categorical]] = Steps()
        """Labels before and after each step."""

    @property
    def labels(self) -> pd.Categorical:
        """(n_obs,) labels as they are now."""
        column = self.column if self.column in self.adata.obs else self._original
        return as_categories(obs_column(self.adata, column))

    @property
    def steps(self) -> tuple[str, str]:
        """Descriptions of the steps that `undo` and `redo` would take; empty for none."""
        return self._steps.texts

    def relabel(self, rows: ArrayLike, label: str) -> None:
        """Give rows of the AnnData another label, as one step; no step if all of them have it.

        An empty `label` removes their labels; a label that is not known yet is a new one.
        A KeyError if the label column is gone, a TypeError if it holds measurements, a ValueError
        if its labels are not text and `label` is none of them.
        """
        before = self.labels
        labels, name = before.copy(), _as_category(label, before.categories)
        if name is not None and name not in labels.categories:
            labels = labels.add_categories([name])
        labels[rows] = name
        n = int((labels.codes != before.codes).sum())
        if not n:
            return
        # Drop new labels without cells; keep all original labels.
        used = {*as_categories(self.adata.obs[self._original]).categories, *labels.dropna()}
        labels = labels.remove_categories([name for name in labels.categories if name not in used])
        if (last := self._steps.last) is not None and not _equal(before, last[1]):
            self._steps.clear()
        cells = f"{n:,} {'cell' if n == 1 else 'cells'}"
        text = f"Relabel {cells} as {label}" if label else f"Remove the label of {cells}"
        self._change(before, labels)
        self._steps.add(text, (before, labels))

    def undo(self) -> None:
        """Undo the last step; a RuntimeError if something else has changed these labels."""
        if (step := self._steps.last) is not None:
            before, after = step
            self._change(after, before)
            self._steps.move(-1)

    def redo(self) -> None:
        """Redo the step that was undone last; a RuntimeError as in `undo`."""
        if (step := self._steps.undone) is not None:
            self._change(*step)
            self._steps.move(1)

    def _change(self, before: pd.Categorical, labels: pd.Categorical) -> None:
        """Write labels; a RuntimeError if those that are there are not those `before`."""
        adata = self.adata
        if not _equal(self.labels, before):
            self._steps.clear()
            raise RuntimeError(CHANGED.format(self.column))
        if adata.is_view:
            # Otherwise anndata does this below, with a warning.
            adata._init_as_actual(adata.copy())
        if _equal(labels, as_categories(adata.obs[self._original])):
            del adata.obs[self.column]
            adata.uns.pop(colors_key(self.column), None)
        else:
            colors = self._colors(labels.categories)
            adata.obs[self.column] = labels
            adata.uns[colors_key(self.column)] = colors

    def _colors(self, categories: pd.Index) -> list[str]:
        """Return the colours of known labels, and colours not in use for the others."""
        colors: dict[object, str] = {}
        for column in (self.column, self._original):
            if column in self.adata.obs:
                colors |= label_colors(self.adata, column)
        for name in categories.difference(list(colors), sort=False):
            colors[name] = free_color(colors.values())
        return [colors[name] for name in categories]


def free_color(used: Iterable[str]) -> str:
    """Return the first default colour that is not in use."""
    used = set(used)
    free = (color for color in default_palette(len(used) + 1) if color not in used)
    return next(free, NEW_COLOR)


def corrected(adata: AnnData, label_key: str) -> str:
    """Return the column with the corrections of a label column, or the column itself."""
    while (column := f"{label_key}{SUFFIX}") in adata.obs and not has_fractions(adata.obs[column]):
        label_key = column
    return label_key


def corrected_classes(
    adata: AnnData, result: Result, column: str | None = None
) -> tuple[pd.Index, NDArray[np.intp]]:
    """Return the classes of a map and, after them, those added since, and the codes of the cells.

    By default the labels of the cells are those of the map, with their corrections; `column` has
    other ones.
    """
    classes, codes = result.classes, result.codes
    if column is not None:
        labels = as_categories(adata.obs[column])
        classes = classes.append(labels.remove_unused_categories().categories.difference(classes))
        return classes, np.append(classes.get_indexer(labels.categories), -1)[labels.codes]
    column = corrected(adata, result.label_key)
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


def _equal(first: pd.Categorical, second: pd.Categorical) -> bool:
    """Whether labels are the same, whatever labels without cells there are."""
    return bool(pd.Series(first.astype(object)).equals(pd.Series(second.astype(object))))


def _as_category(text: str, categories: pd.Index) -> object:
    """Return the category with this text, or a new one of the same kind; None for no text."""
    by_text = {str(name): name for name in categories} | {"": None}
    if text in by_text:
        return by_text[text]
    if pd.api.types.is_integer_dtype(categories.dtype) and text.removeprefix("-").isdecimal():
        return int(text)
    if not all(isinstance(name, str) for name in categories):
        raise ValueError(f"the labels are not text, and {text!r} is not one of them")
    return text
