"""The map in a notebook: a lasso, names on hover, and the regions beneath."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

import pandas as pd
from anndata import AnnData
from anndata.utils import make_index_unique
from matplotlib.figure import Figure

from centroid_encoder.errors import check, check_name
from centroid_encoder.pl._colors import COLOR_MAP, Palette, store_colors
from centroid_encoder.pl._regions import Drawn, Plane
from centroid_encoder.tables import obs_key

if TYPE_CHECKING:
    from jscatter import Scatter

PIXELS = 800
"""Width and height of the picture of the regions."""
NO_VALUE = "#b0b0b0"


def interactive(
    adata: AnnData,
    *,
    key: str = "ce",
    color: str | None = None,
    layer: str | None = None,
    use_raw: bool | None = None,
    gene_symbols: str | None = None,
    regions: Drawn | None = "soft",
    palette: Palette | None = None,
    height: int = 480,
) -> Scatter:
    """Show the map in a notebook, with a lasso and with the class of a cell on hover.

    Needs the extra "notebook" (jupyter-scatter). The lasso is a button beside the map. After it,
    ``adata[scatter.selection()]`` has the selected cells::

        scatter = ce.pl.interactive(adata)
        scatter.show()

    Parameters
    ----------
    adata, key, layer, use_raw, gene_symbols, regions, palette
        As in `voronoi`.
    color
        Column of ``adata.obs``, or variable, that gives the points their colours. Cells without a
        number are left out. Default: the class.
    height
        Height of the figure in pixels.

    Returns
    -------
    jscatter.Scatter
        The figure. `selection` returns the names of the selected cells, and selects names.

    Raises
    ------
    KeyError, ValueError
        As in `voronoi`.
    ImportError
        If jupyter-scatter is not installed.
    """
    try:
        from jscatter import Scatter
    except ImportError as error:
        text = "needs jupyter-scatter: pip install 'centroid-encoder[notebook]'"
        raise ImportError(f"ce.pl.interactive {text}") from error
    check_name(color, "color", "one column of obs or one variable", str | None)
    text = "a lasso finds cells by their names, which are not unique here"
    check(adata.obs_names.is_unique, f"{text}; call adata.obs_names_make_unique() first")
    plane = Plane(adata, key, regions, palette, [color])
    values = plane.values(color, layer=layer, use_raw=use_raw, gene_symbols=gene_symbols)
    points, embedded = plane.points, plane.result.embedded
    # Names of columns of the user come first, and are not changed.
    given = [values.name, "cell", "predicted class", "confidence", "place 1", "place 2"]
    shown, cell, predicted, confidence, x, y = make_index_unique(pd.Index(given), join=" ")
    cells = pd.DataFrame({x: points[:, 0], y: points[:, 1], cell: adata.obs_names})
    cells[shown] = values.values
    color_map: str | dict[str, str] = COLOR_MAP
    if values.colors is not None:
        names = make_index_unique(pd.Index([*map(str, values.colors), "none"]), join=" ")
        cells[shown] = pd.Categorical.from_codes(values.values % len(names), names)
        color_map = dict(zip(names, [*values.colors.values(), NO_VALUE], strict=True))
    cells.index = adata.obs_names
    cells[predicted] = adata.obs[obs_key(key, "label")].astype(str)
    cells[confidence] = adata.obs[obs_key(key, "confidence")].round(3)
    is_drawn = embedded if values.colors is not None else embedded & values.known
    scatter = Scatter(x, y, data=cells[is_drawn], data_use_index=True, width=height, height=height)
    x_limits, y_limits = map(tuple, plane.limits.T.tolist())
    scatter.x(scale=x_limits).y(scale=y_limits).axes(False)
    scatter.color(by=shown, map=color_map).legend(True)
    scatter.tooltip(True, properties=[cell, shown, predicted, confidence], histograms=False)
    if regions is not None:
        scatter.widget.background_image = _picture(plane)
    store_colors(adata, plane.result, plane.colors)
    return scatter


def _picture(plane: Plane) -> str:
    """Return the regions as a PNG in a data URL."""
    figure, (x, y) = Figure(figsize=(PIXELS / 100, PIXELS / 100)), plane.limits.T
    ax = figure.add_axes((0, 0, 1, 1), xlim=x, ylim=y)
    ax.set_axis_off()
    plane.draw(ax)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
