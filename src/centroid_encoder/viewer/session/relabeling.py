"""Relabel cells by hand, step by step and never over the original."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from centroid_encoder.pl._colors import default_palette, label_colors
from centroid_encoder.tl._read import obs_column
from centroid_encoder.tl._result import colors_key

if TYPE_CHECKING:
    from anndata import AnnData

Label = str | int | bool | None

NEW_COLOR = "#d3d3d3"
"""Of a new label, where every other colour is taken."""


class Relabeling:
    """Steps that give cells another label, in a column of their own, each of which can be undone.

    The column begins as a copy of the labels and is there as long as a step is in force; its
    colours, ``uns[f"{column}_colors"]``, are those of the labels.

    Parameters
    ----------
    adata
        Annotated data. A view becomes a copy with the first step, as anndata has it.
    label_key
        Column of the labels; it is only read.
    column
        Existing column to go on with. Default: a new one, ``f"{label_key}_relabeled"`` if that name
        is free.

    Attributes
    ----------
    column
        Column that the labels are written to. It can change as long as no step is in force.

    Raises
    ------
    KeyError
        If there is no such column.
    ValueError
        If `column` is the column of the labels itself.
    """

    _goes_on: bool
    _states: list[pd.Series]
    """The column before the first step and after each one; a byte a cell for most labels."""
    _texts: list[str]
    _n_done: int
    _former_colors: Any
    """What the key of the column's colours held before the first step."""

    def __init__(self, adata: AnnData, label_key: str, column: str | None = None) -> None:
        obs_column(adata, label_key)
        if column is not None:
            obs_column(adata, column)
        if column == label_key:
            raise ValueError(
                f"obs[{label_key!r}] holds the original labels, which stay as they are"
            )
        self.adata = adata
        self.label_key = label_key
        self.column = column or self._free_name()
        self._begin(goes_on=column is not None)

    @property
    def labels(self) -> pd.Categorical:
        """Labels as they are now, in row order."""
        there = self._there
        return _categorical(obs_column(self.adata, self.label_key) if there is None else there)

    @property
    def steps(self) -> tuple[str, str]:
        """What can be undone and what can be done again, in words; empty for nothing."""
        done, undone = self._texts[: self._n_done], self._texts[self._n_done :]
        return (done or [""])[-1], (undone or [""])[0]

    def relabel(self, cells: ArrayLike, label: Label) -> bool:
        """Give cells another label, as one step; return whether anything changed.

        Parameters
        ----------
        cells
            Rows of the AnnData.
        label
            An existing label, the name of a new one, or None to take the label away. Text stands
            for the number where the labels are numbers.

        Raises
        ------
        IndexError
            If there is no such row.
        KeyError
            If the column of the labels is gone.
        TypeError
            If the column holds measurements rather than labels.
        ValueError
            If `label` cannot be one of these labels.
        RuntimeError
            If something else has changed the column since the last step: earlier steps can then no
            longer be undone, but relabelling once more goes on from what the column holds.
        """
        self._check(loses=self._n_done > 0)
        labels = self.labels
        relabeled = _relabeled(labels, cells, label)
        n = int((relabeled.codes != labels.codes).sum())
        if n == 0:
            return False
        if self._n_done == 0:
            if not self._goes_on:
                self._states = [self.adata.obs[self.label_key].copy()]
            self._former_colors = self.adata.uns.get(colors_key(self.column))
        written = self._write(relabeled)
        self._n_done += 1
        # What was undone cannot be done again after another step.
        self._states[self._n_done :] = [written]
        whose = f"{n:,} {'cell' if n == 1 else 'cells'}"
        self._texts[self._n_done - 1 :] = [
            f"Take the label of {whose} away" if label is None else f"Relabel {whose} as {label}"
        ]
        return True

    def undo(self) -> None:
        """Take the last step back.

        Raises
        ------
        RuntimeError
            As in `relabel`.
        """
        self._check(loses=self._n_done > 0)
        if self._n_done == 0:
            return
        if self._n_done > 1:
            self._write(_categorical(self._states[self._n_done - 1]))
        elif self._is_trained_on():
            # From now on, the column is one that was there before the first step.
            self._states[0] = self._write(_categorical(self._states[0]))
            self._former_colors = self.adata.uns[colors_key(self.column)]
            self._goes_on = True
        else:
            self._restore()
        self._n_done -= 1

    def redo(self) -> None:
        """Do again what was undone last.

        Raises
        ------
        RuntimeError
            As in `relabel`.
        """
        self._check(loses=self._n_done < len(self._texts))
        if self._n_done < len(self._texts):
            self._write(_categorical(self._states[self._n_done + 1]))
            self._n_done += 1

    @property
    def _there(self) -> pd.Series | None:
        """The column as it was left; None where there should be none."""
        return self._states[self._n_done] if self._n_done or self._goes_on else None

    def _check(self, *, loses: bool) -> None:
        """Begin anew where somebody else has changed something; an error if that loses steps."""
        problem = self._problem()
        if problem is None:
            return
        goes_on = self._there is not None and self.column in self.adata.obs
        if not goes_on:
            self.column = self._free_name()
        self._begin(goes_on=goes_on)
        if loses:
            raise RuntimeError(
                f"{problem}, so that earlier relabelling can no longer be undone or redone. "
                "Relabel once more to go on from "
                f"{'what it holds now' if goes_on else 'the original labels'}"
            )

    def _problem(self) -> str | None:
        """What somebody else has done since the last step, to the cells or their names as well."""
        obs, there = self.adata.obs, self._there
        if there is None:
            if self.column in obs:
                return f"obs[{self.column!r}] has been made by something else"
            if self._states and not _equal(obs.get(self.label_key), self._states[0]):
                return f"obs[{self.label_key!r}] has been changed"
            return None
        if self.column not in obs:
            return f"obs[{self.column!r}] has been deleted"
        if not _equal(obs[self.column], there):
            return f"obs[{self.column!r}] has been changed by something else"
        return None

    def _begin(self, *, goes_on: bool) -> None:
        """Begin from the column as it is now, or without one."""
        self._goes_on = goes_on
        self._states = [self.adata.obs[self.column]] if goes_on else []
        self._texts = []
        self._n_done = 0
        self._former_colors = None

    def _free_name(self) -> str:
        name, n = f"{self.label_key}_relabeled", 2
        while name in self.adata.obs:
            name, n = f"{self.label_key}_relabeled_{n}", n + 1
        return name

    def _write(self, labels: pd.Categorical) -> pd.Series:
        """Write the column and its colours; return it as it is now."""
        adata = self.adata
        if adata.is_view:
            if adata.isbacked:
                raise ValueError(
                    "the table is a view of a file on disk, which cannot take labels; use "
                    "adata.to_memory()"
                )
            # What anndata would do at the next line, with a warning.
            adata._init_as_actual(adata.copy())
        colors = self._colors(labels.categories)
        adata.obs[self.column] = labels
        adata.uns[colors_key(self.column)] = colors
        return adata.obs[self.column].copy()

    def _is_trained_on(self) -> bool:
        """Whether a map or a check rests on the column, which has to stay then."""
        stored = (value for value in self.adata.uns.values() if isinstance(value, Mapping))
        params = (value.get("params") for value in stored)
        return any(isinstance(p, Mapping) and p.get("label_key") == self.column for p in params)

    def _restore(self) -> None:
        """Leave the column and its colours as they were before the first step."""
        if self._goes_on:
            self.adata.obs[self.column] = self._states[0]
        else:
            del self.adata.obs[self.column]
        if self._former_colors is not None:
            self.adata.uns[colors_key(self.column)] = self._former_colors
        else:
            self.adata.uns.pop(colors_key(self.column), None)

    def _colors(self, categories: pd.Index) -> list[str]:
        """Colours of the labels, and others for new ones."""
        known: dict[object, str] = {}
        for column in (self.column, self.label_key):
            if column in self.adata.obs:
                known |= label_colors(self.adata, column)
        for name in categories.difference(list(known), sort=False):
            used = set(known.values())
            free = (color for color in default_palette(len(used) + 1) if color not in used)
            known[name] = next(free, NEW_COLOR)
        return [known[name] for name in categories]


