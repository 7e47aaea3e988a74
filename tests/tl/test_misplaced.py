"""The list of misplaced cells: who is on it, in which order, and that the figure agrees."""

from __future__ import annotations

from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from scipy.spatial.distance import cdist

import centroid_encoder as ce
from centroid_encoder.core import quality
from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.tl import _misplaced
from centroid_encoder.tl._stored import read_result


def placed(
    embedding: Any, centers: Any, labels: list[Any], classes: list[Any], split: str = "test"
) -> ad.AnnData:
    """Cells with a result whose every point is chosen; no map belongs to it."""
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


def reference(adata: ad.AnnData, label_key: str) -> pd.DataFrame:
    """The Voronoi list, cell by cell from the definition, in float64."""
    classes, centers = adata.uns["ce"]["classes"].tolist(), adata.uns["ce"]["centers"]
    distances = cdist(adata.obsm["X_ce"].astype(np.float64), centers)
    rows = []
    for i, (name, label, split) in enumerate(
        zip(adata.obs_names, adata.obs[label_key], adata.obs["ce_split"], strict=True)
    ):
        if split not in ("train", "test"):
            continue
        own, nearest = distances[i, classes.index(label)], distances[i].min()
        if nearest < own:
            region = classes[int(distances[i].argmin())]
            rows.append((name, label, region, split, 1 - nearest / own))
    rows.sort(key=lambda row: -row[-1])
    table = pd.DataFrame(rows, columns=["cell", "label", "region", "split", "depth"])
    return table.set_index("cell")


def check(table: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(table.columns) == ["label", "region", "split", "depth"]
    assert set(table.index) == set(expected.index)
    expected = expected.loc[table.index]
    for column in ("label", "region", "split"):
        assert table[column].tolist() == expected[column].tolist()
    # Distances of float64 points to within rounding.
    assert_allclose(table["depth"], expected["depth"], rtol=1e-12, atol=1e-14)
    assert table["depth"].is_monotonic_decreasing
    assert table["depth"].between(0, 1, inclusive="right").all()


class TestVoronoi:
    @pytest.mark.parametrize("n_components", [1, 2, 3, 5])
    def test_lists_who_is_nearer_to_another_center(self, embed, n_components):
        adata = embed(5, n_components=n_components, unlabeled=20)
        table = ce.tl.misplaced(adata)
        assert len(table) > 5
        assert set(table["split"]) == {"train", "test"}
        check(table, reference(adata, "cell_type"))

    @pytest.mark.slow
    def test_on_real_cells(self, pbmc):
        ce.tl.centroid_encoder(pbmc, "bulk_labels", progress=False)
        table = ce.tl.misplaced(pbmc)
        check(table, reference(pbmc, "bulk_labels"))
        # As many as were counted when the embedding was made.
        for split, errors in pbmc.uns["ce"]["quality"].items():
            if split != "per_class":
                n = (table["split"] == split).sum()
                assert n > 0
                assert n / errors["n"] == pytest.approx(errors["voronoi_error"])

    def test_finds_planted_errors_and_names_the_truth(self, make_cells):
        adata = make_cells(4, 400, distance=6.0)
        truth = adata.obs["cell_type"].copy()
        planted = adata.obs_names[[3, 50, 101, 222, 399]]
        adata.obs.loc[planted, "cell_type"] = "type 0"
        planted = planted[truth[planted] != "type 0"]
        ce.tl.centroid_encoder(adata, "cell_type", progress=False)
        table = ce.tl.misplaced(adata)
        assert set(table.index[: len(planted)]) == set(planted)
        worst = table.loc[planted]
        assert (worst["label"] == "type 0").all()
        assert worst["region"].tolist() == truth[planted].tolist()
        # A placed class reaches half-way from its position to the border.
        assert (worst["depth"] > 0.4).all()

    def test_depth_runs_from_the_border_to_the_others_center(self):
        points = [[0, 0], [4, 0], [5, 0], [6, 0], [10, 0], [20, 0], [5, 7]]
        adata = placed(points, [[0, 0], [10, 0]], ["a"] * 7, ["a", "b"])
        table = ce.tl.misplaced(adata)
        # Those on the border itself, cells 2 and 6, are at home.
        assert table.index.tolist() == ["cell4", "cell5", "cell3"]
        assert_allclose(table["depth"], [1, 0.5, 1 / 3])

    def test_a_border_belongs_to_both_sides(self):
        points = [[5, 0]] * 2 + [[5, -3]] * 2
        adata = placed(points, [[0, 0], [10, 0]], ["a", "b"] * 2, ["a", "b"])
        assert ce.tl.misplaced(adata).empty

    def test_classes_with_one_center_do_not_misplace_each_other(self):
        centers = [[0, 0], [0, 0], [10, 0]]
        points = [[1, 1], [1, 1], [0, 0], [9, 0]]
        adata = placed(points, centers, ["a", "b", "b", "b"], ["a", "b", "c"])
        assert ce.tl.misplaced(adata).index.tolist() == ["cell3"]

    @given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 3))
    @settings(max_examples=40, deadline=None)
    def test_of_any_cells(self, seed, n_classes, n_components):
        rng = np.random.default_rng(seed)
        names = [f"class {i}" for i in range(n_classes)]
        points = rng.normal(size=(50, n_components)).astype(np.float32)
        centers = rng.normal(size=(n_classes, n_components))
        adata = placed(points, centers, rng.choice(names, 50).tolist(), names)
        check(ce.tl.misplaced(adata), reference(adata, "label"))

    def test_needs_no_map(self, embed):
        adata = embed()
        table = ce.tl.misplaced(adata)
        del adata.uns["ce"]["model"]
        assert_frame_equal(ce.tl.misplaced(adata), table)


