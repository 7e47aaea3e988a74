"""Plots: figures of what the tools wrote into an AnnData."""

from __future__ import annotations

from typing import TYPE_CHECKING

from centroid_encoder._lazy import lazy

if TYPE_CHECKING:
    from centroid_encoder.pl._history import history
    from centroid_encoder.pl._voronoi import voronoi

__all__ = ["history", "voronoi"]
__getattr__, __dir__ = lazy(__name__, {name: f"_{name}" for name in __all__})
