"""Options of commands: those of the parameters of a function, and those of files.

This module and those of the commands import torch, anndata and other slow packages only within
functions, so that ``--help`` is quick.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from centroid_encoder import tables
from centroid_encoder._signature import SENTENCE_END, parameters, plain
from centroid_encoder.files import check_distinct, check_target, writing


class Output(click.Path):
    """A file to write. Its ending, folder and permissions are checked before the work begins."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__()
        self._suffixes = suffixes

    def convert(self, value: Any, *context: Any) -> Path:
        path = Path(value)
        try:
            if path.suffix.lower() == ".zarr" and ".zarr" in self._suffixes:
                tables.check_store_target(path)
            else:
                check_target(path, *self._suffixes)
            with writing(path):
                tempfile.TemporaryFile(dir=path.resolve().parent).close()
        except (OSError, ValueError) as error:
            self.fail(str(error), *context)
        return path


def paths_of(
    command: click.Command, values: Mapping[str, Any], overwrite: bool | None
) -> dict[str, Any]:
    """Return the files among the values of the parameters of a command, the inputs first.

    Raises a UsageError if two outputs are the same file, or an output is an input. With
    `overwrite`, outputs may be inputs. It is None in commands whose output is no copy of IN.
    """
    inputs = {one.name: values[one.name] for one in command.params if one.type is INPUT}
    outputs = {one.name: values[one.name] for one in command.params if isinstance(one.type, Output)}
    read = [path for x in inputs.values() for path in (x if isinstance(x, tuple) else (x,))]
    if overwrite is not None and read[0].is_dir() != (values["output"].suffix.lower() == ".zarr"):
        raise click.UsageError("IN and --output must both be .h5ad files, or both .zarr stores")
    try:
        check_distinct(filter(None, outputs.values()), () if overwrite else read)
    except ValueError as error:
        advice = "" if overwrite is None else ", or pass --overwrite to replace an input"
        raise click.UsageError(f"{error}{advice}") from error
    return {**inputs, **outputs}


# Files

INPUT = click.Path(exists=True, path_type=Path)

input_file = click.Argument(["input"], metavar="IN", type=INPUT)
role = click.Option(
    ["--role", "roles"],
    type=(str, str),
    metavar="COLUMN ROLE",
    multiple=True,
    callback=lambda context, option, pairs: dict(pairs),
    help="Role of a column, if IN is a table: feature, id, image, position, class, result or "
    "text; repeatable. Default: by names and values.",
)
overwrite = click.Option(["--overwrite"], is_flag=True, help="Let the output replace an input.")


def file(name: str, *suffixes: str, content: str = "", required: bool = False) -> click.Option:
    """Return the option for a file that a command writes."""
    text = f"The {' or '.join(suffixes)} to write{content}. A file with this name is replaced."
    return click.Option(name.split(), type=Output(*suffixes), required=required, help=text)


output = partial(file, "-o --output", required=True)


# Parameters of functions

NO_OPTIONS = {"adata", "labels", "images", "model", "progress", "copy", "save", "show", "ax"}
NO_OPTIONS |= {"return_fig"}
"""Parameters without an option of their name: an argument or another option stands for them."""


def listed(kind: type, default: Any = None, *, one: bool = False) -> dict[str, Any]:
    """Return the settings of an option for a list whose parts are separated by commas.

    With `one`, it is repeatable instead, and a single value is no list.
    """

    def convert(context: click.Context, option: click.Parameter, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value or ()
        try:
            found = [kind(part.strip()) for part in parts]
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is no number or list of numbers") from error
        return found[0] if one and len(found) == 1 else found or default

    metavar = "TEXT" if one else "NAME,…" if kind is str else "NUMBER,…"
    return {"metavar": metavar, "callback": convert, "multiple": one, "default": None}


SETTINGS: dict[str, dict[str, Any]] = {
    "n_jobs": {"param_decls": ["-j", "--jobs", "--n-jobs", "n_jobs"]},
    # A name of a group may have a comma.
    "groups": {"param_decls": ["--group", "groups"], "multiple": True, "metavar": "NAME"},
    # Beyond these limits, matplotlib fails: letters would be too small, or images too large.
    "dpi": {"type": click.IntRange(10, 2400), "show_default": "300"},
    # It is needed after the training, so that it is checked before.
    "max_own": {"type": click.FloatRange(0, 1)},
    "spacing": listed(float),
}
"""Settings of options that do not follow from the signature."""


def of(function: str, without: Collection[str] = ()) -> list[click.Option]:
    """Return the options for the parameters of a public function, such as ``"tl.ingest"``."""
    known = parameters(function)
    names = [name for name in known if name not in {*NO_OPTIONS, *without}]
    found = [_option(name, *known[name]) for name in names]
    if "mask_var" in names and known["mask_var"][1] is not None:
        text = "Learn from all variables."
        found.append(click.Option(["--no-mask-var"], is_flag=True, help=text))
    if "model" in known:
        text = "Number of epochs. Default: depends on the number of cells."
        found.append(click.Option(["--max-epochs"], type=int, help=text))
        text = "Train a small network, for a first look."
        found.append(click.Option(["--draft"], is_flag=True, help=text))
    return found


def _option(name: str, kinds: Sequence[str], default: Any, doc: str) -> click.Option:
    """Return the option for a parameter with these types, this default and this docstring."""
    flag = f"--{name.replace('_', '-')}"
    literal = next((kind for kind in kinds if kind.startswith("Literal[")), "")
    first, *others = SENTENCE_END.split(doc)
    shown = [first, *(x for x in others if literal or x.startswith("Default"))]
    settings: dict[str, Any] = {"param_decls": [flag], "help": plain(" ".join(shown))}
    settings |= {"required": True} if default is ... else {"default": default}
    types = [x for x in (int, float, str) if x.__name__ in kinds]
    items = [x for x in (int, float, str) if f"Sequence[{x.__name__}]" in kinds]
    if kinds[0] == "bool":
        settings["is_flag"] = True
        if "None" in kinds or default:
            settings["param_decls"] = [f"{flag}/--no-{flag[2:]}"]
    elif items:
        settings |= listed(items[0], default, one=str in types)
    elif literal:
        choices = list(ast.literal_eval(literal.removeprefix("Literal")))
        if "None" in kinds and default is not None:
            choices.append("none")
        settings["type"] = click.Choice(choices)
        settings["callback"] = lambda context, option, x: None if x == "none" else x
    elif {float, str} <= set(types):
        settings |= {"type": _number_or_text, "metavar": "NUMBER|TEXT"}
    else:
        settings["type"] = INPUT if "os.PathLike[str]" in kinds else [*types, str][0]
    return click.Option(**settings | SETTINGS.get(name, {}))


def _number_or_text(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def arguments(adata: Any, others: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function of `tl` for the options of a command."""
    if others.pop("no_mask_var", False):
        if others["mask_var"] != "auto":
            raise click.UsageError("--mask-var and --no-mask-var exclude each other")
        others["mask_var"] = None
    max_epochs, draft = others.pop("max_epochs", None), others.pop("draft", False)
    if draft or max_epochs is not None:
        from centroid_encoder.estimator import CentroidEncoder

        others["model"] = CentroidEncoder.from_recipe("draft") if draft else CentroidEncoder()
        if max_epochs is not None:
            others["model"].set_params(max_epochs=max_epochs)
    if others.get("label_key") in adata.obs and "unlabeled_category" in others:
        # Options are strings, but classes may be numbers.
        for name in adata.obs[others["label_key"]].unique().tolist():
            if str(name) == others["unlabeled_category"]:
                others["unlabeled_category"] = name
    return others
