"""Plots: figures of what the tools wrote into an AnnData."""

from __future__ import annotations

from centroid_encoder.pl._history import history
from centroid_encoder.pl._voronoi import voronoi

__all__ = ["history", "voronoi"]
