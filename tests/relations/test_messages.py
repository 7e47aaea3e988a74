"""A Series or a list in place of a name, mixed labels, tensors: one clear error, or it works."""

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

NOT_NAMES: dict[str, tuple[Callable[[ad.AnnData], Any], str]] = {
    "Series": (lambda adata: adata.obs[LABELS], "a Series"),
    "array": (lambda adata: adata.obs[LABELS].to_numpy(dtype=str), "an ndarray"),
    "list": (lambda _: [LABELS], "a list"),
}


@pytest.fixture(params=NOT_NAMES.values(), ids=NOT_NAMES)
def wrong(request: pytest.FixtureRequest, pbmc: ad.AnnData) -> tuple[Any, str]:
    """Return a value that is no name, and what the message calls it."""
    value, kind = request.param
    return value(pbmc), kind


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


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_wants_the_name_of_the_labels(tool, pbmc, wrong, unchanged):
    value, kind = wrong
    with unchanged(pbmc):
        found = message(tool, pbmc, value, progress=False)
    assert found == words("label_key", "a column of obs", kind)


@pytest.mark.parametrize("tool", TOOLS)
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
def test_an_option_of_a_tool_wants_a_name(tool, parameter, what, pbmc, wrong, unchanged):
    value, kind = wrong
    with unchanged(pbmc):
        found = message(tool, pbmc, LABELS, progress=False, **{parameter: value})
    assert found == words(parameter, what, kind)


@pytest.mark.parametrize(
    ("parameter", "what"),
    [
        ("key", "a result"),
        ("use_rep", "an entry of obsm"),
        ("layer", "an entry of layers"),
    ],
)
def test_ingest_wants_names(parameter, what, mapped, wrong, unchanged):
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
def test_a_composition_wants_names(function, mapped, wrong, unchanged):
    value, kind = wrong
    column = "a column of obs"
    with unchanged(mapped):
        assert message(function, mapped, value) == words("group_key", column, kind)
        found = message(function, mapped, "phase", label_key=value)
        assert found == words("label_key", column, kind)
        assert message(function, mapped, "phase", key=value) == words("key", "a result", kind)


def test_a_figure_shows_one_coloring(mapped, unchanged):
    with unchanged(mapped):
        found = message(ce.pl.voronoi, mapped, color=[LABELS, "phase"])
    what = "a column of obs or of a variable (a figure shows one)"
    assert found == words("color", what, "a list")


def test_a_layer_of_a_figure_is_a_name(mapped, wrong, unchanged):
    value, kind = wrong
    with unchanged(mapped):
        found = message(ce.pl.voronoi, mapped, color=mapped.var_names[0], layer=value)
    assert found == words("layer", "an entry of layers", kind)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", 1] * 30, dtype=object),
        [1, "a", None] * 20,
        pd.Series([1, "a"] * 30),
        pd.Categorical(["a", 1] * 30),
    ],
    ids=["array", "list with None", "Series", "categorical"],
)
def test_an_estimator_names_the_types_of_mixed_labels(labels, pbmc, fast):
    with pytest.raises(TypeError, match="y has labels of type int and str; make them strings"):
        fast.fit(pbmc.X[:60], labels)
    assert not hasattr(fast, "classes_")


def test_a_calibration_names_the_types_of_mixed_labels(pbmc, fast):
    fast.fit(pbmc.X, pbmc.obs[LABELS])
    with pytest.raises(TypeError, match="y has labels of type int and str"):
        fast.calibrate(pbmc.X[:2], np.array(["Dendritic", 1], dtype=object))


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
