"""Draw the reliability page of docs/believing.md and of the README.

``python examples/reliability.py`` takes some minutes, writes ``demo/reliability.png``, and prints
ten cells whose labels may be wrong.
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
