"""Jobs on an AnnData: input is checked first, results are written at the end or not at all."""

from __future__ import annotations

import inspect
import logging
import numbers
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

import numpy as np
from sklearn.base import clone

from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.errors import CentroidEncoderWarning, InputError, InputTypeError, check_name
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._read import Source, check_key, near_matches

with warnings.catch_warnings():
    # Without ipywidgets, a notebook shows the bar as text.
    warnings.filterwarnings("ignore", "IProgress not found")
    from tqdm.auto import tqdm

if TYPE_CHECKING:
    from anndata import AnnData

logger = logging.getLogger("centroid_encoder")
# Without a handler, Python would print each warning a second time.
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Progress:
    """Number of cells, or of other units, that are done."""

    n_done: int
    n_total: int
    unit: str = "cell"


Callback = Callable[[Report | Progress | None], bool]
"""Called with a `Report` after each epoch, with `Progress` after other steps and with None in
between; True stops the job."""


def check_stop(callback: Callback, step: Report | Progress | None) -> None:
    """Call a callback, and raise StoppedTooEarly if it returns True."""
    if callback(step):
        raise StoppedTooEarly


Results = Mapping[str, Mapping[str, Any]]
"""Entries to write, by slot: ``obs``, ``obsm`` and ``uns``."""


class Runnable(Protocol):
    """A `Job`, or the measurement of cells, which makes a new AnnData."""

    notices: list[str]

    def detach(self) -> None:
        """Copy the input, so that it may change during `run`."""

    def run(self, callback: Callback | None = None) -> None:
        """Compute everything."""


class Job(ABC):
    """A computation on an AnnData in three steps; the second one may run in a thread.

    The constructor reads the AnnData and checks the input, `run` computes without the AnnData, and
    `write` adds the results to it.

    The results are ``uns[key]``, ``obs[f"{key}_…"]`` and the like. `notices` are what the user
    should know about data and results; `run` may add to them.
    """

    def __init__(self, cells: Source, key: str, notices: Iterable[object]) -> None:
        self._started = time.perf_counter()
        self._cells = cells
        self.key, self.obs_names = key, cells.obs_names
        self.notices = [str(notice) for notice in notices]
        self._results: Results | None = None

    def detach(self) -> None:
        """Copy the matrix, so that the AnnData may change during `run`."""
        self._cells = self._cells.detached()

    def run(self, callback: Callback | None = None) -> None:
        """Compute everything; if `callback` returns True, a training stops with its best state.

        Raises StoppedTooEarly, or KeyboardInterrupt after Ctrl-C, if there is nothing to keep.
        """
        self._results = self._compute(callback or (lambda _: False))

    @abstractmethod
    def _compute(self, callback: Callback) -> Results:
        """Return the results."""

    def write(self, adata: AnnData) -> None:
        """Write all results into `adata`; if that fails, `adata` stays as it was."""
        if self._results is None:
            raise RuntimeError("nothing to write: the job has not ended")
        if not adata.obs_names.equals(self.obs_names):
            text = "the cells of adata have changed since they were read: no results are written"
            raise InputError(text)
        write_results(adata, self._results)
        results = self._results.items()
        added = [f"{', '.join(map(repr, entries))} (adata.{slot})" for slot, entries in results]
        seconds = time.perf_counter() - self._started
        logger.info("    finished (%.1f s): added\n    %s", seconds, "\n    ".join(added))


P = ParamSpec("P")
J = TypeVar("J", bound=Job)
J_co = TypeVar("J_co", bound=Job, covariant=True)


