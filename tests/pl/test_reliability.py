"""The page: everything that is there, drawn; and of what is not, how to get it."""

from __future__ import annotations

from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scanpy as sc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scanpy.plotting._rcmod import set_rcParams_scanpy

import centroid_encoder as ce
from centroid_encoder.tl._summary import summary


def draw(adata: Any, **kwargs: Any) -> Figure:
    return ce.pl.reliability(adata, **({"show": False} | kwargs))


def titles(figure: Figure) -> list[str]:
    return [ax.get_title().split("\n")[0] for ax in figure.axes if ax.get_title()]


def words(figure: Figure) -> list[str]:
    """The sentences, in order; maps of so few epochs miss a class, which is said elsewhere."""
    (ax,) = (ax for ax in figure.axes if ax.texts and not ax.axison)
    (text,) = ax.texts
    lines = text.get_text().replace("\u00a0", " ").split("\n\n")
    sentences = [line.replace("\n", " ") for line in lines]
    return [sentence for sentence in sentences if "takes no cell" not in sentence]


def absent(figure: Figure) -> list[str]:
    """What stands in the place of figures."""
    empty = [ax for ax in figure.axes if ax.axison and not ax.get_title()]
    return [text.get_text().replace("\n", " ") for ax in empty for text in ax.texts]


def assert_legible(figure: Figure) -> None:
    """Nothing beyond the page, no two figures over each other."""
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in figure.axes if ax.axison]
    boxes += [ax.texts[0].get_window_extent() for ax in figure.axes if not ax.axison]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 - 1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1
        assert not any(box.shrunk(0.99, 0.99).overlaps(other) for other in boxes[:i])


def cross_validation_only(adata: ad.AnnData) -> ad.AnnData:
    del adata.uns["ce"], adata.obsm["X_ce"]
    adata.obs = adata.obs.drop(columns=["ce_split", "ce_label", "ce_confidence"])
    return adata


