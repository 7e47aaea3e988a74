"""Ways to choose a few features, compared by the errors of held-out cells.

    python -m benchmarks.panels pbmc3k

The splits are the first three of `benchmarks.cell_sets`, with its 2,000 features. Features are
chosen in the training cells only. The judges are five neighbours by z-scores and a random forest.
The errors of `tl.feature_panel`, with the map as a judge, are those of the command line:

    centroid-encoder feature-panel pbmc3k_annotated.h5ad --label-key classified -o panels.h5ad

- *bound*: `core.panels`, the method of `tl.feature_panel`.
- *forest*: the largest importances of a random forest.
- *halving*: the same, where the least important half is left out and a new forest is grown.
- *classes in turn*: the feature with the largest AUROC of each class against all others.
- *network, halving*: the largest mean of \\|gradient × z-score\\| of a network that maps cells to
  their class means, in the same rounds.
- *sparse network*: the largest weights of a one-to-one input layer of such a network, with an l1
  penalty (Ghosh & Kirby's sparse centroid-encoder).

Prints errors in percent, the balanced ones in parentheses. Needs the data folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import islice, pairwise

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.cell_sets import SETS, load, splits
from centroid_encoder.core.panels import choose_features

Floats = NDArray[np.float32]
Codes = NDArray[np.intp]
SIZES = (5, 10, 20, 50)
ROUNDS = (1000, 500, 250, 100, 50, 28, 20, 14, 10, 7, 5)
"""Numbers of features after each round of halving."""
N_SPLITS = 3
L1 = 1e-3
"""Decrease of the weights of the input layer after each step."""


def forest(X: Floats, codes: Codes) -> NDArray[np.float64]:
    """(d,) importances of the features."""
    grown = RandomForestClassifier(300, class_weight="balanced_subsample", random_state=0)
    return np.asarray(grown.fit(X, codes).feature_importances_)


def network(X: Floats, codes: Codes, l1: float = 0.0) -> NDArray[np.float64]:
    """(d,) importances of the features: weights of the input layer with `l1`, or gradients."""
    torch.manual_seed(0)
    z = torch.tensor(StandardScaler().fit_transform(X).clip(-10, 10), dtype=torch.float32)
    y = torch.tensor(codes)
    centers = torch.stack([z[y == j].mean(dim=0) for j in range(int(y.max()) + 1)])
    centers -= centers.mean(dim=0)
    targets = centers @ torch.linalg.svd(centers, full_matrices=False)[2].T
    targets = targets / targets.std()
    weight = torch.tensor(1 / np.sqrt(np.bincount(codes)), dtype=torch.float32)[y]
    weight = weight / weight.mean()
    gate = torch.ones(z.shape[1], requires_grad=True)
    sizes = (z.shape[1], 128, 64, targets.shape[1])
    layers = [torch.nn.Linear(*both) for both in pairwise(sizes)]
    relu = torch.nn.ReLU()
    encoder = torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2])
    groups = [{"params": encoder.parameters(), "lr": 2e-3, "weight_decay": 1e-2}]
    groups += [{"params": [gate], "lr": 5e-3, "weight_decay": 0.0}] if l1 else []
    optimizer = torch.optim.AdamW(groups)
    for _ in range(60 if l1 else 25):
        for rows in torch.randperm(len(y)).split(128):
            misses = (encoder(z[rows] * gate) - targets[y[rows]]).square().mean(dim=1)
            optimizer.zero_grad()
            (weight[rows] * misses).mean().backward()
            optimizer.step()
            if l1:
                with torch.no_grad():
                    gate.copy_(gate.sign() * (gate.abs() - l1).clamp(min=0))
    if l1:
        return gate.detach().abs().double().numpy()
    inputs, found = z.clone().requires_grad_(), torch.zeros(z.shape[1])
    for output in encoder(inputs).sum(dim=0):
        (gradient,) = torch.autograd.grad(output, inputs, retain_graph=True)
        found += (gradient * z).abs().mean(dim=0)
    return found.double().numpy()


Importances = Callable[[Floats, Codes], NDArray[np.float64]]


def largest(importances: Importances, X: Floats, codes: Codes) -> dict[int, Codes]:
    """Return the features of each size with the largest importances."""
    order = np.argsort(-importances(X, codes))
    return {size: order[:size] for size in SIZES}


def halving(importances: Importances, X: Floats, codes: Codes) -> dict[int, Codes]:
    """Return the features of each size after rounds that leave out the least important ones."""
    kept, found = np.arange(X.shape[1]), {}
    for size in ROUNDS:
        kept = kept[np.argsort(-importances(X[:, kept], codes))[:size]]
        found[size] = kept
    return {size: found[size] for size in SIZES}


def in_turn(X: Floats, codes: Codes) -> dict[int, Codes]:
    """Return the features with the largest AUROC of each class, one class after the other."""
    ranks, classes = rankdata(X, axis=0), np.unique(codes)
    means = np.array([ranks[codes == j].mean(axis=0) for j in classes])
    others = np.array([ranks[codes != j].mean(axis=0) for j in classes])
    order = np.argsort(-np.abs(means - others), axis=1)
    found = list(dict.fromkeys(order.T.ravel().tolist()))
    return {size: np.array(found[:size]) for size in SIZES}


def bound(X: Floats, codes: Codes) -> dict[int, Codes]:
    """Return the features that `tl.feature_panel` chooses."""
    order = choose_features(X, codes, max(SIZES), lambda: None)
    return {size: order[:size] for size in SIZES}


METHODS: dict[str, Callable[[Floats, Codes], dict[int, Codes]]] = {
    "bound": bound,
    "forest": partial(largest, forest),
    "halving": partial(halving, forest),
    "classes in turn": in_turn,
    "network, halving": partial(halving, network),
    "sparse network": partial(largest, partial(network, l1=L1)),
}


def compare(name: str) -> pd.DataFrame:
    """Return the errors of the judges with the features that each method chooses."""
    rows = []
    for split in islice(splits(*load(name)), N_SPLITS):
        for method, choose in METHODS.items():
            for size, kept in choose(split.X, split.codes).items():
                judges = {
                    "5-NN": make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
                    "forest": RandomForestClassifier(random_state=1),
                }
                for judge, model in judges.items():
                    found = model.fit(split.X[:, kept], split.codes).predict(split.X_test[:, kept])
                    wrong = pd.Series(found != split.truth)
                    errors = wrong.mean(), wrong.groupby(split.truth).mean().mean()
                    rows.append((method, judge, size, *errors))
    columns = ["method", "judge", "size", "error", "balanced_error"]
    return pd.DataFrame(rows, columns=columns).groupby(columns[:3], sort=False).mean().reset_index()


def main() -> None:
    """Print the errors with a data set."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=SETS)
    table = compare(parser.parse_args().name)
    percent = (100 * table.filter(regex="error")).round(1).astype(str)
    table["words"] = percent["error"] + " (" + percent["balanced_error"] + ")"
    rows = ["method", "judge"]
    print(table.pivot_table("words", rows, "size", aggfunc="first", sort=False).to_string())


if __name__ == "__main__":
    main()
