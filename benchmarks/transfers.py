"""How well the expected error of new cells agrees with their true error.

    python -m benchmarks.transfers             # all transfers, to benchmarks/results/transfers.csv
    python -m benchmarks.transfers --summary   # the tables of that file again
    python -m benchmarks.transfers --parents   # cells that a coarser class saves

A transfer has a reference on which a map is trained, and a query that is ingested. They are
technologies of one data set, or two random parts of one. In the second case, the query is changed:
by gains and offsets of its features, by other frequencies of the classes, or by leaving out classes
of the query or of the reference. Formula and threshold may be chosen on the sets of `DEVELOP`; the
other sets take no part in a choice.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.datasets import load_digits

import centroid_encoder as ce
from benchmarks import cell_sets, datasets
from centroid_encoder.tl._ingest import TOO_MANY

RESULTS = Path(__file__).parent / "results" / "transfers.csv"
DEVELOP = ("pbmc3k", "landsat", "digits")
SETS = (*DEVELOP, "pbmc_3tech", "paul15", "scimap_example", "pbmc68k_reduced", "letter")
N_CELLS = 2_000
"""Largest number of cells of a data set."""
N_GENES = 1_000
LEAST = 10
"""Smallest number of cells of a class."""
SHIFTS = (0.25, 0.5, 1.0)
"""Standard deviation of the offsets, relative to that of the feature, and of the log gains."""
N_SEEDS = 3
FAILED, FINE = 0.2, 0.1
"""A transfer fails above the first error, and is fine below the second."""


def load(name: str, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """Return (n, d) values, (n,) classes and (n,) donors or None."""
    groups = None
    if name in cell_sets.SETS:
        X, y, groups = cell_sets.load(name)
        X = X[:, np.sort(np.argsort(-X.var(axis=0), kind="stable")[:N_GENES])]
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        X, y = getattr(datasets, name)()
    names, counts = np.unique(y, return_counts=True)
    rows = np.flatnonzero(np.isin(y, names[counts >= LEAST]))
    rows = np.sort(rng.permutation(rows)[:N_CELLS])
    X, y = np.asarray(X[rows], np.float32), np.asarray(y[rows]).astype(str)
    return X, y, None if groups is None else groups[rows]


def table(X: NDArray[Any], y: NDArray[Any]) -> AnnData:
    return AnnData(X, obs=pd.DataFrame({"kind": pd.Categorical(y)}, index=map(str, range(len(y)))))


def queries(
    X: NDArray[Any], y: NDArray[Any], deviation: NDArray[Any], rng: np.random.Generator
) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Yield the name, values and classes of changed queries."""
    classes, d = np.unique(y), X.shape[1]
    yield "unchanged", X, y
    for size in SHIFTS:
        shift = rng.normal(0, size, d) * deviation
        yield f"offsets {size}", X + shift, y
        yield f"gains {size}", X * np.exp(rng.normal(0, size, d)), y
        share = rng.dirichlet(np.ones(len(classes)))[np.searchsorted(classes, y)]
        counts = np.unique(y, return_inverse=True, return_counts=True)
        p = share / counts[2][counts[1]]
        rows = rng.choice(len(y), len(y), p=p / p.sum())
        yield f"offsets {size}, other frequencies", X[rows] + shift, y[rows]
    for name, some in (("half of the classes", len(classes) // 2), ("one class", 1)):
        rows = np.flatnonzero(np.isin(y, rng.choice(classes, max(some, 1), replace=False)))
        yield name, X[rows], y[rows]
        yield f"{name}, offsets 0.5", X[rows] + rng.normal(0, 0.5, d) * deviation, y[rows]


def measured(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each transfer of a data set."""
    rng = np.random.default_rng(seed)
    X, y, groups = load(name, rng)
    if groups is not None:
        for held_out in np.unique(groups):
            others = np.flatnonzero(groups != held_out)
            reference, rows = (
                trained(X[others], y[others], seed),
                np.flatnonzero(groups == held_out),
            )
            yield {"query": f"without {held_out}", **judged(reference, X[rows], y[rows])}
        for first in np.unique(groups):
            reference = trained(X[groups == first], y[groups == first], seed)
            for other in np.unique(groups[groups != first]):
                rows = np.flatnonzero(groups == other)
                yield {"query": f"{first} → {other}", **judged(reference, X[rows], y[rows])}
        return
    train = rng.random(len(y)) < 0.5
    reference = trained(X[train], y[train], seed)
    deviation = X[train].std(axis=0)
    for query, values, kinds in queries(X[~train], y[~train], deviation, rng):
        yield {"query": query, **judged(reference, values, kinds)}
    names, counts = np.unique(y[train], return_counts=True)
    unknown = rng.choice(names[counts < counts.sum() / 2])
    known = train & (y != unknown)
    yield {
        "query": "an unknown class",
        **judged(trained(X[known], y[known], seed), X[~train], y[~train]),
    }


def trained(X: NDArray[Any], y: NDArray[Any], seed: int) -> AnnData:
    adata = table(X, y)
    ce.tl.centroid_encoder(adata, "kind", random_state=seed, progress=False)
    return adata


def judged(reference: AnnData, X: NDArray[Any], y: NDArray[Any]) -> dict[str, Any]:
    """Ingest a query, and compare the expected with the true error."""
    query = table(X.astype(np.float32), y)
    job = ce.tl.ingest.job(query, reference)
    job.run()
    job.write(query)
    params = query.uns["ce"]["params"]
    return {
        "n": len(y),
        "error": float((query.obs["ce_label"].astype(str) != y).mean()),
        "expected": params["expected_error"],
        "changed": params["changed_by_recentring"],
        "doubt": 1 - float(query.obs["ce_confidence"].mean()),
        "shifted": any("as a whole" in notice for notice in job.notices),
    }


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the agreement with the true error, and the warnings, of formulas and thresholds."""
    r, doubt = rows["changed"], rows["doubt"]
    formulas = {
        "larger of both": np.maximum(r, doubt),
        "1 − confidence": doubt,
        "changed": r,
        "either": 1 - (1 - r) * (1 - doubt),
        "mean": (r + doubt) / 2,
    }
    failed, fine = rows["error"] > FAILED, rows["error"] < FINE
    found = []
    for name, expected in formulas.items():
        agreement = spearmanr(expected, rows["error"]).statistic
        row = {"formula": name, "rank correlation": agreement}
        row["mean difference"] = 100 * (expected - rows["error"]).abs().mean()
        for level in (0.1, TOO_MANY, 0.2):
            row[f"missed at {level}"] = int((failed & (expected < level)).sum())
            row[f"false at {level}"] = int((fine & (expected >= level)).sum())
        found.append(row)
    shifted = rows["shifted"].astype(bool)
    found.append(
        {
            "formula": "warning of a shift",
            f"missed at {TOO_MANY}": int((failed & ~shifted).sum()),
            f"false at {TOO_MANY}": int((fine & shifted).sum()),
        }
    )
    print(f"{len(rows)} transfers: {failed.sum()} fail, {fine.sum()} are fine")
    return pd.DataFrame(found).set_index("formula").round(2)


def parents() -> None:
    """Place each technology in maps of the two others, with and without parents of the classes."""
    adata = datasets.read_h5ad("pbmc_3tech/pbmc_3tech.h5ad")
    sizes = adata.obs["cell_type"].value_counts()
    adata = adata[adata.obs["cell_type"].isin(sizes.index[sizes >= 20])].copy()
    adata.obs = adata.obs[["cell_type", "cell_type_broad", "donor"]].astype(str).astype("category")
    rows = []
    for donor in adata.obs["donor"].cat.categories:
        is_query = adata.obs["donor"] == donor
        for seed in range(N_SEEDS):
            reference = adata[~is_query].copy()
            ce.tl.centroid_encoder(reference, "cell_type", random_state=seed, progress=False)
            for least in (0.5, 0.8, 0.9):
                for column in (None, "cell_type_broad"):
                    query = adata[is_query].copy()
                    given: dict[str, Any] = {
                        "min_confidence": least,
                        "parents": column,
                        "progress": False,
                    }
                    ce.tl.ingest(query, reference, **given)
                    label, obs = query.obs["ce_label"].astype(str), query.obs
                    level = obs.get("ce_level", pd.Series(0, obs.index)).where(
                        label != "unassigned", -1
                    )
                    truth = obs["cell_type"].astype(str).where(level < 1, obs["cell_type_broad"])
                    wrong, coarse = label[level >= 0] != truth[level >= 0], level == 1
                    row = {"least": least, "parents": column or "none"}
                    row |= {"unassigned": 100 * (level < 0).mean(), "error": 100 * wrong.mean()}
                    row |= {"with a parent": 100 * coarse.mean()}
                    row["their confidence"] = 100 * obs.loc[coarse, "ce_confidence"].mean()
                    row["right"] = 100 * (label == truth)[coarse].mean()
                    rows.append(row)
    print(pd.DataFrame(rows).groupby(["least", "parents"]).mean().round(1).to_string())


def main() -> None:
    """Measure what the file does not have yet, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--summary", action="store_true", help="only print the tables of the file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="CSV file to write")
    parser.add_argument("--parents", action="store_true", help="measure parents of classes")
    arguments = parser.parse_args()
    logging.getLogger("centroid_encoder").setLevel(logging.ERROR)
    if arguments.parents:
        parents()
        return
    path = arguments.output
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    done = {(row["set"], row["seed"]) for row in rows}
    for seed in range(0 if arguments.summary else N_SEEDS):
        for name in SETS:
            if (name, seed) not in done:
                rows += [{"set": name, "seed": seed, **row} for row in measured(name, seed)]
                pd.DataFrame(rows).to_csv(path, index=False, float_format="%.4f")
                print(name, seed, flush=True)
    found = pd.DataFrame(rows)
    few = found["query"].str.contains("class")
    chosen = found["set"].isin(DEVELOP)
    for title, part in (("chosen on", chosen), ("reported", ~chosen)):
        for kind, also in (("all classes", ~few), ("few or unknown classes", few)):
            print(f"\n{title}, {kind}:")
            print(summary(found[part & also]).to_string())


if __name__ == "__main__":
    main()
