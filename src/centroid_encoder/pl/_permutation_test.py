"""Histogram of the probabilities of the own class with shuffled labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from centroid_encoder.errors import MissingKeyError
from centroid_encoder.pl._axes import Save, check_save, finish, new_axes, write_title
from centroid_encoder.tables import cv_key
from centroid_encoder.tl._result import StoredCrossValidation, own_cells
from centroid_encoder.tl._summary import permutation_words


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
    """Plot the mean probability of the own class, and its histogram with shuffled labels.

    Every class has the same weight, so that the result does not depend on the largest class.

    A supervised embedding separates any labels, even random ones. If the labels are related to the
    data, the out-of-fold probability of the real labels is larger than that of all shuffled ones.
    Return values and errors are as in `voronoi`.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.cross_validate` with ``n_permutations``.
    key, title, ax, show, save, dpi
        As in `voronoi`.
    """
    path = check_save("permutation_test", save, dpi, own=ax is None)
    stored = StoredCrossValidation.read(adata, key)
    if stored is None or stored.permutation is None:
        labels = "label_key" if stored is None else repr(stored.label_key)
        text = f"no permutation test for {key!r}; run ce.tl.cross_validate(adata,"
        raise MissingKeyError(f"{text} {labels}, n_permutations=99)", "key")
    own_cells(adata, cv_key(key), stored)  # It warns of others.
    shuffled, observed = stored.permutation["shuffled"], stored.permutation["observed"]
    target: Any = new_axes(4.4, 2.9) if ax is None else ax
    # Bins of the whole range, because the probabilities of shuffled labels are nearly equal.
    bins = np.histogram_bin_edges([*shuffled, observed], 40)
    number, _, _ = target.hist(shuffled, bins, color="0.6", label="with shuffled labels")
    label = f"observed: {observed:.2f}"
    target.axvline(observed, color="C0", linewidth=2, label=label)
    # Room for the legend above the bars.
    target.set_ylim(0, 1.35 * max(number))
    target.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    target.set_axisbelow(True)
    target.set(xlabel="mean out-of-fold probability of the own class", ylabel="permutations")
    target.legend(fontsize="small", loc="best")
    write_title(target, title, permutation_words(stored.permutation))
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)
