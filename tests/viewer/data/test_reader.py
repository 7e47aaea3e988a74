from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
from napari.errors import ReaderPluginError

from centroid_encoder.viewer.data.reader import (
    Reading,
    get_reader,
    points_layer,
    read,
    read_adata,
)

if TYPE_CHECKING:
    from napari import Viewer

XY = np.array([[1.0, 20.0], [2.0, 40.0], [3.0, 10.0], [4.0, 30.0]])
XYZ = np.column_stack([XY, [7.0, 7.0, 8.0, 8.0]])


def table(**obsm: Any) -> ad.AnnData:
    """Four cells."""
    names = ["delta", "alpha", "gamma", "beta"]
    adata = ad.AnnData(np.eye(4, dtype=np.float32), obs=pd.DataFrame(index=names))
    for key, value in obsm.items():
        if isinstance(value, pd.DataFrame):
            value = value.set_axis(names)
        adata.obsm[key] = value
    return adata


def data(adata: ad.AnnData) -> np.ndarray:
    return np.asarray(points_layer(adata, "cells")[0])


@pytest.mark.parametrize(
    ("path", "claimed"),
    [
        ("a/cells.h5ad", True),
        ("CELLS.H5AD", True),
        (["a.h5ad", "b.h5ad"], True),
        ("cells.zarr", False),
        ("h5ad", False),
        (["a.h5ad", "b.csv"], False),
    ],
)
def test_only_h5ad_is_claimed(path: str | list[str], claimed: bool):
    assert get_reader(path) is (read if claimed else None)


class TestWhereCellsLie:
    @pytest.mark.parametrize(
        ("spatial", "expected"),
        [
            (XY, XY[:, ::-1]),
            # As floats, or a point that is moved by hand would jump from pixel to pixel.
            (XY.astype(np.int32), XY[:, ::-1]),
            (XYZ, XYZ[:, ::-1]),
            (pd.DataFrame(XY, columns=["a", "b"]), XY[:, ::-1]),
            (pd.DataFrame(XY, columns=["Y", "X"]), XY),
            (pd.DataFrame(XYZ[:, ::-1], columns=["z", "y", "x"]), XYZ[:, ::-1]),
        ],
        ids=["x first", "whole numbers", "3-D", "frame", "named axes", "3-D frame"],
    )
    def test_spatial_is_x_first_and_napari_y_first(self, spatial: Any, expected: np.ndarray):
        points = data(table(spatial=spatial))
        np.testing.assert_array_equal(points, expected)
        assert points.dtype == float

    def test_first_embedding_in_the_plane_as_a_plot_shows_it(self):
        adata = table(X_pca=np.ones((4, 3)), X_umap=XY, X_tsne=-XY)
        # A plot's second axis points upwards.
        expected = np.column_stack([-XY[:, 1], XY[:, 0]])
        np.testing.assert_array_equal(data(adata), expected)

    @pytest.mark.parametrize(
        "spatial",
        [
            XY[:, :1],
            np.hstack([XY, XY]),
            np.full((4, 2), np.nan),
            np.where(np.eye(4, 2) > 0, np.nan, [[1, 1], [1, 1], [np.nan, 1], [1, np.nan]]),
            pd.DataFrame({"x": list("abcd"), "y": list("abcd")}),
        ],
        ids=["1-D", "4-D", "all missing", "none complete", "text"],
    )
    def test_falls_back_if_spatial_is_none(self, spatial: Any):
        adata = table(spatial=spatial, X_umap=XY)
        np.testing.assert_array_equal(data(adata)[:, 1], XY[:, 0])

    def test_without_coordinates_says_what_to_do(self):
        with pytest.raises(ValueError, match=r"cells has no coordinates.*4 cells.*widget instead"):
            points_layer(table(X_pca=np.ones((4, 3))), "cells")


class TestLayer:
    def test_table_rides_along(self):
        adata = table(spatial=XY)
        _, options, kind = points_layer(adata, "cells")
        assert kind == "points"
        assert options["name"] == "cells"
        assert options["metadata"] == {"adata": adata}
        assert list(options["features"]["cell"]) == list(adata.obs_names)

    def test_cells_without_coordinates_are_left_out_of_the_layer_alone(self):
        xy = XY.copy()
        xy[1, 0] = np.nan
        points, options, _ = points_layer(table(spatial=xy), "cells")
        np.testing.assert_array_equal(points, XY[[0, 2, 3]][:, [1, 0]])
        assert list(options["features"]["cell"]) == ["delta", "gamma", "beta"]
        assert options["metadata"]["adata"].n_obs == 4

    def test_size_follows_the_scale(self):
        rng = np.random.default_rng(0)
        cells = ad.AnnData(np.zeros((5000, 1)), obsm={"spatial": rng.random((5000, 2))})
        small = points_layer(cells, "cells")[1]["size"]
        cells.obsm["spatial"] *= 1000
        assert points_layer(cells, "cells")[1]["size"] == pytest.approx(1000 * small)
        # Less than the room of a cell, or nothing could be told apart, but not much less.
        assert 0.3 < small / np.sqrt(1 / 5000) < 1

    @pytest.mark.parametrize("xy", [XY[[0, 0, 0, 0]], np.vstack([XY[:1], np.full((3, 2), np.nan)])])
    def test_size_of_cells_in_one_place(self, xy: np.ndarray):
        assert points_layer(table(spatial=xy), "cells")[1]["size"] == 1


