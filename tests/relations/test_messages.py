"""Errors about a list in place of a name and about mixed labels; tensors are accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal

import centroid_encoder as ce

LABELS = "bulk_labels"


@pytest.fixture
def mapped(pbmc: ad.AnnData, fast: ce.CentroidEncoder) -> ad.AnnData:
    ce.tl.centroid_encoder(pbmc, LABELS, model=fast, progress=False)
    return pbmc


def refused(parameter: str, function: Callable[..., Any], *args, **kwargs):
    with pytest.raises(ce.errors.InputTypeError, match="must be the name of") as caught:
        function(*args, **kwargs)
    assert caught.value.parameter == parameter


def test_functions_take_names(mapped, unchanged):
    value, new = [LABELS], mapped.copy()
    with unchanged(mapped):
        for other in (mapped.obs[LABELS], mapped.obs[LABELS].to_numpy(dtype=str), value):
            for tool in (ce.tl.centroid_encoder, ce.tl.cross_validate):
                refused("label_key", tool, mapped, other, progress=False)
                for name in ("use_rep", "layer", "group_key", "key_added", "unlabeled_category"):
                    refused(name, tool, mapped, LABELS, progress=False, **{name: other})
        for parameter in ("key", "layer"):
            refused(parameter, ce.tl.ingest, new, mapped, progress=False, **{parameter: value})
        for function in (ce.tl.misplaced, ce.tl.mislabeled, ce.tl.fitted_model, ce.pl.voronoi):
            refused("key", function, mapped, key=value)
        refused("group_key", ce.tl.composition, mapped, value)
        refused("color", ce.pl.voronoi, mapped, color=[value])


@pytest.mark.parametrize(
    "labels",
    [np.array(["a", 1] * 30, dtype=object), [1, "a", None] * 20, pd.Categorical(["a", 1] * 30)],
    ids=["array", "list with None", "categorical"],
)
def test_an_estimator_names_the_types_of_mixed_labels(labels, pbmc, fast):
    with pytest.raises(TypeError, match="y has labels of type int and str; make them strings"):
        fast.fit(pbmc.X[:60], labels)
    assert not hasattr(fast, "classes_")


def test_tensors_may_require_a_gradient(pbmc, fast):
    X, y = np.asarray(pbmc.X[:90], dtype=np.float32), np.arange(90) % 3
    fast.set_params(random_state=0)
    expected = fast.fit(X, y).transform(X)
    tensor = torch.tensor(X, requires_grad=True)
    labels = torch.tensor(y, dtype=torch.float32, requires_grad=True)
    assert_array_equal(fast.fit(tensor, labels).transform(tensor), expected)
    points = torch.tensor(expected, requires_grad=True)
    assert_array_equal(fast.inverse_transform(points), fast.inverse_transform(expected))
    assert tensor.requires_grad
