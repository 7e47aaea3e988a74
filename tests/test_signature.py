"""Names and help of parameters, which the widget's forms use."""

from __future__ import annotations

import inspect
from operator import attrgetter

import pytest

import centroid_encoder as ce
from centroid_encoder._signature import parameters, plain

FUNCTIONS = [f"tl.{name}" for name in ce.tl.__all__] + [f"pl.{name}" for name in ce.pl.__all__]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_found_and_documented(name: str) -> None:
    found = parameters(name)
    assert list(found) == list(inspect.signature(attrgetter(name)(ce)).parameters)
    for one, doc in found.items():
        assert doc, one
        assert not doc.startswith("As in")


def test_a_reference_to_another_function_is_replaced_by_its_help() -> None:
    ours, theirs = parameters("tl.cross_validate"), parameters("tl.centroid_encoder")
    for name in ("n_components", "use_rep", "missing", "device"):
        assert ours[name] == theirs[name]


def test_help_has_no_markup() -> None:
    doc = 'Size [1]_ of :class:`~pathlib.Path` in ``"pt"``. With `palette`, in [0, 1).'
    assert plain(doc) == 'Size of Path in "pt". With palette, in [0, 1).'
    assert plain("``x`` and `y_z`") == "x and y_z"
