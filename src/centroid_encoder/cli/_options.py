"""Options of several commands, and checks of the files that a command writes.

This module and those of the commands import torch, anndata and other slow packages only within
functions, so that ``--help`` is quick.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from centroid_encoder.files import check_distinct, check_target, writing
from centroid_encoder.stores import check_store_target

if TYPE_CHECKING:
    from anndata import AnnData

Decorator = Callable[[Any], Any]


class Output(click.Path):
    """A file to write. Its ending, folder and permissions are checked before the work begins."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__()
        self._suffixes = suffixes

    def convert(self, value: Any, *context: Any) -> Path:
        path = Path(value)
        try:
            if path.suffix.lower() == ".zarr" and ".zarr" in self._suffixes:
                check_store_target(path)
            else:
                check_target(path, *self._suffixes)
            with writing(path):
                tempfile.TemporaryFile(dir=path.resolve().parent).close()
        except (OSError, ValueError) as error:
            self.fail(str(error), *context)
        return path


def split(kind: type, context: click.Context, option: click.Parameter, value: str | None) -> Any:
    """Split a value at commas, and convert the parts to strings or numbers."""
    try:
        return [kind(part.strip()) for part in value.split(",")] if value else []
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no number or list of numbers") from error


def check_outputs(
    outputs: Sequence[Path | None], inputs: Sequence[Path], *, overwrite: bool | None = None
) -> None:
    """Raise a UsageError if two outputs are the same file, or an output is an input.

    With `overwrite`, outputs may be inputs. It is None in commands whose output is no copy of their
    first input.
    """
    if overwrite is not None and inputs[0].is_dir() != str(outputs[0]).lower().endswith(".zarr"):
        raise click.UsageError("IN and --output must both be .h5ad files, or both .zarr stores")
    try:
        check_distinct(filter(None, outputs), () if overwrite else inputs)
    except ValueError as error:
        advice = "" if overwrite is None else ", or pass --overwrite to replace an input"
        raise click.UsageError(f"{error}{advice}") from error


def together(*decorators: Decorator) -> Decorator:
    """Combine decorators into one; --help lists the options in this order."""
    return lambda command: reduce(lambda done, decorate: decorate(done), decorators[::-1], command)


INPUT = click.Path(exists=True, path_type=Path)

input_file = click.argument("input_file", metavar="IN", type=INPUT)


def output(*suffixes: str, content: str = "") -> Decorator:
    """Return the option for the file that a command writes."""
    names = " or ".join(suffixes)
    text = f"The {names} to write{content}. A file with this name is replaced."
    return click.option("-o", "--output", type=Output(*suffixes), required=True, help=text)


result = together(
    output(".h5ad", ".zarr", content=": a copy of the input with the results, of the same kind"),
    click.option("--overwrite", is_flag=True, help="Let the output replace an input."),
)

device = click.option("--device", help="Device to compute on: auto (default) or a torch device.")

label_key = click.option("--label-key", required=True, help="Column of obs with the classes.")
layer = click.option("--layer", help="Key of layers to learn from instead of X.")
cells = together(
    click.option(
        "--mask-var",
        default="auto",
        help="Column of var with the variables to learn from; auto: highly_variable, else all.",
    ),
    click.option("--no-mask-var", is_flag=True, help="Learn from all variables."),
    click.option("--unlabeled-category", help='Class that means "unlabeled", besides NaN.'),
    click.option(
        "--missing",
        type=click.Choice(["error", "drop", "mean"]),
        default="error",
        help="What to do with NaN and inf: stop, leave these cells out, or use the training mean.",
    ),
)
"""Variables and cells that take part."""
network = together(
    click.option(
        "--max-cells", type=int, help="Largest number of training cells. Default: 1,000,000."
    ),
    click.option(
        "--max-epochs", type=int, help="Number of epochs. Default: depends on the number of cells."
    ),
    click.option("--draft", is_flag=True, help="Train a small network, for a first look."),
    click.option("--random-state", default=0, help="Seed of all randomness."),
    device,
)
"""Size, length and seed of a training."""
training = together(
    label_key,
    click.option("--n-components", type=int, help="Dimension of the embedding. Default: 2."),
    click.option(
        "--placement",
        type=click.Choice(["voronoi", "bottleneck"]),
        help="Place cells in the region of their predicted class (default), or with a "
        "bottleneck, as in the paper.",
    ),
    click.option("--use-rep", help="Key of obsm to learn from instead of X."),
    layer,
    click.option("--use-raw", is_flag=True, help="Learn from raw instead of X."),
    cells,
    click.option("--key-added", help="Name of the results. Default: ce."),
    network,
)
"""Options of ``tl.centroid_encoder`` and ``tl.cross_validate``; see `arguments`."""


def arguments(
    adata: AnnData,
    *,
    mask_var: str,
    no_mask_var: bool,
    max_epochs: int | None,
    draft: bool,
    **others: Any,
) -> dict[str, Any]:
    """Return the arguments of a function of `tl` for the options `cells` and `network`."""
    if no_mask_var and mask_var != "auto":
        raise click.UsageError("--mask-var and --no-mask-var exclude each other")
    model = None
    if draft or max_epochs is not None:
        from centroid_encoder.estimator import CentroidEncoder

        model = CentroidEncoder.from_recipe("draft") if draft else CentroidEncoder()
        if max_epochs is not None:
            model.set_params(max_epochs=max_epochs)
    if others["label_key"] in adata.obs:
        # Options are strings, but classes may be numbers.
        for name in adata.obs[others["label_key"]].unique().tolist():
            if str(name) == others["unlabeled_category"]:
                others["unlabeled_category"] = name
    return {**others, "mask_var": None if no_mask_var else mask_var, "model": model}
