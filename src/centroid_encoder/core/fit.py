"""The assembly of a training: from data, class indices and parameters to a fitted map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from centroid_encoder.core import discriminant, placement
from centroid_encoder.core.arrays import Codes, Doubles, Singles
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.discriminant import Discriminant
from centroid_encoder.core.inputs import (
    N_AXES,
    Inputs,
    Standardizer,
    class_sums,
    discriminant_axes,
    fit_standardizer,
    is_rich,
    network_axes,
    ramp_knots,
)
from centroid_encoder.core.layout import Layout
from centroid_encoder.core.map import FittedMap, Judged
from centroid_encoder.core.matrix import Lazy, Matrix, chunks, row_chunks
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import LEAST, Novelty
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.placement import Placer, Scatter
from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.reports import Callback, Frame, Report, StoppedTooEarly
from centroid_encoder.core.saved import check_labels
from centroid_encoder.core.settings import resolved
from centroid_encoder.core.splits import Division, at_most, divide, representatives
from centroid_encoder.core.targets import CentroidTargets, class_weights
from centroid_encoder.core.threads import on_cores
from centroid_encoder.core.train import Run, TrainingData
from centroid_encoder.errors import check

N_SAMPLE = 10_000  # largest number of training rows from which axes and places are computed
N_OF_CLASS = 20  # smallest number of these rows in each class, if it has as many
N_SHOWN = 2_000  # rows from which the odds are computed during the training


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
    along: Singles
    """(n_in_memory, a) coordinates of the rows in memory along the axes of the scatter."""
    run: Run
    scored: tuple[Codes, Doubles] | None = None
    """Rows from which novelty was learned, and their scores; None without novelty."""

    def judge(self, index: Codes | None = None) -> Iterator[Judged]:
        """Yield the embedding of rows (default: all), and their distances to the classes.

        Yields the (b, m) embedding and (b, K) distances of `CHUNK` rows at a time.
        """
        index = np.arange(self.X.shape[0]) if index is None else index
        for part in chunks(len(index)):
            yield self.map.judge_inputs(*self.read(index[part]))

    def read(self, rows: Codes) -> tuple[Tensor, Singles, Codes]:
        """Arguments of `FittedMap.judge_inputs` for rows: inputs, coordinates and folds."""
        device, stored = self.map.device, self.division.in_memory
        folds = self.division.placed_by[rows]
        at = np.minimum(np.searchsorted(stored, rows), len(stored) - 1)
        if (stored[at] != rows).any():
            return self.map.read(self.map.standardizer(self.X[rows], device), folds)
        return self.run.data.inputs[..., torch.from_numpy(at).to(device), :], self.along[at], folds

    def embed(self, index: Codes | None = None) -> Singles:
        """(n, m) embedding of all rows, or of those of an index."""
        empty = np.empty((0, self.map.n_components), np.float32)
        return np.concatenate([empty, *(places for places, _ in self.judge(index))])

    def novelty(self) -> Singles:
        """(n,) novelty of all rows; NaN if it was not learned.

        If novelty was learned from a row, its score is computed from the other folds only.
        """
        learned = self.map.novelty
        if learned is None or self.scored is None:
            return np.full(self.X.shape[0], np.nan, dtype=np.float32)
        novelty = learned.quantiles(self.X)
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
        is_merged = self.run.reports[-1].stage == "merge"
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
        As in ``core.train.Run.start``.
    """
    known, given = _check_classes(classes, codes, params)
    codes, n_classes = np.where(codes < 0, -1, np.searchsorted(known, codes)), len(known)
    division = divide(codes, params, X.shape[1], seed, groups)
    rows, stored, placed_by = division.train, division.in_memory, division.placed_by
    weights = np.asarray(given / given[codes[rows]].mean(), dtype=np.float32)

    # What the networks receive, and the places of the classes, come from a sample of the rows.
    standardizer, shares, sampled, z = _standardized(X, codes, division, params, device)
    settings = resolved(params, len(rows), len(standardizer.kept), n_classes)
    inputs, placer = Inputs(standardizer), None
    n_components, n_epochs = int(settings["n_components"]), int(settings["max_epochs"])
    if settings["placement"] != "bottleneck":
        sizes = np.bincount(codes[rows], minlength=n_classes)
        of_sample = codes[sampled], division.folds[sampled], sizes, settings
        inputs, placer, targets, objective = _places(standardizer, shares, z, *of_sample)
    noise, callback = inputs.noise(z, settings["dropout"]), callback or (lambda report: False)
    start, frame = Report("start", 0, n_epochs, 0, n_epochs), partial(_frame, codes, division)
    if placer is not None and division.n_networks > 1:
        # Before the training, the discriminant analysis alone places the sample.
        along = placer.project(z, inputs(z), placed_by[sampled])
        no_outputs = torch.zeros(len(z), objective.n_outputs)
        start = replace(start, frame=partial(frame, placer, sampled, along, no_outputs))
    if callback(start):
        raise StoppedTooEarly
    del z, start

    # The training.
    received, along = _read(X, stored, placed_by[stored], inputs, placer, device)
    index = (np.searchsorted(stored, of) for of in (rows, division.validation))
    labels, trains, validates, of_classes, folds = (
        torch.from_numpy(x).to(device)
        for x in (codes[stored], *index, weights, division.folds[stored])
    )
    data = TrainingData(received, labels, trains, validates, of_classes, folds, noise)
    if placer is None:
        # With a bottleneck, the centroids are the means of all training rows, as in the paper.
        centroids = _centroids(received, data.train.cpu().numpy(), codes[rows], n_classes)
        output, compactness = settings["output"], settings["compactness"]
        targets = objective = CentroidTargets.fit(centroids, output, device, compactness)

    generator = torch.Generator().manual_seed(seed)
    widths = (n_components, objective.n_outputs) if placer is None else (objective.n_outputs, 0)
    shape = inputs.n, settings["hidden"], *widths, settings["activation"], generator
    batch_norm, n_networks = settings["batch_norm"], division.n_networks
    network = Network(*shape, batch_norm=batch_norm, n_networks=n_networks).to(device)
    network.votes.copy_(torch.from_numpy(division.votes))
    frame = partial(frame, placer, stored, along)
    config = TrainingConfig(**{part.name: settings[part.name] for part in fields(TrainingConfig)})
    run = Run(network, objective, data, config, generator, callback, frame).start()
    network.fold_batch_norm()

    # The odds of the classes, the calibration and the novelty.
    unknown_centers = np.full((n_classes, n_components), np.nan)
    calibration = Calibration(offsets=tuple((-np.log(weights.astype(np.float64))).tolist()))
    fitted = FittedMap(inputs, network, targets, unknown_centers, placer, calibration)
    done = Fit(fitted, known, X, codes, division, groups, along, run)
    _complete(done, weights, novelty)
    return done