class TestDecoder:
    def test_lists_whom_the_model_gives_to_another_class(self, make_cells):
        # The model sorts its classes; the result has them in the order of the categories.
        adata = make_cells(4, distance=1.0, names=["c", "a", "d", "b"])
        adata.obs.iloc[:20, 0] = np.nan
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=8, batch_size=32, learning_rate=0.01)
        ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
        table = ce.tl.misplaced(adata, regions="decoder")
        labels, predicted = (adata.obs[key].astype(str) for key in ("cell_type", "ce_label"))
        wrong = (adata.obs["ce_split"] != "unlabeled") & (labels != predicted)
        assert wrong.sum() > 5
        assert set(table.index) == set(adata.obs_names[wrong])
        assert table["label"].tolist() == labels[table.index].tolist()
        assert table["region"].tolist() == predicted[table.index].tolist()
        model = ce.tl.fitted_model(adata)
        for name, row in table.iterrows():
            distances = dict(
                zip(
                    model.classes_,
                    model.decoder_distances(adata[name].obsm["X_ce"])[0].astype(float),
                    strict=True,
                )
            )
            depth = 1 - distances[row["region"]] / distances[row["label"]]
            assert row["depth"] == pytest.approx(depth, abs=1e-5)
        assert table["depth"].is_monotonic_decreasing
        assert table["depth"].between(0, 1, inclusive="right").all()

    def test_stays_in_step_with_what_was_predicted(self, embed):
        adata = embed()
        # As if a machine that rounds otherwise had decided.
        own = adata.obs["cell_type"].to_numpy()
        other = np.roll(adata.obs["cell_type"].cat.categories, 1)[adata.obs["cell_type"].cat.codes]
        adata.obs["ce_label"] = pd.Categorical(
            np.where(np.arange(adata.n_obs) < 7, other, own), adata.obs["cell_type"].cat.categories
        )
        table = ce.tl.misplaced(adata, regions="decoder")
        assert set(table.index) == set(adata.obs_names[:7])
        assert table["depth"].between(0, 1, inclusive="right").all()

    def test_leaves_out_cells_whose_prediction_was_deleted(self, embed):
        adata = embed()
        gone = ce.tl.misplaced(adata, regions="decoder").index[:2]
        adata.obs.loc[gone, "ce_label"] = np.nan
        assert not ce.tl.misplaced(adata, regions="decoder").index.isin(gone).any()

    def test_needs_the_map(self, embed):
        adata = embed()
        del adata.uns["ce"]["model"]["arrays"]
        with pytest.raises(InvalidStateError, match="lacks 'config' or 'arrays'"):
            ce.tl.misplaced(adata, regions="decoder")


