"""Old name of `_run`."""

from centroid_encoder.tl._run import *  # noqa: F403
from centroid_encoder.tl._run import run_job as drain  # noqa: F401
