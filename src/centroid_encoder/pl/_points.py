"""Points that are coloured by any column or variable, and the key to their colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from centroid_encoder.errors import InputError, MissingKeyError
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tl._read import near_matches, obs_column

if TYPE_CHECKING:
    from anndata import AnnData

COLOR_MAP = "viridis"
"""Perceptually uniform, and read alike by the colour-blind."""


@dataclass(frozen=True)
class Coloring:
    """What each cell has of a column or variable, and the colours of that."""

    name: str
    values: NDArray[Any]
    """(n_obs,) numbers, NaN for none; or indices of categories, −1 for none."""
    colors: dict[object, str] | None
    """Colour of each category in order; None for numbers."""

    @property
    def norm(self) -> Normalize:
        """From the smallest to the largest number."""
        known = self.values[np.isfinite(self.values)]
        return Normalize(*((known.min(), known.max()) if len(known) else (0, 1)))

    def draw_points(
        self, ax: Any, points: NDArray[np.floating], shown: NDArray[np.bool_], area: float
    ) -> None:
        """Draw points in the colours of their numbers, the largest on top."""
        known = np.flatnonzero(shown & np.isfinite(self.values))
        order = known[np.argsort(self.values[known], kind="stable")]
        # In three dimensions, points that are far away would fade.
        style = {"depthshade": False} if points.shape[1] == 3 else {}
        ax.scatter(
            *points[order].T,
            s=area,
            c=self.values[order],
            cmap=COLOR_MAP,
            norm=self.norm,
            linewidths=0,
            rasterized=True,
            zorder=2,
            **style,
        )

    def draw_bar(self, ax: Any) -> Any:
        """Put a colour bar beside a panel and return its axes."""
        mappable = ScalarMappable(self.norm, COLOR_MAP)
        bar = ax.figure.colorbar(mappable, cax=ax.inset_axes((1.04, 0.2, 0.035, 0.6)))
        bar.set_label(self.name, parse_math=False)
        bar.ax.tick_params(labelsize="small")
        bar.outline.set_linewidth(0.5)
        return bar.ax


def read_coloring(
    adata: AnnData, color: str, *, layer: str | None, use_raw: bool | None
) -> Coloring:
    """Read a column of ``adata.obs`` or a variable, as scanpy's plots do.

    Parameters
    ----------
    color, layer, use_raw
        As in `voronoi`.

    Raises
    ------
    KeyError
        If there is no such column or variable; the message names near matches.
    ValueError
        If `use_raw` is asked for where there is no ``adata.raw``, or together with `layer`.
    """
    if color in adata.obs:
        column = obs_column(adata, color)
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            return Coloring(color, column.to_numpy(np.float64, na_value=np.nan), None)
        colors = label_colors(adata, color)
        return Coloring(color, pd.Index(list(colors)).get_indexer(column.astype(object)), colors)
    if use_raw and adata.raw is None:
        raise InputError("use_raw=True needs adata.raw, and there is none", "use_raw")
    if use_raw and layer is not None:
        raise InputError("use_raw and layer exclude each other", "use_raw")
    if layer is not None and layer not in adata.layers:
        text = f"layers has no {layer!r}{near_matches(layer, adata.layers)}"
        raise MissingKeyError(text, "layer")
    # As in scanpy: raw, where there is one, unless a layer is asked for.
    source = adata.raw if use_raw or (use_raw is None and layer is None) else None
    source = adata if source is None else source
    where = "var_names" if source is adata else "raw.var_names"
    if color not in source.var_names:
        known = [*map(str, adata.obs.columns), *map(str, source.var_names)]
        text = f"neither obs nor {where} has {color!r}{near_matches(color, known)}"
        raise MissingKeyError(text, "color")
    n = int((source.var_names == color).sum())
    if n > 1:
        remedy = "call adata.var_names_make_unique() first"
        raise InputError(f"{where} has {color!r} {n} times; {remedy}", "color")
    matrix = source.X if layer is None else source.layers[layer]
    # An int takes one column of a matrix on disk without the others.
    values = matrix[:, int(source.var_names.get_loc(color))]
    if hasattr(values, "toarray"):
        values = values.toarray()
    return Coloring(color, np.asarray(values, dtype=np.float64).ravel(), None)
