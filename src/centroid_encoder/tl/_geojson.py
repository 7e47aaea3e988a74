"""Classes of cells and their outlines as GeoJSON, for QuPath."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import gen_batches

from centroid_encoder.core.arrays import Mask
from centroid_encoder.errors import MissingKeyError, check
from centroid_encoder.files import check_target, replacing
from centroid_encoder.tables import Column, colors_key, obs_key
from centroid_encoder.tl import _result
from centroid_encoder.tl._check import obs_column
from centroid_encoder.tl._positions import positions

N_PIXELS = 2**24
"""Pixels that are compared with the ids at once."""
MEASUREMENTS: tuple[Column, ...] = ("confidence", "novelty")


def write_geojson(
    adata: AnnData,
    labels: ArrayLike | None,
    path: str | os.PathLike[str],
    *,
    label_key: str | None = None,
    id_key: str | None = None,
    key: str = "ce",
) -> None:
    """Write the outlines, classes and colours of the cells of one image as GeoJSON.

    QuPath opens the file on the image (File ▸ Import objects from file), with the classes as
    classifications, and the confidence and the novelty as measurements. `adata` is not changed.

    Parameters
    ----------
    adata
        Annotated data after `centroid_encoder` or `ingest`, of the cells of one image.
    labels
        Label image, (height, width), whose pixels hold the ids of the cells; 0 is the background.
        None: cells are points at their positions in pixels: x and y are the first two columns of
        ``adata.obsm["spatial"]``, which has two or three, or else columns of ``adata.obs``.
    path
        The ``.geojson`` file to write. A file with this name is replaced at the end.
    label_key
        Column of ``adata.obs`` with the classes. Default: that of the map, or the predicted classes
        after `ingest`.
    id_key
        Column of ``adata.obs`` with the ids. Default: ``instance_key`` of
        ``adata.uns["spatialdata_attrs"]``, as after `measure`.
    key
        Name of the result.

    Raises
    ------
    KeyError
        If there is no result under that key, if a column is missing, or, without `labels`, if there
        are no positions.
    ValueError
        If ids are not whole numbers, or not unique, as in a table of several images; if the
        image has another number of dimensions, or holds none of the ids.
    OSError
        If the file cannot be written.

    Notes
    -----
    Coordinates are pixels, with (0, 0) at the upper left corner of the image. Outlines pass half
    way between the outermost pixels of a cell and its neighbours (marching squares); holes are
    filled. Cells without a class have no classification, and cells that the image lacks are left
    out.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> adata = ce.tl.measure(labels, {"DAPI": dapi, "CD3": cd3})  # doctest: +SKIP
    >>> ce.tl.ingest(adata, "reference.h5ad")  # doctest: +SKIP
    >>> ce.tl.write_geojson(adata, labels, "cells.geojson")  # doctest: +SKIP
    """
    path = check_target(path, ".geojson", ".json")
    label_key = _result.read_map(adata, key).label_key if label_key is None else label_key
    column = obs_column(adata, label_key, "label_key")
    classes = pd.Categorical(column, _result.label_categories(column))
    codes, names = classes.codes, adata.obs_names.to_numpy()
    places = _points(adata) if labels is None else _polygons(adata, np.asarray(labels), id_key)
    columns = {name: adata.obs.get(obs_key(key, name)) for name in MEASUREMENTS}
    values = {name: x.to_numpy(np.float64) for name, x in columns.items() if x is not None}
    styles = _styles(adata, label_key, classes.categories)
    with replacing(path) as beside, beside.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": [')
        for i, (row, geometry) in enumerate(places):
            found = {name: x[row].item() for name, x in values.items() if np.isfinite(x[row])}
            properties: dict[str, Any] = {"objectType": "detection", "measurements": found}
            properties["name"] = str(names[row])
            if codes[row] >= 0:
                properties["classification"] = styles[codes[row]]
            feature = {"type": "Feature", "geometry": geometry, "properties": properties}
            file.write(",\n"[i == 0 :] + json.dumps(feature, ensure_ascii=False))
        file.write("]}\n")


def _styles(adata: AnnData, label_key: str, categories: pd.Index) -> list[dict[str, Any]]:
    """Return the name and the colour of each class, as QuPath reads them."""
    from matplotlib.colors import to_rgb

    colors = list(adata.uns.get(colors_key(label_key), ()))
    styles: list[dict[str, Any]] = [{"name": str(name)} for name in categories]
    for style, color in zip(styles, colors if len(colors) >= len(styles) else (), strict=False):
        style["color"] = [round(255 * part) for part in to_rgb(color)]
    return styles


def _points(adata: AnnData) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row of each cell, and its center."""
    found = positions(adata)
    text = "no positions were found in adata.obsm['spatial'] or columns of adata.obs; pass labels"
    if found is None:
        raise MissingKeyError(text, "labels")
    centers = found[1][:, :-3:-1]
    for row in np.flatnonzero(np.isfinite(centers).all(axis=1)).tolist():
        yield row, {"type": "Point", "coordinates": centers[row].tolist()}