def _check_classes(
    classes: NDArray[Any], codes: Codes, params: Mapping[str, Any]
) -> tuple[Codes, Doubles]:
    """Return the indices of the classes that have rows, and their weights; check all of them."""
    labels = classes[codes[codes >= 0]]
    check_classification_targets(labels)
    known = np.unique(codes[codes >= 0])
    found = f"one class ({labels[0]})" if len(known) else "no samples"
    check(len(known) > 1, f"training needs at least two classes, but got {found}")
    text = f"{len(known):,} classes are too many for a layout (at most {placement.MOST_CLASSES:,});"
    fits = params["placement"] == "bottleneck" or len(known) <= placement.MOST_CLASSES
    check(fits, f"{text} merge classes, or pass placement='bottleneck'", "placement")
    check_labels(classes[known])
    of_classes = labels, classes[known], np.delete(classes, known)
    return known, class_weights(params["class_weight"], *of_classes)


def _standardized(
    X: Matrix | Lazy,
    codes: Codes,
    division: Division,
    params: Mapping[str, Any],
    device: torch.device,
) -> tuple[Standardizer, Doubles, Codes, Tensor]:
    """Compute the standardisation, and standardise a sample of the training rows.

    Returns the standardizer and the shares of `fit_standardizer`, the (s,) rows of the sample, and
    the (s, k) standardised rows.
    """
    rows = division.train
    in_sample = representatives(codes[rows], N_SAMPLE, N_OF_CLASS, np.random.default_rng(0))
    standardizer, shares, sample = fit_standardizer(
        X,
        rows,
        codes[rows],
        params["scale"],
        np.inf if params["clip"] is None else params["clip"],
        params["max_features"],
        division.folds[rows] if division.n_networks > 1 else None,
        in_sample,
    )
    z = torch.cat([standardizer(chunk, device) for _, chunk in row_chunks(sample)])
    return standardizer, shares, rows[in_sample], z


