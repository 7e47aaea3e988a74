"""Suggest cells to label: those whose labels would improve a map most."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.sparse import vstack

from centroid_encoder.checks import Number, RandomState, draw_seed
from centroid_encoder.core import suggestion
from centroid_encoder.core.arrays import Codes, Mask
from centroid_encoder.core.gaps import count_gaps
from centroid_encoder.core.threads import one_thread
from centroid_encoder.errors import check
from centroid_encoder.tl._cells import MaskVar, Source, chunks_of, read_new_cells
from centroid_encoder.tl._check import obs_column
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._matrix import fill_missing, issparse
from centroid_encoder.tl._result import StoredMap

N_POOL = 20_000
"""Largest number of unlabeled cells to choose from, and of labeled cells that are used."""


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

    With few labels, these are typical cells from unlabeled parts of the data; a map is not needed.
    Once there are twenty labels, and four per class on average, they are cells for which two
    classes are about equally probable, and these cells differ from each other. One suggestion in
    ten is then a cell that is unlike all labeled ones, if there are such cells. `adata` is not
    changed.

    Parameters
    ----------
    adata
        Annotated data.
    key
        Name of the map, as given to `key_added` of `centroid_encoder`. Without such a map, typical
        cells are suggested.
    n
        Number of cells to suggest.
    image_key
        Column of ``adata.obs`` with the image or the sample of each cell; the suggested cells are
        spread over all images.
    label_key
        Column of ``adata.obs`` with the labels; labeled cells are not suggested. Default: the
        label column of the map; without a map, no cell has a label.
    use_rep, layer, use_raw, mask_var
        Where the values are, as in `centroid_encoder`. They cannot be given with a map, since a map
        stores where its values are.
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
            The predicted class, and the most probable one of the others; missing without a map.
            The second can be more probable, since small classes have more weight in a prediction.
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
    TCM [2]_. If there are more than 20,000 unlabeled cells, a random sample of 20,000 is used, with
    equal numbers from all images as far as possible. For the typical cells and for the differences
    between cells, missing values are replaced by means: those of the chosen cells or, with a map,
    of its training cells. For the probabilities of a map they are estimated, as in `ingest`.

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
    source = Source(use_rep, layer, use_raw, mask_var)
    if label_key is None and stored is not None and stored.ingested_from is None:
        label_key = stored.label_key
    is_labelled = np.zeros(adata.n_obs, dtype=bool)
    if label_key is not None:
        labels = obs_column(adata, label_key, "label_key")
        unlabeled = None if stored is None else stored.params.get("unlabeled_category")
        is_labelled = ~(labels.isna() | labels.isin([unlabeled])).to_numpy()
    groups = np.zeros(adata.n_obs, dtype=np.intp)
    if image_key is not None:
        groups = pd.factorize(obs_column(adata, image_key, "image_key"), use_na_sentinel=False)[0]
    pool = _pool(is_labelled, groups, seed)
    of_map: Any = pd.Index([], dtype=object), None, None, None
    if stored is None:
        X: Any = source.read(adata).X[pool]
        is_usable = count_gaps(X) < X.shape[1]
        x = fill_missing(X, is_usable)[is_usable]
    else:
        given = {**vars(source), "mask_var": None if source.is_automatic else "mask"}
        for name, value in given.items():
            text = f"{name} has no effect: the values are those of the map {key!r}"
            check(value is None or value is False, text, name)
        with one_thread():
            x, is_usable, *of_map = _judged(adata, key, stored, pool)
    classes, probabilities, predicted, novelty = of_map
    pool = pool[is_usable]
    text = "all cells have labels: there is nothing to suggest"
    check(not is_labelled[pool].all(), text, "label_key")
    of_cells = suggestion.principal_points(x), is_labelled[pool], groups[pool]
    rows, reasons = suggestion.choose(*of_cells, n, probabilities, novelty, seed)
    reason = pd.Categorical(reasons, get_args(suggestion.Reason))
    table = pd.DataFrame({"reason": reason}, index=adata.obs_names[pool[rows]])
    codes, shares = np.full((2, len(rows)), -1), np.full((2, len(rows)), np.nan)
    if probabilities is not None:
        others, at = probabilities[rows].copy(), np.arange(len(rows))
        others[at, predicted[rows]] = -1
        codes = np.array([predicted[rows], others.argmax(axis=1)])
        shares = probabilities[rows, codes]
    for name, of_name, share in zip(("label", "runner_up"), codes, shares, strict=True):
        table[name] = pd.Categorical.from_codes(of_name, classes)
        table[f"{name}_probability".removeprefix("label_")] = share.astype(np.float32)
    return table


def _pool(is_labelled: Mask, groups: Codes, seed: int) -> Codes:
    """Return sorted rows: of at most `N_POOL` cells with labels, and of as many without."""
    rng, parts = np.random.default_rng(seed), []
    for rows in (np.flatnonzero(is_labelled), np.flatnonzero(~is_labelled)):
        if len(rows) > N_POOL:
            rows = rng.permutation(rows)
            rows = rows[suggestion.in_turn(groups[rows])[:N_POOL]]
        parts.append(rows)
    return np.sort(np.concatenate(parts))


def _judged(adata: AnnData, key: str, stored: StoredMap, pool: Codes) -> tuple[Any, ...]:
    """Return what a map says of the cells of a pool that have values.

    These are their values, their mask in the pool, the classes, and their probabilities,
    predictions and novelty.
    """
    model = fitted_model(adata, key, device="cpu")
    cells, _ = read_new_cells(adata, model, stored.source)
    X, parts = cells.X[pool], []
    for part in chunks_of(X):
        some = cells.imputed(X[part])
        _, *judged = some.judge()
        parts.append((some.x[:, ~cells.absent], ~some.unusable, *judged, some.novelty()))
    values, *others = zip(*parts, strict=True)
    x: Any = vstack(values, "csr") if issparse(values[0]) else np.concatenate(values)
    is_usable, *of_map = map(np.concatenate, others)
    found = (of_cells[is_usable] for of_cells in of_map)
    return x[is_usable], is_usable, pd.Index(model.classes_.tolist()), *found
