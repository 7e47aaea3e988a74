"""New cells, and which of their columns are the features of a map."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.matrix import Matrix, looks_like_counts, looks_whole
from centroid_encoder.errors import Advice, InputError, Message, Setting
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import listed
from centroid_encoder.tl._lazy import in_memory
from centroid_encoder.tl._matrix import Source, check_finite, check_real, has_gaps

MissingFeatures = Literal["error", "mean"]
TAKE_MEAN = Advice("missing", "mean", "to put the mean of the training cells in their place")

VALUES_AT_ONCE = 2**24
"""Values of cells that are dense at once, at most."""

logger = logging.getLogger("centroid_encoder")


@dataclass(frozen=True, kw_only=True)
class NewCells(Source):
    """The cells to be sent through a map."""

    where: str
    """What their matrix is called."""
    missing: MissingFeatures
    """What to do about gaps."""
    max_missing: float
    """Share of the features that the map uses which a cell may lack."""
    index: NDArray[np.intp] | None
    """(d,) columns with the map's features, −1 for one that is missing; None: all, in order."""
    n_missing: int
    """Features that the map looks at and the new data lack."""

    @property
    def present(self) -> NDArray[np.bool_] | None:
        """(d,) which of the map's features the new data have; None for all of them."""
        return None if self.index is None else self.index >= 0

    def prepared(
        self, rows: Any, start: int, model: CentroidEncoder, notices: list[Message]
    ) -> tuple[Matrix, NDArray[np.bool_]]:
        """Prepare some cells for the map.

        Parameters
        ----------
        rows
            (n, n_columns) those of the matrix from number `start` on.
        start
            Number of the first cell.
        model
            The map.
        notices
            Warnings are added here.

        Returns
        -------
        ndarray or CSR of shape (n, d)
            Finite values in the order of the map's features. The mean of the training cells takes
            the place of missing features and of gaps.
        ndarray of shape (n,)
            True for cells that lack too many of the features that the map uses, or all features.
        """
        x, where = in_memory(rows), self.where
        check_real(x, where)
        unusable = np.zeros(x.shape[0], dtype=bool)
        absent = np.empty(0, dtype=np.intp)
        if self.index is not None:
            absent = np.flatnonzero(self.index < 0)
        if start == 0:
            found = x if self.index is None else x[:, self.index[self.index >= 0]]
            _check_counts(found, where, model, notices)
        if self.index is not None:
            x = x[:, np.maximum(self.index, 0)]
        filled = self.missing == "mean" and has_gaps(x)
        if filled or len(absent):
            means, used = model.feature_means_, model.feature_weights_ > 0
            dense = np.array(x.toarray() if sparse.issparse(x) else x, dtype=np.float64)
            gaps = ~np.isfinite(dense) & filled
            gaps[:, absent] = True
            if filled:
                unusable = (gaps[:, used].mean(axis=1) > self.max_missing) | gaps.all(axis=1)
            x = np.where(gaps, means, dense)
        if self.missing == "error":
            stop = start + x.shape[0]
            if (start, stop) != (0, len(self.obs_names)):
                where += f" (cells {start:,} to {stop - 1:,})"
            names = getattr(model, "feature_names_in_", None)
            advice = Message("; {}", TAKE_MEAN)
            check_finite(x, where, self.obs_names[start:stop], names, advice)
        return x, unusable


def match_features(
    model: CentroidEncoder,
    n_columns: int,
    names: NDArray[np.object_] | None,
    where: str,
    missing: MissingFeatures,
    max_missing: float,
) -> tuple[NDArray[np.intp] | None, int, list[Message]]:
    """Find the map's features among the columns of `where`, by name.

    Returns `NewCells.index`, `NewCells.n_missing` and what to warn of.

    Raises
    ------
    ValueError
        If features that the map looks at are missing (more than `max_missing` of them, with
        ``missing="mean"``), if one occurs twice, or if there are no names and another number of
        columns.
    """
    wanted: NDArray[np.object_] | None = getattr(model, "feature_names_in_", None)
    if wanted is None or names is None:
        if n_columns != model.n_features_in_:
            raise InputError(
                f"{where} has {n_columns} columns, but the map was trained on "
                f"{model.n_features_in_}, without names by which to tell them"
            )
        unnamed = Message("the map knows no names: columns of {} are taken in their order", where)
        return None, 0, [] if names is None else [unnamed]
    if np.array_equal(names, wanted):
        return None, 0, []
    have = pd.Index(names)
    twice = have[have.duplicated()].intersection(pd.Index(wanted))
    if len(twice):
        raise InputError(
            f"{where} has {twice[0]!r} more than once; call adata.var_names_make_unique() first"
        )
    position = dict(zip(names, range(len(names)), strict=True))
    index = np.array([position.get(name, -1) for name in wanted])
    _match_any_case(index, names, wanted)

    looked_at = model.feature_weights_ > 0
    absent = wanted[(index < 0) & looked_at]
    n_aside = int((index < 0).sum()) - len(absent)
    if n_aside:
        logger.info("    %d features that the map does not look at are missing", n_aside)
    if not len(absent):
        return index, 0, []
    share = len(absent) / looked_at.sum()
    message = (
        f"{where} lacks {len(absent)} of the {looked_at.sum()} features that the map looks at: "
        f"{listed(pd.Index(absent))}"
    )
    if (index < 0).all():
        also = Message(". It has features like {!r}: are these names of another kind?", names[0])
    elif missing == "error":
        also = Message("; {}", TAKE_MEAN)
        if share > max_missing:
            above = "{}, and {} above {:.2f}"
            also = Message(above, also, Setting("max_missing"), share)
    elif share > max_missing:
        also = Message(". That is more than {}", Setting("max_missing", max_missing))
    else:
        filled = Message("{}; the mean of the training cells takes their place", message)
        return index, len(absent), [filled]
    raise InputError("{}{}", message, also)


def _match_any_case(
    index: NDArray[np.intp], names: NDArray[np.object_], wanted: NDArray[np.object_]
) -> None:
    """Fill in what is found when case does not count, and is not ambiguous."""
    taken = set(index.tolist())
    positions: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if i not in taken:
            positions.setdefault(str(name).casefold(), []).append(i)
    found = 0
    for j in np.flatnonzero(index < 0):
        candidates = positions.pop(str(wanted[j]).casefold(), [])
        if len(candidates) == 1:
            index[j] = candidates[0]
            found += 1
    if found:
        logger.info("    %d features are matched without regard to case", found)


def _check_counts(x: Matrix, where: str, model: CentroidEncoder, notices: list[Message]) -> None:
    counts = model.trained_on_counts_
    if looks_like_counts(x) and not counts:
        raise InputError(
            "{} looks like raw counts, but the map was trained on other values; do to it what "
            "was done to the training data (sc.pp.normalize_total, sc.pp.log1p), or choose the "
            "values to which that was done ({})",
            where,
            Setting("layer"),
        )
    if counts and not looks_whole(x):
        text = "the map was trained on whole numbers, like counts; {} holds others"
        notices.append(Message(text, where))
