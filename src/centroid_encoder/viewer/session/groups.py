"""Groups of cells, and how their features differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.tl._result import Result

COLUMNS = (
    "auroc", "difference_in_sd", "mean", "mean_other", "share_above_zero", "share_above_zero_other",
)  # fmt: skip
CAUTION = "They were selected by their features, or by predictions: differences are to be expected."
MAX_VALUES, MAX_CELLS = 10_000_000, 5000
"""With more values than that, so many cells of each group are compared."""
N_BEST, CANDIDATES = 5, 50
"""Number of features that are named, and of those among which features that are not alike are
chosen."""


@dataclass(frozen=True, eq=False)
class Group:
    """Some cells of a table."""

    rows: NDArray[np.bool_]
    """(n_obs,) mask of the cells."""
    how: str
    """How they were selected, as in ``lasso in the map``."""
    uses_features: bool = True
    """Whether they were selected by their features, as in the map; not so in the image."""


def compare(adata: AnnData, result: Result | None, groups: tuple[Group, Group]) -> pd.DataFrame:
    """Compare all features of two groups; cells of both are left out.

    Returns a row for each feature, that with the largest effect first. The features are those of
    the map, or the variables of X. ``attrs["notes"]`` are sentences on the cells, and
    ``attrs["best"]`` are the names of a few features with large effects that are not alike.
    """
    # Imported here, since it is slow.
    from centroid_encoder.tl import _telling_features as telling

    _, X, columns, names = telling.read_features(adata, result)
    first, second = groups
    both, notes, n_most = first.rows & second.rows, [], adata.n_obs
    masks = first.rows & ~both, second.rows & ~both
    if both.any():
        notes.append(f"{both.sum():,} cells of both groups are left out.")
    if sum(mask.sum() for mask in masks) * len(columns) > MAX_VALUES:
        n_most = MAX_CELLS
        notes.append(f"At most {MAX_CELLS:,} cells of each group are compared, drawn at random.")
    if first.uses_features or second.uses_features:
        notes.append(CAUTION)
    found, chosen, _ = telling.compare(X, columns, masks, n_most, N_BEST, CANDIDATES)
    table = pd.DataFrame(np.transpose([x[0] for x in found.values()]), names, COLUMNS)
    order = np.argsort(-np.abs(table["auroc"].to_numpy() - 0.5), kind="stable")
    table = table.iloc[order].rename_axis("feature")
    table.attrs["best"] = names[chosen].tolist()
    table.attrs["notes"] = notes
    return table.assign(group=first.how, other=second.how)
