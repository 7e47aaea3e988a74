"""Loss and validation error over the epochs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np

from centroid_encoder.pl._output import save_or_show

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes


def history(
    adata: AnnData,
    *,
    key: str = "ce",
    ax: Axes | None = None,
    show: bool | None = None,
    save: str | Path | bool | None = None,
) -> Axes | None:
    """Plot the training loss, the validation loss and error, and the stages of a training.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`.
    key
        Its ``key_added``.
    ax, show, save
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
    if key not in adata.uns or "history" not in adata.uns[key]:
        raise KeyError(f"no result {key!r}; run ce.tl.centroid_encoder(adata, label_key) first")
    table = adata.uns[key]["history"]
    if ax is None:
        _, target = plt.subplots(figsize=(6, 3.6), layout="constrained")
    else:
        target = ax
    epoch = np.arange(1, len(table) + 1)
    target.plot(epoch, table["loss"], color="C0", label="training loss")
    if table["validation_loss"].notna().any():
        target.plot(epoch, table["validation_loss"], color="C1", label="validation loss")
    target.set_yscale("log")
    target.set_xlabel("epoch")
    target.set_ylabel("loss")
    handles, _ = target.get_legend_handles_labels()
    if table["validation_error"].notna().any():
        right = target.twinx()
        right.plot(
            epoch, 100 * table["validation_error"], color="C2", ls=":", label="validation error"
        )
        right.set_ylabel("validation error (%)")
        right.set_ylim(bottom=0)
        handles += right.get_legend_handles_labels()[0]
    _mark_stages(target, table["stage"].to_numpy())
    target.legend(handles=handles, frameon=False, fontsize="small")
    shown = save_or_show("history", target.figure, show=show, save=save)
    return None if shown else target


def _mark_stages(ax: Any, stages: Any) -> None:
    starts = np.flatnonzero(np.append(True, stages[1:] != stages[:-1]))
    if len(starts) == 1:
        return
    for start in starts:
        if start:
            ax.axvline(start + 0.5, color="0.6", linewidth=0.8)
        ax.annotate(
            f" {stages[start]}",
            (start + 0.5, 1),
            xycoords=("data", "axes fraction"),
            va="bottom",
            fontsize="small",
        )
