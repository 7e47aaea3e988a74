"""What the colours of a layer can stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.pl._colors import class_colors, label_colors
from centroid_encoder.pl._unseen import read_classes, read_cross_validation
from centroid_encoder.tl._cells import obs_column
from centroid_encoder.tl._stored import QUERY
from centroid_encoder.viewer.map.plane_colors import plane_colors, spread_out
from centroid_encoder.viewer.map.scale_colors import scale_colors

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._stored import Regions, Result

LABEL = "label"
PREDICTED = "predicted class"
MISPLACED = "misplaced cells"
HELD_OUT = "held-out error"
POSITION = "position in the map"
NOVELTY = "novelty"
NEED_RESULT = (PREDICTED, MISPLACED, HELD_OUT, POSITION)
CONFIDENCE = "confidence"
OUT_OF_FOLD = "out-of-fold error"

GREY = "#6f737c"
WRONG = "#ff4d6d"
RIGHT = "#4dc3ff"


@dataclass(frozen=True)
class Coloring:
    """A colour for every cell."""

    name: str
    codes: NDArray[np.intp]
    """(n_obs,) index into `colors`; −1 for cells that are not to be seen."""
    colors: list[str]
    meaning: str
    """What the colours stand for, in a line; may hold HTML."""

    def looks_like(self, other: Coloring | None) -> bool:
        """Tell whether a layer would look the same."""
        return (
            other is not None
            and (self.name, self.colors) == (other.name, other.colors)
            and np.array_equal(self.codes, other.codes)
        )


def is_query(result: Result) -> bool:
    """Tell whether the cells were not trained on, but sent through the map of others."""
    return bool((result.split == QUERY).any())


def modes(adata: AnnData, key: str, result: Result | None) -> list[str]:
    """What the colours can stand for, as far as it has been computed.

    Parameters
    ----------
    adata
        Annotated data.
    key
        Name of its results.
    result
        The map among them, or None.
    """
    found = [LABEL]
    if result is not None:
        found += NEED_RESULT if not is_query(result) else [PREDICTED, POSITION]
        for mode in (CONFIDENCE, NOVELTY):
            # A map of few cells does not know what is usual.
            if f"{key}_{mode}" in adata.obs and adata.obs[f"{key}_{mode}"].notna().any():
                found.append(mode)
    if read_cross_validation(adata, key) is not None:
        found.append(OUT_OF_FOLD)
    return found


def coloring(
    mode: str,
    adata: AnnData,
    label_key: str,
    result: Result | None,
    regions: Regions,
    key: str = "ce",
) -> Coloring:
    """Return the colours of all cells.

    Parameters
    ----------
    mode
        One of `modes`.
    adata
        Annotated data.
    label_key
        Label column.
    result
        What was trained on it.
    regions
        Kind of regions that make a cell misplaced: ``"voronoi"`` or ``"decoder"``.
    key
        Name of the results.

    Raises
    ------
    KeyError
        If a column that it needs is gone.
    """
    if mode == LABEL:
        colors = label_colors(adata, label_key)
        codes = pd.Index(colors).get_indexer(adata.obs[label_key].astype(object))
        return Coloring(mode, codes, list(colors.values()), "")
    if mode == OUT_OF_FOLD:
        return _out_of_fold(adata, key)
    assert result is not None
    embedded = ~np.isnan(result.embedding[:, 0])
    if mode == NOVELTY:
        codes, steps = scale_colors(obs_column(adata, f"{key}_novelty"))
        return Coloring(
            mode,
            codes,
            steps,
            _key((steps[-1], "unlike the training cells"), (steps[0], "like them")),
        )
    if mode == CONFIDENCE:
        codes, steps = scale_colors(obs_column(adata, f"{key}_confidence"), reverse=True)
        return Coloring(
            mode,
            codes,
            steps,
            _key((steps[0], "unsure"), (steps[-1], "sure of the predicted class")),
        )
    if mode == PREDICTED:
        of_class = class_colors(adata, result, None)
        palette = [of_class[name] for name in result.classes]
        meaning = "the class that the map's decoder decides for"
        unassigned = embedded & (result.predicted < 0)
        if not unassigned.any():
            return Coloring(mode, result.predicted, palette, meaning)
        codes = np.where(unassigned, len(palette), result.predicted)
        return Coloring(mode, codes, [*palette, GREY], f"{meaning}; {_key((GREY, 'unassigned'))}")
    if mode == MISPLACED:
        codes = np.where(embedded, result.misplaced(regions).astype(np.intp), -1)
        return Coloring(
            mode, codes, [GREY, WRONG], _key((WRONG, "in another class's region"), (GREY, "other"))
        )
    if mode == HELD_OUT:
        held_out = (result.split == "test").to_numpy()
        wrong = result.predicted != result.codes
        codes = np.where(embedded, np.where(held_out, 1 + wrong, 0), -1)
        return Coloring(
            mode,
            codes,
            [GREY, RIGHT, WRONG],
            _key((WRONG, "held out, wrong class"), (RIGHT, "right class"), (GREY, "not held out")),
        )
    codes, colors_list = plane_colors(spread_out(result.embedding), np.array([[0, 0], [1, 1]]))
    return Coloring(mode, codes, colors_list, "cells that are near in the map look alike")


def _out_of_fold(adata: AnnData, key: str) -> Coloring:
    """Whether networks that have not seen a cell take it for what it is labelled as."""
    stored = read_cross_validation(adata, key)
    assert stored is not None
    classes = read_classes(stored)
    own, found = (
        classes.get_indexer(obs_column(adata, str(name)).astype(object))
        for name in (stored["params"]["label_key"], f"{key}_cv_label")
    )
    codes = np.where(found >= 0, np.where(own >= 0, 1 + (found != own), 0), -1)
    return Coloring(
        OUT_OF_FOLD,
        codes,
        [GREY, RIGHT, WRONG],
        _key((WRONG, "out of fold, wrong class"), (RIGHT, "right class"), (GREY, "no label")),
    )


def _key(*entries: tuple[str, str]) -> str:
    return " ".join(f'<span style="color:{color}">●</span> {text}' for color, text in entries)
