"""Train maps of real cells, compare their errors with UMAP and PCA, and save one map.

The cells are the 700 blood cells that scanpy ships; their classes are in ``obs["bulk_labels"]``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import scanpy as sc
from anndata import AnnData
from sklearn.decomposition import PCA

import centroid_encoder as ce
from centroid_encoder.core.quality import knn_predict

OUTPUT = Path("demo")
CELLS = "Centroid-Encoder, by its Voronoi cells"
N_SPLITS = 6
"""Number of splits; with 140 held-out cells, the errors of two splits can differ by 3 %."""


def main() -> None:
    """Run the demonstration; write `demo/pbmc68k.h5ad` and `demo/voronoi.png`."""
    mpl.use("Agg")
    OUTPUT.mkdir(exist_ok=True)

    adata = sc.datasets.pbmc68k_reduced()
    print(f"{adata.n_obs} blood cells, {adata.n_vars} genes, the labels in obs['bulk_labels']")
    print(f"Training {N_SPLITS} maps, each with other held-out cells; this takes a minute ...")
    runs = []
    for seed in range(N_SPLITS):
        trained = ce.tl.centroid_encoder(
            adata, "bulk_labels", random_state=seed, progress=False, copy=True
        )
        runs.append(errors(trained))
        print(f"  map {seed + 1} of {N_SPLITS}: {100 * runs[-1][CELLS]:.1f} %")
        if seed == 0:
            first = trained
    print(f"\nHeld-out error in two dimensions, {N_SPLITS} splits: mean ± sd")
    for name in runs[0]:
        shares = 100 * np.array([run[name] for run in runs])
        print(f"  {name:<44} {shares.mean():5.1f} ± {shares.std(ddof=1):.1f} %")

    ce.pl.voronoi(first, show=False, save=OUTPUT / "voronoi.png")
    first.write_h5ad(OUTPUT / "pbmc68k.h5ad")
    print(f"\nWrote the cells with the first map to {OUTPUT / 'pbmc68k.h5ad'},")
    print(f"and its figure to {OUTPUT / 'voronoi.png'}")


def errors(adata: AnnData) -> dict[str, float]:
    """Return the errors of the held-out cells by Voronoi cells and by 5 neighbours.

    The neighbours are training cells. PCA is fitted to the training cells. The stored UMAP was
    computed from all cells, held-out ones included, without labels.
    """
    train, test = (adata.obs["ce_split"] == name for name in ("train", "test"))
    labels = adata.obs["bulk_labels"].cat.codes.to_numpy()
    pictures = {
        "Centroid-Encoder, by 5 neighbours": adata.obsm["X_ce"],
        "UMAP (fitted to all cells), by 5 neighbours": adata.obsm["X_umap"],
        "PCA, by 5 neighbours": PCA(2, random_state=0).fit(adata.X[train]).transform(adata.X),
    }
    wrong = adata.obs["ce_label"].astype(str) != adata.obs["bulk_labels"].astype(str)
    found = {CELLS: float(wrong[test].mean())}
    for name, picture in pictures.items():
        predicted = knn_predict(picture[train], labels[train], picture[test])
        found[name] = float(np.mean(predicted != labels[test]))
    return found


if __name__ == "__main__":
    main()
