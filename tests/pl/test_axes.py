"""Saving, showing and given axes, which are the same for all figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scanpy as sc

import centroid_encoder as ce

FIGURES = sorted({*ce.pl.__all__} - {"interactive"})
ONE_PANEL = sorted({*FIGURES} - {"reliability", "voronoi"})


@pytest.fixture
def adata(embed: Any, validate: Any, add_panel: Any) -> ad.AnnData:
    adata: ad.AnnData = add_panel(validate(embed(unlabeled=3)))
    for column in ("cell_type", "ce_label", "ce_cv_label"):
        adata.uns[f"{column}_colors"] = ["#111111", "#222222", "#333333"]
    adata.uns["ce"]["colors"] = np.array(["#111111", "#222222", "#333333"])
    return adata


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Any]:
    names = ("autosave", "autoshow", "figdir", "file_format_figs", "plot_suffix")
    before = {name: getattr(sc.settings, name) for name in names}
    sc.settings.figdir = tmp_path / "figures"
    yield sc.settings
    for name, value in before.items():
        setattr(sc.settings, name, value)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    calls: list[list[int]] = []
    monkeypatch.setattr(plt, "show", lambda: calls.append(plt.get_fignums()))
    return calls


def draw(name: str, adata: ad.AnnData, **kwargs: Any) -> Any:
    return getattr(ce.pl, name)(adata, **({"show": False} | kwargs))


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_shown_and_saved(
    name: str, adata: ad.AnnData, shown: Any, tmp_path: Path, unchanged: Any
) -> None:
    with unchanged(adata):
        assert draw(name, adata, show=True, save=tmp_path / "a.png", dpi=20) is None
        assert draw(name, adata) is not None
    assert shown == [[1]]
    assert plt.get_fignums() == [1], "saved figures are closed"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_checks_the_file_first(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder nowhere"):
        draw(name, ad.AnnData(), save="nowhere/figure.png")
    with pytest.raises(ValueError, match="the name must end in"):
        draw(name, ad.AnnData(), save="_first")
    with pytest.raises(ValueError, match="dpi must be positive"):
        draw(name, ad.AnnData(), dpi=-1)
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_names_the_call_to_make_first(name: str, cells: Any, unchanged: Any) -> None:
    with unchanged(cells), pytest.raises(KeyError, match=r"run ce.tl.\w+\(adata, "):
        draw(name, cells)
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", ONE_PANEL)
def test_a_figure_is_drawn_on_the_axes_given(name: str, adata: ad.AnnData, shown: Any) -> None:
    ax = plt.figure().subfigures(1, 2)[0].subplots()
    assert draw(name, adata, ax=ax, show=None) is ax
    assert not shown
    assert plt.get_fignums() == [1]
    assert tuple(plt.gcf().get_size_inches()) == tuple(plt.rcParams["figure.figsize"])


@pytest.mark.parametrize("name", ONE_PANEL)
def test_a_figure_holds_all_its_texts(name: str, adata: ad.AnnData) -> None:
    with plt.rc_context({"font.size": 14}):
        ax = draw(name, adata)
        ax.figure.canvas.draw()
    whole, drawn = ax.figure.bbox, ax.get_tightbbox()
    assert whole.x0 <= drawn.x0 < drawn.x1 <= whole.x1
    assert whole.y0 <= drawn.y0 < drawn.y1 <= whole.y1


def test_scanpys_settings_hold(adata: ad.AnnData, settings: Any, shown: Any) -> None:
    settings.autoshow = False
    settings.file_format_figs = "svg"
    assert len(ce.pl.voronoi(adata)) == 2
    assert not settings.figdir.exists()
    ce.pl.voronoi(adata, save=True)
    settings.autosave, settings.plot_suffix = True, "_suffix"
    ce.pl.voronoi(adata)
    ce.pl.voronoi(adata, save=False)
    names = sorted(path.name for path in settings.figdir.iterdir())
    assert names == ["voronoi.svg", "voronoi_suffix.svg"]
    assert not shown
    settings.autoshow, settings.autosave = True, False
    assert ce.pl.voronoi(adata) is None
    assert len(shown) == 1


def test_a_pdf_has_fonts_that_journals_accept(adata: ad.AnnData, tmp_path: Path) -> None:
    with plt.rc_context({"pdf.compression": 0}):
        before = dict(plt.rcParams)
        ce.pl.history(adata, show=False, save=tmp_path / "a.pdf")
        assert dict(plt.rcParams) == before
    data = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in data
    assert b"/CIDFontType2" in data
