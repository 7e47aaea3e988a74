"""Read tables from files, and show them as Points layers."""

from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.errors import ReaderPluginError

from centroid_encoder.viewer.data.reader import (
    get_reader,
    points_layer,
    read,
    read_table,
)

XY = np.array([[1.0, 20.0], [2.0, 40.0], [3.0, 10.0], [4.0, 30.0]])
XYZ = np.column_stack([XY, [7.0, 7.0, 8.0, 8.0]])


def table(**obsm: Any) -> ad.AnnData:
    """Four cells."""
    names = ["delta", "alpha", "gamma", "beta"]
    adata = ad.AnnData(np.eye(4, dtype=np.float32), obs=pd.DataFrame(index=names))
    for key, value in obsm.items():
        adata.obsm[key] = value.set_axis(names) if isinstance(value, pd.DataFrame) else value
    return adata


@pytest.mark.parametrize(
    ("spatial", "expected"),
    [
        # Positions are floats: points at integers could only be moved by whole pixels.
        (XY.astype(np.int32), XY[:, ::-1]),
        (XYZ, XYZ[:, ::-1]),
        (pd.DataFrame(XY, columns=["a", "b"]), XY[:, ::-1]),
    ],
    ids=["whole numbers", "3-D", "frame"],
)
def test_positions_are_turned_from_x_y_to_y_x(spatial, expected):
    points = points_layer(table(spatial=spatial), "cells")[0]
    np.testing.assert_array_equal(points, expected)
    assert points.dtype == float


@pytest.mark.parametrize(
    "spatial",
    [
        None,
        XY[:, :1],
        np.hstack([XY, XY]),
        np.where(np.eye(4, 2) > 0, np.nan, [[1, 1], [1, 1], [np.nan, 1], [1, np.nan]]),
        pd.DataFrame({"x": list("abcd"), "y": list("abcd")}),
    ],
    ids=["none", "1-D", "4-D", "none complete", "text"],
)
def test_without_positions_the_first_two_dimensional_embedding_is_shown(spatial):
    given = {} if spatial is None else {"spatial": spatial}
    adata = table(**given, X_pca=np.ones((4, 3)), X_umap=XY, X_tsne=-XY)
    # The second axis of a plot points up.
    expected = np.column_stack([-XY[:, 1], XY[:, 0]])
    np.testing.assert_array_equal(points_layer(adata, "cells")[0], expected)
    with pytest.raises(ValueError, match=r"cells has no coordinates.*4 cells.*widget instead"):
        points_layer(table(X_pca=np.ones((4, 3))), "cells")


def test_cells_without_coordinates_are_left_out_of_the_layer():
    xy = XY.copy()
    xy[1, 0] = np.nan
    points, options, kind = points_layer(adata := table(spatial=xy), "cells")
    np.testing.assert_array_equal(points, XY[[0, 2, 3]][:, [1, 0]])
    assert (kind, options["name"], options["metadata"]) == ("points", "cells", {"adata": adata})
    assert list(options["features"]["cell"]) == ["delta", "gamma", "beta"]


def test_only_h5ad_files_are_opened_by_napari(plugins, tmp_path):
    for path in ("a/cells.h5ad", "CELLS.H5AD", ["a.h5ad", "b.h5ad"]):
        assert get_reader(path) is read
    for path in ("cells.zarr", "h5ad", ["a.h5ad", "b.csv"]):
        assert get_reader(path) is None
    paths = [tmp_path / "a.cells.h5ad", tmp_path / "b.h5ad"]
    for path in paths:
        table(spatial=XY).write_h5ad(path)
    viewer = ViewerModel()
    viewer.open(paths, plugin=None)
    viewer.open(paths, plugin="centroid-encoder", stack=True)
    assert [layer.name for layer in viewer.layers] == ["a.cells", "b", "a.cells [1]", "b [1]"]
    assert [layer.metadata["path"] for layer in viewer.layers[:2]] == paths
    assert not any(layer.metadata["adata"].isbacked for layer in viewer.layers)
    paths[0].write_bytes(b"")
    with pytest.raises(ReaderPluginError, match=r"cells\.h5ad cannot be read: it is damaged"):
        viewer.open(paths[0], plugin=None)
    assert len(viewer.layers) == 4


def test_an_error_names_the_damaged_file(tmp_path):
    table(spatial=XY).write_h5ad(tmp_path / "whole.h5ad")
    whole = (tmp_path / "whole.h5ad").read_bytes()
    contents = {"h5ad": [whole[: len(whole) // 2], b"Hello", b""]}
    contents["csv"] = [b"", b"a,b\nx,y\n", b'a,b\n1,2,3\n4\n"5']
    with h5py.File(tmp_path / "other.h5ad", "w") as file:
        file["something"] = XY
    damaged = [tmp_path / "other.h5ad", tmp_path / "absent.h5ad"]
    for ending, several in contents.items():
        for i, content in enumerate(several):
            damaged.append(tmp_path / f"{i}.{ending}")
            damaged[-1].write_bytes(content)
    for path in damaged:
        with pytest.raises(OSError, match=f"{path.name} cannot be read") as error:
            read_table(path)[0]
        assert "\n" not in str(error.value)
