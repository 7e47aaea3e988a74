"""Groups of cells: how they were selected, how their features differ, and columns of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.errors import InputError
from centroid_encoder.files import check_target, replacing, writing
from centroid_encoder.pl._values import variable_source
from centroid_encoder.tl._read import is_key, read_matrix
from centroid_encoder.tl._result import Result

SELECTIONS = "ce_selections"
"""Name in ``uns`` of the entries of kept groups: a dict for each column."""
MAX_VALUES, MAX_CELLS = 10_000_000, 5000
"""With more values than that, a larger group is sampled."""


@dataclass(frozen=True, eq=False)
class Group:
    """Some cells of a table."""

    rows: NDArray[np.bool_]
    """(n_obs,) mask of the cells."""
    how: str
    """How they were selected, as in ``lasso in the map`` or ``class tumor``."""
    uses_features: bool = True
    """Whether their features decided on it, as in the map; not so in the image."""

    @property
    def n(self) -> int:
        """Number of the cells."""
        return int(self.rows.sum())


def compare(
    adata: AnnData,
    result: Result | None,
    first: Group,
    second: Group,
    callback: Callable[[int], object] | None = None,
) -> tuple[pd.DataFrame, str]:
    """Compare all features of two groups; cells of both are left out.

    Returns a table with a row for each feature, that with the largest effect first, and sentences
    on the cells that were not used. The features are those of the map, or the variables of X.
    """
    # Imported here, since it is slow.
    from centroid_encoder.core.effects import effects
    from centroid_encoder.tl._telling_features import TellingFeatures

    if result is None:
        X, _, variables = read_matrix(adata)
        names = pd.Index(variables)
        columns = np.arange(len(names))
    else:
        X, columns, names = TellingFeatures(adata, result).features
    codes = np.select([first.rows & second.rows, first.rows, second.rows], [-1, 0, 1], -1)
    n_both, notes, rng = int((first.rows & second.rows).sum()), "", np.random.default_rng(0)
    if n_both:
        notes = f"{n_both:,} cells of both groups are left out. "
    if (codes >= 0).sum() * X.shape[1] > MAX_VALUES:
        for code in (0, 1):
            rows = np.flatnonzero(codes == code)
            codes[rng.permutation(rows)[MAX_CELLS:]] = -1
        notes += f"Of a larger group, {MAX_CELLS:,} cells drawn at random are compared. "
    found = effects(X, codes, 2, callback=callback)
    values = {
        "auroc": found.auroc,
        "difference_in_sd": found.difference,
        "mean": found.mean,
        "mean_other": found.mean_rest,
        "share_above_zero": found.positive,
        "share_above_zero_other": found.positive_rest,
    }
    table = pd.DataFrame({name: of[0, columns] for name, of in values.items()}, index=names)
    order = np.argsort(-np.abs(table["auroc"].to_numpy() - 0.5), kind="stable")
    return table.iloc[order].assign(group=first.how, other=second.how), notes.strip()


def save_effects(table: pd.DataFrame, path: Path) -> None:
    """Write a table of `compare` as a ``.csv`` file."""
    path = check_target(path, ".csv")
    with writing(path), replacing(path) as beside:
        table.to_csv(beside, index_label="feature")


def free_name(adata: AnnData) -> str:
    """Return a name for a group that no column has."""
    return next(x for i in count(1) if (x := f"selection {i}") not in adata.obs)


def keep(adata: AnnData, name: str, group: Group) -> None:
    """Write a group as a boolean column, and how it was selected into ``uns``.

    Raises an InputError for the name of another column or variable, or one that files cannot hold.
    """
    kept = adata.uns.get(SELECTIONS, {})
    if not is_key(name):
        raise InputError(f"{name!r} cannot be the name of a group; choose another one")
    taken = name in adata.obs and name not in kept
    if taken or name in variable_source(adata).var_names:
        raise InputError(f"there is already a column or variable {name!r}; choose another name")
    adata.obs[name] = group.rows.copy()
    made = {"how": group.how, "uses_features": group.uses_features}
    adata.uns[SELECTIONS] = {**kept, name: made}