def _polygons(
    adata: AnnData, labels: NDArray[Any], id_key: str | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row of each cell in a label image, and its outline."""
    from scipy.ndimage import find_objects

    fits = labels.ndim == 2 and labels.dtype.kind in "iu"
    found = f"{labels.dtype} of shape {labels.shape}"
    check(fits, f"labels must be a plane of whole numbers; got {found}", "labels")
    if id_key is None:
        id_key = adata.uns.get("spatialdata_attrs", {}).get("instance_key")
        check(id_key is not None, "pass the column with the ids of the cells as id_key", "id_key")
    column = obs_column(adata, str(id_key), "id_key")
    numbers = pd.to_numeric(column, errors="coerce")
    fits = bool(((numbers % 1 == 0) | column.isna()).all())
    check(
        fits, f"obs[{id_key!r}] must hold the ids of the cells, which are whole numbers", "id_key"
    )
    rows = np.flatnonzero((numbers.fillna(0) != 0).to_numpy())
    rows = rows[np.argsort(numbers.to_numpy()[rows])]
    ids = numbers.to_numpy()[rows].astype(np.int64)
    text = f"ids in obs[{id_key!r}] occur twice; pass the cells of one image only"
    check((np.diff(ids) > 0).all(), text, "id_key")
    # `find_objects` takes the values 1 to n. Strips of the image take little memory.
    codes, known = np.zeros(labels.shape, np.int32), np.append(ids, 0)
    for part in gen_batches(len(labels), max(1, N_PIXELS // max(labels.shape[1], 1))):
        at = np.searchsorted(ids, labels[part])
        codes[part] = np.where((known[at] == labels[part]) & (labels[part] != 0), at + 1, 0)
    check(codes.any(), f"the labels hold none of the ids in obs[{id_key!r}]", "labels")
    return (
        (int(rows[code]), _outline(codes[box] == code + 1, [part.start for part in box]))
        for code, box in enumerate(find_objects(codes))
        if box is not None
    )


def _outline(mask: Mask, corner: list[int]) -> dict[str, Any]:
    """Return the outlines of the parts of a mask whose first pixel is at a corner of the image."""
    from scipy.ndimage import binary_fill_holes
    from skimage.measure import find_contours

    filled = np.pad(binary_fill_holes(mask), 1).astype(np.float64)
    rings = []
    for contour in find_contours(filled, 0.5):  # type: ignore[no-untyped-call]
        steps = np.diff(contour, axis=0)
        turns = (steps != np.roll(steps, 1, axis=0)).any(axis=1)
        ring = contour[np.append(turns, True)] if turns[0] else contour[:-1][turns]
        if not turns[0]:
            ring = np.vstack([ring, ring[:1]])
        # Centers of pixels are at ½; the mask was padded by a pixel.
        rings.append((ring[:, ::-1] + np.array(corner)[::-1] - 0.5).tolist())
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings}
    return {"type": "MultiPolygon", "coordinates": [[ring] for ring in rings]}
