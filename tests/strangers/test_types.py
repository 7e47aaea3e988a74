"""Booleans and whole numbers mean the same in every type of column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import centroid_encoder as ce
from centroid_encoder.tl._check import as_mask
from centroid_encoder.tl._matrix import in_memory
from centroid_encoder.tl._positions import numbers
from centroid_encoder.viewer.data.columns import images_by_name, name_of

MASK = [True] * 5 + [False] * 3
MASKS: dict[str, Any] = {
    "nullable": pd.array([*MASK[:-1], None], dtype="boolean"),
    "objects with NaN": np.array([*MASK[:-1], np.nan], dtype=object),
    "integers": np.array(MASK, dtype=int),
    "nullable integers": pd.array([1] * 5 + [0, 0, None], dtype="Int64"),
    "numbers with NaN": np.array([1.0] * 5 + [0, 0, np.nan]),
    "category": pd.Categorical(MASK),
    "category of text": pd.Categorical([str(x) for x in MASK]),
    "text": [str(x) for x in MASK],
    "text of R": pd.array([str(x).upper() for x in MASK], dtype="string"),
}


@pytest.mark.parametrize("kind", MASKS)
def test_a_column_of_booleans_selects_the_same_genes(
    kind: str, cells: ad.AnnData, fast: ce.CentroidEncoder
) -> None:
    cells.var["highly_variable"] = MASKS[kind]
    assert_array_equal(as_mask(cells.var["highly_variable"]), MASK)
    job = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast)
    assert job._cells.names.tolist() == cells.var_names[:5].tolist()


@pytest.mark.parametrize("kind", [*MASKS, "words"])
def test_a_column_of_booleans_gives_the_same_split(
    kind: str, cells: ad.AnnData, fast: ce.CentroidEncoder
) -> None:
    """Cells without a value are neither trained on nor held out."""
    words = ["Test"] * 5 + ["train", "train", None]
    values = pd.Series(words if kind == "words" else MASKS[kind])
    rows = np.arange(cells.n_obs) % 8
    cells.obs["out"] = values.take(rows).array
    job = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast, split_key="out")
    assert_array_equal(job.held_out, np.array(MASK)[rows])
    assert_array_equal(job.train, values.notna().to_numpy()[rows] & ~np.array(MASK)[rows])


@pytest.mark.parametrize(
    "values", [["a", "b"], [0, 2], [0.5, 1], [0, 0], [None, None], [[1], [0]], [np.nan, "x"]]
)
def test_other_values_are_no_mask(values: list[Any]) -> None:
    assert as_mask(pd.Series(values)) is None


FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "nullable": lambda: pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [0.5, 1]}),
    "booleans": lambda: pd.DataFrame({"a": [1.0, np.nan], "b": [False, True]}),
    "objects": lambda: pd.DataFrame({"a": [1, None], "b": [0.5, 1]}, dtype=object),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_numbers_of_a_data_frame_are_read(kind: str) -> None:
    frame = FRAMES[kind]()
    expected = [[1, frame["b"].iloc[0]], [np.nan, 1]]
    for found in (in_memory(frame), numbers(frame)):
        assert found is not None
        assert found.dtype == np.float64
        assert_array_equal(found, np.array(expected, dtype=float))


def test_text_in_a_data_frame_is_refused(cells: ad.AnnData, fast: ce.CentroidEncoder) -> None:
    cells.obsm["table"] = pd.DataFrame({"a": 1, "b": "x"}, index=cells.obs_names)
    with pytest.raises(TypeError, match=r"obsm\['table'\] holds values of dtype object, not real"):
        ce.tl.centroid_encoder(cells, "cell_type", use_rep="table", model=fast)


WHOLE: dict[str, Any] = {
    "integers": np.array([7, 8]),
    "floats": np.array([7.0, 8.0]),
    "text": ["7", "8"],
    "text with decimals": ["7.0", "8.0"],
    "nullable": pd.array([7, 8], dtype="Int64"),
    "category": pd.Categorical([7, 8]),
    "category of floats": pd.Categorical([7.0, 8.0]),
    "objects": np.array([7.0, "8"], dtype=object),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_ids_and_images_match_in_every_type(kind: str) -> None:
    from napari.layers import Labels, Points

    from centroid_encoder.viewer.data.ids import read_ids
    from centroid_encoder.viewer.data.join import Link
    from centroid_encoder.viewer.data.tables import Table

    obs = pd.DataFrame({"cell_id": WHOLE[kind], "image": WHOLE[kind]}, index=["a", "b"])
    table = Table(ad.AnnData(obs=obs), "cells")
    assert [name_of(value) for value in obs["image"]] == ["7", "8"]
    layers = [Labels(np.array([[7, 8]]), name=name) for name in ("7", "8_mask")]
    assert list(images_by_name(layers, obs["image"])) == layers
    points = Points(np.zeros((3, 2)), features={"cell_id": ["8", "7", "x"]})
    for image in ("7", 7, 7.0):
        join = Link(table, image, layers[0], "cell_id", image_column="image").make(
            read_ids(layers[0])
        )
        assert join.joined.tolist() == [True, False]
    assert Link(table, None, points, "cell_id").make(read_ids(points)).ids.tolist() == [1, 0]
