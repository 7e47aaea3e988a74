"""What all computations on an AnnData share: input checked first, results written at the end."""

from __future__ import annotations

import inspect
import logging
import numbers
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

import numpy as np
import pandas as pd
from sklearn.base import clone

from centroid_encoder.core.reports import Report, never
from centroid_encoder.errors import InputError, InputTypeError, Message, Setting, check_name
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import near_matches
from centroid_encoder.tl._lazy import is_half
from centroid_encoder.tl._log import shown_as_scanpy
from centroid_encoder.tl._matrix import Source
from centroid_encoder.tl._names import check_key

with warnings.catch_warnings():
    # In a notebook without ipywidgets the bar is made of text, which works as well.
    warnings.filterwarnings("ignore", "IProgress not found")
    from tqdm.auto import tqdm

if TYPE_CHECKING:
    from anndata import AnnData

logger = logging.getLogger("centroid_encoder")


@dataclass(frozen=True)
class Progress:
    """How many of the cells, or of whatever it is, are through."""

    n_done: int
    n_total: int
    unit: str = "cell"


Results = Mapping[str, Mapping[str, Any]]
"""``obs``, ``obsm`` and ``uns``: what is to be written there."""


class Job(ABC):
    """A computation on an AnnData in three steps, of which the second may run in a thread.

    Making it reads the AnnData and checks the input; `steps` computes and touches no AnnData;
    `write` puts the results in.

    Attributes
    ----------
    key
        Where the results will be: ``uns[key]``, ``obs[f"{key}_…"]``, and the like.
    notices
        What to warn of; `steps` may add to it.
    obs_names
        The cells.
    """

    def __init__(self, cells: Source, key: str, notices: Iterable[Message]) -> None:
        self._started = time.perf_counter()
        self._cells = cells
        self.key, self.notices, self.obs_names = key, list(notices), cells.obs_names
        self._results: Results | None = None

    def detach(self) -> None:
        """Compute on a copy of the matrix, so that the AnnData may be changed meanwhile.

        Until this is called, which the thread may do, the matrix is the AnnData's.
        """
        self._cells = self._cells.detached()

    def steps(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Report | Progress, None, None]:
        """Compute everything, step by step.

        Parameters
        ----------
        stop
            Asked again and again; True ends the computation, and keeps the best state so far where
            there is one.
        snapshot
            Asked after every epoch; True puts the embedding into the report.

        Yields
        ------
        Report | Progress
            A report for every epoch of a training; progress where nothing is trained, or many
            things at once.

        Raises
        ------
        StoppedTooEarly
            If `stop` ended it and there is nothing to keep.
        KeyboardInterrupt
            If it arrived and there is nothing to keep.
        """
        self._results = yield from self._compute(stop, snapshot)

    @abstractmethod
    def _compute(
        self, stop: Callable[[], bool], snapshot: Callable[[], bool]
    ) -> Generator[Report | Progress, None, Results]:
        """Do what `steps` says, and return the results."""

    def write(self, adata: AnnData) -> None:
        """Write all results into `adata`, or, if anything fails, nothing.

        Raises
        ------
        RuntimeError
            If the computation has not been run to its end.
        ValueError
            If `adata` no longer has the cells that were read.
        """
        if self._results is None:
            raise RuntimeError("nothing to write: the job has not ended")
        if not adata.obs_names.equals(self.obs_names):
            raise InputError(
                "the cells of adata have changed since they were read: the results, which belong "
                "to the cells that were there, are not written"
            )
        write_results(adata, self._results)
        logger.info(
            "    finished (%.1f s): added\n    %s",
            time.perf_counter() - self._started,
            "\n    ".join(
                f"{', '.join(map(repr, values))} (adata.{name})"
                for name, values in self._results.items()
            ),
        )


P = ParamSpec("P")
J = TypeVar("J", bound=Job)
J_co = TypeVar("J_co", bound=Job, covariant=True)


