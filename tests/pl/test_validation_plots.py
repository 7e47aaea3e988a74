"""What the plots of a cross-validation have in common: where they lie, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import pytest
import scanpy as sc

import centroid_encoder as ce

Plot = Callable[..., Any]


@pytest.fixture(params=["calibration", "confusion", "permutation_test"])
def plot(request: pytest.FixtureRequest) -> Plot:
    drawn: Plot = getattr(ce.pl, request.param)
    return drawn


@pytest.mark.parametrize("font_size", [10, 14])
def test_lies_in_the_figure(
    plot: Plot, cells: ad.AnnData, validate: Callable[..., ad.AnnData], font_size: int
) -> None:
    with plt.rc_context({"font.size": font_size}):
        ax = plot(validate(cells), show=False)
        ax.figure.canvas.draw()
    whole, drawn = ax.figure.bbox, ax.get_tightbbox()
    assert whole.x0 <= drawn.x0 < drawn.x1 <= whole.x1
    assert whole.y0 <= drawn.y0 < drawn.y1 <= whole.y1


def test_lies_on_the_axes_given_and_is_not_shown(
    plot: Plot,
    cells: ad.AnnData,
    validate: Callable[..., ad.AnnData],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plt, "show", lambda: pytest.fail("it was shown"))
    figure, axes = plt.subplots(1, 2)
    assert plot(validate(cells), ax=axes[1]) is axes[1]
    assert plt.get_fignums() == [figure.number]
    assert tuple(figure.get_size_inches()) == tuple(plt.rcParams["figure.figsize"])
    part = plt.figure().subfigures(1, 2)[0].subplots()
    assert plot(validate(cells), ax=part) is part


def test_shows_and_saves_like_the_other_plots(
    plot: Plot,
    cells: ad.AnnData,
    validate: Callable[..., ad.AnnData],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(True))
    adata = validate(cells, key="second")
    assert plot(adata, key="second", show=True) is None
    assert shown == [True]
    before, sc.settings.figdir = sc.settings.figdir, tmp_path
    try:
        plot(adata, key="second", show=False, save="_second.png")
    finally:
        sc.settings.figdir = before
    assert (tmp_path / f"{plot.__name__}_second.png").exists()


@pytest.mark.parametrize("name", ce.pl.__all__)
def test_every_figure_refuses_a_folder_that_is_not_there_before_all_else(name: str) -> None:
    needed = {"group_key": "image"} if name == "composition" else {}
    with pytest.raises(FileNotFoundError, match="there is no folder nowhere"):
        getattr(ce.pl, name)(ad.AnnData(), save="nowhere/figure.png", **needed)
    with pytest.raises(ValueError, match="dpi must be positive"):
        getattr(ce.pl, name)(ad.AnnData(), dpi=-1, **needed)
    assert not plt.get_fignums()
