"""Class colours, shared with scanpy through ``uns[f"{label_key}_colors"]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.colors import is_color_like, to_hex, to_rgb

from centroid_encoder.errors import InputError, MissingKeyError, Setting
from centroid_encoder.tl._cells import obs_column
from centroid_encoder.tl._stored import colors_key, label_categories

if TYPE_CHECKING:
    import pandas as pd
    from anndata import AnnData
    from matplotlib.axes import Axes

    from centroid_encoder.tl._stored import Result

PALETTE = Setting("palette")
Palette = str | Sequence[str] | Mapping[str, str]


def label_colors(
    adata: AnnData, label_key: str, palette: Palette | None = None
) -> dict[object, str]:
    """Return a hex colour for every category of a label column, whether there is a result or not.

    Parameters
    ----------
    adata
        Annotated data; it stays as it is.
    label_key
        Column of ``adata.obs`` with classes: categorical, string, integer or boolean.
    palette
        As in `voronoi`. Default: the stored colours, or, where they do not fit, scanpy's default.

    Raises
    ------
    KeyError
        If there is no such column.
    ValueError
        If the palette has too few colours, or something that is no colour.
    """
    column = obs_column(adata, label_key)
    # This takes a while for a million cells, and is only needed for a mapping.
    used = column.dropna().unique() if isinstance(palette, Mapping) else ()
    return _colors(adata, label_key, label_categories(column), used, palette)


def class_colors(adata: AnnData, result: Result, palette: Palette | None) -> dict[object, str]:
    """Return a hex colour for every category and class of a result, like `label_colors`.

    Raises
    ------
    ValueError
        If the palette has too few colours, or something that is no colour.
    """
    classes = result.classes
    colors = _colors(adata, result.label_key, result.categories, classes, palette)
    # A class without cells in this selection of cells still has its region.
    return dict(zip(classes, default_palette(len(classes)), strict=True)) | colors


def set_label_color(adata: AnnData, label_key: str, category: object, color: str) -> None:
    """Give one category another colour, for scanpy and napari as well.

    A view becomes a copy, as whenever it is written to.

    Raises
    ------
    KeyError
        If there is no such column or category.
    ValueError
        If `color` is no colour.
    """
    colors = label_colors(adata, label_key)
    if category not in colors:
        raise MissingKeyError("obs[{!r}] has no category {!r}", label_key, category)
    if not is_color_like(color):
        raise InputError("{!r} is no colour", color)
    colors[category] = to_hex(color)
    if adata.is_view:
        adata._init_as_actual(adata.copy())
    adata.uns[colors_key(label_key)] = list(colors.values())


def store_colors(adata: AnnData, result: Result, colors: Mapping[object, str]) -> None:
    """Let scanpy and napari share the colours.

    A view stays as it is: it would become a copy.
    """
    new = [colors[name] for name in result.categories]
    if not adata.is_view and new != _stored(adata, result.label_key, len(new)):
        adata.uns[colors_key(result.label_key)] = new


def unlabeled_color(ax: Axes) -> str:
    """Grey that stays in the background of a light or a dark page."""
    return "lightgray" if sum(to_rgb(ax.get_facecolor())) > 1.5 else "dimgray"


def _colors(
    adata: AnnData,
    label_key: str,
    categories: pd.Index,
    used: Iterable[object],
    palette: Palette | None,
) -> dict[object, str]:
    """Colours of the categories; those `used` must be in a palette that is a mapping."""
    colors = None if palette is not None else _stored(adata, label_key, len(categories))
    return dict(zip(categories, colors or _new(categories, used, palette), strict=True))


def _stored(adata: AnnData, label_key: str, n: int) -> list[str] | None:
    """The n stored colours, or None where they do not fit."""
    stored = list(adata.uns.get(colors_key(label_key), []))
    if len(stored) < n or not all(map(is_color_like, stored)):
        return None
    return [to_hex(color) for color in stored[:n]]


def _new(categories: pd.Index, used: Iterable[object], palette: Palette | None) -> list[str]:
    n = len(categories)
    colors: list[object]
    if isinstance(palette, Mapping):
        absent = [str(name) for name in used if name not in palette]
        if absent:
            raise InputError("{} has no colour for {}", PALETTE, ", ".join(absent))
        colors = [palette.get(name, "lightgray") for name in categories]
    elif isinstance(palette, str):
        if palette not in mpl.colormaps:
            raise InputError("{} {!r} is no matplotlib colour map", PALETTE, palette)
        colormap = mpl.colormaps[palette]
        qualitative = colormap.N < 256
        if qualitative and n > colormap.N:
            raise InputError(
                "{} {!r} has {} colours for {} classes", PALETTE, palette, colormap.N, n
            )
        colors = [colormap(i if qualitative else i / max(n - 1, 1)) for i in range(n)]
    else:
        colors = list(palette) if palette is not None else list(default_palette(n))
        if len(colors) < n:
            raise InputError("{} has {} colours for {} classes", PALETTE, len(colors), n)
    wrong = [color for color in colors if not is_color_like(color)]
    if wrong:
        raise InputError("{} holds {!r}, which is no colour", PALETTE, wrong[0])
    return [to_hex(color) for color in colors[:n]]  # type: ignore[arg-type]


def default_palette(n: int) -> list[str]:
    """Return what scanpy would choose, so that it does not matter who plots first."""
    cycle = mpl.rcParams["axes.prop_cycle"].by_key().get("color", [])
    if n <= len(cycle):
        return [to_hex(color) for color in cycle[:n]]
    # Slow to import.
    from scanpy.plotting import palettes

    for palette in (palettes.default_20, palettes.default_28, palettes.default_102):
        if n <= len(palette):
            return [to_hex(color) for color in palette[:n]]
    colormap = mpl.colormaps["hsv"]
    return [to_hex(colormap(i / n)) for i in range(n)]