def _centroids(z: Tensor, rows: Codes, codes: Codes, n_classes: int) -> Doubles:
    """(M, k) class means of rows of (n, k) inputs, which have the classes `codes`; 0 for none."""
    sums = np.zeros((n_classes, z.shape[1]))
    for part in chunks(len(rows)):
        own = z[torch.from_numpy(rows[part]).to(z.device)].cpu().double().numpy()
        sums += class_sums(own, codes[part], len(sums))
    centroids = sums / np.bincount(codes, minlength=n_classes).clip(1)[:, None]
    check(np.isfinite(centroids).all(), "X holds values too large to be trained on; rescale it")
    return np.asarray(centroids)


def _places(
    standardizer: Standardizer,
    shares: Doubles,
    z: Tensor,
    codes: Codes,
    folds: Codes,
    sizes: Codes,
    settings: Mapping[str, Any],
) -> tuple[Inputs, Placer, CentroidTargets, CentroidTargets]:
    """Lay out the classes; choose axes and compute the scatter of each fold from the other folds.

    `shares` holds the (K, k) weights of `fit_standardizer`, and `z` (s, k) standardised rows;
    `codes` and `folds` are their (s,) classes and folds, and `sizes` the (M,) numbers of training
    rows. Returns the inputs of the networks, the placer, the targets in the span of the centroids,
    and those of the networks.
    """
    n_classes = len(sizes)

    def centered(z: Tensor, codes: Codes) -> tuple[Doubles, Tensor]:
        centroids = _centroids(z, np.arange(len(z)), codes, n_classes)
        return centroids, z - torch.from_numpy(centroids).float().to(z.device)[codes]

    centroids, residuals = centered(z, codes)
    objective = CentroidTargets.spread_out(centroids, z.device)
    targets, m = objective.coordinates.cpu().numpy(), int(settings["n_components"])
    # The area of a class in the plane grows with the square root of its size.
    roots = np.sqrt(sizes)
    room = np.sqrt(roots / roots.mean())
    variance = float(residuals.square().mean()) * len(z) / max(len(z) - n_classes, 1)
    noise = variance / np.bincount(codes, minlength=n_classes).clip(1)
    layout = Layout.fit(centroids, m, room, noise)
    scatter = Scatter.fit(residuals, codes, centroids, m).turned(layout.positions, room)
    # The discriminant analysis receives the z-scores without the weights of the features.
    weight = standardizer.weight[standardizer.kept]
    of_linear = network_axes(z, 1 / weight, discriminant.N_AXES)
    linear = Discriminant.fit(z, of_linear, codes, n_classes)
    with_more = is_rich(z.shape[1], int(sizes.sum()))

    def of_fold(k: int) -> tuple[Tensor, Placer]:
        own, share = np.flatnonzero(folds != k), shares[k]
        x, y = z[own], codes[own]
        axes = network_axes(x, share, N_AXES)
        more = [discriminant_axes(x, share, y, n_classes)] if with_more else []
        means, residuals = centered(x @ axes.T, y)
        scatter = Scatter.fit(residuals, y, means, m).turned(layout.positions, room)
        # Which features have a weight follows from the labels, too.
        has_weight = torch.from_numpy(share > 0).to(z.device)
        linear = Discriminant.fit(x, of_linear * has_weight, y, n_classes)
        return torch.cat([axes, *more]), Placer(targets, scatter, layout, linear)

    of_networks, of_folds = zip(*on_cores(of_fold, range(len(shares)), z.device), strict=True)
    placer = Placer(targets, scatter, layout, linear, of_folds=of_folds)
    inputs = Inputs(standardizer, torch.stack(of_networks), ramp_knots(z) if with_more else None)
    of_span = CentroidTargets.fit(centroids, settings["output"], z.device)
    return inputs, placer, of_span, objective


