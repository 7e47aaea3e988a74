"""Commands that add the results of a tool to the cells of a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from centroid_encoder import tl
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import read_cells
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


@click.command()
@options.input_file
@options.result
@click.option("--csv", type=options.Output(".csv"), help="The .csv file for the errors.")
@options.label_key
@click.option(
    "--sizes",
    callback=partial(options.split, int),
    metavar="NUMBER,…",
    help="Numbers of features. Default: 5,10,20,50,100, as far as there are more features.",
)
@click.option(
    "--n-folds", type=int, help="Number of folds. Default: 5, or fewer if there are fewer groups."
)
@click.option("--group-key", help="Column of obs with donors, which are not split between folds.")
@options.layer
@options.cells
@click.option("-j", "--jobs", "n_jobs", type=int, help="Threads of the forests; -1: all cores.")
@click.option("--key-added", help="Name of the results. Default: feature_panel.")
@options.network
@reporting
def feature_panel(
    session: Session,
    input_file: Path,
    output: Path,
    overwrite: bool,
    csv: Path | None,
    **panel: Any,
) -> Results:
    """Choose a few variables of IN that separate the classes, and measure how well they do.

    In each fold, variables are chosen in the training cells; a map, five neighbours and a random
    forest then predict the held-out cells. The output is IN with the errors in
    uns["feature_panel"], and panels that are chosen with all cells in var["feature_panel_5"] and so
    on.
    """
    options.check_outputs([output, csv], [input_file], overwrite=overwrite)
    panel["sizes"] = panel["sizes"] or None
    adata, key, write = session.add_results(
        input_file,
        lambda adata: tl.feature_panel.job(adata, **options.arguments(adata, **panel)),
    )

    from centroid_encoder.tl._result import StoredPanel
    from centroid_encoder.tl._summary import panel_summary

    stored = StoredPanel.read(adata, key)
    assert stored is not None
    files = {output: write}
    if csv is not None:
        files[csv] = lambda path: stored.errors.to_csv(path, index=False)
    paths = {"input": input_file, "output": output, "csv": csv}
    parts = {name: getattr(stored, name) for name in ("params", "classes", "errors")}
    features = stored.features.rename_axis("feature").reset_index()
    document = {**paths, "key": key, "n_obs": adata.n_obs, **parts, "features": features}
    return Results(files, panel_summary(stored), document)


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
    type=click.Choice(["error", "drop", "estimate"]),
    default="error",
    help="What to do with missing genes and NaN of QUERY: stop, leave cells with NaN out, or "
    "estimate them from the other values.",
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


@click.command()
@options.input_file
@options.output(".csv", content=": a row for each group and feature")
@click.option("--groupby", required=True, help="Column of obs with the groups.")
@click.option("--group", "groups", multiple=True, help="Group to rank, repeatable. Default: all.")
@click.option("--reference", default="rest", help="Group to compare with, or rest.")
@click.option(
    "--method",
    type=click.Choice(["auroc", "map"]),
    default="auroc",
    help="Effect sizes of the data, or what the networks of a map use.",
)
@click.option("--subset", help="Boolean column of obs with the cells to compare.")
@click.option("--group-key", help="Column of obs with donors or images, for p-values over these.")
@click.option("--key", default="ce", help="Name of the map, for the method map.")
@click.option("--use-rep", help="Key of obsm with the values.")
@click.option("--layer", help="Key of layers with the values.")
@click.option("--use-raw/--no-use-raw", default=None, help="Take the values from raw, if any.")
@click.option("--mask-var", help="Boolean column of var with the features to rank.")
@click.option("--n-features", type=int, help="Number of features of each group. Default: all.")
@reporting
def rank_features(
    session: Session, input_file: Path, output: Path, groups: tuple[str, ...], **arguments: Any
) -> Results:
    """Rank the features of groups of cells of IN by how far they differ from those of others.

    The scores are 2 AUROC - 1, in [-1, 1]; with --method map they are the mean contributions to the
    margin of the class, in logits. p-values are computed over donors, with --group-key. --json
    prints the ten best features of each group.
    """
    import numpy as np
    from scanpy.get import rank_genes_groups_df

    options.check_outputs([output], [input_file])
    with read_cells(input_file) as adata:
        tl.rank_features(adata, groups=list(groups) or "all", **arguments)
        ranking = adata.uns["rank_features"]
        names = list(ranking["names"].dtype.names)
        table = rank_genes_groups_df(adata, names, key="rank_features")
    if "group" not in table:
        table.insert(0, "group", names[0])
    for more in {"mean_differences", "deviations"} & set(ranking):
        table.insert(3, more, np.concatenate([ranking[more][name] for name in names]))
    by_group = table.groupby("group", sort=False, observed=True)
    best, paths = by_group.head(10), {"input": input_file, "output": output}
    sentences = [
        f"{name}: {', '.join(f'{row.names} {row.scores:.2f}' for row in rows[:3].itertuples())}"
        for name, rows in by_group
    ]
    document = {**paths, "params": dict(ranking["params"]), "features": best}
    return Results({output: lambda path: table.to_csv(path, index=False)}, sentences, document)
