"""Loss and validation error over the epochs of a training."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from centroid_encoder.pl._axes import Save, check_save, finish, new_axes
from centroid_encoder.tl._result import read_result


def history(
    adata: AnnData,
    *,
    key: str = "ce",
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot the training loss, the validation loss and error, and the stages of a training.

    Return values and errors are as in `voronoi`.

    Parameters
    ----------
    adata
        Annotated data with the result of a training by `ce.tl.centroid_encoder`.
    key, ax, show, save, dpi
        As in `voronoi`.
    """
    path = check_save("history", save, dpi, own=ax is None)
    # There is a history, since an error is raised for cells of `ingest`.
    table: Any = read_result(adata, key, trained=True).stored.history
    target: Any = new_axes(5, 3) if ax is None else ax
    epoch = np.arange(1, len(table) + 1)
    handles = target.plot(epoch, table["loss"], color="C0", label="training loss")
    if table["validation_loss"].notna().any():
        handles += target.plot(epoch, table["validation_loss"], color="C1", label="validation loss")
    target.set(xlabel="epoch", ylabel="loss", yscale="log")
    target.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    target.yaxis.set_major_formatter("{x:g}")
    target.yaxis.set_minor_formatter(NullFormatter())
    target.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    top, error = target, 100 * table["validation_error"]
    if error.notna().any():
        top = target.twinx()
        handles += top.plot(epoch, error, color="C2", ls=":", label="validation error")
        top.set_ylabel("validation error (%)")
        top.set_ylim(bottom=0)
    # Lines separate the stages. The stages of pre-training have one name.
    stages = [str(stage) for stage in table["stage"]]
    starts = {i: name for i, name in enumerate(stages) if i == 0 or name != stages[i - 1]}
    n_steps = sum(name.startswith("pretrain") for name in starts.values())
    for start, name in starts.items() if len(starts) > 1 else ():
        if start:
            target.axvline(start + 0.5, color="0.6", linewidth=0.8)
        if start == 0 or not name.startswith("pretrain"):
            text = f"{name}–{n_steps}" if n_steps > 1 and start == 0 else name
            place = {"transform": target.get_xaxis_transform(), "fontsize": "small"}
            target.text(start + 0.5, 1.01, f" {text}", **place)
    # On the axes that are drawn last, so that no curve covers the legend.
    top.legend(handles=handles, loc="upper right", fontsize="small")
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)
