"""Histogram of the errors under shuffled labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from centroid_encoder.errors import MissingKeyError
from centroid_encoder.pl._axes import Save, figure_writer, finish, new_axes, write_title
from centroid_encoder.tl._result import StoredCrossValidation, cv_key
from centroid_encoder.tl._summary import permutation_words

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes


def permutation_test(
    adata: AnnData,
    *,
    key: str = "ce",
    title: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot the out-of-fold error among the errors that shuffled labels give.

    A supervised embedding parts whatever it is told to part. Where the labels say something about
    the cells, their error lies left of all that was found with shuffled ones.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.cross_validate` with ``n_permutations``.
    key
        Name of the results, as given to `key_added`.
    title
        In place of the default.
    ax, show, save, dpi
        As in `voronoi`.

    Returns
    -------
    Axes | None
        None if shown; else the axes.

    Raises
    ------
    KeyError
        If there is no permutation test under that key.
    """
    write = figure_writer("permutation_test", save, dpi, own=ax is None)
    stored = StoredCrossValidation.read(adata, key)
    if stored is None or stored.permutation is None:
        labels = "label_key" if stored is None else repr(stored.label_key)
        raise MissingKeyError(
            f"no permutation test in uns[{cv_key(key)!r}]; run "
            f"ce.tl.cross_validate(adata, {labels}, n_permutations=99)",
            "key",
        )
    test = stored.permutation
    null, observed = 100 * test.errors, 100 * test.observed
    chance = 100 * stored.quality["chance_error"]

    target: Any = new_axes(5, 3.6) if ax is None else ax
    number, _, _ = target.hist(null, bins=_bins(null), color="0.6", label="with shuffled labels")
    target.axvline(observed, color="C0", linewidth=2, label=f"observed: {observed:.1f} %")
    if np.isfinite(chance):
        target.axvline(
            chance,
            color="C1",
            linestyle=":",
            linewidth=1.5,
            label=f"always the largest class: {chance:.1f} %",
        )
    right = np.nanmax([null.max(), observed, chance])
    target.set_xlim(0, min(100, 1.08 * right) or 1)
    # Room for the legend above the bars.
    target.set_ylim(0, 1.35 * max(number))
    target.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    target.set_axisbelow(True)
    target.set_xlabel("out-of-fold 5-NN error (%)")
    target.set_ylabel("permutations")
    target.legend(fontsize="small", loc="best")
    write_title(target, title, permutation_words(test))
    return finish(target, show=show, write=write, own=ax is None)


def _bins(null: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges half-way between possible errors, which are shares of whole cells."""
    values = np.unique(null)
    if len(values) == 1:
        return float(values[0]) + np.array([-0.5, 0.5])
    step = np.diff(values).min()
    n_steps = round((values[-1] - values[0]) / step) + 1
    # Bins are whole numbers of steps wide, so that all hold equally many possible errors.
    width = -(-n_steps // min(max(5, round(np.sqrt(len(null)))), 30))
    return np.asarray(values[0] + step * (np.arange(0, n_steps + width, width) - 0.5))
