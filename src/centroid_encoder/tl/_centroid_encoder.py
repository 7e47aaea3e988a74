"""Training of a Centroid-Encoder on an AnnData."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.checks import Number, draw_seed
from centroid_encoder.core.arrays import Codes, Floats, Mask
from centroid_encoder.core.calibration import Calibration, cross_fitted_probabilities
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.novelty import ROUGH
from centroid_encoder.core.placement import N_FITTED, Placement
from centroid_encoder.core.quality import (
    knn_predict,
    n_repeated,
    nearest_center,
    no_better_than,
)
from centroid_encoder.core.splits import at_most, grouped_holdout, stratified_holdout
from centroid_encoder.errors import InputError, check
from centroid_encoder.estimator import CentroidEncoder, crowded_text
from centroid_encoder.tables import Column, obs_key
from centroid_encoder.tl import _evaluation, _result, _run, _summary
from centroid_encoder.tl._cells import Cells, MaskVar, Missing, Source, read_cells
from centroid_encoder.tl._check import as_booleans, listed, logger, obs_column
from centroid_encoder.tl._matrix import fill_missing

TEST_SIZE = 0.2
N_PARTS = 5
"""Number of parts of the held-out cells; the calibration for each part is fitted to the others."""
HELD_OUT_WEIGHT = 4.0
"""Weight of a held-out cell in the calibration, relative to a training cell. All networks together
place held-out cells and new cells, and are more accurate than the one network that places a
training cell. With a fifth of the cells held out, both kinds have the same weight in all."""


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
    mask_var: MaskVar = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    test_size: float | None = None,
    group_key: str | None = None,
    split_key: str | None = None,
    max_cells: int | None = None,
    model: CentroidEncoder | None = None,
    probabilities: bool = False,
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
        scanpy's PCA; None takes all. If it is a panel of `feature_panel`, and held-out cells took
        part in the choice, their error is too small: a warning and the figures have the
        cross-validated error of such panels instead.
    unlabeled_category
        Category of `label_key` that means "unlabeled", like NaN.
    missing
        What to do about cells with NaN or inf: raise an error, leave these cells out
        (``"drop"``), or replace the values by the mean of the training cells (``"mean"``).
    test_size
        Share of the labeled cells to hold out, in [0, 1), the same of every class. Classes with
        fewer than ``1 / test_size`` cells stay in training. Default: 0.2.
    group_key
        Column of ``adata.obs`` with donors or batches. All cells of a donor are held out, or none.
        Every donor, also of the training, is judged by networks that have not seen it: the error of
        all donors is that of a new one. Without it, a warning names a column of donors, images or
        wells, if there is one.
    split_key
        Column of ``adata.obs`` with your own split, instead of `test_size` and `group_key`: True
        for a held-out cell and False for a training cell, or ``"test"`` and ``"train"``. Other
        cells have NaN; they are unused.
    max_cells
        Largest number of cells to train on. If there are more, the networks are trained on a sample
        with the same share of every class. The other cells are unused, and are placed like new
        ones; their errors are those of new cells of the same donors. Memory and time of the
        training then do not grow further. Default: 1,000,000, or ``max_samples`` of the `model`.
    model
        `CentroidEncoder` with other settings than the default. A copy of it is trained.
    probabilities
        Whether to store the probabilities of all classes.
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
        ``adata.obsm["ce_probabilities"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            With `probabilities`: n_obs × n_classes, in the order of ``uns["ce"]["classes"]``; NaN
            for cells without a confidence.
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"train"``, ``"test"``, ``"unlabeled"``, or ``"unused"`` for a cell with a label that
            was neither trained on nor held out.
        ``adata.obs["ce_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Predicted class of every cell, with the categories of `label_key`: the class in whose
            Voronoi cell it lies; with ``placement="bottleneck"``, the class whose centroid is
            nearest to the decoder's output. It and the confidence are missing for the cells of a
            class of one cell or, with `group_key`, of one donor: no network has seen their class
            without them. A warning names these classes.
        ``adata.obs["ce_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Probability of the predicted class, under the class frequencies of the training cells:
            of the cells with a confidence of 0.8, four in five are predicted correctly, also of
            those that are predicted to be of a rare class. It is calibrated on the training cells,
            by networks that were not trained on them, and on the held-out cells; that of a held-out
            cell, or with `group_key` of each cell, on cells of other parts or groups. With
            ``test_size=0`` and a single network, it is not calibrated and too high. Small classes
            have more weight in the prediction (`class_weight` of the `model`), so that their
            confidence can be below one half and below that of another class.
        ``adata.obs["ce_novelty"]`` : :class:`pandas.Series` (dtype ``float32``)
            How different the cell is from all training cells: the share of the training cells that
            differ less from the other training cells, or with `group_key`, from those of other
            donors. NaN with fewer than ten training cells.
        ``adata.obs["ce_map"]`` : :class:`pandas.Series` (dtype ``category``)
            The ``id`` of the map, the same for all cells. If :func:`anndata.concat` puts the cells
            of two maps into one table (with ``uns_merge="first"``), functions read the map of the
            first ones, leave out the others, and warn of them.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``; ``id``; ``classes``, sorted, and their ``centers`` (n_classes ×
            n_components, the centers of the Voronoi cells; with ``placement="bottleneck"``, the
            means of the embedded training cells); ``history`` (a row for each epoch); ``quality``
            (errors of the ``train``, ``test`` and ``unused`` cells as shares in [0, 1], with the
            ends of their 95 % intervals, ``…_low`` and ``…_high``; a DataFrame ``per_class`` of
            such errors, and of the calibration of each predicted class; ``test`` also has the
            ``calibration_error`` of the confidence, a root mean square without what is chance, the
            ends of its 95 % interval, and the error without calibration, ``uncalibrated_error``;
            ``n_repeated``, the number of held-out cells with the values of a training cell; after
            `feature_panel` also ``panel_error``, see `mask_var`; with `group_key` and several
            groups of training cells also ``by_group``, the same as ``test`` of all labeled cells,
            each judged by networks that have seen no cell of its group);
            ``model`` (the fitted map, see `fitted_model`); ``parts`` (the names of these entries);
            ``colors`` of the classes, once the label column has some: regions keep them in a
            selection of the cells that lacks a class.

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
    neighbours among the embedded training cells. A training cell is not its own neighbour. A
    *balanced* error is the mean of the errors of the classes. With `group_key`, intervals follow
    from the differences between the groups; those of fewer than three groups are NaN.

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
    _run.check_not_replaced(label_key, obs_key(key, "label"), obs_key(key, "split"))
    _result.check_free(adata, key)
    Number(0, below=1, instead=(None,)).check("test_size", test_size)
    for name, value in (("test_size", test_size), ("group_key", group_key)):
        fits = split_key is None or value is None
        check(fits, f"{name} has no effect with split_key: the split is given", name)
    test_size = TEST_SIZE if test_size is None and split_key is None else test_size or 0.0
    settings = {"n_components": n_components, "placement": placement, "device": device}
    estimator = _run.configured(model, settings, max_cells)
    several = estimator.placement != "bottleneck" and estimator.n_networks != 1
    name = "placement" if estimator.placement == "bottleneck" else "n_networks"
    others = f"test_size=0 and {name}={getattr(estimator, name)!r}"
    check(
        test_size or several or group_key is None,
        f"group_key={group_key!r} has no effect with {others}",
        "group_key",
    )
    text = "random_state has no effect with test_size=0 and a model that has its own seed"
    has_effect = test_size or estimator.random_state is None or random_state == 0
    check(has_effect, text, "random_state")
    cells = read_cells(
        adata,
        Source(use_rep, layer, use_raw, mask_var),
        label_key=label_key,
        unlabeled_category=unlabeled_category,
        missing=missing,
        group_key=group_key,
        random_state=random_state,
        by_parts=True,
    )
    held_out, train = _split(adata, cells, test_size, split_key, draw_seed(random_state))
    if estimator.random_state is None:
        estimator.set_params(random_state=draw_seed(random_state))
    params = {**cells.params, "test_size": float(test_size)}
    params |= {} if split_key is None else {"split_key": split_key}
    # A split of one's own may be one by donors.
    is_mixed = split_key is None and (test_size or several)
    notices = [*cells.notices, *(_summary.mixed_sources(adata, cells) if is_mixed else ())]
    notices += _summary.circular_words(adata, cells)
    if panel := _summary.panel_errors(adata, cells, adata.obs_names[held_out]):
        notices.append(_summary.panel_words(panel))
    return Training(cells, key, notices, estimator, held_out, train, params, panel, probabilities)


def _split(
    adata: AnnData, cells: Cells, test_size: float, split_key: str | None, seed: int
) -> tuple[Mask, Mask]:
    """Return (n_obs,) masks of the held-out cells and of the training cells."""
    labeled = cells.codes >= 0
    held_out, codes = np.zeros(len(labeled), dtype=bool), cells.codes[labeled]
    if split_key is not None:
        column = obs_column(adata, split_key, "split_key")
        found = as_booleans(column, {_result.TRAIN: 0, _result.TEST: 1})
        for value in column[found == -1][:1]:
            text = f"obs[{split_key!r}] must hold True (held out) and False, or 'test' and 'train'"
            raise InputError(f"{text}; got {value!r}", "split_key")
        held_out, labeled = labeled & (found == 1).to_numpy(), labeled & found.notna().to_numpy()
        text = f"obs[{split_key!r}] holds out no cell with a label; pass test_size=0 alone"
        check(held_out.any(), text, "split_key")
    elif test_size and cells.groups is not None:
        held_out[labeled] = grouped_holdout(codes, cells.groups[labeled], test_size, seed)
    elif test_size:
        held_out[labeled] = stratified_holdout(codes, test_size, seed)
    train = labeled & ~held_out
    lost = ~np.isin(np.arange(len(cells.classes)), cells.codes[train])
    name = "group_key" if split_key is None else "split_key"
    text = f"no cell of {listed(cells.classes[lost])} is left for the training; leave out {name}"
    check(not lost.any(), f"{text}, or mark that class as unlabeled", name)
    return held_out, train


@dataclass(eq=False)
class Training(_run.Job):
    """A job that trains a map. `held_out` and `train` are (n_obs,) masks."""

    _cells: Cells
    _estimator: CentroidEncoder
    held_out: Mask
    train: Mask
    _params: dict[str, Any]
    _panel: dict[str, float]
    """Result of `panel_errors`."""
    _probabilities: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        cells, held_out = self._cells, self.held_out
        self.classes, self.codes, self.kept = cells.classes, cells.codes, cells.kept
        if self._params["missing"] == "mean":
            self._cells = replace(cells, X=fill_missing(cells.X, self.train[self.kept]))
        small = ~np.isin(np.arange(len(cells.classes)), cells.codes[held_out])
        if held_out.any() and small.any():
            text = f"no cell of {listed(cells.classes[small])} is held out"
            reason = ": too few cells to split, or too few groups (group_key)"
            self.notices.append(text if "split_key" in self._params else text + reason)
        logger.info(
            "    %d classes; %d training, %d held-out, %d unlabeled cells",
            len(self.classes),
            *(int(mask.sum()) for mask in (self.train, held_out, self.codes < 0)),
        )

    def n_repeated(self, rows: Codes) -> int:
        """Return how many of some rows of the AnnData have the values of a training cell."""
        place = np.cumsum(self.kept) - 1
        read = (x[self.kept[x]] for x in (rows, np.flatnonzero(self.train)))
        return n_repeated(self._cells.X, *(place[x] for x in read))

    def _compute(self, callback: _run.Callback) -> _run.Results:
        cells = self._cells
        fit = self._estimator.fit_codes(
            cells.X,
            np.where(self.train[self.kept], cells.kept_codes, -1),
            cells.class_labels,
            feature_names=None if cells.names is None else cells.names.astype(str),
            groups=cells.kept_groups,
            novelty=True,
            callback=callback,
        )
        if fit.run.interrupted:
            self.notices.append(fit.run.notice)
        return self._results_of(fit)

    def _results_of(self, fit: Fit) -> _run.Results:
        cells, codes, unjudged = self._cells, self._cells.kept_codes, fit.division.unjudged
        is_held_out, n = self.held_out[self.kept], len(codes)
        offsets = fit.map.calibration.offsets
        rows, parts = self._judged_parts(fit, is_held_out)
        places, distances = _evaluation.judged(fit, rows)
        weights = np.where(is_held_out[rows], HELD_OUT_WEIGHT, 1.0)
        if is_held_out.any():
            fit.map.calibration = Calibration.fit(distances, codes[rows], offsets, weights)
        self._check(fit)
        others = np.setdiff1d(np.arange(n), rows)
        of_all = np.empty((n, len(self.classes)), np.float32) if self._probabilities else None
        decided = fit.map.decide(chain([(places, distances)], fit.judge(others)), n, of_all)
        order = np.argsort(np.concatenate([rows, others]))
        embedding, predicted, confidence = decided[0][order], decided[1][order], decided[2][order]
        # The confidence of these cells, calibrated with others, is what its error is computed from.
        after = cross_fitted_probabilities(distances, codes[rows], parts, offsets, weights)
        before = Calibration(offsets=offsets).probabilities(distances)
        is_scored, uncalibrated = parts >= 0, np.full(n, np.nan)
        scored, nearest = rows[is_scored], distances[is_scored].argmin(axis=1)
        for values, found in ((confidence, after), (uncalibrated, before)):
            values[scored] = found[is_scored, nearest]
        if of_all is not None:
            of_all = of_all[order]
            of_all[scored], of_all[unjudged] = after[is_scored], np.nan
            of_all = cells.spread(of_all)
        split = np.where(is_held_out, 1, np.where(codes < 0, 2, 3))
        split[fit.trained] = 0
        of_groups = np.full(len(scored), len(scored) > is_held_out.sum())
        by_group = scored[of_groups], parts[is_scored][of_groups]
        of_cells = embedding, predicted, confidence, uncalibrated
        quality = self._quality(fit, split, by_group, *of_cells)
        config, arrays = self._estimator.to_state()
        stored = _result.StoredMap(
            self._params,
            self.classes,
            fit.map.centers,
            history=pd.DataFrame(self._estimator.history_),
            quality=quality,
            model={"config": json.dumps(config), "arrays": arrays},
            id=_result.id_of(arrays),
        )
        predicted[unjudged], confidence[unjudged] = -1, np.nan
        split_of = np.full(len(self.kept), -1)
        split_of[self.kept] = split
        columns: dict[Column, Any] = {
            "split": pd.Categorical.from_codes(split_of, _result.SPLITS),
            "label": cells.labels_of(predicted),
            "level": None,  # of an earlier `tl.ingest`
            "confidence": cells.spread(confidence),
            "novelty": cells.spread(fit.novelty()),
        }
        return _run.results_of(self.key, stored, columns, cells.spread(embedding), of_all)

    def _check(self, fit: Fit) -> None:
        """Add notices if there is no calibration, and on groups that are too large, or too few."""
        cells = self._cells
        if not self.held_out.any() and not len(fit.unseen):
            text = "no cell is held out, so the confidence is not calibrated: raise test_size"
            self.notices.append(text)
        if cells.groups is None:
            return
        name = cells.params["group_key"]
        if (crowded := fit.crowded_group()) is not None:
            group, share = crowded
            self.notices.append(crowded_text(f"{name} {str(cells.group_names[group])!r}", share))
        n_groups = len(np.unique(cells.groups[self.train]))
        if n_groups < ROUGH:
            alone = ", and each network has seen one value only, so that their labels are, too"
            alone *= n_groups == 2 and fit.division.n_networks > 1
            text = f"fewer than {ROUGH} values of {name!r} have training cells ({n_groups})"
            text += f": the novelty of cells of others is rough{alone}"
            share = self.held_out.sum() / (self.held_out | self.train).sum()
            if share > 2 * self._params["test_size"]:
                text += f"; {100 * share:.0f} % of the labeled cells are held out, because whole"
                text += f" values of {name!r} are"
            self.notices.append(text)

    def _judged_parts(self, fit: Fit, is_held_out: Mask) -> tuple[Codes, Codes]:
        """Return rows by which the map is calibrated, and their parts for cross-fitting.

        They are the held-out cells and cells of the training, which are placed by a network that
        was not trained on them. With groups, this network has seen no cell of their group either:
        then all of them have a part, with whole groups. Otherwise the part of training cells is −1.
        """
        held_out, unseen, groups = np.flatnonzero(is_held_out), fit.unseen, self._cells.kept_groups
        several = fit.division.n_networks > 1
        if groups is not None and several and len(np.unique(groups[fit.division.train])) > 1:
            rows = np.union1d(held_out, unseen)
            _, of_rows = np.unique(groups[rows], return_inverse=True)
            parts = np.random.default_rng(0).permutation(of_rows.max(initial=-1) + 1) % N_PARTS
            return rows, parts[of_rows]
        rows = np.union1d(held_out, at_most(N_FITTED, unseen))
        parts = np.full(len(rows), -1)
        parts[is_held_out[rows]] = np.random.default_rng(0).permutation(len(held_out)) % N_PARTS
        return rows, parts

    def _quality(
        self,
        fit: Fit,
        split: Codes,
        by_group: tuple[Codes, Codes],
        embedding: Floats,
        predicted: Codes,
        confidence: Floats,
        uncalibrated: Floats,
    ) -> dict[str, Any]:
        """Return the errors of training, held-out and unused cells, and of all cells by group.

        The (n_kept, …) arrays hold a row for each cell. `by_group` has the rows of all cells that
        were judged by networks that have seen no cell of their group, and their parts, if any were.
        """
        codes, groups = self._cells.kept_codes, self._cells.kept_groups
        is_judged, trained = ~fit.division.unjudged, fit.trained
        judged_classes = np.unique(codes[is_judged & (split < 2)])
        names, n_classes = [str(name) for name in self.classes], len(self.classes)
        quality, tables = dict[str, Any](), [pd.DataFrame({"class": names})]
        for name, rows in {
            _result.TRAIN: trained,
            _result.TEST: np.flatnonzero(split == 1),
            _result.UNUSED: np.flatnonzero(split == 3),
            _result.BY_GROUP: by_group[0],
        }.items():
            if name in (_result.UNUSED, _result.BY_GROUP) and not len(rows):
                continue
            found = embedding[rows], predicted[rows], embedding[trained], judged_classes
            wrong = _evaluation.errors_by_rule(fit, codes, rows, *found)
            for part in range(N_PARTS) if name == _result.BY_GROUP else ():
                # Neighbours of the same group do not count.
                of_part = rows[by_group[1] == part]
                known = np.setdiff1d(trained, of_part)
                nearest = knn_predict(embedding[known], codes[known], embedding[of_part])
                wrong.loc[of_part, "knn"] = nearest != codes[of_part]
            rows = rows[is_judged[rows]]
            wrong, own = wrong.loc[rows], codes[rows]
            units = None if groups is None else groups[rows]
            quality[name], of_class = _evaluation.evaluate(wrong, own, n_classes, units)
            if name in (_result.TEST, _result.BY_GROUP):
                decided = wrong.get("decoder", wrong["voronoi"]).to_numpy()
                others, apart = (trained, None) if name == _result.TEST else (None, units)
                scores = predicted[rows], confidence[rows], uncalibrated[rows]
                errors, calibrated = _evaluation.evaluate_confidence(
                    *scores, predicted[rows] == own, n_classes, units
                )
                quality[name] |= {
                    _result.NO_BETTER: no_better_than(decided, wrong[_result.LARGEST].to_numpy()),
                    _result.REPEATED: n_repeated(self._cells.X, rows, others, apart),
                    **errors,
                    **self._panel,
                }
                of_class = of_class.join(calibrated)
            of_class = of_class.add_prefix(f"{name}_").rename(columns={f"{name}_n": f"n_{name}"})
            tables.append(of_class)
        per_class = quality["per_class"] = pd.concat(tables, axis=1)
        nearest = nearest_center(embedding, fit.map.centers)
        per_class["n_train"] = np.bincount(codes[trained], minlength=n_classes)
        for name, of_cells in (("n_predicted", predicted), ("n_in_cell", nearest)):
            per_class[name] = np.bincount(of_cells[is_judged], minlength=n_classes)
        unjudged = codes[fit.division.unjudged]
        quality[_result.TRAIN] |= _evaluation.count_unjudged(unjudged)
        self._note_doubts(quality, unjudged)
        return quality

    def _note_doubts(self, quality: Mapping[str, Any], unjudged: Codes) -> None:
        """Note why errors may be no better than chance, and which classes have none."""
        if text := _summary.doubt_words(quality.get(_result.BY_GROUP, quality[_result.TEST]))[1]:
            self.notices.append(text)
        per_class = quality["per_class"]
        self.notices += _summary.missing_classes(per_class, "the map takes", "train_voronoi_error")
        if len(unjudged):
            words = _summary.unjudged_words(quality[_result.TRAIN])
            self.notices.append(
                f"{words}: {listed(self.classes[np.unique(unjudged)])}. No network has seen their "
                "class without them, so that their label and confidence are missing"
            )
