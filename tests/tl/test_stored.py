"""What is stored: written and read to the same, with defaults for what older versions lack."""

from __future__ import annotations

import copy

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import centroid_encoder as ce
from centroid_encoder.tl._held_out import read_held_out
from centroid_encoder.tl._stored import StoredCrossValidation, StoredMap, keys_in, read_result
from centroid_encoder.tl._summary import summary


@pytest.fixture(scope="module")
def stored():
    """Cells with a map and a cross-validation."""
    rng = np.random.default_rng(0)
    codes = np.arange(90) % 3
    X = (rng.normal(size=(90, 6)) + 3 * rng.normal(size=(3, 6))[codes]).astype(np.float32)
    labels = pd.Categorical.from_codes(codes, ["b", "a", "c"])
    adata = ad.AnnData(
        X, obs=pd.DataFrame({"cell_type": labels}, index=[f"c{i}" for i in range(90)])
    )
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=5)
    kwargs = {"model": model, "progress": False}
    ce.tl.centroid_encoder(adata, "cell_type", **kwargs)
    ce.tl.cross_validate(adata, "cell_type", n_folds=2, n_permutations=1, **kwargs)
    return adata


@pytest.fixture
def adata(stored):
    changed = stored.copy()
    changed.uns = copy.deepcopy(dict(stored.uns))
    return changed


@pytest.mark.parametrize(("kind", "name"), [(StoredMap, "ce"), (StoredCrossValidation, "ce_cv")])
def test_is_read_and_written_to_the_same(stored, tmp_path, kind, name):
    again = kind.read(stored, "ce").to_uns()
    assert set(again) == set(stored.uns[name])
    stored.write_h5ad(tmp_path / "cells.h5ad")
    from_file = kind.read(ad.read_h5ad(tmp_path / "cells.h5ad"), "ce").to_uns()
    for uns in (again, from_file):
        assert_array_equal(uns["classes"], stored.uns[name]["classes"])
        assert dict(uns["params"]) == dict(stored.uns[name]["params"])
        per_class = uns["per_class"] if name == "ce_cv" else uns["quality"]["per_class"]
        assert len(per_class) == 3


OF_MAP = ("history", "quality", "model")
OF_VALIDATION = (
    *("quality", "per_class", "errors", "warnings", "permutation", "model"),
    "params/n_folds",
    "quality/n",
    "quality/knn_error_sd",
    "quality/input_knn_error",
    "quality/balanced_knn_error",
    "quality/calibration_error",
    "quality/calibration_error_low",
    "quality/uncalibrated_error",
    "quality/chance_error",
)


@pytest.mark.parametrize(
    "path",
    [
        *(f"ce/{name}" for name in OF_MAP),
        "ce/quality/per_class",
        "ce/quality/train",
        "ce/quality/test/calibration_error",
        "ce/quality/test/calibration_error_high",
        "ce/quality/test/chance_error",
        "ce/quality/test/at_chance",
        "ce/params/missing",
        *(f"ce_cv/{name}" for name in OF_VALIDATION),
    ],
)
def test_what_an_older_version_lacks_is_no_error(adata, path):
    *parents, name = path.split("/")
    entry = adata.uns
    for parent in parents:
        entry = entry[parent]
    del entry[name]
    assert read_result(adata, "ce").classes.tolist() == ["b", "a", "c"]
    assert len(read_held_out(adata, "ce").own) == 90
    assert summary(adata, "ce")
    assert len(ce.tl.misplaced(adata)) + len(ce.tl.mislabeled(adata)) >= 0
    ce.pl.confusion(adata, show=False)


def test_an_error_that_was_not_counted_is_nan(adata):
    del adata.uns["ce"]["quality"]["test"]["knn_error"], adata.uns["ce_cv"]["quality"]["knn_error"]
    assert np.isnan(StoredMap.read(adata, "ce").errors("test")["knn_error"])
    assert np.isnan(StoredCrossValidation.read(adata, "ce").quality["knn_error"])
    del adata.uns["ce"]["quality"]["per_class"]
    assert StoredMap.read(adata, "ce").per_class["test_knn_error"].isna().all()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("ce", {"params": {}}, "uns['ce'] is damaged: params with a label_key are missing"),
        ("ce", {"params": "text"}, "uns['ce'] is damaged: params with a label_key are missing"),
        ("ce", {"centers": np.ones((2, 2))}, "3 classes, centers of shape (2, 2)"),
        ("ce", {"centers": np.ones((3, 3))}, "obsm['X_ce'] of (90, 2)"),
        ("ce_cv", {"params": {}}, "uns['ce_cv'] is damaged: params"),
        ("ce_cv", {"confusion": np.ones((2, 3))}, "3 classes, confusion of shape (2, 3)"),
        ("ce_cv", {"permutation": {"errors": [1]}}, "permutation needs observed, errors, p_value"),
    ],
)
def test_what_is_damaged_is_an_error_that_says_so(adata, name, change, words):
    adata.uns[name] = dict(adata.uns[name]) | change
    with pytest.raises(ValueError, match="is damaged") as caught:
        read_result(adata, "ce") if name == "ce" else read_held_out(adata, "ce")
    assert words in str(caught.value)


@pytest.mark.parametrize("other", ["text of another program", {"params": {}}, 3])
def test_what_is_of_another_program_is_no_result(adata, other):
    adata.uns["ce"] = adata.uns["ce_cv"] = other
    assert StoredMap.read(adata, "ce") is None
    assert StoredCrossValidation.read(adata, "ce") is None


def test_keys_are_found_by_their_columns():
    columns = ["ce_split", "ce_label", "train_split", "k_split", "k_label", "ce_cv_label", 3]
    assert keys_in(columns) == ["ce", "k"]
