"""Training of a Centroid-Encoder on an AnnData."""

from __future__ import annotations

import json
import numbers
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.checks import Number, draw_seed
from centroid_encoder.core.calibration import UNCALIBRATED, Calibration, cross_fitted_probabilities
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.novelty import ROUGH
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import at_chance, knn_predict, nearest_center
from centroid_encoder.core.splits import grouped_holdout, stratified_holdout
from centroid_encoder.errors import InputError
from centroid_encoder.estimator import CentroidEncoder, crowded_text
from centroid_encoder.tl import _result, _run
from centroid_encoder.tl._cv_warnings import mixed_sources
from centroid_encoder.tl._judging import Codes, Floats, calibration_errors, error_rates, judged
from centroid_encoder.tl._matrix import fill_missing
from centroid_encoder.tl._read import Cells, Missing, listed, logger, read_cells
from centroid_encoder.tl._reference import check_free
from centroid_encoder.tl._summary import missing_classes

N_PARTS = 5
"""Number of parts of the held-out cells; the calibration for each part is fitted to the others."""


@_run.from_job
def centroid_encoder(
    adata: AnnData,
    label_key: str,
    *,
    n_components: int | None = None,
    placement: Placement | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    use_raw: bool = False,
    mask_var: NDArray[np.bool_] | str | None = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    test_size: float = 0.2,
    group_key: str | None = None,
    max_cells: int | None = None,
    model: CentroidEncoder | None = None,
    key_added: str | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> Training:
    """Embed cells so that their classes stay together: the Centroid-Encoder of Ghosh & Kirby.

    Networks are trained to map every labeled cell to the mean of its class. Each cell is then
    placed by the networks that were not trained on it. It lies at the mean of the class positions,
    weighted by its probabilities, plus its scatter, which is its difference from the means of the
    classes. It always lies in the region (the Voronoi cell) of its predicted class. A part of the
    labeled cells is held out and never shapes the map; the errors on these cells show how much of
    the picture is real.

    A file opened with ``backed="r"``, a zarr store or a dask array is read in parts. Only the
    inputs of the networks are kept in memory, about 100 numbers per cell and network.

    Parameters
    ----------
    adata
        Annotated data; counts should be log-normalised. The map standardises the features itself.
    label_key
        Column of ``adata.obs`` with the classes: categorical, string, integer or boolean. Cells
        without a label are embedded, but not used for training.
    n_components
        Dimension of the embedding. Default: 2, or that of the `model`.
    placement
        How a cell is placed: ``"voronoi"`` as described above; ``"bottleneck"`` at the output of
        the middle layer of one network, as in the paper. Default: ``"voronoi"``, or that of
        the `model`.
    use_rep
        Key of ``adata.obsm`` to learn from instead of the expression matrix. If it is a
        DataFrame, `ingest` matches its columns by name, in any order.
    layer
        Key of ``adata.layers`` to learn from instead of ``adata.X``.
    use_raw
        Learn from ``adata.raw`` instead. A `mask_var` is then one of ``adata.raw.var``.
    mask_var
        Variables to learn from: a column of ``adata.var`` or one bool for each variable; a Series
        is aligned by its index. Default: ``highly_variable`` if there is such a column, like
        scanpy's PCA; None takes all.
    unlabeled_category
        Category of `label_key` that means "unlabeled", like NaN.
    missing
        What to do about cells with NaN or inf: raise an error, leave these cells out
        (``"drop"``), or replace the values by the mean of the training cells (``"mean"``).
    test_size
        Share of the labeled cells to hold out, in [0, 1), the same of every class. Classes with
        fewer than ``1 / test_size`` cells stay in training.
    group_key
        Column of ``adata.obs`` with donors or batches. All cells of a donor are held out, or none,
        so that the held-out error is that of a new donor. Without it, a warning names a column of
        donors, images or wells, if there is one.
    max_cells
        Largest number of cells to train on. If there are more, the networks are trained on a sample
        with the same share of every class, and the other cells are placed like new ones. Memory and
        time of the training then do not grow further. Default: 1,000,000, or ``max_samples`` of the
        `model`.
    model
        `CentroidEncoder` with other settings than the default. A copy of it is trained.
    key_added
        Name k for the results in ``obsm[k]``, ``uns[k]`` and ``obs["k_…"]``. Default: ``"ce"``;
        the embedding is then in ``obsm["X_ce"]``.
    random_state
        Seed for split and training; the same int gives the same bits on the same machine.
    device
        Where to compute: ``"auto"`` or a torch device. Default: ``"auto"``, or that of the `model`.
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
            Predicted class of every cell, with the categories of `label_key`: the class in whose
            Voronoi cell it lies; with ``placement="bottleneck"``, the class whose centroid is
            nearest to the decoder's output.
        ``adata.obs["ce_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Probability of the predicted class. It is calibrated on the held-out cells: of the cells
            with a confidence of 0.8, four in five are predicted correctly. With ``test_size=0``, it
            is calibrated on the training cells, by networks that were not trained on them. With
            ``test_size=0`` and a single network, it is not calibrated and too high.
        ``adata.obs["ce_novelty"]`` : :class:`pandas.Series` (dtype ``float32``)
            How different the cell is from all training cells: the share of the training cells that
            differ less from the other training cells, or with `group_key`, from those of other
            donors. NaN with fewer than ten training cells.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``; ``classes``, sorted, and their ``centers`` (n_classes × n_components, the
            centers of the Voronoi cells; with ``placement="bottleneck"``, the means of the embedded
            training cells); ``history`` (a DataFrame with a row for each epoch); ``quality``
            (``train`` and ``test`` errors as shares in [0, 1], and a DataFrame ``per_class``;
            ``test`` also has the expected ``calibration_error`` of the confidence, the ends of its
            95 % interval, ``calibration_error_low`` and ``calibration_error_high``, and the error
            without calibration, ``uncalibrated_error``); ``model`` (the fitted map, see
            `fitted_model`).

    Raises
    ------
    KeyError
        If a key does not exist.
    TypeError
        If the label column holds measurements rather than classes, or if an argument has a wrong
        type, such as the path of a file.
    ValueError
        If the data cannot be used as they are; the message says where and what to do. `adata` does
        not change.

    Notes
    -----
    The *k-NN error* (k = 5) is the paper's measure: the class of a cell is predicted by its
    neighbours among the embedded training cells. A training cell is not its own neighbour.

    After Ctrl-C, the best state so far is kept, with a warning; before the end of the first epoch,
    `adata` stays as it was.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> adata.obsm["X_ce"].shape
    (700, 2)
    """
    del progress, copy  # `from_job` uses them.
    key = _run.result_key(key_added)
    check_free(adata, key)
    _run.check_not_replaced(label_key, _result.obs_key(key, "label"), _result.obs_key(key, "split"))
    Number(0, below=1).check("test_size", test_size)
    settings = {"n_components": n_components, "placement": placement, "device": device}
    estimator = _run.configured(model, settings, max_cells)
    several = estimator.placement != "bottleneck" and estimator.n_networks != 1
    if not (test_size or several) and group_key is not None:
        name = "placement" if estimator.placement == "bottleneck" else "n_networks"
        others = f"test_size=0 and {name}={getattr(estimator, name)!r}"
        raise InputError(f"group_key={group_key!r} has no effect with {others}", "group_key")
    if not test_size and estimator.random_state is not None and random_state != 0:
        text = "random_state has no effect with test_size=0 and a model that has its own seed"
        raise InputError(text, parameter="random_state")
    source = use_rep, layer, use_raw, mask_var, unlabeled_category
    cells = read_cells(adata, label_key, *source, missing, group_key, by_parts=True)
    held_out = hold_out(cells, test_size, draw_seed(random_state))
    if estimator.random_state is None:
        estimator.set_params(random_state=draw_seed(random_state))
    params = {**cells.params, "test_size": float(test_size)}
    if isinstance(random_state, numbers.Integral):
        params["random_state"] = int(random_state)
    notices = [*cells.notices, *(mixed_sources(adata, cells) if test_size or several else ())]
    return Training(cells, key, notices, estimator, held_out, params)


def hold_out(cells: Cells, test_size: float, seed: int) -> NDArray[np.bool_]:
    """Return an (n_obs,) mask of the held-out cells."""
    labeled, held_out = cells.codes >= 0, np.zeros(len(cells.codes), dtype=bool)
    codes = cells.codes[labeled]
    if test_size and cells.groups is not None:
        held_out[labeled] = grouped_holdout(codes, cells.groups[labeled], test_size, seed)
    elif test_size:
        held_out[labeled] = stratified_holdout(codes, test_size, seed)
    lost = ~np.isin(np.arange(len(cells.classes)), cells.codes[labeled & ~held_out])
    if lost.any():
        raise InputError(
            f"no choice of groups of obs[{cells.params['group_key']!r}] to hold out leaves "
            f"training cells of each class, here of {listed(cells.classes[lost])}; leave out "
            "group_key, or mark that class as unlabeled",
            parameter="group_key",
        )
    return held_out


@dataclass(eq=False)
class Training(_run.Job):
    """A job that trains a map. `train` and `held_out` are (n_obs,) masks."""

    _cells: Cells
    _estimator: CentroidEncoder
    held_out: NDArray[np.bool_]
    _params: dict[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        cells, held_out = self._cells, self.held_out
        self.classes, self.codes, self.kept = cells.classes, cells.codes, cells.kept
        self.train = (cells.codes >= 0) & ~held_out
        if self._params["missing"] == "mean":
            self._cells = replace(cells, X=fill_missing(cells.X, self.train[self.kept]))
        small = ~np.isin(np.arange(len(cells.classes)), cells.codes[held_out])
        if self._params["test_size"] and small.any():
            by = "" if cells.groups is None else f" by obs[{self._params['group_key']!r}]"
            text = f"no cell of {listed(cells.classes[small])} is held out"
            self.notices.append(f"{text}: too few cells to split{by}")
        logger.info(
            "    %d classes; %d training, %d held-out, %d unlabeled cells",
            len(self.classes),
            *(int(mask.sum()) for mask in (self.train, held_out, self.codes < 0)),
        )

    def _compute(self, callback: _run.Callback) -> _run.Results:
        cells, codes = self._cells, self._cells.kept_codes
        fit = self._estimator.fit_codes(
            cells.X,
            np.where(self.train[self.kept], codes, -1),
            cells.class_labels,
            feature_names=None if cells.names is None else cells.names.astype(str),
            groups=None if cells.groups is None else cells.groups[self.kept],
            novelty=True,
            callback=callback,
        )
        self.notices += [str(text) for text, _ in fit.outcome.notices]
        is_held_out = self.held_out[self.kept]
        held_out, others = np.flatnonzero(is_held_out), np.flatnonzero(~is_held_out)
        found = judged(fit, held_out)
        if len(held_out):
            fit.map.calibration = Calibration.fit(found[1], codes[held_out])
        elif not len(fit.unseen):
            text = "no cell is held out, so the confidence is not calibrated: raise test_size"
            self.notices.append(text)
        if (crowded := fit.crowded_group()) is not None:
            group, share = crowded
            name = f"{cells.params['group_key']} {str(cells.group_names[group])!r}"
            self.notices.append(crowded_text(name, share))
        n_groups = ROUGH if cells.groups is None else len(np.unique(cells.groups[self.train]))
        if n_groups < ROUGH:
            self.notices.append(_rough_text(cells.params["group_key"], n_groups))
        decided = fit.map.decide(chain([found], fit.judge(others)), len(codes))
        order = np.argsort(np.concatenate([held_out, others]))
        embedding, predicted, confidence = decided[0][order], decided[1][order], decided[2][order]
        split = np.where(self.kept, np.where(self.held_out, 1, np.where(self.train, 0, 2)), -1)
        config, arrays = self._estimator.to_state()
        stored = _result.StoredMap(
            params=self._params,
            classes=cells.classes,
            centers=fit.map.centers,
            history=pd.DataFrame(self._estimator.history_),
            quality=self._quality(fit, embedding, predicted, found[1]),
            model={"config": json.dumps(config), "arrays": arrays},
        )
        key = self.key
        return {
            "obs": {
                _result.obs_key(key, "split"): pd.Categorical.from_codes(split, _result.SPLITS),
                _result.obs_key(key, "label"): cells.labels_of(predicted),
                _result.obs_key(key, "confidence"): cells.spread(confidence),
                _result.obs_key(key, "novelty"): cells.spread(fit.novelty()),
            },
            "obsm": {_result.embedding_key(key): cells.spread(embedding)},
            "uns": {key: stored.to_uns()},
        }

    def _quality(
        self, fit: Fit, embedding: Floats, predicted: Codes, distances: Floats
    ) -> dict[str, Any]:
        """Return the errors of training and held-out cells.

        `embedding` and `predicted` are those of the n_kept cells; `distances` are those from each
        held-out cell to each class.
        """
        codes, n_classes = self._cells.kept_codes, len(self.classes)
        train, held_out = self.train[self.kept], self.held_out[self.kept]
        nearest = nearest_center(embedding, fit.map.centers)
        quality: dict[str, Any] = {}
        per_class: dict[str, object] = {"class": [str(name) for name in self.classes]}
        largest = int(np.bincount(codes[train]).argmax())
        for name, mask in ((_result.TRAIN, train), (_result.TEST, held_out)):
            own, points = codes[mask], None if name == _result.TRAIN else embedding[mask]
            found: dict[str, Any] = {
                "knn": knn_predict(embedding[train], codes[train], points),
                "voronoi": nearest[mask],
                "decoder": predicted[mask],
                "chance": largest,
            }
            wrong = pd.DataFrame({rule: classes != own for rule, classes in found.items()})
            errors, of_classes = error_rates(wrong, own, n_classes)
            quality[name] = {"n": len(own)} | errors
            per_class[f"n_{name}"] = np.bincount(own, minlength=n_classes)
            for rule in _result.RULES[:3]:
                per_class[f"{name}_{rule}_error"] = of_classes[rule]
        quality[_result.TEST]["at_chance"] = at_chance(own, found["knn"], largest)
        # The calibration of the map was fitted to all held-out cells. The calibration error of each
        # part of them is therefore measured with a calibration that is fitted to the other parts.
        if len(own) < N_PARTS:
            # With so few cells, pass none: the error is NaN then.
            own, distances = own[:0], distances[:0]
        parts = np.random.default_rng(0).permutation(len(own)) % N_PARTS
        probabilities = cross_fitted_probabilities(distances, own, parts)
        quality[_result.TEST] |= calibration_errors(
            probabilities.max(axis=1),
            UNCALIBRATED.probabilities(distances).max(axis=1),
            distances.argmin(axis=1) == own,
        )
        per_class["n_predicted"] = np.bincount(predicted, minlength=n_classes)
        per_class["n_in_cell"] = np.bincount(nearest, minlength=n_classes)
        quality["per_class"] = pd.DataFrame(per_class)
        self.notices += map(str, missing_classes(quality["per_class"], "the map takes"))
        return quality


def _rough_text(group_key: str, n: int) -> str:
    """Return the text of a notice that few groups have training cells."""
    return (
        f"the training cells have {n} different values in obs[{group_key!r}]: with fewer than "
        f"{ROUGH}, the novelty of cells with another value is rough"
    )
