"""A Series or a list in place of a name, mixed labels, tensors: a clear error, or it works."""

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
TOOLS = [ce.tl.centroid_encoder, ce.tl.cross_validate]


@pytest.fixture(params=["a Series", "a list"])
def wrong(request: pytest.FixtureRequest, pbmc: ad.AnnData) -> tuple[Any, str]:
    """Return a value that is no name, and its type in the message."""
    return (pbmc.obs[LABELS] if request.param == "a Series" else [LABELS]), request.param


@pytest.fixture
def mapped(pbmc: ad.AnnData, fast: ce.CentroidEncoder) -> ad.AnnData:
    ce.tl.centroid_encoder(pbmc, LABELS, model=fast, progress=False)
    return pbmc


def words(parameter: str, what: str, kind: str) -> str:
    return f"{parameter} must be the name of {what}; got {kind}. Pass the name itself, as a string"


def message(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(TypeError) as caught:
        function(*args, **kwargs)
    assert isinstance(caught.value, ce.errors.InputTypeError)
    return str(caught.value)


@pytest.mark.parametrize("tool", [ce.tl.centroid_encoder, ce.tl.cross_validate])
@pytest.mark.parametrize(
    ("parameter", "what"),
    [
        ("label_key", "a column of obs"),
        ("use_rep", "an entry of obsm"),
        ("layer", "an entry of layers"),
        ("group_key", "a column of obs"),
        ("key_added", "a result"),
        ("unlabeled_category", f"a class in obs[{LABELS!r}]"),
    ],
)
def test_tools_take_names(tool, parameter, what, pbmc, wrong, unchanged):
    value, kind = wrong
    with unchanged(pbmc):
        found = message(tool, pbmc, progress=False, **{"label_key": LABELS, parameter: value})
    assert found == words(parameter, what, kind)


@pytest.mark.parametrize(
    ("parameter", "what"), [("key", "a result"), ("layer", "an entry of layers")]
)
def test_ingest_takes_names(parameter, what, mapped, wrong, unchanged):
    value, kind = wrong
    new = mapped.copy()
    with unchanged(new):
        found = message(ce.tl.ingest, new, mapped, progress=False, **{parameter: value})
    assert found == words(parameter, what, kind)


@pytest.mark.parametrize(
    "function",
    [
        *(ce.tl.misplaced, ce.tl.mislabeled, ce.tl.fitted_model),
        *(getattr(ce.pl, name) for name in ce.pl.__all__ if name != "composition"),
    ],
)
def test_the_key_of_a_result_is_a_name(function, mapped, wrong, unchanged):
    value, kind = wrong
    with unchanged(mapped):
        found = message(function, mapped, key=value)
    assert found == words("key", "a result", kind)


@pytest.mark.parametrize("function", [ce.tl.composition, ce.pl.composition])
def test_a_composition_takes_names(function, mapped, wrong, unchanged):
    value, kind = wrong
    column = "a column of obs"
    with unchanged(mapped):
        assert message(function, mapped, value) == words("group_key", column, kind)
        found = message(function, mapped, "phase", label_key=value)
        assert found == words("label_key", column, kind)


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
