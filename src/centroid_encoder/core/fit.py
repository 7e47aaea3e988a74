"""From X, class codes and parameters to a fitted map: the one place that assembles a training."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
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
from centroid_encoder.core.map import Architecture, Codes, FittedMap, Judged, own_codes
from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import LEAST, Novelty, Scored
from centroid_encoder.core.objective import CentroidTargets
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.placement import Layout, Placer, Scatter
from centroid_encoder.core.problem import Problem, at_most, class_weights
from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.reports import Outcome, Report, Shown, never
from centroid_encoder.core.rows import CHUNK, ProjectedRows, class_means
from centroid_encoder.core.training import train
from centroid_encoder.errors import InputError, Setting

N_AXES = 100
"""Principal axes of the inputs that networks without a bottleneck learn from, of more features."""
N_SHOWN = 2_000
"""Rows that the odds are learned from while the training goes on."""


@dataclass(frozen=True)
class Fit:
    """A finished training: the map, and the data it comes from, checked and standardised.

    Rows are those of the X that was given; to ask about them again checks and standardises nothing.
    """

    map: FittedMap
    """Its classes are those that are trained on, in the order of the caller's, which are sorted."""
    known: Codes
    """(K,) the caller's index of each class of the map."""
    problem: Problem
    outcome: Outcome
    scored: Scored | None = None
    """Training rows that novelty was learned from, and their scores; None if it was not learned."""

    def embed(self, index: NDArray[np.integer] | None = None) -> NDArray[np.float32]:
        """(n, m) embedding of all rows, or of those at an index.

        Of networks side by side, a row of the training is embedded by the one that is not trained
        on it; `FittedMap.embed` takes all of them.
        """
        data = self.problem.data
        chosen = None if index is None else torch.from_numpy(index).to(data.rows.device)
        return self.map.embed_rows(data.rows, chosen, data.folds)

    def judge(self, index: NDArray[np.integer] | None = None) -> Iterator[Judged]:
        """Embed as `embed` does, a chunk of rows at a time, with (b, M) distances to the classes.

        As `FittedMap.judge` of the rows, but that a row of the training is judged by the network
        that is not trained on it.
        """
        data = self.problem.data
        chosen = None if index is None else torch.from_numpy(index).to(data.rows.device)
        return self.map.judge_rows(data.rows, chosen, data.folds)

    def distances(self, index: NDArray[np.integer]) -> NDArray[np.float32]:
        """(n, M) distances to the classes of the rows at an index; see `judge`."""
        distances, done = np.empty((len(index), len(self.known)), dtype=np.float32), 0
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
            own = own_codes(codes, self.known, max(int(codes.max()), int(self.known.max())) + 1)
            self.map.calibrate(self.distances(index), own)

    def novelty(self) -> NDArray[np.float32]:
        """(n,) novelty of all rows; NaN if it was not learned.

        A row that novelty was learned from has the score that the other folds give it.
        """
        learned, problem = self.map.novelty, self.problem
        if learned is None or self.scored is None:
            return np.full(problem.X.shape[0], np.nan, dtype=np.float32)
        novelty = learned.quantiles(problem.X, problem.standardizer)
        novelty[self.scored.rows] = learned.ranks(self.scored.scores)
        return novelty

    @property
    def is_calibrated(self) -> bool:
        """Whether there were rows for it that the network which places them was not trained on."""
        return bool(len(self.problem.unseen(merged=self.outcome.merged)))

    def crowded_group(self) -> tuple[int, float] | None:
        """Index of a group that is too large to be placed well, and its share of the training rows.

        Its rows are placed by a network that was trained on less than half as many rows as the
        largest; or, where all training rows are of that group, by networks that were trained on
        other rows of it. None if there is no such group.
        """
        data, groups = self.problem.data, self.problem.groups
        if groups is None or data.folds is None:
            return None
        train, n_seen = data.train.cpu().numpy(), self.problem.n_seen
        found, n = np.unique(groups[train], return_counts=True)
        largest = found[n.argmax()]
        fold = int(data.folds.cpu().numpy()[train[groups[train] == largest][0]])
        if len(found) > 1 and 2 * n_seen[fold] >= n_seen.max():
            return None
        return int(largest), float(n.max() / n.sum())


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
    stop: Callable[[], bool] = never,
    snapshot: Callable[[], bool] = never,
) -> Generator[Report, None, Fit]:
    """Train on the sorted classes of a caller, with the parameters of an estimator.

    The map has the classes that are trained on, sorted. It is calibrated on rows that the network
    which places them was not trained on: with several networks, on all labelled rows; with one, on
    the rows that validate, unless they were merged. Without such rows it is not calibrated.

    Parameters
    ----------
    X
        (n, d) finite data, dense or CSR.
    codes
        (n,) index of each row into `classes`; −1 for rows that are not trained on.
    classes
        (M,) labels, all different and sorted.
    params
        As `CentroidEncoder` documents them, checked.
    resolved
        Puts numbers where they say ``"auto"``; called with the number of rows that train, of inputs
        and of classes (see `recipes.resolved`).
    device, seed
        Where to train, and the source of all randomness.
    groups
        (n,) index of a group for each row: where several networks are trained on a part of the rows
        each, a group is seen whole or not at all, unless all training rows are of one group.
    novelty
        Whether to learn novelty, too, if there are `novelty.LEAST` training rows or more.
    stop, snapshot
        As for `core.training.train`, whose errors are raised as well.

    Raises
    ------
    ValueError
        If there are fewer than two classes or too many, or some that no file can hold; if a class
        weight is not above 0; if the data are too large, or no class is large enough to validate.
    """
    labels = classes[codes[codes >= 0]]
    check_classification_targets(labels)
    known = np.unique(codes[codes >= 0])
    if len(known) < 2:
        found = f"one class ({labels[0]})" if len(known) else "no samples"
        raise ValueError(f"training needs at least two classes, but got {found}")
    if params["placement"] == "voronoi" and len(known) > placement.MOST_CLASSES:
        raise InputError(
            "{:,} classes are too many to be laid out (at most {:,}); merge classes, or choose {}",
            len(known),
            placement.MOST_CLASSES,
            Setting("placement", "bottleneck"),
        )
    check_labels(classes[known])
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
        # The number of networks decides which features each of them sees.
        n_networks=lambda n: int(resolved(params, n, X.shape[1], len(known))["n_networks"]),
        groups=groups,
    )
    settings = resolved(params, problem.n_train, problem.n_inputs, len(known))
    order = own_codes(np.arange(len(classes)), known, len(classes))
    fitted, outcome = yield from _trained(problem, settings, seed, order, stop, snapshot)
    scored, labeled = None, np.flatnonzero(problem.codes >= 0)
    if novelty and len(labeled) >= LEAST:
        fitted.novelty, scored = Novelty.fit(
            problem.X, labeled, problem.codes[labeled], problem.standardizer
        )
    return Fit(fitted, known, problem, outcome, scored)


