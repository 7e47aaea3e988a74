"""``centroid-encoder ingest``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from centroid_encoder import tl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_cells, with_results
from centroid_encoder.cli._session import Results, Session, reporting
from centroid_encoder.tl._result import colors_key, embedding_key, obs_key

if TYPE_CHECKING:
    import pandas as pd

MAX_CLASSES = 10
"""Number of classes that the output lists."""


@click.command()
@click.argument("query", type=options.INPUT)
@options.result
@options.of("tl.ingest")
@reporting
def ingest(work: Session, query: Path, reference: Path, output: Path, **mapping: Any) -> Results:
    """Place and label the cells of QUERY with a map that was trained on others.

    Nothing is trained, and X of QUERY never comes into memory as a whole. The output is QUERY with
    the embedding in obsm["X_ce"], and for every cell its predicted class in obs["ce_label"], the
    confidence of that in obs["ce_confidence"], and its distance from the training cells in
    obs["ce_novelty"].
    """
    adata = read_cells(query, matrix=False)
    with closing(adata.file):
        job = tl.ingest.job(adata, reference, **mapping)
        work.run(job, adata)
    key = job.key
    keys = [name for name in (key, colors_key(obs_key(key, "label"))) if name in adata.uns]
    stored = adata.uns[key]
    labels = adata.obs[obs_key(key, "label")].value_counts(sort=False)
    assigned = labels.reindex(stored["classes"].tolist())
    confidence = float(adata.obs[obs_key(key, "confidence")].mean())
    novelty = float(adata.obs[obs_key(key, "novelty")].median())
    document = {
        "input": query,
        "reference": reference,
        "output": output,
        "key": key,
        "n_obs": adata.n_obs,
        **{name: stored[name] for name in ("params", "classes")},
        "labels": {str(name): n for name, n in assigned.items()},
        "n_unassigned": adata.n_obs - assigned.sum(),
        "mean_confidence": confidence,
        "median_novelty": novelty,
    }
    return Results(
        {output: with_results(query, output, adata, obsm=[embedding_key(key)], uns=keys)},
        _sentences(adata.n_obs, assigned, confidence, novelty),
        document,
    )


def _sentences(n_obs: int, assigned: pd.Series, confidence: float, novelty: float) -> Iterator[str]:
    yield f"{assigned.sum():,} of {n_obs:,} cells are assigned to a class."
    found = assigned[assigned > 0].sort_values(ascending=False, kind="stable")
    named = [f"{name} {n:,}" for name, n in found.items()]
    if named:
        more = f" and {len(named) - MAX_CLASSES} more" if len(named) > MAX_CLASSES else ""
        yield f"Classes: {', '.join(named[:MAX_CLASSES])}{more}."
    yield f"Mean confidence {100 * confidence:.1f} %."
    if math.isfinite(novelty):
        yield f"Median novelty {novelty:.2f}; of new cells like those in training it is 0.50."
