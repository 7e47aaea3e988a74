from centroid_encoder.tl._result import *  # noqa: F403
