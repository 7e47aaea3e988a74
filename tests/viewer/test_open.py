import numpy as np
import pandas as pd
import pytest
from napari.layers import Labels

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from tests.viewer.seen import entries


@pytest.mark.slow
def test_all_arguments_can_be_given_in_a_notebook(viewer, cells, image_of):
    image = image_of(cells)
    # No column has a usual name.
    cells.obs["kind"], cells.obs["number"] = cells.obs.pop("cell_type"), cells.obs.pop("cell_id")
    cells.obs["donor"] = pd.Categorical(["a", "b"] * 60)
    viewer.add_labels(np.zeros_like(image), name="empty")
    layer = viewer.add_labels(image, name="nuclei")
    columns = {"label_key": "donor", "instance_key": "number"}
    widget = ce.viewer.open(cells, viewer=viewer, labels=layer, name="my cells", **columns)
    assert isinstance(widget, CentroidEncoderWidget)
    assert widget.catalog.table.adata is cells
    assert widget.data.table_box.currentText() == "my cells"
    assert widget.catalog.layer is layer
    assert widget.form.label_key.value == "donor"
    assert np.array_equal(widget.catalog.join.rows(cells.obs["number"]), np.arange(120))


@pytest.mark.slow
def test_the_widget_opens_once_and_shows_the_last_table(viewer, cells, make_cells, image_of):
    viewer.add_labels(image_of(cells), name="nuclei")
    # The current viewer is used, and ids are guessed.
    widget = ce.viewer.open(cells, labels="nuclei")
    assert widget.viewer is viewer
    assert widget.catalog.layer is viewer.layers["nuclei"]
    assert widget.catalog.join.joined.all()
    assert widget.form.label_key.value == "cell_type"
    for adata in (make_cells(), cells):
        assert ce.viewer.open(adata, viewer=viewer) is widget
        assert widget.catalog.table.adata is adata
    assert entries(widget.data.table_box) == ["notebook", "notebook [1]"]
    # Without a table, the widget does not change.
    assert ce.viewer.open(viewer=viewer) is widget
    assert widget.catalog.table.adata is cells


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"adata": "cells.h5ad"}, TypeError, "an AnnData is needed, not str; read a file with"),
        ({"labels": "cells"}, KeyError, "cells"),
        ({"labels": "image"}, ValueError, "no Labels, Points or Shapes layer of this viewer"),
        ({"labels": Labels(np.zeros((2, 2), int))}, ValueError, "layer of this viewer"),
        ({"label_key": "kind"}, KeyError, "obs has no column 'kind'"),
    ],
)
def test_errors_name_what_is_missing(viewer, cells, unchanged, arguments, error, message):
    viewer.add_image(np.zeros((4, 4)), name="image")
    with unchanged(cells), pytest.raises(error, match=message):
        ce.viewer.open(**{"adata": cells, "viewer": viewer} | arguments)
