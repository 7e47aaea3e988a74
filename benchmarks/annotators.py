"""Errors of scANVI and CellTypist on held-out cells, on the splits of `benchmarks.cells`.

    python -m venv annotators
    annotators/bin/pip install "torch==2.13.0" scvi-tools celltypist "scikit-learn<1.7"
    annotators/bin/python -m benchmarks.annotators

They need an environment of their own: scvi-tools pins versions, and CellTypist passes an argument
to scikit-learn that 1.8 removed. Runs are added to the results of `benchmarks.cells`.

scANVI gets the counts, and the donors as batches. It is not run on intensities, which are no
counts. As usual for this method, the held-out cells take part in the training without their labels.
There are two embeddings: the latent space of a model with 2 dimensions, and a UMAP of the latent
space of a model with 10. All settings are the defaults of scvi-tools 1.4. CellTypist is a logistic
regression with default settings.

The column of Voronoi errors has the errors of the nearest center in the embedding. scANVI's own
classifier and CellTypist have no two-dimensional embedding; their error is in both columns.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from benchmarks.cell_sets import SETS, Split, load, pbmc68k, splits
from benchmarks.parts import append

INTENSITIES = ("vectra_6plex", "scimap_example")
RESULTS = Path(__file__).parent / "results" / "cells.csv"
"""CSV file of the runs, which `benchmarks.cells` writes as well."""
ROWS = ("scANVI, 2 latents", "scANVI, 10 latents and UMAP", "scANVI's classifier", "CellTypist")
"""Names of the methods in the results; the first two have a two-dimensional embedding."""
Decision = tuple[str, NDArray[np.intp], NDArray[np.intp]]
"""Name of the method, and the classes of the held-out cells by 5-NN and by nearest center."""


def counts(X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return counts for normalised logarithms; the smallest positive value of a cell becomes 1."""
    shares = np.expm1(X.astype(np.float64))
    least = np.where(shares > 0, shares, np.inf).min(axis=1, keepdims=True)
    rounded: NDArray[np.float32] = np.round(shares / least).astype(np.float32)
    return rounded


def in_the_plane(
    name: str, train: NDArray[Any], codes: NDArray[np.intp], test: NDArray[Any]
) -> Decision:
    """Return the classes of the test points by five neighbours and by the nearest center."""
    return (
        name,
        KNeighborsClassifier(5).fit(train, codes).predict(test),
        NearestCentroid().fit(train, codes).predict(test),
    )


def scanvi(values: NDArray[Any], split: Split, groups: NDArray[Any] | None) -> Iterator[Decision]:
    """Train scANVI with 2 and with 10 latent dimensions, and yield its decisions."""
    import scvi
    from umap import UMAP

    rows = np.r_[split.train, split.test]
    n_train = len(split.train)
    cells = AnnData(values[np.ix_(rows, split.kept)])
    cells.obs["label"] = [*split.codes.astype(str), *(["Unknown"] * len(split.test))]
    cells.obs["batch"] = "all" if groups is None else groups[rows]
    for n_latent in (2, 10):
        scvi.settings.seed = 0
        scvi.model.SCVI.setup_anndata(cells, batch_key="batch", labels_key="label")
        start = scvi.model.SCVI(cells, n_latent=n_latent)
        start.train(accelerator="cpu", enable_progress_bar=False)
        model = scvi.model.SCANVI.from_scvi_model(start, unlabeled_category="Unknown")
        model.train(accelerator="cpu", enable_progress_bar=False)
        latent = model.get_latent_representation()
        if n_latent == 10:
            own = np.asarray(model.predict())[n_train:].astype(np.intp)
            yield "scANVI's classifier", own, own
            plane = UMAP(random_state=0).fit(latent[:n_train])
            latent = np.vstack([plane.embedding_, plane.transform(latent[n_train:])])
        row = "scANVI, 2 latents" if n_latent == 2 else "scANVI, 10 latents and UMAP"
        yield in_the_plane(row, latent[:n_train], split.codes, latent[n_train:])


def celltypist(
    values: NDArray[Any], split: Split, groups: NDArray[Any] | None
) -> Iterator[Decision]:
    """Train CellTypist and yield its decisions."""
    del values, groups
    from celltypist import train

    features = np.arange(split.X.shape[1]).astype(str)
    # CellTypist checks that the values of a cell have the expected sum. With a part of the genes,
    # the sum is smaller.
    model = train(split.X, split.codes.astype(str), features, check_expression=False, n_jobs=1)
    used = np.isin(features, model.classifier.features)
    scaled = np.minimum(model.scaler.transform(split.X_test[:, used]), 10)
    own = model.predict_labels_and_prob(scaled)[2].astype(np.intp)
    yield "CellTypist", own, own


def evaluate(name: str, method: Any) -> Iterator[dict[str, object]]:
    """Yield a row of results for each split and each decision of a method."""
    X, y, groups = load(name)
    # The values of pbmc68k_reduced are z-scores; `raw` has the logarithms of the same genes.
    values = counts(pbmc68k().raw.X.toarray() if name == "pbmc68k_reduced" else X)
    for number, split in enumerate(splits(X, y, groups)):
        start = time.process_time()
        for row, knn, voronoi in method(values, split, groups):
            yield {
                "set": name,
                "method": row,
                "split": number,
                "n_train": len(split.codes),
                "n_test": len(split.truth),
                "knn_error": np.mean(knn != split.truth),
                "voronoi_error": np.mean(voronoi != split.truth),
                "balanced_knn_error": 1 - balanced_accuracy_score(split.truth, knn),
                "seconds": time.process_time() - start,
            }
            start = time.process_time()


def main() -> None:
    """Run what the file does not have yet, and print the mean errors in percent."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"data sets; default: all of {', '.join(SETS)}"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="CSV file of the runs")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    path: Path = arguments.results
    there = pd.read_csv(path) if path.exists() else pd.DataFrame({"set": [], "method": []})
    done = set(zip(there["set"], there["method"], strict=True))
    for name in arguments.sets or SETS:
        for method, first in ((celltypist, "CellTypist"), (scanvi, "scANVI, 2 latents")):
            if (name, first) in done or (method is scanvi and name in INTENSITIES):
                continue
            rows = list(evaluate(name, method))
            for row in rows:
                append(path, row)
            table = pd.DataFrame(rows).groupby("method")[["knn_error", "voronoi_error"]].mean()
            print(name, (100 * table).round(1), sep="\n", flush=True)


if __name__ == "__main__":
    main()
