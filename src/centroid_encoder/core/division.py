"""Division of the rows of the data: those that train, those that validate, and folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from centroid_encoder.core.matrix import Codes
from centroid_encoder.core.splits import (
    cross_validation_folds,
    representatives,
    stratified_holdout,
)
from centroid_encoder.errors import InputError


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


def divide(
    codes: Codes,
    params: Mapping[str, Any],
    n_networks_for: Callable[[int], int],
    seed: int,
    groups: Codes | None,
) -> Division:
    """Choose the rows that train and validate, and the fold of each labelled row.

    `n_networks_for` maps the number of training rows to the largest number of networks.
    """
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
    own = None if groups is None or len(np.unique(groups[train])) == 1 else groups[train]
    most_folds = np.bincount(codes[train]).max() if own is None else len(np.unique(own))
    n_networks = min(n_networks_for(len(train)), int(most_folds))
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
