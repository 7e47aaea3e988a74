"""From X, class codes and parameters to a fitted map: the one place that assembles a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from centroid_encoder.core import placement
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.features import (
    Standardizer,
    class_sums,
    fit_standardizer,
    network_axes,
    noise_on_axes,
    on_axes,
)
from centroid_encoder.core.frames import Frames
from centroid_encoder.core.map import FittedMap, Judged
from centroid_encoder.core.matrix import CHUNK, Codes, Lazy, Matrix, row_chunks
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import LEAST, Novelty
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.placement import Placer, Scatter
from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.reports import Callback, Frame, Outcome, Report, StoppedTooEarly
from centroid_encoder.core.saved import check_labels
from centroid_encoder.core.splits import Division, at_most, divide, representatives
from centroid_encoder.core.targets import CentroidTargets, class_weights
from centroid_encoder.core.train import TrainingData, train
from centroid_encoder.errors import InputError

N_AXES = 100
"""Principal axes along which networks without a bottleneck receive more features than these."""
N_SAMPLE = 10_000
"""Training rows from which axes and scatter are computed, at most."""


@dataclass
class Fit:
    """A finished training: the map, and the data that it was trained on.

    Rows are those of X. A labelled row is placed by the network that is trained neither on it nor
    on its group, and an unlabelled one by all networks.
    """

    map: FittedMap
    known: Codes
    """(K,) index of each class of the map among the classes of the caller."""
    X: Matrix | Lazy
    codes: Codes
    """(n,) class of each row of X, of the map's; −1 for rows that are not trained on."""
    division: Division
    groups: Codes | None
    data: TrainingData
    """The rows that are held in memory."""
    along: NDArray[np.float32] | None
    """(n_held, a) their coordinates along the axes of the scatter."""
    outcome: Outcome
    scored: tuple[Codes, NDArray[np.float64]] | None = None
    """Rows that novelty was learned from, and their scores; None if it was not learned."""

    def judge(self, index: Codes | None = None) -> Iterator[Judged]:
        """Embedding, and distances to the classes of the map, for all rows or those of an index.

        Yields the (b, m) embedding and (b, K) distances of `CHUNK` rows at a time.
        """
        index = np.arange(self.X.shape[0]) if index is None else index
        for start in range(0, len(index), CHUNK):
            yield self.map.judge_inputs(*self.inputs(index[start : start + CHUNK]))

    def inputs(self, rows: Codes) -> tuple[Tensor, NDArray[np.float32] | None, Tensor]:
        """Arguments of `FittedMap.judge_inputs` for rows: inputs, coordinates, folds."""
        device, held = self.map.device, self.division.held
        folds = torch.from_numpy(self.division.folds[rows]).to(device)
        at = np.minimum(np.searchsorted(held, rows), len(held) - 1)
        if (held[at] != rows).any():
            return *self.map.inputs(self.X[rows]), folds
        inputs = self.data.inputs[..., torch.from_numpy(at).to(device), :]
        return inputs, None if self.along is None else self.along[at], folds

    def embed(self, index: Codes | None = None) -> NDArray[np.float32]:
        """(n, m) embedding of all rows, or of those of an index."""
        empty = np.empty((0, self.map.n_components), np.float32)
        return np.concatenate([empty, *(places for places, _ in self.judge(index))])

    def standardized(self, index: Codes) -> NDArray[np.float32]:
        """(n, k) weighted z-scores of the rows of an index."""
        return self.map.standardizer(self.X[index]).numpy()

    def novelty(self) -> NDArray[np.float32]:
        """(n,) novelty of all rows; NaN if it was not learned.

        A row that novelty was learned from has the score that the other folds give it.
        """
        learned = self.map.novelty
        if learned is None or self.scored is None:
            return np.full(self.X.shape[0], np.nan, dtype=np.float32)
        novelty = learned.quantiles(self.X, self.map.standardizer)
        rows, scores = self.scored
        novelty[rows] = learned.ranks(scores)
        return novelty

    @property
    def unseen(self) -> Codes:
        """Labelled rows, held in memory, that the network which places them was not trained on."""
        division = self.division
        if division.n_networks > 1:
            return division.held[self.codes[division.held] >= 0]
        is_merged = self.outcome.reports[-1].stage == "merge"
        return division.validation[:0] if is_merged else division.validation

    def crowded_group(self) -> tuple[int, float] | None:
        """Index of a group that is too large to be placed well, and its share of the training rows.

        Its rows are placed by a network that was trained on less than half as many rows as the
        largest; or, if all training rows are of that group, by networks that were trained on other
        rows of it. None if there is no such group.
        """
        if self.groups is None or self.division.n_networks == 1:
            return None
        train, votes = self.division.train, self.division.votes
        found, n = np.unique(self.groups[train], return_counts=True)
        largest = found[n.argmax()]
        fold = self.division.folds[train[self.groups[train] == largest][0]]
        if len(found) > 1 and 2 * votes[fold] >= votes.max():
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
    callback: Callback | None = None,
) -> Fit:
    """Train on some rows of X, with the parameters of an estimator.

    The map is calibrated on rows that the network which places them was not trained on: with
    several networks, on all labelled rows; with one, on the validation rows, unless they were
    merged. Without such rows it is not calibrated.

    Parameters
    ----------
    X, codes, classes
        (n, d) finite data, dense or CSR; (n,) index of each row into `classes`, −1 for rows that
        are not trained on; and (M,) labels, all different and sorted. Data that are not in memory
        are read twice, and what is not held in memory once more for its place.
    params, resolved
        Parameters as `CentroidEncoder` documents them, checked; and the function that replaces
        ``"auto"`` by numbers, called with the parameters and the numbers of training rows, of
        features and of classes (see `recipes.resolved`).
    device, seed
        Device of the training, and the source of all randomness.
    groups
        (n,) index of a group for each row: rows of a group are in one fold, unless all training
        rows are of one group.
    novelty
        Whether to learn novelty, too, if there are `novelty.LEAST` training rows or more.
    callback
        As for `train`, whose errors are raised as well. The first report, of stage ``"start"``,
        comes before the training.

    Raises
    ------
    ValueError
        If there are fewer than two classes or too many, or some that no file can hold; if a class
        weight is not above 0; if the data are too large, or no class is large enough to validate.
    """
    known = _check_classes(classes, codes, params)
    codes, n_classes = np.where(codes < 0, -1, np.searchsorted(known, codes)), len(known)

    def n_networks_for(n_train: int) -> int:
        return int(resolved(params, n_train, X.shape[1], n_classes)["n_networks"])

    division = divide(codes, params, n_networks_for, seed, groups)
    rows, folds, n_networks = division.train, division.folds, division.n_networks
    in_sample = representatives(codes[rows], N_SAMPLE, 1, np.random.default_rng(0))
    standardizer, shares, sample = fit_standardizer(
        X,
        rows,
        codes[rows],
        params["scale"],
        np.inf if params["clip"] is None else params["clip"],
        params["max_features"],
        folds[rows] if n_networks > 1 else None,
        in_sample,
    )
    settings = resolved(params, len(rows), len(standardizer.kept), n_classes)

    sampled = rows[in_sample]
    z = torch.cat([standardizer(chunk, device) for _, chunk in row_chunks(sample)])
    sampled_codes = codes[sampled]
    sums = class_sums(z.double().cpu().numpy(), sampled_codes, n_classes)
    centroids = _centroids(sums, sampled_codes)
    scatter, axes, noise, start = None, None, None, None
    if settings["placement"] != "bottleneck":
        means = torch.from_numpy(centroids).float().to(device)
        n_components = int(settings["n_components"])
        scatter = Scatter.fit(z - means[sampled_codes], sampled_codes, centroids, n_components)
    targets, objective, placer = _aims(settings, centroids, scatter, device)
    frames = Frames(X.shape[0])
    if placer is not None:
        own_rows = [np.flatnonzero(folds[sampled] != k) for k in range(n_networks)]
        of_networks = [network_axes(z[own_rows[0]], shares[0], N_AXES)]
        start = partial(frames.start, placer, z, of_networks[0], sampled, sampled_codes)

    callback, n_epochs = callback or (lambda report: False), int(settings["max_epochs"])
    if callback(Report("start", 0, n_epochs, 0, n_epochs, frame=start or (lambda: None))):
        raise StoppedTooEarly
    if placer is not None:
        others = zip(own_rows[1:], shares[1:], strict=True)
        axes = torch.stack(of_networks + [network_axes(z[i], share, N_AXES) for i, share in others])
        if z.shape[1] > N_AXES and settings["dropout"]:
            noise = noise_on_axes(z, axes, settings["dropout"])
    del z, sample, start

    inputs, along, sums = _read(X, division, codes, standardizer, axes, placer, device)
    if len(sampled) < len(rows):
        scatter = None if placer is None else placer.scatter
        targets, objective, placer = _aims(settings, _centroids(sums, codes[rows]), scatter, device)

    generator = torch.Generator().manual_seed(seed)
    network = Network(
        inputs.shape[-1],
        settings["hidden"],
        settings["n_components"] if placer is None else objective.n_outputs,
        objective.n_outputs if placer is None else 0,
        settings["activation"],
        generator,
        batch_norm=settings["batch_norm"],
        n_networks=n_networks,
    ).to(device)
    network.votes.copy_(torch.from_numpy(division.votes))

    trained, absent = classes[known], np.delete(classes, known)
    weights = class_weights(params["class_weight"], trained[codes[codes >= 0]], trained, absent)
    if weights is not None:
        weights = (weights / weights[codes[rows]].mean()).astype(np.float32)
    held = division.held

    def on_device(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(device)

    data = TrainingData(
        inputs,
        on_device(codes[held]),
        on_device(np.searchsorted(held, rows)),
        on_device(np.searchsorted(held, division.validation)),
        None if weights is None else on_device(weights),
        on_device(folds[held]) if n_networks > 1 else None,
        noise,
    )

    frame: Callable[[Tensor], Frame | None] = partial(frames.of_code, held)
    if placer is not None and along is not None:
        frame = partial(frames.placed, placer, along, held, codes[held])
    config = TrainingConfig(**{part.name: settings[part.name] for part in fields(TrainingConfig)})
    outcome = train(network, objective, data, config, generator, callback=callback, frame=frame)
    network.fold_batch_norm()

    nowhere = np.full((n_classes, int(settings["n_components"])), np.nan)
    fitted = FittedMap(standardizer, network, targets, nowhere, axes, placer)
    done = Fit(fitted, known, X, codes, division, groups, data, along, outcome)
    _complete(done)
    chosen = np.sort(np.append(rows, division.validation))
    if novelty and len(chosen) >= LEAST:
        fitted.novelty, chosen, scores = Novelty.fit(X, chosen, codes[chosen], standardizer)
        done.scored = chosen, scores
    return done


def _check_classes(classes: NDArray[Any], codes: Codes, params: Mapping[str, Any]) -> Codes:
    """Return the classes that have rows; check their number and type."""
    labels = classes[codes[codes >= 0]]
    check_classification_targets(labels)
    known = np.unique(codes[codes >= 0])
    if len(known) < 2:
        found = f"one class ({labels[0]})" if len(known) else "no samples"
        raise ValueError(f"training needs at least two classes, but got {found}")
    if params["placement"] != "bottleneck" and len(known) > placement.MOST_CLASSES:
        raise InputError(
            f"{len(known):,} classes are too many to be laid out (at most "
            f"{placement.MOST_CLASSES:,}); merge classes, or choose placement='bottleneck'",
            parameter="placement",
        )
    check_labels(classes[known])
    return known


def _centroids(sums: NDArray[np.float64], codes: Codes) -> NDArray[np.float64]:
    """(M, k) class means from the (M, k) sums of rows over the classes, and their (n,) classes."""
    centroids = sums / np.bincount(codes)[:, None]
    if not np.isfinite(centroids).all():
        raise ValueError("X holds values too large to be trained on; rescale it")
    return np.asarray(centroids)


def _aims(
    settings: Mapping[str, Any],
    centroids: NDArray[np.float64],
    scatter: Scatter | None,
    device: torch.device,
) -> tuple[CentroidTargets, CentroidTargets, Placer | None]:
    """Return the centroids in input space, the objective of the networks, and the placer.

    With a bottleneck, which has no scatter, the first two are the same, and there is no placer.
    """
    targets = CentroidTargets.fit(centroids, settings["output"], device, settings["compactness"])
    if scatter is None:
        return targets, targets, None
    objective = CentroidTargets.spread_out(centroids, device)
    return targets, objective, Placer.fit(scatter, centroids, objective.coordinates.cpu().numpy())


def _read(
    X: Matrix | Lazy,
    division: Division,
    codes: Codes,
    standardizer: Standardizer,
    axes: Tensor | None,
    placer: Placer | None,
    device: torch.device,
) -> tuple[Tensor, NDArray[np.float32] | None, NDArray[np.float64]]:
    """Read the rows that are held: inputs of the networks, coordinates in the scatter, class sums.

    The sums are over the training rows, if there are more of them than the sample has.
    """
    held, n_inputs = division.held, len(standardizer.kept)
    is_train = np.isin(held, division.train, assume_unique=True)
    shape: tuple[int, ...] = (len(held), n_inputs)
    if axes is not None:
        n_networks, n_axes, _ = axes.shape
        shape = (len(held), n_axes) if n_networks == 1 else (n_networks, len(held), n_axes)
    inputs, sums = torch.empty(shape, device=device), np.zeros((codes.max() + 1, n_inputs))
    along = None
    if placer is not None:
        along = np.empty((len(held), len(placer.scatter.axes)), np.float32)
    for part, chunk in row_chunks(X, held):
        z = standardizer(chunk, device)
        inputs[..., part, :] = on_axes(z, axes)
        if placer is not None and along is not None:
            along[part] = placer.scatter.project(z)
        own = np.flatnonzero(is_train[part])
        if len(own) and len(division.train) > N_SAMPLE:
            own_z = z[torch.from_numpy(own).to(device)].double().cpu().numpy()
            sums += class_sums(own_z, codes[held[part][own]], len(sums))
    return inputs, along, sums


@torch.no_grad()
def _complete(done: Fit) -> None:
    """Add odds, centers and calibration to the map, from outputs of the trained networks."""
    fitted, codes, held, unseen = done.map, done.codes, done.division.held, done.unseen
    labeled = held[codes[held] >= 0]
    # One network that was trained on everything is too sure of its own rows, but the plane needs
    # odds.
    some = at_most(placement.N_FITTED, unseen if len(unseen) else labeled)
    if fitted.placer is None:
        fitted.centers = class_centers(done.embed(labeled), codes[labeled], len(fitted.centers))
    else:
        inputs, _, folds = done.inputs(some)
        outputs = fitted.network.outputs(inputs, folds).cpu().numpy()
        fitted.placer = fitted.placer.with_odds(outputs, codes[some], _odds_weights(done, some))
        fitted.centers = fitted.placer.layout.positions
    if len(unseen):
        distances = np.concatenate([found for _, found in done.judge(some)])
        fitted.calibration = Calibration.fit(distances, codes[some])


def _odds_weights(done: Fit, rows: Codes) -> NDArray[np.float64]:
    """(n,) weights of rows in the odds: their class's, times a factor of their fold.

    By that factor, the rows of a fold together have the weight that the network which is not
    trained on them has in the placement of new rows.
    """
    weights, division = np.ones(len(rows)), done.division
    if done.data.weights is not None:
        weights *= done.data.weights.cpu().numpy()[done.codes[rows]]
    if division.n_networks > 1:
        folds = division.folds[rows]
        weights *= division.votes[folds] / np.bincount(folds)[folds]
    return weights
