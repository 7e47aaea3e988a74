"""Objects are measured as scikit-image does, however the image is cut into bands."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage
from skimage.measure import regionprops_table

from centroid_encoder.core import measurement
from centroid_encoder.core.measurement import Measured, find, measure, shape_properties

T = TypeVar("T")
BANDS = [1, 100, 2**21]
"""Pixels of a band: a row, some rows, all."""


def ended(steps: Generator[Any, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def measured(
    labels: Any, *channels: Any, spacing: tuple[float, ...] = (1, 1), quantiles: Any = (0.5,)
) -> Measured:
    found = ended(find(labels))
    return ended(measure(labels, found, channels, spacing=spacing, quantiles=quantiles))


def blobs(shape: tuple[int, ...], above: float = 0.05) -> np.ndarray:
    """Objects of all shapes, some of several parts, some cut by the border, some of one pixel."""
    rng = np.random.default_rng(0)
    labels, n = ndimage.label(ndimage.gaussian_filter(rng.normal(size=shape), 1.5) > above)
    # Labels with gaps, in no order, of which some have several parts that are far apart.
    numbers = np.append(0, rng.choice(3 * n, size=n) + 1)
    return numbers[labels]


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("spacing", [(1.0, 1.0), (0.325, 0.325), (2.0, 0.5)])
def test_plane_is_measured_as_scikit_image_does(
    band: int, spacing: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "BAND", band)
    labels = blobs((61, 83))
    image = np.random.default_rng(1).normal(100, 20, labels.shape)

    found = measured(labels, image, spacing=spacing)

    names = ["area", "axis_major_length", "axis_minor_length", "eccentricity", "extent", "solidity"]
    if spacing[0] == spacing[1]:
        names.append("perimeter")
    assert set(found.shapes) == set(names) == set(shape_properties(spacing))
    assert len(found.labels) > 15
    table = regionprops_table(
        labels,
        image,
        properties=["label", "centroid", "intensity_mean", "intensity_std", *names],
        spacing=spacing,
    )
    np.testing.assert_array_equal(found.labels, table["label"])
    for name in names:
        np.testing.assert_allclose(found.shapes[name], table[name], rtol=1e-9, atol=1e-9)
    centers = np.column_stack([table["centroid-0"], table["centroid-1"]])
    np.testing.assert_allclose(found.centers, centers, rtol=1e-12)
    np.testing.assert_allclose(found.intensities[:, 0, 0], table["intensity_mean"], rtol=1e-12)
    np.testing.assert_allclose(found.intensities[:, 0, 1], table["intensity_std"], rtol=1e-9)


@pytest.mark.parametrize("band", BANDS)
def test_space_is_measured_as_scikit_image_does(band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "BAND", band)
    labels, spacing = blobs((37, 33, 39), 0.15), (2.0, 0.5, 0.5)
    # scikit-image takes the root of what rounding has made negative.
    labels[np.isin(labels, np.flatnonzero(np.bincount(labels.ravel()) < 30))] = 0

    found = measured(labels, spacing=spacing)

    names = ["axis_major_length", "axis_minor_length", "extent"]
    table = regionprops_table(labels, properties=["area", "centroid", *names], spacing=spacing)
    assert len(found.labels) > 5
    assert set(found.shapes) == {"volume", *names}
    np.testing.assert_allclose(found.shapes["volume"], table["area"], rtol=1e-12)
    for name in names:
        np.testing.assert_allclose(found.shapes[name], table[name], rtol=1e-6)
    for axis in range(3):
        np.testing.assert_allclose(found.centers[:, axis], table[f"centroid-{axis}"], rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_intensities_are_those_of_the_pixels_of_each_object(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=3, max_side=6))
    labels = data.draw(hnp.arrays(np.uint8, shape, elements=st.integers(0, 4)))
    dtype = data.draw(st.sampled_from([np.uint8, np.int16, np.uint16, np.float32, np.float64]))
    elements = None
    if np.dtype(dtype).kind == "f":
        # What X, which is of single precision, can hold.
        elements = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)
    image = data.draw(hnp.arrays(dtype, shape, elements=elements))
    quantiles = data.draw(st.lists(st.floats(0, 1), max_size=3))

    found = measured(labels, image, spacing=(1,) * len(shape), quantiles=quantiles)

    for label, statistics in zip(found.labels, found.intensities[:, 0], strict=True):
        pixels = image[labels == label].astype(np.float64)
        scale = np.abs(pixels).max()
        expected = [pixels.mean(), pixels.std(), *np.quantile(pixels, quantiles)]
        np.testing.assert_allclose(statistics, expected, rtol=1e-9, atol=1e-9 * scale)


def test_pixels_that_are_not_finite_do_not_count() -> None:
    labels = np.repeat([[1, 2, 3]], 4, axis=0)
    image = np.array([[1, 5, np.nan], [np.nan, 6, np.inf], [3, 7, -np.inf], [8, 8, 1e300]])

    found = measured(labels, image, quantiles=(0, 0.5, 1))

    np.testing.assert_allclose(found.intensities[0, 0], [4, np.std([1, 3, 8]), 1, 3, 8])
    np.testing.assert_allclose(found.intensities[1, 0], [6.5, np.std([5, 6, 7, 8]), 5, 6.5, 8])
    assert np.isnan(found.intensities[2]).all()
    assert found.n_not_finite == 5
    np.testing.assert_array_equal(found.shapes["area"], 4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64])
def test_labels_are_whole_numbers_of_any_kind(dtype: type) -> None:
    largest = min(np.iinfo(dtype).max, np.iinfo(np.int64).max)
    labels = np.zeros((4, 5), dtype=dtype)
    labels[1, 1:3], labels[3] = largest, 7

    found = measured(labels)

    np.testing.assert_array_equal(found.labels, [7, largest])
    np.testing.assert_array_equal(found.shapes["area"], [5, 2])


@pytest.mark.parametrize("wrong", [np.array([[0, -3]]), np.array([[2**63 + 5, 0]], np.uint64)])
def test_other_numbers_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match=rf"the label {wrong[wrong != 0][0]} is not from 0"):
        ended(find(wrong))


def test_chunks_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "BAND", 3 * 83)
    labels = blobs((61, 83))
    image = np.random.default_rng(1).normal(size=labels.shape)
    read: list[Any] = []

    def counted(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        read.append(block_info[0]["chunk-location"])
        return block

    lazy = da.from_array(image, chunks=(25, 40)).map_blocks(counted, dtype=image.dtype, meta=image)
    found = measured(da.from_array(labels, chunks=(20, 83)), lazy)

    whole = measured(labels, image)
    np.testing.assert_array_equal(found.intensities, whole.intensities)
    np.testing.assert_array_equal(found.shapes["perimeter"], whole.shapes["perimeter"])
    assert len(read) == 9


def test_labels_that_change_meanwhile_are_no_error() -> None:
    labels = np.array([[1, 1, 0], [2, 2, 0], [3, 0, 0]])
    found = ended(find(labels))
    labels[labels == 2] = 9
    labels[0, 2] = 1

    now = ended(measure(labels, found, [], spacing=(1, 1), quantiles=()))

    np.testing.assert_array_equal(now.labels, [1, 3])
    np.testing.assert_array_equal(now.shapes["area"], [3, 1])
