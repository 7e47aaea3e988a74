"""The images in which the cells of a class are best seen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from anndata import AnnData
from napari.layers import Image, Layer
from numpy.typing import NDArray

from centroid_encoder.tl._matrix import fill_missing, is_lazy, issparse
from centroid_encoder.viewer.data.ids import CellLayer, pixels
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.data.thumbnail import outline, to_world

MAX_CHANNELS = 3
"""Channels of a class, at most."""
CLEAR = 0.7
"""Area under the ROC curve from which on a channel is one of a class."""
MAX_CELLS = 1000
"""Cells that are compared for the guess of channels; of more, a sample."""
N_SEEN = 12
"""Cells of a class, and other cells, whose pixels set the contrast."""
DARK, BRIGHT = 10, 99.5
"""Percentiles of the pixels of all these cells, and of those of the class, that are the limits."""


def named_alike(names: Sequence[str], channel: str) -> NDArray[np.intp]:
    """Return the places of the names that contain that of a channel as a word, or the reverse."""

    def has_word(text: str, word: str) -> bool:
        return re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", text) is not None

    channel = channel.lower()
    found = [
        i
        for i, name in enumerate(map(str.lower, names))
        if has_word(name, channel) or has_word(channel, name)
    ]
    return np.array(found, dtype=np.intp)


def guess_channels(
    adata: AnnData, codes: NDArray[np.intp], n_classes: int, layers: Iterable[Layer]
) -> list[list[str]]:
    """Return the names of the images in which each class is best seen, clearest first.

    `codes` are (n_obs,) classes of the cells, −1 for none. A channel is an image whose name is part
    of that of a variable. A class is seen in a channel if one of its variables separates the class
    from all other cells. Values that are not in memory are not read: there is no guess then.
    """
    # It imports PyTorch, which the widget does not need before a map is trained.
    from centroid_encoder.tl._telling_features import auroc

    images = [layer.name for layer in layers if isinstance(layer, Image) and not layer.rgb]
    columns = {name: named_alike(list(adata.var_names), name) for name in images}
    columns = {name: places for name, places in columns.items() if len(places)}
    guess: list[list[str]] = [[] for _ in range(n_classes)]
    rows = np.flatnonzero(codes >= 0)
    if not columns or not len(rows) or adata.X is None or is_lazy(adata.X):
        return guess
    if len(rows) > MAX_CELLS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MAX_CELLS, replace=False))
    part = adata.X[rows][:, np.concatenate(list(columns.values()))]
    values = np.asarray(part.toarray() if issparse(part) else part, dtype=np.float64)
    values = np.asarray(fill_missing(values, np.ones(len(rows), dtype=bool)))
    of_channel = np.repeat(list(columns), list(map(len, columns.values())))
    for code in np.unique(codes[rows]):
        is_class = codes[rows] == code
        if is_class.all():
            continue
        areas = auroc(values, is_class)
        best = {name: areas[of_channel == name].max() for name in columns}
        order = sorted(best, key=lambda name: -best[name])
        guess[code] = [name for name in order if best[name] >= CLEAR][:MAX_CHANNELS]
    return guess


def contrast(
    image: Image, layer: CellLayer, join: Join, rows: NDArray[np.intp], others: NDArray[np.intp]
) -> tuple[float, float] | None:
    """Return contrast limits of an image that suit the cells of some rows of the table.

    The lower one is a dark pixel of all cells, the upper one a bright pixel of these. None if the
    pixels are not in memory, or if none of these cells is in the image.
    """
    if type(pixels(image)) is not np.ndarray:
        return None
    own, other = (
        np.concatenate([np.empty(0), *(_box(image, layer, join, row) for row in some[:N_SEEN])])
        for some in (rows, others)
    )
    if not own.size:
        return None
    limits = np.percentile(np.append(own, other), DARK), np.percentile(own, BRIGHT)
    return (float(limits[0]), float(limits[1])) if limits[0] < limits[1] else None


def _box(image: Image, layer: CellLayer, join: Join, row: int) -> NDArray[Any]:
    """Pixels of an image in the box around a cell."""
    vertices = outline(layer, join, int(join.ids[row])) if join.joined[row] else None
    if vertices is None or vertices.shape[1] < image.ndim:
        return np.empty(0)
    matrix, offset = to_world(layer)
    world = (vertices @ matrix.T + offset)[:, -image.ndim :]
    matrix, offset = to_world(image)
    places = (world - offset) @ np.linalg.inv(matrix).T
    low, high = np.floor(places.min(axis=0)), np.ceil(places.max(axis=0)) + 1
    box = map(slice, low.astype(int).clip(0), high.astype(int).clip(0))
    return np.asarray(pixels(image)[tuple(box)]).ravel()
