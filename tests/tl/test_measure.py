"""Tables of the cells of label images, compared with scikit-image and NumPy."""

from __future__ import annotations

import logging
from typing import Any

import anndata as ad
import dask.array as da
import numpy as np
import pytest
from scipy import ndimage, sparse
from skimage.measure import regionprops_table

import centroid_encoder as ce
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.tl import _measure
from centroid_encoder.tl._measure import Measurement

LABELS = np.array([[0, 7, 7, 0], [0, 7, 7, 3], [9, 0, 0, 3]])
IMAGE = np.arange(12, dtype=np.uint16).reshape(3, 4)
SHAPES = ["area", "axis_major_length", "axis_minor_length", "extent"]


def measure(labels: Any, images: Any = None, **kwargs: Any) -> ad.AnnData:
    return ce.tl.measure(labels, images, progress=False, **kwargs)


def blobs(shape: tuple[int, ...], above: float) -> np.ndarray:
    """Cells of many shapes, some in several parts, some at the border, with gaps in the labels."""
    rng = np.random.default_rng(0)
    labels, n = ndimage.label(ndimage.gaussian_filter(rng.normal(size=shape), 1.5) > above)
    return np.append(0, rng.choice(3 * n, size=n) + 1)[labels]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "dtype", "spacing", "more"),
    [
        (blobs((83, 61), 0.05), np.uint8, (0.5, 0.5), ["eccentricity", "perimeter", "solidity"]),
        (blobs((61, 83), 0.05), np.float32, (2.0, 0.5), ["eccentricity", "solidity"]),
        (blobs((37, 33, 39), 0.15), np.uint16, (2.0, 0.5, 0.5), []),
    ],
)
def test_cells_are_measured_as_scikit_image_does(
    labels: np.ndarray,
    dtype: type,
    spacing: tuple[float, ...],
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_measure, "CHUNK", 6)
    image = np.random.default_rng(1).normal(100, 20, labels.shape).astype(dtype)

    adata = measure(
        labels, image, spacing=spacing, unit="um", properties=more[1:], quantiles=(0.1, 0.5)
    )

    table = regionprops_table(
        labels,
        image,
        properties=["label", "centroid", "intensity_mean", "intensity_std", *SHAPES, *more],
        spacing=spacing,
    )
    assert len(table["label"]) > 15
    assert adata.obs["label"].tolist() == table["label"].tolist()
    centers = [table[f"centroid-{axis}"] for axis in reversed(range(labels.ndim))]
    np.testing.assert_allclose(adata.obsm["spatial"], np.column_stack(centers), rtol=1e-9)
    columns = (
        adata.to_df().set_axis(adata.var["property"], axis=1).rename(columns={"volume": "area"})
    )
    for name in (*SHAPES, *more):
        np.testing.assert_allclose(columns[name], table[name], rtol=1e-5, atol=1e-5)
    for name in ("mean", "std"):
        np.testing.assert_allclose(columns[name], table[f"intensity_{name}"], rtol=1e-5, atol=1e-5)
    for share in (0.1, 0.5):
        expected = [np.quantile(image[labels == label], share) for label in table["label"]]
        np.testing.assert_allclose(columns[f"q{100 * share:.0f}"], expected, rtol=1e-5)


def test_names_have_the_unit_the_channel_and_the_quantile() -> None:
    adata = measure(LABELS, {"DAPI": IMAGE}, spacing=0.5, unit="um", quantiles=(0.05, 0.5, 0.999))

    lengths = ["axis_major_length_um", "axis_minor_length_um"]
    shapes = ["area_um2", *lengths, "eccentricity", "extent"]
    intensities = ["DAPI_mean", "DAPI_std", "DAPI_q05", "DAPI_q50", "DAPI_q99.9"]
    assert adata.var_names.tolist() == shapes + intensities
    assert adata.var["unit"].tolist() == ["um2", "um", "um", "", "", *["intensity"] * 5]
    assert adata.var["property"].tolist()[-4:] == ["std", "q05", "q50", "q99.9"]
    assert adata.var["channel"].isna().tolist() == [True] * 5 + [False] * 5
    assert adata.X.dtype == np.float32
    assert adata.obs_names.tolist() == ["labels_3", "labels_7", "labels_9"]
    assert adata.obs["label"].dtype == np.int64
    np.testing.assert_array_equal(adata.obsm["spatial"], [[1.5, 0.75], [0.75, 0.25], [0, 1]])
    attrs = {"region": "labels", "region_key": "region", "instance_key": "label"}
    assert adata.uns["spatialdata_attrs"] == attrs
    assert adata.uns["measure"]["unit"] == "um"


