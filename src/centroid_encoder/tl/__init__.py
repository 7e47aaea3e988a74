"""Tools: functions that compute on an AnnData, or read what they wrote into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from centroid_encoder._lazy import lazy

if TYPE_CHECKING:
    from centroid_encoder.tl._centroid_encoder import centroid_encoder
    from centroid_encoder.tl._composition import composition
    from centroid_encoder.tl._cross_validate import cross_validate
    from centroid_encoder.tl._fitted_model import fitted_model
    from centroid_encoder.tl._ingest import ingest
    from centroid_encoder.tl._measure import measure
    from centroid_encoder.tl._mislabeled import mislabeled
    from centroid_encoder.tl._misplaced import misplaced
    from centroid_encoder.tl._rank_features import rank_features
    from centroid_encoder.tl._suggest import suggest
    from centroid_encoder.tl._telling_features import telling_features

__all__ = [
    "centroid_encoder",
    "composition",
    "cross_validate",
    "fitted_model",
    "ingest",
    "measure",
    "mislabeled",
    "misplaced",
    "rank_features",
    "suggest",
    "telling_features",
]
__getattr__, __dir__ = lazy(__name__, {name: f"_{name}" for name in __all__})
