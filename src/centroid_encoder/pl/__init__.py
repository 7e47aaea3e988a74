"""Plots: figures of the results that the tools write into an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING

from centroid_encoder._lazy import lazy

if TYPE_CHECKING:
    from centroid_encoder.pl._calibration import calibration
    from centroid_encoder.pl._composition import composition
    from centroid_encoder.pl._confusion import confusion
    from centroid_encoder.pl._feature_panel import feature_panel
    from centroid_encoder.pl._history import history
    from centroid_encoder.pl._interactive import interactive
    from centroid_encoder.pl._permutation_test import permutation_test
    from centroid_encoder.pl._reliability import reliability
    from centroid_encoder.pl._voronoi import regions, voronoi

__all__ = [
    "calibration",
    "composition",
    "confusion",
    "feature_panel",
    "history",
    "interactive",
    "permutation_test",
    "regions",
    "reliability",
    "voronoi",
]
__getattr__, __dir__ = lazy(
    __name__, {name: f"_{name}" for name in __all__} | {"regions": "_voronoi"}
)
