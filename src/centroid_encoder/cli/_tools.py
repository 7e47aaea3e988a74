"""Commands for the cells of a file: tools whose results are added to a copy, and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from centroid_encoder import tables, tl
from centroid_encoder._signature import description
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_cells, with_results
from centroid_encoder.cli._report import Results, Session, reporting

CELLS = [options.input_file, options.role]
"""The file with the cells, which may be a table."""
COPY = ": a copy of the input with the results, of the same kind"


def _adding(
    function: str, describe: Callable[..., Results], own: Sequence[click.Option] = ()
) -> click.Command:
    """Return the command that adds the results of a function of `tl` to the cells of a file.

    `describe` is called with the cells, the key of the results and the values of the command's
    `own` options. It returns what is written and printed beside the results themselves.
    """
    output = options.output(".h5ad", ".zarr", content=COPY)
    params = [*CELLS, output, options.overwrite, *own, *options.of(f"tl.{function}")]
    name, text = describe.__name__.replace("_", "-"), description(f"tl.{function}")

    @click.command(name, params=params, help=text)
    @reporting
    def command(session: Session, input: Path, output: Path, roles: Any, **given: Any) -> Results:
        from centroid_encoder.tl._run import run_job

        values = {option.name: given.pop(option.name) for option in own}
        with read_cells(input, roles) as adata:
            tables.check_writable(adata)
            job = getattr(tl, function).job(adata, **options.arguments(adata, given))
            run_job(job, progress=not session.quiet, warn=session.warn)
            job.write(adata)
            write = with_results(input, adata, job.results)
        files, sentences, document = describe(adata, job.key, **values)
        document = {"key": job.key, "n_obs": adata.n_obs, **document}
        return Results({output: write, **files}, sentences, document)

    return command


@partial(
    _adding,
    "centroid_encoder",
    own=[options.file("--model-out model", ".safetensors", content=": the map alone")],
)
def fit(adata: Any, key: str, model: Path | None) -> Results:
    """Describe a map, which is also written alone to `model`."""
    from centroid_encoder.tl._summary import summary

    files = {model: lambda path: tl.fitted_model(adata, key, device="cpu").save(path)}
    document = {name: adata.uns[key][name] for name in ("params", "classes", "quality")}
    return Results(files, summary(adata, key), document)


@partial(
    _adding,
    "cross_validate",
    own=[
        options.file("--mislabeled", ".csv", content=": suspect labels, the worst first"),
        *options.of("tl.mislabeled", without=["key"]),
    ],
)
def cross_validate(adata: Any, key: str, mislabeled: Path | None, max_own: float | None) -> Results:
    """Describe a cross-validation; cells that look mislabelled are written to `mislabeled`."""
    from centroid_encoder.tl._summary import summary

    suspects = tl.mislabeled(adata, key=key, max_own=max_own)
    sentences = [*summary(adata, key), f"Cells that look mislabelled: {len(suspects):,}."]
    names = ("params", "classes", "quality", "errors", "per_class", "confusion", "permutation")
    stored = adata.uns[tables.cv_key(key)]
    document = {"n_mislabeled": len(suspects), **{name: stored.get(name) for name in names}}
    document |= {"levels": stored["levels"]} if "levels" in stored else {}
    files = {mislabeled: lambda path: suspects.to_csv(path, index_label="cell")}
    return Results(files, sentences, document)


@partial(_adding, "feature_panel", own=[options.file("--csv", ".csv", content=": the errors")])
def feature_panel(adata: Any, key: str, csv: Path | None) -> Results:
    """Describe panels of features, whose errors are also written to `csv`."""
    from centroid_encoder.tl._result import StoredPanel
    from centroid_encoder.tl._summary import panel_summary

    stored = StoredPanel.read(adata, key)
    assert stored is not None
    document = {name: getattr(stored, name) for name in ("params", "classes", "errors")}
    document["features"] = stored.features.rename_axis("feature").reset_index()
    files = {csv: lambda path: stored.errors.to_csv(path, index=False)}
    return Results(files, panel_summary(stored), document)


@partial(_adding, "ingest")
def ingest(adata: Any, key: str) -> Results:
    """Describe the labels of new cells."""
    from centroid_encoder.tl._result import UNASSIGNED, StoredMap
    from centroid_encoder.tl._summary import expected_words

    stored = adata.uns[key]
    labels = adata.obs[tables.obs_key(key, "label")].value_counts(sort=False)
    names = [*stored["classes"].tolist(), *labels.index]  # Parents of classes are last.
    assigned = labels.reindex([x for x in dict.fromkeys(names) if x != UNASSIGNED], fill_value=0)
    confidence = float(adata.obs[tables.obs_key(key, "confidence")].mean())
    novelty = float(adata.obs[tables.obs_key(key, "novelty")].median())
    largest = assigned[assigned > 0].sort_values(ascending=False, kind="stable")[:10]
    sentences = [
        f"{assigned.sum():,} of {adata.n_obs:,} cells are assigned to a class.",
        f"Largest classes: {', '.join(f'{name} {n:,}' for name, n in largest.items()) or 'none'}.",
        f"Mean confidence {100 * confidence:.1f} %.",
        f"Median novelty {novelty:.2f}; it is 0.50 for new cells like the training cells.",
    ]
    of_map = StoredMap.read(adata, key)
    assert of_map is not None
    if expected := expected_words(of_map, adata.n_obs):
        rough = " (a rough estimate)" if of_map.compared is None else ""
        sentences.insert(0, f"{expected[0].upper()}{expected[1:]}{rough}.")
    document = {
        **{name: stored[name] for name in ("params", "classes", "compared") if name in stored},
        "labels": {str(name): n for name, n in assigned.items()},
        "n_unassigned": adata.n_obs - assigned.sum(),
        "mean_confidence": confidence,
        "median_novelty": novelty,
    }
    return Results({}, sentences, document)


RANKING = options.output(".csv", content=": a row for each group and feature")


@click.command(params=[*CELLS, RANKING, *options.of("tl.rank_features", without=["key_added"])])
@reporting
def rank_features(session: Session, input: Path, output: Path, roles: Any, **given: Any) -> Results:
    """Rank the features of groups of cells of IN by how far they differ from those of others.

    The scores are 2 AUROC - 1, in [-1, 1]; with --method map they are the mean contributions to the
    margin of the class, in logits. p-values are computed over donors, with --group-key. --json
    prints the ten best features of each group.
    """
    from scanpy.get import rank_genes_groups_df

    from centroid_encoder.tl._run import run_job

    with read_cells(input, roles) as adata:
        job = tl.rank_features.job(adata, **given)
        run_job(job, progress=not session.quiet, warn=session.warn)
        ranking = adata.uns["rank_features"] = job.results["uns"]["rank_features"]
        names = list(ranking["names"].dtype.names)
        table = rank_genes_groups_df(adata, names, key="rank_features")
    if "group" not in table:
        table.insert(0, "group", names[0])
    for more in {"mean_differences", "deviations"} & set(ranking):
        table.insert(3, more, [x for name in names for x in ranking[more][name]])
    by_group = table.groupby("group", sort=False, observed=True)
    sentences = [
        f"{name}: {', '.join(f'{row.names} {row.scores:.2f}' for row in rows[:3].itertuples())}"
        for name, rows in by_group
    ]
    document = {"params": dict(ranking["params"]), "features": by_group.head(10)}
    return Results({output: partial(table.to_csv, index=False)}, sentences, document)


def _listing(function: str) -> click.Command:
    """Return the command that writes the cells which a function of `tl` lists."""
    output = options.output(".csv", content=": a row for each cell")
    params = [*CELLS, output, *options.of(f"tl.{function}")]

    @click.command(function, params=params, help=description(f"tl.{function}"))
    @reporting
    def listing(session: Session, input: Path, output: Path, roles: Any, **given: Any) -> Results:
        with read_cells(input, roles) as adata:
            table = getattr(tl, function)(adata, **options.arguments(adata, given))
        document = {"n_cells": len(table), "cells": table.rename_axis("cell").reset_index()}
        write = partial(table.to_csv, index_label="cell")
        return Results({output: write}, [f"Cells in the list: {len(table):,}."], document)

    return listing


COMMANDS = [fit, cross_validate, feature_panel, ingest, rank_features]
COMMANDS += [_listing("misplaced"), _listing("suggest")]
