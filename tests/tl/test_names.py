"""Names of results: files and zarr stores can hold those that are allowed."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal, assert_equal

import centroid_encoder as ce
from centroid_encoder.tables import embedding_key, obs_key
from centroid_encoder.tl._run import result_key

CLASSES = ["T/NK", ".", "..", "_index", "\u65e5\u672c", "x" * 400]
ALLOWED = ["...", ".a", "a.", " ", "nan", "%2F", "~", "X", "0", "日本", "\u00e9", "index", "a:b*?"]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_results_with_allowed_names_can_be_written_and_read(tmp_path):
    adata = ad.AnnData(np.zeros((3, 1), dtype=np.float32))
    for key in map(result_key, ALLOWED):
        adata.obsm[embedding_key(key)] = np.ones((3, 2))
        adata.uns[key] = {"params": {"label_key": key}, "classes": np.array(["a", key])}
        adata.obs[obs_key(key, "confidence")] = np.arange(3.0)
    adata.write_h5ad(tmp_path / "a.h5ad")
    adata.write_zarr(tmp_path / "a.zarr")
    for back in (ad.read_h5ad(tmp_path / "a.h5ad"), ad.read_zarr(tmp_path / "a.zarr")):
        assert set(back.obsm) == set(adata.obsm)
        for key in ALLOWED:
            assert back.uns[key]["params"]["label_key"] == key
            assert back.uns[key]["classes"][1] == key
            assert_array_equal(back.obs[obs_key(key, "confidence")], np.arange(3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:zarr v3", "ignore:Writing zarr")
@pytest.mark.parametrize("ending", [".h5ad", ".zarr"])
def test_classes_of_any_name_are_read_back(ending, fast, tmp_path):
    names = CLASSES + ["Tumor: Negative"] * (ending == ".h5ad")
    codes = np.arange(20 * len(names)) % len(names)
    X = np.random.default_rng(0).normal(size=(len(codes), 4)) + codes[:, None]
    index = [f"cell{i}" for i in range(len(codes))]
    types = pd.Categorical.from_codes(codes, names)
    cells = ad.AnnData(X, obs=pd.DataFrame({"type": types}, index))
    options = {"model": fast, "progress": False}
    ce.tl.centroid_encoder(cells, "type", **options)
    ce.tl.cross_validate(cells, "type", n_folds=2, n_permutations=1, **options)
    ce.tl.feature_panel(cells, "type", (2, 3), n_folds=2, **options)
    ce.tl.rank_features(cells, "type", key_added="data")
    ce.tl.rank_features(cells, "type", method="map", key_added="map")
    if ending == ".h5ad":
        cells.write_h5ad(tmp_path / "cells.h5ad")
        back = ad.read_h5ad(tmp_path / "cells.h5ad")
    else:
        cells.write_zarr(tmp_path / "cells.zarr")
        back = ad.read_zarr(tmp_path / "cells.zarr")
    for key in ("data", "map"):
        assert set(back.uns[key]["scores"].dtype.names) == set(names)
        assert_equal(back.uns[key]["params"], cells.uns[key]["params"])
    for key in ("ce", "ce_cv", "feature_panel"):
        assert_equal(list(back.uns[key]["classes"]), sorted(names))
        assert_equal(back.uns[key]["params"], cells.uns[key]["params"])
    assert ce.tl.misplaced(back).equals(ce.tl.misplaced(cells))
    assert ce.tl.mislabeled(back, max_own=1.0).equals(ce.tl.mislabeled(cells, max_own=1.0))
    ce.tl.ingest(back, back.copy(), key_added="again", progress=False)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/b", "a\0"])
@pytest.mark.parametrize("tool", ["centroid_encoder", "cross_validate", "ingest"])
def test_names_that_files_cannot_hold_are_refused(cells, unchanged, tool, name):
    source = ce.CentroidEncoder() if tool == "ingest" else "cell_type"
    with unchanged(cells), pytest.raises(ValueError, match="key_added must not be"):
        getattr(ce.tl, tool).job(cells, source, key_added=name)


def test_the_name_of_the_embedding_stands_for_the_default_result(cells, fast):
    """X_ce is the only name in obsm that differs from the key."""
    options = {"model": fast, "progress": False}
    ce.tl.centroid_encoder(cells, "cell_type", key_added="X_ce", **options)
    ce.tl.cross_validate(cells, "cell_type", n_folds=2, key_added="X_ce", **options)
    assert {"ce", "ce_cv"} <= set(cells.uns)
    assert not any(name.startswith("X_ce") for name in (*cells.uns, *cells.obs))
    for table in (ce.tl.misplaced, ce.tl.mislabeled):
        assert table(cells, key="X_ce").equals(table(cells))
    for plot in (ce.pl.voronoi, ce.pl.confusion, ce.pl.history, ce.pl.calibration, ce.pl.regions):
        drawn, expected = (
            np.atleast_1d(plot(cells, key=key, show=False)) for key in ("X_ce", "ce")
        )
        assert [ax.get_title() for ax in drawn] == [ax.get_title() for ax in expected]
        assert [ax.get_xlabel() for ax in drawn] == [ax.get_xlabel() for ax in expected]
    query = cells.copy()
    ce.tl.ingest(query, cells, key="X_ce", progress=False)
    assert "X_ce_label" not in query.obs
    assert (query.obs["ce_split"] == "query").all()


@pytest.mark.parametrize(("slot", "name"), [("obsm", "X_pca"), ("uns", "neighbors")])
def test_results_of_other_tools_are_not_replaced(cells, fast, unchanged, slot, name):
    getattr(cells, slot)[name] = np.ones((120, 2))
    with unchanged(cells), pytest.raises(ValueError, match="exists already and is another result"):
        ce.tl.centroid_encoder(cells, "cell_type", model=fast, key_added=name, progress=False)


def test_another_entry_under_the_name_of_a_cross_validation_is_not_replaced(cells, fast, unchanged):
    cells.uns["ce_cv"] = {"folds": 3}
    text = "uns\\['ce_cv'\\] exists already and is another result"
    with unchanged(cells), pytest.raises(ValueError, match=text):
        ce.tl.cross_validate(cells, "cell_type", model=fast, progress=False)


def test_another_column_under_the_name_of_the_levels_is_not_deleted(embed, unchanged):
    """An earlier training has written no levels."""
    cells = embed()
    cells.obs["ce_level"] = "by hand"
    with unchanged(cells), pytest.raises(ValueError, match="obs\\['ce_level'\\] exists already"):
        ce.tl.centroid_encoder(cells, "cell_type", progress=False)


@pytest.mark.parametrize(
    ("tool", "key", "column"),
    [
        ("centroid_encoder", "expert", "expert_label"),
        ("centroid_encoder", "ce", "ce_confidence"),
        ("ingest", "expert", "expert_label"),
        ("cross_validate", "expert", "expert_cv_label"),
    ],
)
def test_other_columns_are_not_replaced(cells, fast, unchanged, tool, key, column):
    source = "cell_type"
    if tool == "ingest":
        source = cells.copy()
        ce.tl.centroid_encoder(source, "cell_type", model=fast, progress=False)
    cells.obs[column] = "by hand"
    text = f"obs\\['{column}'\\] exists already and is no result; choose another key_added"
    with unchanged(cells), pytest.raises(ValueError, match=text):
        getattr(ce.tl, tool)(cells, source, key_added=key, progress=False)


@pytest.mark.parametrize("keeps_parts", [False, True])
def test_columns_that_a_concatenation_has_left_are_replaced(cells, fast, keeps_parts):
    options = {"model": fast, "progress": False}
    for tool in (ce.tl.centroid_encoder, ce.tl.cross_validate):
        tool(cells, "cell_type", **options)
    both = ad.concat([cells[:60], cells[60:]])
    assert not both.uns
    if keeps_parts:
        both.uns["ce_cv"] = {"params": cells.uns["ce_cv"]["params"]}
        both.obs["ce_level"] = np.nan
        both.uns["ce"] = {"params": cells.uns["ce"]["params"]}
    for tool in (ce.tl.centroid_encoder, ce.tl.cross_validate):
        tool(both, "cell_type", **options)
    assert set(both.uns) == {"ce", "ce_cv"}


def test_a_result_of_ours_is_replaced(cells, fast):
    for _ in range(2):
        ce.tl.centroid_encoder(cells, "cell_type", model=fast, key_added="k", progress=False)
