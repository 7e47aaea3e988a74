"""Names and help of parameters, which the widget's forms use."""

from __future__ import annotations

import inspect
from operator import attrgetter

import pytest

import centroid_encoder as ce
from centroid_encoder._signature import parameters, plain

FUNCTIONS = [f"tl.{name}" for name in ce.tl.__all__] + [f"pl.{name}" for name in ce.pl.__all__]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_of_the_function(name: str) -> None:
    found, expected = parameters(name), inspect.signature(attrgetter(name)(ce)).parameters
    assert list(found) == list(expected)
    for one, (kinds, default, doc) in found.items():
        assert default == (
            ... if expected[one].default is inspect.Parameter.empty else expected[one].default
        )
        assert kinds
        assert doc, one
        assert not doc.startswith("As in")


def test_types_have_no_names_of_this_package() -> None:
    found = parameters("tl.centroid_encoder")
    assert found["placement"][0] == ["Literal['voronoi', 'bottleneck']", "None"]
    assert found["missing"][0] == ["Literal['error', 'drop', 'mean']"]
    assert parameters("tl.suggest")["mask_var"][0] == ["NDArray[np.bool_]", "str", "None"]


def test_a_reference_to_another_function_is_replaced_by_its_help() -> None:
    ours, theirs = parameters("tl.cross_validate"), parameters("tl.centroid_encoder")
    for name in ("n_components", "use_rep", "missing", "device"):
        assert ours[name] == theirs[name]
    assert parameters("tl.rank_features")["layer"][2].startswith(theirs["layer"][2])


def test_help_has_no_markup() -> None:
    doc = 'Size [1]_ of :class:`~pathlib.Path` in ``"pt"``. With `palette`, in [0, 1).'
    assert plain(doc) == 'Size of Path in "pt". With palette, in [0, 1).'
    assert plain("``x`` and `y_z`") == "x and y_z"
