"""The figures of docs/benchmarks.md and docs/placement.md.

    python -m benchmarks.figures mnist landsat rivals planes

MNIST and Landsat over the Voronoi cells of their classes, Landsat embedded by the rivals, and ten
data sets in the planes of both placements and of UMAP.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

import centroid_encoder as ce
from benchmarks import datasets
from benchmarks.parts import run_named
from benchmarks.placement import SETS, drawn
from benchmarks.protocols import EXPERIMENTS
from benchmarks.rivals import classical
from benchmarks.rivals.selection import embed
from centroid_encoder.core.quality import knn_predict
from centroid_encoder.core.regions import bounding_box, voronoi_cells
from centroid_encoder.pl._colors import default_palette
from centroid_encoder.pl._regions import REGION_ALPHA

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
SOILS = {
    1: "red soil", 2: "cotton crop", 3: "grey soil", 4: "damp grey soil",
    5: "vegetation stubble", 7: "very damp grey soil",
}  # fmt: skip
RIVAL_MAKERS = classical.UNSUPERVISED | classical.SUPERVISED
RIVALS = (
    "Laplacian eigenmaps",
    "PCA",
    "t-SNE",
    "UMAP",
    "NCA",
    "supervised Isomap",
    "parametric embedding",
    "SNeRV",
)


def mnist() -> None:
    """Draw 10,000 training and all test images of MNIST."""
    (X, y), (X_test, y_test) = datasets.mnist()
    shown = np.random.default_rng(0).permutation(len(y))[:10_000]
    two_panels("mnist", X, y.astype(str), X_test, y_test.astype(str), shown)


def landsat() -> None:
    """Draw Landsat's own training and test samples."""
    X, y = datasets.landsat()
    names = np.array([SOILS[code] for code in y])
    two_panels("landsat", X[:4435], names[:4435], X[4435:], names[4435:], np.arange(4435))


def two_panels(
    name: str,
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    y_test: NDArray[Any],
    shown: NDArray[np.intp],
) -> None:
    """Train on all training samples; draw some of them, and the test samples by their own class."""
    known, query = (ad.AnnData(x.astype(np.float32)) for x in (X, X_test))
    known.obs["class"] = pd.Categorical(y)
    ce.tl.centroid_encoder(known, "class", test_size=0, progress=False)
    ce.tl.ingest(query, known, progress=False)
    _, codes = np.unique(y, return_inverse=True)
    found = knn_predict(known.obsm["X_ce"], codes, query.obsm["X_ce"])
    error = (found != np.searchsorted(np.unique(y), y_test)).mean()
    query.obs["ce_label"] = pd.Categorical(y_test, known.obs["class"].cat.categories)
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    settings: dict[str, Any] = {"show": False, "save": False, "size": 4}
    ce.pl.voronoi(known[shown].copy(), ax=axes[0], legend_loc=None, **settings)
    ce.pl.voronoi(query, ax=axes[1], **settings)
    axes[1].get_legend().set_title("class")
    axes[0].set_title(f"training samples (n = {len(y):,})")
    axes[1].set_title(f"test samples (n = {len(y_test):,}): 5-NN error {100 * error:.2f} %")
    figure.savefig(FOLDER / f"{name}.png", dpi=100)


def rivals() -> None:
    """Draw training and test samples of one fold of Landsat, embedded by every rival."""
    X, y, X_test, y_test = EXPERIMENTS["landsat"].run(0)
    classes, codes = np.unique(y, return_inverse=True)
    codes_test = np.searchsorted(classes, y_test)
    # Colours are in the order of the names, as in the figure of `landsat`.
    order = np.argsort(np.argsort([SOILS[code] for code in classes]))
    shades = np.array(default_palette(len(classes)))[order]
    scaler = StandardScaler().fit(X)
    z, z_test = scaler.transform(X), scaler.transform(X_test)
    figure, axes = plt.subplots(3, 3, figsize=(10, 10), layout="constrained")
    model = ce.CentroidEncoder(random_state=0)
    fit = model.fit_codes(X, codes, np.arange(len(classes)))
    found = {"centroid-encoder": (fit.embed(), model.transform(X_test))}
    found |= {name: embed(RIVAL_MAKERS[name](0), z, codes, z_test) for name in RIVALS}
    for ax, (name, (train, test)) in zip(axes.flat, found.items(), strict=True):
        error = (knn_predict(train, codes, test) != codes_test).mean()
        ax.scatter(*train.T, c=shades[codes], s=3, linewidth=0, alpha=0.5)
        ax.scatter(*test.T, c=shades[codes_test], s=14, linewidth=0.4, edgecolor="black")
        ax.set(xticks=[], yticks=[], title=f"{name}: {100 * error:.1f} %")
    figure.savefig(FOLDER / "rivals.png", dpi=100)


PLANES = (
    *("paul15", "landsat", "pbmc3k", "lung", "blood"),
    *("mnist", "digits", "phoneme", "usps", "letter"),
)


def planes() -> None:
    """Draw ten data sets, a draw of `benchmarks.placement` each, as four methods place them."""
    figure, axes = plt.subplots(len(PLANES), 5, figsize=(12.5, 25), layout="constrained")
    for row, name in zip(axes, PLANES, strict=True):
        load, n_train, n_test = SETS[name]
        X, y, X_test, y_test = drawn(load(), n_train, n_test, 0)
        shades = np.array(default_palette(int(y.max()) + 1))
        model = ce.CentroidEncoder(random_state=0)
        fit = model.fit_codes(X, y, np.arange(len(shades)))
        squeezed = ce.CentroidEncoder(random_state=0, placement="bottleneck").fit(X, y)
        z = StandardScaler().fit_transform(X)
        found: dict[str, tuple[Any, Any, Any]] = {
            "training": (fit.embed(), y, model.centers_),
            "held out": (model.transform(X_test), y_test, model.centers_),
            "bottleneck": (squeezed.transform(X), y, squeezed.centers_),
        }
        for rival in ("UMAP", "supervised UMAP"):
            found[rival] = embed(RIVAL_MAKERS[rival](0), z, y, z[:1])[0], y, None
        for ax, (title, (points, codes, centers)) in zip(row, found.items(), strict=True):
            if centers is not None:
                box = bounding_box(found["training"][0] if title == "held out" else points)
                for cell, shade in zip(voronoi_cells(centers, box), shades, strict=True):
                    ax.fill(*cell.T, color=shade, alpha=REGION_ALPHA, linewidth=0)
                ax.set(xlim=box[::2], ylim=box[1::2])
            # In random order, so that no class covers the others.
            order = np.random.default_rng(0).permutation(len(points))
            ax.scatter(*points[order].T, c=shades[codes[order]], s=3, linewidth=0)
            ax.set(xticks=[], yticks=[], title=title if name == PLANES[0] else "")
        row[0].set_ylabel(name)
    figure.savefig(FOLDER / "planes.png", dpi=70)


if __name__ == "__main__":
    run_named(__doc__, mnist, landsat, rivals, planes)
