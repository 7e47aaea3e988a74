"""The reliability page: the map beside all figures and numbers that judge it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np

from centroid_encoder.errors import MissingKeyError
from centroid_encoder.pl._axes import Save, figure_writer, finish
from centroid_encoder.pl._calibration import calibration
from centroid_encoder.pl._colors import Palette
from centroid_encoder.pl._confusion import confusion
from centroid_encoder.pl._permutation_test import permutation_test
from centroid_encoder.pl._voronoi import voronoi
from centroid_encoder.tl._result import (
    HeldOut,
    Regions,
    Result,
    StoredCrossValidation,
    StoredMap,
    check_trained,
    read_held_out,
    read_result,
)
from centroid_encoder.tl._summary import summary

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Plot = Callable[..., "Axes | None"]

SIZE = 15.0, 9.6
"""Of the page in inches, where letters are of ten points; with them it grows."""
MAX_ENTRIES = 45
"""Classes beyond which a legend would leave no room for the map."""


def reliability(
    adata: AnnData,
    *,
    key: str = "ce",
    regions: Regions | None = "voronoi",
    palette: Palette | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Figure | None:
    """Put the map on one page with what says how far it can be believed.

    Above `voronoi` and the numbers in words, beneath `confusion`, `calibration` and
    `permutation_test`. Where something has not been computed stands how to get it.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`, `ce.tl.cross_validate` or, better, both.
    key
        Name of the results, as given to `key_added`.
    regions, palette
        As in `voronoi`.
    show, save, dpi
        As in `voronoi`.

    Returns
    -------
    Figure | None
        None if shown; else the page.

    Raises
    ------
    KeyError
        If there is no result under that key, or if a column that belongs to it is gone.
    ValueError
        If the labels are no longer those of the result, or if an argument is not valid.
    """
    write = figure_writer("reliability", save, dpi, own=True)
    check_trained(adata, key)
    mapped, validated = StoredMap.read(adata, key), StoredCrossValidation.read(adata, key)
    stored = validated or mapped
    if stored is None:
        raise MissingKeyError(
            f"no result {key!r}; run ce.tl.centroid_encoder(adata, label_key) and "
            "ce.tl.cross_validate(adata, label_key, n_permutations=99) first",
            "key",
        )
    label_key = stored.label_key
    result = read_result(adata, key) if mapped is not None else None
    judged = validated is not None or (result is not None and (result.split == "test").any())
    cells = read_held_out(adata, key) if judged else None
    size = np.multiply(SIZE, plt.rcParams["font.size"] / 10)
    figure: Any = plt.figure(figsize=tuple(size), layout="constrained")
    try:
        above, beneath = figure.add_gridspec(2, 1, hspace=0.08)
        if result is None:
            maps, words = above.subgridspec(1, 2, width_ratios=(2, 1))
            call = f"ce.tl.centroid_encoder(adata, {label_key!r})"
            _say(figure.add_subplot(maps), f"There is no map yet.\nRun {call}.")
        elif result.embedding.shape[1] > 3:
            maps, words = above.subgridspec(1, 2, width_ratios=(2, 1))
            _say(
                figure.add_subplot(maps),
                f"A map of {result.embedding.shape[1]} components cannot be drawn.\n"
                "Train with n_components=2.",
            )
        else:
            words = _draw_map(figure, above, adata, result, regions=regions, palette=palette)
        _draw_evidence(figure, beneath, adata, key, label_key, cells)
        sentences = summary(adata, key)
        if result is not None and len(result.classes) > MAX_ENTRIES:
            sentences.append(f"ce.pl.voronoi names the {len(result.classes)} classes.")
        _write(figure.add_subplot(words), sentences)
    except BaseException:
        plt.close(figure)
        raise
    return finish(figure, show=show, write=write, own=True)


def _draw_map(
    figure: Any,
    place: Any,
    adata: AnnData,
    result: Result,
    *,
    regions: Regions | None,
    palette: Palette | None,
) -> Any:
    """Draw the panels of `voronoi` and return the place beside them."""
    n_panels = sum((result.split == panel).any() for panel in ("train", "test"))
    places = place.subgridspec(1, n_panels + 1, wspace=0.04)
    projection = "3d" if result.embedding.shape[1] == 3 else None
    voronoi(
        adata,
        key=result.key,
        regions=regions,
        palette=palette,
        legend_loc="right margin" if len(result.classes) <= MAX_ENTRIES else None,
        ax=[figure.add_subplot(places[i], projection=projection) for i in range(n_panels)],
        show=False,
        save=False,
    )
    return places[n_panels]


def _draw_evidence(
    figure: Any, place: Any, adata: AnnData, key: str, label_key: str, cells: HeldOut | None
) -> None:
    """Draw the other figures side by side, or say how to get them."""
    validated = StoredCrossValidation.read(adata, key)
    tested = validated is not None and validated.permutation is not None
    confident = cells is not None and bool(np.isfinite(cells.confidence).any())
    parts: tuple[tuple[Plot, bool, str], ...] = (
        (confusion, cells is not None, "No cell was held out"),
        (calibration, confident, "No confidence is known" if cells else "No cell was held out"),
        (permutation_test, tested, "No permutation test was made"),
    )
    call = f"ce.tl.cross_validate(adata, {label_key!r},\nn_permutations=99)"
    # In grids of their own, so that long names of classes take no room from the other figures.
    left, right = place.subgridspec(1, 2, wspace=0.04, width_ratios=(1.3, 2))
    for part, (plot, there, absent) in zip((left, *right.subgridspec(1, 2)), parts, strict=True):
        ax = figure.add_subplot(part)
        if there:
            plot(adata, key=key, ax=ax, show=False, save=False)
        else:
            _say(ax, f"{absent}.\nRun {call}.")


def _say(ax: Any, text: str) -> None:
    """Write in the place of a figure why it is not there."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(linestyle=":", color="0.5")
    ax.text(
        0.5,
        0.5,
        text,
        ha="center",
        va="center",
        transform=ax.transAxes,
        color="0.5",
        parse_math=False,
        linespacing=1.5,
    )


def _write(ax: Any, sentences: list[str]) -> None:
    """Write sentences in the place of a figure, in the largest font in which they fit."""
    ax.set_axis_off()
    figure = ax.figure
    figure.draw_without_rendering()
    box = ax.get_window_extent()
    text = ax.text(
        0, 0.5, "", va="center", transform=ax.transAxes, linespacing=1.35, parse_math=False
    )
    # The text must not move the figures.
    text.set_in_layout(False)
    # No line ends within a number and its unit.
    sentences = [
        re.sub(r" (?=%|± )|(?<=±) |(?<=n) (?== )|(?<=n =) ", "\u00a0", s) for s in sentences
    ]
    for font in plt.rcParams["font.size"] * np.linspace(1, 0.5, 6):
        text.set_fontsize(font)
        # Begin with as many letters as would fit if all were narrow.
        for letters in range(int(box.width / figure.dpi * 72 / (0.45 * font)), 10, -1):
            text.set_text(
                "\n\n".join(
                    textwrap.fill(line, letters, break_on_hyphens=False) for line in sentences
                )
            )
            extent = text.get_window_extent()
            if extent.width <= box.width:
                break
        if extent.height <= box.height:
            break
