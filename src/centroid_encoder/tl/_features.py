"""Which columns of new data are the features of a map."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.errors import Message
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._jobs import listed

MissingFeatures = Literal["error", "mean"]

logger = logging.getLogger("centroid_encoder")


@dataclass(frozen=True)
class Columns:
    """Where in the query the map's features are."""

    index: NDArray[np.intp] | None
    """(d,) columns, −1 for a feature that is missing; None: all of them, in their order."""
    n_missing: int
    """Features that the map looks at and the query lacks."""


def match_features(
    model: CentroidEncoder,
    n_columns: int,
    names: NDArray[np.object_] | None,
    where: str,
    missing: MissingFeatures,
    max_missing: float,
    notices: list[Message],
) -> Columns:
    """Find the map's features among the columns of `where`, by name.

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
            raise ValueError(
                f"{where} has {n_columns} columns, but the map was trained on "
                f"{model.n_features_in_}, without names by which to tell them"
            )
        if names is not None:
            notices.append(
                Message("the map knows no names: columns of {} are taken in their order", where)
            )
        return Columns(None, 0)
    if np.array_equal(names, wanted):
        return Columns(None, 0)
    have = pd.Index(names)
    twice = have[have.duplicated()].intersection(pd.Index(wanted))
    if len(twice):
        raise ValueError(
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
        return Columns(index, 0)
    share = len(absent) / looked_at.sum()
    message = (
        f"{where} lacks {len(absent)} of the {looked_at.sum()} features that the map looks at: "
        f"{listed(pd.Index(absent))}"
    )
    if (index < 0).all():
        message += f". It has features like {names[0]!r}: are these names of another kind?"
    elif missing == "error":
        message += ". Pass missing='mean' to put the mean of the training cells in their place"
        if share > max_missing:
            message += f", and max_missing above {share:.2f}"
    elif share > max_missing:
        message += f". That is more than max_missing={max_missing:g}"
    else:
        notices.append(Message("{}; the mean of the training cells takes their place", message))
        return Columns(index, len(absent))
    raise ValueError(message)


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
