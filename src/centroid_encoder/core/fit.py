"""The assembly of a training: from data, class indices and parameters to a fitted map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import gen_batches
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from centroid_encoder.core import discriminant, features, placement
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.discriminant import Discriminant
from centroid_encoder.core.features import Standardizer, class_sums, discriminant_axes, network_axes
from centroid_encoder.core.frames import Frames
from centroid_encoder.core.map import FittedMap, Judged
from centroid_encoder.core.matrix import CHUNK, Codes, Lazy, Matrix, row_chunks
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import LEAST, Novelty
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.placement import Placer
from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.reports import Callback, Outcome, Report, StoppedTooEarly
from centroid_encoder.core.saved import check_labels
from centroid_encoder.core.settings import resolved
from centroid_encoder.core.splits import Division, at_most, divide, representatives
from centroid_encoder.core.targets import CentroidTargets, class_weights
from centroid_encoder.core.train import TrainingData, train
from centroid_encoder.errors import check

N_AXES = 100  # with more features, the inputs of networks without a bottleneck are axes
N_SAMPLE = 10_000  # largest number of training rows from which axes and places are computed
RICH = 10, 10_000
"""Smallest number of training rows for each feature, and largest in all, with which networks
receive discriminant axes and ramps of the features. With fewer they overfit; with more, they learn
them by themselves."""
N_OF_CLASS = 20  # smallest number of these rows in each class, if it has as many


@dataclass
class Fit:
    """A finished training: the map, and the data that it was trained on.

    All row numbers are those of X. A training row is placed by the network that was trained neither
    on it nor on its group, and by the placer of this fold. All networks place the other rows, and
    the rows that are not judged (`Division.unjudged`).
    """

    map: FittedMap
    known: Codes
    """(K,) indices of the classes of the map in the classes of the caller."""
    X: Matrix | Lazy
    codes: Codes
    """(n,) index into the classes of the map for each row of X; −1 for unlabelled rows."""
    division: Division
    groups: Codes | None
    data: TrainingData
    """The rows in memory."""
    along: NDArray[np.float32]
    """(n_in_memory, a) coordinates of these rows along the axes of the scatter."""
    outcome: Outcome
    scored: tuple[Codes, NDArray[np.float64]] | None = None
    """Rows from which novelty was learned, and their scores; None without novelty."""

    def judge(self, index: Codes | None = None) -> Iterator[Judged]:
        """Yield the embedding of rows (default: all), and their distances to the classes.

        Yields the (b, m) embedding and (b, K) distances of `CHUNK` rows at a time.
        """
        index = np.arange(self.X.shape[0]) if index is None else index
        for start in range(0, len(index), CHUNK):
            yield self.map.judge_inputs(*self.inputs(index[start : start + CHUNK]))

    def inputs(self, rows: Codes) -> tuple[Tensor, NDArray[np.float32], Tensor]:
        """Arguments of `FittedMap.judge_inputs` for rows: inputs, coordinates and folds."""
        device, stored = self.map.device, self.division.in_memory
        folds = torch.from_numpy(self.division.placed_by[rows]).to(device)
        at = np.minimum(np.searchsorted(stored, rows), len(stored) - 1)
        is_stored = stored[at] == rows
        if not is_stored.all():
            inputs, along = self.map.inputs(self.X[rows])
            along[is_stored] = self.along[at[is_stored]]
            return inputs, along, folds
        return self.data.inputs[..., torch.from_numpy(at).to(device), :], self.along[at], folds

    def embed(self, index: Codes | None = None) -> NDArray[np.float32]:
        """(n, m) embedding of all rows, or of those of an index."""
        empty = np.empty((0, self.map.n_components), np.float32)
        return np.concatenate([empty, *(places for places, _ in self.judge(index))])

    def novelty(self) -> NDArray[np.float32]:
        """(n,) novelty of all rows; NaN if it was not learned.

        If novelty was learned from a row, its score is computed from the other folds only.
        """
        learned = self.map.novelty
        if learned is None or self.scored is None:
            return np.full(self.X.shape[0], np.nan, dtype=np.float32)
        novelty = learned.quantiles(self.X, self.map.standardizer)
        rows, scores = self.scored
        novelty[rows] = learned.ranks(scores)
        return novelty

    @property
    def trained(self) -> Codes:
        """Sorted rows of training and validation."""
        return np.sort(np.append(self.division.train, self.division.validation))

    @property
    def unseen(self) -> Codes:
        """Labelled rows in memory that are placed by a network that was not trained on them."""
        division = self.division
        if division.n_networks > 1:
            return self.trained[~division.unjudged[self.trained]]
        is_merged = self.outcome.reports[-1].stage == "merge"
        return division.validation[:0] if is_merged else division.validation

    def crowded_group(self) -> tuple[int, float] | None:
        """Index of a group that is too large to be placed well, and its share of the training rows.

        Its rows are placed by a network that had less than half as many training rows as another
        network. If all training rows are of this group, they are placed by networks that were
        trained on other rows of the group. None if there is no such group.
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
    device: torch.device,
    seed: int,
    *,
    groups: Codes | None = None,
    novelty: bool = False,
    callback: Callback | None = None,
) -> Fit:
    """Train on some rows of X, with the parameters of an estimator.

    The map is calibrated on rows that are placed by a network that was not trained on them. With
    several networks, these are all training rows. With one network, they are the validation rows,
    unless `merge_epochs` trained on them as well. Without such rows the map is not calibrated.

    Parameters
    ----------
    X, codes, classes, groups, novelty, callback
        As in `CentroidEncoder.fit_codes`; X is checked. `Lazy` data are read twice, and rows
        that are not in memory a third time when they are placed.
    params
        Parameters of `CentroidEncoder`, already checked.
    device, seed
        Device of the training, and the source of all randomness.

    Raises
    ------
    ValueError
        If there are fewer than two classes or too many, or labels that no file can hold; if a class
        weight is not above 0; if values are too large for float32, or no class has enough samples
        for validation.
    StoppedTooEarly, KeyboardInterrupt, DivergedError
        As in `train`.
    """
    known = _check_classes(classes, codes, params)
    codes, n_classes = np.where(codes < 0, -1, np.searchsorted(known, codes)), len(known)
    division = divide(
        codes,
        params,
        lambda n_train: resolved(params, n_train, X.shape[1], n_classes)["n_networks"],
        seed,
        groups,
    )
    rows, folds, n_networks = division.train, division.folds, division.n_networks
    trained, absent = classes[known], np.delete(classes, known)
    weights = class_weights(params["class_weight"], trained[codes[codes >= 0]], trained, absent)
    weights = (weights / weights[codes[rows]].mean()).astype(np.float32)
    in_sample = representatives(codes[rows], N_SAMPLE, N_OF_CLASS, np.random.default_rng(0))
    standardizer, shares, sample = features.fit_standardizer(
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
    sampled_codes, placer, axes, knots, noise = codes[sampled], None, None, None, None
    n_components, n_epochs = int(settings["n_components"]), int(settings["max_epochs"])
    if settings["placement"] != "bottleneck":
        centroids = _centroids(z, np.arange(len(z)), sampled_codes, n_classes)
        targets = CentroidTargets.fit(centroids, settings["output"], device)
        objective = CentroidTargets.spread_out(centroids, device)
        wanted = objective.coordinates.cpu().numpy()
        sizes = np.bincount(codes[rows], minlength=n_classes)
        # The discriminant analysis receives the z-scores without the weights of the features.
        z_axes = network_axes(z, 1 / standardizer.weight[standardizer.kept], discriminant.N_AXES)
        linear = Discriminant.fit(z, z_axes, sampled_codes, n_classes)
        placer = Placer.fit(z, sampled_codes, centroids, wanted, n_components, sizes, linear)
        is_rich = z.shape[1] <= N_AXES and RICH[0] * z.shape[1] <= len(rows) <= RICH[1]
        knots, of_networks, of_folds = features.ramp_knots(z) if is_rich else None, [], []
        for k, share in enumerate(shares):
            is_own = folds[sampled] != k
            x, its_codes = z[np.flatnonzero(is_own)], sampled_codes[is_own]
            found = network_axes(x, share, N_AXES)
            received, its_rows = x @ found.T, np.arange(len(x))
            means = _centroids(received, its_rows, its_codes, n_classes)
            # Which features have a weight follows from the labels, too.
            has_weight = torch.from_numpy(share > 0).to(device)
            linear = Discriminant.fit(x, z_axes * has_weight, its_codes, n_classes)
            of_fold = received, its_codes, means, wanted, n_components, sizes, linear
            of_folds.append(Placer.fit(*of_fold, placer.layout))
            more = discriminant_axes(x, share, its_codes, n_classes) if is_rich else found[:0]
            of_networks.append(torch.cat([found, more]))
        placer, axes = replace(placer, of_folds=tuple(of_folds)), torch.stack(of_networks)
        if z.shape[1] > N_AXES and settings["dropout"]:
            noise = features.noise_on_axes(z, axes, settings["dropout"])
    frames, callback = Frames(X.shape[0], placer), callback or (lambda report: False)
    start = partial(frames.start, z, axes, sampled, sampled_codes)
    if callback(Report("start", 0, n_epochs, 0, n_epochs, frame=start)):
        raise StoppedTooEarly
    del z, sample, start

    inputs, along = _read(X, division, standardizer, axes, knots, placer, device)
    stored = division.in_memory
    in_training, in_validation = (np.searchsorted(stored, x) for x in (rows, division.validation))
    if placer is None:
        # With a bottleneck, the centroids are the means of all training rows, as in the paper.
        centroids = _centroids(inputs, in_training, codes[rows], n_classes)
        output, compactness = settings["output"], settings["compactness"]
        targets = objective = CentroidTargets.fit(centroids, output, device, compactness)

    generator = torch.Generator().manual_seed(seed)
    network = Network(
        inputs.shape[-1],
        settings["hidden"],
        n_components if placer is None else objective.n_outputs,
        objective.n_outputs if placer is None else 0,
        settings["activation"],
        generator,
        batch_norm=settings["batch_norm"],
        n_networks=n_networks,
    ).to(device)
    network.votes.copy_(torch.from_numpy(division.votes))
    labels, trains, validates, class_weight, of_rows = (
        torch.from_numpy(x).to(device)
        for x in (codes[stored], in_training, in_validation, weights, folds[stored])
    )
    data = TrainingData(inputs, labels, trains, validates, class_weight, of_rows, noise)
    frame = partial(frames.frame, stored, codes[stored], division.placed_by[stored], along)
    config = TrainingConfig(**{part.name: settings[part.name] for part in fields(TrainingConfig)})
    outcome = train(network, objective, data, config, generator, callback=callback, frame=frame)
    network.fold_batch_norm()

    unknown_centers = np.full((n_classes, n_components), np.nan)
    offsets = tuple((-np.log(weights.astype(np.float64))).tolist())
    of_map = standardizer, network, targets, unknown_centers, axes, knots, placer
    fitted = FittedMap(*of_map, Calibration(offsets=offsets))
    done = Fit(fitted, known, X, codes, division, groups, data, along, outcome)
    _complete(done, weights)
    chosen = done.trained
    if novelty and len(chosen) >= LEAST:
        own = None if groups is None else groups[chosen]
        fitted.novelty, chosen, scores = Novelty.fit(X, chosen, codes[chosen], standardizer, own)
        done.scored = chosen, scores
    return done


def _check_classes(classes: NDArray[Any], codes: Codes, params: Mapping[str, Any]) -> Codes:
    """Return the indices of the classes that have rows; check their number and type."""
    labels = classes[codes[codes >= 0]]
    check_classification_targets(labels)
    known = np.unique(codes[codes >= 0])
    found = f"one class ({labels[0]})" if len(known) else "no samples"
    check(len(known) > 1, f"training needs at least two classes, but got {found}")
    text = f"{len(known):,} classes are too many for a layout (at most {placement.MOST_CLASSES:,});"
    fits = params["placement"] == "bottleneck" or len(known) <= placement.MOST_CLASSES
    check(fits, f"{text} merge classes, or pass placement='bottleneck'", "placement")
    check_labels(classes[known])
    return known


def _centroids(z: Tensor, rows: Codes, codes: Codes, n_classes: int) -> NDArray[np.float64]:
    """(M, k) class means of rows of (n, k) inputs, which have the classes `codes`; 0 for none."""
    sums = np.zeros((n_classes, z.shape[1]))
    for part in gen_batches(len(rows), CHUNK):
        own = z[torch.from_numpy(rows[part]).to(z.device)].cpu().double().numpy()
        sums += class_sums(own, codes[part], len(sums))
    centroids = sums / np.bincount(codes, minlength=n_classes).clip(1)[:, None]
    check(np.isfinite(centroids).all(), "X holds values too large to be trained on; rescale it")
    return np.asarray(centroids)


def _read(
    X: Matrix | Lazy,
    division: Division,
    standardizer: Standardizer,
    axes: Tensor | None,
    knots: Tensor | None,
    placer: Placer | None,
    device: torch.device,
) -> tuple[Tensor, NDArray[np.float32]]:
    """Read the rows that are kept in memory.

    Returns the inputs of the networks, and the (n_in_memory, a + b) result of `Placer.project`
    (a + b = 0 without a placer). The scatter of a fold has its axes in the network's inputs.
    """
    stored, n_inputs = division.in_memory, len(standardizer.kept)
    n_networks, n_axes = (1, n_inputs) if axes is None else axes.shape[:2]
    n_ramps = 0 if knots is None else features.N_RAMPS * n_inputs
    inputs = torch.empty((n_networks, len(stored), n_axes + n_ramps), device=device)
    n_along = 0 if placer is None else len(placer.scatter.axes) + len(placer.linear.axes)
    along, folds = np.empty((len(stored), n_along), np.float32), division.placed_by[stored]
    for part, chunk in row_chunks(X, stored):
        z = standardizer(chunk, device)
        inputs[:, part] = features.on_axes(z, axes, knots)
        if placer is None:
            continue
        along[part] = placer.project(z)
        for k, of_fold in enumerate(placer.of_folds):
            own, (a, r) = np.flatnonzero(folds[part] == k), of_fold.scatter.axes.shape
            at = torch.from_numpy(own).to(device)
            rows, x = part.start + own, inputs[k, part][at, :r]
            along[rows, :a] = of_fold.scatter.project(x)
            along[rows, -len(of_fold.linear.axes) :] = of_fold.linear.project(z[at])
    return inputs[0] if len(inputs) == 1 else inputs, along


@torch.no_grad()
def _complete(done: Fit, class_weights: NDArray[np.float32]) -> None:
    """Add odds, centers and calibration to the map, from outputs of the trained networks."""
    fitted, codes, division = done.map, done.codes, done.division
    trained, unseen = done.trained, done.unseen
    # The placer needs odds. If one network was trained on all rows, they are fitted to these rows,
    # although its outputs for them are too certain.
    some = at_most(placement.N_FITTED, unseen if len(unseen) else trained)
    if fitted.placer is None:
        fitted.centers = class_centers(done.embed(trained), codes[trained], len(fitted.centers))
    else:
        inputs, along, folds = done.inputs(some)
        outputs = fitted.network.outputs(inputs, folds).cpu().numpy()
        weights = class_weights[codes[some]].astype(np.float64)
        fold = division.folds[some]
        if division.n_networks > 1:
            # Each network counts in the fit of the odds as much as it counts for new rows.
            weights *= division.votes[fold] / np.bincount(fold)[fold]
        known = outputs, along, codes[some], weights, fold
        fitted.placer = fitted.placer.with_odds(*known, is_new=len(unseen) > 0)
        fitted.centers = fitted.placer.layout.positions
    if len(unseen):
        distances = np.concatenate([found for _, found in done.judge(some)])
        offsets = fitted.calibration.offsets
        fitted.calibration = Calibration.fit(distances, codes[some], offsets)
