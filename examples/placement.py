"""Draw the same cells by both placements: through the bottleneck, and in Voronoi cells.

``python examples/placement.py`` takes a minute and writes ``demo/placement.png``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import scanpy as sc

import centroid_encoder as ce

folder = Path("demo")
folder.mkdir(exist_ok=True)
adata = sc.datasets.pbmc68k_reduced()
figure, axes = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
for row, placement in zip(axes, ("bottleneck", "voronoi"), strict=True):
    ce.tl.centroid_encoder(adata, "bulk_labels", placement=placement, key_added=placement)
    ce.pl.voronoi(adata, key=placement, ax=list(row), show=False)
figure.savefig(folder / "placement.png", dpi=100)
