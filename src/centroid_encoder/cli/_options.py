"""Options that commands share; their names and defaults are those of `tl`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from centroid_encoder.files import check_target, readable

if TYPE_CHECKING:
    from anndata import AnnData

Decorator = Callable[[Any], Any]

INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)
SHARE = click.FloatRange(0, 1)


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

label_key = click.option(
    "--label-key", metavar="KEY", required=True, help="Column of obs with the classes."
)

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

device = click.option("--device", show_default="auto", help="Where to compute: a torch device.")

key_added = click.option(
    "--key-added",
    metavar="NAME",
    show_default="ce",
    help="Name of the results: uns[NAME], obsm[NAME], …",
)

training = together(
    click.option("--unlabeled-category", metavar="NAME", help='Class that stands for "unlabeled".'),
    click.option("--use-rep", metavar="KEY", help="Learn from this entry of obsm."),
    click.option("--layer", metavar="KEY", help="Learn from this layer in place of X."),
    click.option(
        "--mask-var",
        metavar="KEY",
        default="auto",
        help="Column of var that says which to learn from; auto: highly_variable, if there.",
    ),
    click.option("--no-mask-var", is_flag=True, help="Learn from all variables."),
    click.option(
        "--missing",
        type=click.Choice(["error", "drop", "mean"]),
        default="error",
        help="Cells with NaN or inf: stop, leave them out, or fill in the training cells' mean.",
    ),
    click.option(
        "--n-components",
        type=click.IntRange(1),
        show_default="2",
        help="Dimension of the embedding.",
    ),
    click.option(
        "--max-epochs",
        type=click.IntRange(1),
        show_default="by the number of cells",
        help="Epochs of training.",
    ),
    click.option(
        "--random-state",
        metavar="SEED",
        type=click.IntRange(0, 2**32 - 1),
        default=0,
        help="The same seed gives the same bits on the same machine.",
    ),
    device,
    key_added,
)


def category(adata: AnnData, label_key: str, name: str | None) -> Any:
    """Return the class that is written so: on a command line, numbers are words too."""
    if name is None or label_key not in adata.obs:
        return name
    classes = adata.obs[label_key].dropna().unique().tolist()
    return next((found for found in classes if str(found) == name), name)


def arguments(
    *, mask_var: str, no_mask_var: bool, max_epochs: int | None, **others: Any
) -> dict[str, Any]:
    """Return the arguments of `tl` that the options of `training` stand for."""
    if no_mask_var and mask_var != "auto":
        raise click.UsageError("--mask-var and --no-mask-var exclude each other")
    model = None
    if max_epochs is not None:
        from centroid_encoder.estimator import CentroidEncoder

        model = CentroidEncoder(max_epochs=max_epochs)
    return {**others, "mask_var": None if no_mask_var else mask_var, "model": model}
