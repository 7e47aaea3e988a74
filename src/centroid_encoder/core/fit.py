"""From X, class codes and parameters to a fitted map: the one place that assembles a training."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from centroid_encoder.core import placement
from centroid_encoder.core.confidence import Calibration
from centroid_encoder.core.description import check_labels
from centroid_encoder.core.map import Architecture, CodedMap, Codes, FittedMap, Judged, own_codes
from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import LEAST, Novelty
from centroid_encoder.core.objective import CentroidTargets
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.placement import Layout, Placer, Scatter
from centroid_encoder.core.problem import Problem, check_alike, class_weights
from centroid_encoder.core.processes import Processes
from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.reports import Outcome, Report, Shown, never
from centroid_encoder.core.rows import CHUNK, ProjectedRows, class_means
from centroid_encoder.core.threads import Aside, threads_for
from centroid_encoder.core.training import train

N_AXES = 100
"""Principal axes of the inputs that networks without a bottleneck learn from, of more features."""
N_SHOWN = 2_000
"""Rows that the odds are learned from while the training goes on."""


@dataclass(frozen=True)
class Fit:
    """A finished training: the map, and the data it comes from, checked and standardised.

    Rows are those of the X that was given; to ask about them again checks and standardises nothing.
    """

    map: CodedMap
    problem: Problem
    outcome: Outcome

    def embed(self, index: NDArray[np.integer] | None = None) -> NDArray[np.float32]:
        """(n, m) embedding of all rows, or of those at an index.

        Of networks side by side, a row of the training is embedded by the one that is not trained
        on it; `FittedMap.embed` does not know of the training, and asks all of them.
        """
        data = self.problem.data
        chosen = None if index is None else torch.from_numpy(index).to(data.rows.device)
        return self.map.fitted.embed_rows(data.rows, chosen, data.folds)

    def judge(self, index: NDArray[np.integer] | None = None) -> Iterator[Judged]:
        """What `embed` says, a chunk of rows at a time, with (b, M) distances to the classes.

        As `CodedMap.judge` of the rows, but that a row of the training is judged by the network
        that is not trained on it.
        """
        data = self.problem.data
        chosen = None if index is None else torch.from_numpy(index).to(data.rows.device)
        return self.map.in_order(self.map.fitted.judge_rows(data.rows, chosen, data.folds))

    def distances(self, index: NDArray[np.integer]) -> NDArray[np.float32]:
        """(n, M) distances to the classes of the rows at an index; see `judge`."""
        distances, done = np.empty((len(index), self.map.n_codes), dtype=np.float32), 0
        for _, some in self.judge(index):
            distances[done : done + len(some)] = some
            done += len(some)
        return distances

    def standardized(self, index: NDArray[np.integer]) -> NDArray[np.float32]:
        """(n, k) inputs of the network for the rows at an index."""
        rows = self.problem.data.rows
        inputs = rows.gather(torch.from_numpy(index).to(rows.device))
        return np.asarray(inputs.cpu(), dtype=np.float32)

    def calibrate(self, index: NDArray[np.integer], codes: Codes) -> None:
        """Fit the probabilities to the rows at an index, which are of the caller's classes."""
        if len(index):
            own = own_codes(codes, self.map.known, self.map.n_codes)
            self.map.fitted.calibrate(self.distances(index)[:, self.map.known], own)

    def novelty(self) -> NDArray[np.float32]:
        """(n,) novelty of all rows."""
        return self.map.novelty(self.problem.X)


