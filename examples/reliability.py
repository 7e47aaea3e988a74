"""Draw the page of docs/believing.md: a map and the measures of its errors.

``python examples/reliability.py`` takes some minutes and writes ``demo/reliability.png``.
"""

from pathlib import Path

import scanpy as sc

import centroid_encoder as ce

folder = Path("demo")
folder.mkdir(exist_ok=True)
adata = sc.datasets.pbmc68k_reduced()
ce.tl.centroid_encoder(adata, "bulk_labels")
ce.tl.cross_validate(adata, "bulk_labels", n_permutations=19)
ce.pl.reliability(adata, save=folder / "reliability.png", show=False)
print(ce.tl.mislabeled(adata).head(10))
