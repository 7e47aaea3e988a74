"""``centroid-encoder fit``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from centroid_encoder import tl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import Write, read_cells, with_results
from centroid_encoder.cli._session import Results, Session, reporting
from centroid_encoder.tl._result import embedding_key
from centroid_encoder.tl._summary import summary


@click.command()
@options.input_file
@options.result
@options.target(
    "--model-out",
    suffixes=(".safetensors",),
    help="Write the map alone as well, a .safetensors file.",
)
@options.of("tl.centroid_encoder")
@options.training
@reporting
def fit(
    work: Session, input_file: Path, output: Path, model_out: Path | None, **training: Any
) -> Results:
    """Train a map on the labelled cells of IN, and count its errors on held-out ones.

    The output is IN with the embedding in obsm["X_ce"], the predicted class of every cell in
    obs["ce_label"], and the map itself in uns["ce"]: it takes new cells with the command ingest.
    """
    adata = read_cells(input_file, matrix=False)
    training = options.arguments(adata, **training)
    with closing(adata.file):
        job = tl.centroid_encoder.job(adata, **training)
        work.run(job, adata)
    key = job.key
    files: dict[Path, Write] = {
        output: with_results(input_file, output, adata, obsm=[embedding_key(key)], uns=[key])
    }
    if model_out is not None:
        files[model_out] = lambda path: tl.fitted_model(adata, key, device="cpu").save(path)
    stored = adata.uns[key]
    document = {
        "input": input_file,
        "output": output,
        "model": model_out,
        "key": key,
        "n_obs": adata.n_obs,
        **{name: stored[name] for name in ("params", "classes", "quality")},
    }
    return Results(files, summary(adata, key), document)
