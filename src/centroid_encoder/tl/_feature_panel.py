"""Panels of a few features, and the errors of held-out cells with these features alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

from centroid_encoder.checks import Number, draw_seed
from centroid_encoder.core.arrays import Codes
from centroid_encoder.core.panels import N_OF_CLASS, choose_features
from centroid_encoder.core.splits import cross_validation_folds, representatives
from centroid_encoder.errors import check
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl import _evaluation, _result, _run, _summary
from centroid_encoder.tl._cells import Cells, MaskVar, Missing, Source, read_cells
from centroid_encoder.tl._check import check_known
from centroid_encoder.tl._matrix import fill_missing

SIZES = (5, 10, 20, 50, 100)
JUDGES = ("map", "input_knn", "forest")
N_TREES, TREES_AT_ONCE = 100, 10
"""Trees of a forest, and of them those that grow before the next check for Stop."""


@_run.from_job
def feature_panel(
    adata: AnnData,
    label_key: str,
    sizes: Sequence[int] | None = None,
    *,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    n_folds: int | None = None,
    group_key: str | None = None,
    layer: str | None = None,
    mask_var: MaskVar = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    max_cells: int | None = None,
    model: CentroidEncoder | None = None,
    n_jobs: int | None = None,
    key_added: str | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> FeaturePanel:
    """Choose a few features that separate all classes, and measure how well they do.

    For each size, the features are chosen anew in the training cells of each fold. Three judges
    that have only these features then predict the held-out cells: the map, five neighbours by
    z-scores, and a random forest. At the end, a panel of each size is chosen with all labeled
    cells.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts. The features are its variables; for those of
        ``raw``, pass ``adata.raw.to_adata()``.
    label_key
        As in `centroid_encoder`. Cells without a label take no part.
    sizes
        Numbers of features. A smaller panel is a part of a larger one. Default: 5, 10, 20, 50 and
        100, as far as there are more features.
    include
        Features that are in each panel, such as those of probes that exist. No size may be smaller
        than their number.
    exclude
        Features that are in no panel, such as those without a probe.
    n_folds
        Number of folds. Default: 5, or the number of groups if there are fewer.
    group_key
        Column of ``adata.obs`` with donors or batches: the cells of each are in one fold, so that
        the errors are those of a new donor.
    layer, mask_var, unlabeled_category, missing, device
        As in `centroid_encoder`.
    max_cells
        Largest number of cells for each training of a map. Default: 1,000,000, or ``max_samples``
        of the `model`.
    model
        `CentroidEncoder` with other settings than the default, for the map. Its ``random_state``
        has no effect.
    n_jobs
        Number of threads of the forests; −1 for all cores. Default: 1, unless
        ``joblib.parallel_config`` gives another.
    key_added
        Name k for the results in ``uns[k]`` and ``var["k_5"]``, ``var["k_10"]`` and so on. Default:
        ``"feature_panel"``.
    random_state
        Seed of folds, trainings and forests.
    progress, copy
        As in `centroid_encoder`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.var["feature_panel_5"]`` : :class:`pandas.Series` (dtype ``bool``)
            The panel of this size, chosen with all labeled cells; likewise for the other sizes.
            There is no held-out error of this very panel. `centroid_encoder` takes it as its
            `mask_var`; if cells that it holds out took part in the choice, it warns, and shows the
            cross-validated error of panels of this size.
        ``adata.uns["feature_panel"]`` : :class:`dict`
            ``errors`` (a DataFrame with a row for each ``size`` and ``judge``, ``"map"``,
            ``"input_knn"`` or ``"forest"``; the last three rows are those of all features. The
            columns are the number of cells ``n``, ``error`` and ``balanced_error``, and the ends of
            their 95 % intervals, ``…_low`` and ``…_high``); ``features`` (a DataFrame with a row
            for each feature that was chosen at least once, under its name: its ``rank`` in the
            choice with all cells, from 1, or 0 if it is in no panel, and in how many folds it was
            chosen, ``n_folds_5`` and so on); ``chosen_from`` (names of the cells that took part in
            it); ``classes``, sorted; ``params``.

    Raises
    ------
    KeyError, TypeError, ValueError
        As in `cross_validate`; ValueError also if a size is larger than the number of features.

    Notes
    -----
    Features are added one by one. Each is the one that most reduces the Bhattacharyya bound on the
    error, summed over all pairs of classes, where the classes are Gaussians with a common
    covariance [1]_. It is chosen among the 2,000 features most related to the classes.

    Errors are shares in [0, 1], pooled over the cells of all folds; a *balanced* error is the mean
    of the errors of the classes. Intervals are those of `cross_validate`. They show the uncertainty
    of few held-out cells, not that of the choice: see ``n_folds_5``. The error ``input_knn`` is
    that of five neighbours by z-scores for at most 2,000 cells of each fold, as in
    `cross_validate`. Neighbours and forest have at most 10,000 of the training cells.

    There is a training for each fold with each size and with all features. The recipe "draft" of
    `CentroidEncoder` takes a fraction of the time.

    Ctrl-C leaves `adata` as it was.

    References
    ----------
    .. [1] K. Fukunaga, Introduction to Statistical Pattern Recognition, 2nd edition, Academic
       Press, 1990, section 3.4.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.feature_panel(adata, "bulk_labels", (5, 20), n_folds=2, progress=False)
    >>> adata.var["feature_panel_20"].sum()
    np.int64(20)
    """
    del progress, copy  # `from_job` uses them.
    key = _run.result_key("feature_panel" if key_added is None else key_added)
    earlier = _result.StoredPanel.read(adata, key)
    _result.check_free(adata, key, is_own=earlier is not None)
    Number(2, integer=True, instead=(None,)).check("n_folds", n_folds)
    cells = read_cells(
        adata,
        Source(layer=layer, mask_var=mask_var),
        label_key=label_key,
        unlabeled_category=unlabeled_category,
        missing=missing,
        group_key=group_key,
        random_state=random_state,
    )
    assert cells.names is not None  # those of variables
    first = _indices(adata, cells, include, "include")
    without = _indices(adata, cells, exclude, "exclude")
    if len(both := np.intersect1d(first, without)):
        check(False, f"include and exclude both have {cells.names[both[0]]!r}", "exclude")
    allowed = np.setdiff1d(np.arange(len(cells.names)), without)
    chosen = _sizes(sizes, len(first), len(allowed))
    old = [] if earlier is None else [_result.panel_column(key, size) for size in earlier.sizes]
    for column in (_result.panel_column(key, size) for size in chosen):
        text = f"var[{column!r}] exists already; choose another key_added, or delete it first"
        check(column in old or column not in adata.var, text, "key_added")
    n_folds = _evaluation.possible_folds(cells, n_folds)
    params = {**cells.params, "sizes": np.array(chosen), "n_folds": n_folds}
    for name, indices in (("include", first), ("exclude", without)):
        params |= {name: cells.names[indices].tolist()} if len(indices) else {}
    estimator = _run.configured(model, {"device": device}, max_cells)
    notices = [*cells.notices, *_summary.doubts(adata, cells, n_folds)]
    more = estimator, params, draw_seed(random_state), n_jobs, adata.var_names, old, first, allowed
    return FeaturePanel(cells, key, notices, *more)


def _sizes(sizes: Sequence[int] | None, least: int, n: int) -> list[int]:
    """Return the sorted sizes of the panels, with at least some of `n` features; check them."""
    if sizes is None:
        sizes = [size for size in SIZES if least <= size < n] or SIZES[:1]
    fits = np.iterable(sizes) and not isinstance(sizes, str) and len(sizes) > 0
    check(fits, f"sizes must be whole numbers; got {sizes!r}", "sizes")
    for i, size in enumerate(sizes):
        Number(1, integer=True).check("sizes", size, f"[{i}]")
    text = f"sizes has {max(sizes)}, but there are {n} features in all; pass smaller sizes"
    check(max(sizes) < n, text, "sizes")
    text = f"sizes has {min(sizes)}, but include has {least} features; pass larger sizes"
    check(min(sizes) >= least, text, "sizes")
    return sorted({int(size) for size in sizes})


@dataclass(eq=False)
class FeaturePanel(_run.Job):
    """A job that chooses features in each fold, and trains on them alone."""

    _cells: Cells
    _estimator: CentroidEncoder
    _params: dict[str, Any]
    _seed: int
    _n_jobs: int | None
    _var_names: pd.Index
    _old: list[str]
    """Columns of ``var`` of an earlier result."""
    _first: Codes
    """Features that are in each panel."""
    _allowed: Codes
    """(a,) sorted features that may be in a panel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rows = np.flatnonzero(self._cells.kept_codes >= 0)
        """Rows of the matrix that have a label."""
        self._codes, groups = self._cells.kept_codes[self.rows], self._cells.kept_groups
        self._groups = None if groups is None else groups[self.rows]
        n_folds = int(self._params["n_folds"])
        self.folds = cross_validation_folds(self._codes, n_folds, self._seed, self._groups)
        """Fold of each of these rows."""
        _evaluation.check_folds(self.folds, self._codes, n_folds)

    def _compute(self, callback: _run.Callback) -> _run.Results:
        cells, codes, sizes = self._cells, self._codes, self._params["sizes"].tolist()
        X = cells.X if len(self.rows) == cells.X.shape[0] else cells.X[self.rows]
        assert cells.names is not None
        n, numbers, n_folds = sizes[-1], [*sizes, len(cells.names)], int(self._params["n_folds"])
        wrong: dict[int, list[pd.DataFrame]] = {number: [] for number in numbers}
        ranks = np.zeros((n_folds + 1, len(cells.names)), dtype=np.intp)
        for i in range(n_folds + 1):  # The last one is the choice from all cells.
            train = self.folds != i
            filled: Any = fill_missing(X, train)
            step = partial(_run.check_stop, callback, None)
            allowed = filled if len(self._allowed) == filled.shape[1] else filled[:, self._allowed]
            first = np.searchsorted(self._allowed, self._first)
            given = np.where(train, codes, -1)
            order = self._allowed[choose_features(allowed, given, n, step, first)]
            ranks[i, order] = np.arange(1, n + 1)
            for j, number in enumerate(numbers if i < n_folds else ()):
                part = filled if number == numbers[-1] else filled[:, np.sort(order[:number])]
                at = i * len(numbers) + j, n_folds * len(numbers)
                count = partial(_run.count_epochs, callback, *at)
                wrong[number].append(self._judge(part, i, count))
        stored = _result.StoredPanel(
            params=self._params,
            classes=cells.classes,
            errors=pd.concat(map(self._errors, wrong, wrong.values()), ignore_index=True),
            features=_features(cells.names, ranks, sizes),
            chosen_from=self.obs_names[cells.codes >= 0].to_numpy().astype(object),
        )
        panels = {
            _result.panel_column(self.key, size): self._var_names.isin(cells.names[order[:size]])
            for size in sizes
        }
        return {"var": dict.fromkeys(self._old) | panels, "uns": {self.key: stored.to_uns()}}

    def _judge(self, X: Any, fold: int, step: Callable[[Any], bool]) -> pd.DataFrame:
        """Return whether each judge errs for the cells of a fold; their rows are the index.

        `X` has some features; `step` is called in between, with the reports of the training.
        """
        seed, codes = _evaluation.seed_of(self._seed, fold), self._codes
        held_out = self.folds == fold
        estimator = clone(self._estimator).set_params(random_state=seed)
        given, classes = np.where(held_out, -1, codes), self._cells.class_labels
        fit = estimator.fit_codes(X, given, classes, groups=self._groups, callback=step)
        if fit.run.interrupted:
            raise KeyboardInterrupt
        rows = np.flatnonzero(held_out & np.isin(codes, fit.known))
        _, distances = _evaluation.judged(fit, rows)
        wrong = pd.DataFrame({"map": fit.known[distances.argmin(axis=1)] != codes[rows]}, rows)
        wrong["input_knn"] = _evaluation.input_errors(X, fit, codes, rows)
        # The time of a forest grows faster than the cells.
        known, rng = np.flatnonzero(~held_out), np.random.default_rng(seed)
        known = known[representatives(codes[known], _evaluation.N_REFERENCE, N_OF_CLASS, rng)]
        forest = RandomForestClassifier(0, warm_start=True, random_state=seed, n_jobs=self._n_jobs)
        for n_trees in range(TREES_AT_ONCE, N_TREES + 1, TREES_AT_ONCE):
            step(None)
            forest.set_params(n_estimators=n_trees).fit(X[known], codes[known])
        wrong["forest"] = forest.predict(X[rows]) != codes[rows]
        return wrong

    def _errors(self, number: int, of_folds: list[pd.DataFrame]) -> pd.DataFrame:
        """Return the errors of each judge with a number of features."""
        wrong = pd.concat(of_folds).astype(float)
        rows = wrong.index.to_numpy()
        units = None if self._groups is None else self._groups[rows]
        found, _ = _evaluation.evaluate(wrong, self._codes[rows], len(self._cells.classes), units)
        table = pd.DataFrame({"size": number, "judge": JUDGES, "n": wrong[[*JUDGES]].count().array})
        ends = "", "_low", "_high"
        for kind, end in ((kind, end) for kind in ("", "balanced_") for end in ends):
            table[f"{kind}error{end}"] = [found[f"{kind}{judge}_error{end}"] for judge in JUDGES]
        return table


