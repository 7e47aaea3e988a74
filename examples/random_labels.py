"""What a supervised embedding makes of labels that mean nothing: write `demo/random-labels.png`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import scanpy as sc

import centroid_encoder as ce


def main() -> None:
    """Shuffle the labels of 700 blood cells, train, draw."""
    mpl.use("Agg")
    adata = sc.datasets.pbmc68k_reduced()
    shuffled = np.random.default_rng(0).permutation(adata.obs["bulk_labels"])
    adata.obs["shuffled"] = shuffled.astype(str)
    ce.tl.centroid_encoder(adata, "shuffled")
    Path("demo").mkdir(exist_ok=True)
    ce.pl.voronoi(adata, show=False, save=Path("demo/random-labels.png"))


if __name__ == "__main__":
    main()
