"""Jobs on an AnnData: all input is checked first; all results are written at the end, or none."""

from __future__ import annotations

import inspect
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

import pandas as pd
from anndata import AnnData
from sklearn.base import clone

from centroid_encoder.checks import Number
from centroid_encoder.core.matrix import Lazy
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.errors import InputTypeError, check, check_name, issue_warning
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tables import Column, colors_key, embedding_key, obs_key, plain_key
from centroid_encoder.tl._check import check_key, check_read, logger, near_matches
from centroid_encoder.tl._result import Stored, color_predictions, label_categories

with warnings.catch_warnings():
    # Without ipywidgets, a notebook shows the bar as text.
    warnings.filterwarnings("ignore", "IProgress not found")
    from tqdm.auto import tqdm

if TYPE_CHECKING:
    from centroid_encoder.tl._measure import Measurement


@dataclass(frozen=True)
class Progress:
    """How many cells, or other units, a job has finished."""

    n_done: int
    n_total: int
    unit: str = "cell"


Callback = Callable[[Report | Progress | None], bool]
"""Called with a `Report` after each epoch, with `Progress` after other steps, and with None in
between. The job stops if it returns True."""

Results = Mapping[str, Mapping[str, Any]]
"""Entries to write, by slot: ``obs``, ``var``, ``obsm`` and ``uns``; those that are None are
deleted."""


OTHER_NAMES = {
    **dict.fromkeys(("batch_key", "batch", "donor_key", "sample_key", "groups"), "group_key"),
    **dict.fromkeys(("groupby", "labels", "labels_key", "target"), "label_key"),
    **dict.fromkeys(("seed", "random_seed", "rng"), "random_state"),
    **dict.fromkeys(("n_epochs", "epochs"), "max_epochs"),
    **dict.fromkeys(("n_splits", "cv"), "n_folds"),
    **dict.fromkeys(("obsm", "obsm_key", "rep"), "use_rep"),
    **dict.fromkeys(("lr", "learning_rate_init"), "learning_rate"),
    "n_comps": "n_components",
    "verbose": "progress",
    "inplace": "copy",
}
"""Names that other packages give to our parameters."""


def check_stop(callback: Callback, step: Report | Progress | None) -> None:
    """Call a callback, and raise StoppedTooEarly if it returns True."""
    if callback(step):
        raise StoppedTooEarly


def count_epochs(callback: Callback, i: int, n: int, report: Report | None) -> bool:
    """Call a callback with the number of epochs of all `n` trainings, in training `i`."""
    step = None
    if report is not None and report.epoch:
        n_done, n_total = i * report.n_steps + report.step, n * report.n_steps
        step = Progress(n_done, n_total, "epoch")
    check_stop(callback, step)
    return False


@dataclass(eq=False)
class Job(ABC):
    """A computation with data that were read from an AnnData; it may run in a thread.

    `run` computes the `results`, and `write` adds them to the AnnData as ``uns[key]``,
    ``obs[f"{key}_…"]`` and the like. `notices` are warnings for the user; `run` may add some.
    """

    _cells: Any
    """Dataclass with `obs_names` and the matrix `X`, which may be that of the AnnData."""
    key: str
    notices: list[str]

    def __post_init__(self) -> None:
        self._started, self.obs_names = time.perf_counter(), self._cells.obs_names
        self.results: Results = {}

    def detach(self) -> None:
        """Copy the matrix, so that changes of the AnnData do not affect `run`."""
        if not isinstance(self._cells.X, Lazy):
            self._cells = replace(self._cells, X=self._cells.X.copy())

    def run(self, callback: Callback | None = None) -> None:
        """Compute the results; if `callback` returns True, a training stops at its best state.

        If there is no state to keep, StoppedTooEarly is raised, or KeyboardInterrupt after Ctrl-C.
        """
        from centroid_encoder.core.threads import one_thread

        with one_thread():
            self.results = self._compute(callback or (lambda _: False))

    @abstractmethod
    def _compute(self, callback: Callback) -> Results: ...

    def write(self, adata: AnnData) -> None:
        """Write all results into `adata`; if that fails, `adata` stays as it was."""
        if not self.results:
            raise RuntimeError("nothing to write: the job has not ended")
        text = "the cells of adata have changed since they were read, so no results are written"
        check(adata.obs_names.equals(self.obs_names), text)
        _write(adata, self.results)
        logger.info("    finished (%.1f s): added", time.perf_counter() - self._started)
        for slot, entries in self.results.items():
            written = [repr(name) for name, value in entries.items() if value is not None]
            logger.info("    %s (adata.%s)", ", ".join(written), slot)


P = ParamSpec("P")
J = TypeVar("J", bound=Job)


