from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from napari.layers import Image, Labels, Points
from scipy import ndimage
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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

    def test_ids_have_gaps_and_both_sides_miss_some(self, grown: Section):
        ids = np.setdiff1d(grown.labels, 0)
        rows = grown.adata.obs["cell_id"]
        assert rows.is_unique
        assert len(ids) < 0.97 * ids.max()
        assert 0 < len(np.setdiff1d(rows, ids)) < 30
        assert 0 < len(np.setdiff1d(ids, rows)) < 60

    def test_order_of_the_rows_tells_nothing(self, grown: Section):
        order = np.arange(grown.adata.n_obs)
        assert abs(np.corrcoef(order, grown.adata.obs["cell_id"])[0, 1]) < 0.1

    def test_every_nucleus_is_in_one_piece(self, grown: Section, seen: Any):
        cell_id = seen.obs["cell_id"].iloc[0]
        assert ndimage.label(grown.labels == cell_id)[1] == 1
        pieces = ndimage.label(grown.labels > 0)[1]
        assert pieces > 0.5 * seen.n_obs

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

    def test_axes_of_the_nuclei(self, seen: Any):
        major, minor, aspect, area = (
            seen[:, f"nucleus {name}"].X.ravel()
            for name in ("major axis", "minor axis", "aspect ratio", "area")
        )
        assert (major >= minor).all()
        np.testing.assert_allclose(aspect, major / minor, rtol=1e-4)
        # They are close to ellipses.
        np.testing.assert_allclose(np.pi / 4 * major * minor, area, rtol=0.2)
        long = seen.obs["true_type"].isin(["fibroblast", "endothelial"])
        assert aspect[long].mean() > 1.8 > 1.5 > aspect[~long].mean()

    def test_spatial_is_the_middle_of_the_nucleus(self, grown: Section, seen: Any):
        middle = ndimage.center_of_mass(grown.labels > 0, grown.labels, seen.obs["cell_id"])
        np.testing.assert_allclose(2 * seen.obsm["spatial"], np.array(middle)[:, ::-1])

    def test_some_annotations_are_wrong_and_known_to_be(self, grown: Section):
        obs = grown.adata.obs
        wrong = obs["cell_type"].to_numpy(str) != obs["true_type"].to_numpy(str)
        assert 0.01 < wrong.mean() < 0.05

    def test_types_can_be_told_apart_but_not_all_cells(self, grown: Section):
        X, types = grown.adata.X, grown.adata.obs["cell_type"].to_numpy(str)
        model = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
        assert 0.03 < (cross_val_predict(model, X, types) != types).mean() < 0.08

    def test_features_are_complete(self, grown: Section):
        assert grown.adata.X.dtype == np.float32
        assert np.isfinite(grown.adata.X).all()
        assert (grown.adata.X.std(axis=0) > 0).all()

    def test_is_linked_as_spatialdata_does(self, grown: Section):
        keys = grown.adata.uns["spatialdata_attrs"]
        assert set(grown.adata.obs[keys["region_key"]]) == {keys["region"]}
        assert np.issubdtype(grown.adata.obs[keys["instance_key"]].dtype, np.integer)


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
