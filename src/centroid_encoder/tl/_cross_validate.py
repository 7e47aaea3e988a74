"""Cross-validation of a Centroid-Encoder on an AnnData, with a permutation test."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.matrix import Matrix
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import input_neighbors, permutation_p_value
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.core.saved import params_to
from centroid_encoder.core.splits import at_most, cross_validation_folds, shuffled_labels
from centroid_encoder.core.suspects import joined, linear_probabilities, suspects
from centroid_encoder.errors import check
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tables import cv_key, obs_key
from centroid_encoder.tl import _result, _run
from centroid_encoder.tl._cells import Cells, Missing, Source, read_cells
from centroid_encoder.tl._check import logger
from centroid_encoder.tl._evaluation import (
    Codes,
    Floats,
    error_rates,
    errors_by_rule,
    evaluate,
    evaluate_confidence,
    judged,
)
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._matrix import fill_missing
from centroid_encoder.tl._parents import Hierarchy, read_parents
from centroid_encoder.tl._summary import differing_settings, doubts, missing_classes

N_FOLDS = 5
N_WORTHWHILE = 5_000
"""Cells of all trainings together from which on processes save more time than their start takes."""
N_COUNTED = 500
"""Least number of held-out cells by which a permutation is tested."""
N_REFERENCE, N_QUERIES = 10_000, 2_000
"""Largest numbers of training and held-out cells for neighbours in the full input space."""
Place = tuple[int, int, int]
"""Numbers of the permutation (0 for the real labels), the repeat and the fold of a training."""


@dataclass(frozen=True)
class Fold:
    """Cells that were held out of a training, as its networks judge them."""

    rows: Codes
    """(n,) rows whose class has training cells; other held-out cells are not judged."""
    own: pd.Series
    """(n,) probabilities of the own classes, calibrated with the training cells. The index is these
    classes; in a permutation, they are shuffled."""
    wrong: pd.DataFrame
    """Whether each rule errs for these cells; NaN where it was not applied. Empty with shuffled
    labels."""
    known: Codes
    """(K,) classes with training cells."""
    distances: NDArray[np.float32]
    """(n + n_unlabeled, K) distances to these classes, first of these cells and then of all cells
    without a label. With shuffled labels, there are none."""
    calibration: Calibration
    """Calibration by the training cells, each placed by a network that was not trained on it."""
    linear: NDArray[np.float64]
    """(n, M) probabilities by a linear discriminant analysis; empty with shuffled labels."""


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
    mask_var: NDArray[np.bool_] | str | None = "auto",
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
    Number(2, integer=True, instead=(None,)).check("n_folds", n_folds)
    Number(1, integer=True, below=MOST_TRAININGS).check("n_repeats", n_repeats)
    Number(0, integer=True, below=MOST_TRAININGS).check("n_permutations", n_permutations)
    Number(-math.inf, integer=True, instead=(None,)).check("n_jobs", n_jobs)
    check(n_jobs != 0, "n_jobs must not be 0; −1 is all cores", "n_jobs")
    labels = label_key, unlabeled_category, missing, group_key, random_state
    cells = read_cells(adata, Source(use_rep, layer, use_raw, mask_var), *labels)
    mapped = _result.StoredMap.read(adata, key)
    trained = mapped if mapped and mapped.model and mapped.ingested_from is None else None
    if model is None and trained and trained.label_key == label_key:
        # The map may have been trained on a device that this machine lacks.
        model = fitted_model(adata, key, device="cpu").set_params(device="auto")
        logger.info("    with the settings of the map %r", key)
    params = dict(
        cells.params,
        n_folds=possible_folds(cells, n_folds),
        n_repeats=int(n_repeats),
        n_permutations=int(n_permutations),
    )
    hierarchy = None
    if parents is not None:
        hierarchy = read_parents(parents, pd.Index(cells.classes), adata.obs, label_key)
    settings = {"n_components": n_components, "placement": placement, "device": device}
    estimator = _run.configured(model, settings, max_cells)
    found, seed = doubts(adata, cells, params["n_folds"]), draw_seed(random_state)
    notices = [*cells.notices, *found]
    more = n_jobs, seed, found, hierarchy, probabilities
    job = CrossValidation(cells, key, notices, estimator, params, *more)
    if mapped is not None and (differing := differing_settings(mapped, params, job.model)):
        text = f"the map {key!r} has other settings (map against cross-validation): {differing}"
        job.notices.append(text)
    return job


def count_epochs(callback: _run.Callback, i: int, n: int, report: Report | None) -> bool:
    """Call a callback with the number of epochs of all `n` trainings, in training `i`."""
    step = None
    if report is not None and report.epoch:
        n_done, n_total = i * report.n_steps + report.step, n * report.n_steps
        step = _run.Progress(n_done, n_total, "epoch")
    _run.check_stop(callback, step)
    return False


def _counted(
    results: Iterable[tuple[Place, Fold]], callback: _run.Callback, n: int
) -> Iterator[tuple[Place, Fold]]:
    """Yield the results of parallel trainings, and report how many of `n` there are."""
    for i, one in enumerate(results, 1):
        yield one
        _run.check_stop(callback, _run.Progress(i, n, "training"))


def check_folds(folds: Codes, codes: Codes, n_folds: int) -> None:
    """Raise an InputError if the training of a fold would have one class, or judge no cell."""
    n_cells = pd.crosstab(folds, codes)
    is_known = n_cells.sum() > n_cells
    fits = (is_known.sum(axis=1) > 1).all() and (is_known & (n_cells > 0)).any(axis=None)
    text = f"with {n_folds} folds, a training would have cells of one class only: there are"
    check(fits, f"{text} too few cells, or each class is a group of obs (group_key)")


def possible_folds(cells: Cells, n_folds: int | None) -> int:
    labeled = cells.codes >= 0
    most = int(np.bincount(cells.codes[labeled]).max())
    what = f"the largest class has {most} cells"
    if cells.groups is not None:
        most = len(np.unique(cells.groups[labeled]))
        what = f"obs[{cells.params['group_key']!r}] has {most} groups"
    check(n_folds is None or n_folds <= most, f"n_folds={n_folds} is too many: {what}", "n_folds")
    return max(2, min(N_FOLDS, most)) if n_folds is None else int(n_folds)


@dataclass(eq=False)
class CrossValidation(_run.Job):
    """A job that runs the trainings at `places`, `n_jobs` of them at once."""

    _cells: Cells
    _estimator: CentroidEncoder
    _params: dict[str, Any]
    n_jobs: int | None
    _seed: int
    doubts: list[str]
    """Those of the notices that are stored with the results."""
    _hierarchy: Hierarchy | None = None
    _probabilities: bool = False
    """Whether the probabilities of all classes are stored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        cells, params, self.n_folds = self._cells, self._params, int(self._params["n_folds"])
        self.model = json.dumps(params_to(self._estimator.get_params(deep=False)))
        self.kept, self._codes = cells.kept, cells.kept_codes
        codes = self._codes
        self._groups = None if cells.groups is None else cells.groups[cells.kept]
        self.n_counted = min(self.n_folds, -(-N_COUNTED * self.n_folds // int((codes >= 0).sum())))
        repeats, permutations = range(params["n_repeats"]), range(1, params["n_permutations"] + 1)
        self.places = [(0, repeat, fold) for repeat in repeats for fold in range(self.n_folds)]
        self.places += [(i, 0, fold) for i in permutations for fold in range(self.n_counted)]
        for repeat in repeats:
            check_folds(self.split(0, repeat)[1][codes >= 0], codes[codes >= 0], self.n_folds)

    def seed_of(self, *place: int) -> int:
        """Return the seed of a training, which depends only on its place and on `_seed`."""
        return int(np.random.SeedSequence(self._seed, spawn_key=place).generate_state(1)[0])

    def split(self, permutation: int, repeat: int) -> tuple[Codes, Codes]:
        """(n_kept,) class and fold of each cell; −1 without a label.

        The classes are shuffled unless `permutation` is 0.
        """
        labeled = np.flatnonzero(self._codes >= 0)
        codes, folds = self._codes.copy(), np.full(len(self._codes), -1)
        groups = None if self._groups is None else self._groups[labeled]
        if permutation:
            seed = self.seed_of(permutation)
            codes[labeled] = shuffled_labels(codes[labeled], seed, groups)
        # No training has this place, since folds end at n_folds − 1.
        seed = self.seed_of(permutation, repeat, self.n_folds)
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
        kind = "generator_unordered" if in_turn else "list"
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
            estimator = clone(self._estimator).set_params(random_state=self.seed_of(*place))
            n = len(self.places)
            count = None if callback is None else partial(count_epochs, callback, i, n)
            yield place, X, codes, folds, groups, estimator, classes, count

    def _judged(
        self, trained: Iterable[tuple[Place, Fold]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], dict[Place, Fold]]:
        """Return the probabilities of all cells, and the trainings without theirs.

        The first are (3, n, M): after and before calibration, and with class weights; those of
        unlabeled cells are means over the folds. The second are (n, M), of the linear analysis.
        """
        codes, shape = self._codes, (len(self._codes), len(self._cells.classes))
        totals, linear = np.zeros((3, *shape), dtype=np.float32), np.zeros(shape)
        n_judged, unlabeled = np.zeros(len(codes)), np.flatnonzero(codes < 0)
        n_judged[unlabeled], found = self._params["n_repeats"], dict[Place, Fold]()
        for place, fold in trained:
            found[place] = replace(fold, distances=fold.distances[:0], linear=fold.linear[:0])
            if place[0] == 0:
                n_judged[fold.rows] += 1
                linear[fold.rows] += fold.linear
                at = np.ix_(np.append(fold.rows, unlabeled), fold.known)
                share = np.repeat([1, 1 / self.n_folds], [len(fold.rows), len(unlabeled)])
                before = Calibration(offsets=fold.calibration.offsets)
                for total, one in zip(
                    totals, (fold.calibration, before, Calibration()), strict=True
                ):
                    total[at] += share[:, None] * one.probabilities(fold.distances)
        totals /= np.maximum(n_judged, 1)[:, None]
        return totals, linear, found

    def _errors(self, found: Mapping[Place, Fold]) -> pd.DataFrame:
        """Return the errors of each fold."""
        return pd.DataFrame(
            {"repeat": repeat, "fold": i} | error_rates(fold.wrong, self._codes[fold.rows])
            for (_, repeat, i), fold in found.items()
        )

    def _permutation_test(self, found: Mapping[Place, Fold]) -> _result.PermutationTest | None:
        """Compare the probabilities of the own classes with those after shuffles of the labels."""
        counted, tries = range(self.n_counted), range(self._params["n_permutations"] + 1)
        if len(tries) == 1:
            return None
        shares = [pd.concat([found[i, 0, fold].own for fold in counted]) for i in tries]
        # If labels and data are unrelated, these means are about one over the number of
        # classes, for any sizes of the classes. They are 0 without cells.
        means = [float(np.nan_to_num(one.groupby(level=0).mean().mean())) for one in shares]
        observed, shuffled = means[0], np.array(means[1:])
        p_value = permutation_p_value(-observed, -shuffled)
        return _result.PermutationTest(observed, shuffled, p_value)

    def _results_of(self, trained: Iterable[tuple[Place, Fold]]) -> _run.Results:
        cells, codes, n_classes = self._cells, self._codes, len(self._cells.classes)
        totals, linear, found = self._judged(trained)
        probabilities, predicted = totals[0], totals[2].argmax(axis=1)
        real = {place: found[place] for place in self.places if not place[0]}
        errors = self._errors(real)
        confidence, uncalibrated = (p[np.arange(len(codes)), predicted] for p in totals[:2])
        # The errors of one map: means over the repeats.
        wrong = pd.concat([fold.wrong for fold in real.values()]).astype(float)
        wrong = wrong.groupby(level=0).mean()
        at = wrong.index.to_numpy()
        own, is_unjudged = codes[at], codes >= 0
        is_unjudged[at] = False
        predicted[is_unjudged], confidence[is_unjudged] = -1, np.nan
        units = None if self._groups is None else self._groups[at]
        quality, per_class = evaluate(wrong, own, n_classes, units)
        calibration, of_predictions = evaluate_confidence(
            predicted[at], confidence[at], uncalibrated[at], predicted[at] == own, n_classes, units
        )
        unjudged = codes[is_unjudged]
        n_unjudged = {"n_unjudged": len(unjudged), "n_unjudged_classes": len(np.unique(unjudged))}
        quality |= errors.iloc[:, 3:].std().add_suffix("_sd").to_dict() | calibration | n_unjudged
        per_class = per_class.join(of_predictions)
        per_class.insert(0, "class", [str(name) for name in cells.classes])
        doubt, suspect = np.full(len(codes), np.nan), np.full(len(codes), -1)
        doubt[at], suspect[at], reason = suspects(own, joined(probabilities[at], linear[at]))
        suspect[~(doubt > 0)] = -1
        missing = missing_classes(per_class, "the networks take")
        self.doubts, self.notices = self.doubts + missing, self.notices + missing
        stored = _result.StoredCrossValidation(
            params=self._params,
            classes=cells.classes,
            confusion=confusion_matrix(own, predicted[at], labels=range(n_classes)),
            quality=quality,
            per_class=per_class,
            reason=reason,
            levels=self._levels(probabilities, predicted, at, units),
            errors=errors,
            warnings=tuple(self.doubts),
            permutation=self._permutation_test(found),
            model=self.model,
            id=_result.id_of({"predicted": predicted, "confidence": confidence}),
        )
        of_own, label = np.full(len(codes), np.nan), np.full(len(codes), -1)
        of_own[at], label[at] = probabilities[at, own], own
        name, of_all = cv_key(self.key), None
        if self._probabilities:
            probabilities[is_unjudged] = np.nan
            of_all = cells.spread(probabilities)
        return {
            "obs": {
                obs_key(name, "label"): cells.labels_of(predicted),
                obs_key(name, "confidence"): cells.spread(confidence),
                obs_key(name, "own"): cells.spread(of_own),
                obs_key(name, "judged"): cells.labels_of(label),
                obs_key(name, "suspect"): cells.labels_of(suspect),
                obs_key(name, "doubt"): cells.spread(doubt),
                obs_key(name, "map"): pd.Categorical([stored.id] * len(cells.kept)),
            },
            "obsm": {obs_key(name, "probabilities"): of_all},
            "uns": {name: stored.to_uns()},
        }

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
            errors, _ = evaluate(wrong, above[own], n, units)
            confidence = shares[np.arange(len(found)), found]
            right = wrong["voronoi"].to_numpy() == 0
            calibration, _ = evaluate_confidence(found, *2 * (confidence,), right, n, units)
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
) -> tuple[Place, Fold]:
    """Train on the labeled cells of the other folds, and judge those of the fold."""
    held_out = folds == place[2]
    trains = (codes >= 0) & ~held_out
    # Otherwise scikit-learn would use the joblib backend that runs this training.
    with joblib.parallel_config("sequential"):
        filled, given = fill_missing(X, trains), np.where(trains, codes, -1)
        fit = estimator.fit_codes(filled, given, classes, groups=groups, callback=callback)
        if fit.outcome.interrupted:
            raise KeyboardInterrupt
        rows = np.flatnonzero(held_out & np.isin(codes, fit.known))
        own, n = codes[rows], len(rows)
        others = np.flatnonzero((codes < 0) & (place[0] == 0))
        places, distances = judged(fit, np.concatenate([rows, others]))
        probabilities = fit.map.calibration.probabilities(distances[:n])
        of_own = probabilities[np.arange(n), np.searchsorted(fit.known, own)]
        wrong, linear, n_classes = pd.DataFrame(index=rows), np.empty((0, 0)), len(classes)
        if place[0] == 0:
            predicted, train = fit.known[distances[:n].argmin(axis=1)], fit.trained
            reference = train, fit.embed(train)
            # The cells of a class that is in one fold only are not judged.
            n_folds = pd.Series(folds).groupby(codes).nunique()
            of_rows = places[:n], predicted, reference, n_folds.index[n_folds > 1].to_numpy()
            wrong = errors_by_rule(fit, codes, rows, *of_rows)
            known, new = at_most(N_REFERENCE, fit.trained), at_most(N_QUERIES, rows)
            found = input_neighbors(filled, known, codes[known], new)
            wrong.loc[new, "input_knn"] = (found != codes[new]).astype(float)
            scaler = fit.map.standardizer
            linear = linear_probabilities(filled, scaler, fit.trained, codes, rows, n_classes)
        distances = distances if place[0] == 0 else distances[:0]
        of_map = fit.known, distances, fit.map.calibration
        return place, Fold(rows, pd.Series(of_own, own), wrong, *of_map, linear)
