"""Class colours, shared with scanpy through ``uns[f"{label_key}_colors"]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.colors import is_color_like, to_hex, to_rgb

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

    from centroid_encoder.pl._result import Result

Palette = str | Sequence[str] | Mapping[str, str]


def class_colors(adata: AnnData, result: Result, palette: Palette | None) -> dict[object, str]:
    """Return the colour of every class: stored, from `palette`, or scanpy's default.

    Raises
    ------
    ValueError
        If the palette has too few colours, or something that is no colour.
    """
    colors = _stored(adata, result)
    if palette is not None or colors is None:
        colors = _new(result, palette)
    # A class without cells in this selection of cells still has its region.
    rest = dict(zip(result.classes, _default_palette(len(result.classes)), strict=True))
    return rest | colors


def store_colors(adata: AnnData, result: Result, colors: Mapping[object, str]) -> None:
    """Let scanpy and napari share the colours.

    A view stays as it is: it would become a copy.
    """
    new = [colors[name] for name in result.categories]
    uns_key = f"{result.label_key}_colors"
    if not adata.is_view and new != list(adata.uns.get(uns_key, []))[: len(new)]:
        adata.uns[uns_key] = new


def unlabeled_color(ax: Axes) -> str:
    """Grey that recedes, on a light or a dark page."""
    return "lightgray" if sum(to_rgb(ax.get_facecolor())) > 1.5 else "dimgray"


def _stored(adata: AnnData, result: Result) -> dict[object, str] | None:
    stored = [str(color) for color in adata.uns.get(f"{result.label_key}_colors", [])]
    if len(stored) < len(result.categories) or not all(map(is_color_like, stored)):
        return None
    return dict(zip(result.categories, stored, strict=False))


def _new(result: Result, palette: Palette | None) -> dict[object, str]:
    categories = result.categories
    n = len(categories)
    colors: list[object]
    if isinstance(palette, Mapping):
        absent = [str(name) for name in result.classes if name not in palette]
        if absent:
            raise ValueError(f"palette has no colour for {', '.join(absent)}")
        colors = [palette.get(name, "lightgray") for name in categories]
    elif isinstance(palette, str):
        if palette not in mpl.colormaps:
            raise ValueError(f"palette {palette!r} is no matplotlib colour map")
        colormap = mpl.colormaps[palette]
        qualitative = colormap.N < 256
        if qualitative and n > colormap.N:
            raise ValueError(f"palette {palette!r} has {colormap.N} colours for {n} classes")
        colors = [colormap(i if qualitative else i / max(n - 1, 1)) for i in range(n)]
    else:
        colors = list(palette) if palette is not None else list(_default_palette(n))
        if len(colors) < n:
            raise ValueError(f"palette has {len(colors)} colours for {n} classes")
    wrong = [color for color in colors if not is_color_like(color)]
    if wrong:
        raise ValueError(f"palette holds {wrong[0]!r}, which is no colour")
    return dict(zip(categories, map(to_hex, colors), strict=False))  # type: ignore[arg-type]


def _default_palette(n: int) -> list[str]:
    # What scanpy would choose, so that it does not matter who plots first.
    from scanpy.plotting import palettes

    cycle = mpl.rcParams["axes.prop_cycle"].by_key().get("color", [])
    for palette in (cycle, palettes.default_20, palettes.default_28, palettes.default_102):
        if n <= len(palette):
            return [to_hex(color) for color in palette[:n]]
    colormap = mpl.colormaps["hsv"]
    return [to_hex(colormap(i / n)) for i in range(n)]
