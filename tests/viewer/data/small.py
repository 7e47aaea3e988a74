"""Small tables and layers of cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Labels, Layer, Points

from centroid_encoder.viewer.data.catalog import Catalog


def table(**columns: Any) -> AnnData:
    """Table with these columns and the cells c0, c1 and so on."""
    n_obs = len(next(iter(columns.values())))
    index = [f"c{i}" for i in range(n_obs)]
    columns = {name: np.asarray(v) if isinstance(v, list) else v for name, v in columns.items()}
    return AnnData(np.ones((n_obs, 2), np.float32), obs=pd.DataFrame(columns).set_axis(index))


def labels(ids: Any, **options: Any) -> Labels:
    """Image with two pixels of each label, in this order, surrounded by background."""
    image = np.pad(np.repeat(np.asarray(ids)[None, :], 2, axis=0), 1)
    return Labels(image, **options)


def points(n: int, **options: Any) -> Points:
    return Points(np.zeros((n, 2)), **options)


def catalog_of(adata: AnnData, *layers: Layer) -> Catalog:
    """Catalog with a chosen table."""
    catalog = Catalog(LayerList(layers))
    catalog.connect()
    catalog.choose(catalog.add(adata, "cells"))
    return catalog