class TestTable:
    @pytest.fixture
    def none(self) -> ad.AnnData:
        return placed([[0, 0], [9, 0]], [[0, 0], [10, 0]], ["a", "b"], ["a", "b"])

    def test_is_typed_even_if_empty(self, none):
        empty = ce.tl.misplaced(none)
        full = ce.tl.misplaced(placed([[9, 0]], [[0, 0], [10, 0]], ["a"], ["a", "b"]))
        assert (len(empty), len(full)) == (0, 1)
        assert empty.dtypes.to_dict() == full.dtypes.to_dict()
        assert empty.index.dtype == full.index.dtype
        for table in (empty, full):
            assert table["label"].cat.categories.tolist() == ["a", "b"]
            assert table["region"].cat.categories.tolist() == ["a", "b"]
            assert table["split"].cat.categories.tolist() == ["train", "test"]
            assert table["depth"].dtype == np.float64

    def test_is_typed_if_empty_of_the_decoder(self, embed):
        adata = embed()
        adata.obs["ce_label"] = adata.obs["cell_type"]
        empty = ce.tl.misplaced(adata, regions="decoder")
        assert len(empty) == 0
        assert empty.dtypes.to_dict() == ce.tl.misplaced(adata).dtypes.to_dict()

    def test_keeps_the_order_of_cells_that_are_as_deep(self):
        points = [[8, 0], [9, 0], [8, 0], [9, 0], [8, 0]]
        adata = placed(points, [[0, 0], [10, 0]], ["a"] * 5, ["a", "b"])
        names = ["cell1", "cell3", "cell0", "cell2", "cell4"]
        assert ce.tl.misplaced(adata).index.tolist() == names

    @pytest.mark.parametrize("dtype", [int, bool, object, "category"])
    def test_names_classes_as_the_labels_do(self, make_cells, dtype):
        adata = make_cells(2, distance=0.3)
        codes = adata.obs["cell_type"].cat.codes
        adata.obs["cell_type"] = (
            codes.map({0: "x", 1: "y"}) if dtype is object else codes.astype(dtype)
        )
        model = ce.CentroidEncoder(hidden=(4,), max_epochs=2)
        ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
        for regions in ("voronoi", "decoder"):
            table = ce.tl.misplaced(adata, regions=regions)
            assert len(table) > 0
            assert table["label"].tolist() == adata.obs["cell_type"][table.index].tolist()
            assert (table["label"] != table["region"]).all()

    def test_leaves_the_data_as_they_are(self, embed, unchanged):
        adata = embed(unlabeled=5)
        with unchanged(adata):
            ce.tl.misplaced(adata)
            ce.tl.misplaced(adata, regions="decoder")
        view = adata[::2]
        with unchanged(view):
            ce.tl.misplaced(view)

    def test_of_a_selection_is_that_part_of_the_whole(self, embed):
        adata = embed(4)
        for regions in ("voronoi", "decoder"):
            whole = ce.tl.misplaced(adata, regions=regions)
            # The regions keep their names, though no cell of those classes is left.
            selection = adata[adata.obs["cell_type"] == "type 2"].copy()
            part = ce.tl.misplaced(selection, regions=regions)
            assert len(part) > 0
            assert_frame_equal(part, whole[whole["label"] == "type 2"], rtol=1e-6)

    def test_is_found_under_its_key(self, embed):
        adata = embed(key_added="second")
        first = embed()
        for regions in ("voronoi", "decoder"):
            expected = ce.tl.misplaced(first, regions=regions)
            assert_frame_equal(ce.tl.misplaced(adata, key="second", regions=regions), expected)

    def test_survives_a_file(self, embed, tmp_path):
        adata = embed()
        adata.write_h5ad(tmp_path / "cells.h5ad")
        read = ad.read_h5ad(tmp_path / "cells.h5ad")
        for regions in ("voronoi", "decoder"):
            expected = ce.tl.misplaced(adata, regions=regions)
            assert_frame_equal(
                ce.tl.misplaced(read, regions=regions), expected, check_categorical=False
            )