class TestPage:
    def test_holds_all_there_is(self, embed, validate):
        adata = validate(embed(), warnings=["Class 'a' has 3 cells.", "Donor 2 is alone."])
        figure = draw(adata)
        error, voronoi = (
            f"{100 * adata.uns['ce']['quality']['test'][name]:.1f} %"
            for name in ("knn_error", "voronoi_error")
        )
        assert titles(figure) == [
            "training cells (n = 96)",
            f"held-out Voronoi error {voronoi} (n = 24)",
            "out-of-fold labels, 5 folds, n = 120",
            "out-of-fold labels, 5 folds, n = 120",
            "p = 0.01 (99 permutations, the smallest possible)",
        ]
        assert absent(figure) == []
        observed = 100 * adata.uns["ce_cv"]["quality"]["knn_error"]
        whole = 100 * adata.uns["ce_cv"]["quality"]["input_knn_error"]
        sentences = words(figure)
        assert sentences[:3] == [
            f"Held-out 5-NN error {error} (n = 24); always naming the largest class: 66.7 %.",
            f"Cross-validated 5-NN error {observed:.1f} ± 0.4 % (5 folds, n = 120).",
            f"In the full input space, without a map, it is {whole:.1f} %; always naming the "
            "largest class gives 66.7 %.",
        ]
        assert sentences[-5:] == [
            "Against shuffled labels: p = 0.01 (99 permutations, the smallest possible).",
            "Confidences of out-of-fold cells are off by 1.2 points on average (4.5 before "
            "calibration).",
            "Confidences of held-out cells are off by 2.3 points on average, 95 % interval 0.0 to "
            "4.4 (6.1 before calibration).",
            "Warning: Class 'a' has 3 cells.",
            "Warning: Donor 2 is alone.",
        ]
        assert_legible(figure)

    def test_of_a_map_alone_says_how_to_get_the_rest(self, embed, validate, forget):
        figure = draw(forget(validate(embed())))
        assert len(titles(figure)) == 4
        assert absent(figure) == [
            "No permutation test was made. Run ce.tl.cross_validate(adata, 'cell_type', "
            "n_permutations=99)."
        ]
        assert len(words(figure)) == 2
        assert_legible(figure)

    def test_of_a_map_without_confidences_says_so(self, embed):
        adata = embed()
        adata.obs["ce_confidence"] = np.nan
        said = absent(draw(adata))
        assert [text.split(".")[0] for text in said] == [
            "No confidence is known",
            "No permutation test was made",
        ]

    def test_of_a_map_without_held_out_cells_warns(self, embed):
        figure = draw(embed(test_size=0))
        assert titles(figure) == ["training cells (n = 120)"]
        assert [text.split(".")[0] for text in absent(figure)] == [
            "No cell was held out",
            "No cell was held out",
            "No permutation test was made",
        ]
        assert words(figure)[0] == (
            "No cell was held out of the map: its picture alone proves nothing."
        )
        assert_legible(figure)

    def test_of_a_cross_validation_alone_asks_for_the_map(self, cells, validate):
        figure = draw(validate(cells))
        assert absent(figure) == [
            "There is no map yet. Run ce.tl.centroid_encoder(adata, 'cell_type')."
        ]
        assert len(titles(figure)) == 3
        assert words(figure)[0].startswith("Cross-validated")
        assert_legible(figure)

    def test_without_permutations(self, embed, validate):
        figure = draw(validate(embed(), n_permutations=0))
        assert len(absent(figure)) == 1
        assert not any("shuffled" in sentence for sentence in words(figure))

    @pytest.mark.parametrize("n_components", [1, 3, 4])
    def test_of_any_number_of_components(self, embed, validate, n_components):
        figure = draw(validate(embed(n_components=n_components)))
        if n_components == 4:
            assert absent(figure) == [
                "A map of 4 components cannot be drawn. Train with n_components=2."
            ]
        else:
            assert titles(figure)[0] == "training cells (n = 96)"
        figure.canvas.draw()

    def test_of_a_hundred_classes_is_legible(self, make_cells, validate, fast):
        adata = make_cells(100, 1000, names=[f"a rather long class name {i}" for i in range(100)])
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
        figure = draw(validate(adata))
        assert all(ax.get_legend() is None for ax in figure.axes[:2])
        assert words(figure)[-1] == "ce.pl.voronoi names the 100 classes."
        assert_legible(figure)

    @pytest.mark.slow
    @pytest.mark.parametrize("style", ["default", "dark_background", "scanpy"])
    def test_of_real_cells_is_legible(self, pbmc, validate, fast, style):
        ce.tl.centroid_encoder(pbmc, "bulk_labels", model=fast, progress=False)
        warnings = [
            f"Something of note happened to class {i}, and it takes a while." for i in range(9)
        ]
        with plt.style.context("default" if style == "scanpy" else style):
            if style == "scanpy":
                # Large letters, and a grid wherever it is not wanted.
                set_rcParams_scanpy(fontsize=14)
            figure = draw(validate(pbmc, "bulk_labels", warnings=warnings))
            assert_legible(figure)
        assert words(figure)[-1] == "And 5 more in uns['ce_cv']['warnings']."
        # The names of the classes under the one figure take no room from the others.
        _, _, confusion, calibration, permutation = (ax for ax in figure.axes if ax.get_title())
        assert calibration.bbox.height > 1.3 * confusion.bbox.height
        assert calibration.bbox.y1 == pytest.approx(permutation.bbox.y1)


