"""The map in a notebook: what the figure holds, and a lasso in a real browser."""

from __future__ import annotations

import base64
import io
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from numpy.testing import assert_allclose

import centroid_encoder as ce

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CODE = """
import anndata as ad, centroid_encoder as ce
adata = ad.read_h5ad("cells.h5ad")
scatter = ce.pl.interactive(adata, height=400)
def write(change):
    open("selected.txt", "w").write("\\n".join(adata[scatter.selection()].obs_names))
scatter.widget.observe(write, names="selection")
scatter.show()
"""


@pytest.fixture
def adata(embed: Any) -> ad.AnnData:
    pytest.importorskip("jscatter", reason="needs the extra 'notebook'")
    options = {"max_epochs": 8, "batch_size": 32, "learning_rate": 0.01, "scale": "supervised"}
    # In this map, a lasso around the first class is inside the figure.
    adata: ad.AnnData = embed(unlabeled=4, model=ce.CentroidEncoder(hidden=(16,), **options))
    adata.obs["size"] = np.arange(adata.n_obs) / 7
    return adata


def test_the_figure_holds_cells_colours_and_regions(adata: ad.AnnData) -> None:
    scatter = ce.pl.interactive(adata, palette=["#ff0000", "#00ff00", "#0000ff"], regions="voronoi")
    names = adata.obs_names[[5, 17, 30]]
    scatter.selection(names)
    assert scatter.selection().tolist() == names.tolist()
    assert scatter.color()["by"] == "cell_type"
    found = scatter.color()["labeling"], scatter.color()["map"]
    assert [to_hex(color) for color in found[1]] == ["#ff0000", "#00ff00", "#0000ff", "#b0b0b0"]
    kind, data = scatter.widget.background_image.split(",")
    assert kind == "data:image/png;base64"
    picture = plt.imread(io.BytesIO(base64.b64decode(data)))
    # The colour beneath each center is that of its class, with the lowest row last.
    shares = in_figure(adata, adata.uns["ce"]["centers"])
    column, row = (shares * [len(picture), -len(picture)]).astype(int).T
    assert picture[row, column, :3].argmax(axis=1).tolist() == [0, 1, 2]


def in_figure(adata: ad.AnnData, places: np.ndarray) -> np.ndarray:
    """Places as shares of the width and the height of the figure, from below."""
    ax = ce.pl.regions(adata)
    low, high = np.transpose([ax.get_xlim(), ax.get_ylim()])
    plt.close(ax.figure)
    return (places - low) / (high - low)


def test_numbers_have_a_colour_scale(adata: ad.AnnData) -> None:
    scatter = ce.pl.interactive(adata, color="size", regions=None)
    assert scatter.color()["by"] == "size"
    assert scatter.widget.background_image is None
    with pytest.raises(KeyError, match="neither obs nor var_names has 'sizes'"):
        ce.pl.interactive(adata, color="sizes")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.slow
def test_a_lasso_in_a_browser_selects_cells(adata: ad.AnnData, tmp_path: Path) -> None:
    for needed in ("jupyterlab", "playwright"):
        pytest.importorskip(needed, reason="needs the packages of the group 'notebook'")
    if CHROMIUM is None:
        pytest.skip("needs chromium; `make notebook` installs it")
    import nbformat
    from playwright.sync_api import sync_playwright

    adata.write_h5ad(tmp_path / "cells.h5ad")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE.strip())])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "map.ipynb")
    port = free_port()
    options = ["--allow-root", "--no-browser", f"--port={port}", "--ServerApp.token="]
    options += ["--ServerApp.ip=127.0.0.1", f"--notebook-dir={tmp_path}"]
    paths = os.pathsep.join([*filter(None, sys.path)])
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with sync_playwright() as play:
            look = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
            browser = play.chromium.launch(executable_path=CHROMIUM, args=look)
            page = browser.new_page(viewport={"width": 1100, "height": 900})
            page.set_default_timeout(120_000)
            for _ in range(60):
                try:
                    page.goto(f"http://127.0.0.1:{port}/lab/tree/map.ipynb")
                    break
                except Exception:
                    time.sleep(1)
            page.get_by_text("Python 3", exact=False).last.wait_for()
            page.click(".jp-Cell-inputArea")
            page.keyboard.press("Shift+Enter")
            canvas = page.locator(".jp-OutputArea canvas").first
            canvas.wait_for()
            box = canvas.bounding_box()
            assert box is not None
            # The lasso is the second button beside the figure.
            page.locator(".jp-OutputArea button").nth(1).click()
            page.screenshot(path=tmp_path / "map.png")
            # Around the cells of the first class.
            middle = in_figure(adata, adata.uns["ce"]["centers"][0]) * box["width"]
            x, y = box["x"] + middle[0], box["y"] + box["height"] - middle[1]
            deadline = time.time() + 60
            while not (tmp_path / "selected.txt").exists() and time.time() < deadline:
                page.mouse.move(x + 60, y)
                page.mouse.down()
                for angle in np.linspace(0, 2 * math.pi, 40):
                    page.mouse.move(x + 60 * math.cos(angle), y + 60 * math.sin(angle))
                    page.wait_for_timeout(30)
                page.mouse.up()
                page.wait_for_timeout(2000)
            browser.close()
    finally:
        server.kill()
        server.wait()
    selected = (tmp_path / "selected.txt").read_text().split("\n")
    picture = plt.imread(tmp_path / "map.png")[..., :3]
    blue = np.abs(picture - to_rgb(adata.uns["cell_type_colors"][0])).max(axis=2) < 0.1
    assert blue.any(), "points are drawn in the colours of their classes"
    away = np.linalg.norm(in_figure(adata, adata.obsm["X_ce"]) * box["width"] - middle, axis=1)
    assert set(selected) <= set(adata.obs_names[away < 63])
    assert set(selected) >= set(adata.obs_names[away < 57])
    assert len(selected) > 10


@pytest.mark.parametrize("color", ["x", "place 1", "cell", "confidence", "predicted class"])
def test_columns_with_names_of_the_figure_are_shown_as_they_are(
    adata: ad.AnnData, color: str
) -> None:
    adata.obs[color] = np.arange(adata.n_obs) * 10.0
    adata.obs.iloc[5, adata.obs.columns.get_loc(color)] = np.nan
    scatter = ce.pl.interactive(adata, color=color)
    found = scatter._data
    assert scatter.color()["by"] == color
    assert found[color].tolist() == adata.obs[color].dropna().tolist()
    places = found[[scatter.x()["x"], scatter.y()["y"]]].to_numpy()
    assert_allclose(places, np.delete(adata.obsm["X_ce"], 5, axis=0))


def test_a_category_may_be_called_none_and_names_must_be_unique(adata: ad.AnnData) -> None:
    adata.obs["kind"] = pd.Categorical(np.where(np.arange(adata.n_obs) % 2, "none", "some"))
    ce.pl.interactive(adata, color="kind")
    adata.obs_names = ["cell"] * adata.n_obs
    with pytest.raises(ValueError, match="not unique"):
        ce.pl.interactive(adata)