def _relabeled(labels: pd.Categorical, cells: ArrayLike, label: Label) -> pd.Categorical:
    """Labels of which those of some rows are another one, the last category if it is new."""
    rows = np.unique(cells)
    if len(rows) and rows.dtype.kind not in "iu":
        raise TypeError(f"cells must be rows of the table, not {rows.dtype} values")
    outside = rows[(rows < 0) | (rows >= len(labels))]
    if len(outside):
        raise IndexError(f"the table has {len(labels)} rows; there is no row {outside[0]}")
    categories, code = labels.categories, -1
    if label is not None:
        name = _as_category(label, categories)
        if name not in categories:
            categories = categories.append(pd.Index([name], dtype=categories.dtype))
        code = int(categories.get_loc(name))
    codes = labels.codes.astype(np.intp)
    codes[rows.astype(np.intp)] = code
    return pd.Categorical.from_codes(codes, categories, ordered=labels.ordered)


def _as_category(label: Label, categories: pd.Index) -> object:
    """Return the category that is meant, or a new one of the same kind."""
    by_text = {str(name): name for name in categories}
    text = str(label)
    if text not in by_text:
        text = text.strip()
    if text in by_text:
        return by_text[text]
    if not text:
        raise ValueError("a label needs a name")
    if pd.api.types.is_bool_dtype(categories.dtype):
        raise ValueError(f"these labels are True or False; {text!r} is neither")
    if pd.api.types.is_integer_dtype(categories.dtype):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"these labels are whole numbers; {text!r} is none") from None
    if not all(isinstance(name, str) for name in categories):
        raise ValueError(f"{text!r} is none of the labels, which are no text")
    return text


def _categorical(column: pd.Series) -> pd.Categorical:
    """Return the labels with the categories that `tl.centroid_encoder` gives them."""
    if pd.api.types.is_float_dtype(column.dtype):
        if (column.dropna() % 1 != 0).any():
            raise TypeError(f"obs[{column.name!r}] holds fractional numbers, not labels")
        column = column.astype("Int64")
    return column.astype("category").array


def _equal(a: pd.Series | None, b: pd.Series) -> bool:
    if a is None or not a.equals(b):
        return False
    # Two unordered categoricals are equal to pandas in whatever order their categories are.
    return not isinstance(b.dtype, pd.CategoricalDtype) or bool(
        a.cat.categories.equals(b.cat.categories)
    )
