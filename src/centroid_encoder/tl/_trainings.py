"""The trainings of a cross-validation: one after the other here, or many at once through joblib."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import clone

from centroid_encoder.core.fit import Fit
from centroid_encoder.core.map import Codes
from centroid_encoder.core.matrix import Matrix
from centroid_encoder.core.reports import Report, StoppedTooEarly, drained, never
from centroid_encoder.core.splits import cross_validation_folds, shuffled_labels
from centroid_encoder.errors import Advice, WorkerError
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._folds import Fold, misses
from centroid_encoder.tl._jobs import Progress
from centroid_encoder.tl._matrix import fill_missing

logger = logging.getLogger("centroid_encoder")

WATCHED = 0.1
"""Seconds between two questions whether to stop, while others train."""


class Place(NamedTuple):
    """Where a training stands among all; its seed comes from that alone."""

    permutation: int
    """0 for the real labels."""
    repeat: int
    fold: int


Found = Fold | NDArray[np.bool_]
"""What a training is for: a fold of the real labels, or which cells' neighbours are of another
class, of shuffled ones."""


@dataclass(frozen=True)
class Data:
    """Cells to train on. Workers get its parts one by one: that is how joblib shares arrays."""

    X: Matrix
    """(n, d), dense or CSR; missing values are filled in for each training."""
    codes: Codes
    """(n,) class of each cell; −1 for unlabeled ones."""
    groups: Codes | None
    """(n,) group of each cell, if there are groups."""


@dataclass(frozen=True)
class Plan:
    """What all trainings share but for the data: everything that is fitted comes from here."""

    estimator: CentroidEncoder
    """Not fitted."""
    class_weight: object
    """Its class weights, by index."""
    n_classes: int
    n_folds: int
    n_repeats: int
    n_permutations: int
    n_counted: int
    """Folds on which a permutation's error is counted."""
    seed: int

    @property
    def places(self) -> list[Place]:
        """All trainings, in the order in which they are done one after the other."""
        real = [Place(0, r, i) for r in range(self.n_repeats) for i in range(self.n_folds)]
        shuffled = [
            Place(permutation, 0, i)
            for permutation in range(1, self.n_permutations + 1)
            for i in range(self.n_counted)
        ]
        return real + shuffled

    def name(self, place: Place) -> str:
        """Return what a user reads of a training."""
        if place.permutation:
            return f"permutation {place.permutation} of {self.n_permutations}"
        repeat = f"repeat {place.repeat + 1} of {self.n_repeats}, " if self.n_repeats > 1 else ""
        return f"{repeat}fold {place.fold + 1} of {self.n_folds}"

    def seed_of(self, *place: int) -> int:
        """Return the seed of a place."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=place)
        return int(sequence.generate_state(1)[0])

    def shuffled(self, data: Data, permutation: int) -> Codes:
        """(n,) classes of a permutation: those of the labeled cells shuffled, or, for 0, not."""
        if not permutation:
            return data.codes
        codes, labeled = data.codes.copy(), np.flatnonzero(data.codes >= 0)
        groups = None if data.groups is None else data.groups[labeled]
        codes[labeled] = shuffled_labels(codes[labeled], self.seed_of(permutation), groups)
        return codes

    def divide(self, data: Data, permutation: int, repeat: int) -> Codes:
        """(n,) fold of each cell; −1 for unlabeled cells, which are in no fold."""
        codes, folds = self.shuffled(data, permutation), np.full(len(data.codes), -1)
        labeled = np.flatnonzero(codes >= 0)
        # A place that no training has.
        seed = self.seed_of(permutation, repeat, self.n_folds)
        groups = None if data.groups is None else data.groups[labeled]
        folds[labeled] = cross_validation_folds(codes[labeled], self.n_folds, seed, groups)
        return folds

    def train(
        self, data: Data, place: Place, stop: Callable[[], bool], device: str | None = None
    ) -> Generator[Report, None, Found]:
        """Train on all folds but one, and ask about the cells of that one.

        `device` is another than the estimator's. There is no half a cross-validation: whatever
        stops the training is raised.
        """
        codes = self.shuffled(data, place.permutation)
        held_out = self.divide(data, place.permutation, place.repeat) == place.fold
        train = (codes >= 0) & ~held_out
        estimator: CentroidEncoder = clone(self.estimator)
        estimator.set_params(random_state=self.seed_of(*place), class_weight=self.class_weight)
        if device is not None:
            estimator.set_params(device=device)
        fit: Fit = yield from estimator.fit_codes_steps(
            fill_missing(data.X, train),
            np.where(train, codes, -1),
            np.arange(self.n_classes),
            groups=data.groups,
            stop=stop,
        )
        if fit.outcome.interrupted:
            raise KeyboardInterrupt
        if stop():
            raise StoppedTooEarly
        if place.permutation:
            return misses(fit, codes, held_out)
        return Fold.of(fit, codes, held_out, self.n_classes, self.seed_of(*place, 1))


def trained(
    data: Data, plan: Plan, n_jobs: int | None, stop: Callable[[], bool]
) -> Generator[Report | Progress, None, Mapping[Place, Found]]:
    """Do all trainings of a plan, as many at once as joblib is asked for.

    Parameters
    ----------
    data, plan
        What to train.
    n_jobs
        As in scikit-learn: None is 1, or what a ``joblib.parallel_config`` says.
    stop
        Asked again and again; True ends all trainings.

    Yields
    ------
    Report | Progress
        A report of each epoch of trainings one after the other; of many at once, how many are
        done.

    Returns
    -------
    Mapping[Place, Found]
        The value of the generator.

    Raises
    ------
    StoppedTooEarly
        `stop` said so.
    WorkerError
        A process died in which trainings were done.
    """
    # Of more processes than trainings, some would be started for nothing.
    n_at_once = min(effective_n_jobs(n_jobs), len(plan.places))
    if n_at_once == 1:
        return (yield from _one_by_one(data, plan, stop))
    return (yield from _at_once(data, plan, n_at_once, stop))


def _one_by_one(
    data: Data, plan: Plan, stop: Callable[[], bool]
) -> Generator[Report, None, Mapping[Place, Found]]:
    found: dict[Place, Found] = {}
    for place in plan.places:
        reports = plan.train(data, place, stop)
        while True:
            try:
                report = next(reports)
            except StopIteration as end:
                found[place] = end.value
                break
            # Steps are counted over all trainings.
            yield replace(
                report,
                stage=plan.name(place),
                step=len(found) * report.n_steps + report.step,
                n_steps=len(plan.places) * report.n_steps,
            )
    return found


def _at_once(
    data: Data, plan: Plan, n_at_once: int, stop: Callable[[], bool]
) -> Generator[Progress, None, Mapping[Place, Found]]:
    places = plan.places
    found: dict[Place, Found] = {}
    with _Register(stop) as register:
        yield Progress(0, len(places), "training")
        try:
            # Some tell of results when all are there: Ray's.
            tells = get_active_backend()[0].supports_return_generator
            results = Parallel(n_at_once, return_as="generator_unordered" if tells else "list")(
                delayed(_train)(data.X, data.codes, data.groups, plan, i, register.owner)
                for i in range(len(places))
            )
            with _ended(results):
                for i, one in results:
                    if stop():
                        raise StoppedTooEarly
                    found[places[i]] = one
                    yield Progress(len(found), len(places), "training")
        except (BrokenExecutor, CancelledError) as error:
            # A dead process of loky, or data that were lost with one of Dask's.
            raise _died(register, plan, error) from error
    return found


@contextmanager
def _ended(results: object) -> Iterator[None]:
    """See to it that joblib ends its workers if not all results are taken."""
    try:
        yield
    except BaseException:
        if isinstance(results, Generator):
            # If it were closed, it would also warn of it.
            with suppress(StoppedTooEarly):
                results.throw(StoppedTooEarly())
        raise


def _train(
    X: Matrix,
    codes: Codes,
    groups: Codes | None,
    plan: Plan,
    i: int,
    owner: _Owner,
) -> tuple[int, Found]:
    """Do one training in a worker."""
    place = plan.places[i]
    with _registered(owner, i) as stop:
        reports = plan.train(
            Data(X, codes, groups), place, stop, device_in_turn(plan.estimator.device, i)
        )
        # What scikit-learn computes within a training stays in this worker.
        with parallel_config("sequential"):
            return i, drained(reports)


def device_in_turn(device: str, i: int, n_devices: int | None = None) -> str:
    """Return which device the training number `i` takes: of several GPUs, one after the other.

    `n_devices` is by default the number of this machine's.
    """
    if n_devices is None:
        n_devices = torch.cuda.device_count()
    # Whoever names one of them gets that one.
    return f"cuda:{i % n_devices}" if device in ("auto", "cuda") and n_devices > 1 else device


class _Owner(NamedTuple):
    """Who waits for trainings."""

    folder: str
    """Where they have a file each as long as they run. When the folder goes, they end."""
    process: int


class _Register:
    """Which trainings run in which process; at the end of the block, or when told to, all end."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.owner = _Owner(tempfile.mkdtemp(prefix="centroid-encoder-"), os.getpid())
        self._stop, self._over = stop, threading.Event()
        # While joblib waits for its workers, nobody else asks.
        self._watch = threading.Thread(target=self._wait_for_stop, daemon=True)
        self._watch.start()

    def __enter__(self) -> _Register:
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._watch.join()
        self._close()

    @property
    def running(self) -> list[tuple[int, str]]:
        """Numbers of the trainings that run, and in which process."""
        found = []
        for file in Path(self.owner.folder).iterdir():
            # It may just have ended.
            with suppress(FileNotFoundError):
                found.append((int(file.name), file.read_text("utf-8")))
        return sorted(found)

    def _wait_for_stop(self) -> None:
        while not self._over.wait(WATCHED):
            if self._stop():
                self._close()
                return

    def _close(self) -> None:
        # At once: what begins meanwhile must not find it either.
        over = f"{self.owner.folder}.over"
        with suppress(OSError):
            os.rename(self.owner.folder, over)
        shutil.rmtree(over, ignore_errors=True)