class Tool(Protocol[P, J]):
    """A function that runs a job and writes its results."""

    job: Callable[P, J]
    """Function with the same parameters that checks all input and returns the job without running
    it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AnnData | None: ...


def from_job(prepare: Callable[P, J]) -> Tool[P, J]:
    """Decorate a function that returns a job: the result runs that job and writes its results.

    `prepare` has the parameters ``adata``, ``progress`` (whether to show a progress bar) and
    ``copy`` (whether to write into a copy of `adata` and return it). It is the attribute ``job`` of
    the decorated function.
    """
    signature = inspect.signature(prepare).replace(return_annotation="AnnData | None")
    names = signature.parameters

    @wraps(prepare)
    def tool(*args: P.args, **kwargs: P.kwargs) -> AnnData | None:
        for name in kwargs.keys() - names.keys():
            ours = OTHER_NAMES.get(name, name)
            hint = f"; did you mean {ours!r}?" if ours in names else near_matches(name, names)
            if "model" in names and ours in CentroidEncoder().get_params().keys() - names.keys():
                hint = f"; it is one of the network: pass model=ce.CentroidEncoder({ours}=…)"
            raise TypeError(f"{prepare.__name__}() has no parameter {name!r}{hint}")
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        adata, progress, copy = (given.arguments[name] for name in ("adata", "progress", "copy"))
        check_read(adata)
        text = "results cannot be written to a view of a file; pass adata.to_memory(), or copy=True"
        check(copy or not (adata.is_view and adata.isbacked), text, "copy")
        job = prepare(*args, **kwargs)
        run_job(job, progress=progress)
        if copy:
            adata = adata.to_memory() if adata.isbacked else adata.copy()
        job.write(adata)
        return adata if copy else None

    tool.__dict__.update(job=prepare, __signature__=signature)
    return cast("Tool[P, J]", tool)


def results_of(
    key: str, stored: Stored, columns: Mapping[Column, Any], embedding: Any, probabilities: Any
) -> dict[str, dict[str, Any]]:
    """Return the results under a key; a cross-validation has no embedding."""
    obs = {obs_key(key, name): values for name, values in columns.items()}
    obs[obs_key(key, "map")] = pd.Categorical([stored.id] * len(columns["label"]))
    obsm = {} if embedding is None else {embedding_key(key): embedding}
    obsm[obs_key(key, "probabilities")] = probabilities
    return {"obs": obs, "obsm": obsm, "uns": {key: stored.to_uns()}}


def warn_user(notice: str) -> None:
    """Log a notice and warn at the line where the user called a function of `tl`."""
    logger.warning("%s", notice)
    # Three frames lie between: this function, `run_job` and the function of `tl`.
    issue_warning(notice, stacklevel=4)


def run_job(
    job: Job | Measurement, *, progress: bool, warn: Callable[[str], None] = warn_user
) -> None:
    """Run a job, and call `warn` with each of its notices; `progress` shows a progress bar."""
    n_known = len(job.notices)
    for notice in job.notices:
        warn(notice)
    with tqdm(disable=not progress) as bar:

        def show(step: Report | Progress | None) -> bool:
            if isinstance(step, Progress):
                bar.unit, bar.total, n_done = step.unit, step.n_total, step.n_done
            elif step is not None and step.epoch:
                bar.unit, bar.total, n_done = "epoch", step.n_steps, step.step
                bar.set_description(step.stage, refresh=False)
                bar.set_postfix(loss=f"{step.loss:.3f}", refresh=False)
            else:
                return False
            bar.update(n_done - bar.n)
            return False

        job.run(show)
    for notice in job.notices[n_known:]:
        warn(notice)


def result_key(key_added: str | None) -> str:
    """Return the name of the results; raise an InputError if files cannot hold it."""
    key = "ce" if key_added is None else key_added
    check_name(key, "key_added", "a result")
    check_key(key, "key_added")
    return plain_key(key)


def check_not_replaced(label_key: object, *written: str) -> None:
    """Raise an InputError if the label column is among the columns `written` by the job."""
    check_name(label_key, "label_key", "a column of obs")
    text = f"obs[{label_key!r}] would be replaced by the results; pass another key_added"
    check(label_key not in written, text, "key_added")


def _write(adata: AnnData, results: Results) -> None:
    """Write all results, or leave `adata` as it was if an error occurs."""
    # The results are written to a copy of a view, which then takes the place of the view.
    target = adata.copy() if adata.is_view else adata
    before = (
        *(target.obs.copy(deep=False), target.var.copy(deep=False)),
        *(dict(target.obsm), dict(target.uns)),
    )
    try:
        for name, value in results.get("obs", {}).items():
            text = f"obs has several columns {name!r}; rename or drop all but one"
            check(list(target.obs).count(name) < 2, text)
            is_new = isinstance(value, pd.Categorical) and name in target.obs
            if is_new and not value.categories.equals(label_categories(target.obs[name])):
                target.uns.pop(colors_key(name), None)  # colours of other categories
        is_own = any(
            value is not None and name in before[-1] for name, value in results["uns"].items()
        )
        for slot, entries in results.items():
            for name, value in entries.items():
                if value is not None:
                    getattr(target, slot)[name] = value
                elif name in getattr(target, slot) and (is_own or slot == "uns"):
                    # A part of an earlier result of the same name.
                    del getattr(target, slot)[name]
        for stored in results["uns"].values():
            params = stored.get("params", {}) if isinstance(stored, Mapping) else {}
            if "label_key" in params:
                color_predictions(target, params["label_key"])
    except BaseException:
        target.obs, target.var, target.obsm, target.uns = before
        raise
    if target is not adata:
        adata._init_as_actual(target)


def configured(
    model: CentroidEncoder | None, settings: Mapping[str, Any], max_cells: int | None
) -> CentroidEncoder:
    """Return an unfitted copy of the estimator with those of the settings that are not None."""
    Number(2, integer=True, instead=(None,)).check("max_cells", max_cells)
    text = f"model must be a CentroidEncoder; got {type(model).__name__}"
    check(isinstance(model, CentroidEncoder | None), text, "model", InputTypeError)
    estimator: CentroidEncoder = CentroidEncoder() if model is None else clone(model)
    given = {**settings, "max_samples": max_cells}
    estimator.set_params(**{name: value for name, value in given.items() if value is not None})
    return estimator
