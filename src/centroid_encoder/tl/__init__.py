"""Tools: functions that compute on an AnnData, or read what they wrote into it."""

from __future__ import annotations

from centroid_encoder.tl._centroid_encoder import centroid_encoder
from centroid_encoder.tl._fitted_model import fitted_model
from centroid_encoder.tl._misplaced import misplaced

__all__ = ["centroid_encoder", "fitted_model", "misplaced"]
