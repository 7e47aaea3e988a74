"""Cross-validation of a Centroid-Encoder on an AnnData, with a permutation test."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import joblib
import numpy as np
import pandas as pd
from anndata import AnnData
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import confusion_matrix

from centroid_encoder.checks import MOST_TRAININGS, Number, draw_seed, resolve_device
from centroid_encoder.core.arrays import Codes, Doubles, Floats, Singles
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.matrix import Matrix
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import permutation_p_value
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.core.saved import params_to
from centroid_encoder.core.splits import cross_validation_folds, shuffled_labels
from centroid_encoder.core.suspects import joined, linear_probabilities, suspects
from centroid_encoder.errors import check
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tables import Column, cv_key, obs_key
from centroid_encoder.tl import _evaluation, _result, _run, _summary
from centroid_encoder.tl._cells import Cells, MaskVar, Missing, Source, read_cells
from centroid_encoder.tl._check import logger
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._matrix import fill_missing
from centroid_encoder.tl._parents import Hierarchy, read_parents

N_WORTHWHILE = 5_000
"""Cells of all trainings together from which on processes save more time than their start takes."""
N_COUNTED = 500
"""Least number of held-out cells by which a permutation is tested."""
Place = tuple[int, int, int]
"""Numbers of the permutation (0 for the real labels), the repeat and the fold of a training."""
Judged = tuple[pd.DataFrame, Codes, Singles, Calibration, Doubles]
"""Whether each rule errs for the n judged cells, NaN where it was not applied, by their rows; the
(K,) known classes; (n + n_unlabeled, K) distances to these, last of all cells without a label; the
calibration; and (n, M) probabilities by a linear discriminant analysis."""
Trained = tuple[Place, pd.Series, Judged | None]
"""A training, and how it judges the held-out cells whose class has training cells: calibrated
probabilities of their own classes, which are the index, and, with the real labels, more."""


@_run.from_job
def cross_validate(
    adata: AnnData,
    label_key: str,
    *,
    n_folds: int | None = None,
    n_repeats: int = 1,
    group_key: str | None = None,
    n_permutations: int = 0,
    n_components: int | None = None,
    placement: Placement | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    use_raw: bool = False,
    mask_var: MaskVar = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    max_cells: int | None = None,
    model: CentroidEncoder | None = None,
    parents: str | Mapping[str, str] | Sequence[str | Mapping[str, str]] | None = None,
    probabilities: bool = False,
    key_added: str | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> CrossValidation:
    """Measure how much of a supervised embedding is real: cross-validation and permutation test.

    The class of every labeled cell is predicted by networks that have not seen the cell: scaling,
    centroids, training and calibration use the other folds only. The results are errors with their
    spread, and for each cell a class and a probability that do not depend on its own label, so that
    mislabelled cells can be found (see `mislabeled`). The embedding that `centroid_encoder` stored
    does not change.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts. The columns of `mask_var` are read into memory.
    label_key
        As in `centroid_encoder`. For a cell without a label, the probabilities of all networks are
        averaged.
    n_folds
        Number of folds. Default: 5, or the number of groups if there are fewer.
    n_repeats
        How many times to divide the cells into folds. Errors are means over them: those of one map.
        Predicted classes, confusion and calibration follow from the mean probabilities of all
        repeats, which are wrong less often.
    group_key
        Column of ``adata.obs`` with donors or batches: the cells of each are in one fold, so that
        the errors are those of a new donor.
    n_permutations
        How many times to shuffle the labels and train again, to measure what occurs by chance. The
        smallest possible p value is 0.05 with 19 permutations, 0.01 with 99. With `group_key`,
        labels are shuffled within groups or, if each group has one class, between groups.
    n_components, placement, use_rep, layer, use_raw, mask_var, unlabeled_category, missing, device
        As in `centroid_encoder`.
    max_cells
        Largest number of cells for each training. Default: 1,000,000, or ``max_samples`` of the
        `model`.
    model
        As in `centroid_encoder`. Its ``random_state`` has no effect. Default: the settings of the
        map that is stored under `key_added`, if it has the same labels; otherwise those of
        `CentroidEncoder`.
    parents
        Coarser classes, as in `ingest`, with columns of ``adata.obs``. The errors at each of their
        levels are in ``levels``.
    probabilities
        Whether to store the probabilities of all classes.
    key_added
        Name k for the results in ``uns["k_cv"]`` and ``obs["k_cv_…"]``. Default: ``"ce"``.
    n_jobs
        How many trainings run at once; −1 for one on each core. It changes the results by rounding
        only. Default: 1, or the setting of a ``joblib.parallel_config`` around the call.
    random_state
        Seed of folds, permutations and trainings. With the same seed, more repeats or permutations
        contain those of a run with fewer.
    progress, copy
        As in `centroid_encoder`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obs["ce_cv_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Out-of-fold predicted class of every cell, with the categories of `label_key`.
        ``adata.obs["ce_cv_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Its probability.
        ``adata.obs["ce_cv_own"]`` : :class:`pandas.Series` (dtype ``float32``)
            Out-of-fold probability of the cell's own label; NaN for cells without a label. It and
            the fields above are missing for cells whose class had no training cell when they were
            held out: they are not judged.
        ``adata.obs["ce_cv_judged"]`` : :class:`pandas.Series` (dtype ``category``)
            The label that was judged; missing for cells that were not.
        ``adata.obs["ce_cv_suspect"]`` : :class:`pandas.Series` (dtype ``category``)
            The probable class of the cells whose label looks wrong; missing for the others.
        ``adata.obs["ce_cv_doubt"]`` : :class:`pandas.Series` (dtype ``float32``)
            Ranks of these cells among each other, from 1 for the worst to near 0; 0 for the others,
            and missing for cells that were not judged. See `mislabeled`.
        ``adata.obs["ce_cv_map"]`` : :class:`pandas.Series` (dtype ``category``)
            The ``id`` of the cross-validation, as ``ce_map`` in `centroid_encoder`.
        ``adata.obsm["ce_cv_probabilities"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            With `probabilities`: n_obs × n_classes, in the order of ``uns["ce_cv"]["classes"]``;
            NaN for cells that were not judged.
        ``adata.uns["ce_cv"]`` : :class:`dict`
            ``quality`` (errors of all judged cells, the ends of their 95 % intervals, ``…_low`` and
            ``…_high``, and their standard deviation over the folds, ``…_sd``; number
            of cells ``n``, of cells that were not judged ``n_unjudged`` and of their classes
            ``n_unjudged_classes``; ``calibration_error`` and its 95 % interval, as in
            `centroid_encoder`); ``errors`` (a DataFrame with a row for each fold); ``per_class`` (a
            DataFrame of errors with intervals, and of the calibration of each predicted
            class); ``levels`` (with `parents`: a DataFrame with a row for the classes and one for
            each level of parents, with the error and the calibration error, and their intervals);
            ``classes``, sorted; ``confusion`` (n_classes × n_classes, number of cells of
            the row's class that were predicted to be of the column's); ``reason`` (why
            no label looks wrong, or ``""``); ``permutation`` (``observed`` mean probability of the
            own class, ``shuffled`` ones, ``p_value``); ``warnings`` (sentences, which are also
            issued as warnings); ``params``; ``id``; ``model`` (the settings, as JSON); ``parts``
            (the names of these entries).

    Raises
    ------
    KeyError, TypeError, ValueError
        As in `centroid_encoder`; ValueError also if the cells cannot be divided into the folds.
    RuntimeError
        If a process of `n_jobs` has died.

    Notes
    -----
    Errors are shares in [0, 1], pooled over the cells: ``voronoi``, the share of cells with another
    predicted class; ``knn`` (5 neighbours in the embedding, the paper's measure); ``decoder``, for
    maps with a decoder; ``input_knn`` (5 neighbours by the z-scores of all features, without a map,
    among at most 10,000 cells, for at most 2,000 cells of a fold), which shows how much the
    embedding loses; and ``largest_class``, the error of always predicting the largest of the judged
    classes. With ``balanced_`` every class has the same weight. With `group_key`, intervals follow
    from the differences between the groups; those of fewer than three groups are NaN.

    The probabilities of a fold are calibrated on the cells of the other folds, by those of its
    networks that were not trained on them. On average, they are a little too low.

    The permutation test compares the mean out-of-fold probability of the own class, with the same
    weight for every class, in the first repeat. Unlike an error, it does not depend on the size of
    the largest class. It is computed on the first folds that together hold 500 cells (on all folds
    of small data), in the same way with the real and with the shuffled labels.

    ``joblib.parallel_config(backend="dask")``, or ``"ray"``, runs the trainings on a cluster. The
    processes of one machine share the data in memory.

    Ctrl-C leaves `adata` as it was.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.cross_validate(adata, "bulk_labels", progress=False)
    >>> adata.uns["ce_cv"]["quality"]["knn_error"] < 0.3
    True
    """
    del progress, copy  # `from_job` uses them.
    key = _run.result_key(key_added)
    _run.check_not_replaced(label_key, obs_key(cv_key(key), "label"))
    # `anndata.concat` may leave only some parts of a result.
    is_own = obs_key(cv_key(key), "label") in adata.obs
    is_own |= _result.StoredCrossValidation.is_kind_of(adata.uns.get(cv_key(key)))
    _result.check_free(adata, cv_key(key), is_own=is_own)
    _result.check_columns_free(adata, cv_key(key), _result.CV_COLUMNS)
    Number(2, integer=True, instead=(None,)).check("n_folds", n_folds)
    Number(1, integer=True, below=MOST_TRAININGS).check("n_repeats", n_repeats)
    Number(0, integer=True, below=MOST_TRAININGS).check("n_permutations", n_permutations)
    Number(-math.inf, integer=True, instead=(None,)).check("n_jobs", n_jobs)
    check(n_jobs != 0, "n_jobs must not be 0; −1 is all cores", "n_jobs")
    cells = read_cells(
        adata,
        Source(use_rep, layer, use_raw, mask_var),
        label_key=label_key,
        unlabeled_category=unlabeled_category,
        missing=missing,
        group_key=group_key,
        random_state=random_state,
    )
    mapped = _result.StoredMap.read(adata, key)
    ours = mapped if mapped and mapped.model and mapped.ingested_from is None else None
    if model is None and ours and ours.label_key == label_key:
        # The map may have been trained on a device that this machine lacks.
        model = fitted_model(adata, key, device="cpu").set_params(device="auto")
        logger.info("    with the settings of the map %r", key)
    params = dict(
        cells.params,
        n_folds=_evaluation.possible_folds(cells, n_folds),
        n_repeats=int(n_repeats),
        n_permutations=int(n_permutations),
    )
    hierarchy = read_parents(parents, cells.classes, adata.obs, label_key)
    settings = {"n_components": n_components, "placement": placement, "device": device}
    estimator = _run.configured(model, settings, max_cells)
    found, seed = _summary.doubts(adata, cells, params["n_folds"]), draw_seed(random_state)
    more = estimator, params, n_jobs, seed, found, hierarchy, probabilities
    job = CrossValidation(cells, key, [*cells.notices, *found], *more)
    if mapped is not None and (differing := _summary.differing_settings(mapped, params, job.model)):
        text = f"the map {key!r} has other settings (map against cross-validation): {differing}"
        job.notices.append(text)
    return job


def _counted(results: Iterable[Trained], callback: _run.Callback, n: int) -> Iterator[Trained]:
    """Yield the results of parallel trainings, and report how many of `n` there are."""
    for i, one in enumerate(results, 1):
        yield one
        _run.check_stop(callback, _run.Progress(i, n, "training"))


@dataclass(eq=False)
class CrossValidation(_run.Job):
    """A job that runs the trainings at `places`, `n_jobs` of them at once."""

    _cells: Cells
    _estimator: CentroidEncoder
    _params: dict[str, Any]
    n_jobs: int | None
    seed: int
    """The seed of each training depends only on its place and on this one."""
    doubts: list[str]
    """Those of the notices that are stored with the results."""
    _hierarchy: Hierarchy | None
    _probabilities: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        cells, params, self.n_folds = self._cells, self._params, int(self._params["n_folds"])
        self.model = json.dumps(params_to(self._estimator.get_params(deep=False)))
        self.kept, self._codes, self._groups = cells.kept, cells.kept_codes, cells.kept_groups
        labeled = self._codes >= 0
        self.n_counted = min(self.n_folds, -(-N_COUNTED * self.n_folds // int(labeled.sum())))
        repeats, permutations = range(params["n_repeats"]), range(1, params["n_permutations"] + 1)
        self.places = [(0, repeat, fold) for repeat in repeats for fold in range(self.n_folds)]
        self.places += [(i, 0, fold) for i in permutations for fold in range(self.n_counted)]
        for repeat in repeats:
            folds = self.split(0, repeat)[1]
            _evaluation.check_folds(folds[labeled], self._codes[labeled], self.n_folds)

    def split(self, permutation: int, repeat: int) -> tuple[Codes, Codes]:
        """(n_kept,) class and fold of each cell; −1 without a label.

        The classes are shuffled unless `permutation` is 0.
        """
        labeled = np.flatnonzero(self._codes >= 0)
        codes, folds = self._codes.copy(), np.full(len(self._codes), -1)
        groups = None if self._groups is None else self._groups[labeled]
        if permutation:
            seed = _evaluation.seed_of(self.seed, permutation)
            codes[labeled] = shuffled_labels(codes[labeled], seed, groups)
        # No training has this place, since folds end at n_folds − 1.
        seed = _evaluation.seed_of(self.seed, permutation, repeat, self.n_folds)
        folds[labeled] = cross_validation_folds(codes[labeled], self.n_folds, seed, groups)
        return codes, folds

    @property
    def suitable_jobs(self) -> int:
        """Number of parallel trainings that is fastest on this machine."""
        on_cpu = resolve_device(self._estimator.device).type == "cpu"
        pays = len(self.places) * len(self._codes) >= N_WORTHWHILE
        return int(joblib.cpu_count()) if on_cpu and pays else 1

    def _compute(self, callback: _run.Callback) -> _run.Results:
        """Run all trainings; StoppedTooEarly is raised if the callback stops one of them."""
        n = len(self.places)
        n_at_once = min(joblib.effective_n_jobs(self.n_jobs), n)
        if n_at_once == 1:
            return self._results_of(train_fold(*task) for task in self._tasks(callback))
        _run.check_stop(callback, _run.Progress(0, n, "training"))
        # The backend of Ray can only return all results at the end.
        in_turn = get_active_backend()[0].supports_return_generator
        kind = "generator" if in_turn else "list"
        results = joblib.Parallel(n_at_once, return_as=kind)(
            joblib.delayed(train_fold)(*task) for task in self._tasks()
        )
        try:
            return self._results_of(_counted(results, callback, n))
        finally:
            if in_turn:
                # An exception in the generator ends joblib's workers; `close` would also warn.
                with suppress(StoppedTooEarly):
                    results.throw(StoppedTooEarly())

    def _tasks(self, callback: _run.Callback | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of each training."""
        X, groups, classes = self._cells.X, self._groups, self._cells.class_labels
        for i, place in enumerate(self.places):
            codes, folds = self.split(*place[:2])
            seed = _evaluation.seed_of(self.seed, *place)
            estimator = clone(self._estimator).set_params(random_state=seed)
            n = len(self.places)
            count = None if callback is None else partial(_run.count_epochs, callback, i, n)
            yield place, X, codes, folds, groups, estimator, classes, count

    def _collected(
        self, trained: Iterable[Trained]
    ) -> tuple[Floats, Floats, dict[Place, pd.DataFrame], dict[Place, pd.Series]]:
        """Return what the trainings have found.

        That is the (3, n, M) probabilities of all cells after and before calibration, and with
        class weights, for unlabeled cells means over the folds; (n, M) linear ones; and, of each
        fold, whether rules err, and the probabilities of the own classes.
        """
        codes, shape = self._codes, (len(self._codes), len(self._cells.classes))
        totals, linear = np.zeros((3, *shape), dtype=np.float32), np.zeros(shape)
        n_judged, unlabeled = np.zeros(len(codes)), np.flatnonzero(codes < 0)
        n_judged[unlabeled] = self._params["n_repeats"]
        wrong, own = dict[Place, pd.DataFrame](), dict[Place, pd.Series]()
        for place, of_own, of_cells in trained:
            own[place] = of_own
            if of_cells is not None:
                wrong[place], known, distances, calibration, of_rows = of_cells
                rows = wrong[place].index.to_numpy()
                n_judged[rows] += 1
                linear[rows] += of_rows
                at = np.ix_(np.append(rows, unlabeled), known)
                share = np.repeat([1, 1 / self.n_folds], [len(rows), len(unlabeled)])
                before = Calibration(offsets=calibration.offsets)
                for total, one in zip(totals, (calibration, before, Calibration()), strict=True):
                    total[at] += share[:, None] * one.probabilities(distances)
        totals /= np.maximum(n_judged, 1)[:, None]
        wrong = {place: wrong[place] for place in self.places if place in wrong}
        return totals, linear, wrong, own

    def _permutation_test(self, own: Mapping[Place, pd.Series]) -> dict[str, Any] | None:
        """Compare the probabilities of the own classes with those after shuffles of the labels."""
        counted, tries = range(self.n_counted), range(self._params["n_permutations"] + 1)
        if len(tries) == 1:
            return None
        shares = [pd.concat([own[i, 0, fold] for fold in counted]) for i in tries]
        # If labels and data are unrelated, these means are about one over the number of
        # classes, for any sizes of the classes. They are 0 without cells.
        means = [float(np.nan_to_num(one.groupby(level=0).mean().mean())) for one in shares]
        observed, shuffled = means[0], np.array(means[1:])
        p_value = permutation_p_value(-observed, -shuffled)
        return {"observed": observed, "shuffled": shuffled, "p_value": p_value}

    def _results_of(self, trained: Iterable[Trained]) -> _run.Results:
        cells, codes, n_classes = self._cells, self._codes, len(self._cells.classes)
        totals, linear, wrong_in, own_in = self._collected(trained)
        errors = pd.DataFrame(
            {"repeat": repeat, "fold": fold}
            | _evaluation.error_rates(of_fold, codes[of_fold.index])
            for (_, repeat, fold), of_fold in wrong_in.items()
        )
        probabilities, predicted = totals[0], totals[2].argmax(axis=1)
        confidence, uncalibrated = (p[np.arange(len(codes)), predicted] for p in totals[:2])
        # The errors of one map: means over the repeats.
        wrong = pd.concat(wrong_in.values()).astype(float).groupby(level=0).mean()
        at = wrong.index.to_numpy()
        own, is_unjudged = codes[at], codes >= 0
        is_unjudged[at] = False
        predicted[is_unjudged], confidence[is_unjudged] = -1, np.nan
        units = None if self._groups is None else self._groups[at]
        quality, per_class = _evaluation.evaluate(wrong, own, n_classes, units)
        calibration, of_predictions = _evaluation.evaluate_confidence(
            predicted[at], confidence[at], uncalibrated[at], predicted[at] == own, n_classes, units
        )
        of_folds = errors.drop(columns=["repeat", "fold", "n"]).std().add_suffix("_sd").to_dict()
        quality |= of_folds | calibration | _evaluation.count_unjudged(codes[is_unjudged])
        per_class = per_class.join(of_predictions)
        per_class.insert(0, "class", [str(name) for name in cells.classes])
        doubt, suspect = np.full(len(codes), np.nan), np.full(len(codes), -1)
        doubt[at], suspect[at], reason = suspects(own, joined(probabilities[at], linear[at]))
        suspect[~(doubt > 0)] = -1
        missing = _summary.missing_classes(per_class, "the networks take", "voronoi_error")
        self.doubts, self.notices = self.doubts + missing, self.notices + missing
        stored = _result.StoredCrossValidation(
            params=self._params,
            classes=cells.classes,
            confusion=confusion_matrix(own, predicted[at], labels=range(n_classes)),
            quality=quality,
            per_class=per_class,
            errors=errors,
            warnings=np.array(self.doubts, dtype=str),
            model=self.model,
            reason=reason,
            permutation=self._permutation_test(own_in),
            levels=self._levels(probabilities, predicted, at, units),
            id=_result.id_of({"predicted": predicted, "confidence": confidence}),
        )
        of_own, label = np.full(len(codes), np.nan), np.full(len(codes), -1)
        of_own[at], label[at] = probabilities[at, own], own
        columns: dict[Column, Any] = {
            "label": cells.labels_of(predicted),
            "confidence": cells.spread(confidence),
            "own": cells.spread(of_own),
            "judged": cells.labels_of(label),
            "suspect": cells.labels_of(suspect),
            "doubt": cells.spread(doubt),
        }
        probabilities[is_unjudged] = np.nan
        of_all = cells.spread(probabilities) if self._probabilities else None
        return _run.results_of(cv_key(self.key), stored, columns, None, of_all)

    def _levels(
        self, probabilities: Floats, predicted: Codes, at: Codes, units: Codes | None
    ) -> pd.DataFrame | None:
        """Return the errors of some rows at each level of parents.

        Classes are those `predicted`; parents follow from the probabilities. `units` holds the
        groups of these rows.
        """
        hierarchy, rows = self._hierarchy, []
        if hierarchy is None:
            return None
        probabilities, predicted, own = probabilities[at], predicted[at], self._codes[at]
        for level in range(int(hierarchy.levels.max()) + 1):
            names, above = hierarchy.at_level(level)
            shares = probabilities @ (above[:, None] == np.arange(len(names)))
            found, n = shares.argmax(axis=1) if level else above[predicted], len(names)
            wrong = pd.DataFrame({"voronoi": found != above[own]}).astype(float)
            errors, _ = _evaluation.evaluate(wrong, above[own], n, units)
            confidence = shares[np.arange(len(found)), found]
            right = wrong["voronoi"].to_numpy() == 0
            calibration, _ = _evaluation.evaluate_confidence(
                found, *2 * (confidence,), right, n, units
            )
            rows.append({"level": level, "n_classes": n} | errors | calibration)
        return pd.DataFrame(rows)


def train_fold(
    place: Place,
    X: Matrix,
    codes: Codes,
    folds: Codes,
    groups: Codes | None,
    estimator: CentroidEncoder,
    classes: NDArray[Any],
    callback: Callable[[Report | None], bool] | None = None,
) -> Trained:
    """Train on the labeled cells of the other folds, and judge those of the fold."""
    held_out = folds == place[2]
    # Otherwise scikit-learn would use the joblib backend that runs this training.
    with joblib.parallel_config("sequential"):
        filled, given = fill_missing(X, (codes >= 0) & ~held_out), np.where(held_out, -1, codes)
        fit = estimator.fit_codes(filled, given, classes, groups=groups, callback=callback)
        if fit.run.interrupted:
            raise KeyboardInterrupt
        rows = np.flatnonzero(held_out & np.isin(codes, fit.known))
        own, n = codes[rows], len(rows)
        others = np.flatnonzero((codes < 0) & (place[0] == 0))
        places, distances = _evaluation.judged(fit, np.concatenate([rows, others]))
        probabilities = fit.map.calibration.probabilities(distances[:n])
        of_own = pd.Series(probabilities[np.arange(n), np.searchsorted(fit.known, own)], own)
        if place[0]:
            return place, of_own, None
        predicted = fit.known[distances[:n].argmin(axis=1)]
        # The cells of a class that is in one fold only are not judged.
        n_folds = pd.Series(folds).groupby(codes).nunique()
        of_rows = places[:n], predicted, fit.embed(fit.trained), n_folds.index[n_folds > 1]
        wrong = _evaluation.errors_by_rule(fit, codes, rows, *of_rows)
        wrong["input_knn"] = _evaluation.input_errors(filled, fit, codes, rows)
        scaler = fit.map.standardizer
        linear = linear_probabilities(filled, scaler, fit.trained, codes, rows, len(classes))
        return place, of_own, (wrong, fit.known, distances, fit.map.calibration, linear)
