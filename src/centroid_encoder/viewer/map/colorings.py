"""The ways to colour cells: by labels, results, columns or variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.colors import LinearSegmentedColormap, to_hex
from numpy.typing import ArrayLike

from centroid_encoder.pl._colors import class_colors, default_palette, label_colors
from centroid_encoder.pl._values import MAX_CATEGORIES, read_values, variable_source
from centroid_encoder.tables import cv_key, obs_key
from centroid_encoder.tl._check import obs_column
from centroid_encoder.tl._result import Result, StoredCrossValidation
from centroid_encoder.viewer.map.scene import Colors
from centroid_encoder.viewer.session.corrections import codes_in, corrected, corrected_colors
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import LABEL

PREDICTED = "predicted class"
MISPLACED = "misplaced cells"
CONFIDENCE: Literal["confidence"] = "confidence"
NOVELTY: Literal["novelty"] = "novelty"
OUT_OF_FOLD = "out-of-fold error"
NO_COLORS = "original colours"

Coloring = str | tuple[str, str]

SCALE = LinearSegmentedColormap.from_list("scale", ["#ffe98a", "#ff9d1c", "#ff2d2d", "#ff12b0"])
"""Colours of a scale, from pale to saturated, all of them bright: legible over fluorescence."""
STEPS = 20
"""Number of colours of a scale; more cannot be distinguished."""
MAX_EXPLAINED = 12
"""Largest number of categories that are named below the box."""
GREY = "#6f737c"
FAINT = "#b0b4be60"
"""Translucent grey for cells without a label."""
WRONG = "#ff4d6d"
RIGHT = "#4dc3ff"


def offered(session: Session) -> dict[str, Callable[[], Colors]]:
    """Return the functions that colour cells by labels and by the results that the table has."""
    adata, of_map, result = session.adata, session.state.drawn_adata, session.state.drawn
    found: dict[str, Callable[[], Colors]] = {LABEL: partial(_labels, session)}
    if adata is None or of_map is None:
        return found
    if result is not None:
        found[PREDICTED] = partial(_predicted, of_map, result)
        if not result.is_query:
            found[MISPLACED] = partial(_misplaced, result, session)
        for name in (CONFIDENCE, NOVELTY):
            shares = of_map.obs.get(obs_key(result.key, name))
            # The column is empty if the map has too few cells to estimate it.
            if shares is not None and shares.notna().any():
                note = "sure of the predicted class"
                note = note if name == CONFIDENCE else "unlike the training cells"
                reverse = name == CONFIDENCE
                found[name] = partial(_scaled, shares, 0, 1, f"1: {note}", reverse=reverse)
    if (stored := StoredCrossValidation.read(adata, session.state.key)) is not None:
        found[OUT_OF_FOLD] = partial(_out_of_fold, adata, session.state.key, stored)
    return found


def to_choose(session: Session) -> Mapping[Coloring, str]:
    """Return the text of all that cells can be coloured by: results, columns and variables."""
    now = session.state
    found: Mapping[Coloring, str] = session.of(
        _to_choose, session, now.cells, now.columns, now.drawn, now.check
    )
    return found


def _to_choose(session: Session, *_: object) -> Mapping[Coloring, str]:
    found: dict[Coloring, str] = {name: name for name in (*offered(session), NO_COLORS)}
    if (adata := session.adata) is not None:
        names = map(str, [*adata.obs.columns, *variable_source(adata).var_names])
        found |= {("", name): name for name in names}
    return found


def chosen(session: Session) -> Coloring:
    """Return what the cells are coloured by: the choice of the user, or the labels."""
    coloring = session.state.coloring
    return coloring if coloring in to_choose(session) else LABEL


def shown_colors(session: Session) -> Colors | None:
    """Return the colours of all cells, or None for the own colours of the layers.

    An error is shown.
    """
    now, coloring = session.state, chosen(session)
    parts = now.drawn, now.drawn_adata, now.check, now.labels, now.columns, now.labeling
    found: Colors | None = session.of(
        _shown_colors, session, coloring, session.label_key, session.misplaced_by, now.cells, *parts
    )
    return found


def _shown_colors(session: Session, coloring: Coloring, *_: object) -> Colors | None:
    try:
        if isinstance(coloring, tuple) and session.adata is not None:
            return color_values(session.adata, coloring[1])
        return None if coloring == NO_COLORS else color_cells(str(coloring), session)
    except (KeyError, ValueError) as error:
        session.say(error, "error")
        return None


def shown_values(session: Session) -> Colors | None:
    """Return the colours of the cells in the map; None if these are its own labels."""
    is_own = chosen(session) == LABEL and session.shown_labels in (session.label_key, None)
    return None if is_own else shown_colors(session)


def color_cells(name: str, session: Session) -> Colors | None:
    """Colour all cells in one of the `offered` ways; return None without labels.

    Raises a KeyError if the result has not been computed or has been deleted.
    """
    if session.adata is None or session.label_key is None:
        return None
    if (way := offered(session).get(name)) is None:
        raise KeyError(f"the results {session.state.key!r} have no {name}")
    return way()


def _labels(session: Session) -> Colors:
    adata, label_key = session.adata, session.label_key
    assert adata is not None
    assert label_key is not None
    of_label = corrected_colors(adata, label_key)
    codes = codes_in(pd.Index(of_label), obs_column(adata, corrected(adata, label_key)))
    palette = list(of_label.values())
    if session.state.labeling is not None:
        # The user who labels by hand needs to see cells without a label, and the stain in them.
        codes[codes < 0] = len(palette)
        return Colors(codes, [*palette, FAINT], "", hollow=len(palette))
    return Colors(codes, palette, "")


def _predicted(adata: AnnData, result: Result) -> Colors:
    of_class = class_colors(adata, result, None)
    palette = [of_class[name] for name in result.classes]
    unassigned = result.embedded & (result.predicted < 0)
    codes = np.where(unassigned, len(palette), result.predicted)
    more = ((GREY, "unassigned"),) * bool(unassigned.any())
    return Colors(codes, [*palette, GREY], "class predicted by the map", key=more)


def _misplaced(result: Result, session: Session) -> Colors:
    codes = np.where(result.embedded, result.misplaced(session.misplaced_by), -1)
    key = (WRONG, "in another class's region"), (GREY, "other")
    return Colors(codes, [GREY, WRONG], "", key=key)


def _out_of_fold(adata: AnnData, key: str, stored: StoredCrossValidation) -> Colors:
    """Colour cells by whether networks that have not seen them predict their label."""
    own, found = (
        codes_in(stored.classes, obs_column(adata, str(name)))
        for name in (stored.label_key, obs_key(cv_key(key), "label"))
    )
    codes = np.where(found >= 0, np.where(own >= 0, 1 + (found != own), 0), -1)
    shown = (WRONG, "out of fold, wrong class"), (RIGHT, "right class"), (GREY, "no label")
    return Colors(codes, [GREY, RIGHT, WRONG], "", key=shown)


def color_values(adata: AnnData, name: str) -> Colors:
    """Colour all cells by a column of ``obs`` or a variable, as `pl.voronoi` does.

    Numbers have a scale from their median to their 99 % quantile; below the median, cells have no
    colour in the image. Categories have their own colours.

    Raises
    ------
    KeyError
        If there is no column or variable of this name.
    ValueError
        If there are several variables of this name.
    """
    found = read_values(adata, name, layer=None, use_raw=None)
    if found.colors is None:
        there = found.values[found.known]
        low, high = np.percentile(there, [50, 99]) if len(there) else (0.0, 0.0)
        if low == high and len(there):
            low, high = there.min(), there.max()
        return _scaled(found.values, low, high)
    codes, n = found.values, len(label_colors(adata, name))
    if n > MAX_CATEGORIES:
        is_small = (codes < 0) & adata.obs[name].notna().to_numpy()
        others = GREY, f"all but the {MAX_CATEGORIES} largest of {n:,} categories"
        colors = [*default_palette(MAX_CATEGORIES), GREY]
        return Colors(np.where(is_small, MAX_CATEGORIES, codes), colors, "", key=(others,))
    key = tuple((color, str(category)) for category, color in found.colors.items())
    if n > MAX_EXPLAINED:
        key = *key[:MAX_EXPLAINED], ("", f"… and {n - MAX_EXPLAINED} more")
    return Colors(codes, list(found.colors.values()), "", key=key)


def _scaled(
    values: ArrayLike, low: float, high: float, meaning: str = "", *, reverse: bool = False
) -> Colors:
    """Colour numbers from pale to saturated, or the reverse, on the scale between two of them.

    Only the more saturated half of the cells has colours in the image. If most cells have the same
    smallest number, such as 0, all others have colours.
    """
    values = np.asarray(values, dtype=np.float64)
    shares, there = (values - low) / ((high - low) or 1), np.isfinite(values)
    saturation, codes = -shares if reverse else shares, np.full(len(shares), -1, dtype=np.intp)
    middle = np.median(saturation[there]) if there.any() else 0
    least = saturation[there].min(initial=middle)
    is_shown = there & (saturation >= middle)
    if middle == least and (saturation[there] > least).any():
        is_shown = there & (saturation > least)
    if (there & ~is_shown).any():
        meaning += f"{'; ' if meaning else ''}pale cells: no colour in the image"
    codes[there] = (shares[there] * STEPS).clip(0, STEPS - 1)
    shades = SCALE(np.linspace(0, 1, STEPS)[:: -1 if reverse else 1])
    colors = [to_hex(shade) for shade in shades]
    return Colors(codes, colors, meaning, values, (low, high), is_shown)
