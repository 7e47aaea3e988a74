"""The colourings: codes and colours of all cells."""

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.viewer.map.colorings import (
    GREY,
    SCALE,
    STEPS,
    WRONG,
    color_cells,
    color_values,
    offered,
)
from centroid_encoder.viewer.session.session import Session

MakeCells = Embed = Callable[..., ad.AnnData]

SHADES = SCALE(np.linspace(0, 1, STEPS))
OF_A_MAP = ["predicted class", "misplaced cells", "confidence", "novelty"]

KINDS: dict[str, Callable[[Any], Any]] = {
    "category": lambda codes: pd.Categorical.from_codes(codes, ["T", "unused", "B", "NK"]),
    "str": lambda codes: np.array(["T", "unused", "B", "NK"], dtype=object)[codes],
    "int": lambda codes: np.array([30, 5, 200, -7])[codes],
    "bool": lambda codes: codes == 2,
    "int with gaps": lambda codes: np.where(codes == 3, np.nan, codes),
    "bool categories": lambda codes: pd.Categorical(codes == 2),
}


def labeled(make_cells: MakeCells, kind: str) -> ad.AnnData:
    """Cells of the classes 0, 2 and 3 with labels of one type; the class 1 has no cells."""
    adata = make_cells(3, 120, distance=1.0)
    codes = np.array([0, 2, 3])[adata.obs["cell_type"].cat.codes]
    adata.obs["cell_type"] = KINDS[kind](codes)
    return adata


def session_of(adata: ad.AnnData, key: str = "ce", regions: Any = "voronoi") -> Session:
    session = Session()
    session.catalog.choose(session.catalog.add(adata, "cells"))
    session.choose_labels("cell_type")
    session.set(key=key, regions=regions)
    session.read()
    return session


def color_of(mode: str, adata: ad.AnnData, regions: Any = "voronoi") -> list[str | None]:
    """Colour of each cell in the image; None for invisible cells."""
    made = color_cells(mode, session_of(adata, regions=regions))
    assert len(made.codes) == adata.n_obs
    seen = made.codes >= 0 if made.seen is None else made.seen
    shown = zip(made.codes, seen, strict=True)
    return [to_hex(made.colors[code]) if is_seen else None for code, is_seen in shown]


def saturation(colors: list[Any]) -> list[float]:
    """How far colours are from pale: the share of the scale that is used up."""
    return [int(np.flatnonzero([to_hex(c) == color for c in SHADES])[0]) for color in colors]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_have_the_colors_of_scanpy_or_different_ones(make_cells, kind):
    adata = labeled(make_cells, kind)
    names = adata.obs["cell_type"].astype("category").cat.categories
    stored = ["#ff0000", "#008000", "#0000ff", "#ffff00"]
    adata.uns["cell_type_colors"] = stored
    expected = dict(zip(names, stored, strict=False))
    found = color_of("label", adata)
    for label, color in zip(adata.obs["cell_type"], found, strict=True):
        assert color == (None if pd.isna(label) else expected[label])
    adata.uns["cell_type_colors"] = stored[:1]  # too few
    colors = pd.Series(color_of("label", adata)).groupby(adata.obs["cell_type"].to_numpy())
    assert (colors.nunique() == 1).sum() == adata.obs["cell_type"].nunique()
    assert colors.first().nunique() == adata.obs["cell_type"].nunique()
    assert adata.uns["cell_type_colors"] == stored[:1]


@pytest.mark.parametrize("regions", ["voronoi", "decoder"])
def test_misplaced_cells_are_those_that_the_tool_lists(embed, regions):
    placement = "bottleneck" if regions == "decoder" else "voronoi"
    adata = embed(unlabeled=2, placement=placement)
    listed = set(ce.tl.misplaced(adata, regions=regions).index)
    assert 3 < len(listed) < adata.n_obs - 3
    expected = [WRONG if name in listed else GREY for name in adata.obs_names]
    assert color_of("misplaced cells", adata, regions) == expected


