"""Classes are counted by group, whatever the columns are."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

import centroid_encoder as ce


@pytest.fixture
def tissue() -> ad.AnnData:
    obs = pd.DataFrame(
        {
            "image": ["B", "A", "A", None, "B", "A"],
            "kind": pd.Categorical(["x", "y", "x", "x", None, "y"], ["y", "x", "none"]),
            "donor": [2, 1, 1, 1, 2, 2],
            "area": np.linspace(0, 1, 6),
        },
        index=list("abcdef"),
    )
    return ad.AnnData(np.ones((6, 2), np.float32), obs=obs)


def test_cells_are_counted(tissue: ad.AnnData, unchanged: Any) -> None:
    with unchanged(tissue):
        table = ce.tl.composition(tissue, "image", label_key="kind")
    wanted = pd.DataFrame(
        [[2, 1, 0], [0, 1, 0]],
        index=pd.Index(["A", "B"], name="image"),
        columns=pd.Index(["y", "x", "none"], name="kind"),
    )
    pd.testing.assert_frame_equal(table, wanted, check_index_type=False, check_column_type=False)


def test_numbers_and_missing_ones_are_groups_and_classes(tissue: ad.AnnData) -> None:
    tissue.obs["donor"] = tissue.obs["donor"].astype(float)
    tissue.obs.loc["a", "donor"] = np.nan
    table = ce.tl.composition(tissue, "donor", label_key="kind")
    assert table.index.tolist() == [1, 2]
    assert table.to_numpy().tolist() == [[1, 2, 0], [1, 0, 0]]
    table = ce.tl.composition(tissue, "kind", label_key="donor")
    assert table.loc["none"].tolist() == [0, 0]


def test_the_labels_are_those_of_the_map(cells: ad.AnnData, fast: ce.CentroidEncoder) -> None:
    cells.obs["image"] = np.arange(120) % 2
    with pytest.raises(KeyError, match="ce"):
        ce.tl.composition(cells, "image")
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    table = ce.tl.composition(cells, "image")
    assert table.columns.name == "cell_type"
    assert table.to_numpy().tolist() == [[20] * 3] * 2
    predicted = ce.tl.composition(cells, "image", label_key="ce_label")
    assert predicted.to_numpy().sum() == 120


def test_what_is_wrong_is_named(tissue: ad.AnnData) -> None:
    with pytest.raises(KeyError, match="did you mean 'image'"):
        ce.tl.composition(tissue, "imag", label_key="kind")
    with pytest.raises(ValueError, match="group_key: obs\\['area'\\] holds numbers, not names"):
        ce.tl.composition(tissue, "area", label_key="kind")
