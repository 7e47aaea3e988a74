"""Sample data that need no download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scanpy as sc

from centroid_encoder.datasets import MICRONS_PER_PIXEL, section
from centroid_encoder.viewer.data.reader import points_layer

if TYPE_CHECKING:
    from npe2.types import FullLayerData

COLORS = {
    "DAPI": "#4059ff",
    "PanCK": "#00d998",
    "Vimentin": "#8c7359",
    "CD31": "#ff2619",
    "CD3": "#ffe61a",
    "CD20": "#1accff",
    "CD68": "#ff33e6",
    "Ki67": "#ffffff",
}
"""Of the channels of the tissue section; together they add up to the composite image."""


def pbmc() -> list[FullLayerData]:
    """Return 700 blood cells that scanpy ships, as points where UMAP placed them.

    Ten types in ``obs["bulk_labels"]``.
    """
    return [points_layer(sc.datasets.pbmc68k_reduced(), "PBMC")]


def tissue() -> list[FullLayerData]:
    """Return a synthetic tissue section: eight channels, nuclei, and their table.

    The table is attached to the nuclei. Six types in ``obs["cell_type"]``, of which a few are
    deliberately wrong, so that there are mislabelled cells to be found; ``obs["true_type"]`` knows.
    """
    images, labels, adata = section()
    place = {"scale": (MICRONS_PER_PIXEL,) * 2, "units": ("um", "um")}
    layers: list[FullLayerData] = []
    for channel, image in images.items():
        dark, bright = np.percentile(image, (5, 99.7))
        options = {
            "name": channel,
            "colormap": COLORS[channel],
            "blending": "additive",
            "contrast_limits": (float(dark), float(bright)),
            # White would hide the colours of the others.
            "visible": channel != "Ki67",
        }
        layers.append((image, options | place, "image"))
    # Faint, so that the image shows through.
    nuclei = {"name": "nuclei", "opacity": 0.4, "metadata": {"adata": adata}}
    layers.append((labels, nuclei | place, "labels"))
    return layers
