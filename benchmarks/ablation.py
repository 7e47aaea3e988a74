"""What each ingredient of the default recipe buys: take one away at a time.

    python -m benchmarks.ablation

Five runs of each experiment, other ones than those of the tables; five seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods import centroid_encoder
from benchmarks.protocols import EXPERIMENTS, N_FOLDS

WITHOUT: dict[str, dict[str, Any]] = {
    "default": {},
    "no compactness": {"compactness": 0.0},
    "no pre-training": {"pretrain_epochs": 0},
    "pre-training everywhere": {"pretrain_epochs": 30},
    "weight decay 1 everywhere": {"weight_decay": 1.0},
    "no weight decay": {"weight_decay": 0.0},
    "no dropout": {"dropout": 0.0},
    "scale of each feature, unweighted": {"scale": "feature"},
    "output in the input space": {"output": "full"},
    "constant learning rate": {"schedule": "constant", "learning_rate": 1e-3},
}
N_RUNS = 5
# The tables hold the first ones.
FIRST = {"letter": 10 * N_FOLDS, "landsat": 10 * N_FOLDS, "phoneme": 10 * N_FOLDS, "usps-1000": 25}


def errors(name: str, params: dict[str, Any]) -> NDArray[np.float64]:
    """(N_RUNS, 2) errors by neighbours and by Voronoi cells, in percent."""
    found = []
    for run in range(FIRST[name], FIRST[name] + N_RUNS):
        X, y, X_test, y_test = EXPERIMENTS[name].run(run)
        classes, codes = np.unique(y, return_inverse=True)
        decisions = centroid_encoder(**params)(name, X, codes, X_test, run)
        truth = np.searchsorted(classes, y_test)
        found.append([100 * (decisions[rule] != truth).mean() for rule in ("knn", "voronoi")])
    return np.array(found)


def main() -> None:
    """Print the table."""
    titles = [EXPERIMENTS[name].title for name in FIRST]
    print(f"| | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    for what, params in WITHOUT.items():
        cells = []
        for name in FIRST:
            found = errors(name, params)
            knn, voronoi = found.mean(axis=0)
            spread = found[:, 0].std(ddof=1)
            cells.append(f"{knn:.1f} ± {spread:.1f} / {voronoi:.1f}")
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
