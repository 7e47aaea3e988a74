"""Bars are as long as the shares of the classes, and in their colours."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose

import centroid_encoder as ce


def draw(adata: Any, **kwargs: Any) -> Axes:
    return ce.pl.composition(adata, "image", label_key="cell_type", show=False, **kwargs)


def bars(ax: Axes) -> np.ndarray:
    """(n_groups, n_classes) lengths."""
    return np.array([[bar.get_width() for bar in one] for one in ax.containers]).T


@pytest.fixture
def images(cells: ad.AnnData) -> ad.AnnData:
    cells.obs["image"] = ["A"] * 30 + ["$x$"] * 90
    cells.obs.loc[cells.obs_names[0], "cell_type"] = np.nan
    return cells


def test_bars_are_shares_or_counts(images: ad.AnnData, unchanged: Any) -> None:
    with unchanged(images):
        ax = draw(images)
    assert_allclose(bars(ax), 100 * np.array([[30, 30, 30], [9, 10, 10]]) / [[90], [29]])
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["$x$ (90)", "A (29)"]
    assert ax.get_title() == "cell_type by image, n = 119"
    ax = draw(images, counts=True)
    assert_allclose(bars(ax), [[30, 30, 30], [9, 10, 10]])
    assert ax.get_xlabel() == "cells"
    assert ax.get_xlim()[1] == 90


def test_colors_are_those_of_the_classes(images: ad.AnnData) -> None:
    images.uns["cell_type_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
    ax = draw(images)
    colors = [to_hex(one[0].get_facecolor()) for one in ax.containers]
    assert colors == images.uns["cell_type_colors"]
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["type 0", "type 1", "type 2"]


def test_nothing_to_count_is_an_error(images: ad.AnnData) -> None:
    images.obs["image"] = None
    with pytest.raises(ValueError, match="no cell has both"):
        draw(images)
