"""What the colours of cells can stand for.

A colouring is one function below; its decorator gives its name and the cells for which it is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from centroid_encoder.pl._colors import class_colors, default_palette, label_colors
from centroid_encoder.pl._values import variable_source, variable_values
from centroid_encoder.tl._read import obs_column
from centroid_encoder.tl._result import Column, StoredCrossValidation, cv_key, obs_key
from centroid_encoder.viewer.map.scales import scale_colors

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._result import Regions, Result

LABEL = "label"
PREDICTED = "predicted class"

MAX_EXPLAINED = 12
"""Categories that are explained in a line."""
MAX_CATEGORIES = 100
"""Categories that have a colour of their own."""
GREY = "#6f737c"
WRONG = "#ff4d6d"
RIGHT = "#4dc3ff"

Rule = Callable[["Subject"], "Colors"]


@dataclass(frozen=True)
class Subject:
    """The cells that are coloured, and what has been computed of them."""

    adata: AnnData
    label_key: str | None
    """Label column that is chosen, or None."""
    result: Result | None
    """The map, or None."""
    regions: Regions
    """Kind of regions that make a cell misplaced."""
    key: str
    """Name of the results."""

    @property
    def map(self) -> Result:
        """The map; a KeyError says that there is none."""
        if self.result is None:
            raise KeyError(f"uns has no map {self.key!r}; train one")
        return self.result


@dataclass(frozen=True)
class Colors:
    """A colour for every cell."""

    codes: NDArray[np.intp]
    """(n_obs,) index into `colors`; −1 for cells that are not to be seen."""
    colors: list[str]
    meaning: str
    """What the colours stand for, in a line; may hold HTML."""

    def looks_like(self, other: Colors | None) -> bool:
        """Tell whether a layer would look the same."""
        same = other is not None and self.colors == other.colors
        return same and other is not None and np.array_equal(self.codes, other.codes)


class Coloring(NamedTuple):
    """A way to colour cells."""

    is_known: Callable[[Subject], bool]
    """Whether what it shows has been computed."""
    colors: Rule


COLORINGS: dict[str, Coloring] = {}
"""Every colouring by its name, in the order in which they are offered."""


def offered(subject: Subject) -> list[str]:
    """Return the names of the colourings that are known of the cells."""
    return [name for name, coloring in COLORINGS.items() if coloring.is_known(subject)]


def color_cells(name: str, subject: Subject) -> Colors:
    """Colour all cells.

    Parameters
    ----------
    name
        One of `COLORINGS`.
    subject
        The cells.

    Raises
    ------
    ValueError
        If no colouring has this name.
    KeyError
        If what it shows has not been computed, or has been deleted since.
    """
    if name not in COLORINGS:
        raise ValueError(f"no colouring is named {name!r}; there are {', '.join(COLORINGS)}")
    return COLORINGS[name].colors(subject)


def _coloring(name: str, is_known: Callable[[Subject], bool]) -> Callable[[Rule], Rule]:
    """Make a function the colouring of this name."""

    def add(colors: Rule) -> Rule:
        COLORINGS[name] = Coloring(is_known, colors)
        return colors

    return add


def _is_mapped(subject: Subject) -> bool:
    return subject.result is not None


def _is_trained(subject: Subject) -> bool:
    return subject.result is not None and not subject.result.is_query


def _has(name: Column) -> Callable[[Subject], bool]:
    """Whether mapped cells have a number, which a map of few cells does not give."""

    def is_known(subject: Subject) -> bool:
        numbers = subject.adata.obs.get(obs_key(subject.key, name))
        return _is_mapped(subject) and numbers is not None and bool(numbers.notna().any())

    return is_known


def _is_checked(subject: Subject) -> bool:
    return StoredCrossValidation.read(subject.adata, subject.key) is not None


@_coloring(LABEL, lambda _: True)
def _label(subject: Subject) -> Colors:
    return _categories(subject.adata, str(subject.label_key))


@_coloring(PREDICTED, _is_mapped)
def _predicted(subject: Subject) -> Colors:
    result = subject.map
    of_class = class_colors(subject.adata, result, None)
    palette = [of_class[name] for name in result.classes]
    meaning = "the class that the map decides for"
    unassigned = result.embedded & (result.predicted < 0)
    if not unassigned.any():
        return Colors(result.predicted, palette, meaning)
    codes = np.where(unassigned, len(palette), result.predicted)
    return Colors(codes, [*palette, GREY], f"{meaning}; {_key((GREY, 'unassigned'))}")


@_coloring("misplaced cells", _is_trained)
def _misplaced(subject: Subject) -> Colors:
    result = subject.map
    misplaced = result.misplaced(subject.regions)
    return Colors(
        np.where(result.embedded, misplaced.astype(np.intp), -1),
        [GREY, WRONG],
        _key((WRONG, "in another class's region"), (GREY, "other")),
    )


@_coloring("confidence", _has("confidence"))
def _confidence(subject: Subject) -> Colors:
    confidence = obs_column(subject.adata, obs_key(subject.key, "confidence"))
    codes, steps = scale_colors(confidence, reverse=True)
    return Colors(codes, steps, f"{_bar(0, steps, 1)} (1: sure of the predicted class)")


@_coloring("novelty", _has("novelty"))
def _novelty(subject: Subject) -> Colors:
    codes, steps = scale_colors(obs_column(subject.adata, obs_key(subject.key, "novelty")))
    return Colors(codes, steps, f"{_bar(0, steps, 1)} (1: unlike the training cells)")


@_coloring("out-of-fold error", _is_checked)
def _out_of_fold(subject: Subject) -> Colors:
    """Whether networks that have not seen a cell take it for what it is labelled as."""
    stored = StoredCrossValidation.read(subject.adata, subject.key)
    if stored is None:
        raise KeyError(f"the labels have not been checked under the name {subject.key!r}")
    classes = stored.classes
    own, found = (
        classes.get_indexer(obs_column(subject.adata, str(name)).astype(object))
        for name in (stored.label_key, obs_key(cv_key(subject.key), "label"))
    )
    return Colors(
        np.where(found >= 0, np.where(own >= 0, 1 + (found != own), 0), -1),
        [GREY, RIGHT, WRONG],
        _key((WRONG, "out of fold, wrong class"), (RIGHT, "right class"), (GREY, "no label")),
    )


def color_column(adata: AnnData, column: str) -> Colors:
    """Colour all cells by a column of ``obs``: numbers by a scale, categories by their colours.

    Raises
    ------
    KeyError
        If there is no such column.
    """
    values = obs_column(adata, column)
    if is_numeric_dtype(values) and not is_bool_dtype(values):
        return _numbers(values.to_numpy(np.float64, na_value=np.nan))
    made, names = _categories(adata, column), list(label_colors(adata, column))
    shown = zip(made.colors[:MAX_EXPLAINED], names, strict=False)
    meaning = _key(*((color, escape(str(name))) for color, name in shown))
    n = len(names)
    if n > MAX_CATEGORIES:
        counts = np.bincount(made.codes[made.codes >= 0], minlength=n)
        largest = np.sort(np.argsort(-counts, kind="stable")[:MAX_CATEGORIES])
        code_of = np.full(n + 1, MAX_CATEGORIES)
        code_of[largest], code_of[-1] = np.arange(MAX_CATEGORIES), -1
        colors = [*default_palette(MAX_CATEGORIES), GREY]
        meaning = _key((GREY, f"all but the {MAX_CATEGORIES} largest of {n:,} categories"))
        return Colors(code_of[made.codes], colors, meaning)
    more = f" … and {n - MAX_EXPLAINED} more" if n > MAX_EXPLAINED else ""
    return replace(made, meaning=meaning + more)


def color_variable(adata: AnnData, i: int) -> Colors:
    """Colour all cells by the variable at a position in `variable_source`, as `pl.voronoi` does.

    Raises
    ------
    IndexError
        If there are not as many variables.
    """
    return _numbers(variable_values(variable_source(adata), i))


def _categories(adata: AnnData, column: str) -> Colors:
    labels, colors = obs_column(adata, column).astype(object), label_colors(adata, column)
    return Colors(pd.Index(colors).get_indexer(labels), list(colors.values()), "")


def _numbers(values: NDArray[np.float64]) -> Colors:
    """Colour numbers; a few that are far off do not take the colours of all others."""
    there = values[np.isfinite(values)]
    low, high = np.percentile(there, [1, 99]) if len(there) else (0.0, 0.0)
    if low == high and len(there):
        low, high = there.min(), there.max()
    codes, steps = scale_colors((values - low) / ((high - low) or 1), colormap="viridis")
    return Colors(codes, steps, _bar(low, steps, high))


def _bar(low: float, steps: list[str], high: float) -> str:
    """A colour bar between its lowest and its highest value."""
    bar = "".join(f'<span style="color:{step}">█</span>' for step in steps)
    return f"{_short(low)} {bar} {_short(high)}"


def _short(value: float) -> str:
    """A number in a few digits; thousands are not worth a power of ten."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _key(*entries: tuple[str, str]) -> str:
    return " ".join(f'<span style="color:{color}">●</span> {text}' for color, text in entries)
