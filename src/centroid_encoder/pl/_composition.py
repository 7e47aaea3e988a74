"""Composition: the share of each class in each image, donor or other group."""

from __future__ import annotations

from typing import Any

from anndata import AnnData
from matplotlib.axes import Axes

from centroid_encoder.errors import InputError
from centroid_encoder.pl._axes import Save, check_save, finish, new_axes, write_title
from centroid_encoder.pl._colors import Palette, label_colors
from centroid_encoder.pl._legend import legend_beside
from centroid_encoder.tl._composition import composition as composition_of


def composition(
    adata: AnnData,
    group_key: str,
    *,
    label_key: str | None = None,
    key: str = "ce",
    title: str | None = None,
    counts: bool = False,
    palette: Palette | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot the classes in each image, donor or other group: a bar for each group.

    The numbers are those of `ce.tl.composition`, which returns them as a table. Return values and
    errors are as in `voronoi`.

    Parameters
    ----------
    adata
        Annotated data.
    group_key
        Column of ``adata.obs`` with the groups.
    label_key
        Column of ``adata.obs`` with the classes, such as ``"ce_label"`` for predicted classes.
        Default: the label column of the map.
    key
        Name of the map, as given to `key_added`. It is used only without a `label_key`.
    counts
        Show numbers of cells instead of shares of the group.
    palette, title, ax, show, save, dpi
        As in `voronoi`.
    """
    path = check_save("composition", save, dpi, own=ax is None)
    table = composition_of(adata, group_key, label_key=label_key, key=key)
    label_key = str(table.columns.name)
    sizes = table.sum(axis=1)
    if not sizes.any():
        raise InputError(f"no cell has both a group in obs[{group_key!r}] and a label")
    if len(table) > 1000:
        text = f"group_key: obs[{group_key!r}] has {len(table)} groups, too many for bars"
        raise InputError(text, "group_key")
    numbers = table if counts else 100 * table.div(sizes.clip(lower=1), axis=0)
    colors = label_colors(adata, label_key, palette)
    shown = {name: colors[name] for name in table.columns}
    target: Any = new_axes(4.6, 0.28 * max(len(table), 3)) if ax is None else ax
    style: dict[str, Any] = {"stacked": True, "width": 0.8, "legend": False}
    numbers.plot.barh(ax=target, color=list(shown.values()), **style)
    names = [f"{name} ({n:,})" for name, n in sizes.items()]
    target.set_yticks(range(len(table)), names, parse_math=False)
    target.tick_params(axis="y", length=0)
    target.set(ylim=(len(table) - 0.5, -0.5), xlim=(0, sizes.max() if counts else 100))
    target.set(xlabel="cells" if counts else "share of the cells (%)", ylabel="")
    target.grid(visible=False)
    target.spines[["top", "right", "left"]].set_visible(False)
    write_title(target, title, f"{label_key} by {group_key}, n = {sizes.sum():,}")
    legend_beside(target, label_key, shown)
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)
