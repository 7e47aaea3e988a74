"""Error of a map by the number of labelled cells, for four ways to choose the cells to label.

    python -m benchmarks.labels                     # five data sets, ten splits
    python -m benchmarks.labels pbmc3k --splits 2
    python -m benchmarks.labels --wrong 0.1         # a tenth of the labels is wrong

The benchmark simulates an annotator on data whose true labels are known. In each split, a random
70 % of the cells are the pool and the other 30 % are the test cells. All methods get the same pool,
test cells and features: the 2,000 features with the largest variance in the pool, or all if there
are fewer. A run starts without labels. In each round, the method chooses cells of the pool, these
cells get their true labels, a map is trained on all labelled cells, and the map classifies the test
cells. After the rounds there are 20, 50, 100, 175, 250, 375 and 500 labels. With `--wrong`, a share
of the cells gets the label of another class instead. The methods choose:

- suggested: the cells that `ce.tl.suggest` returns;
- random: cells at random;
- margin: the cells with the smallest difference between the two largest class probabilities; cells
  at random in the first round, when there is no map;
- TypiClust: typical cells of the clusters with the fewest labels, in all rounds.

A run with 1,000 cells chosen at random is the reference. The program prints the error of the test
cells after each round, and adds it to a CSV file together with the balanced error, the mean of the
errors of the classes. Runs that the file has already are not repeated. From the file,
`python -m benchmarks.render` makes the tables of docs/labelling.md, which also give the number of
labels with which each method reaches the error of the reference. Needs the data folder.
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
"""Largest number of cells that are used of a data set."""
MIN_CLASS_SIZE = 10
"""Smallest number of cells of a class; smaller classes are left out."""
BUDGETS = (20, 50, 100, 175, 250, 375, 500)
"""Total numbers of labels after each round."""
REFERENCE = 1_000
"""Number of labels of the reference, whose cells are chosen at random."""
METHODS = ("suggested", "random", "margin", "TypiClust")
RESULTS = Path(__file__).parent / "results" / "labels.csv"
KEYS = ("set", "method", "wrong", "split")
"""Columns that identify a run."""


def split(name: str, seed: int) -> tuple[AnnData, AnnData]:
    """Return the pool and the test cells of a split, with the true classes in ``obs["truth"]``."""
    X, y = datasets.letter() if name == "letter" else load(name)[:2]
    y = np.asarray(y).astype(str)
    names, counts = np.unique(y, return_counts=True)
    rows = np.flatnonzero(np.isin(y, names[counts >= MIN_CLASS_SIZE]))
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
    """Return the rows in the pool of the next n cells to label.

    ``obs["given"]`` holds the labels so far. The methods "suggested" and "margin" use the map in
    ``uns["ce"]``, if there is one. Any method without a rule here chooses at random.
    """
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
    """Label cells in rounds, and yield the errors on the test cells after each round.

    ``wrong`` is the share of the pool whose cells get the label of another class, at random.
    """
    pool, test = split(name, seed)
    rng = np.random.default_rng(seed)
    classes = np.unique(pool.obs["truth"])
    answers = pool.obs["truth"].to_numpy(dtype=object)
    is_wrong = rng.random(pool.n_obs) < wrong
    answers[is_wrong] = [rng.choice(classes[classes != own]) for own in answers[is_wrong]]
    labels = np.full(pool.n_obs, None, dtype=object)
    for n_labels in (REFERENCE,) if method == f"random {REFERENCE}" else BUDGETS:
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
    """Return the number of labels with which the error reaches a goal, or NaN if it does not.

    The index of ``errors`` holds the numbers of labels. Between two of them, the error is
    interpolated linearly.
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
    """Run what the file does not have yet, and print the errors of each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"data sets; default: all of {', '.join(SETS)}"
    )
    parser.add_argument("--method", action="append", choices=METHODS, help="default: all")
    parser.add_argument("--wrong", type=float, default=0.0, help="share of wrong labels")
    parser.add_argument("--splits", type=int, default=10, help="number of splits")
    parser.add_argument("--results", type=Path, default=RESULTS, help="CSV file of the runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    path: Path = arguments.results
    for seed in range(arguments.splits):
        for name in arguments.sets or SETS:
            for method in arguments.method or (*METHODS, f"random {REFERENCE}"):
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
