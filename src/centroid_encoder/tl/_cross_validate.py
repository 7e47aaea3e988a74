"""Cross-validate a Centroid-Encoder on an AnnData."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import joblib
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from centroid_encoder.constraints import MOST_TRAININGS, Number, draw_seed, resolve_device
from centroid_encoder.core.description import params_to
from centroid_encoder.core.matrix import Matrix
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import permutation_p_value
from centroid_encoder.core.reports import Report
from centroid_encoder.errors import InputError, Message, Setting
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import Cells, Missing, read_cells
from centroid_encoder.tl._cv_warnings import doubts
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._folds import Fold, Pooled
from centroid_encoder.tl._jobs import (
    Job,
    Progress,
    Results,
    as_recorded,
    check_not_replaced,
    configured,
    from_job,
    result_key,
)
from centroid_encoder.tl._settings import differing_settings, is_of_same_labels
from centroid_encoder.tl._stored import (
    RULES,
    Column,
    PermutationTest,
    StoredCrossValidation,
    StoredMap,
    cv_key,
    obs_key,
)
from centroid_encoder.tl._summary import missing_classes
from centroid_encoder.tl._trainings import Data, Found, Place, Plan, trained

if TYPE_CHECKING:
    from anndata import AnnData

logger = logging.getLogger("centroid_encoder")

N_FOLDS = 5
N_WORTHWHILE = 5_000
"""Cells of all trainings together from which on processes are worth their start, some seconds."""
N_COUNTED = 500
"""Held-out cells on which the error of a permutation is counted, where there are as many."""


@from_job
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
    model: CentroidEncoder | None = None,
    key_added: str | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> CrossValidation:
    """Find out how much of a supervised embedding is real: cross-validation and permutation test.

    Every labeled cell is judged by a network that has not seen it: scaling, centroids, training
    and calibration know the other folds only. What comes out is an error with its spread, and for
    each cell a class and a probability in which its own label had no say, so that mislabelled
    cells show up (see `mislabeled`). The embedding that `centroid_encoder` stored, if there is
    one, stays as it is.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts. The columns of `mask_var` are read into memory
        if they are not there.
    label_key
        As in `centroid_encoder`. Cells without a label are judged by all networks together.
    n_folds
        Number of folds. Default: 5, or the number of groups if there are fewer.
    n_repeats
        How many times the cells are divided into folds anew. Probabilities are averaged.
    group_key
        Column of ``adata.obs`` with donors or batches: each stays in one fold, so that the errors
        are those of a new donor.
    n_permutations
        How many times to shuffle the labels and train anew, to see which error chance gives: 19
        for a smallest p value of 0.05, 99 for 0.01. With `group_key`, labels are shuffled within
        groups, or, where each group has one class, between them.
    n_components, placement, use_rep, layer, use_raw, mask_var, unlabeled_category, missing, device
        As in `centroid_encoder`.
    model
        As in `centroid_encoder`. Its own ``random_state`` has no effect. Default: the settings of
        the map of the same labels that is stored under `key_added`, if there is one; else those of
        `CentroidEncoder`.
    key_added
        Name k for the results in ``uns["k_cv"]`` and ``obs["k_cv_…"]``. Default: ``"ce"``.
    n_jobs
        How many trainings run at once; −1 is one for each core. The results are the same within
        rounding. Default: 1, or the setting of a ``joblib.parallel_config`` around the call.
    random_state
        Seed of everything. Each training's seed comes from its place alone: a run with more repeats
        or permutations contains the same ones.
    progress
        Show a progress bar.
    copy
        Return a changed copy instead of changing `adata`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obs["ce_cv_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Out-of-fold predicted class of every cell, with the categories of `label_key`.
        ``adata.obs["ce_cv_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Its probability.
        ``adata.obs["ce_cv_own"]`` : :class:`pandas.Series` (dtype ``float32``)
            Out-of-fold probability of the cell's own label; NaN for cells without one.
        ``adata.uns["ce_cv"]`` : :class:`dict`
            ``quality`` (mean of each error over all folds, and ``…_sd``, its standard deviation
            over them; ``calibration_error`` and its 95 % interval, as of `centroid_encoder`);
            ``errors`` (a DataFrame, one row a fold); ``per_class`` (a DataFrame); ``classes``;
            ``confusion`` (n_classes × n_classes, cells of the row's class that were taken for the
            column's); ``permutation`` (``observed`` error, ``errors`` under shuffled labels,
            ``p_value``); ``warnings`` (sentences, which are logged as well); ``params``;
            ``model`` (the settings, as JSON).

    Raises
    ------
    KeyError
        If a key does not exist.
    TypeError
        If the label column holds measurements rather than classes, or if an argument is of
        another kind, such as the path of a file.
    ValueError
        If the data cannot be used as they are, or cannot be divided into so many folds. `adata` is
        then as it was.
    RuntimeError
        If a process in which trainings were done has died.

    Notes
    -----
    Errors are shares in [0, 1]: ``knn`` (5 neighbours in the embedding, the paper's measure),
    ``voronoi``, ``decoder``; ``input_knn``, 5 neighbours in the standardised input space of the
    same networks (of at most 10,000 cells, for at most 2,000 of a fold), says what the embedding
    loses; ``chance`` is that of naming the largest class. With ``balanced_`` every class counts the
    same.

    The calibration of a fold's probabilities is fitted to the other folds' out-of-fold distances.

    The permutation test is on the k-NN error of the first repeat, over as many folds as hold 500
    cells (all of them in small data): counted in the same way on the real and on the shuffled
    labels, for each of which the networks are trained anew.

    ``joblib.parallel_config(backend="dask")``, or ``"ray"``, spreads the trainings over a
    cluster. Workers share a copy of the data in memory, and each adds what a training makes of it.
    Of several GPUs each training takes the next one; several small ones fit on one.

    Ctrl-C leaves `adata` as it was, and no process behind.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.cross_validate(adata, "bulk_labels", progress=False)
    >>> adata.uns["ce_cv"]["quality"]["knn_error"] < 0.3
    True
    """
    del progress, copy  # of these `from_job` takes care
    key = result_key(key_added)
    check_not_replaced(label_key, obs_key(cv_key(key), "label"))
    Number(2, integer=True, instead=(None,)).check("n_folds", n_folds)
    Number(1, integer=True, below=MOST_TRAININGS).check("n_repeats", n_repeats)
    Number(0, integer=True, below=MOST_TRAININGS).check("n_permutations", n_permutations)
    Number(-math.inf, integer=True, instead=(None,)).check("n_jobs", n_jobs)
    if n_jobs == 0:
        raise InputError(
            "{} is no number of trainings at once; −1 is all cores", Setting("n_jobs", 0)
        )
    cells = read_cells(
        adata,
        label_key,
        use_rep,
        layer,
        use_raw,
        mask_var,
        unlabeled_category,
        missing,
        group_key,
    )
    mapped = StoredMap.read(adata, key)
    if model is None and mapped is not None and is_of_same_labels(mapped, label_key):
        # Its device may be one of another machine.
        model = fitted_model(adata, key, device="cpu").set_params(device="auto")
        logger.info("    with the settings of the map %r", key)
    job = CrossValidation(
        cells,
        configured(model, n_components=n_components, placement=placement, device=device),
        key,
        n_folds=n_folds,
        n_repeats=int(n_repeats),
        n_permutations=int(n_permutations),
        n_jobs=n_jobs,
        random_state=random_state,
    )
    job.doubt(doubts(adata, cells, job.plan.n_folds))
    if mapped is not None and (differing := job.differing(mapped)):
        text = "the map {!r} is of other settings (against those here): {}"
        job.notices.append(Message(text, key, differing))
    return job


class CrossValidation(Job):
    """A cross-validation: whatever is fitted is fitted to the other folds' cells.

    Parameters are those of `cross_validate`; the estimator is not fitted.

    Attributes
    ----------
    n_jobs
        How many trainings are done at once.
    plan
        The trainings.
    doubts
        Those of the notices that are stored with the results.
    """

    _cells: Cells

    def __init__(
        self,
        cells: Cells,
        estimator: CentroidEncoder,
        key: str,
        *,
        n_folds: int | None,
        n_repeats: int,
        n_permutations: int,
        n_jobs: int | None,
        random_state: int | np.random.Generator,
    ) -> None:
        super().__init__(cells, key, cells.notices)
        self.n_jobs = n_jobs
        self._estimator = estimator
        self._codes = cells.kept_codes
        self._labeled = np.flatnonzero(self._codes >= 0)
        n_folds = self._possible_folds(n_folds)
        self.plan = Plan(
            estimator=estimator,
            class_weight=self._weight_of_codes(),
            n_classes=len(cells.classes),
            n_folds=n_folds,
            n_repeats=n_repeats,
            n_permutations=n_permutations,
            # As many as tell an error, no more.
            n_counted=min(n_folds, -(-N_COUNTED * n_folds // len(self._labeled))),
            seed=draw_seed(random_state),
        )
        self._check_folds()
        self._params = {
            **cells.params,
            "n_repeats": n_repeats,
            "n_permutations": n_permutations,
            **as_recorded(random_state),
            "n_folds": n_folds,
        }
        self._model = json.dumps(params_to(estimator.get_params(deep=False)))
        self.doubts: list[Message] = []

    def doubt(self, found: list[Message]) -> None:
        """Warn of what makes the results say less than it seems; this is stored with them."""
        self.doubts += found
        self.notices += found

    def _compute(
        self, stop: Callable[[], bool], snapshot: Callable[[], bool]
    ) -> Generator[Report | Progress, None, Results]:
        """Train all networks, then compute all results.

        There is no half a cross-validation: whatever stops it ends it.
        """
        del snapshot
        found = yield from trained(self._data, self.plan, self.n_jobs, stop)
        return self._found(found)

    def differing(self, mapped: StoredMap) -> Message | None:
        """Say in which settings the networks differ from a map; None if in none."""
        return differing_settings(mapped, self._params, self._model)

    @property
    def _data(self) -> Data:
        groups = self._cells.groups
        # `read_cells` has read it into memory.
        X = cast(Matrix, self._cells.X)
        return Data(X, self._codes, None if groups is None else groups[self._cells.kept])

    @property
    def suitable_jobs(self) -> int:
        """How many trainings at once make the most of this machine, for whoever does not know.

        As many as there are cores or, where it trains on GPUs, as those; 1 of little work.
        """
        kind = resolve_device(self._estimator.device).type
        if len(self.plan.places) * len(self._codes) < N_WORTHWHILE or kind == "mps":
            return 1
        return torch.cuda.device_count() if kind == "cuda" else int(joblib.cpu_count())

    def _possible_folds(self, n_folds: int | None) -> int:
        most = int(np.bincount(self._codes[self._labeled]).max())
        what = f"the largest class has {most} cells"
        groups = self._data.groups
        if groups is not None:
            most = len(np.unique(groups[self._labeled]))
            what = f"obs[{self._cells.params['group_key']!r}] has {most} groups"
        if n_folds is None:
            n_folds = max(2, min(N_FOLDS, most))
        if n_folds > most:
            raise InputError("{} is too many: {}", Setting("n_folds", n_folds), what)
        return int(n_folds)

    def _check_folds(self) -> None:
        """Find out now whether some training would be left with a single class."""
        for repeat in range(self.plan.n_repeats):
            folds = self.plan.divide(self._data, 0, repeat)
            for i in range(self.plan.n_folds):
                rest = self._labeled[folds[self._labeled] != i]
                if len(np.unique(self._codes[rest])) < 2:
                    group_key = self._cells.params.get("group_key")
                    by = "" if group_key is None else f" by obs[{group_key!r}]"
                    raise InputError(
                        f"with {self.plan.n_folds} folds{by}, a training would have cells of one "
                        "class only; too few cells, or groups that are classes"
                    )

    def _weight_of_codes(self) -> object:
        """Class weights by index: a fold's network knows its classes by that."""
        weights, classes = self._estimator.class_weight, self._cells.classes
        if not isinstance(weights, Mapping):
            return weights
        unknown = [label for label in weights if label not in classes]
        if unknown:
            raise InputError(
                "{} names {!r}, which is not among the classes", Setting("class_weight"), unknown[0]
            )
        return {code: weights[name] for code, name in enumerate(classes) if name in weights}

    def _found(self, found: Mapping[Place, Found]) -> Results:
        cells, codes, n_classes = self._cells, self._codes, len(self._cells.classes)
        plan = self.plan
        repeats = [
            [cast(Fold, found[Place(0, repeat, i)]) for i in range(plan.n_folds)]
            for repeat in range(plan.n_repeats)
        ]
        pooled = Pooled.of(repeats, codes, n_classes)
        probabilities, labeled = pooled.probabilities, self._labeled
        predicted = probabilities.argmax(axis=1)
        confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
        np.add.at(confusion, (codes[labeled], predicted[labeled]), 1)
        test = None
        if plan.n_permutations:
            counted = repeats[0][: plan.n_counted]
            observed = _mean([fold.knn != codes[fold.cells] for fold in counted])
            null = np.array(
                [
                    _mean([found[Place(permutation, 0, i)] for i in range(plan.n_counted)])
                    for permutation in range(1, plan.n_permutations + 1)
                ]
            )
            test = PermutationTest(observed, null, permutation_p_value(observed, null))
        per_class = pd.DataFrame(
            {
                "class": [str(name) for name in cells.classes],
                "n": np.bincount(codes[labeled], minlength=n_classes),
                **{f"{rule}_error": pooled.class_errors[rule] for rule in RULES},
                "n_predicted": confusion.sum(axis=0),
            }
        )
        self.doubt(missing_classes(per_class, "the networks take"))
        stored = StoredCrossValidation(
            params=self._params,
            classes=cells.classes,
            confusion=confusion,
            quality=pooled.quality(codes),
            per_class=per_class,
            errors=pooled.errors,
            warnings=tuple(map(str, self.doubts)),
            permutation=test,
            model=self._model,
        )
        own = np.where(codes < 0, np.nan, probabilities[np.arange(len(codes)), codes])
        columns: dict[Column, Any] = {
            "label": cells.labels_of(predicted),
            "confidence": cells.spread(probabilities.max(axis=1)),
            "own": cells.spread(own),
        }
        name = cv_key(self.key)
        return {
            "obs": {obs_key(name, column): values for column, values in columns.items()},
            "uns": {name: stored.to_uns()},
        }


def _mean(misses: Sequence[Any]) -> float:
    """Share of misses among the cells of some folds."""
    return float(np.concatenate(misses).mean())
