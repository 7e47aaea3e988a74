"""The former name of `core.calibration`."""

from centroid_encoder.core.calibration import *  # noqa: F403
