"""Figures of docs/benchmarks.md and docs/placement.md.

    python -m benchmarks.figures mnist landsat rivals planes sizes

`mnist` and `landsat` draw training and test samples over the Voronoi cells of the classes. `rivals`
draws Landsat and pbmc3k in the embeddings of all methods. `planes` draws all data sets in the
embeddings of both placements, of UMAP and of supervised UMAP.
`sizes` draws pbmc3k with all cells, and cut to classes of very different sizes.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

import centroid_encoder as ce
from benchmarks import datasets
from benchmarks.parts import run_named
from benchmarks.placement import EVERY, SETS, TITLES, drawn, placed
from centroid_encoder.core.quality import knn_predict
from centroid_encoder.core.regions import bounding_box, voronoi_cells
from centroid_encoder.pl._colors import default_palette
from centroid_encoder.pl._regions import REGION_ALPHA

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"


def mnist() -> None:
    """Draw 10,000 training images and all test images of MNIST."""
    (X, y), (X_test, y_test) = datasets.mnist()
    shown = np.random.default_rng(0).permutation(len(y))[:10_000]
    two_panels("mnist", X, y.astype(str), X_test, y_test.astype(str), shown)


def landsat() -> None:
    """Draw the training and test samples of Landsat, as published."""
    X, y = datasets.landsat()
    names = np.array([datasets.SOILS[code] for code in y])
    two_panels("landsat", X[:4435], names[:4435], X[4435:], names[4435:], np.arange(4435))


def two_panels(
    name: str,
    X: NDArray[Any],
    y: NDArray[Any],
    X_test: NDArray[Any],
    y_test: NDArray[Any],
    shown: NDArray[np.intp],
) -> None:
    """Train on all training samples, and write a figure of two panels.

    The first shows the training samples in the rows ``shown``, the second shows the test samples in
    the colours of their true classes.
    """
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
    """Draw the held-out samples of Landsat and pbmc3k in the embeddings of all methods."""
    for name in ("landsat", "pbmc3k"):
        load, n_train, n_test = SETS[name]
        X, y, X_test, y_test = drawn(load(), n_train, n_test, 0)
        shades = np.array(default_palette(int(y.max()) + 1))
        figure, axes = plt.subplots(-(-len(EVERY) // 6), 6, figsize=(12, 16), layout="constrained")
        for ax in axes.flat:
            ax.axis("off")
        for ax, method in zip(axes.flat, EVERY, strict=False):
            with warnings.catch_warnings():
                # Rivals warn about their settings; the effects are visible in the figure.
                warnings.simplefilter("ignore")
                train, test, _, _ = placed(name, method, X, y, X_test, 0)
            error = (knn_predict(train, y, test) != y_test).mean()
            ax.scatter(*test.T, c=shades[y_test], s=2.5, linewidth=0)
            low, high = np.quantile(test, [0.005, 0.995], axis=0)
            room = 0.05 * (high - low)
            ax.set_xlim(low[0] - room[0], high[0] + room[0])
            ax.set_ylim(low[1] - room[1], high[1] + room[1])
            title = f"{TITLES.get(method, method)}: {100 * error:.1f} %"
            ax.set_title(title, fontsize=8 if len(title) < 32 else 6.5)
        figure.savefig(FOLDER / f"rivals_{name}.webp", dpi=180, pil_kwargs={"quality": 90})
        plt.close(figure)


PLANES = (
    *("paul15", "landsat", "pbmc3k", "lung", "blood", "pbmc68k", "tumour"),
    *("mnist", "digits", "phoneme", "usps", "letter", "sonar"),
)
"""Data sets of `planes`, from the top row to the bottom row."""


def planes() -> None:
    """Draw all data sets, each in five panels.

    The panels show training and held-out samples by the placement "voronoi", and training samples
    by the placement "bottleneck", by UMAP and by supervised UMAP. The samples are those of the
    first draw of `benchmarks.placement`.
    """
    figure, axes = plt.subplots(
        len(PLANES), 5, figsize=(12.5, 2.5 * len(PLANES)), layout="constrained"
    )
    for row, name in zip(axes, PLANES, strict=True):
        load, n_train, n_test = SETS[name]
        X, y, X_test, y_test = drawn(load(), n_train, n_test, 0)
        shades = np.array(default_palette(int(y.max()) + 1))
        model = ce.CentroidEncoder(random_state=0)
        fit = model.fit_codes(X, y, np.arange(len(shades)))
        squeezed = ce.CentroidEncoder(random_state=0, placement="bottleneck").fit(X, y)
        found: dict[str, tuple[Any, Any, Any]] = {
            "training": (fit.embed(), y, model.centers_),
            "held out": (model.transform(X_test), y_test, model.centers_),
            "bottleneck": (squeezed.transform(X), y, squeezed.centers_),
        }
        for rival in ("UMAP", "supervised UMAP"):
            found[rival] = placed(name, rival, X, y, X_test, 0)[0], y, None
        for ax, (title, (points, codes, centers)) in zip(row, found.items(), strict=True):
            if centers is not None:
                box = bounding_box(found["training"][0] if title == "held out" else points)
                for cell, shade in zip(voronoi_cells(centers, box), shades, strict=True):
                    ax.fill(*cell.T, color=shade, alpha=REGION_ALPHA, linewidth=0)
                ax.set(xlim=box[::2], ylim=box[1::2])
            # Points are drawn in random order; otherwise the last class would cover the others.
            order = np.random.default_rng(0).permutation(len(points))
            ax.scatter(*points[order].T, c=shades[codes[order]], s=3, linewidth=0)
            ax.set(xticks=[], yticks=[], title=title if name == PLANES[0] else "")
        row[0].set_ylabel(name)
    figure.savefig(FOLDER / "planes.webp", dpi=140, pil_kwargs={"quality": 90})


CUT = 900, 300, 120, 60, 12, 6, 4, 3
"""Numbers of cells of the cut classes, the largest class first."""


def cut_blood() -> ad.AnnData:
    """Return pbmc3k with few cells of some classes."""
    whole = _blood()
    rng = np.random.default_rng(0)
    names = whole.obs["classified"].value_counts().index[: len(CUT)]
    rows = [
        rng.permutation(np.flatnonzero(whole.obs["classified"] == name))[:n]
        for name, n in zip(names, CUT, strict=True)
    ]
    return whole[np.sort(np.concatenate(rows))].copy()


def _blood() -> ad.AnnData:
    """Return the cells of pbmc3k that have a label."""
    whole = datasets.read_h5ad("pbmc3k/pbmc3k_annotated.h5ad")
    return whole[whole.obs["classified"].notna()].copy()


def sizes() -> None:
    """Draw pbmc3k with all cells, and with few cells of some classes."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    for adata, ax in zip((_blood(), cut_blood()), axes, strict=True):
        ce.tl.centroid_encoder(adata, "classified", test_size=0, progress=False)
        ce.pl.voronoi(adata, ax=ax, legend_loc="on data", show=False, save=False)
        ax.set_title(f"n = {adata.n_obs:,}")
    figure.savefig(FOLDER / "sizes.png", dpi=90)


if __name__ == "__main__":
    run_named(__doc__, mnist, landsat, rivals, planes, sizes)
