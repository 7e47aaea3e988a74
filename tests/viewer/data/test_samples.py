from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from napari.layers import Image, Labels, Points
from scipy import ndimage

from centroid_encoder.viewer.data.samples import COLORS, tissue

if TYPE_CHECKING:
    from anndata import AnnData
    from napari import Viewer

CHANNELS = tuple(COLORS)


class Section(NamedTuple):
    images: dict[str, np.ndarray]
    labels: np.ndarray
    adata: AnnData


@pytest.fixture(scope="module")
def grown() -> Section:
    *images, (labels, options, _) = tissue()
    table = options["metadata"]["adata"]
    return Section({str(given["name"]): image for image, given, _ in images}, labels, table)


@pytest.fixture(scope="module")
def seen(grown: Section) -> Any:
    """Rows of the cells whose nuclei are in the label image."""
    adata = grown.adata
    return adata[adata.obs["cell_id"].isin(np.unique(grown.labels))]


class TestTissue:
    def test_has_cells_of_every_type(self, grown: Section):
        assert 1500 < grown.adata.n_obs < 2500
        counts = grown.adata.obs["cell_type"].value_counts()
        assert len(counts) == 6
        assert counts.min() > 50

    def test_features_are_what_the_image_shows(self, grown: Section, seen: Any):
        """They were measured before the images were smoothed and rounded."""
        ids = seen.obs["cell_id"]
        for channel in CHANNELS:
            expected = ndimage.mean(grown.images[channel], grown.labels, ids)
            found = seen[:, f"{channel}: nucleus mean"].X.ravel()
            assert np.corrcoef(found, expected)[0, 1] > 0.99
            assert abs(found.mean() / expected.mean() - 1) < 0.1
        pixels = np.bincount(grown.labels.ravel())[ids]
        np.testing.assert_allclose(seen[:, "nucleus area"].X.ravel(), pixels / 4, rtol=1e-6)

    def test_some_annotations_are_wrong_and_known_to_be(self, grown: Section):
        obs = grown.adata.obs
        wrong = obs["cell_type"].to_numpy(str) != obs["true_type"].to_numpy(str)
        assert 0.01 < wrong.mean() < 0.05


OFFLINE = """
import socket

def refuse(*args, **kwargs):
    raise AssertionError("no network, please")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from centroid_encoder.viewer.data.samples import pbmc, tissue
print(*(kind for _, _, kind in pbmc() + tissue()))
"""


@pytest.mark.slow
def test_nothing_is_downloaded(tmp_path: Any):
    # Nor taken from what an earlier download left in a cache.
    env = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", OFFLINE], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["points", *["image"] * 8, "labels"]


class TestInNapari:
    def test_pbmc(self, viewer: Viewer):
        (layer,) = viewer.open_sample("centroid-encoder", "pbmc")
        assert isinstance(layer, Points)
        adata = layer.metadata["adata"]
        assert adata.n_obs == 700
        assert adata.obs["bulk_labels"].nunique() == 10
        np.testing.assert_array_equal(layer.data[:, 1], adata.obsm["X_umap"][:, 0])
        np.testing.assert_array_equal(layer.data[:, 0], -adata.obsm["X_umap"][:, 1])

    def test_tissue(self, viewer: Viewer):
        layers = viewer.open_sample("centroid-encoder", "tissue")
        *images, nuclei = layers
        assert [image.name for image in images] == list(CHANNELS)
        assert all(isinstance(image, Image) and image.blending == "additive" for image in images)
        assert isinstance(nuclei, Labels)
        adata = nuclei.metadata["adata"]
        assert nuclei.name == adata.uns["spatialdata_attrs"]["region"]
        # Where the table says that a cell is, in the world, there it is.
        shown = adata[adata.obs["cell_id"].isin(np.unique(nuclei.data))]
        hits = [
            nuclei.get_value(xy[::-1], world=True) == cell_id
            for xy, cell_id in zip(shown.obsm["spatial"], shown.obs["cell_id"], strict=True)
        ]
        assert np.mean(hits) > 0.99
        assert {str(unit) for layer in layers for unit in layer.units} == {"micrometer"}
