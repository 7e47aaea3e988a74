"""Cells without a label that may help a training: their choice, and their graph of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.errors import InputError, MissingKeyError
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._read import Cells, near_matches, obs_column

Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Unlabeled:
    """Unlabelled cells of a table, as far as their rows are kept."""

    codes: Codes
    """(n_kept,) classes of the kept cells, −1 for unlabelled ones."""
    allowed: NDArray[np.bool_]
    """(n_kept,) mask of the cells that may help."""
    groups: Codes | None
    graph: sparse.csr_array | None
    """(n_kept, n_kept) graph of neighbours; None for one that the training makes."""
    params: dict[str, Any]
    """Arguments that are stored with the results."""

    def options(self, held_out: NDArray[np.bool_]) -> dict[str, Any]:
        """Return the arguments of `fit_codes`, without cells of groups that are held out.

        `held_out` is an (n_kept,) mask of labelled cells.
        """
        free = (self.codes < 0) & self.allowed
        if self.groups is not None:
            free &= ~np.isin(self.groups, np.unique(self.groups[held_out]))
        return {"unlabeled": np.flatnonzero(free), "graph": self.graph}


def read_unlabeled(
    adata: AnnData,
    cells: Cells,
    estimator: CentroidEncoder,
    use_unlabeled: bool | str,
    neighbors_key: str | None,
) -> Unlabeled | None:
    """Return the unlabelled cells if they are to be used; check that they can be."""
    if not isinstance(use_unlabeled, bool | np.bool_ | str):
        text = "use_unlabeled must be True, False or the name of a column of obs"
        raise InputError(f"{text}; got {use_unlabeled!r}", "use_unlabeled")
    if not use_unlabeled:
        if neighbors_key is not None:
            text = f"neighbors_key={neighbors_key!r} has no effect without use_unlabeled=True"
            raise InputError(text, "neighbors_key")
        return None
    for name, value in (("placement", "bottleneck"), ("n_networks", 1)):
        if getattr(estimator, name) == value:
            text = f"use_unlabeled needs several networks, not {name}={value!r}"
            raise InputError(text, "use_unlabeled")
    codes, kept = cells.kept_codes, cells.kept
    allowed = np.ones(len(codes), dtype=bool)
    if isinstance(use_unlabeled, str):
        column = obs_column(adata, use_unlabeled, "use_unlabeled")
        allowed = column.isin([True]).to_numpy()[kept]
        if not allowed.any():
            text = f"obs[{use_unlabeled!r}] must be True for the cells that may help, and never is"
            raise InputError(text, "use_unlabeled")
    if not (allowed & (codes < 0)).any():
        raise InputError(
            "use_unlabeled needs cells without a label, and there are none", "use_unlabeled"
        )
    graph = None
    if neighbors_key is not None:
        if neighbors_key not in adata.uns:
            text = f"uns has no {neighbors_key!r}{near_matches(neighbors_key, adata.uns)}"
            raise MissingKeyError(text, "neighbors_key")
        name = dict(adata.uns[neighbors_key]).get("connectivities_key", "connectivities")
        if name not in adata.obsp:
            text = f"obsp has no {name!r}, which uns[{neighbors_key!r}] names"
            raise MissingKeyError(text, "neighbors_key")
        graph = sparse.csr_array(adata.obsp[name])[kept][:, kept]
        if not np.isfinite(graph.data).all() or (graph.data < 0).any():
            text = f"obsp[{name!r}] must have finite weights of at least 0"
            raise InputError(text, "neighbors_key")
    groups = None if cells.groups is None else cells.groups[kept]
    params = {"use_unlabeled": str(use_unlabeled) if isinstance(use_unlabeled, str) else True}
    params |= {} if neighbors_key is None else {"neighbors_key": neighbors_key}
    return Unlabeled(codes, allowed, groups, graph, params)
