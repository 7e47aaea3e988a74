"""Train on real cells, save the result, compare it with other two-dimensional pictures.

The cells are the 700 blood cells that ship with scanpy; the classes are those of `bulk_labels`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import matplotlib as mpl
import numpy as np
import scanpy as sc
from sklearn.decomposition import PCA

import centroid_encoder as ce
from centroid_encoder.core.quality import knn_predict

OUTPUT = Path("demo")


def main() -> None:
    """Run the demonstration; write `demo/pbmc68k.h5ad` and `demo/voronoi.png`."""
    mpl.use("Agg")
    logging.basicConfig(format="%(message)s")
    logging.getLogger("centroid_encoder").setLevel(logging.INFO)
    OUTPUT.mkdir(exist_ok=True)

    adata = sc.datasets.pbmc68k_reduced()
    print(f"{adata.n_obs} cells, {adata.n_vars} genes, labels: bulk_labels")
    ce.tl.centroid_encoder(adata, "bulk_labels")

    # All three embeddings are judged alike: 5-NN error of the held-out cells, neighbours among the
    # training cells. PCA learns from the training cells alone; the stored UMAP saw all of them.
    train, test = (adata.obs["ce_split"] == name for name in ("train", "test"))
    pca = PCA(2, random_state=0).fit(adata.X[train]).transform(adata.X)
    labels = adata.obs["bulk_labels"].cat.codes.to_numpy()
    print(f"\nHeld-out 5-NN error in two dimensions ({test.sum()} cells)")
    for name, embedding in (
        ("Centroid-Encoder", adata.obsm["X_ce"]),
        ("UMAP (saw these cells too)", adata.obsm["X_umap"]),
        ("PCA", pca),
    ):
        predicted = knn_predict(embedding[train], labels[train], embedding[test])
        print(f"  {name:<28} {100 * np.mean(predicted != labels[test]):5.1f} %")

    ce.pl.voronoi(adata, show=False, save=OUTPUT / "voronoi.png")
    adata.write_h5ad(OUTPUT / "pbmc68k.h5ad")
    print(f"\nWrote {OUTPUT / 'pbmc68k.h5ad'} and {OUTPUT / 'voronoi.png'}")


if __name__ == "__main__":
    main()