def test_regions_have_images_of_their_own_or_share_them() -> None:
    shared = measure({"nuclei": LABELS, "cells": 2 * LABELS}, {"CD3": IMAGE})
    own = measure(
        {"B": LABELS, "A": LABELS[:2]},
        {"A": {"CD3": IMAGE[:2], "CD4": -IMAGE[:2].astype(int)}, "B": {"CD4": IMAGE, "CD3": IMAGE}},
        spacing={"B": 1, "A": 2},
        unit="um",
    )

    assert shared.obs["region"].tolist() == ["nuclei"] * 3 + ["cells"] * 3
    assert shared.obs["label"].tolist() == [3, 7, 9, 6, 14, 18]
    np.testing.assert_array_equal(shared.X[:3], shared.X[3:])
    assert own.obs_names.tolist() == ["B_3", "B_7", "B_9", "A_3", "A_7"]
    assert own.obs["region"].cat.categories.tolist() == ["B", "A"]
    assert own[:, "area_um2"].X.ravel().tolist() == [2, 4, 1, 4, 16]
    assert own[:, "CD3_mean"].X.ravel().tolist() == [9, 3.5, 8, 7, 3.5]
    assert own[:, "CD4_mean"].X.ravel().tolist() == [9, 3.5, 8, -7, -3.5]
    np.testing.assert_array_equal(own.uns["measure"]["spacing"], [[1, 1], [2, 2]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_axis_that_labels_lack_holds_the_channels(axis: int) -> None:
    several = np.stack([IMAGE, IMAGE + 100], axis=axis)

    adata = measure(LABELS, {"stack": several})

    assert adata[:, "stack_0_mean"].X.ravel().tolist() == [9, 3.5, 8]
    assert adata[:, "stack_1_mean"].X.ravel().tolist() == [109, 103.5, 108]
    assert measure(LABELS, several).var_names[-1] == "intensity_1_std"
    cube = np.stack([IMAGE[:, :3]] * 3, axis=axis)
    assert measure(LABELS[:, :3], cube, channel_axis=axis).n_vars == 11


class OnDisk:
    """An array that is read when it is sliced, like arrays of HDF5 and zarr."""

    def __init__(self, array: np.ndarray, shapes: list[tuple[int, ...]]) -> None:
        self.array, self.shapes = array, shapes
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, where: Any) -> np.ndarray:
        self.shapes.append(self.array[where].shape)
        return self.array[where]


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_frames_and_channels_are_read_one_by_one(axis: int) -> None:
    labels = np.stack([LABELS, 0 * LABELS, np.roll(LABELS, 1, axis=1) * (LABELS != 9)])
    image = np.stack([IMAGE, IMAGE, 2 * IMAGE])
    several = np.stack([image, image + 100], axis=axis)
    shapes: list[tuple[int, ...]] = []

    adata = measure(OnDisk(labels, shapes), {"c": OnDisk(several, shapes)}, time_series=True)

    one, two = (
        measure(labels[t], {f"c_{i}": image[t] + 100 * i for i in range(2)}) for t in (0, 2)
    )
    np.testing.assert_array_equal(adata.X, np.concatenate([one.X, two.X]))
    assert adata.obs["frame"].tolist() == [0] * one.n_obs + [2] * two.n_obs
    assert (adata.obs_names[0], adata.obs_names[-1]) == ("labels_t0_3", "labels_t2_9")
    assert set(shapes) == {LABELS.shape}
    lazy = measure(da.from_array(labels), {"c": da.from_array(several)}, time_series=True)
    np.testing.assert_array_equal(lazy.X, adata.X)


def test_volume_and_pixels_that_are_not_finite() -> None:
    labels = np.stack([LABELS, LABELS, 0 * LABELS]).astype(np.uint16)
    image = np.stack([IMAGE, IMAGE, IMAGE]).astype(float)
    image[:, 2, 0] = np.nan
    image[0, 0, 1] = np.inf

    adata = measure(labels, image, spacing=(3, 1, 1), unit="um", quantiles=1)

    assert adata[:, "volume_um3"].X.ravel().tolist() == [12, 24, 6]
    assert adata.obsm["spatial"][0].tolist() == [3, 1.5, 1.5]
    np.testing.assert_allclose(adata[:, "intensity_mean"].X.ravel()[:2], [9, 27 / 7])
    assert np.isnan(adata[:, ["intensity_mean", "intensity_std", "intensity_q100"]].X[2]).all()


@pytest.mark.parametrize(
    ("labels", "images", "options", "text"),
    [
        (LABELS[0], None, {}, r"shape \(4,\), but space has 2 or 3 axes"),
        (np.stack([LABELS[None]] * 2), None, {}, "pass time_series=True"),
        (0 * LABELS, None, {}, "hold no cells"),
        ({}, None, {}, r"got \{\}"),
        ({"a": LABELS}, {"c": IMAGE.T}, {}, r"'c' has the shape \(4, 3\) and labels 'a' \(3, 4\)"),
        (LABELS[:, :3], np.zeros((3, 3, 3)), {}, "channel_axis"),
        ({"A": LABELS, "B": LABELS}, {"A": {"c": IMAGE}}, {}, r"of \['A'\], and labels 'B'"),
        ({"A": LABELS, "B": LABELS}, {"A": {"c": IMAGE}, "B": {"d": IMAGE}}, {}, "same channels"),
        ({"A": LABELS, "B": np.stack([LABELS] * 2)}, None, {}, "same number of axes"),
        (LABELS, None, {"spacing": 2}, "pass unit='um'"),
        (LABELS, None, {"spacing": (1, 0), "unit": "um"}, r"got \(1, 0\)"),
        (LABELS, IMAGE, {"quantiles": (0.5, 50)}, r"in \[0, 1\]"),
        (LABELS, IMAGE, {"quantiles": "a"}, r"in \[0, 1\]; got 'a'"),
        (LABELS, None, {"properties": ["roundness"]}, "perimeter.*solidity.*got.*roundness"),
        (sparse.csr_matrix(LABELS).todense(), None, {}, "integers.*got matrix"),
    ],
)
def test_input_that_does_not_fit_is_an_error(
    labels: Any, images: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        measure(labels, images, **options)


def test_warnings_about_empty_labels_and_masks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "centroid_encoder"):
        adata = measure({"none": 0 * LABELS, "mask": (LABELS > 0).astype(int), "all": LABELS})

    assert adata.uns["spatialdata_attrs"]["region"] == ["mask", "all"]
    assert "labels 'none' hold 0 cells" in caplog.text
    assert "labels 'mask' hold 1 cells" in caplog.text


@pytest.mark.parametrize("n_calls", [0, 2, 4, 5])
def test_measuring_can_be_stopped_and_counts_cells(n_calls: int) -> None:
    calls: list[Any] = []
    job = Measurement({"A": LABELS, "B": LABELS}, IMAGE)

    def callback(progress: Any) -> bool:
        calls.append(progress)
        return len(calls) == n_calls + 1

    with pytest.raises(StoppedTooEarly):
        job.run(callback)

    done = [(progress.n_done, progress.n_total) for progress in calls if progress is not None]
    assert done == [(3, 3), (6, 6)][: (n_calls + 1) // 3]
