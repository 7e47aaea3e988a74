"""``centroid-encoder fit``."""

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
    "--model-out",
    type=options.Output(".safetensors"),
    help="The .safetensors file for the map alone.",
)
@options.training
@click.option(
    "--test-size",
    type=float,
    help="Share of the labeled cells to hold out, in [0, 1). Default: 0.2.",
)
@click.option("--group-key", help="Column of obs with donors, which are not split by the hold-out.")
@click.option("--split-key", help="Column of obs with your own split: True for a held-out cell.")
@reporting
def fit(
    session: Session,
    input_file: Path,
    output: Path,
    overwrite: bool,
    model_out: Path | None,
    **training: Any,
) -> Results:
    """Train a map on the labelled cells of IN, and measure its errors on held-out cells.

    The output is IN with the embedding in obsm["X_ce"], the predicted class of every cell in
    obs["ce_label"], and the map itself in uns["ce"]. The command ingest maps new cells with it.
    """
    options.check_outputs([output, model_out], [input_file], overwrite=overwrite)
    adata, key, write = session.add_results(
        input_file,
        lambda adata: tl.centroid_encoder.job(adata, **options.arguments(adata, **training)),
    )

    from centroid_encoder.tl._summary import summary

    files = {output: write}
    if model_out is not None:
        files[model_out] = lambda path: tl.fitted_model(adata, key, device="cpu").save(path)
    stored = adata.uns[key]
    paths = {"input": input_file, "output": output, "model": model_out}
    parts = {name: stored[name] for name in ("params", "classes", "quality")}
    document = {**paths, "key": key, "n_obs": adata.n_obs, **parts}
    return Results(files, summary(adata, key), document)
