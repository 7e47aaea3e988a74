"""Small images of tissues with masks, and tables of their cells."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import tifffile
from numpy.typing import NDArray

from examples.tissue_generator import CHANNELS, section

SIDE = 288
"""Width and height of an image in pixels."""


class Files(NamedTuple):
    """The files of some images, and what is in them."""

    images: list[Path]
    """The images, each followed by its mask."""
    table: Path
    saved: Path
    """The name that the plugin proposes for the table with its results."""
    masks: dict[str, NDArray[np.int32]]
    cells: pd.DataFrame
    """The content of the table; the index has the names of the cells."""


def make_files(folder: Path, names: str, seed: int, gain: float = 0) -> Files:
    """Write an image and a mask for each letter, and one CSV of their cells.

    `gain` is the standard deviation of the logarithms of factors of the markers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images, masks, tables = [], {}, []
    for i, name in enumerate(names):
        made = section(SIDE, seed + i)
        stained = sum(made.images[x].astype(float) for x in ("DAPI", "PanCK", "CD3"))
        # A hot pixel in the corner, and all others less bright than outlines on the screen.
        pixels = (600 * stained / stained.max()).astype(np.uint16)
        pixels[0, 0] = 1000
        masks[name] = made.labels
        for stem, content in ((name, pixels), (f"{name}_mask", made.labels.astype(np.uint16))):
            images.append(folder / f"{stem}.tif")
            tifffile.imwrite(images[-1], content)
        x, y = 2 * made.adata.obsm["spatial"].T
        known = made.adata.obs[["cell_id", "cell_type"]].assign(image=name, x=x, y=y)
        markers = made.adata.to_df()[[f"{channel}: nucleus mean" for channel in CHANNELS]]
        markers = markers.rename(columns=lambda column: column.split(":")[0])
        markers *= np.exp(gain * np.random.default_rng(seed).normal(size=markers.shape[1]))
        tables.append(known.astype({"cell_type": str}).join(markers))
    cells = pd.concat(tables, ignore_index=True)
    path = folder / f"cells_{names}.csv"
    cells.to_csv(path, index=False)
    saved = path.with_name(f"{path.stem}_ce.h5ad")
    return Files(images, path, saved, masks, cells.set_axis(cells.index.astype(str)))
