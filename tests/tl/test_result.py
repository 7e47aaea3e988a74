"""Results in an AnnData: stored with sorted classes, read in the order of the categories."""

from __future__ import annotations

import copy

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import confusion_matrix

import centroid_encoder as ce
from centroid_encoder.tl._evaluation import read_held_out
from centroid_encoder.tl._result import StoredCrossValidation, panel_of, read_result

NAMES = ["b", "a", "c"]
"""Categories in an order that is not alphabetical."""


@pytest.fixture(scope="module")
def stored():
    """Cells with a map and a cross-validation."""
    rng = np.random.default_rng(0)
    codes = np.arange(90) % 3
    X = (rng.normal(size=(90, 6)) + rng.normal(size=(3, 6))[codes]).astype(np.float32)
    labels = pd.Categorical.from_codes(codes, NAMES)
    adata = ad.AnnData(X, obs=pd.DataFrame({"cell_type": labels}, [f"c{i}" for i in range(90)]))
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


def names(classes: pd.Index, codes: np.ndarray) -> list[str]:
    """Return the names of classes by their codes; empty for −1."""
    return np.append(classes, "")[codes].tolist()


class TestOrderOfClasses:
    @pytest.mark.parametrize("order", [NAMES, ["c", "b", "a"], ["a", "b", "c"]])
    def test_is_that_of_the_categories(self, adata, order):
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.reorder_categories(order)
        labels = adata.obs["cell_type"].tolist()
        assert adata.uns["ce"]["classes"].tolist() == ["a", "b", "c"]
        result = read_result(adata, "ce")
        assert result.classes.tolist() == order
        for name, center in zip(result.classes, result.centers, strict=True):
            assert_array_equal(center, adata.uns["ce"]["centers"]["abc".index(name)])
        assert names(result.classes, result.codes) == labels
        assert names(result.classes, result.predicted) == adata.obs["ce_label"].tolist()

        validated = StoredCrossValidation.read(adata, "ce")
        assert validated.classes.tolist() == validated.per_class["class"].tolist() == order
        expected = confusion_matrix(labels, adata.obs["ce_cv_label"].astype(str), labels=order)
        assert_array_equal(validated.confusion, expected)
        cells = read_held_out(adata, "ce")
        assert names(validated.classes, cells.own) == labels
        assert names(validated.classes, cells.predicted) == adata.obs["ce_cv_label"].tolist()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("ce", {"params": {}}, "'label_key' is missing"),
        ("ce", {"params": "text"}, ""),
        ("ce", {"centers": np.ones((2, 2))}, "3 classes, centers of shape (2, 2)"),
        ("ce", {"centers": np.ones((3, 3))}, "obsm['X_ce'] of (90, 2)"),
        ("ce_cv", {"per_class": None}, ""),
        ("ce_cv", {"confusion": np.ones((2, 3))}, "3 classes, confusion of shape (2, 3)"),
        ("ce_cv", {"permutation": {"shuffled": [1]}}, "'observed'"),
    ],
)
def test_a_damaged_result_is_an_error(adata, name, change, words):
    adata.uns[name] = dict(adata.uns[name]) | change
    with pytest.raises(ValueError, match=rf"uns\['{name}'\] is damaged") as caught:
        read_result(adata, "ce") if name == "ce" else read_held_out(adata, "ce")
    assert words in str(caught.value)


def test_other_entries_with_the_name_of_a_part_are_no_panels() -> None:
    adata = ad.AnnData(np.ones((2, 3)), uns={"mine": {"chosen_from": "the atlas"}})
    assert panel_of(adata, adata.var_names.to_numpy()) is None
