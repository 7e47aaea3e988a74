"""Pictures of two versions of centroid-encoder, side by side: docs/images/versions.webp.

    git worktree add ../old c686cd9  # before classes had rooms and one way up
    python -m benchmarks.versions ../old

Both versions are trained on the training samples of the first draw of `benchmarks.placement`, and
on blood cells of very different class sizes (`benchmarks.figures.CUT`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import anndata as ad
import matplotlib.pyplot as plt
import pandas as pd

import centroid_encoder as ce

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "versions"
N_COLUMNS = 6


def write_sets() -> None:
    """Write the training samples of all data sets to the folder `BUILD`."""
    # The other version may lack what these modules import.
    from benchmarks.figures import cut_blood
    from benchmarks.placement import SETS, drawn

    BUILD.mkdir(parents=True, exist_ok=True)
    for name, (load, n_train, n_test) in SETS.items():
        X, y, _, _ = drawn(load(), n_train, n_test, 0)
        obs = pd.DataFrame(
            {"class": pd.Categorical(y.astype(str))}, [f"{i}" for i in range(len(y))]
        )
        ad.AnnData(X, obs).write_h5ad(BUILD / f"{name}.h5ad")
    cut = cut_blood()
    obs = pd.DataFrame({"class": cut.obs["classified"].cat.remove_unused_categories()})
    ad.AnnData(cut.X, obs, var=cut.var[[]]).write_h5ad(BUILD / "unequal classes.h5ad")


def draw(version: str) -> None:
    """Draw a picture of each data set by the version that Python finds first."""
    for path in sorted(BUILD.glob("*.h5ad")):
        adata = ad.read_h5ad(path)
        ce.tl.centroid_encoder(adata, "class", test_size=0, random_state=0, progress=False)
        figure, ax = plt.subplots(figsize=(4, 4))
        ax.set_position((0, 0, 1, 1))
        ce.pl.voronoi(adata, ax=ax, legend_loc=None, show=False, save=False)
        ax.set(title="", xlabel="", ylabel="")
        figure.savefig(path.with_suffix(f".{version}.png"), dpi=75)
        plt.close(figure)


def sheet() -> None:
    """Put the pictures of both versions on one sheet, those of a data set beside each other."""
    paths = sorted(BUILD.glob("*.h5ad"))
    n_rows = -(-2 * len(paths) // N_COLUMNS)
    figure, axes = plt.subplots(
        n_rows, N_COLUMNS, figsize=(12, 2.15 * n_rows), layout="constrained"
    )
    for ax in axes.flat:
        ax.axis("off")
    for i, path in enumerate(paths):
        for ax, version in zip(axes.flat[2 * i : 2 * i + 2], ("before", "after"), strict=True):
            ax.imshow(plt.imread(path.with_suffix(f".{version}.png")))
            ax.set_title(f"{path.stem}, {version}", fontsize=9)
    figure.savefig(ROOT / "docs" / "images" / "versions.webp", dpi=150)


def main() -> None:
    """Draw the pictures of both versions, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="folder with the other version")
    parser.add_argument("--draw", metavar="VERSION", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.draw:
        draw(arguments.draw)
        return
    write_sets()
    for version, source in (("before", arguments.old.resolve()), ("after", ROOT)):
        subprocess.run(
            [sys.executable, "-m", "benchmarks.versions", str(source), "--draw", version],
            check=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{source / 'src'}{os.pathsep}{ROOT}"},
        )
    sheet()


if __name__ == "__main__":
    main()
