"""Options of the commands: the parameters of `tl` and `pl`, and some more."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from centroid_encoder._signature import REQUIRED, Parameter, parameters, plain
from centroid_encoder.cli._files import is_store
from centroid_encoder.files import check_distinct, check_target, writing
from centroid_encoder.stores import check_store_target

if TYPE_CHECKING:
    from anndata import AnnData

Decorator = Callable[[Any], Any]


class Input(click.Path):
    """A file, or a folder that is a zarr store."""

    def convert(self, value: Any, *context: Any) -> Any:
        path = Path(os.fsdecode(super().convert(value, *context)))
        if path.is_dir():
            if not any((path / name).exists() for name in (".zgroup", "zarr.json")):
                self.fail(f"{str(path)!r} is a directory, but no zarr store.", *context)
        elif not path.is_file():
            self.fail(f"{str(path)!r} is a device, a pipe or a socket, not a file.", *context)
        return path


class Share(click.FloatRange):
    """A number from 0 to 1. The range of click lets NaN pass."""

    def convert(self, value: Any, *context: Any) -> Any:
        number = super().convert(value, *context)
        if math.isnan(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", *context)
        return number


def names(value: Any) -> Any:
    """Split names at commas."""
    return value.split(",") if isinstance(value, str) else value


def several(value: Any) -> Any:
    """Read numbers between commas; a single one stays a number."""
    if not isinstance(value, str):
        return value
    try:
        found = tuple(map(float, value.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no number or list of numbers") from error
    return found if len(found) > 1 else found[0]


INPUT = Input(exists=True, path_type=Path)
OUTPUT = click.Path(path_type=Path)

LEFT_TO_PYTHON = {
    *("adata", "images", "labels", "model", "progress", "copy"),
    *("palette", "legend_loc", "size", "title", "ax", "show", "save"),
}
"""Parameters without an option: arrays, objects and the display of figures."""
NAMES = {"n_jobs": ("--jobs", "-j")}
"""Options that have other names than their parameter."""
METAVARS = {
    **dict.fromkeys(("group_key", "label_key", "layer", "mask_var", "use_rep"), "KEY"),
    **dict.fromkeys(("key_added", "unit", "unlabeled_category"), "NAME"),
    "properties": "NAME,…",
    **dict.fromkeys(("quantiles", "spacing"), "NUMBER,…"),
    "random_state": "SEED",
    "reference": "FILE",
}
TYPES: dict[str, Any] = {
    **dict.fromkeys(("max_missing", "max_novelty", "max_own", "min_confidence"), Share(0, 1)),
    "n_components": click.IntRange(1, 2**16, max_open=True),
    "n_repeats": click.IntRange(1, 10**6, max_open=True),
    "n_bins": click.IntRange(1, 1000),
    # Letters smaller than a dot, and images larger than matplotlib makes, would fail.
    "dpi": click.IntRange(10, 2400),
    "n_folds": click.IntRange(2),
    "n_permutations": click.IntRange(0, 10**6, max_open=True),
    "properties": names,
    "quantiles": several,
    "random_state": click.IntRange(0, 2**32 - 1),
    "reference": INPUT,
    "spacing": several,
    "test_size": Share(0, 1, max_open=True),
}
"""Types with a range, and those that the annotation leaves open."""
HELP = {
    "mask_var": "Column of var that says which variables to learn from; auto: highly_variable, if "
    "there is one.",
    "reference": "What carries the map: an output of fit, .h5ad, .zarr or .safetensors.",
}
"""Help in place of a docstring that holds for Python only."""
NONE = type(None)


def together(*decorators: Decorator) -> Decorator:
    """Return one decorator for several; their order is that of the help."""

    def decorate(command: Any) -> Any:
        return reduce(lambda decorated, one: one(decorated), reversed(decorators), command)

    return decorate


def target(*names: str, suffixes: tuple[str, ...], **attributes: Any) -> Decorator:
    """Return an option for a file to write; it is checked before the work begins."""

    def check(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
        if path is None:
            return path
        try:
            if is_store(path) and ".zarr" in suffixes:
                check_store_target(path)
            else:
                check_target(path, *suffixes)
            with writing(path):
                tempfile.TemporaryFile(dir=path.resolve().parent).close()
        except (OSError, ValueError) as error:
            raise click.BadParameter(str(error)) from error
        return path

    return click.option(*names, type=OUTPUT, metavar="FILE", callback=check, **attributes)


def check_outputs(given: Mapping[str, Any], *, overwrite: bool) -> None:
    """Refuse two outputs in one file, and an output that is an input without ``--overwrite``."""
    parameters = click.get_current_context().command.params
    inputs, others = (
        [
            path
            for one in parameters
            if one.type is kind and (found := given.get(one.name or ""))
            for path in (found if one.nargs == -1 else [found])
        ]
        for kind in (INPUT, OUTPUT)
    )
    output = given["output"]
    others.remove(output)
    advice = ""
    try:
        check_distinct(others, inputs)
        check_distinct([output, *others])
        if any(one.name == "overwrite" for one in parameters):
            advice = ", or pass --overwrite to replace it"
        check_distinct([output], () if overwrite else inputs)
    except ValueError as error:
        raise click.UsageError(f"{error}{advice}") from error


input_file = click.argument("input_file", metavar="IN", type=INPUT)

result = together(
    target(
        "-o",
        "--output",
        suffixes=(".h5ad", ".zarr"),
        required=True,
        help="The .h5ad file or .zarr store to write: the input with the results. A file or store "
        "of that name is replaced.",
    ),
    click.option("--overwrite", is_flag=True, help="Let the output replace an input."),
)

training = together(
    click.option("--no-mask-var", is_flag=True, help="Learn from all variables."),
    click.option(
        "--max-epochs",
        type=click.IntRange(1),
        show_default="by the number of cells",
        help="Epochs of training.",
    ),
    click.option(
        "--draft", is_flag=True, help="Train a small network in few epochs, for a first look."
    ),
)
"""Options in place of objects of Python, for `arguments`."""


def of(function: str, *only: str) -> Decorator:
    """Return the options of a public function, in the order of its signature.

    Parameters
    ----------
    function
        Its name, such as ``"tl.ingest"``.
    only
        Names of the parameters; by default all that can be options.
    """
    return together(
        *(
            _option(parameter)
            for name, parameter in parameters(function).items()
            if (name in only if only else name not in LEFT_TO_PYTHON)
        )
    )


def _option(parameter: Parameter) -> Decorator:
    name = parameter.name
    attributes: dict[str, Any] = {
        "help": HELP.get(name) or _words(parameter.brief),
        "metavar": METAVARS.get(name),
        "type": TYPES.get(name) or _type(parameter),
        "is_flag": bool in parameter.hints,
        "required": parameter.default is REQUIRED,
    }
    if parameter.default is not None and not attributes["required"]:
        attributes["default"] = parameter.default
    elif parameter.default_words is not None:
        attributes["show_default"] = _words(parameter.default_words).replace('"', "")
    option, *short = option_names(name)
    if attributes["is_flag"] and NONE in parameter.hints:
        # Without either flag, the value is None.
        attributes["default"] = None
        option += f"/--no-{option[2:]}"
    return click.option(*short, option, name, **attributes)


def option_names(name: str) -> tuple[str, ...]:
    """Return the names of the option of a parameter, the long one first."""
    return NAMES.get(name, (f"--{name.replace('_', '-')}",))


def _type(parameter: Parameter) -> Any:
    types = [hint for hint in parameter.hints if hint in (bool, int, float, str)]
    if parameter.choices and not types:
        # Where None is the default, leaving out the option means None.
        none = NONE in parameter.hints and parameter.default is not None
        return _OrNone([*parameter.choices, "none"]) if none else click.Choice(parameter.choices)
    if len(types) == 1 and not parameter.choices:
        return types[0]
    raise TypeError(f"{parameter.name} has several types; choose one in TYPES")


class _OrNone(click.Choice[str]):
    """A choice in which "none" stands for None."""

    def convert(self, value: Any, *context: Any) -> Any:
        choice = super().convert(value, *context)
        return None if choice == "none" else choice


def _words(doc: str) -> str:
    """Text of a docstring, with its parameters as options."""
    text = plain(doc, lambda name: option_names(name)[0])
    return text.replace("adata.", "")


def arguments(
    adata: AnnData,
    *,
    mask_var: str,
    no_mask_var: bool,
    max_epochs: int | None,
    draft: bool,
    **others: Any,
) -> dict[str, Any]:
    """Return the arguments of `tl` for the options of a training."""
    if no_mask_var and mask_var != "auto":
        raise click.UsageError("--mask-var and --no-mask-var exclude each other")
    model = None
    if draft or max_epochs is not None:
        from centroid_encoder.estimator import CentroidEncoder

        model = CentroidEncoder.from_recipe("draft") if draft else CentroidEncoder()
        if max_epochs is not None:
            model.set_params(max_epochs=max_epochs)
    if others["label_key"] in adata.obs:
        # A class may be a number; options are strings.
        classes = adata.obs[others["label_key"]].dropna().unique().tolist()
        by_word = {str(name): name for name in reversed(classes)}
        unlabeled = others["unlabeled_category"]
        others["unlabeled_category"] = by_word.get(unlabeled, unlabeled)
    return {**others, "mask_var": None if no_mask_var else mask_var, "model": model}
