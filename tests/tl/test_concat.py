"""Results after `anndata.concat`: every function reads the cells of one result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import centroid_encoder as ce
from centroid_encoder.tl._result import StoredMap, read_result

N = 90
READ: dict[str, Callable[[ad.AnnData], Any]] = {
    "voronoi": lambda adata: ce.pl.voronoi(adata, show=False),
    "regions": lambda adata: ce.pl.regions(adata),
    "interactive": lambda adata: ce.pl.interactive(adata),
    "misplaced": lambda adata: ce.tl.misplaced(adata),
    "rank_features": lambda adata: ce.tl.rank_features(adata, "kind", method="map"),
    "history": lambda adata: ce.pl.history(adata, show=False),
    "confusion": lambda adata: ce.pl.confusion(adata, show=False),
    "calibration": lambda adata: ce.pl.calibration(adata, show=False),
    "reliability": lambda adata: ce.pl.reliability(adata, show=False),
}
"""Functions of maps."""
JUDGE = {name: READ[name] for name in ("confusion", "calibration", "reliability")} | {
    "mislabeled": lambda adata: ce.tl.mislabeled(adata, max_own=1.0),
    "permutation_test": lambda adata: ce.pl.permutation_test(adata, show=False),
}
"""Functions of cross-validations."""


def cells(seed: int, n: int = N, names: str = "abc") -> ad.AnnData:
    rng, codes = np.random.default_rng(seed), np.arange(n) % 3
    X = rng.normal(size=(3, 6))[codes] + rng.normal(size=(n, 6))
    labels = pd.Categorical.from_codes(codes, list(names))
    return ad.AnnData(X, obs=pd.DataFrame({"kind": labels}, [f"{seed}_{i}" for i in range(n)]))


def train(adata: ad.AnnData, **options: Any) -> ad.AnnData:
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=5)
    ce.tl.centroid_encoder(adata, "kind", model=model, progress=False, **options)
    return adata


@pytest.fixture(scope="module")
def mapped() -> list[ad.AnnData]:
    """Three tables, each with a map of its own; the second one has other settings."""
    others = {"unlabeled_category": "c", "test_size": 0.4}
    return [train(cells(0)), train(cells(1), **others), train(cells(2, names="xyz"))]


@pytest.fixture(scope="module")
def placed(mapped: list[ad.AnnData]) -> list[ad.AnnData]:
    """The first table with a map, and two tables of cells that were placed in it."""
    queries = [cells(3), cells(4)]
    for query in queries:
        ce.tl.ingest(query, mapped[0], progress=False)
    return [mapped[0], *queries]


@pytest.fixture(scope="module")
def validated() -> list[ad.AnnData]:
    """Two tables, each with a cross-validation; the second one has a permutation test."""
    tables = [cells(0), cells(1)]
    for n_permutations, adata in enumerate(tables):
        model = ce.CentroidEncoder(hidden=(8,), max_epochs=5)
        options = {"n_folds": 2, "n_permutations": n_permutations, "progress": False}
        ce.tl.cross_validate(adata, "kind", model=model, **options)
    return tables


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def written(adata: ad.AnnData, ending: str, folder: Path) -> ad.AnnData:
    path = folder / f"cells{ending}"
    with warnings.catch_warnings(action="ignore"):
        if ending == ".h5ad":
            adata.write_h5ad(path)
            return ad.read_h5ad(path)
        adata.write_zarr(path)
        return ad.read_zarr(path)


class TestTwoMaps:
    @pytest.mark.parametrize("order", [[0, 1], [1, 0], [0, 1, 2], [2, 0]])
    def test_cells_of_other_maps_are_left_out(self, mapped, order):
        tables = [mapped[i] for i in order]
        both = ad.concat(tables, uns_merge="first", join="outer", index_unique="-")
        with pytest.warns(ce.errors.CentroidEncoderWarning, match=f"{N * (len(order) - 1)} of"):
            result = read_result(both, "ce")
        alone = read_result(tables[0], "ce")
        assert result.stored.params == alone.stored.params
        for part in ("embedding", "codes", "predicted"):
            assert_array_equal(getattr(result, part)[:N], getattr(alone, part))
        assert np.isnan(result.embedding[N:]).all()
        assert (result.codes[N:] == -1).all()
        assert (result.predicted[N:] == -1).all()
        assert result.split[:N].tolist() == alone.split.tolist()
        assert result.split[N:].isna().all()

    @pytest.mark.parametrize("name", READ)
    def test_every_function_warns_of_them(self, mapped, name):
        both = ad.concat(mapped[:2], uns_merge="first")
        with pytest.warns(ce.errors.CentroidEncoderWarning, match=f"{N} of {2 * N} cells"):
            READ[name](both)

    @pytest.mark.parametrize("name", READ)
    def test_every_function_refuses_them_alone(self, mapped, name):
        others = ad.concat(mapped[:2], uns_merge="first")[N:].copy()
        with pytest.raises(ce.errors.InputError, match="another result"):
            READ[name](others)

    def test_the_title_counts_the_cells_of_the_map(self, mapped):
        both = ad.concat(mapped[:2], uns_merge="first")
        with pytest.warns(ce.errors.CentroidEncoderWarning):
            titles = [ax.get_title() for ax in ce.pl.voronoi(both, show=False)]
        assert titles == [ax.get_title() for ax in ce.pl.voronoi(mapped[0], show=False)]

    @pytest.mark.parametrize("ending", [".h5ad", ".zarr"])
    def test_are_told_apart_in_files(self, mapped, ending, tmp_path):
        both = written(ad.concat(mapped[:2], uns_merge="first"), ending, tmp_path)
        with pytest.warns(ce.errors.CentroidEncoderWarning, match="left out"):
            result = read_result(both[::2].copy(), "ce")
        assert result.embedded.sum() == N / 2

    @pytest.mark.parametrize("placements", [("voronoi", "bottleneck"), ("bottleneck", "voronoi")])
    def test_of_two_kinds_leave_the_first_as_it_was(self, placements):
        one, other = (train(cells(i), placement=kind) for i, kind in enumerate(placements))
        both = ad.concat([one, other], uns_merge="first")
        found, expected = (
            ce.tl.fitted_model(adata).transform(one.to_df()) for adata in (both, one)
        )
        assert_array_equal(found, expected)

    def test_a_second_training_of_one_half_is_another_map(self, mapped):
        half = train(mapped[0][:40].copy(), random_state=1)
        both = ad.concat([mapped[0][40:], half], uns_merge="first")
        with pytest.warns(ce.errors.CentroidEncoderWarning, match=f"40 of {N} cells"):
            assert read_result(both, "ce").embedded.sum() == N - 40

    @pytest.mark.parametrize("uns_merge", [None, "same", "unique", "only"])
    def test_an_incomplete_result_names_the_remedy(self, mapped, uns_merge):
        both = ad.concat(mapped[:2], uns_merge=uns_merge)
        with pytest.raises(KeyError, match='uns_merge="first"'):
            ce.pl.voronoi(both)


def test_cells_without_an_id_count_as_cells_of_the_map(mapped, recwarn):
    old = mapped[0].copy()
    del old.obs["ce_map"]
    assert read_result(old, "ce").embedded.all()
    both = ad.concat([old, cells(1)], join="outer", uns_merge="first")
    assert read_result(both, "ce").embedded.sum() == N
    assert not [str(one.message) for one in recwarn if issubclass(one.category, UserWarning)]


def test_a_map_without_ids_is_read_with_its_query(placed):
    """Releases before the ids wrote such tables."""
    known, query = (adata.copy() for adata in placed[:2])
    for adata in (known, query):
        del adata.obs["ce_map"]
        adata.uns["ce"] = {k: v for k, v in adata.uns["ce"].items() if k not in ("id", "parts")}
    both = ad.concat([known, query], join="outer", uns_merge="first")
    assert ce.tl.misplaced(both).equals(ce.tl.misplaced(known))
    with pytest.raises(ce.errors.InputError, match="concatenate these first"):
        ce.tl.misplaced(ad.concat([query, known], join="outer", uns_merge="first"))


class TestReferenceAndQuery:
    @pytest.mark.slow
    @pytest.mark.parametrize("join", ["inner", "outer"])
    def test_the_cells_of_the_training_are_judged(self, placed, join):
        known, both = placed[0], ad.concat(placed, join=join, uns_merge="first")
        assert StoredMap.read(both, "ce").params == StoredMap.read(known, "ce").params
        assert ce.tl.misplaced(both).equals(ce.tl.misplaced(known))
        for name in ("confusion", "calibration"):
            assert READ[name](both).get_title() == READ[name](known).get_title()
        for name in READ:
            READ[name](both)
        ce.tl.rank_features(known, "kind", method="map")
        ce.tl.rank_features(both, "kind", method="map")
        found, expected = (adata.uns["rank_features"]["scores"] for adata in (both, known))
        for group in "abc":
            assert_array_equal(found[group], expected[group])

    def test_a_figure_says_that_the_classes_of_the_query_are_predictions(self, placed):
        both, name = ad.concat(placed, join="outer", uns_merge="first"), "kind (query: predicted)"
        last = ce.pl.voronoi(both, show=False)[-1]
        assert last.get_title().startswith("query cells")
        assert last.get_legend().get_title().get_text() == name
        assert ce.pl.voronoi(both, color=["kind"], show=False).get_title() == name
        alone = ce.pl.voronoi(placed[0], show=False)[-1]
        assert alone.get_legend().get_title().get_text() == "kind"

    @pytest.mark.parametrize("name", sorted(READ.keys() - {"voronoi", "regions", "interactive"}))
    def test_the_query_alone_is_refused(self, placed, name):
        query = ad.concat(placed, join="outer", uns_merge="first")[N:].copy()
        with pytest.raises(ce.errors.InputError, match="the labels of these cells are those"):
            READ[name](query)
        assert ce.pl.voronoi(query, show=False).get_title().startswith(f"query cells (n = {2 * N}")

    @pytest.mark.parametrize("name", READ)
    def test_must_come_first(self, placed, name):
        both = ad.concat(placed[::-1], join="outer", uns_merge="first")
        with pytest.raises(ce.errors.InputError, match=r"ad.concat\(\[reference, query\]"):
            READ[name](both)

    @pytest.mark.parametrize("uns_merge", ["same", "unique"])
    def test_an_incomplete_result_names_the_remedy(self, placed, uns_merge):
        both = ad.concat(placed, join="outer", uns_merge=uns_merge)
        with pytest.raises(ValueError, match='uns_merge="first"'):
            ce.pl.voronoi(both)

    @pytest.mark.parametrize("uns_merge", ["first", "same"])
    def test_two_queries_are_of_one_map(self, placed, uns_merge, recwarn):
        both = ad.concat(placed[1:], uns_merge=uns_merge)
        assert read_result(both, "ce").embedded.all()
        assert not [str(one.message) for one in recwarn if issubclass(one.category, UserWarning)]

    def test_another_novelty_is_no_other_map(self, placed):
        model, query = ce.tl.fitted_model(placed[0]), cells(5)
        ce.tl.ingest(
            query,
            model.fit_novelty(placed[0].to_df()[::2], placed[0].obs["kind"][::2]),
            progress=False,
        )
        assert query.obs["ce_map"].tolist() == placed[0].obs["ce_map"].tolist()

    def test_a_query_of_the_model_alone_is_of_the_map(self, placed, tmp_path):
        ce.tl.fitted_model(placed[0]).save(tmp_path / "map.safetensors")
        query = cells(5)
        ce.tl.ingest(query, tmp_path / "map.safetensors", progress=False)
        assert query.obs["ce_map"].tolist() == placed[0].obs["ce_map"].tolist()


class TestTwoCrossValidations:
    @pytest.mark.parametrize("name", JUDGE)
    def test_every_function_warns_of_the_second_one(self, validated, name):
        both = ad.concat(validated[::-1], uns_merge="first", index_unique="-")
        with pytest.warns(ce.errors.CentroidEncoderWarning, match=f"{N} of {2 * N} cells"):
            JUDGE[name](both)

    def test_cells_of_the_second_one_are_left_out(self, validated):
        both = ad.concat(validated, uns_merge="first")
        with pytest.warns(ce.errors.CentroidEncoderWarning):
            found = ce.tl.mislabeled(both, max_own=1.0)
        assert found.equals(ce.tl.mislabeled(validated[0], max_own=1.0))
        assert len(found)

    def test_the_permutation_test_of_the_second_one_is_left_out(self, validated):
        with pytest.raises(KeyError, match="no permutation test"):
            ce.pl.permutation_test(ad.concat(validated, uns_merge="first"))
