"""What the colours of a layer stand for: codes and colours of every cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from scipy import sparse
from scipy.spatial import distance
from scipy.stats import spearmanr

import centroid_encoder as ce
from centroid_encoder.tl._result import read_result
from centroid_encoder.viewer.map.colorings import (
    COLORINGS,
    GREY,
    RIGHT,
    WRONG,
    Colors,
    Subject,
    color_cells,
    color_column,
    color_variable,
    offered,
)

MakeCells = Callable[..., ad.AnnData]

OF_A_MAP = ["predicted class", "misplaced cells"]

KINDS: dict[str, Callable[[Any], Any]] = {
    "category": lambda codes: pd.Categorical.from_codes(codes, ["T", "unused", "B", "NK"]),
    "str": lambda codes: np.array(["T", "unused", "B", "NK"], dtype=object)[codes],
    "int": lambda codes: np.array([30, 5, 200, -7])[codes],
    "bool": lambda codes: codes == 2,
    "int with gaps": lambda codes: np.where(codes == 3, np.nan, codes),
    "bool categories": lambda codes: pd.Categorical(codes == 2),
}


def labeled(make_cells: MakeCells, kind: str) -> ad.AnnData:
    """Cells of the classes 0, 2 and 3, labelled in this way; 1 has no cells."""
    adata = make_cells(3, 120, distance=1.0)
    codes = np.array([0, 2, 3])[adata.obs["cell_type"].cat.codes]
    adata.obs["kind"] = KINDS[kind](codes)
    return adata


def trained(adata: ad.AnnData, **options: Any) -> ad.AnnData:
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=4, batch_size=32, learning_rate=0.01)
    ce.tl.centroid_encoder(adata, "kind", model=model, progress=False, **options)
    return adata


def subject(adata: ad.AnnData, key: str = "ce", regions: Any = "voronoi") -> Subject:
    result = read_result(adata, key) if key in adata.uns else None
    return Subject(adata, "kind", result, regions, key)


def color_of(mode: str, adata: ad.AnnData, regions: Any = "voronoi") -> list[str | None]:
    """Colour of every cell; None for cells that are not to be seen."""
    made = color_cells(mode, subject(adata, regions=regions))
    assert len(made.codes) == adata.n_obs
    assert made.codes.dtype.kind == "i"
    assert made.codes.min() >= -1
    assert made.codes.max() < len(made.colors)
    return [None if code < 0 else to_hex(made.colors[code]) for code in made.codes]


def scanpy_colors(adata: ad.AnnData) -> dict[Any, str]:
    """What scanpy gives each category: the stored ones, in category order."""
    column = adata.obs["kind"]
    if not isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype("category")
    colors = adata.uns["kind_colors"]
    return {name: to_hex(colors[i]) for i, name in enumerate(column.cat.categories)}


# -- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_labels_have_the_colors_that_scanpy_stored(make_cells: MakeCells, kind: str) -> None:
    adata = labeled(make_cells, kind)
    adata.uns["kind_colors"] = ["#ff0000", "green", "#0000FF", "#ffff00"]
    expected = scanpy_colors(adata)
    found = color_of("label", adata)
    for label, color in zip(adata.obs["kind"], found, strict=True):
        assert color == (None if pd.isna(label) else expected[label])
    assert len(set(found)) == adata.obs["kind"].nunique(dropna=False)


@pytest.mark.parametrize("kind", KINDS)
def test_labels_without_stored_colors_differ(make_cells: MakeCells, kind: str) -> None:
    adata = labeled(make_cells, kind)
    adata.uns["kind_colors"] = ["#ff0000"]  # too few
    found = pd.Series(color_of("label", adata)).groupby(adata.obs["kind"].to_numpy())
    assert (found.nunique() == 1).sum() == adata.obs["kind"].nunique()
    assert found.first().nunique() == adata.obs["kind"].nunique()
    assert adata.uns["kind_colors"] == ["#ff0000"]


# -- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "int with gaps"])
def test_predicted_classes_have_the_colors_of_the_labels(make_cells: MakeCells, kind: str) -> None:
    adata = trained(labeled(make_cells, kind))
    adata.uns["kind_colors"] = ["#ff0000", "#00ff00", "#0000ff", "#ffff00"]
    expected = scanpy_colors(adata)
    predicted = adata.obs["ce_label"]
    assert color_of("predicted class", adata) == [expected[name] for name in predicted]
    assert (predicted.astype(str) != adata.obs["kind"].astype(str)).any()


@pytest.mark.parametrize("regions", ["voronoi", "decoder"])
def test_misplaced_cells_are_those_that_the_tool_lists(make_cells: MakeCells, regions: Any) -> None:
    adata = labeled(make_cells, "category")
    adata.obs["kind"] = adata.obs["kind"].where(~adata.obs_names.isin(["cell1", "cell2"]))
    adata = trained(adata)
    listed = set(ce.tl.misplaced(adata, regions=regions).index)
    assert 3 < len(listed) < adata.n_obs - 3
    expected = [WRONG if name in listed else GREY for name in adata.obs_names]
    assert color_of("misplaced cells", adata, regions) == expected
    if regions == "voronoi":
        centers = adata.uns["ce"]["centers"]
        nearest = distance.cdist(adata.obsm["X_ce"], centers).argmin(axis=1)
        own = pd.Index(adata.uns["ce"]["classes"]).get_indexer(adata.obs["kind"].astype(object))
        wrong = (own >= 0) & (own != nearest)
        assert expected == [WRONG if w else GREY for w in wrong]


def test_those_that_the_map_is_unsure_of_shine(make_cells: MakeCells) -> None:
    adata = trained(labeled(make_cells, "category"))
    shades = [sum(to_rgb(color or "k")) for color in color_of("confidence", adata)]
    confidence = adata.obs["ce_confidence"]
    assert shades[int(confidence.argmin())] > shades[int(confidence.argmax())]
    assert spearmanr(shades, confidence).statistic < -0.8


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "int with gaps"])
def test_out_of_fold_cells_are_right_or_wrong(make_cells: MakeCells, kind: str) -> None:
    adata = labeled(make_cells, kind)
    adata.obs["kind"] = adata.obs["kind"].astype("category")
    adata.obs["kind"] = adata.obs["kind"].where(~adata.obs_names.isin(["cell1", "cell2"]))
    adata.X[5] = np.nan
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=4, batch_size=32)
    ce.tl.cross_validate(
        adata, "kind", n_folds=2, model=model, missing="drop", key_added="k", progress=False
    )
    made = color_cells("out-of-fold error", subject(adata, "k"))
    for i, (_, row) in enumerate(adata.obs.iterrows()):
        if i == 5:
            assert made.codes[i] == -1
            continue
        wanted = RIGHT if row["kind"] == row["k_cv_label"] else WRONG
        assert made.colors[made.codes[i]] == (GREY if i in (1, 2) else wanted)
    assert {GREY, RIGHT, WRONG} == {made.colors[code] for code in made.codes if code >= 0}


def test_what_has_been_computed_is_offered(make_cells: MakeCells) -> None:
    adata = labeled(make_cells, "category")
    assert offered(subject(adata)) == ["label"]
    adata = trained(adata)
    assert offered(subject(adata)) == ["label", *OF_A_MAP, "confidence", "novelty"]
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=1)
    ce.tl.cross_validate(adata, "kind", n_folds=2, model=model, progress=False)
    assert offered(subject(adata)) == list(COLORINGS)
    assert offered(subject(adata, "other")) == ["label"]
    adata.obs["ce_confidence"] = np.nan
    adata.obs["ce_split"] = "query"  # as `ingest` leaves it
    assert offered(subject(adata)) == ["label", "predicted class", "novelty", "out-of-fold error"]


def test_an_unknown_coloring_is_an_error(make_cells: MakeCells) -> None:
    adata = labeled(make_cells, "category")
    with pytest.raises(ValueError, match=r"no colouring is named 'positon'; there are label, "):
        color_cells("positon", subject(adata))


@pytest.mark.parametrize("name", [name for name in COLORINGS if name != "label"])
def test_what_has_not_been_computed_is_an_error(make_cells: MakeCells, name: str) -> None:
    with pytest.raises(KeyError):
        color_cells(name, subject(labeled(make_cells, "category")))


# -- comparison ----------------------------------------------------------------------------------


def test_colors_that_look_alike() -> None:
    one = Colors(np.array([0, 1, -1]), ["#ff0000", "#00ff00"], "")
    assert one.looks_like(Colors(np.array([0, 1, -1]), ["#ff0000", "#00ff00"], "x"))
    assert not one.looks_like(None)
    assert not one.looks_like(Colors(one.codes, ["#ff0000", "#0000ff"], ""))
    assert not one.looks_like(Colors(np.array([0, 1, 1]), one.colors, ""))
    assert not one.looks_like(Colors(np.array([0, 1]), one.colors, ""))


# -- any column or variable ----------------------------------------------------------------------


def test_numbers_have_a_scale_with_its_ends(make_cells: MakeCells) -> None:
    adata = make_cells()
    numbers = np.arange(120.0)
    numbers[:2] = np.nan, np.inf
    numbers[-1] = 1e9  # does not take the colours of all others
    adata.obs["size"] = numbers
    made = color_column(adata, "size")
    assert made.codes[:2].tolist() == [-1, -1]
    assert (np.diff(made.codes[2:]) >= 0).all()
    assert len(set(made.codes[2:])) == len(made.colors) == 20
    assert "█" in made.meaning
    assert made.meaning.startswith("3.1")
    # No powers of ten where there is room for the number.
    adata.obs["size"] = np.linspace(0, 6121, 120)
    assert color_column(adata, "size").meaning.endswith(" 6,060")
    for values in (np.full(120, 7.0), np.full(120, np.nan), np.arange(120) % 2):
        adata.obs["size"] = values
        codes = color_column(adata, "size").codes
        np.testing.assert_array_equal(codes >= 0, ~np.isnan(values))


@pytest.mark.parametrize("kind", KINDS)
def test_categories_have_their_own_colors(make_cells: MakeCells, kind: str) -> None:
    adata = labeled(make_cells, kind)
    if kind.startswith("int"):
        adata.obs["kind"] = adata.obs["kind"].astype(str)
    made, label = color_column(adata, "kind"), color_cells("label", subject(adata))
    assert made.colors == label.colors
    np.testing.assert_array_equal(made.codes, label.codes)
    assert "●" in made.meaning


def test_of_many_categories_the_largest_have_a_color_and_the_others_are_grey(
    make_cells: MakeCells,
) -> None:
    adata = make_cells()
    adata.obs["barcode"] = [f"<{max(i, 3)}>" for i in range(120)]
    made = color_column(adata, "barcode")
    assert len(made.colors) == 101
    assert len(set(made.colors[:100])) == 100
    (grey,) = np.flatnonzero(np.array(made.colors) == GREY)
    assert (made.codes == grey).sum() == 17
    assert (made.codes[:4] == made.codes[0]).all()
    assert made.codes[0] != grey
    assert "all but the 100 largest of 117 categories" in made.meaning
    adata.obs["barcode"] = [f"<{i % 30}>" for i in range(120)]
    made = color_column(adata, "barcode")
    assert made.meaning.endswith("… and 18 more")
    assert "&lt;0&gt;" in made.meaning


@pytest.mark.parametrize("name", ["confidence", "novelty"])
def test_shares_have_a_scale_in_numbers(make_cells: MakeCells, name: str) -> None:
    adata = trained(labeled(make_cells, "category"))
    made = color_cells(name, subject(adata))
    assert made.meaning.startswith("0 <span")
    assert "</span> 1 (1: " in made.meaning


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_matrix, sparse.csc_array])
@pytest.mark.parametrize("has_raw", [False, True])
def test_a_variable_has_the_values_of_pl_voronoi(
    embed: Callable[..., ad.AnnData], make: Any, has_raw: bool
) -> None:
    """The values are those of ``raw`` if there is one."""
    adata = embed(test_size=0)
    adata.X = make(adata.X)
    if has_raw:
        raw = adata[:, ::-1].copy()
        raw.X = make(np.square(raw.X.toarray() if sparse.issparse(raw.X) else raw.X))
        adata.raw = raw
    position = list((adata.raw if has_raw else adata).var_names).index("gene3")
    ax = ce.pl.voronoi(adata, color="gene3", show=False)
    (drawn,) = (one for one in ax.collections if len(one.get_offsets()) == adata.n_obs)
    place = {tuple(at): i for i, at in enumerate(adata.obsm["X_ce"].astype(float).tolist())}
    order = [place[tuple(at)] for at in np.asarray(drawn.get_offsets()).tolist()]
    adata.obs["same"] = np.asarray(drawn.get_array())[np.argsort(order)]
    made, expected = color_variable(adata, position), color_column(adata, "same")
    np.testing.assert_array_equal(made.codes, expected.codes)
    assert made.meaning == expected.meaning
    with pytest.raises(KeyError):
        color_column(adata, "gone")
