"""How many labels a map needs: those of suggested cells against those of others.

    python -m benchmarks.labels                     # five data sets, ten splits
    python -m benchmarks.labels pbmc3k --splits 2
    python -m benchmarks.labels --wrong 0.1         # a tenth of the answers is wrong

A random 70 % of the cells are the pool and 30 % the test cells. The true labels answer. The first
batch has 20 cells, and the numbers of labels after each batch are those of `BUDGETS`; after each
batch a map is trained, from which the next batch is chosen:

- suggested: by `ce.tl.suggest`;
- random: at random;
- margin: the least difference of the two largest probabilities; the first batch is random;
- TypiClust: typical cells of parts without a label, whatever the number of labels.

Cells of the same name in all methods: at most 2,000 features of largest variance in the pool.
Prints the errors of the test cells, also with the same weight for each class, and how many
suggested labels reach the error of 1,000 random ones. Runs are added to a CSV file, from which
`python -m benchmarks.render` makes a table of docs/labelling.md. Needs the data folder.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split

import centroid_encoder as ce
from benchmarks import datasets
from benchmarks.cell_sets import N_FEATURES, load
from benchmarks.parts import append
from centroid_encoder.core import suggestion

SETS = ("vectra_6plex", "scimap_example", "pbmc3k", "paul15", "letter")
N_CELLS = 6_000
"""Cells of a data set, at most."""
LEAST = 10
"""Cells of a class; smaller classes are left out."""
BUDGETS = (20, 50, 100, 175, 250, 375, 500)
REFERENCE = 1_000
METHODS = ("suggested", "random", "margin", "TypiClust")
RESULTS = Path(__file__).parent / "results" / "labels.csv"
KEYS = ("set", "method", "wrong", "split")


def split(name: str, seed: int) -> tuple[AnnData, AnnData]:
    """Return the pool and the test cells, with the true classes in ``obs["truth"]``."""
    X, y = datasets.letter() if name == "letter" else load(name)[:2]
    y = np.asarray(y).astype(str)
    names, counts = np.unique(y, return_counts=True)
    rows = np.flatnonzero(np.isin(y, names[counts >= LEAST]))
    rows = np.random.default_rng(0).permutation(rows)[:N_CELLS]
    pool, test = train_test_split(rows, test_size=0.3, random_state=seed, stratify=y[rows])
    kept = np.sort(np.argsort(-X[pool].var(axis=0))[:N_FEATURES])
    parts = []
    for part in (pool, test):
        cells = AnnData(X[np.ix_(part, kept)].astype(np.float32))
        cells.obs_names = part.astype(str)
        cells.obs["truth"] = y[part]
        parts.append(cells)
    return parts[0], parts[1]


def chosen(pool: AnnData, n: int, method: str, seed: int) -> NDArray[np.intp]:
    """Return the rows of the next cells to label, by the map in ``uns["ce"]`` if there is one."""
    free = np.flatnonzero(pool.obs["given"].isna())
    trained = "ce" in pool.uns
    if method == "suggested":
        queue = ce.tl.suggest(pool, n=n, label_key="given", random_state=seed)
        return np.asarray(pool.obs_names.get_indexer(queue.index))
    if method == "TypiClust":
        points = suggestion.principal_points(pool.X)
        groups = np.zeros(pool.n_obs, dtype=np.intp)
        return suggestion.typical(points, pool.obs["given"].notna().to_numpy(), groups, n, seed)
    if method == "margin" and trained:
        two = np.sort(ce.tl.fitted_model(pool).predict_proba(pool[free].to_df()), axis=1)[:, -2:]
        return free[np.argsort(two[:, 1] - two[:, 0], kind="stable")[:n]]
    return np.random.default_rng(seed).permutation(free)[:n]


def rounds(name: str, method: str, wrong: float, seed: int) -> Iterator[dict[str, object]]:
    """Label batch after batch, and yield the errors after each."""
    pool, test = split(name, seed)
    rng = np.random.default_rng(seed)
    classes = np.unique(pool.obs["truth"])
    answers = pool.obs["truth"].to_numpy(dtype=object)
    is_wrong = rng.random(pool.n_obs) < wrong
    answers[is_wrong] = [rng.choice(classes[classes != own]) for own in answers[is_wrong]]
    labels = np.full(pool.n_obs, None, dtype=object)
    budgets = (REFERENCE,) if method == f"random {REFERENCE}" else BUDGETS
    for n_labels in budgets:
        n = n_labels - int((labels != None).sum())  # noqa: E711
        pool.obs["given"] = pd.Categorical(labels, classes)
        rows = chosen(pool, n, method, 1000 * seed + n_labels)
        labels[rows] = answers[rows]
        pool.obs["given"] = pd.Categorical(labels, classes)
        ce.tl.centroid_encoder(pool, "given", test_size=0, progress=False)
        ce.tl.ingest(test, pool, progress=False)
        truth, found = test.obs["truth"], test.obs["ce_label"].astype(str)
        yield {
            "set": name,
            "method": method,
            "wrong": wrong,
            "split": seed,
            "labels": n_labels,
            "error": (truth != found).mean(),
            "balanced_error": 1 - balanced_accuracy_score(truth, found),
        }


def needed(errors: pd.Series, goal: float) -> float:
    """Return the number of labels at which errors, by number of labels, reach a goal; or NaN.

    Between two numbers of labels, the error is taken to be linear.
    """
    n, values = errors.index.to_numpy(float), errors.to_numpy()
    if (values > goal).all():
        return np.nan
    last = int(np.argmax(values <= goal))
    if last == 0:
        return float(n[0])
    share = (values[last - 1] - goal) / (values[last - 1] - values[last])
    return float(n[last - 1] + share * (n[last] - n[last - 1]))


def main() -> None:
    """Run what is not in the file, and print the mean errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # An empty list of choices is all of them.
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--method", action="append", choices=METHODS, help="default: all")
    parser.add_argument("--wrong", type=float, default=0.0, help="share of wrong answers")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    path: Path = arguments.results
    for seed in range(arguments.splits):
        for name in arguments.sets or SETS:
            for method in (*(arguments.method or METHODS), f"random {REFERENCE}"):
                found = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=KEYS)
                key: tuple[Any, ...] = (name, method, arguments.wrong, seed)
                if (found[list(KEYS)] == key).all(axis=1).any():
                    continue
                rows = list(rounds(name, method, arguments.wrong, seed))
                for row in rows:
                    append(path, row)
                errors = ", ".join(f"{row['labels']}: {100 * row['error']:.1f}" for row in rows)  # type: ignore[operator]
                print(f"{name}, {method}, split {seed}: {errors}", flush=True)


if __name__ == "__main__":
    main()
