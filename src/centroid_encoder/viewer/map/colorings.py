"""What the colours of cells can stand for."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import matplotlib as mpl
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.pl._colors import class_colors, default_palette, label_colors
from centroid_encoder.pl._values import (
    MAX_CATEGORIES,
    read_values,
    variable_source,
    variable_values,
)
from centroid_encoder.tl._read import obs_column
from centroid_encoder.tl._result import Column, Result, StoredCrossValidation, cv_key, obs_key
from centroid_encoder.viewer.session.session import Session

LABEL = "label"
PREDICTED = "predicted class"
MISPLACED = "misplaced cells"
CONFIDENCE = "confidence"
NOVELTY = "novelty"
OUT_OF_FOLD = "out-of-fold error"

STEPS = 20
"""Colours of a scale: as many as can be told apart."""
MAX_EXPLAINED = 12
"""Categories that are explained in a line."""
GREY = "#6f737c"
FAINT = "#b0b4be60"
"""Grey through which the image is seen."""
WRONG = "#ff4d6d"
RIGHT = "#4dc3ff"


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
        if other is None or self.colors != other.colors:
            return False
        return np.array_equal(self.codes, other.codes)


def offered(session: Session) -> list[str]:
    """Return the names of the colourings that are known of the cells."""
    result, adata, key = session.drawn, session.adata, session.key
    if adata is None or session.drawn_adata is None:
        return [LABEL]
    of_map = session.drawn_adata.obs

    def has(column: Column) -> bool:
        # A map of few cells does not give the numbers.
        name = "" if result is None else obs_key(result.key, column)
        return name in of_map and bool(of_map[name].notna().any())

    known = {
        LABEL: True,
        PREDICTED: result is not None,
        MISPLACED: result is not None and not result.is_query,
        CONFIDENCE: has("confidence"),
        NOVELTY: has("novelty"),
        OUT_OF_FOLD: StoredCrossValidation.read(adata, key) is not None,
    }
    return [name for name, is_known in known.items() if is_known]


def color_cells(name: str, session: Session) -> Colors | None:
    """Colour all cells in one of the ways that are `offered`; None without labels.

    A KeyError if what the colours show has not been computed, or has been deleted since.
    """
    adata, result, key = session.adata, session.drawn, session.key
    if adata is None or session.label_key is None:
        return None
    of_map = adata if session.drawn_adata is None else session.drawn_adata
    if name == LABEL:
        labels = _categories(adata, str(session.corrected(session.label_key)))
        # The user of a labelling looks for cells without a label.
        return labels if session.labeling is None else _with_others(labels)
    if name not in offered(session):
        raise KeyError(f"the results {key!r} have no {name}")
    if name == OUT_OF_FOLD:
        return _out_of_fold(adata, key)
    assert result is not None
    if name == CONFIDENCE:
        shares = obs_column(of_map, obs_key(result.key, "confidence"))
        return _scaled(shares, 0, 1, reverse=True, note=" (1: sure of the predicted class)")
    if name == NOVELTY:
        shares = obs_column(of_map, obs_key(result.key, "novelty"))
        return _scaled(shares, 0, 1, note=" (1: unlike the training cells)")
    if name == PREDICTED:
        return _predicted(of_map, result)
    is_misplaced = result.misplaced(session.misplaced_by).astype(np.intp)
    meaning = _key((WRONG, "in another class's region"), (GREY, "other"))
    return Colors(np.where(result.embedded, is_misplaced, -1), [GREY, WRONG], meaning)


def _predicted(adata: AnnData, result: Result) -> Colors:
    of_class = class_colors(adata, result, None)
    palette = [of_class[name] for name in result.classes]
    meaning = "the class that the map decides for"
    unassigned = result.embedded & (result.predicted < 0)
    if not unassigned.any():
        return Colors(result.predicted, palette, meaning)
    codes = np.where(unassigned, len(palette), result.predicted)
    return Colors(codes, [*palette, GREY], f"{meaning}; {_key((GREY, 'unassigned'))}")


def _out_of_fold(adata: AnnData, key: str) -> Colors:
    """Whether networks that have not seen a cell take it for what it is labelled as."""
    stored = StoredCrossValidation.read(adata, key)
    assert stored is not None
    own, found = (
        stored.classes.get_indexer(obs_column(adata, str(name)).astype(object))
        for name in (stored.label_key, obs_key(cv_key(key), "label"))
    )
    return Colors(
        np.where(found >= 0, np.where(own >= 0, 1 + (found != own), 0), -1),
        [GREY, RIGHT, WRONG],
        _key((WRONG, "out of fold, wrong class"), (RIGHT, "right class"), (GREY, "no label")),
    )


def color_column(adata: AnnData, column: str) -> Colors:
    """Colour all cells by a column of ``obs``: numbers by a scale, categories by their colours.

    A KeyError if there is no such column.
    """
    found = read_values(adata, column, layer=None, use_raw=None)
    if found.colors is None:
        return _numbers(found.values)
    codes, n = found.values, len(label_colors(adata, column))
    if n > MAX_CATEGORIES:
        is_small = (codes < 0) & adata.obs[column].notna().to_numpy()
        meaning = _key((GREY, f"all but the {MAX_CATEGORIES} largest of {n:,} categories"))
        colors = [*default_palette(MAX_CATEGORIES), GREY]
        return Colors(np.where(is_small, MAX_CATEGORIES, codes), colors, meaning)
    shown = list(found.colors.items())[:MAX_EXPLAINED]
    meaning = _key(*((color, escape(str(name))) for name, color in shown))
    more = f" … and {n - MAX_EXPLAINED} more" if n > MAX_EXPLAINED else ""
    return Colors(codes, list(found.colors.values()), meaning + more)


def color_variable(adata: AnnData, i: int) -> Colors:
    """Colour all cells by the variable at a position in `variable_source`, as `pl.voronoi` does.

    An IndexError if there are not as many variables.
    """
    return _numbers(variable_values(variable_source(adata), i))


def _categories(adata: AnnData, column: str) -> Colors:
    labels, colors = obs_column(adata, column).astype(object), label_colors(adata, column)
    return Colors(pd.Index(colors).get_indexer(labels), list(colors.values()), "")


def _with_others(of: Colors) -> Colors:
    """Give the cells without a colour a faint one."""
    codes = np.where(of.codes < 0, len(of.colors), of.codes)
    return Colors(codes, [*of.colors, FAINT], of.meaning)


def _numbers(values: NDArray[np.float64]) -> Colors:
    """Colour numbers; a few that are far off do not take the colours of all others."""
    there = values[np.isfinite(values)]
    low, high = np.percentile(there, [1, 99]) if len(there) else (0.0, 0.0)
    if low == high and len(there):
        low, high = there.min(), there.max()
    return _scaled(values, low, high, colormap="viridis")


def _scaled(
    values: ArrayLike,
    low: float,
    high: float,
    *,
    colormap: str = "inferno",
    reverse: bool = False,
    note: str = "",
) -> Colors:
    """Colour numbers from dark to bright, or `reverse`; those that are not finite are not seen."""
    shares = (np.asarray(values, dtype=np.float64) - low) / ((high - low) or 1)
    there = np.isfinite(shares)
    codes = np.full(len(shares), -1, dtype=np.intp)
    codes[there] = (shares[there] * STEPS).clip(0, STEPS - 1)
    # The darkest would be lost on an image.
    shades = mpl.colormaps[colormap](np.linspace(0.25, 1, STEPS)[:: -1 if reverse else 1])
    colors = [to_hex(shade) for shade in shades]
    bar = "".join(f'<span style="color:{color}">█</span>' for color in colors)
    return Colors(codes, colors, f"{_short(low)} {bar} {_short(high)}{note}")


def _short(value: float) -> str:
    """A number in a few digits; thousands are not worth a power of ten."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _key(*entries: tuple[str, str]) -> str:
    return " ".join(f'<span style="color:{color}">●</span> {text}' for color, text in entries)
