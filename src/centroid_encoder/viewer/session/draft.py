"""Drafts of maps, which are never written to the table.

One is the live map of labels that are given by hand; the other is the first map of a table, before
the user presses Train.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder import tl
from centroid_encoder.core.quality import turned_onto
from centroid_encoder.tables import colors_key, embedding_key, obs_key
from centroid_encoder.tl._result import REPEATED, Result
from centroid_encoder.tl._summary import doubt_words
from centroid_encoder.viewer.session.corrections import as_categories, corrected, corrected_colors
from centroid_encoder.viewer.session.labeling import N_ALWAYS_TRAIN, Codes, Labeling

if TYPE_CHECKING:
    from centroid_encoder.tl._centroid_encoder import Training

DRAFT_KEY = "ce"
HELD_OUT = "held_out"
"""Column of a draft: whether a labelled cell is held out."""
MIN_CLASSES = 2
FEATURES = ("use_rep", "layer", "use_raw", "mask_var", "missing", "device")
"""Arguments of a training that are also used for a draft; all others have their defaults."""
MAX_TRAINED, SHARE = 4_000, 0.8
"""Largest number of labelled cells that a first map is trained on, and their largest share."""
MAX_VALUES = 100_000_000
"""Largest number of values of a table that gets a first map unasked."""


def is_trainable(labeling: Labeling) -> bool:
    """Whether two classes have three training cells each."""
    codes = np.where(labeling.held_out(), -1, labeling.codes)
    return int((np.bincount(codes + 1)[1:] >= N_ALWAYS_TRAIN).sum()) >= MIN_CLASSES


def new_draft(labeling: Labeling) -> AnnData | None:
    """Return an AnnData with the labels of the training cells, which shares all values.

    None before the labels are enough.
    """
    if not is_trainable(labeling):
        return None
    colors = {one.name: one.color for one in labeling.classes}
    return _draft(labeling.adata, labeling.column, labeling.codes, labeling.held_out(), colors)


def first_draft(adata: AnnData, label_key: str) -> AnnData | None:
    """Return an AnnData with the labels of a random part of the cells, which shares all values.

    The labels are those of `label_key` with their corrections. All other labelled cells are held
    out. None if the table is large, or the labels are no classes.
    """
    labels = as_categories(adata.obs[corrected(adata, label_key)])
    codes = np.asarray(labels.codes)
    if adata.n_obs * adata.n_vars > MAX_VALUES or len(np.unique(codes[codes >= 0])) < MIN_CLASSES:
        return None
    cells = np.random.default_rng(0).permutation(np.flatnonzero(codes >= 0))
    held_out = np.zeros(adata.n_obs, dtype=bool)
    held_out[cells[min(MAX_TRAINED, int(SHARE * len(cells))) :]] = True
    colors = zip(labels.categories, corrected_colors(adata, label_key).values(), strict=True)
    return _draft(adata, label_key, codes, held_out, dict(colors))


def _draft(
    adata: AnnData,
    column: str,
    codes: Codes,
    held_out: NDArray[np.bool_],
    colors: Mapping[Any, str],
) -> AnnData:
    """Return an AnnData with the labels of the training cells; `colors` are those of classes."""
    labels = pd.Categorical.from_codes(np.where(held_out, -1, codes), pd.Index(list(colors)))
    obs = pd.DataFrame({column: labels, HELD_OUT: held_out}, adata.obs_names)
    return sharing(adata, obs, {colors_key(column): list(colors.values())})


def sharing(adata: AnnData, obs: pd.DataFrame, uns: dict[str, Any]) -> AnnData:
    """Return an AnnData with the values of another one, which are not copied."""
    raw = None if adata.raw is None else {"X": adata.raw.X, "var": adata.raw.var}
    # anndata 0.13 counts X among the layers, by the name None.
    layers = {name: layer for name, layer in adata.layers.items() if name is not None}
    return AnnData(adata.X, obs, adata.var, uns, obsm=dict(adata.obsm), layers=layers, raw=raw)


def draft_job(
    draft: AnnData, column: str, parameters: dict[str, Any], *, quick: bool = False
) -> Training:
    """Return the training of a draft; missing values become means unless others are chosen."""
    chosen = {name: value for name, value in parameters.items() if name in FEATURES}
    if quick:
        from centroid_encoder.estimator import CentroidEncoder

        chosen["model"] = CentroidEncoder(n_networks=2, max_epochs="few")
    job: Training = tl.centroid_encoder.job(
        draft, column, test_size=0, **({"missing": "mean"} | chosen)
    )
    held_out = draft.obs[HELD_OUT].to_numpy()
    draft.uns[REPEATED] = job.n_repeated(np.flatnonzero(held_out))
    return job


def keep_places(draft: AnnData, before: Result) -> None:
    """Turn or reflect the map of a draft, so that its classes lie where they were before."""
    stored, name = draft.uns[DRAFT_KEY], embedding_key(DRAFT_KEY)
    points, centers = draft.obsm[name], np.asarray(stored["centers"])
    classes = pd.Index(np.asarray(stored["classes"]).tolist())
    same = classes.intersection(before.classes)
    pairs = centers[classes.get_indexer(same)], before.centers[before.classes.get_indexer(same)]
    draft.obsm[name], stored["centers"] = turned_onto(
        (points, centers), pairs, (points, before.embedding)
    )


def held_out_error(draft: AnnData, labels: pd.Series) -> tuple[int, dict[str, Any]]:
    """Return how many held-out cells the draft predicts wrongly, and the numbers of these cells.

    `labels` are the present labels of all cells.
    """
    counted = draft.obs[HELD_OUT].to_numpy() & labels.notna().to_numpy()
    found = draft.obs[obs_key(DRAFT_KEY, "label")]
    counted &= found.notna().to_numpy()
    wrong = found[counted].astype(object).to_numpy() != labels[counted].astype(object).to_numpy()
    return int(wrong.sum()), {"n": int(counted.sum()), REPEATED: draft.uns[REPEATED]}


def error_text(n_wrong: int, errors: Mapping[str, Any], *, digits: int = 0) -> str:
    """Describe a held-out error and what makes it doubtful; for few cells, their number."""
    if not (n := errors["n"]):
        return "none held out yet"
    few, repeated = doubt_words(errors)
    text = f"{n_wrong:,} of {n:,} wrong ({few})"
    if not few:
        text = f"{100 * n_wrong / n:.{digits}f} % of {n:,} held out wrong"
    return text + (f"\n{repeated}" if repeated else "")
