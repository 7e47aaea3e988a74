"""The table of misplaced cells: its rows, their order, and the same cells in the figure."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from scipy.spatial.distance import cdist

import centroid_encoder as ce
from centroid_encoder.core.saved import InvalidStateError

CASES = [("voronoi", "voronoi"), ("bottleneck", "voronoi"), ("bottleneck", "decoder")]
"""Placement and regions. Without a bottleneck there is no decoder."""


def placed(
    embedding: Any, centers: Any, labels: list[Any], classes: list[Any], split: str = "test"
) -> ad.AnnData:
    """Return cells with a result at given points, without a map."""
    n = len(embedding)
    obs = pd.DataFrame(
        {
            "label": pd.Categorical(labels, classes),
            "ce_split": pd.Categorical([split] * n, ["train", "test", "unlabeled"]),
            "ce_label": pd.Categorical(labels, classes),
        },
        index=[f"cell{i}" for i in range(n)],
    )
    uns = {
        "params": {"label_key": "label"},
        "classes": np.array(classes),
        "centers": np.asarray(centers, dtype=float),
    }
    return ad.AnnData(obs=obs, obsm={"X_ce": np.asarray(embedding)}, uns={"ce": uns})


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def trained(request):
    """Cells of overlapping classes with a result; some have no label, some are left out."""
    rng = np.random.default_rng(0)
    codes = np.arange(160) % 4
    X = (rng.normal(size=(4, 8))[codes] + rng.normal(size=(160, 8))).astype(np.float32)
    X[10:20] = np.nan
    # The classes of the map are sorted; those of the table have the order of the categories.
    labels = pd.Categorical.from_codes(np.where(np.arange(160) < 10, -1, codes), list("cadb"))
    adata = ad.AnnData(X, obs=pd.DataFrame({"cell_type": labels}, [f"c{i}" for i in range(160)]))
    model = ce.CentroidEncoder(
        hidden=(16,), max_epochs=8, batch_size=32, learning_rate=0.01, placement=request.param[0]
    )
    ce.tl.centroid_encoder(adata, "cell_type", model=model, missing="drop", progress=False)
    return adata


@pytest.fixture
def regions(request, trained):
    return request.node.callspec.params["trained"][1]


def test_regions_that_the_map_lacks_are_an_error(trained):
    if "decoder_error" not in trained.uns["ce"]["quality"]["test"]:
        for call in (ce.tl.misplaced, ce.pl.voronoi):
            with pytest.raises(ValueError, match="this map has no decoder"):
                call(trained, regions="decoder")


def test_lists_cells_in_the_region_of_another_class(trained, regions):
    table = ce.tl.misplaced(trained, regions=regions)
    labels, embedding = trained.obs["cell_type"].astype(object), trained.obsm["X_ce"]
    if regions == "voronoi":
        classes = trained.uns["ce"]["classes"]
        distances = cdist(embedding.astype(np.float64), trained.uns["ce"]["centers"])
        found = pd.Series(classes[distances.argmin(axis=1)], trained.obs_names)
    else:
        model, found = ce.tl.fitted_model(trained), trained.obs["ce_label"].astype(object)
        classes, placed = model.classes_, np.nan_to_num(embedding)
        distances = model.decoder_distances(placed).astype(float)
    kept = trained.obs["ce_split"].isin(["train", "test"])
    assert set(table.index) == set(trained.obs_names[kept & (labels != found)])
    assert len(table) > 5
    assert list(table.columns) == ["label", "region", "split", "depth"]
    for column, expected in (
        ("label", labels),
        ("region", found),
        ("split", trained.obs["ce_split"]),
    ):
        assert table[column].tolist() == expected[table.index].tolist()
    distances = pd.DataFrame(distances, trained.obs_names, classes)
    depth = [
        1 - distances.loc[name, row["region"]] / distances.loc[name, row["label"]]
        for name, row in table.iterrows()
    ]
    assert_allclose(table["depth"], depth, atol=1e-12 if regions == "voronoi" else 1e-5)
    assert table["depth"].is_monotonic_decreasing
    assert table["depth"].between(0, 1, inclusive="right").all()


@pytest.mark.parametrize(
    ("points", "centers", "labels", "expected"),
    [
        # Depth: 1 at the center of the other class; cells on the border are not listed.
        ([[0, 0], [4, 0], [5, 0], [6, 0], [10, 0], [20, 0], [5, 7]], [[0, 0], [10, 0]],
         "aaaaaaa", {"cell4": 1, "cell5": 0.5, "cell3": 1 / 3}),
        # A cell on the border is in its own class.
        ([[5, 0], [5, 0], [5, -3], [5, -3]], [[0, 0], [10, 0]], "abab", {}),
        # Two classes with one center share their region.
        ([[1, 1], [1, 1], [0, 0], [9, 0]], [[0, 0], [0, 0], [10, 0]], "abbb", {"cell3": 8 / 9}),
        # Cells of equal depth keep their order.
        ([[8, 0], [9, 0], [8, 0], [9, 0]], [[0, 0], [10, 0]], "aaaa",
         {"cell1": 8 / 9, "cell3": 8 / 9, "cell0": 0.75, "cell2": 0.75}),
    ],
)  # fmt: skip
def test_the_depth_of_chosen_points(points, centers, labels, expected):
    adata = placed(points, centers, list(labels), list("abc")[: len(centers)])
    table = ce.tl.misplaced(adata)
    assert table.index.tolist() == list(expected)
    assert_allclose(table["depth"], list(expected.values()))


def test_regions_of_a_decoder_need_the_map(trained):
    adata = trained.copy()
    table = ce.tl.misplaced(adata)
    del adata.uns["ce"]["model"]["arrays"]
    assert_frame_equal(ce.tl.misplaced(adata), table)
    # Without the arrays it is not known whether there is a decoder.
    with pytest.raises(InvalidStateError, match="lacks 'config' or 'arrays'"):
        ce.tl.misplaced(adata, regions="decoder")


def test_the_table_of_a_selection_is_a_part_of_the_whole(trained, unchanged, regions):
    whole = ce.tl.misplaced(trained, regions=regions)
    view = trained[trained.obs["cell_type"] == "d"]
    with unchanged(trained), unchanged(view):
        parts = [ce.tl.misplaced(cells, regions=regions) for cells in (view, view.copy())]
    expected = whole[whole["label"] == "d"]
    for part in parts:
        assert part.index.tolist() == expected.index.tolist()
        assert part["region"].tolist() == expected["region"].tolist()
        assert_allclose(part["depth"], expected["depth"], rtol=1e-6)


def test_the_figure_marks_the_same_cells(trained, regions):
    table = ce.tl.misplaced(trained, regions=regions)
    axes = ce.pl.voronoi(trained, regions=regions, mark_misplaced=True, show=False)
    for split, ax in zip(["train", "test"], axes, strict=True):
        (line,) = (line for line in ax.lines if line.get_markeredgewidth() == 0.8)
        circled = np.column_stack(line.get_data())
        listed = trained[table.index[table["split"] == split]].obsm["X_ce"]
        assert len(listed) > 0
        assert_array_equal(np.sort(circled, axis=0), np.sort(listed, axis=0))


def test_errors_name_the_kinds_of_regions(trained):
    with pytest.raises(ValueError, match="regions must be 'voronoi' or 'decoder'; got"):
        ce.tl.misplaced(trained, regions="cells")


def test_ingested_cells_without_labels_are_an_error(trained):
    query = trained[20:].copy()
    del query.obs["cell_type"]
    ce.tl.ingest(query, trained, progress=False)
    with pytest.raises(ValueError, match="the true ones are unknown"):
        ce.tl.misplaced(query)


def test_errors_name_the_labels_that_ingested_cells_have(trained):
    query = trained[20:].copy()
    ce.tl.ingest(query, trained, progress=False)
    with pytest.raises(ValueError, match="takes no others") as caught:
        ce.pl.confusion(query, show=False)
    assert "ce.tl.misplaced to list those whose 'cell_type' differs" in str(caught.value)
    assert "unknown" not in str(caught.value)
