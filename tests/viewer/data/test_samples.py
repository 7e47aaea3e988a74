"""Sample data: their content, and opening them in napari."""

import numpy as np
from napari.components import ViewerModel
from napari.layers import Points
from scipy import ndimage

from centroid_encoder.viewer.data.samples import COLORS


def test_the_tissue_agrees_with_its_table(plugins):
    *images, nuclei = ViewerModel().open_sample("centroid-encoder", "tissue")
    assert [image.name for image in images] == list(COLORS)
    adata = nuclei.metadata["adata"]
    assert nuclei.name == adata.uns["spatialdata_attrs"]["region"]
    counts = adata.obs["cell_type"].value_counts()
    assert len(counts) == 6
    assert counts.min() > 50
    # A few labels are wrong on purpose.
    wrong = adata.obs["cell_type"].to_numpy(str) != adata.obs["true_type"].to_numpy(str)
    assert 0.01 < wrong.mean() < 0.05
    seen = adata[adata.obs["cell_id"].isin(np.unique(nuclei.data))]
    ids = seen.obs["cell_id"]
    found = [nuclei.get_value(xy[::-1], world=True) for xy in seen.obsm["spatial"]]
    assert np.mean(found == ids) > 0.99
    # The features were measured before the images were smoothed and rounded.
    for image in images:
        expected = ndimage.mean(image.data, nuclei.data, ids)
        measured = seen[:, f"{image.name}: nucleus mean"].X.ravel()
        assert np.corrcoef(measured, expected)[0, 1] > 0.99
        assert abs(measured.mean() / expected.mean() - 1) < 0.1


def test_blood_cells_are_points_as_umap_shows_them(plugins):
    (layer,) = ViewerModel().open_sample("centroid-encoder", "pbmc")
    assert isinstance(layer, Points)
    adata = layer.metadata["adata"]
    assert adata.n_obs == 700
    assert adata.obs["bulk_labels"].nunique() == 10
    np.testing.assert_array_equal(layer.data, adata.obsm["X_umap"][:, ::-1] * [-1, 1])