def _trained(
    problem: Problem,
    settings: Mapping[str, Any],
    seed: int,
    order: Codes,
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
        projected = ProjectedRows(
            data.rows, data.train, data.folds, problem.shares, N_AXES, settings["dropout"]
        )
        data = replace(data, rows=projected)
    # While it learns, the rows are along the axes already.
    learned = replace(architecture, n_inputs=data.rows.n_inputs)
    network = learned.network(generator, batch_norm=settings["batch_norm"]).to(device)
    if problem.n_networks > 1:
        network.votes = torch.tensor(problem.votes, dtype=torch.float32, device=device)
    config = TrainingConfig(
        **{field.name: settings[field.name] for field in fields(TrainingConfig)}
    )
    show = {} if placer is None else {"place": _Shown(problem, placer, order)}
    outcome = yield from train(
        network,
        objective,
        data,
        config,
        generator,
        stop=stop,
        snapshot=snapshot,
        **show,
    )
    network.fold_batch_norm()
    if projected is not None:
        network.axes = projected.axes
        architecture = replace(architecture, n_axes=projected.n_inputs)
    nowhere = np.full((n_classes, architecture.n_components), np.nan)
    fitted = FittedMap(architecture, problem.standardizer, network, targets, nowhere)
    _complete(fitted, problem, placer, problem.unseen(merged=outcome.merged))
    return fitted, outcome


def _complete(fitted: FittedMap, problem: Problem, placer: Placer | None, unseen: Codes) -> None:
    """Add odds, centers and calibration, which are learned from outputs of the network.

    `unseen` holds the rows that the network which places them was not trained on.
    """
    data, index = problem.data, np.flatnonzero(problem.codes >= 0)
    codes = problem.codes[index]
    if placer is not None:
        # One network that was trained on everything is too sure of its own rows. Its plane needs
        # odds all the same.
        rows = unseen if len(unseen) else index
        fitted.placer = _told(problem, placer, fitted.network, rows)
    asked = Calibration.chosen(np.flatnonzero(np.isin(index, unseen)))
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
    some = at_most(placement.N_FITTED, data.train.cpu()).to(data.rows.device)
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
def _told(problem: Problem, placer: Placer, network: Network, rows: Codes) -> Placer:
    """Learn the odds from rows, each by the outputs of the network that is not trained on it."""
    data = problem.data
    some = at_most(placement.N_FITTED, torch.from_numpy(rows)).to(data.rows.device)
    outputs = [
        network.outputs(inputs, None if data.folds is None else data.folds[part]).cpu().numpy()
        for part, inputs in data.rows.batches(some)
    ]
    chosen = some.cpu().numpy()
    return placer.told(np.concatenate(outputs), problem.codes[chosen], problem.weights(chosen))


class _Shown:
    """Places of all rows while the training goes on."""

    def __init__(self, problem: Problem, placer: Placer, order: Codes) -> None:
        positions = placer.layout.positions
        nowhere = np.full((1, positions.shape[1]), np.nan)
        self._centers = np.concatenate([positions, nowhere])[order]
        self._placer, self._codes, self._rows = placer, problem.codes, problem.data.rows
        self._some = at_most(N_SHOWN, problem.data.train.cpu()).numpy()
        self._weights = problem.weights(self._some)

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
