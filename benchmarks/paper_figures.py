"""The figures of the paper that show data, drawn anew: docs/figure-by-figure.md.

    python -m benchmarks.paper_figures mnist digits usps landsat small variance

`mnist` draws training and test images of MNIST over the Voronoi cells of the paper's network.
`digits` draws the test images of MNIST in the embeddings of other methods. `usps` draws the test
images of USPS in the embeddings of four methods. `landsat` draws training and test samples of
Landsat by the centroid-encoder and by supervised UMAP. `small` draws the test samples of Iris,
Sonar and USPS-1000 by three methods. `variance` draws the variance of pairs of digits along
principal components, and the first two of these. All networks of the centroid-encoder have the
settings of the paper's recipe, pre-trained.

The embeddings are kept in build/paper-figures, so that a figure is drawn again without a training.
`--embed mnist centroid-encoder` only computes one; networks train on a GPU if there is one. Each
figure also prints the pairs of neighbouring classes: their Voronoi cells share a border in it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, SpectralEmbedding

from benchmarks import datasets, variance
from benchmarks.methods import NETWORKS, standardized
from benchmarks.protocols import EXPERIMENTS
from benchmarks.rivals import classical
from benchmarks.rivals.selection import embed
from centroid_encoder import CentroidEncoder
from centroid_encoder.core.quality import knn_predict, nearest_center
from centroid_encoder.core.regions import bounding_box, region_image, voronoi_cells
from centroid_encoder.pl._colors import default_palette

ROOT = Path(__file__).resolve().parents[1]
KEPT, IMAGES = ROOT / "build" / "paper-figures", ROOT / "docs" / "images"
CE = "centroid-encoder"
RIVALS = classical.SUPERVISED | classical.UNSUPERVISED
ALONE = {"t-SNE": TSNE, "Laplacian eigenmaps": SpectralEmbedding}
"""Methods that embed the test samples alone, since they place no new samples."""
NAMES = {"train": "training samples", "test": "test samples"}
Arrays = dict[str, NDArray[Any]]
"""``train``, ``test``: (n, 2) places; ``y``, ``y_test``: (n,) labels; ``centers``: (M, 2)."""


def kept(name: str, make: Callable[[], Arrays]) -> Arrays:
    """Return arrays from their file, or compute and keep them."""
    path = KEPT / f"{name.replace(' ', '-')}.npz"
    if not path.exists():
        print(f"computing {name}", flush=True)
        with warnings.catch_warnings():
            # Rivals warn about their settings; the effects are visible in the figure.
            warnings.simplefilter("ignore")
            found = make()
        KEPT.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **found)  # type: ignore[arg-type]
    with np.load(path) as stored:
        return dict(stored)


def split(experiment: str) -> tuple[NDArray[Any], ...]:
    """Return training data, labels, test data and their labels of the first run."""
    if experiment == "landsat":
        X, y = datasets.landsat()
        return X[:4435], y[:4435], X[4435:], y[4435:]
    return EXPERIMENTS[experiment].run(0)


def places(experiment: str, method: str) -> Arrays:
    """Return the embeddings of the first run of an experiment by a method."""
    return kept(f"{experiment} {method}", lambda: embedded(experiment, method))


def embedded(experiment: str, method: str) -> Arrays:
    """Train a method on an experiment, and embed training and test samples."""
    X, y, X_test, y_test = split(experiment)
    found: Arrays = {"y": y, "y_test": y_test}
    if method == CE:
        name = f"paper-{experiment.removesuffix('-1000')}"
        model = CentroidEncoder.from_recipe(name, random_state=0).fit(X, y)
        found |= {"train": model.transform(X), "test": model.transform(X_test)}
        found["centers"] = model.centers_
    elif method in NETWORKS:
        rival = NETWORKS[method](random_state=0).fit(X, np.unique(y, return_inverse=True)[1])
        found |= {"train": rival.transform(X), "test": rival.transform(X_test)}
    else:
        z, z_test = standardized(experiment, X, X_test)
        codes = np.unique(y, return_inverse=True)[1]
        if method in ALONE:
            alone = ALONE[method](n_components=2, random_state=0).fit_transform(z_test)
            found |= {"train": alone, "test": alone, "y": y_test}
        else:
            found["train"], found["test"] = embed(RIVALS[method](0), z, codes, z_test)
    if "centers" not in found:
        classes = np.unique(found["y"])
        means = [found["train"][found["y"] == c].mean(axis=0) for c in classes]
        found["centers"] = np.stack(means)
    return found


def error(found: Arrays) -> float:
    """Return the 5-NN error of the test samples in percent."""
    classes, codes = np.unique(found["y"], return_inverse=True)
    predicted = knn_predict(found["train"], codes, found["test"])
    return 100 * float((classes[predicted] != found["y_test"]).mean())


def neighbors(centers: NDArray[Any], box: Any, names: Sequence[str]) -> list[str]:
    """Return the pairs of classes whose Voronoi cells share a border within a box."""
    image = region_image(lambda points: nearest_center(points, centers), box)
    pairs = np.concatenate(
        [
            np.stack([image[1:].ravel(), image[:-1].ravel()], axis=1),
            np.stack([image[:, 1:].ravel(), image[:, :-1].ravel()], axis=1),
        ]
    )
    found, counts = np.unique(np.sort(pairs), axis=0, return_counts=True)
    # A border of a few pixels is a corner at which more than three classes nearly meet.
    long = (found[:, 0] < found[:, 1]) & (counts > 5)
    return [f"{names[i]}–{names[j]}" for i, j in found[long]]


def panel(
    ax: Any,
    title: str,
    points: NDArray[Any],
    y: NDArray[Any],
    centers: NDArray[Any],
    names: Sequence[str],
    *,
    size: float = 2.5,
    regions: bool = False,
    least: float = 0.0,
) -> None:
    """Draw points in the colours of their classes, and perhaps the Voronoi cells of the centers.

    `least` is the share of the points at each border that is not drawn, because single points are
    far away.
    """
    colors = np.array(default_palette(len(names)))
    codes = np.unique(y, return_inverse=True)[1]
    low, high = np.quantile(points, [least, 1 - least], axis=0)
    box = bounding_box(np.vstack([low, high]))
    if regions:
        for cell, color in zip(voronoi_cells(centers, box), colors, strict=True):
            ax.fill(*cell.T, color=color, alpha=0.25, linewidth=0)
    order = np.random.default_rng(0).permutation(len(points))
    ax.scatter(*points[order].T, c=colors[codes[order]], s=size, linewidth=0, rasterized=True)
    for c, name in enumerate(names):
        place = np.median(points[codes == c], axis=0)
        side = ("right", "left")[c] if len(names) == 2 else "center"
        text = ax.annotate(name, place, ha=side, va="center", fontsize=9, weight="bold")
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    ax.set(xlim=box[::2], ylim=box[1::2], xticks=[], yticks=[])
    ax.set_title(title, fontsize=10)
    print(f"{title}: {', '.join(neighbors(centers, box, names))}", flush=True)


def save(figure: Figure, name: str) -> None:
    """Write a figure into the images of the docs."""
    figure.savefig(IMAGES / f"paper-{name}.webp", dpi=80, pil_kwargs={"quality": 80})
    plt.close(figure)


def sheet(n_rows: int, n_columns: int, size: float = 4.2) -> tuple[Figure, Any]:
    """Return a figure of panels, and its axes as a list."""
    shape = size * n_columns, size * n_rows
    figure, axes = plt.subplots(n_rows, n_columns, figsize=shape, layout="constrained")
    return figure, np.atleast_1d(axes).ravel()


def mnist() -> None:
    """Draw 1,000 training images of each digit, and all test images."""
    found = places("mnist", CE)
    rng, digits = np.random.default_rng(0), list("0123456789")
    shown = np.concatenate(
        [rng.permutation(np.flatnonzero(found["y"] == digit))[:1000] for digit in range(10)]
    )
    figure, axes = sheet(1, 2, 6)
    centers = found["centers"]
    title = "1,000 training images of each digit"
    panel(axes[0], title, found["train"][shown], found["y"][shown], centers, digits, regions=True)
    title = f"test images: 5-NN error {error(found):.2f} %"
    panel(axes[1], title, found["test"], found["y_test"], centers, digits, regions=True)
    save(figure, "mnist")


def compared(experiment: str, methods: Sequence[str], n_columns: int) -> None:
    """Draw the test samples of an experiment in the embeddings of some methods."""
    figure, axes = sheet(-(-len(methods) // n_columns), n_columns)
    for ax, method in zip(axes, methods, strict=True):
        found = places(experiment, method)
        title = method if method in ALONE else f"{method}: {error(found):.2f} %"
        names = list(map(str, np.unique(found["y"])))
        of_panel = found["test"], found["y_test"], found["centers"], names
        panel(ax, title, *of_panel, size=2, least=0.002)
    save(figure, f"{experiment}-methods")


def digits() -> None:
    """Draw the test images of MNIST in the embeddings of other methods."""
    compared("mnist", OF_MNIST, 3)


def usps() -> None:
    """Draw the test images of USPS in the embeddings of four methods."""
    compared("usps", OF_USPS, 2)


def landsat() -> None:
    """Draw training and test samples of Landsat by two methods."""
    figure, axes = sheet(2, 2, 5.5)
    for row, method in zip(axes.reshape(2, 2), (CE, "supervised UMAP"), strict=True):
        found = places("landsat", method)
        names = [datasets.SOILS[code] for code in np.unique(found["y"])]
        title = f"{method}: {error(found):.1f} %"
        for ax, part, y in zip(row, ("train", "test"), ("y", "y_test"), strict=True):
            of_panel = found[part], found[y], found["centers"], names
            panel(ax, f"{title}, {NAMES[part]}", *of_panel, size=4, regions=True, least=0.002)
    save(figure, "landsat")


def small() -> None:
    """Draw the test samples of Iris, Sonar and USPS-1000 by three methods."""
    names = {"iris": ["setosa", "versicolor", "virginica"], "sonar": ["mine", "rock"]}
    names["usps-1000"] = list("0123456789")
    figure, axes = sheet(3, 3, 3.6)
    for row, (experiment, classes) in zip(axes.reshape(3, 3), names.items(), strict=True):
        for ax, method in zip(row, OF_SMALL, strict=True):
            found = places(experiment, method)
            title = f"{experiment}, {method}: {error(found):.1f} %"
            of_panel = found["test"], found["y_test"], found["centers"], classes
            panel(ax, title, *of_panel, size=14)
    save(figure, "small")


def of_pairs() -> Arrays:
    """Return variances and principal components of pairs of digits, before and after a network."""
    (X, y), (X_test, y_test) = datasets.mnist()
    found: Arrays = {}
    for first, second in variance.PAPER:
        chosen = np.isin(y, (first, second))
        codes = (y[chosen] == second).astype(int)
        layers = variance.trained(X[chosen], codes)
        images, hidden, _ = layers(X[chosen])
        seen = np.isin(y_test, (first, second))
        for name, points in {"images": images, "hidden": hidden}.items():
            pca = PCA(100, svd_solver="randomized", random_state=0).fit(points)
            key = f"{name} {first}{second}"
            found |= {f"{key} variance": 100 * pca.explained_variance_ratio_.cumsum()}
            found |= {f"{key} places": pca.transform(points)[:, :2]}
        found |= {f"test {first}{second}": pca.transform(layers(X_test[seen])[1])[:, :2]}
        found |= {f"y {first}{second}": codes}
        found |= {f"y_test {first}{second}": (y_test[seen] == second).astype(int)}
    return found


def variances() -> None:
    """Draw the share of the variance of pairs of digits, and their first two components."""
    found = kept("variance", of_pairs)
    figure, axes = sheet(2, 3)
    ends = {0: {"0 and 1": "images 01", "4 and 9": "images 49"}}
    ends[3] = {"images": "images 49", "hidden layer": "hidden 49"}
    for at, lines in ends.items():
        for label, key in lines.items():
            axes[at].plot(range(1, 101), found[f"{key} variance"], label=label)
        axes[at].set(xlabel="principal components", ylabel="share of the variance, %")
        axes[at].axvline(2, color="0.7", linewidth=0.8)
        axes[at].legend()
    axes[0].set_title("images of two pairs of digits", fontsize=10)
    axes[3].set_title("4 and 9", fontsize=10)
    panels = {
        1: ("images of 0 and 1", "images 01 places", "y 01", "01"),
        2: ("images of 4 and 9", "images 49 places", "y 49", "49"),
        4: ("hidden layer, training images", "hidden 49 places", "y 49", "49"),
        5: ("hidden layer, test images", "test 49", "y_test 49", "49"),
    }
    for at, (title, key, y, names) in panels.items():
        points, codes = found[key], found[y]
        centers = np.stack([points[codes == c].mean(axis=0) for c in (0, 1)])
        panel(axes[at], title, points, codes, centers, list(names))
    save(figure, "variance")


FIGURES: dict[str, Callable[[], None]] = {
    "mnist": mnist, "digits": digits, "usps": usps, "landsat": landsat, "small": small,
    "variance": variances,
}  # fmt: skip
OF_MNIST = (
    *("Laplacian eigenmaps", "nonlinear NCA", "supervised UMAP"),
    *("UMAP", "autoencoder", "t-SNE"),
)
OF_USPS = ("nonlinear NCA", "supervised UMAP", CE, "autoencoder")
OF_SMALL = ("kernel supervised PCA", "supervised PCA", CE)


def main() -> None:
    """Draw the figures that the command line names, or compute embeddings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []])
    parser.add_argument(
        "--embed", nargs=2, action="append", metavar=("EXPERIMENT", "METHOD"), default=[],
        help="compute and keep the embedding of an experiment by a method",
    )  # fmt: skip
    arguments = parser.parse_args()
    for experiment, method in arguments.embed:
        places(experiment, method)
    for name in arguments.figures:
        FIGURES[name]()


if __name__ == "__main__":
    main()
