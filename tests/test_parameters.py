"""Parameters read from source: those of `inspect`, with the words of the docstrings."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import centroid_encoder as ce
from centroid_encoder._parameters import REQUIRED, Parameter, parameters, plain

FUNCTIONS = [
    *(f"tl.{name}" for name in ce.tl.__all__),
    *(f"pl.{name}" for name in ce.pl.__all__),
]


def public(name: str) -> Callable[..., Any]:
    part, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(getattr(ce, part), function)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_names_and_defaults_are_those_of_the_signature(name: str) -> None:
    signature = inspect.signature(public(name)).parameters
    found = parameters(name)
    assert {key: parameter.default for key, parameter in found.items()} == {
        key: parameter.default for key, parameter in signature.items()
    }
    assert list(found) == list(signature)


def test_those_of_a_class_are_those_of_its_init() -> None:
    found = parameters(ce.CentroidEncoder)
    signature = inspect.signature(ce.CentroidEncoder).parameters
    assert {name: parameter.default for name, parameter in found.items()} == {
        name: parameter.default for name, parameter in signature.items()
    }
    assert found["clip"].types == (float,)
    assert found["clip"].optional
    assert found["batch_norm"].types == (bool,)
    assert found["batch_norm"].choices == ("auto",)
    assert found["optimizer"].choices == ("adamw", "adam", "amsgrad")
    assert plain(found["hidden"].doc).startswith("Widths of the encoder's hidden layers;")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_documented(name: str) -> None:
    for parameter in parameters(name).values():
        assert parameter.doc, parameter.name
        assert not parameter.doc.startswith("As in")


def test_a_function_is_as_good_as_its_name() -> None:
    assert parameters(ce.tl.ingest) == parameters("tl.ingest")


def test_what_may_be_passed() -> None:
    found = parameters("tl.centroid_encoder")
    assert found["label_key"].default is REQUIRED
    assert found["missing"].choices == ("error", "drop", "mean")
    assert (found["missing"].types, found["missing"].optional) == ((), False)
    assert (found["mask_var"].types, found["mask_var"].optional) == ((str,), True)
    assert found["test_size"].types == (float,)
    assert found["model"].types == ()
    assert parameters("pl.voronoi")["regions"].choices == ("voronoi", "decoder")


def test_an_entry_that_names_another_function_is_its_entry() -> None:
    ours, theirs = parameters("tl.cross_validate"), parameters("tl.centroid_encoder")
    for name in ("n_components", "use_rep", "missing", "device"):
        assert ours[name].doc == theirs[name].doc


def test_help_is_plain_text() -> None:
    parameter = Parameter(
        name="size",
        default=None,
        types=(float,),
        choices=(),
        optional=True,
        doc='Size [1]_ of :class:`~pathlib.Path` in ``"pt"``. With `palette`, in [0, 1). '
        "Default: 2, or what `model` says. The rest.",
    )
    assert plain(parameter.doc) == (
        'Size of Path in "pt". With palette, in [0, 1). Default: 2, or what model says. The rest.'
    )
    assert parameter.brief == 'Size [1]_ of :class:`~pathlib.Path` in ``"pt"``.'
    assert parameter.default_words == "2, or what `model` says"
    assert plain("``x`` and `y_z`", lambda name: f"--{name}") == "x and --y_z"


def test_reading_imports_nothing_heavy() -> None:
    code = """
import sys
from centroid_encoder._parameters import parameters
parameters("tl.centroid_encoder"), parameters("pl.voronoi")
print(*{"torch", "numpy", "anndata", "matplotlib", "sklearn"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == done.stderr == ""
