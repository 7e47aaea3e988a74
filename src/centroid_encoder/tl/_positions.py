"""Find the positions of the cells of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.tables import ROLES, axis
from centroid_encoder.tl._matrix import in_memory


def positions(adata: AnnData) -> tuple[str, NDArray[np.floating]] | None:
    """Return the positions of cells in ``obsm["spatial"]`` or in columns such as ``X_centroid``.

    The first value says for messages where they are stored. The second one is an (n_obs, 2 or 3)
    array in the order of the axes of images, (z,) y, x. None if there are no positions. Columns
    whose role is "position" count before others, also those whose names leave this in doubt.
    """
    spatial = numbers(adata.obsm.get("spatial"))
    if spatial is not None and spatial.shape[1] in (2, 3):
        return "obsm: spatial", spatial[:, ::-1]
    of_role: list[str] = []
    if ROLES in adata.uns:
        roles = adata.uns[ROLES]
        of_role = [*roles["column"][roles["role"] == "position"]]
    for columns, in_doubt in ((adata.obs.columns.intersection(of_role), True), (adata.obs, False)):
        # The centers come before the other places of a cell, such as its brightest pixel.
        names = [name for name in [*columns][::-1] if "box" not in str(name).lower()]
        found = {axis(name, in_doubt=in_doubt): name for name in names}
        for wanted in ("zyx", "yx", "012", "01"):
            if set(wanted) <= set(found):
                used = [found[a] for a in wanted]
                places = numbers(adata.obs[used])
                where = " and ".join(map(repr, used[-2:]))
                return None if places is None else (where, places)
    return None


def numbers(value: Any) -> NDArray[np.floating] | None:
    """Return a matrix of numbers with at least one complete row, or None for anything else."""
    if isinstance(value, pd.DataFrame):
        value = in_memory(value)
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "iuf":
        return None
    table = value.astype(float)
    return table if np.isfinite(table).all(axis=1).any() else None