class Tool(Protocol[P, J_co]):
    """A function that does a job at once."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AnnData | None:
        """Do the job and write the results."""

    @property
    def job(self) -> Callable[P, J_co]:
        """Function of the same parameters that returns the job, with all input checked."""


def from_job(prepare: Callable[P, J]) -> Tool[P, J]:
    """Turn a function that returns a job into one that does the job; ``.job`` is the former.

    Parameters
    ----------
    prepare
        Checks its input and returns the job. Among its parameters are ``adata``; ``progress``, to
        show a progress bar; and ``copy``, to write into a copy of `adata` and to return that.
    """
    signature = inspect.signature(prepare).replace(return_annotation="AnnData | None")

    @wraps(prepare)
    def tool(*args: P.args, **kwargs: P.kwargs) -> AnnData | None:
        check_names(prepare.__name__, kwargs, signature)
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        adata, progress, copy = (given.arguments[name] for name in ("adata", "progress", "copy"))
        check_writable(adata, copy=copy)
        with shown_as_scanpy():
            job = prepare(*args, **kwargs)
            drain(job, progress=progress)
            if copy:
                adata = adata.to_memory() if adata.isbacked else adata.copy()
            job.write(adata)
        return adata if copy else None

    tool.__annotations__ = {**prepare.__annotations__, "return": "AnnData | None"}
    tool.__dict__.update(job=prepare, __signature__=signature)
    return cast("Tool[P, J]", tool)


def check_names(function: str, names: Iterable[str], signature: inspect.Signature) -> None:
    """Refuse a parameter that a tool does not have, and say where there is one of that name."""
    for name in names:
        if name in signature.parameters:
            continue
        if (
            "model" in signature.parameters
            and name in inspect.signature(CentroidEncoder).parameters
        ):
            remedy = f"; it is one of the network: pass model=ce.CentroidEncoder({name}=…)"
        else:
            remedy = near_matches(name, signature.parameters)
        raise TypeError(f"{function}() has no parameter {name!r}{remedy}")


def log(notice: Message) -> None:
    """Log what a job warns of, in the words of Python."""
    logger.warning("%s", notice)


class Steps(Protocol):
    """What can be run to its end: a job, or what makes a table."""

    notices: list[Message]

    def detach(self) -> None:
        """Compute on a copy of what may be changed meanwhile."""

    def steps(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Report | Progress, None, None]:
        """Compute everything, step by step."""


def drain(job: Steps, *, progress: bool, tell: Callable[[Message], None] = log) -> None:
    """Run a job to its end, with a progress bar if that is wanted.

    `tell` is given the job's notices: those that are there before it runs, and the others after
    it. Ctrl-C is left to the job: a training keeps its best state so far, if it has one.
    """
    n_told = len(job.notices)
    for notice in job.notices:
        tell(notice)
    try:
        _drain(job, progress=progress)
    finally:
        for notice in job.notices[n_told:]:
            tell(notice)


def _drain(job: Steps, *, progress: bool) -> None:
    steps = job.steps()
    with tqdm(disable=not progress) as bar:
        try:
            for step in steps:
                if isinstance(step, Progress):
                    bar.unit, bar.total, n_done = step.unit, step.n_total, step.n_done
                else:
                    bar.unit, bar.total, n_done = "epoch", step.n_steps, step.step
                    bar.set_description(step.stage, refresh=False)
                    bar.set_postfix(loss=f"{step.loss:.3f}", refresh=False)
                # A training that stops early makes a leap.
                bar.update(n_done - bar.n)
        except KeyboardInterrupt:
            # If it struck between two steps, the job has yet to hear of it; if it struck within
            # one and nothing could be kept, this raises it again.
            with suppress(StopIteration):
                steps.throw(KeyboardInterrupt())


def result_key(key_added: str | None) -> str:
    """Return the key of the results; refuse names that mean something else on disk."""
    check_name(key_added, "key_added", "a result", str | None)
    if key_added is None:
        return "ce"
    check_key(key_added, Setting("key_added"))
    return key_added


def check_not_replaced(label_key: object, *written: str) -> None:
    """Refuse labels in a column of ``obs`` where the results will be written."""
    check_name(label_key, "label_key", "a column of obs")
    if label_key in written:
        raise InputError(
            "obs[{!r}] would be replaced by what comes of it; choose other labels, or another name "
            "({})",
            label_key,
            Setting("key_added"),
        )


def check_writable(adata: AnnData, *, copy: bool) -> None:
    """Refuse what is no AnnData, or one that cannot take results."""
    if not hasattr(adata, "obs_names"):
        remedy = (
            "read a file with anndata.read_h5ad (or read_zarr) first"
            if isinstance(adata, str | os.PathLike)
            else "for arrays and tables there is CentroidEncoder().fit(X, y)"
        )
        raise InputTypeError(f"an AnnData is needed, not {type(adata).__name__}; {remedy}")
    if adata.is_view and adata.isbacked and not copy:
        raise InputError(
            "adata is a view of a file on disk, which cannot take results; pass "
            "adata.to_memory(), or {} for a copy in memory",
            Setting("copy", True),
        )
    if copy or adata.is_view:
        _check_copied(adata)


def _check_copied(adata: AnnData) -> None:
    """Refuse what scipy will not copy, before any work."""
    whole = adata._adata_ref if adata.is_view else adata
    held = {"X": None if whole.isbacked else whole.X}
    for slot in ("layers", "obsm"):
        entries = getattr(whole, slot).items()
        # anndata 0.13 counts X among the layers, by the name None.
        held |= {f"{slot}[{name!r}]": X for name, X in entries if name is not None}
    for where, X in held.items():
        if is_half(X):
            raise InputError(
                "{} is sparse and of half precision, which scipy does not copy; first set it to "
                "its own astype('float32')",
                where,
            )


def write_results(adata: AnnData, results: Results) -> None:
    """Write all results, or leave `adata` as it was."""
    if adata.is_view:
        # A view becomes a copy when it is written to; here only once the copy is complete.
        actual = adata.copy()
        write_results(actual, results)
        adata._init_as_actual(actual)
        return
    if not isinstance(adata.obs, pd.DataFrame):
        # Columns of a table that lies on a disk are not what figures take.
        adata.obs = adata.obs.to_memory()
    absent = object()
    written: list[tuple[Any, str, Any]] = []
    try:
        for slot, values in results.items():
            mapping = getattr(adata, slot)
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


def configured(model: CentroidEncoder | None, **asked: Any) -> CentroidEncoder:
    """Return an unfitted copy of the estimator with what was asked for besides; None is nothing."""
    if not isinstance(model, CentroidEncoder | None):
        raise InputTypeError(
            "{} must be a CentroidEncoder; got {}", Setting("model"), type(model).__name__
        )
    estimator: CentroidEncoder = CentroidEncoder() if model is None else clone(model)
    estimator.set_params(**{name: value for name, value in asked.items() if value is not None})
    return estimator


def as_recorded(random_state: int | np.random.Generator) -> dict[str, Any]:
    """Return the entry of ``uns[key]["params"]`` for a seed; a generator has none."""
    if not isinstance(random_state, numbers.Integral):
        return {}
    return {"random_state": int(random_state)}
