"""From images to a table that is joined to them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest

import centroid_encoder as ce
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.tl._measure import Measurement

LABELS = np.array([[0, 7, 7, 0], [0, 7, 7, 3], [9, 0, 0, 3]])
IMAGE = np.arange(12, dtype=np.uint16).reshape(3, 4)


def measure(labels: Any, images: Any = None, **kwargs: Any) -> ad.AnnData:
    return ce.tl.measure(labels, images, progress=False, **kwargs)


def test_table_says_what_is_what() -> None:
    adata = measure(LABELS, {"DAPI": IMAGE}, spacing=0.5, unit="um", quantiles=(0.05, 0.5, 0.999))

    shapes = [
        *("area_um2", "perimeter_um", "axis_major_length_um", "axis_minor_length_um"),
        *("eccentricity", "solidity", "extent"),
    ]
    intensities = ["DAPI_mean", "DAPI_std", "DAPI_q05", "DAPI_q50", "DAPI_q99.9"]
    assert adata.var_names.tolist() == shapes + intensities
    assert adata.var["unit"].tolist() == ["um2", "um", "um", "um", "", "", ""] + ["intensity"] * 5
    assert adata.var["property"].tolist()[-4:] == ["std", "q05", "q50", "q99.9"]
    assert adata.var["channel"].isna().tolist() == [True] * 7 + [False] * 5
    assert adata.X.dtype == np.float32
    assert np.isfinite(adata.X).all()
    assert adata.obs_names.tolist() == ["labels_3", "labels_7", "labels_9"]
    assert adata.obs["label"].tolist() == [3, 7, 9]
    assert adata.obs["label"].dtype == np.int64
    assert adata.obs["region"].cat.categories.tolist() == ["labels"]
    # x, y.
    np.testing.assert_array_equal(adata.obsm["spatial"], [[1.5, 0.75], [0.75, 0.25], [0, 1]])
    area, mean = adata[:, "area_um2"].X.ravel(), adata[:, "DAPI_mean"].X.ravel()
    np.testing.assert_array_equal(area, [0.5, 1, 0.25])
    np.testing.assert_array_equal(mean, [9, 3.5, 8])
    assert adata.uns["spatialdata_attrs"] == {
        "region": "labels",
        "region_key": "region",
        "instance_key": "label",
    }
    assert adata.uns["measure"]["unit"] == "um"


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    adata = measure({"a/b": LABELS, "c": LABELS}, {"CD3": IMAGE})

    adata.write_h5ad(tmp_path / "table.h5ad")

    back = ad.read_h5ad(tmp_path / "table.h5ad")
    np.testing.assert_array_equal(back.X, adata.X)
    pd.testing.assert_frame_equal(back.obs, adata.obs)
    pd.testing.assert_frame_equal(back.var, adata.var)
    assert list(back.uns["spatialdata_attrs"]["region"]) == ["a/b", "c"]


def test_map_can_be_trained_on_it(fast: ce.CentroidEncoder) -> None:
    labels = np.kron(np.arange(1, 101).reshape(10, 10), np.pad(np.ones((4, 4), int), 1))
    image = np.random.default_rng(0).normal(labels % 2 * 10, size=labels.shape)

    adata = measure(labels, image)
    adata.obs["bright"] = adata[:, "intensity_mean"].X.ravel() > 5

    ce.tl.centroid_encoder(adata, "bright", model=fast, progress=False)
    assert adata.obsm["X_ce"].shape == (100, 2)


def test_regions_have_images_of_their_own_or_share_them() -> None:
    shared = measure({"nuclei": LABELS, "cells": 2 * LABELS}, {"CD3": IMAGE})
    own = measure(
        {"A": LABELS, "B": LABELS[:2]},
        {"B": {"CD3": IMAGE[:2]}, "A": {"CD3": IMAGE}},
        spacing={"A": 1, "B": 2},
        unit="um",
    )

    assert shared.obs["region"].tolist() == ["nuclei"] * 3 + ["cells"] * 3
    assert shared.obs["label"].tolist() == [3, 7, 9, 6, 14, 18]
    np.testing.assert_array_equal(shared.X[:3], shared.X[3:])
    assert own.obs_names.tolist() == ["A_3", "A_7", "A_9", "B_3", "B_7"]
    assert own[:, "area_um2"].X.ravel().tolist() == [2, 4, 1, 4, 16]
    assert own[:, "CD3_mean"].X.ravel().tolist() == [9, 3.5, 8, 7, 3.5]
    np.testing.assert_array_equal(own.uns["measure"]["spacing"], [[1, 1], [2, 2]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_channels_are_found_by_the_shapes(axis: int) -> None:
    several = np.stack([IMAGE, IMAGE + 100], axis=axis)

    adata = measure(LABELS, {"stack": several})
    nameless = measure(LABELS, several)

    assert adata[:, "stack_0_mean"].X.ravel().tolist() == [9, 3.5, 8]
    assert adata[:, "stack_1_mean"].X.ravel().tolist() == [109, 103.5, 108]
    assert nameless.var_names[-1] == "intensity_1_q90"


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_each_frame_is_measured_by_itself(axis: int) -> None:
    labels = np.stack([LABELS, np.roll(LABELS, 1, axis=1) * (LABELS != 9)])
    image = np.stack([IMAGE, 2 * IMAGE])
    several = np.stack([image, image + 100, image, image, image], axis=axis)

    adata = measure(labels, {"c": several}, time_series=True)

    frames = [
        measure(labels[t], {f"c_{i}": image[t] + 100 * (i == 1) for i in range(5)}) for t in (0, 1)
    ]
    np.testing.assert_array_equal(adata.X, np.concatenate([frame.X for frame in frames]))
    assert adata.obs["frame"].tolist() == [0] * frames[0].n_obs + [1] * frames[1].n_obs
    assert adata.obs_names[0] == "labels_t0_3"
    assert adata.obsm["spatial"].shape == (adata.n_obs, 2)


def test_space_has_three_axes() -> None:
    labels = np.stack([LABELS, LABELS, 0 * LABELS])

    adata = measure(labels, spacing=(3, 1, 1), unit="um")

    assert adata.var_names[0] == "volume_um3"
    assert adata[:, "volume_um3"].X.ravel().tolist() == [12, 24, 6]
    # x, y, z.
    assert adata.obsm["spatial"][0].tolist() == [3, 1.5, 1.5]


def test_dask_gives_the_same() -> None:
    adata = measure(LABELS, {"c": np.stack([IMAGE, IMAGE**2])})

    lazy = measure(
        da.from_array(LABELS, chunks=(2, 3)), {"c": da.from_array(np.stack([IMAGE, IMAGE**2]))}
    )

    np.testing.assert_array_equal(lazy.X, adata.X)


class OnDisk:
    """An array that is read where it is sliced, as those of HDF5 and zarr are."""

    def __init__(self, array: np.ndarray, read: list[str], name: str) -> None:
        self.array, self.read, self.name = array, read, name
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, where: Any) -> np.ndarray:
        self.read.append(self.name)
        return self.array[where]


def test_frames_are_read_one_by_one() -> None:
    labels, image = np.stack([LABELS] * 3), np.stack([IMAGE] * 3)
    read: list[str] = []

    adata = measure(OnDisk(labels, read, "labels"), OnDisk(image, read, "image"), time_series=True)

    np.testing.assert_array_equal(adata.X, measure(labels, image, time_series=True).X)
    # Counted first, then measured.
    assert read == ["labels"] * 3 + ["labels", "image"] * 3


MASK = LABELS > 0


@pytest.mark.parametrize(
    ("labels", "images", "options", "kind", "text"),
    [
        (MASK, None, {}, TypeError, r"'labels' are a mask.*skimage\.measure\.label"),
        (LABELS * 1.0, None, {}, TypeError, r"float64.*astype\(int\)"),
        ("nuclei.tif", None, {}, TypeError, "must be an array; got str"),
        (LABELS[0], None, {}, ValueError, r"shape \(4,\), but space has 2 or 3 axes"),
        (LABELS[None, None], None, {}, ValueError, "pass time_series=True"),
        (-LABELS, None, {}, ValueError, "label -9 is not from 0"),
        (0 * LABELS, None, {}, ValueError, "hold no cells"),
        (LABELS[:0], None, {}, ValueError, "hold no cells"),
        ({}, None, {}, ValueError, "nothing to measure"),
        (
            {"nuclei": LABELS},
            {"DAPI": IMAGE.T},
            {},
            ValueError,
            r"'DAPI' has the shape \(4, 3\) and labels 'nuclei' \(3, 4\)",
        ),
        (LABELS[:, :3], np.zeros((3, 3, 3)), {}, ValueError, "0 or 1 or 2; pass channel_axis=0"),
        (LABELS, np.zeros((2, 3, 4)), {"channel_axis": -1}, ValueError, "channel_axis=-1"),
        (LABELS, np.zeros((2, 3, 4)), {"channel_axis": 3}, ValueError, "channel_axis=3"),
        (LABELS, {"c": IMAGE * 1j}, {}, TypeError, "complex128, no intensities"),
        ({"A": LABELS, "B": LABELS}, {"A": {"c": IMAGE}}, {}, ValueError, "none of labels 'B'"),
        (
            {"A": LABELS, "B": LABELS},
            {"A": {"c": IMAGE}, "B": {"d": IMAGE}},
            {},
            ValueError,
            "labels 'A' have the channels 'c' and labels 'B' 'd'",
        ),
        ({"A": LABELS, "B": LABELS[None]}, None, {}, ValueError, "2 axes of space.*'B' 3"),
        (LABELS, {"c_0": IMAGE, "c": IMAGE[..., None]}, {}, ValueError, "called 'c_0'"),
        (LABELS, None, {"spacing": 2}, ValueError, "pass unit='um'"),
        (LABELS, None, {"spacing": (1, 0), "unit": "um"}, ValueError, r"got \(1, 0\)"),
        (LABELS, None, {"spacing": (1, 1, 1), "unit": "um"}, ValueError, "or 2 of them"),
        (LABELS, IMAGE, {"quantiles": (0.5, 50)}, ValueError, r"shares in \[0, 1\]"),
    ],
)
def test_what_does_not_fit_is_refused(
    labels: Any, images: Any, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        measure(labels, images, **options)


def test_doubtful_labels_are_told(caplog: pytest.LogCaptureFixture) -> None:
    image = IMAGE.astype(float)
    image[0, 1] = np.nan

    with caplog.at_level(logging.WARNING, "centroid_encoder"):
        adata = measure({"none": 0 * LABELS, "mask": MASK.astype(int), "all": LABELS}, image)

    assert adata.obs["region"].cat.categories.tolist() == ["mask", "all"]
    assert adata.uns["spatialdata_attrs"]["region"] == ["mask", "all"]
    said = " ".join(caplog.messages)
    assert "'none' hold no cells and are left out" in said
    assert "'mask' hold a single cell; if they are a mask" in said
    assert "2 pixels of cells are NaN or infinite" in said


@pytest.mark.parametrize("n_steps", range(8))
def test_measuring_can_be_stopped_at_any_step(n_steps: int) -> None:
    asked = iter(range(9))
    job = Measurement({"A": LABELS, "B": LABELS}, IMAGE)

    with pytest.raises(StoppedTooEarly):
        list(job.steps(stop=lambda: next(asked) == n_steps))

    with pytest.raises(RuntimeError, match="has not ended"):
        job.table()


def test_progress_counts_cells() -> None:
    steps = list(Measurement({"A": LABELS, "B": LABELS}).steps())

    assert [(step.n_done, step.n_total) for step in steps] == [(3, 6), (6, 6)]
