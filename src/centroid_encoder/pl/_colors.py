"""Class colours, shared with scanpy through ``uns[f"{label_key}_colors"]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import pandas as pd
from matplotlib.colors import is_color_like, to_hex

if TYPE_CHECKING:
    from anndata import AnnData

Palette = str | Sequence[str] | Mapping[str, str]


def class_colors(
    adata: AnnData, label_key: str, categories: pd.Index, palette: Palette | None
) -> dict[object, str]:
    """Return the colour of every category.

    Colours stored in `adata` are used where they fit; else, and where a palette is given, new ones
    are stored for scanpy and napari to share.

    Raises
    ------
    ValueError
        If the palette has too few colours, or something that is no colour.
    """
    uns_key = f"{label_key}_colors"
    stored = [str(color) for color in adata.uns.get(uns_key, [])]
    if palette is None and len(stored) >= len(categories) and all(map(is_color_like, stored)):
        return dict(zip(categories, stored, strict=False))
    colors = _new_colors(categories, palette)
    adata.uns[uns_key] = colors
    return dict(zip(categories, colors, strict=True))


def _new_colors(categories: pd.Index, palette: Palette | None) -> list[str]:
    if isinstance(palette, Mapping):
        absent = [str(name) for name in categories if name not in palette]
        if absent:
            raise ValueError(f"palette has no colour for {', '.join(absent)}")
        colors = [palette[name] for name in categories]
    elif isinstance(palette, str):
        colormap = mpl.colormaps[palette]
        n = len(categories)
        qualitative = colormap.N < 256
        if qualitative and n > colormap.N:
            raise ValueError(f"palette {palette!r} has {colormap.N} colours for {n} classes")
        colors = [colormap(i if qualitative else i / max(n - 1, 1)) for i in range(n)]
    else:
        colors = list(palette) if palette is not None else _default_palette(len(categories))
        if len(colors) < len(categories):
            raise ValueError(f"palette has {len(colors)} colours for {len(categories)} classes")
    wrong = [color for color in colors if not is_color_like(color)]
    if wrong:
        raise ValueError(f"palette holds {wrong[0]!r}, which is no colour")
    return [to_hex(color) for color in colors[: len(categories)]]


def _default_palette(n: int) -> list[str]:
    # The palettes scanpy would choose, so that it does not matter who plots first.
    from scanpy.plotting import palettes

    for palette in (palettes.default_20, palettes.default_28, palettes.default_102):
        if n <= len(palette):
            return list(palette)
    colormap = mpl.colormaps["hsv"]
    return [to_hex(colormap(i / n)) for i in range(n)]
