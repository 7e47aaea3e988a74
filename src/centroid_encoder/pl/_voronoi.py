"""The paper's figure: class regions beneath training and held-out cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from centroid_encoder.core.regions import (
    Box,
    Region,
    bounding_box,
    decoder_regions,
    voronoi_regions,
)
from centroid_encoder.pl._colors import Palette, class_colors
from centroid_encoder.pl._output import save_or_show
from centroid_encoder.pl._result import Result, read_result
from centroid_encoder.tl import fitted_model

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

Regions = Literal["voronoi", "decoder"]
Split = Literal["train", "test"]
LegendLoc = Literal["right margin", "on data"]

UNLABELED = "lightgray"
PANEL = 4.2
"""Side of a panel in inches."""
TITLE = 0.4
"""Height above a panel in inches, enough for two lines."""
REGION_ALPHA = 0.22


def voronoi(
    adata: AnnData,
    *,
    key: str = "ce",
    regions: Regions | None = "voronoi",
    split: Split | None = None,
    mark_misplaced: bool = False,
    palette: Palette | None = None,
    legend_loc: LegendLoc | None = "right margin",
    size: float | None = None,
    title: str | Sequence[str] | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    show: bool | None = None,
    save: str | Path | bool | None = None,
) -> Axes | list[Axes] | None:
    """Plot training and held-out cells over the regions of their classes.

    Both panels show the same regions, which come from the training cells alone; how well the
    held-out cells fall into them is what can be believed of the picture. The error in the title is
    the one that `ce.tl.centroid_encoder` counted.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`.
    key
        Its ``key_added``.
    regions
        ``"voronoi"``: cells of the class centers, straight-edged; ``"decoder"``: where the model
        decides for a class, curved; None draws none.
    split
        ``"train"`` or ``"test"`` for one panel. Default: both, where cells were held out.
    mark_misplaced
        Circle the cells that lie in another class's region.
    palette
        Colours of the classes: a matplotlib colour map, a list in category order, or a dict.
        Default: ``adata.uns[f"{label_key}_colors"]``, which is written if it is missing.
    legend_loc
        ``"right margin"``, ``"on data"`` or None.
    size
        Area of a point in square points. Default: by the number of cells, like scanpy.
    title
        One title for each panel, in place of the default.
    ax
        Axes to draw on, one for each panel; three-dimensional ones for three components.
    show
        Show the figure and return None. Default: as ``scanpy.settings.autoshow`` says, unless
        `ax` is given.
    save
        True or a string saves to ``scanpy.settings.figdir`` under ``"voronoi"`` plus that string,
        as in scanpy; a :class:`~pathlib.Path` saves exactly there. Points are rasterised in vector
        formats.

    Returns
    -------
    Axes | list[Axes] | None
        None if shown; else the axes, a list where there are two panels.

    Raises
    ------
    KeyError
        If there is no result under that key.
    ValueError
        If the embedding has more than three components, or if an argument is not valid.
    """
    result = read_result(adata, key)
    _check(result, regions, split, legend_loc)
    panels = [split] if split else [p for p in ("train", "test") if (result.split == p).any()]
    colors = class_colors(adata, result.label_key, result.categories, palette)
    axes = _axes(ax, len(panels), result.embedding.shape[1])

    points = _plane(result.embedding)
    box = _square(bounding_box(points)) if result.embedding.shape[1] == 2 else None
    outlines: list[Region] = []
    if regions and result.embedding.shape[1] < 3:
        box = box or bounding_box(points)
        outlines = _outlines(adata, result, regions, box)
    titles = [title] if isinstance(title, str) else title
    if titles is not None and len(titles) != len(panels):
        raise ValueError(f"title must have one entry for each of the {len(panels)} panels")

    for i, (panel, target) in enumerate(zip(panels, axes, strict=True)):
        for name, outline in zip(result.classes, outlines, strict=bool(outlines)):
            _fill(target, outline, colors[name])
        _draw_cells(target, points, result, panel, colors, size)
        if mark_misplaced:
            _mark(target, points[result.misplaced(regions or "decoder") & (result.split == panel)])
        _decorate(target, result, box, titles[i] if titles else _title(result, panel))
        if legend_loc == "on data":
            _label_centers(target, result)
    if legend_loc == "right margin":
        _legend(axes[-1], result, colors, marked=mark_misplaced, widen=ax is None)
    shown = save_or_show(
        "voronoi",
        axes[0].figure,
        show=False if ax is not None and show is None else show,
        save=save,
    )
    if shown:
        return None
    return axes if len(axes) > 1 else axes[0]


def _check(result: Result, regions: str | None, split: str | None, legend_loc: str | None) -> None:
    for name, value, choices in (
        ("regions", regions, ("voronoi", "decoder", None)),
        ("split", split, ("train", "test", None)),
        ("legend_loc", legend_loc, ("right margin", "on data", None)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {choices}; got {value!r}")
    if split == "test" and not (result.split == "test").any():
        raise ValueError("no cell was held out (test_size=0): there is no test panel")
    if result.embedding.shape[1] > 3:
        raise ValueError(
            f"the embedding has {result.embedding.shape[1]} components; this figure shows up to "
            "three (train with n_components=2, or see sc.pl.embedding)"
        )


def _axes(ax: Axes | Sequence[Axes] | None, n_panels: int, n_components: int) -> list[Any]:
    if ax is None:
        figure = plt.figure(figsize=(PANEL * n_panels, PANEL + TITLE), layout="constrained")
        projection = "3d" if n_components == 3 else None
        return [
            figure.add_subplot(1, n_panels, i + 1, projection=projection) for i in range(n_panels)
        ]
    axes = list(ax) if isinstance(ax, Sequence | np.ndarray) else [ax]
    if len(axes) != n_panels:
        raise ValueError(
            f"ax must hold {n_panels} axes, one for each panel; got {len(axes)}. "
            "Choose one panel with split"
        )
    if n_components == 3 and not all(hasattr(target, "get_zlim") for target in axes):
        raise ValueError("three components need three-dimensional axes (projection='3d')")
    return axes


def _plane(embedding: NDArray[np.floating]) -> NDArray[np.floating]:
    """Give a one-dimensional embedding a second coordinate, for legibility only."""
    if embedding.shape[1] > 1:
        return embedding
    jitter = np.random.default_rng(0).uniform(-1, 1, len(embedding))
    return np.column_stack([embedding[:, 0], jitter])


def _square(box: Box) -> Box:
    """Widen the shorter side: nearness must look the same in all directions."""
    x_min, y_min, x_max, y_max = box
    half = max(x_max - x_min, y_max - y_min) / 2
    x, y = (x_min + x_max) / 2, (y_min + y_max) / 2
    return x - half, y - half, x + half, y + half


def _outlines(adata: AnnData, result: Result, regions: Regions, box: Box) -> list[Region]:
    n_components = result.embedding.shape[1]
    if regions == "voronoi":
        centers = np.zeros((len(result.centers), 2))
        centers[:, :n_components] = result.centers
        return voronoi_regions(centers, box)
    model = fitted_model(adata, result.key)
    order = result.classes.get_indexer(model.classes_)

    def decide(z: NDArray[np.float32]) -> NDArray[np.float32]:
        distances = np.empty((len(z), len(order)), np.float32)
        distances[:, order] = model.decoder_distances(z[:, :n_components]) ** 2
        return distances

    return decoder_regions(decide, box)


def _fill(ax: Axes, region: Region, color: str) -> None:
    if not region:
        return
    rings = [Outline(np.vstack([ring, ring[:1]]), closed=True) for ring in region]
    outline = Outline.make_compound_path(*rings)
    ax.add_patch(PathPatch(outline, facecolor=color, alpha=REGION_ALPHA, linewidth=0))
    # Borders in the colour of the page part the regions, in light and in dark figures.
    border = ax.get_facecolor()
    ax.add_patch(PathPatch(outline, facecolor="none", edgecolor=border, linewidth=1))


def _draw_cells(
    ax: Any,
    points: NDArray[np.floating],
    result: Result,
    panel: str,
    colors: dict[object, str],
    size: float | None,
) -> None:
    shown = (result.split == panel).to_numpy()
    # The same size in all panels, whatever their share of the cells.
    area = size or np.clip(12_000 / len(points), 2, 40)
    style = {
        "linestyle": "none",
        "marker": "o",
        "markersize": np.sqrt(area),
        "markeredgewidth": 0,
        "rasterized": True,
    }
    unlabeled = (result.split == "unlabeled").to_numpy()
    ax.plot(*points[unlabeled].T, color=UNLABELED, zorder=1.5, **style)
    # One Line2D a class is by far the fastest way to draw many points; the smallest class on top.
    counts = np.bincount(result.codes[shown], minlength=len(result.classes))
    for code in np.argsort(-counts, kind="stable"):
        members = points[shown & (result.codes == code)]
        ax.plot(*members.T, color=colors[result.classes[code]], zorder=2, **style)


def _mark(ax: Any, points: NDArray[np.floating]) -> None:
    color = plt.rcParams["text.color"]
    ax.plot(*points.T, "o", markersize=7, color="none", markeredgecolor=color, rasterized=True)


def _title(result: Result, panel: str) -> str:
    errors = result.stored["quality"][panel]
    if panel == "train":
        return f"training cells (n = {errors['n']:,})"
    text = f"held-out 5-NN error {_percent(errors['knn_error'])} (n = {errors['n']:,})"
    if errors["at_chance"]:
        text += f"\nno better than chance ({_percent(errors['chance_error'])})"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _decorate(ax: Any, result: Result, box: Box | None, title: str) -> None:
    ax.set_title(title, fontsize="medium")
    if box is not None:
        ax.set_xlim(box[0], box[2])
        ax.set_ylim(box[1], box[3])
    name = result.key.upper() if result.key == "ce" else result.key
    n_components = result.embedding.shape[1]
    ax.set_xlabel(f"{name}1")
    ax.set_xticks([])
    ax.set_yticks([])
    if n_components > 1:
        ax.set_ylabel(f"{name}2")
    if n_components == 2:
        ax.set_aspect("equal")
    if n_components == 3:
        ax.set_zlabel(f"{name}3")
        ax.set_zticks([])


def _label_centers(ax: Any, result: Result) -> None:
    outline = withStroke(linewidth=2.5, foreground=ax.get_facecolor())
    for name, center in zip(result.classes, _plane(result.centers), strict=True):
        position = center if result.embedding.shape[1] > 1 else [center[0], 0]
        ax.text(
            *position,
            str(name),
            ha="center",
            va="center",
            fontsize="small" if len(result.classes) <= 12 else "x-small",
            fontweight="bold",
            path_effects=[outline],
            clip_on=True,
            in_layout=False,
        )


def _legend(
    ax: Axes, result: Result, colors: dict[object, str], *, marked: bool, widen: bool
) -> None:
    def dot(color: Any, label: str, edge: Any = "none") -> Line2D:
        style = {"linestyle": "none", "marker": "o", "markersize": 6}
        return Line2D([], [], color=color, markeredgecolor=edge, label=label, **style)

    handles = [dot(colors[name], str(name)) for name in result.classes]
    if (result.split == "unlabeled").any():
        handles.append(dot(UNLABELED, "unlabeled"))
    if marked:
        handles.append(dot("none", "misplaced", plt.rcParams["text.color"]))
    legend = ax.legend(
        handles=handles,
        title=result.label_key,
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        ncols=-(-len(handles) // 16),
        frameon=False,
        fontsize="small",
        title_fontsize="small",
        alignment="left",
        handletextpad=0.3,
    )
    if widen:
        figure: Any = ax.figure
        width, height = figure.get_size_inches()
        extent = legend.get_window_extent(figure.canvas.get_renderer())
        figure.set_size_inches(width + extent.width / figure.dpi + 0.2, height)
