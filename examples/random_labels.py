"""Draw maps of cells with shuffled labels, for both placements, into demo/random-labels.png."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc

import centroid_encoder as ce


def main() -> None:
    """Shuffle the labels of 700 blood cells, train two maps and draw them."""
    mpl.use("Agg")
    adata = sc.datasets.pbmc68k_reduced()
    shuffled = np.random.default_rng(0).permutation(adata.obs["bulk_labels"])
    adata.obs["shuffled"] = shuffled.astype(str)
    figure, axes = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
    for row, placement in zip(axes, ("bottleneck", "voronoi"), strict=True):
        ce.tl.centroid_encoder(adata, "shuffled", placement=placement, key_added=placement)
        ce.pl.voronoi(adata, key=placement, ax=list(row), show=False)
    Path("demo").mkdir(exist_ok=True)
    figure.savefig("demo/random-labels.png", dpi=100)


if __name__ == "__main__":
    main()
