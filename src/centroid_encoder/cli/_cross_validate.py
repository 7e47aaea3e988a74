"""``centroid-encoder cross-validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from centroid_encoder import tl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._report import Results, Session, reporting


@click.command()
@options.input_file
@options.result
@click.option(
    "--mislabeled",
    type=options.Output(".csv"),
    help="The .csv file for the cells that look mislabelled, the worst first.",
)
@click.option(
    "--max-own",
    type=click.FloatRange(0, 1),
    help="List cells whose own label is at most so probable. Default: relative to each class.",
)
@options.training
@click.option(
    "--n-folds", type=int, help="Number of folds. Default: 5, or fewer if there are fewer groups."
)
@click.option("--n-repeats", default=1, help="Number of different divisions into folds.")
@click.option("--group-key", help="Column of obs with donors, which are not split between folds.")
@click.option(
    "--n-permutations",
    default=0,
    help="Number of trainings on shuffled labels; 19 allow a p value of 0.05.",
)
@click.option("-j", "--jobs", "n_jobs", type=int, help="Parallel trainings; -1: one for each core.")
@reporting
def cross_validate(
    session: Session,
    input_file: Path,
    output: Path,
    overwrite: bool,
    mislabeled: Path | None,
    max_own: float | None,
    **validation: Any,
) -> Results:
    """Measure the errors of a map of IN: networks predict cells that they were not trained on.

    The output is IN with the out-of-fold class of every cell in obs["ce_cv_label"], and the errors
    and their spread in uns["ce_cv"].
    """
    options.check_outputs([output, mislabeled], [input_file], overwrite=overwrite)
    adata, key, write = session.add_results(
        input_file,
        lambda adata: tl.cross_validate.job(adata, **options.arguments(adata, **validation)),
    )

    from centroid_encoder.tl._result import cv_key
    from centroid_encoder.tl._summary import summary

    suspects = tl.mislabeled(adata, key=key, max_own=max_own)
    files = {output: write}
    if mislabeled is not None:
        files[mislabeled] = lambda path: suspects.to_csv(path, index_label="cell")
    stored = adata.uns[cv_key(key)]
    sentences = [*summary(adata, key), f"Cells that look mislabelled: {len(suspects):,}."]
    names = ("params", "classes", "quality", "errors", "per_class", "confusion", "permutation")
    paths = {"input": input_file, "output": output, "mislabeled": mislabeled}
    numbers = {"n_mislabeled": len(suspects), "key": key, "n_obs": adata.n_obs}
    document = {**paths, **numbers, **{name: stored.get(name) for name in names}}
    return Results(files, sentences, document)
