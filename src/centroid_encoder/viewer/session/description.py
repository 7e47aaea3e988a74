"""A cell in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from centroid_encoder.tl._result import Column, obs_key

if TYPE_CHECKING:
    from centroid_encoder.viewer.session.session import Session


def describe(session: Session, row: int, *, predictions: bool = True) -> str:
    """Return the name of a cell, its label and its predicted class.

    Parameters
    ----------
    session
        Session with its table.
    row
        Row of the AnnData.
    predictions
        Whether the map is that of the session, and not that of a running training.
    """
    adata, result = session.adata, session.result if predictions else None
    if adata is None:
        return ""
    obs, label_key = adata.obs, session.label_key if result is None else result.label_key
    lines = [f"cell {obs.index[row]}"]
    if label_key in obs:
        column = session.corrected(label_key)
        lines.append(f"{column}: {obs[column].iloc[row]}")
    if result is not None:
        code = result.predicted[row]
        lines.append(f"predicted: {result.classes[code] if code >= 0 else '–'}")
        names: tuple[Column, ...] = ("confidence", "novelty")
        for name in names:
            column = obs_key(result.key, name)
            if column in obs and np.isfinite(obs[column].iloc[row]):
                lines.append(f"{name}: {obs[column].iloc[row]:.2f}")
    return "\n".join(lines)
