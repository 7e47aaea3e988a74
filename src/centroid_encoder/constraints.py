"""Old name of `checks`; removed at the merge."""

from centroid_encoder.checks import (
    MOST_TRAININGS,
    Number,
    RandomState,
    check_effects,
    check_parameters,
    codes_of,
    draw_seed,
    embedding_of,
    labels_of,
    plain,
    resolve_device,
)

__all__ = [
    "MOST_TRAININGS",
    "Number",
    "RandomState",
    "check_effects",
    "check_parameters",
    "codes_of",
    "draw_seed",
    "embedding_of",
    "labels_of",
    "plain",
    "resolve_device",
]