def _read(
    X: Matrix | Lazy,
    rows: Codes,
    folds: Codes,
    inputs: Inputs,
    placer: Placer | None,
    device: torch.device,
) -> tuple[Tensor, Singles]:
    """Read the rows that are kept in memory; `folds` holds the fold that places each, or −1.

    Returns the inputs of the networks, and the (n_in_memory, a + b) result of `Placer.project`
    (a + b = 0 without a placer).
    """
    n_networks = 1 if inputs.axes is None else len(inputs.axes)
    received = torch.empty((n_networks, len(rows), inputs.n), device=device)
    n_along = 0 if placer is None else len(placer.scatter.axes) + len(placer.linear.axes)
    along = np.empty((len(rows), n_along), np.float32)
    for part, chunk in row_chunks(X, rows):
        z = inputs.standardizer(chunk, device)
        received[:, part] = inputs(z)
        if placer is not None:
            along[part] = placer.project(z, received[:, part], folds[part])
    return received[0] if len(received) == 1 else received, along


def _frame(
    codes: Codes,
    division: Division,
    placer: Placer | None,
    rows: Codes,
    along: Singles,
    outputs: Tensor,
) -> Frame:
    """Return a live frame of all rows of X; only the (b,) `rows` have a place.

    `along` is the result of `Placer.project`, and `outputs` holds the (b, r) outputs of the
    networks. With a bottleneck, there is no placer, and the outputs are the embedding.
    """
    found, positions = outputs.cpu().numpy(), None
    if placer is not None:
        own, folds = codes[rows], division.placed_by[rows]
        is_judged = (own >= 0) & (folds >= 0)
        some = at_most(N_SHOWN, np.flatnonzero(is_judged if is_judged.any() else own >= 0))
        known = found[some], along[some], own[some], np.ones(len(some)), folds[some]
        placer = placer.with_odds(*known, is_new=bool(is_judged.any()))
        parts = [placer.judge(found[p], along[p], folds[p])[0] for p in chunks(len(found))]
        found, positions = np.concatenate(parts), placer.layout.positions
    embedding = np.full((len(codes), found.shape[1]), np.nan, np.float32)
    embedding[rows] = found
    return embedding, positions


@torch.no_grad()
def _complete(done: Fit, of_classes: Singles, novelty: bool) -> None:
    """Add odds, centers, calibration and, if it is wanted, novelty to the map."""
    fitted, codes, division = done.map, done.codes, done.division
    trained, unseen = done.trained, done.unseen
    # The placer needs odds. If one network was trained on all rows, they are fitted to these rows,
    # although its outputs for them are too certain.
    some = at_most(placement.N_FITTED, unseen if len(unseen) else trained)
    if fitted.placer is None:
        fitted.centers = class_centers(done.embed(trained), codes[trained], len(fitted.centers))
    else:
        inputs, along, folds = done.read(some)
        outputs = fitted.network.outputs(inputs, torch.from_numpy(folds)).cpu().numpy()
        weights = of_classes[codes[some]].astype(np.float64)
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
    if novelty and len(trained) >= LEAST:
        own = None if done.groups is None else done.groups[trained]
        of_cells = done.X, trained, codes[trained], fitted.standardizer, own
        fitted.novelty, rows, scores = Novelty.fit(*of_cells)
        done.scored = rows, scores
