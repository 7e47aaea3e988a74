"""What the figures read from an AnnData."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.core.quality import nearest_center

if TYPE_CHECKING:
    from anndata import AnnData


@dataclass(frozen=True)
class Result:
    """An embedding that `tl.centroid_encoder` stored, in the order of the label's categories."""

    key: str
    label_key: str
    embedding: NDArray[np.floating]
    """(n_obs, m)."""
    codes: NDArray[np.intp]
    """(n_obs,) index into `classes`; −1 for unlabeled cells."""
    predicted: NDArray[np.intp]
    """(n_obs,) index into `classes` of the predicted class; −1 for cells left out."""
    split: pd.Series
    """``"train"``, ``"test"`` or ``"unlabeled"`` for every cell."""
    classes: pd.Index
    categories: pd.Index
    """Categories of the label column as it is now: what ``uns[f"{label_key}_colors"]`` counts."""
    centers: NDArray[np.floating]
    """(M, m) means of the embedded training cells."""
    stored: Mapping[str, Any]
    """``uns[key]``."""

    def misplaced(self, regions: str) -> NDArray[np.bool_]:
        """(n_obs,) mask of the labeled cells that lie in another class's region."""
        found = self.predicted
        if regions == "voronoi":
            found = nearest_center(np.nan_to_num(self.embedding), self.centers)
        embedded = ~np.isnan(self.embedding[:, 0])
        misplaced: NDArray[np.bool_] = embedded & (self.codes >= 0) & (found != self.codes)
        return misplaced


def read_result(adata: AnnData, key: str) -> Result:
    """Read what `tl.centroid_encoder` stored under `key`.

    Raises
    ------
    KeyError
        If there is no such result, or if a column that belongs to it is gone.
    ValueError
        If the label column holds other classes than those of the result.
    """
    obsm_key = "X_ce" if key == "ce" else key
    stored = adata.uns.get(key)
    if not isinstance(stored, Mapping) or "centers" not in stored or obsm_key not in adata.obsm:
        raise KeyError(f"no result {key!r}; run ce.tl.centroid_encoder(adata, label_key) first")
    label_key = str(stored["params"]["label_key"])
    if label_key not in adata.obs:
        raise KeyError(f"obs[{label_key!r}], the labels this embedding was made with, is gone")
    for column in (f"{key}_split", f"{key}_label"):
        if column not in adata.obs:
            raise KeyError(f"obs[{column!r}], a part of the result {key!r}, is gone")
    labels, split = adata.obs[label_key], adata.obs[f"{key}_split"]
    classes = pd.Index(np.asarray(stored["classes"]).tolist())
    codes = np.where(split.isin(["train", "test"]), classes.get_indexer(labels.astype(object)), -1)
    unknown = labels[split.isin(["train", "test"]) & (codes < 0)].unique()
    if len(unknown):
        raise ValueError(
            f"obs[{label_key!r}] has changed since the embedding was made: "
            f"{', '.join(map(repr, unknown[:5]))} was not among its classes. Run "
            "ce.tl.centroid_encoder again, or restore the labels"
        )
    predicted = adata.obs[f"{key}_label"].cat
    return Result(
        key=key,
        label_key=label_key,
        embedding=np.asarray(adata.obsm[obsm_key]),
        codes=codes,
        predicted=np.append(classes.get_indexer(predicted.categories), -1)[predicted.codes],
        split=split,
        classes=classes,
        categories=labels.cat.categories if hasattr(labels, "cat") else classes,
        centers=np.asarray(stored["centers"]),
        stored=stored,
    )
