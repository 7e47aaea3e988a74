"""Draw the figures of docs/placement.md: how probabilities and scatter determine a cell's place.

``python examples/placement.py`` takes a minute and writes three figures into the folder ``demo``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc
from scipy.spatial import Voronoi, voronoi_plot_2d

import centroid_encoder as ce
from centroid_encoder.core.layout import Layout

folder = Path("demo")
folder.mkdir(exist_ok=True)

# First figure: places of cells by their class probabilities alone.
positions = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.87]])
probabilities = np.array(
    [[1, 0, 0], [0.8, 0.2, 0], [0.6, 0.4, 0], [0.1, 0.9, 0], [0.2, 0.1, 0.7], [0.4, 0.3, 0.3]]
)
places = Layout(positions).place(np.log(probabilities + 1e-12), np.zeros((6, 3, 2)))
figure, ax = plt.subplots(figsize=(7, 5.6), layout="constrained")
far = [[-9, -9], [9, -9], [0.5, 9]]
x, y = np.meshgrid(np.linspace(-0.35, 1.45, 900), np.linspace(-0.3, 1.15, 725))
squared = np.square(np.stack([x, y], axis=-1)[..., None, :] - positions).sum(axis=-1)
colors = ["C0", "C1", "C2"]
ax.contourf(x, y, squared.argmin(axis=-1), levels=[-0.5, 0.5, 1.5, 2.5], colors=colors, alpha=0.15)
cells = Voronoi(np.vstack([positions, far]))
voronoi_plot_2d(cells, ax, show_points=False, show_vertices=False, line_colors="white")
ax.scatter(*positions.T, s=110, color=colors, alpha=0.5, linewidth=0)
for name, position in zip("ABC", positions, strict=True):
    ax.annotate(name, position, xytext=(10, -5), textcoords="offset points", weight="bold", size=13)
ax.scatter(*places.T, s=22, color="black", zorder=3)
sides = [(-10, 12), (-40, -20), (-60, 12), (-40, -20), (-30, 12), (-125, 4)]
for place, odds, side in zip(places, probabilities, sides, strict=True):
    text = "  ".join(f"{name} {p:.0%}" for name, p in zip("ABC", odds, strict=True) if p)
    ax.annotate(text, place, xytext=side, textcoords="offset points", fontsize="small")
ax.set(xticks=[], yticks=[], xlim=(-0.35, 1.45), ylim=(-0.3, 1.15), aspect="equal")
figure.savefig(folder / "placement-probabilities.png", dpi=100)

# Second figure: the same map without and with the scatter of the cells.
adata = sc.datasets.pbmc68k_reduced()
labels = adata.obs["bulk_labels"]
model = ce.CentroidEncoder(random_state=0)
fit = model.fit_codes(adata.X, labels.cat.codes.to_numpy(np.intp), labels.cat.categories.to_numpy())
embedding, distances = (np.concatenate(parts) for parts in zip(*fit.judge(), strict=True))
layout = model.fitted_map.placer.layout
n_cells, n_classes = distances.shape
# The negative squared distances are log probabilities, up to a constant.
alone = layout.place(-np.square(distances), np.zeros((n_cells, n_classes, 2)))
figure, axes = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained", sharex=True, sharey=True)
for ax, points, title in zip(
    axes, (alone, embedding), ("probabilities alone", "with the scatter"), strict=True
):
    voronoi_plot_2d(
        Voronoi(np.vstack([layout.positions, 99 * np.array(far)])),
        ax,
        show_points=False,
        show_vertices=False,
        line_colors="0.7",
    )
    ax.scatter(*points.T, c=labels.cat.codes, cmap="tab10", s=9, linewidth=0)
    ax.set(xticks=[], yticks=[], title=title, aspect="equal")
low, high = embedding.min(axis=0) - 0.2, embedding.max(axis=0) + 0.2
axes[0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
figure.savefig(folder / "placement-scatter.png", dpi=100)

# Third figure: cells near a border have uncertain classes.
ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
figure, axes = plt.subplots(1, 2, figsize=(12.5, 5.2), layout="constrained")
ce.pl.voronoi(adata, split="train", ax=axes[0], show=False, legend_loc="on data", title="classes")
ce.pl.voronoi(
    adata,
    split="train",
    color="ce_confidence",
    ax=axes[1],
    show=False,
    legend_loc=None,
    title="probability of the predicted class",
)
figure.savefig(folder / "placement-doubt.png", dpi=100)
