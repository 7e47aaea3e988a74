"""Held-out errors with few features, by three judges."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from centroid_encoder.errors import MissingKeyError
from centroid_encoder.pl._axes import Save, check_save, finish, new_axes, write_title
from centroid_encoder.tl._result import StoredPanel, fold_words

JUDGES = {"map": "map", "input_knn": "5 neighbours", "forest": "random forest"}
"""Judges in the stored table, and their names in the legend."""


def feature_panel(
    adata: AnnData,
    *,
    key: str = "feature_panel",
    balanced: bool = False,
    title: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot the held-out error of each judge against the number of features.

    Bars are 95 % intervals. The dashed line is the error of the map with all features. Return
    values and errors are as in `voronoi`.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.feature_panel`.
    key
        Name of the result, as given to `key_added`.
    balanced
        Show the mean of the errors of the classes instead of the share of wrong cells.
    title, ax, show, save, dpi
        As in `voronoi`.
    """
    path = check_save("feature_panel", save, dpi, own=ax is None)
    if (stored := StoredPanel.read(adata, key)) is None:
        text = f"no feature panel in uns[{key!r}]; run ce.tl.feature_panel(adata, label_key) first"
        raise MissingKeyError(text, "key")
    target: Any = new_axes(4.2, 3) if ax is None else ax
    column, sizes = "balanced_error" if balanced else "error", stored.sizes
    names = [column, f"{column}_low", f"{column}_high"]
    handles: list[Any] = []
    # Bars of one size lie side by side.
    for i, (judge, name) in enumerate(JUDGES.items()):
        error, low, high = 100 * stored.of_judge(judge)[names].to_numpy()[:-1].T
        beside = np.array(sizes) * 1.03 ** (i - 1)
        style: dict[str, Any] = {"fmt": "o-", "markersize": 4, "linewidth": 1.2, "color": f"C{i}"}
        ends = np.abs([low - error, high - error])
        handles += [target.errorbar(beside, error, yerr=ends, elinewidth=0.8, label=name, **style)]
    of_map = stored.of_judge("map").iloc[-1]
    text = f"map, all {int(of_map['size']):,} features"
    line: dict[str, Any] = {"linewidth": 1, "linestyle": "--", "zorder": 1}
    handles += [target.axhline(100 * of_map[column], color="C0", label=text, **line)]
    target.set_xscale("log")
    target.set_xticks(sizes, [f"{size:,}" for size in sizes])
    target.xaxis.set_minor_locator(NullLocator())
    target.set_ylim(bottom=0)
    target.set(xlabel="features", ylabel=f"held-out {column.replace('_', ' ')} (%)")
    target.legend(handles=handles, fontsize="small", loc="best")
    words = f"{stored.label_key}, n = {int(of_map['n']):,}, {fold_words(stored)}"
    write_title(target, title, f"{words}\nfeatures chosen anew in the training cells of each fold")
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)
