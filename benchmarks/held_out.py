"""Held-out errors of `CentroidEncoder` under the paper's protocols, and on two sets of cells.

    python -m benchmarks.held_out usps mnist --seeds 3
    python -m benchmarks.held_out letter phoneme --recipe paper
    python -m benchmarks.held_out pbmc3k --seeds 5

Prints the mean and standard deviation of the 5-NN, decoder and Voronoi error in two dimensions, in
percent, and the mean seconds of a fit.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks import datasets
from benchmarks.methods import BOTTLENECK
from benchmarks.protocols import EXPERIMENTS, N_FOLDS, Split
from centroid_encoder import CentroidEncoder, tl
from centroid_encoder.core.quality import knn_predict, nearest_center

CELLS = {
    "pbmc3k": ("pbmc3k/pbmc3k_annotated.h5ad", "classified"),
    "vectra": ("vectra_6plex/cells.h5ad", "phenotype"),
}
"""File and label column of the sets of cells. `tl.centroid_encoder` holds cells out itself."""


def evaluate_cells(
    name: str, seed: int, model: CentroidEncoder
) -> tuple[float, float, float, float]:
    """Train on cells; return the 5-NN, decoder and Voronoi error, and the seconds of the call."""
    path, label_key = CELLS[name]
    adata = datasets.read_h5ad(path)
    start = time.perf_counter()
    tl.centroid_encoder(
        adata, label_key, random_state=seed, model=model, missing="mean", progress=False
    )
    seconds = time.perf_counter() - start
    test = adata.uns["ce"]["quality"]["test"]
    return test["knn_error"], test["decoder_error"], test["voronoi_error"], seconds


def evaluate(model: CentroidEncoder, split: Split) -> tuple[float, float, float, float]:
    """Fit to the training part; return the three errors on the test part, and the seconds."""
    X, y, X_test, y_test = split
    start = time.perf_counter()
    classes, codes = np.unique(y, return_inverse=True)
    fit = model.fit_codes(X, codes, classes)
    seconds = time.perf_counter() - start
    embedding = model.transform(X_test)
    truth = np.searchsorted(model.classes_, y_test)
    knn, decoder, voronoi = (
        float(np.mean(found != truth))
        for found in (
            knn_predict(fit.embed(), codes, embedding),
            model.decoder_distances(embedding).argmin(axis=1),
            nearest_center(embedding, model.centers_),
        )
    )
    return knn, decoder, voronoi, seconds


def main() -> None:
    """Run the experiments that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", choices=[*EXPERIMENTS, *CELLS])
    parser.add_argument(
        "--seeds", type=int, default=1, help="number of splits, or of draws of ten folds"
    )
    parser.add_argument(
        "--recipe",
        choices=["default", "bottleneck", "paper"],
        default="default",
        help="settings of the estimator; the paper has no recipe for cells",
    )
    arguments = parser.parse_args()
    if arguments.recipe == "paper" and set(arguments.experiments) & set(CELLS):
        parser.error(f"the paper has no recipe for {' and '.join(CELLS)}")
    params = BOTTLENECK if arguments.recipe == "bottleneck" else {}
    for name in arguments.experiments:
        if name in CELLS:
            model = CentroidEncoder(**params)
            rows = [evaluate_cells(name, seed, model) for seed in range(arguments.seeds)]
        else:
            rows = []
            # In experiment 2, each seed draws samples and all their folds are run.
            n_folds = N_FOLDS if name in ("letter", "landsat", "phoneme") else 1
            splits = EXPERIMENTS[name].splits(arguments.seeds * n_folds)
            for seed, split in enumerate(splits):
                model = CentroidEncoder(random_state=seed, **params)
                if arguments.recipe == "paper":
                    model = CentroidEncoder.from_recipe(f"paper-{name}", random_state=seed)
                rows.append(evaluate(model, split))
        table = np.array(rows)
        mean, spread = table.mean(axis=0), table.std(axis=0, ddof=min(1, len(rows) - 1))
        cells = [
            f"{rule} {100 * mean[i]:.2f} ± {100 * spread[i]:.2f} %"
            for i, rule in enumerate(("5-NN", "decoder", "Voronoi"))
        ]
        print(
            f"{name}, {arguments.recipe} recipe, {len(rows)} fits: {', '.join(cells)}; "
            f"{mean[3]:.1f} s per fit",
            flush=True,
        )


if __name__ == "__main__":
    main()
