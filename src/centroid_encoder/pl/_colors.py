"""Class colours, shared with scanpy through ``uns[f"{label_key}_colors"]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
import pandas as pd
from anndata import AnnData
from cycler import Cycler
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, hsv_to_rgb, is_color_like, to_hex, to_rgb

from centroid_encoder.errors import InputTypeError, check
from centroid_encoder.tables import colors_key
from centroid_encoder.tl._check import obs_column
from centroid_encoder.tl._result import Result, color_predictions, label_categories

COLOR_MAP = "viridis"  # of numbers; perceptually uniform, and the same for colour-blind people
Palette: TypeAlias = "str | Colormap | Sequence[str] | Cycler[Any, Any] | Mapping[str, str]"

DISTINCT = """
    #e69f00 #56b4e9 #009e73 #f0e442 #0072b2 #d55e00 #cc79a7 #9b0b16 #bcd39b #900b6f #4e85ff #c8deff
    #bc4343 #4e0bde #853743 #de909b #e95964 #856485 #c8b1c8 #de9b64 #2c4e9b #7a3759 #7a2cff #c8de7a
    #b13700 #7a85c8 #64bca6 #a66f85 #ffd3c8 #217a43 #43a6bc #c8a685 #b14364 #f40bff #43900b #7a5990
    #4e9090 #d36f7a #7ac8e9 #e96f43 #434e7a #648559 #b1c8a6 #59a690 #59592c #dec843 #bc2cc8 #6f7aa6
    #854e6f #de85c8 #dec8de #de3759 #e9b1bc #b1162c #649ba6 #00a637 #005943 #bcc87a #9bc8bc #d3b14e
    #bce99b #64c8ff #9b0090 #6f0bbc #7a59de #f44e90 #9b3759 #9b0059 #00906f #9090de #90647a #64f4c8
    #9b4ea6 #6fb1d3 #5937de #b1599b #2cbc7a #a62100 #000bff #4e9b64 #b1e9b1 #857ade #00c800 #c84e43
    #00e9e9 #43bc64 #37b1b1 #7a37bc #0b5937 #43b1ff #c8004e #b1d3ff #9b859b #4e4e21 #a60043 #9b592c
    #21f4e9 #6fb1a6 #4ebc9b #9b9b4e
""".split()  # noqa: SIM905
"""See `default_palette`."""


def label_colors(
    adata: AnnData,
    label_key: str,
    palette: Palette | None = None,
    categories: pd.Index | None = None,
) -> dict[object, str]:
    """Return a hex colour for every category of a label column; `adata` is not changed.

    Without a palette these are the stored colours or, if they do not fit, the default ones.
    `categories` replaces the categories of the column.
    """
    if categories is None:
        categories = label_categories(obs_column(adata, label_key))
    n = len(categories)
    if palette is None:
        colors = _stored(adata, label_key, n) or default_palette(n)
    elif isinstance(palette, Mapping):
        absent = [str(name) for name in categories if name not in palette]
        check(not absent, f"palette has no colour for {', '.join(absent)}", "palette")
        colors = [palette[name] for name in categories]
    elif isinstance(palette, str | Colormap):
        colormap = color_map(palette, "palette")
        # A qualitative colour map has few colours, and the first are taken.
        colormap = colormap if colormap.N < 256 else colormap.resampled(n)
        colors = [to_hex(colormap(i)) for i in range(colormap.N)]
    elif isinstance(palette, Cycler):
        colors = palette.by_key().get("color", [])
    elif np.iterable(palette):
        colors = list(palette)
    else:
        text = "palette must be a colour map, a list or dict of colours, or a cycler; got"
        raise InputTypeError(f"{text} {type(palette).__name__}", "palette")
    check(len(colors) >= n, f"palette has {len(colors)} colours for {n} classes", "palette")
    for color in colors:
        check(is_color_like(color), f"palette holds {color!r}, which is no colour", "palette")
    return {name: to_hex(color) for name, color in zip(categories, colors, strict=False)}


def color_map(given: str | Colormap, parameter: str) -> Colormap:
    """Return a colour map, which may be given by its name in matplotlib."""
    fits = isinstance(given, Colormap) or given in mpl.colormaps
    check(fits, f"{parameter} {given!r} is no matplotlib colour map", parameter)
    return given if isinstance(given, Colormap) else mpl.colormaps[given]


def class_colors(adata: AnnData, result: Result, palette: Palette | None) -> dict[object, str]:
    """Return a hex colour for every category and class of a result, like `label_colors`."""
    colors = label_colors(adata, result.label_key, palette, result.categories)
    stored = result.stored
    # A class that a selection of the cells lacks still has a region. It has the colour of before,
    # or one that no other class has.
    lacking = [name for name in result.classes if name not in colors]
    of_map = () if stored.colors is None else zip(stored.classes, stored.colors, strict=True)
    before = {x: to_hex(color) for x, color in of_map if x in lacking and is_color_like(color)}
    taken = {*colors.values(), *before.values()}
    free = [x for x in default_palette(len(taken) + len(lacking)) if x not in taken]
    return dict(zip(lacking, free, strict=False)) | before | colors


def set_label_color(adata: AnnData, label_key: str, category: object, color: str) -> None:
    """Store another colour of one category, which scanpy and napari use as well.

    A view becomes a copy, as in any other change of a view.
    """
    colors = label_colors(adata, label_key)
    colors[category] = to_hex(color)
    if adata.is_view:
        adata._init_as_actual(adata.copy())
    adata.uns[colors_key(label_key)] = list(colors.values())
    color_predictions(adata, label_key)


def store_colors(adata: AnnData, result: Result, colors: Mapping[object, str]) -> None:
    """Store the colours for scanpy and napari, but not in a view, which would become a copy.

    The predicted classes get them as well.
    """
    if adata.is_view:
        return
    new = [colors[name] for name in result.categories]
    if new != _stored(adata, result.label_key, len(new)):
        adata.uns[colors_key(result.label_key)] = new
    color_predictions(adata, result.label_key)


def unlabeled_color(ax: Axes) -> str:
    """Return a grey with a low contrast to the light or dark page of the axes."""
    return "lightgray" if sum(to_rgb(ax.get_facecolor())) > 1.5 else "dimgray"


def _stored(adata: AnnData, label_key: str, n: int) -> list[str] | None:
    """Return the n stored colours, or None if they do not fit."""
    stored = list(adata.uns.get(colors_key(label_key), []))
    fit = len(stored) >= n and all(map(is_color_like, stored))
    return [to_hex(color) for color in stored[:n]] if fit else None


def default_palette(n: int) -> list[str]:
    """Return the default colours of n classes, which colour-blind people can distinguish as well.

    The first seven are those of Okabe and Ito (2008) without black, which is invisible on a dark
    page. Every further colour is chosen among those that are legible on a light and a dark page. It
    has the largest difference from all colours before it, from both pages, and from the greys of
    unlabeled cells, for people with normal vision, protanopia and deuteranopia (Machado et al.
    2009). `docs/figures.md` lists the smallest differences. Beyond 100 colours, which nobody can
    distinguish, further hues follow.
    """
    # Multiples of the golden ratio divide the circle of hues evenly for any number of colours.
    hues = (0.618034 * i % 1 for i in range(n - len(DISTINCT)))
    return [*DISTINCT[:n], *(to_hex(tuple(hsv_to_rgb((hue, 0.6, 0.8)))) for hue in hues)]
