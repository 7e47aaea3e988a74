"""Small images of tissues with masks, and tables of their cells."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import tifffile
from numpy.typing import NDArray

from examples.tissue_generator import CHANNELS, Section, section

SIDE = 288
"""Width and height of an image in pixels."""


class Files(NamedTuple):
    """Paths of the files of some images, and their masks by name."""

    images: list[Path]
    """The images, each followed by its mask."""
    table: Path
    masks: dict[str, NDArray[np.int32]]
    cells: pd.DataFrame
    """The content of the table."""


def make_files(folder: Path, names: str, seed: int) -> Files:
    """Write an image and a mask for each letter, and one CSV of their cells."""
    folder.mkdir(parents=True, exist_ok=True)
    images, masks, tables = [], {}, []
    for i, name in enumerate(names):
        made = section(SIDE, seed + i)
        stained = sum(made.images[x].astype(float) for x in ("DAPI", "PanCK", "CD3"))
        images += [folder / f"{name}.tif", folder / f"{name}_mask.tif"]
        # A hot pixel in the corner, and all others less bright than outlines on the screen.
        pixels = (600 * stained / stained.max()).astype(np.uint16)
        pixels[0, 0] = 1000
        tifffile.imwrite(images[-2], pixels)
        tifffile.imwrite(images[-1], made.labels.astype(np.uint16))
        masks[name] = made.labels
        tables.append(_table(made, name))
    cells = pd.concat(tables, ignore_index=True)
    path = folder / f"cells_{names}.csv"
    cells.to_csv(path, index=False)
    return Files(images, path, masks, cells)


def _table(made: Section, name: str) -> pd.DataFrame:
    adata = made.adata
    x, y = 2 * adata.obsm["spatial"].T
    markers = adata.to_df().reset_index(drop=True)
    markers = markers[[*(f"{channel}: nucleus mean" for channel in CHANNELS), "nucleus area"]]
    known = {"image": name, "cell_id": adata.obs["cell_id"].to_numpy(), "x": x, "y": y}
    table = pd.DataFrame(known).join(markers.rename(columns=lambda x: x.split(":")[0]))
    return table.assign(cell_type=adata.obs["cell_type"].astype(str).to_numpy())
