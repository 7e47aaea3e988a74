"""Which columns of new data are the features of a map."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.rows import Matrix
from centroid_encoder.errors import Advice, InputError, Message, Setting
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import listed
from centroid_encoder.tl._matrix import has_gaps

MissingFeatures = Literal["error", "mean"]

logger = logging.getLogger("centroid_encoder")


@dataclass(frozen=True)
class Features:
    """Where in new data the map's features are."""

    index: NDArray[np.intp] | None
    """(d,) columns, −1 for a feature that is missing; None: all of them, in their order."""
    n_missing: int = 0
    """Features that the map looks at and the new data lack."""

    def found(self, x: Matrix) -> Matrix:
        """Return the columns that are features of the map."""
        return x if self.index is None else x[:, self.index[self.index >= 0]]

    def arranged(self, x: Matrix, means: NDArray[np.float64], *, fill: bool) -> Matrix:
        """Put the columns into the order of the map's features.

        Parameters
        ----------
        x
            (n, …) new data.
        means
            (d,) values for features that are missing.
        fill
            Put them in place of NaN and inf as well.
        """
        absent = np.empty(0, dtype=np.intp)
        if self.index is not None:
            absent = np.flatnonzero(self.index < 0)
            x = x[:, np.maximum(self.index, 0)]
        fill = fill and has_gaps(x)
        if not (len(absent) or fill):
            return x
        dense = np.array(x.toarray() if sparse.issparse(x) else x, dtype=np.float64)
        dense[:, absent] = means[absent]
        if fill:
            row, column = np.nonzero(~np.isfinite(dense))
            dense[row, column] = means[column]
        return dense


def match_features(
    model: CentroidEncoder,
    n_columns: int,
    names: NDArray[np.object_] | None,
    where: str,
    missing: MissingFeatures,
    max_missing: float,
) -> tuple[Features, list[Message]]:
    """Find the map's features among the columns of `where`, by name; return what to warn of, too.

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
        return Features(None), [] if names is None else [unnamed]
    if np.array_equal(names, wanted):
        return Features(None), []
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
        return Features(index), []
    share = len(absent) / looked_at.sum()
    message = (
        f"{where} lacks {len(absent)} of the {looked_at.sum()} features that the map looks at: "
        f"{listed(pd.Index(absent))}"
    )
    if (index < 0).all():
        also = Message(". It has features like {!r}: are these names of another kind?", names[0])
    elif missing == "error":
        also = Message(
            "; {} to put the mean of the training cells in their place",
            Advice("missing", "mean"),
        )
        if share > max_missing:
            above = "{}, and {} above {:.2f}"
            also = Message(above, also, Setting("max_missing"), share)
    elif share > max_missing:
        also = Message(". That is more than {}", Setting("max_missing", max_missing))
    else:
        filled = Message("{}; the mean of the training cells takes their place", message)
        return Features(index, len(absent)), [filled]
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