def fit(
    X: Matrix | Lazy,
    codes: Codes,
    classes: NDArray[Any],
    params: Mapping[str, Any],
    resolved: Callable[[Mapping[str, Any], int, int, int], Mapping[str, Any]],
    device: torch.device,
    seed: int,
    *,
    groups: Codes | None = None,
    novelty: bool = False,
    together: bool = False,
    stop: Callable[[], bool] = never,
    snapshot: Callable[[], bool] = never,
) -> Generator[Report, None, Fit]:
    """Train on the classes of a caller, in any order, with the parameters of an estimator.

    The map has the classes that are trained on, sorted. It is calibrated on the rows that validate
    or, where there are none, on those that train.

    Parameters
    ----------
    X
        (n, d) finite data, dense or CSR.
    codes
        (n,) index of each row into `classes`; −1 for rows that are not trained on.
    classes
        (M,) labels, all different, in any order.
    params
        As `CentroidEncoder` documents them, checked.
    resolved
        Puts numbers where they say ``"auto"``; called with the number of rows that train, of inputs
        and of classes (see `recipes.resolved`).
    device, seed
        Where to train, and the source of all randomness.
    groups
        (n,) index of a group for each row: where several networks are trained on a part of the rows
        each, a group is seen whole or not at all.
    novelty
        Whether to learn, too, what is usual: of `novelty.LEAST` rows that train or more.
    together
        Whether the processes of ``torch.distributed``, if there are several, train this together.
        Each then does this with the same, and gets the same.
    stop, snapshot
        As for `core.training.train`, which says what else is raised.

    Raises
    ------
    ValueError
        If there are fewer than two classes, or some that no file can hold; if a class weight is not
        above 0; if the data are too large, or no class is large enough to validate; if processes
        that train together do not do so with the same.
    WorkerError
        If another process has failed or is gone.
    """
    labels = classes[codes[codes >= 0]]
    check_classification_targets(labels)
    known = np.unique(codes[codes >= 0])
    if len(known) < 2:
        found = f"one class ({labels[0]})" if len(known) else "no samples"
        raise ValueError(f"training needs at least two classes, but got {found}")
    check_labels(classes[known])
    known = known[np.argsort(classes[known], kind="stable")]
    absent = np.delete(classes, known)
    problem = Problem.of(
        X,
        own_codes(codes, known, len(classes)),
        device,
        scale=params["scale"],
        clip=params["clip"],
        max_features=params["max_features"],
        validation_fraction=params["validation_fraction"],
        seed=seed,
        class_weight=class_weights(params["class_weight"], labels, classes[known], absent),
        # How many there are says which features each of them sees.
        n_networks=lambda n: int(resolved(params, n, X.shape[1], len(known))["n_networks"]),
        groups=groups,
    )
    settings = resolved(params, problem.n_train, problem.n_inputs, len(known))
    order = own_codes(np.arange(len(classes)), known, len(classes))
    processes = Processes.found(device) if together else None
    if processes is not None:
        check_alike(processes, problem, settings, seed)
    usual = _Usual(problem) if novelty else None
    try:
        fitted, outcome = yield from _trained(
            problem, settings, seed, order, processes, usual, stop, snapshot
        )
    finally:
        if usual is not None:
            usual.close()
    return Fit(CodedMap(fitted, known, len(classes)), problem, outcome)


def _trained(
    problem: Problem,
    settings: Mapping[str, Any],
    seed: int,
    order: Codes,
    processes: Processes | None,
    usual: _Usual | None,
    stop: Callable[[], bool],
    snapshot: Callable[[], bool],
) -> Generator[Report, None, tuple[FittedMap, Outcome]]:
    """Train; `order` holds the map's code of each class of the caller, −1 for absent ones."""
    data, n_classes = problem.data, int(problem.codes.max()) + 1
    device = data.rows.device
    generator = torch.Generator().manual_seed(seed)
    centroids = class_means(data.rows, data.train, data.labels, n_classes)
    if not np.isfinite(centroids).all():
        raise ValueError("X holds values too large to be trained on; rescale it")
    targets = CentroidTargets.fit(centroids, settings["output"], device, settings["compactness"])
    placer, objective = None, targets
    if settings["placement"] == "voronoi":
        objective = CentroidTargets.spread_out(centroids, device)
        placer = _placer(problem, centroids, objective, int(settings["n_components"]))
    architecture = Architecture(
        n_features=problem.X.shape[1],
        n_inputs=problem.n_inputs,
        hidden=tuple(int(width) for width in settings["hidden"]),
        n_components=int(settings["n_components"]),
        n_outputs=objective.n_outputs,
        activation=settings["activation"],
        output=settings["output"],
        placement=settings["placement"],
        n_networks=problem.n_networks,
    )
    projected = None
    if placer is not None:
        projected = ProjectedRows(data.rows, data.train, data.folds, problem.shares, N_AXES)
        data = replace(data, rows=projected)
        if processes is not None:
            # The last of many axes are others where processors round differently.
            processes.of_first([projected.axes])
    # While it learns, the rows are along the axes already.
    learned = replace(architecture, n_inputs=data.rows.n_inputs)
    network = learned.network(generator, batch_norm=settings["batch_norm"]).to(device)
    config = TrainingConfig(
        **{field.name: settings[field.name] for field in fields(TrainingConfig)}
    )
    show = {} if placer is None else {"place": _Shown(problem, placer, order)}
    # Whoever watches waits for the first picture, and for it alone.
    if usual is not None and snapshot is never:
        usual.begin()
    outcome = yield from train(
        network,
        objective,
        data,
        config,
        generator,
        stop=stop,
        snapshot=snapshot,
        processes=processes,
        **show,
    )
    found = None if usual is None else usual.found()
    network.fold_batch_norm()
    if projected is not None:
        network.axes = projected.axes
        architecture = replace(architecture, n_axes=projected.n_inputs)
    nowhere = np.full((n_classes, architecture.n_components), np.nan)
    fitted = FittedMap(architecture, problem.standardizer, network, targets, nowhere)
    fitted.novelty = found
    with threads_for(len(problem.codes)):
        _complete(fitted, problem, placer)
    return fitted, outcome


