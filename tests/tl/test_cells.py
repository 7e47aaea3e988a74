"""`read_cells`: the cells of an AnnData, as a job needs them."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import centroid_encoder as ce
from centroid_encoder.tl._read import Cells, read_cells


def read(adata: ad.AnnData, **kwargs: Any) -> Cells:
    defaults: dict[str, Any] = {
        "use_rep": None,
        "layer": None,
        "use_raw": False,
        "mask_var": "auto",
        "unlabeled_category": None,
        "missing": "error",
        "group_key": None,
    }
    return read_cells(adata, "cell_type", **defaults | kwargs)


@pytest.fixture
def gaps(cells):
    """Some cells have gaps, others no label, and there is an empty category."""
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.set_categories(
        ["type 2", "nobody", "type 0", "type 1"]
    )
    cells.obs.loc[cells.obs_names[:4], "cell_type"] = np.nan
    cells.X[[2, 7], 1] = np.nan
    cells.obs["donor"] = np.repeat(["b", "a"], 60)
    return cells


def test_classes_are_sorted_and_categories_keep_their_order(gaps):
    cells = read(gaps, missing="drop")
    assert list(cells.classes) == ["type 0", "type 1", "type 2"]
    assert list(cells.categories) == ["type 2", "nobody", "type 0", "type 1"]
    labeled = cells.codes >= 0
    assert_array_equal(np.flatnonzero(~labeled), [0, 1, 2, 3, 7])
    assert_array_equal(cells.classes[cells.codes[labeled]], gaps.obs["cell_type"][labeled])


def test_rows_are_the_cells_that_are_kept(gaps):
    cells = read(gaps, missing="drop", group_key="donor")
    assert_array_equal(np.flatnonzero(~cells.kept), [2, 7])
    assert_array_equal(cells.X, gaps.X[cells.kept])
    assert_array_equal(cells.kept_codes, cells.codes[cells.kept])
    assert len(cells.codes) == len(cells.groups) == len(cells.obs_names) == 120


def test_results_go_back_to_their_cells(gaps):
    cells = read(gaps, missing="drop")
    values = np.arange(2.0 * 118).reshape(118, 2)
    spread = cells.spread(values)
    assert_array_equal(spread[cells.kept], values)
    assert np.isnan(spread[[2, 7]]).all()
    labels = pd.Series(cells.labels_of(np.maximum(cells.kept_codes, 0)))
    assert list(labels.cat.categories) == list(cells.categories)
    assert_array_equal(np.flatnonzero(labels.isna()), [2, 7])
    known = cells.codes >= 0
    assert_array_equal(labels[known], gaps.obs["cell_type"][known])


def test_arguments_that_are_not_none_are_kept(gaps):
    cells = read(gaps, missing="mean", group_key="donor", unlabeled_category="nobody")
    assert cells.params == {
        "label_key": "cell_type",
        "mask_var": "auto",
        "missing": "mean",
        "group_key": "donor",
        "unlabeled_category": "nobody",
    }


def test_the_matrix_is_that_of_the_anndata_until_it_is_detached(cells):
    job = ce.tl.centroid_encoder.job(cells, "cell_type")
    assert np.shares_memory(job._cells.X, cells.X)
    job.detach()
    assert not np.shares_memory(job._cells.X, cells.X)


def test_raw_counts_give_a_warning(cells):
    cells.X = np.floor(np.exp(cells.X))
    (notice,) = read(cells).notices
    assert notice.startswith("X looks like raw counts; log-normalise first")
