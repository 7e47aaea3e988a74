"""A real field, from the files to the saved result; skipped, with the reason, where it is not."""

from pathlib import Path

import anndata as ad
import numpy as np
import pytest
from matplotlib.colors import to_rgba_array
from numpy.testing import assert_allclose, assert_array_equal
from skimage.io import imread

from benchmarks.datasets import data_folder
from centroid_encoder.pl._colors import label_colors
from tests.viewer.seen import marked, open_table, seen_colors


@pytest.fixture
def folder() -> Path:
    found = data_folder()
    if found is None:
        pytest.skip("no folder of data sets: set CE_DATA to where they lie (benchmarks/datasets)")
    return found / "vectra_6plex"


@pytest.mark.slow
def test_from_the_files_to_the_saved_result(folder, viewer, open_widget, train, tmp_path, save):
    image = imread(folder / "labels_nucleus.tif")
    viewer.add_image(imread(folder / "composite_image.jpg"), rgb=True)
    labels = viewer.add_labels(image, name="labels_nucleus")
    widget = open_widget()
    open_table(widget.catalog, folder / "cells.h5ad")
    assert widget.data.joined_text.text().startswith("6,072 cells; 0 without a label")
    assert widget.form.label_key.value == "phenotype"
    train(widget)
    assert "17 of 6,072 cells are left out" in widget.message.text()
    widget.form.missing.value = "mean"
    widget.form.max_epochs.value = 20
    train(widget)
    adata = widget.session.adata
    assert adata.uns["ce"]["quality"]["test"]["knn_error"] < 0.12

    is_ck = (adata.obs["phenotype"] == "CK+").to_numpy()
    widget.select(np.flatnonzero(is_ck))
    assert marked(viewer, labels) == set(adata.obs["cell_id"][is_ck])
    widget.cells.color_box.choose("label")
    # Each class has its own colour, which is that of the map.
    seen = seen_colors(viewer, labels, adata.obs["cell_id"])[:, :3]
    palette = label_colors(adata, "phenotype")
    expected = to_rgba_array([palette[name] for name in adata.obs["phenotype"]])
    assert_allclose(seen, expected[:, :3], atol=1 / 255)
    assert len(np.unique(seen.round(2), axis=0)) == adata.obs["phenotype"].nunique()

    save(widget, tmp_path / "cells.h5ad")
    again = ad.read_h5ad(tmp_path / "cells.h5ad")
    assert_array_equal(again.obsm["X_ce"], adata.obsm["X_ce"])
    assert_array_equal(again.X, ad.read_h5ad(folder / "cells.h5ad").X)