class TestFiles:
    def test_read(self, tmp_path: Path):
        path = tmp_path / "my.cells.h5ad"
        table(spatial=XY).write_h5ad(path)
        ((points, options, _),) = read(str(path))
        np.testing.assert_array_equal(points, XY[:, [1, 0]])
        assert options["name"] == "my.cells"
        assert options["metadata"]["path"] == path
        assert not options["metadata"]["adata"].isbacked

    @pytest.mark.parametrize("damage", ["truncated", "empty", "text", "other HDF5", "absent"])
    def test_damaged(self, tmp_path: Path, damage: str):
        path = tmp_path / "cells.h5ad"
        table(spatial=XY).write_h5ad(path)
        whole = path.read_bytes()
        path.unlink()
        if damage == "other HDF5":
            with h5py.File(path, "w") as file:
                file["something"] = XY
        elif damage != "absent":
            path.write_bytes(
                {"truncated": whole[: len(whole) // 2], "empty": b"", "text": b"Hello"}[damage]
            )
        with pytest.raises(OSError, match=r"cells\.h5ad cannot be read") as error:
            read(str(path))
        assert "\n" not in str(error.value)


class TestInNapari:
    def test_opens_several(self, viewer: Viewer, tmp_path: Path):
        paths = [tmp_path / f"{name}.h5ad" for name in "ab"]
        for path in paths:
            table(spatial=XY).write_h5ad(path)
        viewer.open(paths, plugin=None)
        viewer.open(paths, plugin="centroid-encoder", stack=True)
        assert [layer.name for layer in viewer.layers] == ["a", "b", "a [1]", "b [1]"]

    def test_error_names_the_file_and_the_fault(self, viewer: Viewer, tmp_path: Path):
        (tmp_path / "cells.h5ad").write_bytes(b"")
        with pytest.raises(ReaderPluginError, match=r"cells\.h5ad cannot be read: it is damaged"):
            viewer.open(tmp_path / "cells.h5ad", plugin=None)
        assert not viewer.layers


class TestCsv:
    def test_numbers_are_features_and_all_else_describes_the_cells(self, tmp_path: Path):
        path = tmp_path / "cells.csv"
        frame = pd.DataFrame(
            {"name": ["a", "b", "c"], "CD3": [0.5, 1.5, np.nan], "type": ["T", "B", "T"]}
        )
        frame.assign(cell_id=[7, 3, 5], x=[1.5, 2.5, 3.5]).to_csv(path, index=False)
        adata = read_adata(path)
        assert list(adata.obs_names) == ["a", "b", "c"]
        assert list(adata.var_names) == ["CD3"]
        np.testing.assert_array_equal(adata.X.ravel(), [0.5, 1.5, np.nan])
        assert list(adata.obs["type"]) == ["T", "B", "T"]
        # Ids and positions join cells to layers and are no features.
        assert list(adata.obs["cell_id"]) == [7, 3, 5]
        assert list(adata.obs["x"]) == [1.5, 2.5, 3.5]

    @pytest.mark.parametrize("names", [["T", "T", "B"], [4, 5, 6]], ids=["repeated", "numbers"])
    def test_the_first_column_may_be_no_names(self, tmp_path: Path, names: list[Any]):
        path = tmp_path / "cells.csv"
        pd.DataFrame({"first": names, "CD3": [0.5, 1.5, 2.5]}).to_csv(path, index=False)
        adata = read_adata(path)
        assert list(adata.obs_names) == ["0", "1", "2"]
        assert "first" in adata.obs

    @pytest.mark.parametrize("text", ["", "a,b\nx,y\n", 'a,b\n1,2,3\n4\n"5'])
    def test_damaged(self, tmp_path: Path, text: str):
        path = tmp_path / "cells.csv"
        path.write_text(text)
        with pytest.raises(OSError, match=r"cells\.csv cannot be read"):
            read_adata(path)


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_repeated_names_are_changed_with_a_notice(ending: str, tmp_path: Path) -> None:
    adata = table(spatial=XY)
    adata.obs_names = ["a", "b", "a", "a"]
    path = tmp_path / f"cells.{ending}"
    getattr(adata, f"write_{ending}")(path)
    job = Reading(path)
    job.run()
    assert job.adata is not None
    assert np.array_equal(job.adata.X, adata.X)
    assert list(job.adata.obs_names) == ["a", "b", "a-1", "a-2"]
    assert job.notice.endswith("was appended to 2 of them")
