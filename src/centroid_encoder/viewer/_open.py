"""From a notebook to the widget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import napari

from centroid_encoder.viewer.data.ids import CellLayer

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.viewer._widget import CentroidEncoderWidget

PLUGIN = "centroid-encoder"


def open(
    adata: AnnData | None = None,
    *,
    viewer: napari.Viewer | None = None,
    labels: CellLayer | str | None = None,
    label_key: str | None = None,
    instance_key: str | None = None,
    name: str = "notebook",
) -> CentroidEncoderWidget:
    """Open the dock widget in napari, on an AnnData of a notebook.

    Parameters
    ----------
    adata
        Annotated data; results are written into this very object. None opens the widget alone.
    viewer
        Viewer to dock the widget in. Default: the current one, or a new one.
    labels
        Labels, Points or Shapes layer whose labels, points or shapes are the cells, or its name.
    label_key
        Column of ``adata.obs`` with the classes.
    instance_key
        Column of ``adata.obs`` that holds the cells' ids in the layer. Default: a guess, which is
        shown in the widget.
    name
        What to call the table in the widget.

    Returns
    -------
    CentroidEncoderWidget
        The widget; ``widget.viewer`` is the viewer.

    Raises
    ------
    KeyError
        If there is no such layer or column.
    ValueError
        If the layer holds no labels, points or shapes, or is not in the viewer.
    """
    viewer = viewer or napari.current_viewer() or napari.Viewer()
    layer = viewer.layers[labels] if isinstance(labels, str) else labels
    if layer is not None and not (layer in viewer.layers and isinstance(layer, CellLayer)):
        raise ValueError(f"{layer} is no Labels, Points or Shapes layer of this viewer")
    widget: CentroidEncoderWidget
    _, widget = viewer.window.add_plugin_dock_widget(PLUGIN)
    if adata is not None:
        widget.show_table(
            adata, name=name, layer=layer, label_key=label_key, instance_key=instance_key
        )
    return widget
