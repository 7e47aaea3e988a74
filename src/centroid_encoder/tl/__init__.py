"""Tools: functions that compute on an AnnData and write their results into it."""

from __future__ import annotations

from centroid_encoder.tl._centroid_encoder import centroid_encoder
from centroid_encoder.tl._fitted_model import fitted_model

__all__ = ["centroid_encoder", "fitted_model"]
