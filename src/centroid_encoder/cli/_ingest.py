"""``centroid-encoder ingest``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from centroid_encoder import tl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._report import Results, Session, reporting


@click.command()
@click.argument("query", type=options.INPUT)
@options.result
@click.option(
    "--reference",
    type=options.INPUT,
    required=True,
    help="The file with the map: an output of fit (.h5ad, .zarr or .safetensors).",
)
@click.option("--key", default="ce", help="Name of the map, as given to --key-added.")
@click.option("--layer", help="Key of layers with the values. Default: as in the reference.")
@click.option("--use-rep", help="Key of obsm with the values, or X. Default: as in the reference.")
@click.option("--use-raw", is_flag=True, help="Take the values from raw.")
@click.option(
    "--missing",
    type=click.Choice(["error", "mean"]),
    default="error",
    help="What to do with missing genes and NaN of QUERY: stop, or use the training mean.",
)
@click.option("--max-missing", default=0.2, help="Largest share of genes that QUERY may lack.")
@click.option("--min-confidence", default=0.0, help='Cells with less confidence are "unassigned".')
@click.option("--max-novelty", default=1.0, help='Cells with more novelty are "unassigned".')
@click.option("--key-added", help="Name of the results. Default: that of the map.")
@options.device
@reporting
def ingest(
    session: Session, query: Path, reference: Path, output: Path, overwrite: bool, **mapping: Any
) -> Results:
    """Place and label the cells of QUERY with a map that was trained on other cells.

    Nothing is trained, and X of QUERY is read in parts. The output is QUERY with the embedding in
    obsm["X_ce"], and for every cell the predicted class in obs["ce_label"], the confidence of this
    prediction in obs["ce_confidence"], and the difference from the training cells in
    obs["ce_novelty"].
    """
    options.check_outputs([output], [query, reference], overwrite=overwrite)
    adata, key, write = session.add_results(
        query, lambda adata: tl.ingest.job(adata, reference, **mapping)
    )

    from centroid_encoder.tl._result import obs_key

    stored = adata.uns[key]
    labels = adata.obs[obs_key(key, "label")].value_counts(sort=False)
    assigned = labels.reindex(stored["classes"].tolist())
    confidence = float(adata.obs[obs_key(key, "confidence")].mean())
    novelty = float(adata.obs[obs_key(key, "novelty")].median())
    largest = assigned[assigned > 0].sort_values(ascending=False, kind="stable")[:10]
    sentences = [
        f"{assigned.sum():,} of {adata.n_obs:,} cells are assigned to a class.",
        f"Largest classes: {', '.join(f'{name} {n:,}' for name, n in largest.items()) or 'none'}.",
        f"Mean confidence {100 * confidence:.1f} %.",
        f"Median novelty {novelty:.2f}; it is 0.50 for new cells like the training cells.",
    ]
    paths = {"input": query, "reference": reference, "output": output}
    parts = {name: stored[name] for name in ("params", "classes")}
    document = {
        **paths,
        "key": key,
        "n_obs": adata.n_obs,
        **parts,
        "labels": {str(name): n for name, n in assigned.items()},
        "n_unassigned": adata.n_obs - assigned.sum(),
        "mean_confidence": confidence,
        "median_novelty": novelty,
    }
    return Results({output: write}, sentences, document)
