"""Data that are ready to be trained on, and the checks that come before a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import compute_class_weight
from torch import Tensor

from centroid_encoder.core.map import Codes
from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.core.rows import standardized
from centroid_encoder.core.splits import cross_validation_folds, stratified_holdout
from centroid_encoder.core.standardization import Scale, Standardizer
from centroid_encoder.core.training import TrainingData
from centroid_encoder.errors import InputError, Setting

ClassWeight = Literal["sqrt", "balanced"] | Mapping[Any, float] | None


@dataclass(frozen=True)
class Problem:
    """Data that are ready to be trained on: standardised, on their device, divided."""

    X: Matrix | Lazy
    """(n, d) the data as they came."""
    codes: Codes
    """(n,) class index of each row, from 0 to M − 1; −1 for rows that shape nothing."""
    standardizer: Standardizer
    data: TrainingData
    groups: Codes | None = None
    """(n,) group of each row, if there are groups."""

    @classmethod
    def of(
        cls,
        X: Matrix | Lazy,
        codes: Codes,
        device: torch.device,
        *,
        scale: Scale,
        clip: float | None,
        max_features: int | None,
        validation_fraction: float = 0.0,
        seed: int = 0,
        class_weight: NDArray[np.floating] | None = None,
        n_networks: Callable[[int], int] = lambda n_train: 1,
        groups: Codes | None = None,
    ) -> Self:
        """Standardise the data by the rows that train.

        Parameters
        ----------
        X
            (n, d) finite data, dense or CSR. If they are not in memory, they are read twice: for
            what is learned of them, and for the features that are kept.
        codes
            (n,) class index of each row; −1 for rows that are only embedded. Every class has a row
            that trains.
        device
            Where to train.
        scale, clip, max_features, validation_fraction
            As `CentroidEncoder` documents them.
        seed
            Makes the choice of the rows that validate repeatable.
        class_weight
            (M,) weight of the samples of each class, in any unit.
        n_networks
            How many networks share the rows that train, by how many of these there are. Each is
            trained on all but its own fold.
        groups
            (n,) group indices; rows of one group are in one fold, unless all training rows are of
            one group.

        Raises
        ------
        ValueError
            If the data are too large to be standardised, or no class large enough to validate.
        """
        labeled = np.flatnonzero(codes >= 0)
        validates = np.zeros(len(labeled), dtype=bool)
        if validation_fraction:
            validates = stratified_holdout(codes[labeled], validation_fraction, seed)
            if not validates.any():
                raise InputError(
                    "no class has the {:.0f} samples that {} needs",
                    np.ceil(1 / validation_fraction),
                    Setting("validation_fraction", validation_fraction),
                )
        index, validation = labeled[~validates], labeled[validates]
        folds = _folds(codes, index, validation, n_networks(len(index)), seed, groups)
        standardizer = Standardizer.fit(
            X,
            index,
            codes[index],
            scale,
            np.inf if clip is None else clip,
            max_features,
            None if folds is None else folds[index],
        )
        if not np.isfinite(standardizer.scale).all():
            raise ValueError("X holds values too large to be standardised; rescale it")
        weights = None
        if class_weight is not None:
            mean_one = class_weight / class_weight[codes[index]].mean()
            weights = torch.from_numpy(mean_one.astype(np.float32)).to(device)
        data = TrainingData(
            standardized(X, standardizer, device),
            torch.from_numpy(codes).to(device),
            torch.from_numpy(index).to(device),
            torch.from_numpy(validation).to(device),
            weights,
            None if folds is None else torch.from_numpy(folds).to(device),
        )
        return cls(X, codes, standardizer, data, groups)

    def weights(self, index: NDArray[np.integer]) -> NDArray[np.float64]:
        """(n,) weights of the training rows at an index, where the odds are learned from them.

        The weight of a row's class, times a factor by which the rows of all folds together weigh
        what the network that is not trained on them does in the placement of new rows.
        """
        weights = np.ones(len(index))
        if self.data.weights is not None:
            weights *= self.data.weights.cpu().numpy()[self.codes[index]]
        if self.data.folds is not None:
            folds = self.data.folds.cpu().numpy()[index]
            n_of_fold = np.bincount(folds, minlength=self.n_networks)
            weights *= self.votes[folds] / n_of_fold[folds]
        return weights

    @property
    def shares(self) -> NDArray[np.floating] | None:
        """(K, k) by how much more each network weighs each input than all do; None for no more."""
        standardizer = self.standardizer
        if standardizer.of_networks is None:
            return None
        kept = standardizer.kept
        return np.asarray(standardizer.of_networks[:, kept] / standardizer.weight[kept])

    @property
    def n_seen(self) -> NDArray[np.intp]:
        """(K,) number of rows that each network is trained on."""
        if self.data.folds is None:
            return np.array([self.n_train])
        folds = self.data.folds[self.data.train].cpu().numpy()
        return np.asarray(self.n_train - np.bincount(folds))

    @property
    def votes(self) -> NDArray[np.float64]:
        """(K,) weight of each network for rows that no network is trained on; their sum is 1.

        It is proportional to the number of rows that the network is trained on: where groups
        differ in size, a network can have few.
        """
        return np.asarray(self.n_seen / self.n_seen.sum())

    @property
    def n_networks(self) -> int:
        """Number of networks that are trained."""
        return 1 if self.data.folds is None else int(self.data.folds.max()) + 1

    @property
    def n_train(self) -> int:
        """Number of rows that shape the weights."""
        return len(self.data.train)

    @property
    def n_inputs(self) -> int:
        """Number of features that the network sees."""
        return self.data.rows.n_inputs

    def unseen(self, *, merged: bool) -> Codes:
        """Labelled rows that the network which places them was not trained on.

        `merged` means that the validation rows were trained on in the end.
        """
        if self.data.folds is not None:
            return np.flatnonzero(self.codes >= 0)
        validation: Codes = self.data.validation.cpu().numpy()
        return validation[:0] if merged else validation


def at_most(n: int, rows: Tensor) -> Tensor:
    """Return at most n of some rows, the same each time."""
    if len(rows) <= n:
        return rows
    return rows[torch.from_numpy(np.random.default_rng(0).permutation(len(rows))[:n])]


def _folds(
    codes: Codes,
    train: Codes,
    validation: Codes,
    n_networks: int,
    seed: int,
    groups: Codes | None,
) -> Codes | None:
    """(n,) which network is not trained on each row, −1 for unlabelled rows.

    Validation rows have a fold as well: a network that they are merged into can place the others.
    """
    if groups is not None and len(np.unique(groups[train])) == 1:
        groups = None
    of_train = codes[train]
    most = np.bincount(of_train).max() if groups is None else len(np.unique(groups[train]))
    n_folds = min(n_networks, int(most))
    if n_folds < 2:
        return None
    folds = np.full(len(codes), -1)
    own = None if groups is None else groups[train]
    folds[train] = cross_validation_folds(of_train, n_folds, seed, own)
    folds[validation] = np.arange(len(validation)) % n_folds
    if groups is not None:
        of_group = np.full(groups.max() + 1, -1)
        of_group[groups[train]] = folds[train]
        found = of_group[groups[validation]]
        folds[validation] = np.where(found < 0, folds[validation], found)
    return folds


def class_weights(
    weight: ClassWeight,
    labels: NDArray[Any],
    classes: NDArray[Any],
    absent: NDArray[Any],
) -> NDArray[np.float64] | None:
    """(K,) weight of each class that is trained on, in any unit; absent ones are passed over."""
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
        raise InputError("{} must be above 0 for every class", Setting("class_weight"))
    return per_class
