"""Read tables from files, and show them as Points layers."""

from __future__ import annotations

from pathlib import Path
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


# -- points ------------------------------------------------------------------------------------


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
def test_positions_are_turned_from_x_y_to_y_x(spatial: Any, expected: np.ndarray) -> None:
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
def test_without_positions_the_first_two_dimensional_embedding_is_shown(spatial: Any) -> None:
    given = {} if spatial is None else {"spatial": spatial}
    adata = table(**given, X_pca=np.ones((4, 3)), X_umap=XY, X_tsne=-XY)
    # The second axis of a plot points up.
    expected = np.column_stack([-XY[:, 1], XY[:, 0]])
    np.testing.assert_array_equal(points_layer(adata, "cells")[0], expected)
    with pytest.raises(ValueError, match=r"cells has no coordinates.*4 cells.*widget instead"):
        points_layer(table(X_pca=np.ones((4, 3))), "cells")


def test_cells_without_coordinates_are_left_out_of_the_layer() -> None:
    xy = XY.copy()
    xy[1, 0] = np.nan
    points, options, kind = points_layer(adata := table(spatial=xy), "cells")
    np.testing.assert_array_equal(points, XY[[0, 2, 3]][:, [1, 0]])
    assert (kind, options["name"], options["metadata"]) == ("points", "cells", {"adata": adata})
    assert list(options["features"]["cell"]) == ["delta", "gamma", "beta"]


def test_the_size_of_points_follows_the_scale() -> None:
    rng = np.random.default_rng(0)
    cells = ad.AnnData(np.zeros((5000, 1)), obsm={"spatial": rng.random((5000, 2))})
    small = points_layer(cells, "cells")[1]["size"]
    cells.obsm["spatial"] *= 1000
    assert points_layer(cells, "cells")[1]["size"] == pytest.approx(1000 * small)
    # Points are at most as wide as the side of the area per cell, 1 / 5000, and not much smaller.
    assert 0.3 < small / np.sqrt(1 / 5000) < 1
    for in_one_place in (XY[[0, 0, 0, 0]], np.vstack([XY[:1], np.full((3, 2), np.nan)])):
        assert points_layer(table(spatial=in_one_place), "cells")[1]["size"] == 1


# -- files -------------------------------------------------------------------------------------


def test_only_h5ad_files_are_opened_by_napari(plugins: None, tmp_path: Path) -> None:
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


def test_an_error_names_the_damaged_file(tmp_path: Path) -> None:
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


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_repeated_names_become_unique_with_a_notice(ending: str, tmp_path: Path) -> None:
    adata = table(spatial=XY)
    adata.obs_names = ["a", "b", "a", "a"]
    path = tmp_path / f"cells.{ending}"
    getattr(adata, f"write_{ending}")(path)
    found, notice = read_table(path)
    assert np.array_equal(found.X, adata.X)
    assert list(found.obs_names) == ["a", "b", "a-1", "a-2"]
    assert notice.endswith("was appended to 2 names")


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["a", "b", "c"], "abc"), (["T", "T", "B"], "012"), ([4, 5, 6], "012")],
    ids=["names", "repeated", "numbers"],
)
def test_columns_of_a_csv_become_features_or_obs(
    names: list[Any], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "cells.csv"
    frame = pd.DataFrame({"first": names, "CD3": [0.5, 1.5, np.nan], "type": ["T", "B", "T"]})
    frame = frame.assign(cell_id=[7, 3, 5], x=[1.5, 2.5, 3.5], y=[2.5, 1.5, 3.5])
    frame.to_csv(path, index=False)
    adata = read_table(path)[0]
    assert list(adata.obs_names) == list(expected)
    np.testing.assert_array_equal(adata[:, "CD3"].X.ravel(), [0.5, 1.5, np.nan])
    # Ids and positions are not features.
    assert {"type", "cell_id", "x", "y"} <= set(adata.obs)
    assert {"type", "cell_id", "x", "y"}.isdisjoint(adata.var_names)
    assert ("first" in adata.obs) == (expected == "012")
