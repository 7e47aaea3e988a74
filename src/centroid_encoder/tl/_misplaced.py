"""Labeled cells that lie in the region of another class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.spatial.distance import cdist

from centroid_encoder.core.arrays import Floats
from centroid_encoder.core.quality import misplacement_depth
from centroid_encoder.tl import _result
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._result import Regions


def misplaced(adata: AnnData, *, key: str = "ce", regions: Regions = "voronoi") -> pd.DataFrame:
    """List the labeled cells that lie in another class's region, worst first.

    These are mislabelled cells, and cells of classes that the data do not separate. With
    ``placement="bottleneck"``, the network that places a training cell was trained on its label, so
    that a misplaced held-out cell is better evidence of a wrong label. `adata` is not changed.

    Parameters
    ----------
    adata
        Annotated data after `centroid_encoder`, or after `ingest` if that compared the predicted
        classes with labels of the cells.
    key
        Name of the result, as given to `key_added` of that function.
    regions
        ``"voronoi"``: the Voronoi cells of the centers; ``"decoder"``, for maps with a bottleneck:
        the regions of the predicted classes in ``obs["ce_label"]``.

    Returns
    -------
    DataFrame
        One row for each misplaced cell, under its name in ``obs_names``, with the columns

        ``label``, ``region`` : dtype ``category``
            The label of the cell, and the class in whose region it lies.
        ``split`` : dtype ``category``
            ``"train"``, ``"test"``, ``"unused"`` or, after `ingest`, ``"query"``.
        ``depth`` : dtype ``float64``
            How far the cell lies inside that region, in (0, 1]: 1 − (distance to the center of the
            region) / (distance to the center of its own class); near 0 at the border, 1 at the
            center. For ``"decoder"``, the distances are those by which the class is predicted.

        Cells of equal depth are in the order of ``obs_names``. Cells without a label, cells left
        out for missing values, and cells that were not judged are not listed.

    Raises
    ------
    KeyError
        If there is no result under that key, or if a part of it is missing.
    ValueError
        If the label column has changed since the training, if `ingest` predicted the labels and
        the cells have no others, or if `regions` is not valid or the map has no such regions.
    InvalidStateError
        If `regions` is ``"decoder"`` and the stored map is not complete.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> table = ce.tl.misplaced(adata)
    >>> suspects = table[table["split"] == "test"].head(10)
    """
    result = _result.read_result(adata, key)
    compared, is_query = result.stored.params.get("compared_with"), (result.split == _result.QUERY)
    if compared is None or not is_query[result.embedded].all():
        result = _result.read_result(adata, key, trained=True)
        judged = result.misplaced(regions) & ~is_query
    else:
        labels = _result.stored_column(adata, compared, "the labels that were compared")
        result = replace(result, codes=result.classes.get_indexer(labels.astype(object)))
        judged = result.misplaced(regions) & is_query & (result.predicted >= 0)
    rows, regions_found = np.flatnonzero(judged), result.found_in(regions)
    embedding = result.embedding[rows].astype(np.float64)
    distances: Floats
    if regions == "voronoi":
        distances = cdist(embedding, result.centers)
    else:
        model = fitted_model(adata, key)
        # The columns of the distances are the classes of the model, which are sorted.
        columns = pd.Index(model.classes_.tolist()).get_indexer(result.classes)
        distances = model.fitted_map.distances(embedding)[:, columns]
    own, found, at = result.codes[rows], regions_found[rows], np.arange(len(rows))
    table = pd.DataFrame(
        {
            "label": pd.Categorical.from_codes(own, result.classes),
            "region": pd.Categorical.from_codes(found, result.classes),
            "split": pd.Categorical(
                result.split.iloc[rows].astype(str),
                [_result.TRAIN, _result.TEST, _result.UNUSED, _result.QUERY],
            ),
            "depth": misplacement_depth(distances[at, found], distances[at, own]),
        },
        index=adata.obs_names[rows],
    )
    return table.sort_values("depth", ascending=False, kind="stable")
