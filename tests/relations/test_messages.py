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


def refused(
    parameter: str, what: str, value: object, function: Callable[..., Any], *args, **kwargs
):
    with pytest.raises(ce.errors.InputTypeError) as caught:
        function(*args, **kwargs)
    kind = type(value).__name__
    assert str(caught.value) == f"{parameter} must be the name of {what}, a string; got {kind}"
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("tool", [ce.tl.centroid_encoder, ce.tl.cross_validate])
@pytest.mark.parametrize(
    ("parameter", "what"),
    [
        ("use_rep", "an entry of obsm"),
        ("layer", "an entry of layers"),
        ("group_key", "a column of obs"),
        ("key_added", "a result"),
        ("unlabeled_category", f"a class in obs[{LABELS!r}]"),
    ],
)
def test_a_tool_takes_names(tool, parameter, what, pbmc, unchanged):
    values = [pbmc.obs[LABELS], pbmc.obs[LABELS].to_numpy(dtype=str), [LABELS]]
    with unchanged(pbmc):
        for value in values:
            refused("label_key", "a column of obs", value, tool, pbmc, value, progress=False)
            options = {parameter: value}
            refused(parameter, what, value, tool, pbmc, LABELS, progress=False, **options)


def test_other_functions_take_names(mapped, unchanged):
    value, new = [LABELS], mapped.copy()
    with unchanged(mapped):
        for parameter, what in (("key", "a result"), ("layer", "an entry of layers")):
            options = {parameter: value, "progress": False}
            refused(parameter, what, value, ce.tl.ingest, new, mapped, **options)
        for function in (ce.tl.misplaced, ce.tl.mislabeled, ce.tl.fitted_model, ce.pl.voronoi):
            refused("key", "a result", value, function, mapped, key=value)
        for function in (ce.tl.composition, ce.pl.composition):
            refused("group_key", "a column of obs", value, function, mapped, value)
        what = "a column of obs or of a variable (a figure shows one)"
        refused("color", what, value, ce.pl.voronoi, mapped, color=value)


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
