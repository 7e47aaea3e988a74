"""Cells whose labels would teach a map most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.checks import Number, RandomState, draw_seed
from centroid_encoder.core import suggestion
from centroid_encoder.errors import InputError
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._gaps import count_gaps, fill_missing
from centroid_encoder.tl._new_cells import NewCells, match_features
from centroid_encoder.tl._read import MaskVar, mask_columns, obs_column, opened, read_matrix
from centroid_encoder.tl._result import StoredMap

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.estimator import CentroidEncoder

N_POOL = 20_000
"""Cells from which the suggested ones are chosen, at most."""


def suggest(
    adata: AnnData,
    key: str = "ce",
    n: int = 20,
    *,
    image_key: str | None = None,
    label_key: str | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    use_raw: bool = False,
    mask_var: MaskVar = "auto",
    random_state: RandomState = 0,
) -> pd.DataFrame:
    """Suggest the unlabeled cells whose labels would improve a map most.

    With few labels, these are typical cells of parts of the data that have none; a map is not
    needed. From twenty labels on, and four per class, they are cells for which two classes are
    about equally probable, different from each other, and one in ten is a cell unlike all labeled
    ones, where there are such cells. `adata` is not changed.

    Parameters
    ----------
    adata
        Annotated data.
    key
        Name of the map, as given to `key_added` of `centroid_encoder`. Without such a map, typical
        cells are suggested.
    n
        Number of cells.
    image_key
        Column of ``adata.obs`` with the image or the sample of each cell: the suggested cells are
        spread over them.
    label_key
        Column of ``adata.obs`` with the labels; cells that have one are not suggested. Default:
        that of the map; without a map, no cell has a label.
    use_rep, layer, use_raw, mask_var
        Where the values are, as in `centroid_encoder`. With a map, they are those of its training.
    random_state
        Seed of the choice.

    Returns
    -------
    DataFrame
        One row for each cell, under its name in ``obs_names``, the most useful first, with the
        columns

        ``reason`` : dtype ``category``
            ``"typical"``, ``"unsure"`` or ``"novel"``.
        ``label``, ``runner_up`` : dtype ``category``
            The most probable class and the next one; missing without a map.
        ``probability``, ``runner_up_probability`` : dtype ``float32``
            Their probabilities; NaN without a map.

    Raises
    ------
    KeyError
        If a column, a layer or a representation is missing.
    ValueError
        If all cells have labels, or if the values cannot be used.
    InvalidStateError
        If the stored map is not complete.

    Notes
    -----
    Typical cells are those of TypiClust [1]_; the change from typical to unsure cells is that of
    TCM [2]_. Beyond 20,000 unlabeled cells, a random sample of as many is looked at, evenly from
    all images. Missing values are replaced by means.

    References
    ----------
    .. [1] Hacohen, Dekel & Weinshall (2022), Active learning on a budget: opposite strategies suit
       high and low budgets. ICML.
    .. [2] Doucet et al. (2024), Bridging diversity and uncertainty in active learning with
       self-supervised pre-training. arXiv 2403.03728.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> adata.obs["by_hand"] = adata.obs["bulk_labels"].where(adata.obs["phase"] == "G2M")
    >>> ce.tl.centroid_encoder(adata, "by_hand", progress=False)
    >>> queue = ce.tl.suggest(adata, n=10)
    """
    Number(1, integer=True).check("n", n)
    seed = draw_seed(random_state)
    stored = StoredMap.read(adata, key)
    given = {"use_rep": use_rep, "layer": layer, "use_raw": use_raw or None}
    source = given if stored is None else _source_of_map(stored, key, given)
    if label_key is None and stored is not None and stored.ingested_from is None:
        label_key = stored.label_key
    is_labelled = np.zeros(adata.n_obs, dtype=bool)
    if label_key is not None:
        labels = obs_column(adata, label_key, "label_key")
        is_labelled = labels.notna().to_numpy()
        if stored is not None and "unlabeled_category" in stored.params:
            is_labelled &= (labels != stored.params["unlabeled_category"]).to_numpy()
    groups = np.zeros(adata.n_obs, dtype=np.intp)
    if image_key is not None:
        groups = pd.factorize(obs_column(adata, image_key, "image_key"), use_na_sentinel=False)[0]
    pool = _pool(is_labelled, groups, seed)
    model = None if stored is None else fitted_model(adata, key, device="cpu")
    x, is_usable = _values(adata, pool, model, source, mask_var)
    x, pool = x[is_usable], pool[is_usable]
    if is_labelled[pool].all():
        raise InputError("all cells have labels: there is nothing to suggest", "label_key")
    probabilities = novelty = None
    classes = pd.Index([], dtype=object)
    if model is not None:
        classes, fitted = pd.Index(model.classes_.tolist()), model.fitted_map
        distances = np.concatenate([found for _, found in fitted.judge(x)])
        probabilities = fitted.calibration.probabilities(distances)
        if fitted.novelty is not None:
            novelty = fitted.novelty.quantiles(x, fitted.standardizer)
    points = suggestion.principal_points(x)
    rows, reasons = suggestion.choose(
        points, is_labelled[pool], groups[pool], n, probabilities, novelty, seed
    )
    return _table(adata.obs_names[pool[rows]], reasons, classes, probabilities, rows)


def _source_of_map(stored: StoredMap, key: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where the values of a map are; an argument for it is an error."""
    for name, value in given.items():
        if value is not None:
            text = f"{name} has no effect with the map {key!r}, which has its own"
            raise InputError(text, parameter=name)
    prefix = "" if stored.ingested_from is None else "reference_"
    return {name: stored.params.get(f"{prefix}{name}") for name in given}


