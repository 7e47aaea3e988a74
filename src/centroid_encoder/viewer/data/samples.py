"""Sample data that come with the package."""

from __future__ import annotations

from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from npe2.types import FullLayerData

from centroid_encoder.viewer.data.reader import points_layer

TISSUE = Path(__file__).with_name("tissue.npz")
"""The tissue section, made by `examples/tissue_generator.py`."""
MICRONS_PER_PIXEL = 0.5
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
"""Colours of the channels; added up, they give the composite image."""


def pbmc() -> list[FullLayerData]:
    """Return scanpy's 700 blood cells as points at their UMAP positions.

    ``obs["bulk_labels"]`` has ten types.
    """
    return [points_layer(sc.datasets.pbmc68k_reduced(), "PBMC")]


def tissue() -> list[FullLayerData]:
    """Return a synthetic tissue section: eight channels, nuclei, and their table.

    The table, measured before the images were smoothed, is in the metadata of the nuclei.
    ``obs["cell_type"]`` has six types; a few cells have a wrong one on purpose, to be found by the
    user. ``obs["true_type"]`` has the right ones.
    """
    with np.load(TISSUE) as file:
        section = dict(file)
    images = section["levels"][section["images"]]
    place = {"scale": (MICRONS_PER_PIXEL,) * 2, "units": ("um", "um")}
    layers: list[FullLayerData] = []
    for channel, image in zip(section["channels"].tolist(), images, strict=True):
        dark, bright = np.percentile(image, (5, 99.7))
        options = {
            "name": channel,
            "colormap": COLORS[channel],
            "blending": "additive",
            "contrast_limits": (float(dark), float(bright)),
            # White would hide the other colours.
            "visible": channel != "Ki67",
        }
        layers.append((image, options | place, "image"))
    ids, types = section["cell_id"], section["types"].tolist()
    obs = pd.DataFrame(
        {
            "cell_id": ids,
            "region": pd.Categorical(["nuclei"] * len(ids)),
            "cell_type": pd.Categorical.from_codes(section["cell_type"], types),
            "true_type": pd.Categorical.from_codes(section["true_type"], types),
        },
        index=[f"cell {i}" for i in ids],
    )
    var = pd.DataFrame(index=section["features"].tolist())
    link = {"region": "nuclei", "region_key": "region", "instance_key": "cell_id"}
    parts = {"obsm": {"spatial": section["spatial"]}, "uns": {"spatialdata_attrs": link}}
    adata = ad.AnnData(section["X"], obs=obs, var=var, **parts)
    # Nuclei are translucent, so that the image is visible below them.
    nuclei = {"name": "nuclei", "opacity": 0.4, "metadata": {"adata": adata}}
    layers.append((section["labels"].astype(np.int32), nuclei | place, "labels"))
    return layers
