"""Train a Centroid-Encoder on an AnnData."""

from __future__ import annotations

import json
import logging
import numbers
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from tqdm.auto import tqdm

from centroid_encoder.core.quality import Errors, knn_predict, nearest_center
from centroid_encoder.core.splits import grouped_holdout, stratified_holdout
from centroid_encoder.core.training import Report
from centroid_encoder.estimator import CentroidEncoder, draw_seed
from centroid_encoder.tl._input import (
    Labels,
    Missing,
    fill_missing,
    read_features,
    read_groups,
    read_labels,
)

if TYPE_CHECKING:
    from anndata import AnnData

SPLITS = ("train", "test", "unlabeled")

logger = logging.getLogger("centroid_encoder")


def centroid_encoder(
    adata: AnnData,
    label_key: str,
    *,
    n_components: int | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    mask_var: NDArray[np.bool_] | str | None = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    test_size: float = 0.2,
    group_key: str | None = None,
    model: CentroidEncoder | None = None,
    key_added: str | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> AnnData | None:
    """Embed cells so that their classes stay together: the Centroid-Encoder of Ghosh & Kirby.

    A network is trained to map every labeled cell to the mean of its class, through a bottleneck of
    two units: the embedding. A part of the labeled cells is held out and never shapes the map; the
    errors counted on it say how much of the picture is real.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts. Standardisation is part of the map.
    label_key
        Column of ``adata.obs`` with the classes: categorical, string, integer or boolean. Cells
        without a label are embedded but not trained on.
    n_components
        Dimension of the embedding. Default: 2, or what `model` says.
    use_rep
        Key of ``adata.obsm`` to learn from instead of the expression matrix.
    layer
        Key of ``adata.layers`` to learn from instead of ``adata.X``.
    mask_var
        Variables to learn from: a column of ``adata.var`` or one bool for each variable. Default:
        ``highly_variable`` where there is such a column, like scanpy's PCA; None takes all.
    unlabeled_category
        Category of `label_key` that stands for "unlabeled", besides NaN.
    missing
        What to do about cells with NaN or inf: raise an error, leave them out of everything
        (``"drop"``), or put the mean of the training cells in the place of the value (``"mean"``).
    test_size
        Share of the labeled cells to hold out, in [0, 1), stratified by class. Classes with fewer
        than ``1 / test_size`` cells stay in training.
    group_key
        Column of ``adata.obs`` with donors or batches: each goes as a whole to one side, so that
        the held-out error is that of a new donor.
    model
        Configured `CentroidEncoder` with other settings than the default. It is not changed.
    key_added
        Name for the results. Default: ``obsm["X_ce"]``, ``uns["ce"]``, ``obs["ce_…"]``; a name k
        gives ``obsm[k]``, ``uns[k]``, ``obs["k_…"]``.
    random_state
        Seed for split and training; the same int gives the same bits on the same machine.
    device
        ``"auto"`` or a torch device. Default: ``"auto"``, or what `model` says.
    progress
        Show a progress bar.
    copy
        Return a changed copy instead of changing `adata`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obsm["X_ce"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            The embedding of all cells, n_obs × n_components; NaN for cells left out by
            ``missing="drop"``.
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"train"``, ``"test"`` or ``"unlabeled"``.
        ``adata.obs["ce_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Predicted class of every cell, with the categories of `label_key`: the class whose
            centroid is nearest to the decoder's output.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``; ``classes`` and their ``centers`` (n_classes × n_components, means of the
            embedded training cells); ``history`` (a DataFrame, one row an epoch); ``quality``
            (``train`` and ``test`` errors as shares in [0, 1], and a DataFrame ``per_class``);
            ``model`` (the fitted map, see `fitted_model`).

    Raises
    ------
    KeyError
        If a key does not exist.
    TypeError
        If the label column holds measurements rather than classes.
    ValueError
        If the data cannot be used as they are; the message says where and what to do. `adata` is
        then as it was.

    Notes
    -----
    The *k-NN error* (k = 5) is the paper's measure: neighbours among the embedded training cells.
    For the training cells themselves the cell is not its own neighbour.

    Ctrl-C keeps the best state so far, with a warning; before the first epoch is over it leaves
    `adata` as it was.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> adata.obsm["X_ce"].shape
    (700, 2)
    """
    start = time.perf_counter()
    if not isinstance(test_size, numbers.Real) or not 0 <= test_size < 1:
        raise ValueError(f"test_size must be a share in [0, 1); got {test_size!r}")
    test_size = float(test_size)
    if key_added is not None and "/" in key_added:
        raise ValueError(f"key_added must not hold '/', which means nesting on disk: {key_added!r}")
    if adata.is_view and adata.isbacked and not copy:
        raise ValueError(
            "adata is a view of a file on disk, which cannot take results; pass "
            "adata.to_memory(), or copy=True for a copy in memory"
        )
    labels = read_labels(adata, label_key, unlabeled_category)
    logger.info("computing centroid-encoder of %r", label_key)
    features = read_features(
        adata, use_rep=use_rep, layer=layer, mask_var=mask_var, missing=missing
    )
    estimator = _configured(model, n_components, device)
    split_seed = draw_seed(random_state)
    if model is None or model.random_state is None:
        estimator.set_params(random_state=draw_seed(random_state))

    codes = np.where(features.left_out, -1, labels.codes)
    held_out = _hold_out(adata, labels, codes, test_size, group_key, split_seed)
    train = (codes >= 0) & ~held_out
    kept = ~features.left_out
    X = features.X if kept.all() else features.X[kept]
    X = fill_missing(X, train[kept])
    logger.info(
        "    %d classes; %d training, %d held-out, %d unlabeled cells",
        len(labels.classes),
        train.sum(),
        held_out.sum(),
        (codes < 0).sum(),
    )
    y = np.asarray(labels.classes.tolist())[codes[kept]]
    _drain(estimator.fit_reports(X, y, subset=train[kept]), progress=progress)

    # The estimator sorts its classes; everything stored is in category order.
    order = labels.classes.get_indexer(estimator.classes_)
    centers = np.empty_like(estimator.centers_)
    centers[order] = estimator.centers_
    embedding = np.full((adata.n_obs, centers.shape[1]), np.nan, dtype=np.float32)
    embedding[kept] = estimator.transform(X)
    predicted = np.full(adata.n_obs, -1)
    predicted[kept] = order[estimator.decoder_distances(embedding[kept]).argmin(axis=1)]

    key = key_added or "ce"
    split = np.where(held_out, 1, np.where(train, 0, 2))
    # The last entry serves the cells left out, −1.
    category_of_class = np.append(labels.categories.get_indexer(labels.classes), -1)
    obs = {
        f"{key}_split": pd.Categorical.from_codes(np.where(kept, split, -1), SPLITS),
        f"{key}_label": pd.Categorical.from_codes(category_of_class[predicted], labels.categories),
    }
    params = {
        "label_key": label_key,
        "use_rep": use_rep,
        "layer": layer,
        "mask_var": mask_var if isinstance(mask_var, str) else None,
        "unlabeled_category": unlabeled_category,
        "missing": missing,
        "test_size": test_size,
        "group_key": group_key,
        "random_state": int(random_state) if isinstance(random_state, numbers.Integral) else None,
    }
    config, arrays = estimator.to_state()
    if features.names is not None:
        config["estimator"]["feature_names"] = [str(name) for name in features.names]
    uns = {
        # Not every supported anndata writes None.
        "params": {name: value for name, value in params.items() if value is not None},
        "classes": np.asarray(labels.classes.tolist()),
        "centers": centers,
        "history": pd.DataFrame(estimator.history_),
        "quality": _quality(labels.classes, codes, train, held_out, embedding, predicted, centers),
        "model": {"config": json.dumps(config), "arrays": arrays},
    }

    if copy:
        adata = adata.to_memory() if adata.isbacked else adata.copy()
    obsm_key = key_added or "X_ce"
    _write(adata, obs, {obsm_key: embedding}, {key: uns})
    logger.info(
        "    finished (%.1f s): added\n    %r, embedding (adata.obsm)\n    %r and %r (adata.obs)"
        "\n    %r, errors and map (adata.uns)",
        time.perf_counter() - start,
        obsm_key,
        *obs,
        key,
    )
    return adata if copy else None


def _configured(
    model: CentroidEncoder | None, n_components: int | None, device: str | None
) -> CentroidEncoder:
    estimator: CentroidEncoder = CentroidEncoder() if model is None else clone(model)
    if n_components is not None:
        estimator.set_params(n_components=n_components)
    if device is not None:
        estimator.set_params(device=device)
    return estimator


def _hold_out(
    adata: AnnData,
    labels: Labels,
    codes: NDArray[np.intp],
    test_size: float,
    group_key: str | None,
    seed: int,
) -> NDArray[np.bool_]:
    """(n_obs,) mask of the held-out cells."""
    labeled = codes >= 0
    held_out = np.zeros(len(codes), dtype=bool)
    if len(np.unique(codes[labeled])) < len(labels.classes):
        empty = labels.classes[~np.isin(np.arange(len(labels.classes)), codes)]
        raise ValueError(f"no cell of {_listed(empty)} is left without missing values")
    if group_key is not None:
        groups = read_groups(adata, group_key, labeled)
        if test_size:
            held_out[labeled] = grouped_holdout(codes[labeled], groups[labeled], test_size, seed)
    elif test_size:
        held_out[labeled] = stratified_holdout(codes[labeled], test_size, seed)
    n_train = np.bincount(codes[labeled & ~held_out], minlength=len(labels.classes))
    n_test = np.bincount(codes[held_out], minlength=len(labels.classes))
    if not n_train.all():
        raise ValueError(
            f"every choice of held-out groups of obs[{group_key!r}] takes all cells of a class, "
            f"here of {_listed(labels.classes[n_train == 0])}; leave out group_key, or mark that "
            "class as unlabeled"
        )
    if test_size and not n_test.all():
        logger.warning(
            "no cell of %s is held out: too few cells to split%s",
            _listed(labels.classes[n_test == 0]),
            "" if group_key is None else f" by obs[{group_key!r}]",
        )
    return held_out


def _listed(classes: pd.Index) -> str:
    names = ", ".join(repr(name) for name in classes[:10])
    return f"{names} and {len(classes) - 10} more" if len(classes) > 10 else names


def _drain(reports: Generator[Report, None, None], *, progress: bool) -> None:
    """Run the training, with a progress bar."""
    with tqdm(disable=not progress, unit="epoch", desc="centroid-encoder") as bar:
        try:
            for report in reports:
                bar.total = report.n_steps
                bar.set_description(report.stage, refresh=False)
                bar.set_postfix(loss=f"{report.loss:.3f}", refresh=False)
                bar.update()
        except KeyboardInterrupt:
            # If it struck between two epochs, the training has yet to hear of it; if it struck
            # there and nothing could be kept, this raises it again.
            with suppress(StopIteration):
                reports.throw(KeyboardInterrupt())


def _quality(
    classes: pd.Index,
    codes: NDArray[np.intp],
    train: NDArray[np.bool_],
    held_out: NDArray[np.bool_],
    embedding: NDArray[np.float32],
    predicted: NDArray[np.intp],
    centers: NDArray[np.float64],
) -> dict[str, Any]:
    n_classes = len(classes)
    quality: dict[str, Any] = {}
    per_class: dict[str, object] = {"class": [str(name) for name in classes]}
    reference = embedding[train]
    for name, mask in (("train", train), ("test", held_out)):
        errors = Errors.count(
            codes[mask],
            knn=knn_predict(reference, codes[train], None if name == "train" else embedding[mask]),
            voronoi=nearest_center(embedding[mask], centers),
            decoder=predicted[mask],
            largest_class=int(np.bincount(codes[train]).argmax()),
            n_classes=n_classes,
        )
        quality[name] = {
            "n": errors.n,
            **{
                f"{field}_error": value
                for field, value in asdict(errors).items()
                if isinstance(value, float)
            },
            "at_chance": errors.at_chance(),
        }
        per_class[f"n_{name}"] = errors.class_n
        for rule in ("knn", "voronoi", "decoder"):
            per_class[f"{name}_{rule}_error"] = getattr(errors, f"class_{rule}")
    quality["per_class"] = pd.DataFrame(per_class)
    return quality


def _write(adata: AnnData, obs: dict[str, Any], obsm: dict[str, Any], uns: dict[str, Any]) -> None:
    """Write all results, or leave `adata` as it was."""
    if adata.is_view:
        # A view becomes a copy when it is written to; here only once the copy is complete.
        actual = adata.copy()
        _write(actual, obs, obsm, uns)
        adata._init_as_actual(actual)
        return
    absent = object()
    written: list[tuple[Any, str, Any]] = []
    try:
        for mapping, values in ((adata.obs, obs), (adata.obsm, obsm), (adata.uns, uns)):
            for name, value in values.items():
                written.append((mapping, name, mapping.get(name, absent)))
                mapping[name] = value
    except BaseException:
        for mapping, name, before in reversed(written):
            if before is not absent:
                mapping[name] = before
            elif name in mapping:
                del mapping[name]
        raise