@pytest.mark.parametrize("regions", ["voronoi", "decoder"])
def test_cells_without_label_or_embedding_are_never_listed(make_cells, regions):
    adata = make_cells(4, distance=0.5)
    adata.obs.iloc[:10, 0] = np.nan
    adata.X[10:20] = np.nan
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=3)
    ce.tl.centroid_encoder(
        adata,
        "cell_type",
        model=model,
        missing="drop",
        unlabeled_category="type 3",
        progress=False,
    )
    table = ce.tl.misplaced(adata, regions=regions)
    listed = adata.obs.loc[table.index]
    assert len(table) > 5
    assert listed["ce_split"].isin(["train", "test"]).all()
    assert not table.index.isin(adata.obs_names[:20]).any()
    assert "type 3" not in {*table["label"], *table["region"]}
    # Where those without a label lie is known all the same.
    found = read_result(adata, "ce").found_in(regions)
    assert (found[10:20] == -1).all()
    assert (np.delete(found, np.s_[10:20]) >= 0).all()


@pytest.mark.parametrize("regions", ["voronoi", "decoder"])
@pytest.mark.parametrize("n_components", [1, 2])
def test_the_figure_circles_the_same_cells(embed, regions, n_components):
    adata = embed(4, n_components=n_components, unlabeled=10)
    table = ce.tl.misplaced(adata, regions=regions)
    axes = ce.pl.voronoi(adata, regions=regions, mark_misplaced=True, show=False)
    for split, ax in zip(["train", "test"], axes, strict=True):
        (line,) = (line for line in ax.lines if line.get_markeredgewidth() == 0.8)
        circled = np.column_stack(line.get_data())[:, :n_components]
        listed = adata[table.index[table["split"] == split]].obsm["X_ce"]
        assert len(listed) > 0
        assert_array_equal(np.sort(circled, axis=0), np.sort(listed, axis=0))
    plt.close("all")


def test_cells_lie_in_the_polygon_of_their_region(embed):
    adata = embed(4)
    palette = ["#ff0000", "#00ff00", "#0000ff", "#ffff00"]
    ax = ce.pl.voronoi(adata, palette=palette, split="train", show=False)
    found = read_result(adata, "ce").found_in("voronoi")
    fills = [patch for patch in ax.patches if patch.get_facecolor()[3] > 0]
    assert len(fills) == 4
    for patch in fills:
        code = palette.index(to_hex(patch.get_facecolor()))
        inside = patch.get_path().contains_points(adata.obsm["X_ce"])
        assert_array_equal(inside, found == code)


@pytest.mark.parametrize("regions", ["voronoi", "decoder"])
def test_many_cells_are_taken_a_part_at_a_time(embed, monkeypatch, regions):
    adata = embed(4)
    expected = ce.tl.misplaced(adata, regions=regions)
    assert len(expected) > 21
    monkeypatch.setattr(quality, "AT_ONCE", 7)
    monkeypatch.setattr(_misplaced, "AT_ONCE", 7)
    assert_frame_equal(ce.tl.misplaced(adata, regions=regions), expected, rtol=1e-5)


class TestErrors:
    def test_name_the_call_to_make_first(self, cells):
        with pytest.raises(KeyError, match=r"run ce.tl.centroid_encoder\(adata"):
            ce.tl.misplaced(cells)

    @pytest.mark.parametrize("regions", ["cells", None, ""])
    def test_name_the_kinds_of_regions(self, embed, regions):
        with pytest.raises(ValueError, match=r"regions must be one of .*voronoi.*decoder.*; got"):
            ce.tl.misplaced(embed(), regions=regions)

    def test_name_labels_that_are_new(self, embed):
        adata = embed()
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories({"type 1": "T cell"})
        with pytest.raises(ValueError, match=r"has changed .*'T cell' was not among"):
            ce.tl.misplaced(adata)

    def test_name_a_column_that_is_gone(self, embed):
        adata = embed()
        del adata.obs["ce_split"]
        with pytest.raises(KeyError, match=r"obs\['ce_split'\].* is gone"):
            ce.tl.misplaced(adata)


def test_ingested_cells_have_no_labels_to_doubt(embed):
    known = embed()
    query = known.copy()
    ce.tl.ingest(query, known, progress=False)
    with pytest.raises(ValueError, match="nothing tells which labels are right"):
        ce.tl.misplaced(query)
