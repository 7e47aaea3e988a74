"""Masks and images as other programs write them: read for what they are, or refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import tifffile
import xarray as xr
import zarr
from click.testing import CliRunner
from napari.layers import Image, Labels
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image as Picture
from scipy import sparse
from skimage.measure import regionprops_table

import centroid_encoder as ce
from centroid_encoder.cli import cli
from centroid_encoder.errors import CentroidEncoderWarning
from centroid_encoder.viewer.data.measuring import have_same_pixels, may_be_time, plan

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(50, 9, (20, 24)).astype(np.float32)
MASK = np.zeros((20, 24), dtype=np.int32)
MASK[1:5, 1:8], MASK[8:15, 2:6], MASK[3:9, 11:20], MASK[16:, 17:] = 3, 1, 12, 7
MASK[8:10, 5:9] = 1
SHAPES = ["area", "axis_major_length", "axis_minor_length", "eccentricity", "extent"]


def measure(labels: Any, images: Any = None, **options: Any) -> ad.AnnData:
    return ce.tl.measure(labels, images, progress=False, **options)


def check(adata: ad.AnnData, mask: np.ndarray = MASK, image: np.ndarray = IMAGE) -> None:
    """Compare a table with what scikit-image measures in the plane."""
    names = ["label", "centroid", *SHAPES, "intensity_mean", "intensity_std"]
    expected = pd.DataFrame(regionprops_table(mask, image, properties=names))
    assert adata.var["property"].tolist() == [*SHAPES, "mean", "std"]
    assert adata.obs["label"].tolist() == expected["label"].tolist()
    assert_allclose(adata.X, expected.drop(columns=["label", "centroid-0", "centroid-1"]), 1e-5)
    assert_allclose(adata.obsm["spatial"], expected[["centroid-1", "centroid-0"]])


@pytest.mark.parametrize(
    ("mask", "image"), [((0,), ()), ((0, 1), (0,)), ((2,), (2,)), ((0, 3), ()), ((), (0, 1))]
)
def test_axes_of_length_one_do_not_count(mask: tuple[int, ...], image: tuple[int, ...]) -> None:
    check(measure(np.expand_dims(MASK, mask), {"c": np.expand_dims(IMAGE, image)}))


@pytest.mark.parametrize("axes", ["czyx", "zcyx", "cyx", "zyxc", "yxc"])
def test_channels_of_a_plane(axes: str) -> None:
    several = xr.DataArray(np.stack([IMAGE, -IMAGE]), dims=("c", "y", "x"))
    image = several.expand_dims("z").transpose(*axes, ...).squeeze(list({"z"} - {*axes}))
    adata = measure(MASK[None], {"c": image.to_numpy()})
    check(adata[:, adata.var["channel"] != "c_1"])
    assert_array_equal(adata[:, "c_1_mean"].X, -adata[:, "c_0_mean"].X)
    one = measure(MASK[None], {"c": IMAGE[None, None]}, channel_axis=1)
    assert one.var_names[-1] == "c_0_std"


def test_a_plane_has_the_spacing_of_its_axes_and_may_be_a_frame() -> None:
    unit = {"unit": "um"}
    flat = measure(MASK, spacing=(2, 0.5), **unit)
    for spacing in (3, 2, 0.5), (2, 0.5):
        adata = measure(MASK[None], spacing=spacing, **unit)
        assert_array_equal(adata.X, flat.X)
        assert_array_equal(adata.obsm["spatial"], flat.obsm["spatial"])
        assert_array_equal(adata.uns["measure"]["spacing"], [[2, 0.5]])
    frames = np.stack([MASK, np.roll(MASK, 2, axis=1)])[:, None]
    images = np.stack([IMAGE, IMAGE])[:, None]
    adata = measure(frames, {"c": images}, time_series=True)
    for frame in range(2):
        check(adata[adata.obs["frame"] == frame], frames[frame, 0])
    check(measure(MASK[None], {"c": IMAGE[None, None]}, time_series=True))


def save(path: Path, array: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, array)
    elif path.stem.endswith("ome"):
        group = zarr.create_group(path)
        group.create_array("0", data=array)
        axes = [{"name": name} for name in "tzyx"[-array.ndim :]]
        multiscales = [{"axes": axes, "datasets": [{"path": "0"}]}]
        group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales}
    else:
        zarr.create_array(path, data=array)


@pytest.mark.parametrize("kind", [".tif", ".npy", ".zarr", ".ome.zarr"])
def test_the_command_line_reads_a_plane(kind: str, tmp_path: Path) -> None:
    labels, image, out = (tmp_path / name for name in (f"mask{kind}", f"c{kind}", "out.h5ad"))
    save(labels, MASK[None])
    save(image, IMAGE[None])
    result = CliRunner().invoke(cli, ["measure", *map(str, (labels, image, "-o", out)), "-q"])
    assert result.exit_code == 0, result.output
    check(ad.read_h5ad(out))


@pytest.mark.parametrize(("mask", "image"), [((0,), ()), ((0, 1), (0,)), ((), (0, 1))])
def test_layers_of_a_plane(mask: tuple[int, ...], image: tuple[int, ...]) -> None:
    labels = Labels(np.expand_dims(MASK, mask), name="mask")
    layer = Image(np.expand_dims(IMAGE, image), name="c")
    assert have_same_pixels(labels, layer)
    assert may_be_time(labels) is None
    job = plan([labels], [layer], time_series=False)
    job.run()
    check(job.table())
    layer.translate = np.array([*[0] * (layer.ndim - 1), 1])
    assert not have_same_pixels(labels, layer)


# Flat cells


def test_flat_cells_in_a_stack_do_not_stop_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    stack = np.zeros((6, 20, 20), dtype=int)
    stack[1:4, 2:8, 2:8] = 1
    stack[2, 12:17, 12:17] = 2  # in a plane of z
    stack[5, 19, 19] = 3
    stack[0, 0, 3:9] = 4
    for i in range(6):
        stack[i, 10:14, i] = 5  # in a plane across all axes
    stack[4:, 2:8, 12:18], stack[4, 2, 12] = 6, 0
    properties = ["feret_diameter_max", "solidity", "equivalent_diameter_area"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adata = measure(stack, properties=properties)
    (own,) = [one for one in caught if issubclass(one.category, CentroidEncoderWarning)]
    assert "for cells whose pixels lie in one plane: 4 of 6 cells" in str(own.message)
    assert capfd.readouterr().err.count("QH") == 0
    table = adata.to_df().set_axis(adata.var["property"], axis=1)
    solid = np.isin(adata.obs["label"], [1, 6])
    expected = regionprops_table(
        stack * np.isin(stack, [1, 6]), properties=["area", "extent", *properties]
    )
    for name in properties[:2]:
        assert_allclose(table[name][solid], expected[name], 1e-5)
        assert table[name][~solid].isna().all()
    others = table.drop(columns=properties[:2])
    assert np.isfinite(others).all(axis=None)
    assert others["volume"].tolist() == [108, 25, 1, 6, 24, 71]


# Kinds of arrays


@pytest.mark.parametrize(
    "kind",
    [
        np.ma.masked_array,
        da.from_array,
        zarr.array,
        xr.DataArray,
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        lambda array: np.asfortranarray(array)[::-1][::-1],
        lambda array: da.from_array(np.ma.masked_array(array, array == 99), chunks=9),
    ],
)
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_arrays_of_other_libraries(kind: Any, tmp_path: Path) -> None:
    check(measure(kind(MASK), {"c": kind(IMAGE)}))
    check(measure(kind(MASK[None]), {"c": kind(IMAGE[None])}))


@pytest.mark.parametrize("lazy", [False, True])
def test_masked_pixels_are_no_pixels(*, lazy: bool) -> None:
    mask, image = np.ma.masked_equal(MASK, 12), np.ma.masked_less(IMAGE, 45)
    if lazy:
        mask, image = da.from_array(mask, chunks=7), da.from_array(image, chunks=7)
    adata = measure(mask, {"c": image}, quantiles=0.5)
    nan = np.where(IMAGE < 45, np.nan, IMAGE)
    assert adata.obs["label"].tolist() == [1, 3, 7]
    for label, row in zip(adata.obs["label"], adata.to_df().itertuples(), strict=True):
        inside = nan[label == MASK]
        expected = [np.nanmean(inside), np.nanstd(inside), np.nanmedian(inside)]
        assert_allclose([row.c_mean, row.c_std, row.c_q50], expected, 1e-5)


def test_numbers_do_not_overflow() -> None:
    for dtype in (np.uint8, np.int16, np.int32, np.uint64, np.float16, bool):
        largest = (
            True if dtype is bool else (np.finfo if dtype is np.float16 else np.iinfo)(dtype).max
        )
        adata = measure(MASK, np.full(MASK.shape, largest, dtype))
        assert_allclose(adata[:, "intensity_mean"].X, float(largest), 1e-6)


# Refused, in one sentence

TREE = xr.DataTree.from_dict({"scale0": xr.Dataset({"image": (("y", "x"), MASK)})})
SEG = {"outlines": MASK, "masks": MASK, "flows": [MASK], "filename": "a.tif"}


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (MASK.tolist(), "must be integers.*got list .*Pass an array, such as tifffile.imread"),
        ([MASK, MASK], "got list"),
        ("mask.tif", "got str .*Pass an array, such as tifffile.imread"),
        (Path("mask.tif"), "Path .*Pass an array"),
        (None, "got NoneType"),
        (TREE, "'scale0'.*got DataTree"),
        (SEG, r"'flows'.*got list.*numpy.load.*\['masks'\]"),
        (np.array(SEG, dtype=object), r"numpy.load.*\['masks'\]"),
        (Picture.fromarray(MASK.astype(np.uint8)), "got Image .*Pass an array.*numpy.asarray"),
        (pd.DataFrame(MASK), "got DataFrame"),
        (sparse.csr_array(MASK), "got csr_array"),
        (Labels(MASK), "got Labels"),
        (MASK.astype(object), r"got ndarray \(object\)"),
        (MASK.astype(float), "must be integers.*astype.*got float64"),
        (MASK.astype(complex), "got complex128"),
        (MASK.astype(str), "got <U11"),
        (MASK.astype([("a", int)]), r"got \[\('a'"),
        (MASK > 0, r"skimage\.measure\.label.*got bool"),
        (MASK - 1, "contain the negative -1"),
        (MASK.astype(np.uint64) + np.uint64(2**63), r"contain 92\d+, but must be below 2\*\*63"),
        (np.stack([MASK] * 3, -1).astype(np.uint8), "like a picture in colours"),
    ],
)
def test_what_are_no_labels(labels: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text) as error:
        measure(labels)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ([IMAGE, IMAGE], "image 'intensity' must be numbers; got list"),
        ("c.tif", "got str .*Pass an array"),
        ({"c": None}, "image 'c' must be numbers; got NoneType"),
        ({"c": IMAGE.astype(object)}, "got ndarray"),
        ({"c": IMAGE + 1j}, "got complex64"),
        ({"c": IMAGE.astype("M8[s]")}, "got datetime64"),
        (TREE, r"images must be arrays, or a mapping.*\['scale0'\], and labels 'labels'"),
        ({"labels": {"c": IMAGE}, "d": IMAGE}, r"\['labels', 'd'\]"),
        ({"c": np.pad(IMAGE, 1)}, r"'c' has the shape \(22, 26\)"),
    ],
)
def test_what_are_no_images(images: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        measure(MASK, images)


@pytest.mark.parametrize(
    ("labels", "images", "options", "text"),
    [
        ({7: MASK, "7": MASK}, None, {}, "labels 7 and labels '7' would have the same name, '7'"),
        (MASK, {7: IMAGE, "7": IMAGE}, {}, "of image 7 and a channel of image '7' would"),
        (MASK, {"c": np.stack([IMAGE] * 2), "c_0": IMAGE}, {}, "image 'c' and .* image 'c_0'"),
        (
            MASK,
            {"axis_major_length": IMAGE},
            {"unit": "mean"},
            "axis_major_length in mean and mean of channel 'axis_major_length' would",
        ),
        (MASK, IMAGE, {"quantiles": [0.1, 0.10000001]}, "'intensity_q10'"),
        ({7: MASK}, {"7": {"c": IMAGE}}, {}, r"of \['7'\], and labels 7"),
        ({"A": MASK, "B": MASK}, None, {"spacing": {"A": 2}, "unit": "um"}, "labels 'B'; got"),
    ],
)
def test_names_that_collide(labels: Any, images: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        measure(labels, images, **options)


def test_files_of_cellpose_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "cells_seg.npy"
    np.save(path, np.array(SEG, dtype=object), allow_pickle=True)
    arguments = ["measure", str(path), "-o", str(tmp_path / "out.h5ad")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert "save the masks in Cellpose as .tif" in result.output
    loaded = np.load(path, allow_pickle=True).item()["masks"]
    assert measure(loaded).n_obs == 4
    path = path.rename(tmp_path / "cells.npy")
    result = CliRunner().invoke(cli, ["measure", str(path), *arguments[2:]])
    assert result.exit_code == 1
    assert "Python objects" in result.output


def test_stores_without_an_image_are_refused(tmp_path: Path) -> None:
    ad.AnnData(np.ones((3, 2))).write_zarr(tmp_path / "cells.zarr")
    zarr.create_array(tmp_path / "mask.zarr", data=MASK)
    (tmp_path / "mask.zarr" / "c").rename(tmp_path / "elsewhere")
    (tmp_path / "mask.zarr" / "c").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "empty.zarr").mkdir()
    for name, text in [
        ("cells", "with an array or an OME-Zarr image in it"),
        ("mask", "is a symbolic link"),
        ("empty", "cannot be read"),
    ]:
        out = str(tmp_path / "out.h5ad")
        result = CliRunner().invoke(cli, ["measure", str(tmp_path / f"{name}.zarr"), "-o", out])
        assert result.exit_code == 1
        assert text in result.output
