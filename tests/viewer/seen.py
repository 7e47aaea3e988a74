"""The colours, texts and entries that a user sees, and the tables that a user opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from napari.layers import Labels
from numpy.typing import ArrayLike, NDArray
from qtpy.QtWidgets import QComboBox, QInputDialog, QLabel, QWidget

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.reader import read_table
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.map.artists import Names, Written
from centroid_encoder.viewer.map.overlay import HIGHLIGHT


def seen_colors(viewer: Any, layer: Labels, labels: ArrayLike) -> NDArray[np.floating]:
    """(n, 4) colour of each label: that of the layer above, if its cells are coloured."""
    labels = np.ravel(labels)
    above = [other for other in viewer.layers if other.name.startswith(f"{layer.name} · ")]
    # In the grid, each layer has a tile of its own.
    is_covered = bool(above) and not viewer.canvas.grid.enabled
    assert (layer.opacity == 0) == is_covered
    if not is_covered:
        return np.asarray(layer.colormap.map(labels))
    image, painted = (
        np.asarray(x.data[0] if x.multiscale else x.data).ravel() for x in (layer, above[0])
    )
    value_of = dict(zip(image.tolist(), painted.tolist(), strict=True))
    values = np.array([value_of.get(label, 0) for label in labels.tolist()])
    return np.asarray(above[0].colormap.map(values))


def outlined(viewer: Any, layer: Labels, marks: Labels | None = None) -> NDArray[np.uint8]:
    """Outlines of the selected cells, in the pixels of their layer."""
    image = layer.data[0] if layer.multiscale else layer.data
    found = np.zeros(image.shape, dtype=np.uint8)
    if marks is None and HIGHLIGHT in viewer.layers:
        marks = viewer.layers[HIGHLIGHT]
    if marks is not None:
        drawn = np.asarray(marks.data[0] if marks.multiscale else marks.data)
        corner = layer.world_to_data(marks.data_to_world(np.zeros(layer.ndim)))
        low = np.rint(corner).astype(int)
        found[tuple(map(slice, low, low + drawn.shape))] = drawn
    return found


def is_colored(viewer: Any, layer: Labels) -> bool:
    """Whether the cells of a layer are coloured."""
    above = [other for other in viewer.layers if other.name.startswith(f"{layer.name} · ")]
    assert bool(above) == (layer.opacity == 0)
    return bool(above)


def texts(widget: QWidget) -> list[str]:
    """Texts of the visible labels of a widget."""
    labels = [label for label in widget.findChildren(QLabel) if label.isVisible()]
    return [label.text().replace("\u00a0", " ") for label in labels]


def entries(box: QComboBox) -> list[str]:
    """Texts of the entries of a box."""
    return [box.itemText(i) for i in range(box.count())]


def names_on(ax: Any) -> list[Written]:
    """Names that are in view on the map."""
    (artist,) = (artist for artist in ax.artists if isinstance(artist, Names))
    return artist.written_names()[0]


def give_label(button: Any, name: str) -> None:
    """Give the selected cells a label with the menu of a button; an empty name removes theirs."""
    menu = button.menu()
    menu.aboutToShow.emit()
    actions = {action.text(): action for action in menu.actions()}
    entry = name if name in actions else "New class …"
    with patch.object(QInputDialog, "getText", return_value=(name, True)):
        actions[entry if name.strip() else "No label"].trigger()


def open_table(catalog: Catalog, path: Path) -> Table:
    """Read a table from a file and choose it."""
    table = catalog.add(read_table(path)[0], path.name, path=path)
    catalog.choose(table)
    return table


def marked(viewer: Any, layer: Labels) -> set[int]:
    """Labels of a layer that are outlined as selected."""
    found: NDArray[np.integer] = layer.data[outlined(viewer, layer) > 0]
    return set(np.unique(found).tolist())
