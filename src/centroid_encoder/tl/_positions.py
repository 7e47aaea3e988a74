"""Find the positions of the cells of a table."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.core.arrays import Floats
from centroid_encoder.tables import CHOSEN, ROLES, axis
from centroid_encoder.tl._matrix import in_memory


def positions(adata: AnnData) -> tuple[str, Floats] | None:
    """Return the positions of cells in ``obsm["spatial"]`` or in columns such as ``X_centroid``.

    The first value says for messages where they are stored. The second one is an (n_obs, 2 or 3)
    array in the order of the axes of images, (z,) y, x. None if there are no positions. In
    ``obsm["spatial"]``, x comes first, unless the columns of a DataFrame say otherwise. Columns
    whose role "position" the user has chosen count before others, then those that have this role.
    """
    spatial = adata.obsm.get("spatial")
    doubtful = partial(axis, in_doubt=True)
    if isinstance(spatial, pd.DataFrame) and set(map(doubtful, spatial)) <= set("xyz"):
        spatial = spatial[sorted(spatial, key=lambda name: str(doubtful(name)))]
    if spatial is not None and len(spatial.shape) == 2 and spatial.shape[1] in (2, 3):
        # The third column may be empty.
        for n in range(spatial.shape[1], 1, -1):
            places = numbers(spatial.iloc[:, :n] if hasattr(spatial, "iloc") else spatial[:, :n])
            if places is not None:
                return "obsm: spatial", places[:, ::-1]
    chosen, of_role = _columns_of_positions(adata)
    for columns, find in (
        (chosen, doubtful),
        (of_role, axis),
        (of_role, doubtful),
        ([*adata.obs], axis),
    ):
        # The centers come before the other places of a cell, such as its brightest pixel.
        is_chosen = columns is chosen
        names = [name for name in columns[::-1] if is_chosen or "box" not in str(name).lower()]
        found = {find(name): name for name in names}
        for wanted in ("zyx", "yx", "012", "01"):
            if set(wanted) <= set(found):
                used = [found[a] for a in wanted]
                places = numbers(adata.obs[used])
                where = " and ".join(map(repr, used[-2:]))
                return None if places is None else (where, places)
    return None


def _columns_of_positions(adata: AnnData) -> tuple[list[str], list[str]]:
    """Return the columns whose role "position" the user has chosen, and all with this role."""
    roles = adata.uns.get(ROLES)
    if not isinstance(roles, pd.DataFrame) or not {"column", "role", "reason"} <= {*roles}:
        return [], []
    found = roles[(roles["role"] == "position") & roles["column"].isin([*adata.obs])]
    return [*found["column"][found["reason"] == CHOSEN]], [*found["column"]]


def numbers(value: Any) -> Floats | None:
    """Return a matrix of numbers with at least one complete row, or None for anything else."""
    with suppress(TypeError, ValueError):
        table = np.asarray(in_memory(value))
        if table.dtype.kind not in "iufO":
            return None
        table = table.astype(np.float64)
        if table.ndim == 2 and np.isfinite(table).all(axis=1).any():
            return table
    return None
