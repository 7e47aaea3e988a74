"""From X, class codes and parameters to a fitted map: the one place that assembles a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.special import log_softmax
from sklearn.utils import compute_class_weight
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
from centroid_encoder.core.map import FittedMap, Judged
from centroid_encoder.core.matrix import CHUNK, Codes, Lazy, Matrix, row_chunks
from centroid_encoder.core.network import Network
from centroid_encoder.core.novelty import LEAST, Novelty
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.placement import Placer, Scatter
from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.reports import (
    Callback,
    Frame,
    Outcome,
    Report,
    StoppedTooEarly,
)
from centroid_encoder.core.saved import check_labels
from centroid_encoder.core.splits import (
    at_most,
    cross_validation_folds,
    representatives,
    stratified_holdout,
)
from centroid_encoder.core.targets import objectives
from centroid_encoder.core.train import TrainingData, train
from centroid_encoder.errors import InputError

ClassWeight = Literal["sqrt", "balanced"] | Mapping[Any, float] | None

N_AXES = 100
"""Principal axes along which networks without a bottleneck receive more features than these."""
N_SAMPLE = 10_000
"""Training rows from which axes and scatter are computed, at most."""
N_SHOWN = 2_000
"""Rows from which the odds are computed during the training."""
SHOWN = 0.75
"""Share of the information of the first frame from which later frames are shown."""
RIDGE = 0.1
"""Regularisation of the first frame, relative to the mean variance of the inputs."""
TOO_LARGE = "X holds values too large to be trained on; rescale it"


@dataclass(frozen=True)
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
        device, held = self.map.device, self.division.held
        for start in range(0, len(index), CHUNK):
            rows = index[start : start + CHUNK]
            at = np.minimum(np.searchsorted(held, rows), len(held) - 1)
            if (held[at] == rows).all():
                inputs = self.data.inputs[..., torch.from_numpy(at).to(device), :]
                along = None if self.along is None else self.along[at]
            else:
                z = self.map.standardizer(self.X[rows], device)
                inputs = on_axes(z, self.map.axes)
                along = None if self.map.placer is None else self.map.placer.scatter.project(z)
            folds = torch.from_numpy(self.division.folds[rows]).to(device)
            yield self.map.judge_inputs(inputs, along, folds)

    def embed(self, index: Codes | None = None) -> NDArray[np.float32]:
        """(n, m) embedding of all rows, or of those of an index."""
        empty = np.empty((0, self.map.n_components), np.float32)
        return np.concatenate([empty, *(places for places, _ in self.judge(index))])

    def distances(self, index: Codes) -> NDArray[np.float32]:
        """(n, K) distances of the rows of an index to the classes of the map."""
        empty = np.empty((0, len(self.known)), np.float32)
        return np.concatenate([empty, *(distances for _, distances in self.judge(index))])

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
        data = self.data
        if data.folds is not None:
            return np.flatnonzero(self.codes[self.division.held] >= 0)
        validation: Codes = data.validation.cpu().numpy()
        return validation[:0] if self.outcome.merged else validation

    def crowded_group(self) -> tuple[int, float] | None:
        """Index of a group that is too large to be placed well, and its share of the training rows.

        Its rows are placed by a network that was trained on less than half as many rows as the
        largest; or, if all training rows are of that group, by networks that were trained on other
        rows of it. None if there is no such group.
        """
        if self.groups is None or self.data.folds is None:
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
    X
        (n, d) finite data, dense or CSR. Data that are not in memory are read twice, and what is
        not held in memory once more for its place.
    codes
        (n,) index of each row into `classes`; −1 for rows that are not trained on.
    classes
        (M,) labels, all different and sorted.
    params
        As `CentroidEncoder` documents them, checked.
    resolved
        Replaces ``"auto"`` by numbers; called with the parameters and the numbers of training rows,
        of features and of classes (see `recipes.resolved`).
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
    own = np.full(len(classes) + 1, -1)
    own[known] = np.arange(len(known))
    codes, n_classes = own[codes], len(known)
    division = _divide(codes, params, resolved, X.shape[1], seed, groups)
    rows, folds = division.train, division.folds
    in_sample = representatives(codes[rows], N_SAMPLE, 1, np.random.default_rng(0))
    standardizer, shares, sample = fit_standardizer(
        X,
        rows,
        codes[rows],
        params["scale"],
        np.inf if params["clip"] is None else params["clip"],
        params["max_features"],
        folds[rows] if division.n_networks > 1 else None,
        in_sample,
    )
    settings = resolved(params, len(rows), len(standardizer.kept), n_classes)
    sampled = rows[in_sample]
    z = torch.empty((len(sampled), len(standardizer.kept)), device=device)
    for part, chunk in row_chunks(sample):
        z[part] = standardizer(chunk, device)
    if not bool(torch.isfinite(z).all()):
        raise ValueError(TOO_LARGE)
    sampled_codes, n_components = codes[sampled], int(settings["n_components"])
    sums = class_sums(z.double().cpu().numpy(), sampled_codes, n_classes)
    centroids = sums / np.bincount(sampled_codes)[:, None]
    targets, objective = objectives(settings, centroids, device)
    placer: Placer | None = None
    axes, noise, first, seen = None, None, None, list[float]()
    if settings["placement"] != "bottleneck":
        means = torch.from_numpy(centroids).float().to(device)
        scatter = Scatter.fit(z - means[sampled_codes], sampled_codes, centroids, n_components)
        placer = Placer.fit(scatter, centroids, objective.coordinates.cpu().numpy(), n_components)
        own_rows = [np.flatnonzero(folds[sampled] != k) for k in range(division.n_networks)]
        of_networks = [network_axes(z[own_rows[0]], shares[0], N_AXES)]
        first = partial(_first, placer, z, of_networks[0], sampled_codes, sampled, X.shape[0], seen)
    if callback is not None:
        n_epochs = int(settings["max_epochs"])
        if callback(Report("start", 0, n_epochs, 0, n_epochs, frame=first or (lambda: None))):
            raise StoppedTooEarly
    if placer is not None:
        others = zip(own_rows[1:], shares[1:], strict=True)
        of_networks += [network_axes(z[own], share, N_AXES) for own, share in others]
        axes = torch.stack(of_networks)
        if z.shape[1] > N_AXES and settings["dropout"]:
            noise = noise_on_axes(z, axes, settings["dropout"])
    del z, sample, first
    inputs, along, sums = _read(X, division, codes, standardizer, axes, placer, device)
    if len(sampled) < len(rows):
        centroids = sums / np.bincount(codes[rows])[:, None]
        if not np.isfinite(centroids).all():
            raise ValueError(TOO_LARGE)
        targets, objective = objectives(settings, centroids, device)
        if placer is not None:
            coordinates = objective.coordinates.cpu().numpy()
            placer = Placer.fit(placer.scatter, centroids, coordinates, n_components)
    squeezed, generator = axes is None, torch.Generator().manual_seed(seed)
    network = Network(
        inputs.shape[-1],
        settings["hidden"],
        n_components if squeezed else objective.n_outputs,
        objective.n_outputs if squeezed else 0,
        settings["activation"],
        generator,
        batch_norm=settings["batch_norm"],
        n_networks=division.n_networks,
    ).to(device)
    network.votes.copy_(division.votes)
    trained, absent = classes[known], np.delete(classes, known)
    weights = class_weights(params["class_weight"], trained[codes[codes >= 0]], trained, absent)
    if weights is not None:
        weights = weights / weights[codes[rows]].mean()
    data = TrainingData(
        inputs,
        torch.from_numpy(codes[division.held]).to(device),
        torch.from_numpy(np.searchsorted(division.held, rows)).to(device),
        torch.from_numpy(np.searchsorted(division.held, division.validation)).to(device),
        None if weights is None else torch.from_numpy(weights.astype(np.float32)).to(device),
        torch.from_numpy(folds[division.held]).to(device) if division.n_networks > 1 else None,
        noise,
    )
    frame = partial(_frame, placer, along, codes[division.held], division.held, X.shape[0], seen)
    names = [field.name for field in fields(TrainingConfig)]
    config = TrainingConfig(**{name: settings[name] for name in names})
    outcome = train(network, objective, data, config, generator, callback=callback, frame=frame)
    network.fold_batch_norm()
    nowhere = np.full((n_classes, n_components), np.nan)
    fitted = FittedMap(standardizer, network, targets, nowhere, axes, placer)
    done = Fit(fitted, known, X, codes, division, groups, data, along, outcome)
    _complete(done)
    chosen = np.sort(np.append(rows, division.validation))
    if not novelty or len(chosen) < LEAST:
        return done
    fitted.novelty, scored_rows, scores = Novelty.fit(X, chosen, codes[chosen], standardizer)
    return replace(done, scored=(scored_rows, scores))


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


@dataclass(frozen=True)
class Division:
    """Division of the rows of X. All rows are sorted."""

    held: Codes
    """Rows that are held in memory: all of them, or only those that train and validate."""
    train: Codes
    """Rows that train."""
    validation: Codes
    """Rows that validate."""
    folds: Codes
    """(n,) network that is not trained on a labelled row; −1 for none."""
    n_networks: int

    @property
    def votes(self) -> Tensor:
        """(K,) weight of each network for rows that no network is trained on; their sum is 1.

        Proportional to the number of rows that the network is trained on: groups differ in size.
        """
        if self.n_networks == 1:
            return torch.ones(1)
        n_seen = len(self.train) - np.bincount(self.folds[self.train], minlength=self.n_networks)
        return torch.from_numpy(n_seen / n_seen.sum()).float()


def _divide(
    codes: Codes,
    params: Mapping[str, Any],
    resolved: Callable[[Mapping[str, Any], int, int, int], Mapping[str, Any]],
    n_features: int,
    seed: int,
    groups: Codes | None,
) -> Division:
    """Choose the rows that train and validate, and the fold of each labelled row."""
    labeled, most, n = np.flatnonzero(codes >= 0), params["max_samples"], len(codes)
    chosen = labeled
    if most is not None and len(labeled) > most:
        rng = np.random.default_rng(seed)
        chosen = labeled[representatives(codes[labeled], most, 1, rng)]
    validates = np.zeros(len(chosen), dtype=bool)
    if fraction := params["validation_fraction"]:
        validates = stratified_holdout(codes[chosen], fraction, seed)
        if not validates.any():
            raise InputError(
                f"no class has the {np.ceil(1 / fraction):.0f} samples that "
                f"validation_fraction={fraction} needs",
                parameter="validation_fraction",
            )
    train, validation, folds = chosen[~validates], chosen[validates], np.full(n, -1)
    n_networks = int(resolved(params, len(train), n_features, codes.max() + 1)["n_networks"])
    own = None if groups is None or len(np.unique(groups[train])) == 1 else groups[train]
    most_folds = np.bincount(codes[train]).max() if own is None else len(np.unique(own))
    n_networks = min(n_networks, int(most_folds))
    if n_networks > 1:
        folds[train] = cross_validation_folds(codes[train], n_networks, seed, own)
        # The others have a fold, too: a network that validation rows are merged into must not
        # place them, nor one that was trained on their group.
        others = np.setdiff1d(labeled, train, assume_unique=True)
        folds[others] = np.arange(len(others)) % n_networks
        if own is not None and groups is not None:
            of_group = np.full(groups.max() + 1, -1)
            of_group[own] = folds[train]
            found = of_group[groups[others]]
            folds[others] = np.where(found < 0, folds[others], found)
    held = np.arange(n) if most is None or n <= most else chosen
    return Division(held, train, validation, folds, n_networks)


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


def _frame(
    placer: Placer | None,
    along: NDArray[np.float32] | None,
    codes: Codes,
    rows: Codes,
    n: int,
    seen: list[float],
    outputs: Tensor,
) -> Frame | None:
    """Embedding of n rows from the networks' outputs for some of them.

    `seen` receives the information about the classes, in nats. There is no frame as long as it is
    far below that of the first one: the classes would collapse and unfold again.
    """
    found, centers = outputs.cpu().numpy(), None
    if placer is not None and along is not None:
        some = at_most(N_SHOWN, np.flatnonzero(codes >= 0))
        current, centers = placer.with_odds(found[some], codes[some], None), placer.layout.positions
        logits = current.odds.logits(found[some], current.targets)
        likelihood = log_softmax(logits, axis=1)[np.arange(len(some)), codes[some]].mean()
        seen.append(max(float(likelihood + stats.entropy(np.bincount(codes[some]))), 0))
        if seen[-1] < SHOWN * seen[0]:
            return None
        parts = range(0, len(found), CHUNK)
        found = np.concatenate(
            [current.judge(found[i : i + CHUNK], along[i : i + CHUNK])[0] for i in parts]
        )
    embedding = np.full((n, found.shape[1]), np.nan, dtype=np.float32)
    embedding[rows] = found
    return embedding, centers


def _first(
    placer: Placer,
    z: Tensor,
    axes: Tensor,
    codes: Codes,
    rows: Codes,
    n: int,
    seen: list[float],
) -> Frame | None:
    """Return a frame before the training: ridge regression of the targets on one network's axes.

    Each row has the output of the regression on the others, in closed form (leave-one-out).
    """
    x = z @ axes.T
    x = x - x.mean(dim=0)
    targets = torch.from_numpy(placer.targets).to(z.device)[torch.from_numpy(codes).to(z.device)]
    gram = x.T @ x
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), device=z.device)
    smoother = torch.linalg.solve(gram, x.T)
    residuals = targets - targets.mean(dim=0)
    residuals = residuals - x @ (smoother @ residuals)
    leverage = (x * smoother.T).sum(dim=1, keepdim=True) + 1 / len(x)
    outputs = targets - residuals / (1 - leverage).clamp_min(1e-3)
    return _frame(placer, placer.scatter.project(z), codes, rows, n, seen, outputs)


@torch.no_grad()
def _complete(done: Fit) -> None:
    """Add odds, centers and calibration to the map, from outputs of the trained networks."""
    fitted, data, codes = done.map, done.data, done.codes[done.division.held]
    labeled, unseen = np.flatnonzero(codes >= 0), done.unseen
    # One network that was trained on everything is too sure of its own rows, but the plane needs
    # odds.
    some = at_most(placement.N_FITTED, unseen if len(unseen) else labeled)
    if fitted.placer is None:
        embedding = done.embed(done.division.held[labeled])
        fitted.centers = class_centers(embedding, codes[labeled], len(fitted.centers))
    else:
        part = torch.from_numpy(some).to(fitted.device)
        folds = None if data.folds is None else data.folds[part]
        outputs = fitted.network.outputs(data.inputs[..., part, :], folds).cpu().numpy()
        fitted.placer = fitted.placer.with_odds(outputs, codes[some], _odds_weights(done, some))
        fitted.centers = fitted.placer.layout.positions
    if len(unseen):
        distances = done.distances(done.division.held[some])
        fitted.calibration = Calibration.fit(distances, codes[some])


def _odds_weights(done: Fit, index: Codes) -> NDArray[np.float64]:
    """(n,) weights of held rows in the odds: their class's, times a factor of their fold.

    By that factor, the rows of a fold together have the weight that the network which is not
    trained on them has in the placement of new rows.
    """
    data, weights, rows = done.data, np.ones(len(index)), done.division.held[index]
    if data.weights is not None:
        weights *= data.weights.cpu().numpy()[done.codes[rows]]
    if data.folds is not None:
        folds = done.division.folds[rows]
        n_of_fold = np.bincount(folds, minlength=done.division.n_networks)
        weights *= done.division.votes.numpy()[folds] / n_of_fold[folds]
    return weights


def class_weights(
    weight: ClassWeight, labels: NDArray[Any], classes: NDArray[Any], absent: NDArray[Any]
) -> NDArray[np.float64] | None:
    """(K,) weight of each class that is trained on, in any unit; absent ones are ignored."""
    if weight is None:
        return None
    if isinstance(weight, Mapping):
        unused = set(absent.tolist())
        weight = {label: value for label, value in weight.items() if label not in unused}
    rooted = isinstance(weight, str) and weight == "sqrt"
    per_class: NDArray[np.float64] = compute_class_weight(
        "balanced" if rooted else weight, classes=classes, y=labels
    )
    if rooted:
        per_class = np.sqrt(per_class)
    if not (per_class > 0).all():
        raise InputError("class_weight must be above 0 for every class", parameter="class_weight")
    return per_class