class TestWords:
    def test_say_what_is_no_better_than_chance(self, embed, validate):
        adata = validate(embed())
        adata.uns["ce"]["quality"]["test"] |= {"at_chance": np.True_, "knn_error": 0.65}
        adata.uns["ce_cv"]["permutation"]["p_value"] = 0.4
        sentences = summary(adata, "ce")
        assert sentences[0] == (
            "Held-out 5-NN error 65.0 % (n = 24), no better than always naming the largest class "
            "(66.7 %)."
        )
        assert "Against shuffled labels: p = 0.4 (99 permutations), no better than chance." in (
            sentences
        )

    def test_name_the_classes_least_to_be_believed(self, embed, validate):
        adata = validate(embed(5))
        table = adata.uns["ce_cv"]["per_class"]
        table["knn_error"] = [0.21, 0.05, 0.9, 1.0, 0.4]
        assert (
            "Least reliable: type 3 (100 % of 24 cells wrong), type 2 (90 % of 24 cells "
            "wrong), type 4 (40 % of 24 cells wrong) and 1 more."
        ) in summary(adata, "ce")
        table["knn_error"] = 0.2
        assert not any("Least" in sentence for sentence in summary(adata, "ce"))

    def test_give_the_interval_of_the_calibration_error(self, embed, validate):
        adata = validate(embed())
        quality = adata.uns["ce"]["quality"]["test"]
        text = "on average, 95 % interval 0.0 to 4.4 (6.1 before"
        assert any(text in sentence for sentence in summary(adata, "ce"))
        quality["calibration_error_low"] = np.nan
        assert not any("interval" in sentence for sentence in summary(adata, "ce"))

    def test_leave_out_what_is_not_known(self, embed, validate):
        adata = validate(embed())
        quality = adata.uns["ce_cv"]["quality"]
        quality["knn_error_sd"] = quality["calibration_error"] = np.nan
        adata.uns["ce"]["quality"]["test"]["calibration_error"] = np.nan
        text = " ".join(summary(adata, "ce"))
        assert "nan" not in text
        assert "±" not in text
        assert "Confidences" not in text

    def test_tell_the_labels_of_map_and_cross_validation_apart(self, embed, validate):
        adata = embed()
        adata.obs["other"] = adata.obs["cell_type"].astype(str) + "!"
        sentences = summary(validate(adata, "other"), "ce")
        assert "label_key='cell_type' against 'other', 3 classes against 3" in sentences[-1]

    def test_warn_of_classes_that_only_one_of_them_has(self, embed, validate, fast):
        adata = validate(embed())
        adata = adata[adata.obs["cell_type"] != "type 2"].copy()
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
        assert "2 classes against 3" in " ".join(summary(adata, "ce"))


def test_reads_what_has_been_on_disk(embed, validate, tmp_path):
    adata = validate(embed(), warnings=["One.", "Two."])
    adata.write_h5ad(tmp_path / "cells.h5ad")
    before, after = draw(adata), draw(ad.read_h5ad(tmp_path / "cells.h5ad"))
    assert titles(after) == titles(before)
    assert words(after) == words(before)


@pytest.mark.parametrize("split", ["train", "test"])
def test_draws_a_selection_of_cells(embed, validate, forget, split):
    adata = validate(embed())
    adata.uns["cell_type_colors"] = ["#111111", "#222222", "#333333"]
    for forgotten in (False, True):
        view = (forget(adata) if forgotten else adata)[adata.obs["ce_split"] == split]
        figure = draw(view)
        assert len([ax for ax in figure.axes if ax.get_xlabel() == "CE1"]) == 1
        assert view.is_view


def test_takes_regions_and_colours(embed, validate):
    figure = draw(validate(embed()), regions=None, palette=["#ff0000", "#00ff00", "#0000ff"])
    maps: list[Axes] = [ax for ax in figure.axes if ax.get_xlabel() == "CE1"]
    assert not any(ax.patches for ax in maps)
    colors = {line.get_color() for line in maps[0].lines}
    assert {"#ff0000", "#00ff00", "#0000ff"} <= colors


class TestErrors:
    def test_name_the_calls_to_make_first(self, cells, unchanged):
        with (
            unchanged(cells),
            pytest.raises(KeyError, match=r"ce.tl.centroid_encoder\(adata.* and ce.tl.cross_val"),
        ):
            draw(cells)

    def test_leave_no_figure(self, embed, validate):
        adata = validate(embed())
        with pytest.raises(ValueError, match="regions must be one of"):
            draw(adata, regions="cells")
        with pytest.raises(ValueError, match="palette"):
            draw(adata, palette=["red"])
        assert not plt.get_fignums()


def test_shows_and_saves_like_the_other_plots(embed, monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(True))
    adata = embed()
    assert ce.pl.reliability(adata, show=True) is None
    assert shown == [True]
    plt.close("all")
    before, sc.settings.figdir = sc.settings.figdir, tmp_path
    try:
        draw(adata, save=".png")
        draw(adata, save=tmp_path / "page.pdf")
    finally:
        sc.settings.figdir = before
    assert {path.name for path in tmp_path.iterdir()} == {"reliability.png", "page.pdf"}
    assert not plt.get_fignums()


def test_leaves_everything_but_the_colours(embed, validate, unchanged):
    adata = validate(embed(unlabeled=3))
    adata.uns["cell_type_colors"] = ["#111111", "#222222", "#333333"]
    with unchanged(adata):
        draw(adata)