def _pool(is_labelled: NDArray[np.bool_], groups: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """Sorted rows of labelled and of unlabelled cells, `N_POOL` of either at most."""
    rng, parts = np.random.default_rng(seed), []
    for rows in (np.flatnonzero(is_labelled), np.flatnonzero(~is_labelled)):
        if len(rows) > N_POOL:
            rows = rng.permutation(rows)
            # The first cells of each image, then the second ones, and so on.
            place = pd.Series(groups[rows]).groupby(groups[rows]).cumcount().to_numpy()
            rows = rows[np.argsort(place, kind="stable")[:N_POOL]]
        parts.append(rows)
    return np.sort(np.concatenate(parts))


def _values(
    adata: AnnData,
    rows: NDArray[np.intp],
    model: CentroidEncoder | None,
    source: Mapping[str, Any],
    mask_var: MaskVar,
) -> tuple[Any, NDArray[np.bool_]]:
    """Finite values of cells, of the features of a map if there is one, and which have values."""
    use_raw = bool(source["use_raw"])
    X, where, names = read_matrix(adata, **{**source, "use_raw": use_raw})
    if model is not None:
        x = opened(X, where)[rows]
        index, _ = match_features(model, x.shape[1], names, where, 1.0)
        cells = NewCells(x, adata.obs_names[rows], where, model, index, 1.0)
        x, unusable = cells.prepared(x)
        return x, ~unusable
    columns = None
    if source["use_rep"] in (None, "X"):
        columns = mask_columns(adata.raw if use_raw else adata, mask_var)
    x = opened(X, where, columns)[rows]
    is_usable = count_gaps(x) < x.shape[1]
    return fill_missing(x, is_usable), is_usable


def _table(
    names: pd.Index,
    reasons: list[suggestion.Reason],
    classes: pd.Index,
    probabilities: NDArray[np.floating] | None,
    rows: NDArray[np.intp],
) -> pd.DataFrame:
    """Return the suggested cells as a table."""
    table = pd.DataFrame(
        {"reason": pd.Categorical(reasons, get_args(suggestion.Reason))}, index=names
    )
    none = np.full(len(rows), -1)
    for place, prefix in ((-1, ""), (-2, "runner_up_")):
        codes, shares = none, np.full(len(rows), np.nan, dtype=np.float32)
        if probabilities is not None:
            codes = np.argsort(probabilities[rows], axis=1)[:, place]
            shares = probabilities[rows, codes].astype(np.float32)
        table[prefix.removesuffix("_") or "label"] = pd.Categorical.from_codes(codes, classes)
        table[f"{prefix}probability"] = shares
    return table
