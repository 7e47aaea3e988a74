"""Points with the colours of a column or variable, over the regions of the classes."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from matplotlib.colors import to_hex
from matplotlib.legend import Legend
from numpy.testing import assert_allclose
from scipy import sparse

import centroid_encoder as ce

Places = dict[tuple[float, ...], Any]


def draw(adata: Any, color: str, **kwargs: Any) -> list[Any]:
    return list(np.ravel(ce.pl.voronoi(adata, color=color, show=False, **kwargs)))


def numbers(ax: Any) -> Places:
    """Numbers that give the drawn points their colours."""
    (drawn,) = ax.collections
    return dict(zip(map(tuple, drawn.get_offsets().tolist()), drawn.get_array(), strict=True))


def by_color(ax: Any) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    for line in ax.lines:
        if line.get_markeredgewidth() == 0:
            found.setdefault(to_hex(line.get_color()), []).append(np.column_stack(line.get_data()))
    return {color: np.concatenate(parts) for color, parts in found.items()}


def expected(adata: ad.AnnData, values: Any, split: str) -> Places:
    shown = (adata.obs["ce_split"] == split).to_numpy()
    embedding = adata.obsm["X_ce"][shown].astype(float)
    return dict(zip(map(tuple, embedding.tolist()), np.asarray(values)[shown], strict=True))


def legends(ax: Any) -> dict[str, list[str]]:
    found = [one for one in ax.get_children() if isinstance(one, Legend)]
    return {
        one.get_title().get_text(): [text.get_text() for text in one.get_texts()] for one in found
    }


@pytest.fixture
def adata(embed: Any) -> ad.AnnData:
    adata: ad.AnnData = embed()
    rng = np.random.default_rng(0)
    adata.obs["size"] = rng.normal(size=adata.n_obs)
    adata.obs["donor"] = pd.Categorical(rng.choice(["d1", "d2"], adata.n_obs))
    adata.layers["counts"] = 2 * adata.X
    return adata


def test_numbers_have_one_colour_bar_and_one_scale_for_all_panels(adata: ad.AnnData) -> None:
    one, other = axes = draw(adata, "size")
    limits = adata.obs["size"].min(), adata.obs["size"].max()
    for split, ax in zip(("train", "test"), axes, strict=True):
        assert numbers(ax) == expected(adata, adata.obs["size"], split)
        assert_allclose(ax.collections[0].get_clim(), limits)
    assert not one.child_axes
    (bar,) = other.child_axes
    assert bar.get_ylabel() == "size"
    assert_allclose(bar.get_ylim(), limits)
    assert legends(other) == {"cell_type": ["type 0", "type 1", "type 2"]}
    other.figure.canvas.draw()
    legend = other.get_legend().get_window_extent()
    assert other.bbox.x1 < bar.get_tightbbox().x0 < bar.get_tightbbox().x1 < legend.x0
    assert legend.x1 < other.figure.bbox.x1


@pytest.mark.parametrize(
    ("kind", "backed"), [(np.asarray, True), (sparse.csr_matrix, True), (sparse.csc_matrix, False)]
)
def test_a_variable_is_read_from_any_matrix(
    adata: ad.AnnData, kind: Any, backed: bool, tmp_path: Any
) -> None:
    values = np.asarray(adata[:, "gene3"].X).ravel().astype(float)
    adata.X = kind(adata.X)
    adata.raw = adata
    if backed:
        adata.write_h5ad(tmp_path / "cells.h5ad")
        adata = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    for use_raw in (True, False):
        (ax,) = draw(adata, "gene3", split="train", use_raw=use_raw)
        assert numbers(ax) == expected(adata, values, "train")


def test_a_variable_is_read_from_raw_as_in_scanpy(adata: ad.AnnData) -> None:
    x = np.asarray(adata[:, "gene3"].X).ravel().astype(float)
    raw = adata.copy()
    raw.X = 5 * raw.X
    raw.var_names = [f"raw{i}" if i != 3 else "gene3" for i in range(raw.n_vars)]
    adata.raw = raw
    for kwargs, factor in (
        ({}, 5),
        ({"use_raw": True}, 5),
        ({"use_raw": False}, 1),
        ({"layer": "counts"}, 2),
        ({"layer": "counts", "use_raw": False}, 2),
    ):
        found = numbers(draw(adata, "gene3", split="train", **kwargs)[0])
        wanted = expected(adata, factor * x, "train")
        assert_allclose([found[place] for place in wanted], list(wanted.values()), rtol=1e-6)
        ax = sc.pl.embedding(adata, "ce", color="gene3", sort_order=False, show=False, **kwargs)
        assert_allclose(ax.collections[0].get_array(), factor * x, rtol=1e-6)
    assert numbers(draw(adata, "raw0", split="train")[0])
    with pytest.raises(ValueError, match="exclude each other"):
        draw(adata, "gene3", layer="counts", use_raw=True)


def test_cells_without_a_number_are_grey(adata: ad.AnnData) -> None:
    adata.obs["n"] = pd.array([*[None] * 20, *range(100)], dtype="Int64")
    adata.obs.loc[adata.obs_names[20:25], "size"] = np.inf
    for color, n_grey in (("n", 20), ("size", 5)):
        axes = draw(adata, color)
        assert sum(len(numbers(ax)) for ax in axes) == adata.n_obs - n_grey
        assert sum(len(by_color(ax)["#d3d3d3"]) for ax in axes) == n_grey


EMPTY = {"numbers": np.nan, "text": None, "gene": np.nan, "elsewhere": np.nan, "lists": [[1]] * 120}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("plot", [ce.pl.voronoi, ce.pl.interactive])
def test_a_column_or_variable_without_values_is_an_error(adata, plot, name):
    if plot is ce.pl.interactive:
        pytest.importorskip("jscatter", reason="needs the extra 'notebook'")
    layer = None
    if name == "gene":
        adata.layers["empty"], layer = np.full(adata.shape, np.nan), "empty"
        name = adata.var_names[0]
    else:
        adata.obs[name] = EMPTY[name]
    if name == "elsewhere":  # The only cell with a value has no place.
        adata.obs.loc[adata.obs_names[0], name] = 1.0
        adata.obsm["X_ce"][0] = np.nan
    with pytest.raises(ce.errors.InputError, match=r"has a value of|no names or numbers"):
        plot(adata, color=name, layer=layer)


def test_categories_have_their_own_colours_and_legend(adata: ad.AnnData) -> None:
    adata.uns["donor_colors"] = ["#123456", "#654321"]
    one, other = axes = draw(adata, "donor", mark_misplaced=True)
    plain = draw(adata, "cell_type")
    for split, ax, before in zip(("train", "test"), axes, plain, strict=True):
        places = expected(adata, adata.obs["donor"], split)
        for donor, color in (("d1", "#123456"), ("d2", "#654321")):
            own = {place for place, value in places.items() if value == donor}
            assert set(map(tuple, by_color(ax)[color].tolist())) == own
        regions = [[to_hex(p.get_facecolor()) for p in panel.patches] for panel in (ax, before)]
        assert regions[0] == regions[1], "regions stay those of the classes"
        assert ax.get_title() == before.get_title()
    classes = ["type 0", "type 1", "type 2", "misplaced"]
    assert legends(one) == {}
    assert legends(other) == {"donor": ["d1", "d2"], "cell_type": classes}
    other.figure.canvas.draw()
    boxes = [one.get_window_extent() for one in other.get_children() if isinstance(one, Legend)]
    assert not boxes[0].overlaps(boxes[1])
    assert max(box.x1 for box in boxes) < other.figure.bbox.x1
