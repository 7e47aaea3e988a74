"""Centroid-Encoder: a supervised, parametric embedding with honest errors."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from centroid_encoder._lazy import lazy

if TYPE_CHECKING:
    from centroid_encoder import pl, tl, viewer
    from centroid_encoder.estimator import CentroidEncoder, load
    from centroid_encoder.tl._table import read_table

__version__ = version("centroid-encoder")
__all__ = ["CentroidEncoder", "load", "pl", "read_table", "tl", "viewer"]
__getattr__, __dir__ = lazy(
    __name__,
    {name: name for name in ("pl", "tl", "viewer")}
    | {"CentroidEncoder": "estimator", "load": "estimator", "read_table": "tl._table"},
)