class Tool(Protocol[P, J_co]):
    """A function that runs a job and writes its results."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AnnData | None:
        """Run the job and write the results."""

    @property
    def job(self) -> Callable[P, J_co]:
        """Function with the same parameters that checks all input and returns the job."""


def from_job(prepare: Callable[P, J]) -> Tool[P, J]:
    """Turn a function that returns a job into one that runs it; ``.job`` is the former.

    `prepare` has the parameters ``adata``, ``progress`` (whether to show a progress bar) and
    ``copy`` (whether to write into a copy of `adata` and return that).
    """
    signature = inspect.signature(prepare).replace(return_annotation="AnnData | None")

    @wraps(prepare)
    def tool(*args: P.args, **kwargs: P.kwargs) -> AnnData | None:
        check_names(prepare.__name__, kwargs, signature)
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        adata, progress, copy = (given.arguments[name] for name in ("adata", "progress", "copy"))
        check_writable(adata, copy=copy)
        job = prepare(*args, **kwargs)
        run_job(job, progress=progress)
        if copy:
            adata = adata.to_memory() if adata.isbacked else adata.copy()
        job.write(adata)
        return adata if copy else None

    tool.__annotations__ = {**prepare.__annotations__, "return": "AnnData | None"}
    tool.__dict__.update(job=prepare, __signature__=signature)
    return cast("Tool[P, J]", tool)


def check_names(function: str, names: Iterable[str], signature: inspect.Signature) -> None:
    """Refuse a parameter that a function does not have, with a hint at the right one."""
    for name in names:
        if name in signature.parameters:
            continue
        hint = near_matches(name, signature.parameters)
        if "model" in signature.parameters and name in CentroidEncoder().get_params():
            hint = f"; it is one of the network: pass model=ce.CentroidEncoder({name}=…)"
        raise TypeError(f"{function}() has no parameter {name!r}{hint}")


def warn_user(notice: str) -> None:
    """Log a notice and warn at the line where the user called a function of `tl`."""
    logger.warning("%s", notice)
    # This function, `run_job` and the function of `tl` lie between.
    warnings.warn(notice, CentroidEncoderWarning, stacklevel=4)


def run_job(job: Runnable, *, progress: bool, warn: Callable[[str], None] = warn_user) -> None:
    """Run a job, with a progress bar if `progress`, and call `warn` with each of its notices."""
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
    """Return the name of the results; refuse names that no file can hold."""
    check_name(key_added, "key_added", "a result", str | None)
    if key_added is None:
        return "ce"
    check_key(key_added, "key_added")
    return key_added


def check_not_replaced(label_key: object, *written: str) -> None:
    """Refuse labels in a column of ``obs`` where the results will be written."""
    check_name(label_key, "label_key", "a column of obs")
    if label_key in written:
        raise InputError(
            f"obs[{label_key!r}] would be replaced by the results; choose other labels, or another "
            "name (key_added)",
            parameter="key_added",
        )


def check_writable(adata: AnnData, *, copy: bool) -> None:
    """Refuse objects that are not an AnnData, or an AnnData that cannot take results."""
    if not hasattr(adata, "obs_names"):
        remedy = "for arrays and tables there is CentroidEncoder().fit(X, y)"
        if isinstance(adata, str | os.PathLike):
            remedy = "read a file with anndata.read_h5ad (or read_zarr) first"
        raise InputTypeError(f"an AnnData is needed, not {type(adata).__name__}; {remedy}")
    if adata.is_view and adata.isbacked and not copy:
        raise InputError(
            "adata is a view of a file on disk, which cannot take results; pass "
            "adata.to_memory(), or copy=True for a copy in memory",
            parameter="copy",
        )


def write_results(adata: AnnData, results: Results) -> None:
    """Write all results, or leave `adata` as it was."""
    if adata.is_view:
        # The view becomes a copy only when the copy is complete.
        actual = adata.copy()
        write_results(actual, results)
        adata._init_as_actual(actual)
        return
    absent = object()
    written: list[tuple[Any, str, Any]] = []
    try:
        for slot, entries in results.items():
            mapping = getattr(adata, slot)
            for name, value in entries.items():
                written.append((mapping, name, mapping.get(name, absent)))
                mapping[name] = value
    except BaseException:
        for mapping, name, before in reversed(written):
            if before is not absent:
                mapping[name] = before
            elif name in mapping:
                del mapping[name]
        raise


def configured(model: CentroidEncoder | None, **params: Any) -> CentroidEncoder:
    """Return an unfitted copy of the estimator, with the parameters that are not None changed."""
    if not isinstance(model, CentroidEncoder | None):
        raise InputTypeError(
            f"model must be a CentroidEncoder; got {type(model).__name__}", parameter="model"
        )
    estimator: CentroidEncoder = CentroidEncoder() if model is None else clone(model)
    estimator.set_params(**{name: value for name, value in params.items() if value is not None})
    return estimator


def as_recorded(random_state: int | np.random.Generator) -> dict[str, Any]:
    """Return the entry of ``uns[key]["params"]`` for a seed; a generator has none."""
    if not isinstance(random_state, numbers.Integral):
        return {}
    return {"random_state": int(random_state)}