def _complete(fitted: FittedMap, problem: Problem, placer: Placer | None) -> None:
    """Add what is learned from what the network says: odds, centers and probabilities."""
    data, index = problem.data, np.flatnonzero(problem.codes >= 0)
    codes = problem.codes[index]
    if placer is not None:
        fitted.placer = _told(problem, placer, fitted.network)
    unseen = np.flatnonzero(np.isin(index, data.validation.cpu().numpy()))
    asked = Calibration.chosen(np.arange(len(index)) if not len(unseen) else unseen)
    embedding, distances = _judged(
        fitted.judge_rows(data.rows, torch.from_numpy(index).to(data.rows.device), data.folds),
        len(index),
        asked,
    )
    if placer is None:
        fitted.centers = class_centers(embedding, codes, len(fitted.centers))
    else:
        fitted.centers = placer.layout.positions
    fitted.calibrate(distances, codes[asked])


def _judged(judged: Iterator[Judged], n: int, asked: Codes) -> Judged:
    """Embedding of n rows, and distances of those asked: of all they may not fit into memory."""
    order, done = np.argsort(asked, kind="stable"), 0
    for places, of_classes in judged:
        if not done:
            embedding = np.empty((n, places.shape[1]), places.dtype)
            distances = np.empty((len(asked), of_classes.shape[1]), of_classes.dtype)
        first, last = np.searchsorted(asked, [done, done + len(places)], sorter=order)
        some = order[first:last]
        distances[some] = of_classes[asked[some] - done]
        embedding[done : done + len(places)] = places
        done += len(places)
    return embedding, distances


def _placer(
    problem: Problem, centroids: NDArray[np.float64], targets: CentroidTargets, n_components: int
) -> Placer:
    """Lay out the classes, and learn their scatter: all that is known before the training."""
    data = problem.data
    some = problem.some(placement.N_FITTED).to(data.rows.device)
    of_classes = torch.tensor(centroids, dtype=torch.float32, device=some.device)
    residuals = torch.empty((len(some), problem.n_inputs), device=some.device)
    for i, (part, inputs) in enumerate(data.rows.batches(some)):
        own = residuals[i * CHUNK : i * CHUNK + len(part)]
        torch.sub(inputs, of_classes[data.labels[part]], out=own)
    codes = problem.codes[some.cpu().numpy()]
    scatter = Scatter.fit(residuals, codes, centroids, n_components)
    layout = Layout.fit(centroids, n_components)
    return Placer(targets.coordinates.cpu().numpy(), scatter, layout)


@torch.no_grad()
def _told(problem: Problem, placer: Placer, network: Network) -> Placer:
    """Learn the odds from rows that train, each asked of the network that is not trained on it."""
    data, some = problem.data, problem.some(placement.N_FITTED).to(problem.data.rows.device)
    outputs = [
        network.outputs(inputs, None if data.folds is None else data.folds[part]).cpu().numpy()
        for part, inputs in data.rows.batches(some)
    ]
    codes = problem.codes[some.cpu().numpy()]
    return placer.told(np.concatenate(outputs), codes, problem.class_weights)


class _Usual:
    """What is usual among the rows that train, learned while a network learns, if that is sooner.

    None where there are too few of them.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self._aside = problem, Aside()
        self._future: Future[Novelty | None] | None = None

    def begin(self) -> None:
        """Learn in a thread, if there are several, and if no file is read for it."""
        if torch.get_num_threads() > 1 and not isinstance(self._problem.X, Lazy):
            self._future = self._aside.do(self._learned)

    def found(self) -> Novelty | None:
        """What was learned."""
        return self._learned() if self._future is None else self._future.result()

    def close(self) -> None:
        """Leave nothing behind that is still learning, however the training has ended."""
        self._aside.close()

    def _learned(self) -> Novelty | None:
        index = np.flatnonzero(self._problem.codes >= 0)
        if len(index) < LEAST:
            return None
        problem = self._problem
        learned = Novelty.fit(problem.X, index, problem.codes[index], problem.standardizer)
        learned.prepare()
        return learned


class _Shown:
    """Places of all rows while the training goes on."""

    def __init__(self, problem: Problem, placer: Placer, order: Codes) -> None:
        positions = placer.layout.positions
        nowhere = np.full((1, positions.shape[1]), np.nan)
        self._centers = np.concatenate([positions, nowhere])[order]
        self._placer, self._codes, self._weights = placer, problem.codes, problem.class_weights
        self._some, self._rows = problem.some(N_SHOWN).numpy(), problem.data.rows

    @cached_property
    def _along(self) -> NDArray[np.float32]:
        # Only if somebody looks, since it takes all rows.
        project = self._placer.scatter.project
        return np.concatenate([project(inputs) for _, inputs in self._rows.batches()])

    def __call__(self, outputs: Tensor) -> Shown:
        """(n_rows, m) places for (n_rows, r) outputs, and the positions of the classes."""
        said = outputs.cpu().numpy()
        placer = self._placer.told(said[self._some], self._codes[self._some], self._weights)
        places = [
            placer.judge(said[start : start + CHUNK], self._along[start : start + CHUNK])[0]
            for start in range(0, len(said), CHUNK)
        ]
        return np.concatenate(places), self._centers
