"""Corrections: each step can be undone, the original labels stay, new names become classes."""

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from centroid_encoder.viewer._save import save_h5ad, save_zarr
from centroid_encoder.viewer.session.corrections import are_right, correction_column
from centroid_encoder.viewer.session.labeling import Labeling


def table(labels: Any = ("a", "b", "c", "a", None, "b")) -> ad.AnnData:
    labels = labels if isinstance(labels, pd.Categorical) else list(labels)
    names = [f"cell{i}" for i in range(len(labels))]
    return ad.AnnData(obs=pd.DataFrame({"kind": labels}, index=names))


def corrections(adata: ad.AnnData, label_key: str = "kind") -> Labeling:
    return Labeling(adata, *correction_column(adata, label_key))


def values(column: pd.Series) -> list[Any]:
    return [None if pd.isna(value) else value for value in column]


@pytest.mark.parametrize(
    ("labels", "label", "error", "words"),
    [
        ([3, 1], "three", ValueError, "not one of them"),
        ([True, False], "maybe", ValueError, "not one of them"),
        ([0.5, 1.0], "1", TypeError, "fractional"),
    ],
)
def test_labels_of_another_kind_are_refused(labels, label, error, words, unchanged):
    adata = table(labels)
    with unchanged(adata), pytest.raises(error, match=words):
        corrections(adata).assign([0], label)


@pytest.mark.parametrize(
    ("labels", "text", "expected"),
    [
        ([3, 1, 1, 3], "1", [1, 1, 1, 3]),
        ([3, 1, 1, 3], "7", [7, 1, 1, 3]),
        ([3.0, 1.0, np.nan, 3.0], "7", [7, 1, None, 3]),
        ([True, False, False, True], "False", [False, False, False, True]),
        (["x", "y", None, "x"], "z", ["z", "y", None, "x"]),
        (pd.Categorical(["lo", "hi"], ["lo", "mid", "hi"], ordered=True), "hi", ["hi", "hi"]),
    ],
)
def test_labels_of_any_kind_can_be_corrected_and_saved(labels, text, expected, tmp_path):
    adata = table(labels)
    labeling = corrections(adata)
    labeling.assign([0], text)
    assert values(adata.obs["kind_relabeled"]) == expected
    if isinstance(labels, pd.Categorical):
        assert adata.obs["kind_relabeled"].dtype == labels.dtype
    save_h5ad(adata, tmp_path / "cells.h5ad")
    assert values(ad.read_h5ad(tmp_path / "cells.h5ad").obs["kind_relabeled"]) == expected
    labeling.undo()
    assert values(adata.obs["kind_relabeled"]) == values(adata.obs["kind"])


def test_corrections_use_one_column_until_a_map_is_trained_on_it(unchanged):
    whole = table()
    with unchanged(whole):
        adata = whole[[0, 1, 2, 3]]  # a view becomes a copy
        corrections(adata).assign([0], "b")
    for label_key in ("kind", "kind_relabeled"):
        assert corrections(adata, label_key).column == "kind_relabeled"
    adata.uns["ce"] = {"params": {"label_key": "kind_relabeled"}}
    for label_key in ("kind", "kind_relabeled"):
        labeling = corrections(adata, label_key)
        assert labeling.column == "kind_relabeled_relabeled"
    labeling.assign([1], "new")
    assert values(adata.obs["kind_relabeled"]) == ["b", "b", "c", "a"]
    assert values(adata.obs["kind_relabeled_relabeled"]) == ["b", "new", "c", "a"]


@pytest.mark.parametrize("is_undone", [False, True])
def test_undo_stops_at_changes_from_elsewhere(is_undone, unchanged):
    adata = table()
    labeling = corrections(adata)
    labeling.assign([0], "b")
    labeling.assign([1, 2], "new")
    if is_undone:
        labeling.undo()
        adata._inplace_subset_obs([0])
    else:
        adata.obs.iloc[1, adata.obs.columns.get_loc("kind_relabeled")] = "a"
    with unchanged(adata), pytest.raises(RuntimeError, match="changed elsewhere"):
        (labeling.redo if is_undone else labeling.undo)()
    assert labeling.steps == ("", "")
    labeling.assign([0], "c")
    assert adata.obs["kind_relabeled"].iloc[0] == "c"
    labeling.undo()
    assert adata.obs["kind_relabeled"].iloc[0] == "b"


@pytest.mark.parametrize(
    "labels", [[3.0, 1.0, np.nan, 3.0], [True, False, True, True], list("abca")]
)
@pytest.mark.parametrize(("save", "read"), [(save_h5ad, ad.read_h5ad), (save_zarr, ad.read_zarr)])
@pytest.mark.filterwarnings("ignore:zarr v3|Consolidated metadata")
def test_what_was_found_right_stays_until_the_label_changes(labels, save, read, tmp_path):
    adata = table(labels)
    labeling = corrections(adata)

    def right(adata: ad.AnnData = adata, column: str = "kind") -> list[int]:
        return np.flatnonzero(are_right(adata, column)).tolist()

    has_label = [row for row in range(4) if pd.notna(labels[row])]
    labeling.confirm([0, 3])
    labeling.confirm(np.arange(4))
    assert right() == has_label
    path = tmp_path / ("cells.zarr" if save is save_zarr else "cells.h5ad")
    save(adata, path)
    assert right(read(path)) == has_label
    # An undo takes back what its own step noted.
    labeling.undo()
    assert right() == [0, 3]
    labeling.redo()
    # Another label is not the one that was found right.
    own, other = labeling.classes[labeling.codes[0]].name, labeling.classes[labeling.codes[1]].name
    assert own != other
    labeling.assign([0], other)
    assert right() == [row for row in has_label if row]
    labeling.undo()
    assert right() == has_label
    # It also holds in a column of corrections.
    adata.obs["kind_relabeled"] = adata.obs["kind"].to_numpy()
    assert right(column="kind_relabeled") == has_label
    # Another order and other cells change nothing.
    some = adata[[3, 1]].copy()
    assert right(some) == [0, 1]
    for _ in range(2):
        labeling.undo()
    assert right() == []
    assert "kind_right" not in adata.uns
