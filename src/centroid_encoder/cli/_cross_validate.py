"""``centroid-encoder cross-validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import Write, read_h5ad, with_results, write_all
from centroid_encoder.cli._results import print_json, print_lines
from centroid_encoder.cli._session import session


@click.command("cross-validate", short_help="Find out how much of a map is real.")
@options.input_file
@options.label_key
@options.result
@options.target(
    "--mislabeled",
    suffixes=(".csv",),
    help="Write the cells that look mislabelled as well, worst first, a .csv file.",
)
@click.option(
    "--max-own",
    type=options.SHARE,
    default=0.05,
    help="Largest probability of its own label for a cell to look mislabelled.",
)
@options.training
@click.option(
    "--n-folds", type=click.IntRange(2), show_default="5, or all groups", help="Number of folds."
)
@click.option(
    "--n-repeats",
    type=click.IntRange(1),
    default=1,
    help="How many times to divide the cells into folds.",
)
@click.option("--group-key", metavar="KEY", help="Column of obs with donors: each in one fold.")
@click.option(
    "--n-permutations",
    type=click.IntRange(0),
    default=0,
    help="How many times to shuffle the labels and train anew, to see what chance gives.",
)
@options.reporting
def cross_validate(
    input_file: Path,
    output: Path,
    overwrite: bool,
    mislabeled: Path | None,
    max_own: float,
    label_key: str,
    as_json: bool,
    quiet: bool,
    **validation: Any,
) -> None:
    """Find out how much of a map of IN is real: every cell is judged by networks that never saw it.

    The output is IN with the out-of-fold class of every cell in obs["ce_cv_label"], and errors with
    their spread in uns["ce_cv"].
    """
    options.check_inputs(output, (input_file,), overwrite=overwrite)
    validation = options.arguments(**validation)
    with session(quiet=quiet) as warnings:
        key = validation["key_added"] or "ce"
        adata = read_h5ad(input_file)
        unlabeled = validation["unlabeled_category"]
        validation["unlabeled_category"] = options.category(adata, label_key, unlabeled)

        # A file that cannot be read is known before torch is there.
        from centroid_encoder import tl
        from centroid_encoder.pl._summary import summary

        tl.cross_validate(adata, label_key, progress=not quiet, **validation)
        suspects = tl.mislabeled(adata, key=key, max_own=max_own)
        files: dict[Path, Write] = {
            output: with_results(input_file, adata, obsm=[], uns=[f"{key}_cv"])
        }
        if mislabeled is not None:
            files[mislabeled] = lambda path: suspects.to_csv(path, index_label="cell")
        sentences = [*summary(adata, key), f"Cells that look mislabelled: {len(suspects):,}."]
        write_all(files)
    stored = adata.uns[f"{key}_cv"]
    if as_json:
        print_json(
            "cross-validate",
            input=input_file,
            output=output,
            mislabeled=mislabeled,
            n_mislabeled=len(suspects),
            key=key,
            n_obs=adata.n_obs,
            params=stored["params"],
            classes=stored["classes"],
            quality=stored["quality"],
            errors=stored["errors"],
            per_class=stored["per_class"],
            confusion=stored["confusion"],
            permutation=stored.get("permutation"),
            warnings=warnings,
        )
    else:
        print_lines(sentences, files)