@pytest.mark.parametrize(("name", "sign"), [("confidence", -1), ("novelty", 1)])
def test_uncertain_cells_are_saturated_and_sure_ones_are_clear(embed, name, sign):
    adata = embed()
    numbers = adata.obs[f"ce_{name}"].to_numpy(copy=True)
    numbers[0] = np.nan
    adata.obs[f"ce_{name}"] = numbers
    colors = np.array(color_of(name, adata))
    assert colors[0] is None
    is_shown, certainty = colors != None, -sign * numbers  # noqa: E711
    assert (is_shown[1:] == (certainty[1:] <= np.median(certainty[1:]))).all()
    shades = np.array(saturation([*colors[is_shown]]))[np.argsort(-certainty[is_shown])]
    assert (np.diff(shades) >= 0).all()
    assert len(set(shades)) > 3
    made = color_cells(name, session_of(adata))
    assert made.scale == (0, 1)
    assert made.meaning.startswith("1: ")


def test_colorings_are_offered_if_their_results_exist(make_cells, embed):
    cells = make_cells()
    assert list(offered(session_of(cells))) == ["label"]
    for name in (*OF_A_MAP, "out-of-fold error"):
        with pytest.raises(KeyError, match=f"'ce' have no {name}"):
            color_cells(name, session_of(cells))
    adata = embed()
    assert list(offered(session_of(adata))) == ["label", *OF_A_MAP]
    assert list(offered(session_of(adata, "other"))) == ["label"]
    adata.obs["ce_confidence"] = np.nan
    adata.obs["ce_split"] = "query"  # as `ingest` leaves it
    assert list(offered(session_of(adata))) == ["label", "predicted class", "novelty"]


def test_numbers_from_their_median_on_have_a_scale_with_its_ends(make_cells):
    adata = make_cells()
    numbers = np.arange(120.0)
    numbers[:2] = np.nan, np.inf
    numbers[-1] = 1e9  # does not take the colours of all others
    adata.obs["size"] = numbers
    made = color_values(adata, "size")
    assert set(made.codes[:2]) == {-1}
    assert not made.seen[:60].any()
    assert (np.diff(made.codes[61:]) >= 0).all()
    assert len(set(made.codes[61:])) == len(made.colors) == 20
    assert (np.diff(saturation(made.colors)) > 0).any()
    # All are bright enough for a black image.
    assert min(max(to_rgb(color)) for color in made.colors) == 1
    assert made.scale[0] == pytest.approx(60.5, abs=0.5)
    for values, seen in (
        (np.full(120, 7.0), 120),
        (np.full(120, np.nan), 0),
        (np.arange(120) % 2, 60),
        (np.arange(120) % 3 == 0, 40),  # most cells have the smallest number
    ):
        adata.obs["size"] = np.asarray(values, dtype=float)
        assert color_values(adata, "size").seen.sum() == seen


def test_the_largest_of_many_categories_have_colors_and_the_others_are_grey(make_cells):
    adata = make_cells()
    adata.obs["barcode"] = [f"<{max(i, 3)}>" for i in range(120)]
    made = color_values(adata, "barcode")
    assert len(made.colors) == 101
    assert len(set(made.colors[:100])) == 100
    (grey,) = np.flatnonzero(np.array(made.colors) == GREY)
    assert (made.codes == grey).sum() == 17
    assert (made.codes[:4] == made.codes[0]).all()
    assert made.codes[0] != grey
    assert made.key == ((GREY, "all but the 100 largest of 117 categories"),)
    adata.obs["barcode"] = [f"<{i % 30}>" for i in range(120)]
    made = color_values(adata, "barcode")
    assert made.key[0] == (made.colors[0], "<0>")
    assert made.key[-1] == ("", "… and 18 more")


def test_a_variable_has_the_colors_of_its_values(cells):
    """The values are those of ``raw`` if there is one."""
    cells.raw = ad.AnnData(sparse.csr_matrix(np.square(cells.X)), var=cells.var)
    cells.obs["same"] = np.square(cells.X[:, 3])
    made, expected = color_values(cells, str(cells.var_names[3])), color_values(cells, "same")
    np.testing.assert_array_equal(made.codes, expected.codes)
    assert made.scale == expected.scale
    with pytest.raises(KeyError):
        color_values(cells, "gone")
