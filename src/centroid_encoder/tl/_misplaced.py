"""Cells that lie in the region of another class than their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.quality import AT_ONCE, misplacement_depth
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._stored import Regions, Result, check_trained, read_result

if TYPE_CHECKING:
    from anndata import AnnData


def misplaced(adata: AnnData, *, key: str = "ce", regions: Regions = "voronoi") -> pd.DataFrame:
    """List the labeled cells that lie in another class's region, worst first.

    Among them are mislabelled cells, and cells of classes that the data do not tell apart. With
    ``placement="bottleneck"`` a training cell's label has drawn it towards its class: what is
    misplaced among the held-out cells says more. `adata` stays as it is.

    Parameters
    ----------
    adata
        Annotated data after `centroid_encoder`.
    key
        Its ``key_added``.
    regions
        ``"voronoi"``: cells of the class centers; ``"decoder"``: where the model decides for a
        class, as in ``obs["ce_label"]``, which is the same without a bottleneck.

    Returns
    -------
    DataFrame
        One row for each misplaced cell, under its name in ``obs_names``, with the columns

        ``label``, ``region`` : dtype ``category``
            Its own class, and the class in whose region it lies.
        ``split`` : dtype ``category``
            ``"train"`` or ``"test"``.
        ``depth`` : dtype ``float64``
            How far inside that region, in (0, 1]: 1 − (distance to that class's center) /
            (distance to its own class's); near 0 at the border, 1 at the other's center. For
            ``"decoder"`` distances are those by which the model decides.

        Cells of equal depth are in the order of ``obs_names``. Cells without a label, and cells
        left out for missing values, are never listed.

    Raises
    ------
    KeyError
        If there is no result under that key, or if a part of it is gone.
    ValueError
        If the labels are no longer those the embedding was made with, if they are those that
        `ingest` gave, or if `regions` is not valid.
    InvalidStateError
        If the decoder is asked for and what is stored is not a complete map.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> table = ce.tl.misplaced(adata)
    >>> suspects = table[table["split"] == "test"].head(10)
    """
    check_trained(adata, key)
    result = read_result(adata, key)
    found = result.found_in(regions)
    rows = np.flatnonzero(result.misplaced(regions))
    depth = _depth(adata, result, regions, rows, found[rows])
    worst_first = np.argsort(-depth, kind="stable")
    rows = rows[worst_first]
    return pd.DataFrame(
        {
            "label": pd.Categorical.from_codes(result.codes[rows], result.classes),
            "region": pd.Categorical.from_codes(found[rows], result.classes),
            "split": pd.Categorical(result.split.iloc[rows].astype(str), ["train", "test"]),
            "depth": depth[worst_first],
        },
        index=adata.obs_names[rows],
    )


def _depth(
    adata: AnnData,
    result: Result,
    regions: Regions,
    rows: NDArray[np.intp],
    found: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Depth of the misplaced cells `rows`, which lie in the regions of the classes `found`."""
    embedding, own = result.embedding[rows].astype(np.float64), result.codes[rows]
    if regions == "voronoi":
        to_found = np.linalg.norm(embedding - result.centers[found], axis=1)
        to_own = np.linalg.norm(embedding - result.centers[own], axis=1)
        return misplacement_depth(to_found, to_own)
    map_ = fitted_model(adata, result.key).fitted_map
    parts = [np.empty(0)]
    for start in range(0, len(rows), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        distances = map_.distances(embedding[part])
        at = np.arange(len(distances))
        to_found, to_own = distances[at, found[part]], distances[at, own[part]]
        parts.append(misplacement_depth(to_found, to_own))
    return np.concatenate(parts)
