"""The options of the commands: those of `tl` and `pl`, read from their signatures, and our own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from centroid_encoder._parameters import REQUIRED, Parameter, parameters, plain
from centroid_encoder.files import check_target, readable

if TYPE_CHECKING:
    from anndata import AnnData

Decorator = Callable[[Any], Any]

INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)
SHARE = click.FloatRange(0, 1)

LEFT_TO_PYTHON = {
    *("adata", "model", "progress", "copy"),
    *("palette", "legend_loc", "size", "title", "ax", "show", "save"),
}
"""Parameters that are no options: arrays, objects, and how to show things."""
METAVARS = {
    **dict.fromkeys(("group_key", "label_key", "layer", "mask_var", "use_rep"), "KEY"),
    **dict.fromkeys(("key_added", "unlabeled_category"), "NAME"),
    "random_state": "SEED",
    "reference": "FILE",
}
TYPES: dict[str, Any] = {
    **dict.fromkeys(("max_missing", "max_novelty", "max_own", "min_confidence"), SHARE),
    **dict.fromkeys(("n_bins", "n_components", "n_repeats"), click.IntRange(1)),
    "n_folds": click.IntRange(2),
    "n_permutations": click.IntRange(0),
    "random_state": click.IntRange(0, 2**32 - 1),
    "reference": INPUT,
    "test_size": click.FloatRange(0, 1, max_open=True),
}
"""Types that say more than the annotation."""
HELP = {
    "mask_var": "Column of var that says which variables to learn from; auto: highly_variable, if "
    "there is one.",
    "reference": "What carries the map: an output of fit, .h5ad or .safetensors.",
}
"""Help where the docstring is for Python alone."""


def together(*decorators: Decorator) -> Decorator:
    """Return one decorator for several; their order is that of the help."""

    def decorate(command: Any) -> Any:
        return reduce(lambda decorated, one: one(decorated), reversed(decorators), command)

    return decorate


def target(*names: str, suffixes: tuple[str, ...], **attributes: Any) -> Decorator:
    """Return an option for a file to write, which is refused now rather than after the work."""

    def check(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
        if path is None:
            return None
        try:
            check_target(path, *suffixes)
            try:
                tempfile.TemporaryFile(dir=path.resolve().parent).close()
            except OSError as error:
                raise readable(error, path) from error
        except (OSError, ValueError) as error:
            raise click.BadParameter(str(error)) from error
        return path

    return click.option(
        *names, type=click.Path(path_type=Path), metavar="FILE", callback=check, **attributes
    )


def check_inputs(output: Path, inputs: tuple[Path, ...], *, overwrite: bool) -> None:
    """Refuse to write over what is read, unless that is meant."""
    for path in inputs:
        if not overwrite and output.exists() and output.samefile(path):
            raise click.UsageError(
                f"{output} is an input; name another file, or pass --overwrite to replace it"
            )


input_file = click.argument("input_file", metavar="IN", type=INPUT)

result = together(
    target(
        "-o",
        "--output",
        suffixes=(".h5ad",),
        required=True,
        help="The .h5ad to write: the input with the results. A file of that name is replaced.",
    ),
    click.option("--overwrite", is_flag=True, help="Let the output replace an input."),
)

reporting = together(
    click.option("--json", "as_json", is_flag=True, help="Print the results as JSON."),
    click.option(
        "-q", "--quiet", is_flag=True, help="Say nothing on stderr but warnings and errors."
    ),
)

training = together(
    click.option("--no-mask-var", is_flag=True, help="Learn from all variables."),
    click.option(
        "--max-epochs",
        type=click.IntRange(1),
        show_default="by the number of cells",
        help="Epochs of training.",
    ),
)
"""Options in place of what cannot be typed, for `arguments`."""


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
        "is_flag": parameter.types == (bool,),
        "required": parameter.default is REQUIRED,
    }
    if parameter.default is not None and not attributes["required"]:
        attributes["default"] = parameter.default
    elif parameter.default_words is not None:
        attributes["show_default"] = _words(parameter.default_words).replace('"', "")
    return click.option(f"--{name.replace('_', '-')}", **attributes)


def _type(parameter: Parameter) -> Any:
    if parameter.choices and not parameter.types:
        # Where None is the default, leaving out the option means None.
        none = parameter.optional and parameter.default is not None
        return _OrNone([*parameter.choices, "none"]) if none else click.Choice(parameter.choices)
    if len(parameter.types) == 1 and not parameter.choices:
        return parameter.types[0]
    raise TypeError(f"{parameter.name} is of several types: say in TYPES which to take")


class _OrNone(click.Choice[str]):
    """A choice of which "none" stands for None."""

    def convert(self, value: Any, *context: Any) -> Any:
        choice = super().convert(value, *context)
        return None if choice == "none" else choice


def _words(doc: str) -> str:
    """Text of a docstring, with its parameters as options."""
    text = plain(doc, lambda name: f"--{name.replace('_', '-')}")
    return text.replace("adata.", "")


def arguments(
    adata: AnnData, *, mask_var: str, no_mask_var: bool, max_epochs: int | None, **others: Any
) -> dict[str, Any]:
    """Return the arguments of `tl` that the options of a training stand for."""
    if no_mask_var and mask_var != "auto":
        raise click.UsageError("--mask-var and --no-mask-var exclude each other")
    model = None
    if max_epochs is not None:
        from centroid_encoder.estimator import CentroidEncoder

        model = CentroidEncoder(max_epochs=max_epochs)
    if others["label_key"] in adata.obs:
        # A class may be a number, which on a command line is a word.
        classes = adata.obs[others["label_key"]].dropna().unique().tolist()
        by_word = {str(name): name for name in reversed(classes)}
        unlabeled = others["unlabeled_category"]
        others["unlabeled_category"] = by_word.get(unlabeled, unlabeled)
    return {**others, "mask_var": None if no_mask_var else mask_var, "model": model}