def _indices(adata: AnnData, cells: Cells, names: Sequence[str] | None, parameter: str) -> Codes:
    """Return the indices of features by their names."""
    fits = names is None or (np.iterable(names) and not isinstance(names, str))
    check(fits, f"{parameter} must be a list of names; got {names!r}", parameter)
    given = pd.Index([] if names is None else list(names), dtype=object)
    known = pd.Index(cells.names)
    for name in given:
        is_left_out = name not in known and name in adata.var_names
        check(not is_left_out, f"{parameter} has {name!r}, which mask_var leaves out", parameter)
        text = f"{parameter} has {name!r}, which is none of the features"
        check_known(name, known, text, parameter)
    return np.asarray(known.get_indexer(given.unique()), dtype=np.intp)


def _features(names: NDArray[np.object_], ranks: Codes, sizes: list[int]) -> pd.DataFrame:
    """Return the ranks of the features, and the numbers of folds that chose each.

    `ranks` has the (n_folds + 1, d) ranks in each fold, from 1, and last those from all cells; 0
    for features that were not chosen.
    """
    ranks, rank = ranks[:-1], ranks[-1]
    table = pd.DataFrame({"rank": rank}, index=names.astype(str))
    for size in sizes:
        table[f"n_folds_{size}"] = ((ranks > 0) & (ranks <= size)).sum(axis=0)
    n_folds = table.iloc[:, -1]
    order = np.lexsort((-n_folds, rank, rank == 0))  # Features of no panel are last.
    return table.iloc[order[: ((rank > 0) | (n_folds > 0)).sum()]]
