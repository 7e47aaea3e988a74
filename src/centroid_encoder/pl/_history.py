"""Loss and validation error over the epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from centroid_encoder.pl._axes import Save, figure_writer, finish, new_axes
from centroid_encoder.tl._result import StoredMap, check_trained, no_result

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes


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

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`.
    key
        Name of the results, as given to `key_added`.
    ax, show, save, dpi
        As in `voronoi`.

    Returns
    -------
    Axes | None
        None if shown; else the axes of the loss.

    Raises
    ------
    KeyError
        If there is no result under that key.
    """
    write = figure_writer("history", save, dpi, own=ax is None)
    check_trained(adata, key)
    stored = StoredMap.read(adata, key)
    if stored is None or stored.history is None:
        raise no_result(key)
    table = stored.history
    target: Any = new_axes(6, 3.6) if ax is None else ax
    epoch = np.arange(1, len(table) + 1)
    target.plot(epoch, table["loss"], color="C0", label="training loss")
    if table["validation_loss"].notna().any():
        target.plot(epoch, table["validation_loss"], color="C1", label="validation loss")
    target.set_yscale("log")
    target.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    target.yaxis.set_major_formatter("{x:g}")
    target.yaxis.set_minor_formatter(NullFormatter())
    target.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    target.set_xlabel("epoch")
    target.set_ylabel("loss")
    handles, _ = target.get_legend_handles_labels()
    top = target
    if table["validation_error"].notna().any():
        top = target.twinx()
        top.plot(
            epoch, 100 * table["validation_error"], color="C2", ls=":", label="validation error"
        )
        top.set_ylabel("validation error (%)")
        top.set_ylim(bottom=0)
        handles += top.get_legend_handles_labels()[0]
    _mark_stages(target, [str(stage) for stage in table["stage"]])
    # On the upper of the two axes, so that no curve is drawn over it.
    top.legend(handles=handles, loc="upper right", fontsize="small")
    return finish(target, show=show, write=write, own=ax is None)


def _mark_stages(ax: Any, stages: list[str]) -> None:
    """Separate the stages by lines and name them; all steps of pre-training have one name."""
    starts = [i for i, stage in enumerate(stages) if i == 0 or stage != stages[i - 1]]
    if len(starts) == 1:
        return
    for start in starts[1:]:
        ax.axvline(start + 0.5, color="0.6", linewidth=0.8)
    n_steps = sum(stages[start].startswith("pretrain") for start in starts)
    for start in starts:
        name = stages[start]
        if name.startswith("pretrain"):
            if start:
                continue
            name += f"–{n_steps}" if n_steps > 1 else ""
        ax.annotate(
            name,
            (start + 0.5, 1),
            (2, 2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize="small",
        )
