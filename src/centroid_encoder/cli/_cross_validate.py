"""``centroid-encoder cross-validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from centroid_encoder import tl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import Write, read_cells, with_results
from centroid_encoder.cli._session import Results, Session, reporting
from centroid_encoder.tl._result import cv_key
from centroid_encoder.tl._summary import summary


@click.command()
@options.input_file
@options.result
@options.target(
    "--mislabeled",
    suffixes=(".csv",),
    help="Write the cells that look mislabelled as well, worst first, a .csv file.",
)
@options.of("tl.mislabeled", "max_own")
@options.of("tl.cross_validate")
@options.training
@reporting
def cross_validate(
    work: Session,
    input_file: Path,
    output: Path,
    mislabeled: Path | None,
    max_own: float,
    **validation: Any,
) -> Results:
    """Find out how much of a map of IN is real: networks predict cells that did not train them.

    The output is IN with the out-of-fold class of every cell in obs["ce_cv_label"], and errors with
    their spread in uns["ce_cv"].
    """
    adata = read_cells(input_file, matrix=False)
    validation = options.arguments(adata, **validation)
    job = tl.cross_validate.job(adata, **validation)
    work.run(job, adata)
    key = job.key
    suspects = tl.mislabeled(adata, key=key, max_own=max_own)
    files: dict[Path, Write] = {
        output: with_results(input_file, output, adata, obsm=[], uns=[cv_key(key)])
    }
    if mislabeled is not None:
        files[mislabeled] = lambda path: suspects.to_csv(path, index_label="cell")
    stored = adata.uns[cv_key(key)]
    sentences = [*summary(adata, key), f"Cells that look mislabelled: {len(suspects):,}."]
    names = ("params", "classes", "quality", "errors", "per_class", "confusion", "permutation")
    document = {
        "input": input_file,
        "output": output,
        "mislabeled": mislabeled,
        "n_mislabeled": len(suspects),
        "key": key,
        "n_obs": adata.n_obs,
        **{name: stored.get(name) for name in names},
    }
    return Results(files, sentences, document)
