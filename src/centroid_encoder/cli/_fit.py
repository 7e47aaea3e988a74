"""``centroid-encoder fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import Write, read_h5ad, with_results, write_all
from centroid_encoder.cli._results import print_json, print_lines
from centroid_encoder.cli._session import session


@click.command(short_help="Train a map on labelled cells.")
@options.input_file
@options.label_key
@options.result
@options.target(
    "--model-out",
    suffixes=(".safetensors",),
    help="Write the map alone as well, a .safetensors file.",
)
@options.training
@click.option(
    "--test-size",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    help="Share of the labelled cells to hold out.",
)
@click.option("--group-key", metavar="KEY", help="Column of obs with donors: hold out whole ones.")
@options.reporting
def fit(
    input_file: Path,
    output: Path,
    overwrite: bool,
    model_out: Path | None,
    label_key: str,
    as_json: bool,
    quiet: bool,
    **training: Any,
) -> None:
    """Train a map on the labelled cells of IN, and count its errors on held-out ones.

    The output is IN with the embedding in obsm["X_ce"], the predicted class of every cell in
    obs["ce_label"], and the map itself in uns["ce"]: it takes new cells with the command ingest.
    """
    options.check_inputs(output, (input_file,), overwrite=overwrite)
    training = options.arguments(**training)
    with session(quiet=quiet) as warnings:
        key = training["key_added"] or "ce"
        adata = read_h5ad(input_file)
        unlabeled = training["unlabeled_category"]
        training["unlabeled_category"] = options.category(adata, label_key, unlabeled)

        # A file that cannot be read is known before torch is there.
        from centroid_encoder import tl
        from centroid_encoder.pl._summary import summary
        from centroid_encoder.tl._stored import embedding_key

        tl.centroid_encoder(adata, label_key, progress=not quiet, **training)
        files: dict[Path, Write] = {
            output: with_results(input_file, adata, obsm=[embedding_key(key)], uns=[key])
        }
        if model_out is not None:
            files[model_out] = lambda path: tl.fitted_model(adata, key, device="cpu").save(path)
        sentences = summary(adata, key)
        write_all(files)
    stored = adata.uns[key]
    if as_json:
        print_json(
            "fit",
            input=input_file,
            output=output,
            model=model_out,
            key=key,
            n_obs=adata.n_obs,
            params=stored["params"],
            classes=stored["classes"],
            quality=stored["quality"],
            warnings=warnings,
        )
    else:
        print_lines(sentences, files)