_SEEN: set[str] = set()
"""Folders that trainings of this process have been in."""


@contextmanager
def _registered(owner: _Owner, i: int) -> Iterator[Callable[[], bool]]:
    """Enter a training into the register; what this returns says when to stop it.

    On another machine there may be no such folder. Then it ends by itself, unheard.
    """
    # Without its parent, nobody waits for what it finds.
    is_child = os.getppid() == owner.process
    file = Path(owner.folder, str(i))
    try:
        file.write_text(str(os.getpid()), "utf-8")
    except OSError:
        if owner.folder in _SEEN:
            raise StoppedTooEarly from None
        yield never
        return
    _SEEN.add(owner.folder)
    try:
        yield lambda: not file.exists() or (is_child and os.getppid() != owner.process)
    finally:
        file.unlink(missing_ok=True)


def _died(register: _Register, plan: Plan, error: BaseException) -> WorkerError:
    running = [f"process {at} at {plan.name(plan.places[i])}" for i, at in register.running]
    # loky tells it in its text alone.
    told = re.search(r"exit codes? .*\{(.+)\}", str(error))
    return WorkerError(
        "one of the processes that train has died{}{}; if memory ran out, {}",
        f" ({told[1]})" if told else "",
        f": {' or '.join(running)}" if running else "",
        Advice("n_jobs", max(1, len(running) // 2)),
    )
