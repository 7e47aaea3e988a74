from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari import Viewer
from napari.layers import Labels

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget


def test_all_arguments_can_be_given_in_a_notebook(
    viewer: Viewer, cells: AnnData, image_of: Callable[..., Any]
):
    image = image_of(cells)
    # No column has a usual name.
    cells.obs["kind"] = cells.obs.pop("cell_type")
    cells.obs["number"] = cells.obs.pop("cell_id")
    cells.obs["donor"] = pd.Categorical(["a", "b"] * 60)
    viewer.add_labels(np.zeros_like(image), name="empty")
    layer = viewer.add_labels(image, name="nuclei")
    widget = ce.viewer.open(
        cells,
        viewer=viewer,
        labels=layer,
        label_key="donor",
        instance_key="number",
        name="my cells",
    )
    assert isinstance(widget, CentroidEncoderWidget)
    assert widget.viewer is viewer
    assert widget.catalog.table.adata is cells
    assert widget.data.table_box.currentText() == "my cells"
    assert widget.catalog.layer is layer
    assert widget.form.label_key.value == "donor"
    assert np.array_equal(widget.catalog.join.rows(cells.obs["number"]), np.arange(120))


def test_a_layer_is_given_by_name_and_ids_are_guessed(
    viewer: Viewer, cells: AnnData, image_of: Callable[..., Any]
):
    viewer.add_labels(image_of(cells), name="nuclei")
    # The current viewer is used.
    widget = ce.viewer.open(cells, labels="nuclei")
    assert widget.viewer is viewer
    assert widget.catalog.layer is viewer.layers["nuclei"]
    assert widget.catalog.join.joined.all()
    assert widget.form.label_key.value == "cell_type"


def test_the_widget_opens_once_and_shows_the_last_table(
    viewer: Viewer, make_cells: Callable[..., AnnData]
):
    first, second = make_cells(), make_cells()
    widget = ce.viewer.open(viewer=viewer)
    assert widget.catalog.table is None
    for adata in (first, second, first):
        assert ce.viewer.open(adata, viewer=viewer) is widget
        assert widget.catalog.table.adata is adata
    names = [widget.data.table_box.itemText(i) for i in range(widget.data.table_box.count())]
    assert names == ["notebook", "notebook [1]"]
    # Without a table, the widget does not change.
    assert ce.viewer.open(viewer=viewer) is widget
    assert widget.catalog.table.adata is first


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"labels": "cells"}, KeyError, "cells"),
        ({"labels": "image"}, ValueError, "no Labels, Points or Shapes layer of this viewer"),
        ({"labels": Labels(np.zeros((2, 2), int))}, ValueError, "layer of this viewer"),
        ({"label_key": "kind"}, KeyError, "obs has no column 'kind'"),
        ({"instance_key": "id"}, KeyError, "obs has no column 'id'"),
    ],
)
def test_errors_name_what_is_missing(
    viewer: Viewer,
    cells: AnnData,
    unchanged: Any,
    arguments: dict[str, Any],
    error: type[Exception],
    message: str,
):
    viewer.add_image(np.zeros((4, 4)), name="image")
    with unchanged(cells), pytest.raises(error, match=message):
        ce.viewer.open(cells, viewer=viewer, **arguments)
