"""Numbers of cells by class and group."""

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
            "donor": [np.nan, 1, 1, 1, 2, 2],
            "area": np.linspace(0, 1, 6),
        },
        index=list("abcdef"),
    )
    return ad.AnnData(np.ones((6, 2), np.float32), obs=obs)


def test_groups_and_classes_can_be_names_or_integers(tissue: ad.AnnData, unchanged: Any) -> None:
    with unchanged(tissue):
        table = ce.tl.composition(tissue, "image", label_key="kind")
    assert (table.index.name, table.index.tolist()) == ("image", ["A", "B"])
    assert (table.columns.name, table.columns.tolist()) == ("kind", ["y", "x", "none"])
    assert table.to_numpy().tolist() == [[2, 1, 0], [0, 1, 0]]
    table = ce.tl.composition(tissue, "donor", label_key="kind")
    assert table.index.tolist() == [1, 2]
    assert table.to_numpy().tolist() == [[1, 2, 0], [1, 0, 0]]
    assert ce.tl.composition(tissue, "kind", label_key="donor").loc["none"].tolist() == [0, 0]


def test_the_labels_of_the_map_are_the_default(cells: ad.AnnData, fast: ce.CentroidEncoder) -> None:
    cells.obs["image"] = np.arange(120) % 2
    with pytest.raises(KeyError, match="ce"):
        ce.tl.composition(cells, "image")
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    table = ce.tl.composition(cells, "image")
    assert table.columns.name == "cell_type"
    assert table.to_numpy().tolist() == [[20] * 3] * 2


def test_errors_name_the_column(tissue: ad.AnnData) -> None:
    with pytest.raises(KeyError, match="did you mean 'image'"):
        ce.tl.composition(tissue, "imag", label_key="kind")
    with pytest.raises(
        ValueError, match="group_key: obs\\['area'\\] holds fractional numbers, not names"
    ):
        ce.tl.composition(tissue, "area", label_key="kind")
