"""The map as matplotlib draws it: what `pl.voronoi` draws, and all that can be switched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anndata as ad
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.path import Path
from numpy.typing import NDArray

import centroid_encoder as ce
from centroid_encoder.core.quality import class_centers
from centroid_encoder.pl._axes import panel_title
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.pl._regions import Shapes, center_regions, class_regions, panel_limits
from centroid_encoder.tl._result import read_result
from centroid_encoder.viewer.map.figure import (
    DRAFT,
    FEW,
    MapFigure,
    Panel,
    Scene,
    Style,
)

Embed = Callable[..., ad.AnnData]

COLORS = ["#ff0000", "#00ff00", "#0000ff"]
LIMITS = np.array([[0.0, 0.0], [10.0, 10.0]])
SQUARE = np.array([(0.0, 0.0), (5.0, 0.0), (5.0, 10.0), (0.0, 10.0)])
NOTHING = np.empty((0, 2))
# The last two were left out and have no label.
POINTS = np.array([[2, 2], [8, 2], [8, 8], [2, 8], [5, 5], [np.nan, np.nan]], dtype=float)
CODES = np.array([0, 1, 2, 0, -1, 1])


def make_figure(width: int = 800, height: int = 420) -> MapFigure:
    figure = Figure(figsize=(width / 96, height / 96), dpi=96)
    FigureCanvasAgg(figure)
    return MapFigure(figure)


def make_scene(
    points: Any = POINTS,
    codes: Any = CODES,
    panels: Sequence[Sequence[int]] = ((0, 1, 4, 5), (2, 3, 4)),
    titles: Sequence[str] = ("training cells (n = 3)", "held-out 5-NN error 12.5 % (n = 2)"),
    n_classes: int = 3,
    shapes: Shapes = (),
) -> Scene:
    shown = [Panel(title, np.array(rows)) for title, rows in zip(titles, panels, strict=False)]
    return Scene(np.asarray(points), np.asarray(codes), tuple(shown), shapes, LIMITS, n_classes)


def many(n: int) -> Scene:
    points = np.random.default_rng(0).uniform(0, 10, (n, 2))
    return make_scene(points, np.arange(n) % 3, [range(n)], ["all"])


def drawn(figure: MapFigure, panel: int) -> set[tuple[float, float]]:
    """Points that the lines of a panel show."""
    lines = [line for line in figure.axes[panel].lines if line.get_visible()]
    points = np.concatenate([line.get_xydata() for line in lines if not line.get_animated()])
    return set(map(tuple, points[~np.isnan(points[:, 0])]))


def overlay(figure: MapFigure, panel: int, which: int = 0) -> set[tuple[float, float]]:
    """Points that are ringed: those selected, or (1) the one under the mouse."""
    line = [line for line in figure.axes[panel].lines if line.get_animated()][which]
    return set(map(tuple, line.get_xydata()))


def pixels(figure: MapFigure) -> NDArray[np.uint8]:
    canvas: Any = figure.figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[::-1, :, :3]


def color_at(figure: MapFigure, panel: int, point: Any) -> tuple[int, ...]:
    x, y = figure.axes[panel].transData.transform(point).astype(int)
    return tuple(pixels(figure)[y, x].tolist())


def rgb(color: str) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in to_rgb(color))


def rows_of(*points: int) -> set[tuple[float, float]]:
    return {tuple(POINTS[row]) for row in points}


# -- what is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize("regions", ["voronoi", "decoder"])
@pytest.mark.parametrize("names", [None, ["2", "1", "0"]])
def test_the_same_as_the_figure_for_print(embed: Embed, regions: Any, names: Any) -> None:
    adata = embed(3, names=names, unlabeled=9)
    axes: Any = ce.pl.voronoi(adata, regions=regions, show=False)
    result = read_result(adata, "ce")
    limits = panel_limits(np.vstack([result.embedding, result.centers]))
    split = result.split.to_numpy()
    panels = tuple(
        Panel(
            panel_title(result, which, regions),
            np.flatnonzero((split == which) | (split == "unlabeled")),
        )
        for which in ("train", "test")
    )
    shapes = class_regions(adata, result, regions, limits)
    colors = list(label_colors(adata, "cell_type").values())
    figure = make_figure()
    figure.show(Scene(result.embedding, result.codes, panels, shapes, limits, 3), colors)

    def regions_of(ax: Any) -> list[tuple[Any, Any]]:
        return [
            (tuple(color[:3]), path.vertices.tolist())
            for regions in ax.collections
            for color, path in zip(regions.get_facecolor(), regions.get_paths(), strict=True)
        ]

    def patches_of(ax: Any) -> list[tuple[Any, Any]]:
        patches = [p for p in ax.patches if p.get_visible() and p.get_facecolor()[3] > 0]
        return [(p.get_facecolor()[:3], p.get_path().vertices.tolist()) for p in patches]

    def points_of(ax: Any) -> dict[Any, Any]:
        lines = [line for line in ax.lines if not line.get_animated()]
        points = {to_rgb(line.get_color()): sorted(line.get_xydata().tolist()) for line in lines}
        return {color: points[color] for color in map(to_rgb, colors)}

    assert len(shapes) == 3
    for mine, theirs in zip(figure.axes, axes, strict=True):
        assert sorted(regions_of(mine)) == sorted(patches_of(theirs))
        assert points_of(mine) == points_of(theirs)
        assert (mine.get_xlim(), mine.get_ylim()) == (theirs.get_xlim(), theirs.get_ylim())
        assert mine.title.get_text().replace("\n", " ") == theirs.title.get_text().replace(
            "\n", " "
        )
    unlabeled = set(map(tuple, result.embedding[split == "unlabeled"]))
    assert len(unlabeled) == 9
    assert unlabeled <= drawn(figure, 0) & drawn(figure, 1)


def test_every_cell_is_drawn_in_its_panel_and_color() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    assert drawn(figure, 0) == rows_of(0, 1, 4)
    assert drawn(figure, 1) == rows_of(2, 3, 4)
    assert color_at(figure, 0, POINTS[0]) == rgb(COLORS[0])
    assert color_at(figure, 0, POINTS[1]) == rgb(COLORS[1])
    assert color_at(figure, 1, POINTS[2]) == rgb(COLORS[2])
    assert color_at(figure, 1, POINTS[4]) == rgb(Style().unlabeled)
    assert color_at(figure, 1, POINTS[0]) == rgb(Style().panel)


def test_regions_are_beneath_the_points_and_may_be_missing() -> None:
    figure = make_figure()
    # A class that owns nothing has no region.
    figure.show(make_scene(shapes=[SQUARE, NOTHING, NOTHING]), COLORS)
    tint = color_at(figure, 0, (3, 5))
    assert tint[0] > max(tint[1:]) + 30
    assert color_at(figure, 0, (7, 5)) == rgb(Style().panel)
    assert color_at(figure, 0, POINTS[0]) == rgb(COLORS[0])
    figure.show(make_scene(), COLORS)
    assert color_at(figure, 0, (3, 5)) == rgb(Style().panel)


def test_the_smallest_class_lies_on_top_and_unlabeled_cells_at_the_bottom() -> None:
    codes = np.array([-1] * 5 + [0] * 2 + [1] * 3 + [2])
    points = np.full((len(codes), 2), 5.0)
    figure = make_figure()
    figure.show(make_scene(points, codes, [range(len(codes))]), COLORS)
    assert color_at(figure, 0, (5, 5)) == rgb(COLORS[2])
    figure.set_shown(np.array([True, True, False]))
    assert color_at(figure, 0, (5, 5)) == rgb(COLORS[0])
    figure.set_shown(np.array([False, True, False]))
    assert color_at(figure, 0, (5, 5)) == rgb(COLORS[1])
    figure.set_shown(np.zeros(3, dtype=bool))
    assert color_at(figure, 0, (5, 5)) == rgb(Style().unlabeled)


def test_classes_switched_off_keep_their_regions() -> None:
    figure = make_figure()
    figure.show(make_scene(shapes=[SQUARE, NOTHING, NOTHING]), COLORS)
    before = color_at(figure, 0, (3, 5))
    figure.set_shown(np.array([False, True, True]))
    assert figure.shown.tolist() == [False, True, True]
    assert drawn(figure, 0) == rows_of(1, 4)
    everything = Path([(-1, -1), (11, -1), (11, 11), (-1, 11)])
    assert figure.within(figure.axes[0], everything).tolist() == [1, 4]
    assert figure.within(figure.axes[1], everything).tolist() == [2, 4]
    assert color_at(figure, 0, (3, 5)) == before
    figure.set_shown(np.ones(3, dtype=bool))
    assert drawn(figure, 0) == rows_of(0, 1, 4)


def test_the_next_scene_of_the_same_classes_keeps_them_switched_off() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.set_shown(np.array([True, False, True]))
    figure.show(make_scene(POINTS + 0.1), COLORS)
    assert figure.shown.tolist() == [True, False, True]
    assert len(drawn(figure, 0)) == 2
    figure.show(make_scene(codes=np.minimum(CODES, 1), n_classes=2), COLORS[:2])
    assert figure.shown.tolist() == [True, True]


def test_colors_change_at_once() -> None:
    figure = make_figure()
    figure.show(make_scene(shapes=[SQUARE, NOTHING, NOTHING]), COLORS)
    figure.set_colors(["#ffff00", "#00ffff", "#ff00ff"])
    assert color_at(figure, 0, POINTS[0]) == rgb("#ffff00")
    tint = color_at(figure, 0, (3, 5))
    assert min(tint[:2]) > tint[2] + 30


@pytest.mark.parametrize("dark", [False, True])
def test_a_theme_colors_page_panel_and_ink(dark: bool) -> None:
    style = Style("#111111", "#222222", "#eeeeee", "#777777")
    style = style if dark else Style("#eeeeee", "#ffffff", "#111111", "#999999")
    assert style.dark is dark
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.set_style(style)
    assert tuple(pixels(figure)[0, 0].tolist()) == rgb(style.page)
    assert color_at(figure, 0, (9, 9)) == rgb(style.panel)
    assert color_at(figure, 0, POINTS[4]) == rgb(style.unlabeled)
    for ax in figure.axes:
        assert ax.title.get_color() == style.ink
        assert {line.get_markeredgecolor() for line in ax.lines if line.get_animated()} == {
            style.ink
        }
    # What is drawn later follows it as well.
    figure.show(make_scene(panels=[range(6)]), COLORS)
    assert color_at(figure, 0, (9, 9)) == rgb(style.panel)


# -- selection and hover -------------------------------------------------------------------------


def test_selected_cells_are_ringed_where_they_are_drawn() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.select(np.array([True, False, True, True, False, True]))
    assert overlay(figure, 0) == rows_of(0)
    assert overlay(figure, 1) == rows_of(2, 3)
    figure.set_shown(np.array([False, True, True]))
    assert overlay(figure, 0) == set()
    assert overlay(figure, 1) == rows_of(2)
    figure.set_shown(np.ones(3, dtype=bool))
    assert overlay(figure, 0) == rows_of(0)
    figure.select(None)
    assert overlay(figure, 0) == overlay(figure, 1) == set()


def test_a_selection_survives_a_scene_of_the_same_cells_only() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.select(np.arange(6) == 0)
    figure.show(make_scene(POINTS + 1), COLORS)
    assert overlay(figure, 0) == {(3, 3)}
    figure.show(make_scene(panels=[range(6)]), COLORS)
    assert overlay(figure, 0) == rows_of(0)
    figure.show(make_scene(POINTS[:5], CODES[:5], [range(5)]), COLORS)
    assert overlay(figure, 0) == set()


def test_overlays_are_drawn_on_top_without_the_rest() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    bare = pixels(figure).copy()
    figure.select(np.arange(6) == 0)
    figure.hover(1)
    np.testing.assert_array_equal(pixels(figure), bare)
    figure.draw_overlays()
    canvas: Any = figure.figure.canvas
    changed = (np.asarray(canvas.buffer_rgba())[::-1, :, :3] != bare).any(axis=2)
    at = figure.axes[0].transData.transform(POINTS[:2])
    found = np.argwhere(changed)[:, ::-1]
    distances = np.linalg.norm(found[:, None] + 0.5 - at, axis=2)
    assert (distances.min(axis=0) < 10).all()
    assert distances.min(axis=1).max() < 10


def test_many_rings_are_thin() -> None:
    figure = make_figure()
    figure.show(many(FEW * 3), COLORS)
    widths = []
    for n in (FEW - 1, FEW * 2):
        figure.select(np.arange(FEW * 3) < n)
        (ring, _) = (line for line in figure.axes[0].lines if line.get_animated())
        widths.append(ring.get_markeredgewidth())
    assert widths[0] > widths[1] > 0


def test_hover_rings_a_cell_in_the_panels_that_show_it() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.hover(0)
    assert overlay(figure, 0, 1) == rows_of(0)
    assert overlay(figure, 1, 1) == set()
    figure.hover(4)
    assert overlay(figure, 0, 1) == overlay(figure, 1, 1) == rows_of(4)
    # In another scene it may be elsewhere.
    figure.show(make_scene(POINTS + 1), COLORS)
    assert overlay(figure, 0, 1) == overlay(figure, 1, 1) == set()
    figure.hover(None)
    assert overlay(figure, 0, 1) == set()


# -- speed ---------------------------------------------------------------------------------------


def test_a_draft_draws_fewer_points_and_all_come_back() -> None:
    n = 2 * DRAFT + 17
    figure = make_figure()
    figure.show(many(n), COLORS)
    figure.select(np.ones(n, dtype=bool))
    assert len(drawn(figure, 0)) == len(overlay(figure, 0)) == n
    assert figure.set_detailed(False)
    few = drawn(figure, 0)
    assert DRAFT / 2 < len(few) <= DRAFT
    assert len(overlay(figure, 0)) <= DRAFT
    assert not figure.set_detailed(False)
    # Which ones must not flicker.
    figure.show(many(n), COLORS)
    assert drawn(figure, 0) == few
    assert figure.set_detailed(True)
    assert len(drawn(figure, 0)) == len(overlay(figure, 0)) == n


def test_few_points_are_never_drafted() -> None:
    figure = make_figure()
    assert not figure.set_detailed(False)
    figure.show(many(DRAFT), COLORS)
    assert len(drawn(figure, 0)) == DRAFT
    assert not figure.set_detailed(True)
    assert not figure.set_detailed(False)


# -- views and layout ----------------------------------------------------------------------------


def test_home_shows_the_limits_and_so_does_another_scene() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.axes[0].set(xlim=(1, 2), ylim=(3, 4))
    assert figure.axes[1].get_xlim() == (1, 2)
    figure.home()
    assert [*figure.axes[1].get_xlim(), *figure.axes[0].get_ylim()] == [0, 10, 0, 10]
    figure.axes[0].set(xlim=(1, 2))
    figure.show(make_scene(), COLORS)
    assert figure.axes[0].get_xlim() == (0, 10)


def boxes(figure: MapFigure, width: int, height: int) -> list[NDArray[np.floating]]:
    """Left, bottom, right and top of each panel in pixels."""
    figure.figure.set_size_inches(width / 96, height / 96)
    figure.arrange(width, height)
    return [ax.get_position().extents * ([width, height] * 2) for ax in figure.axes]


@pytest.mark.parametrize(
    ("width", "height", "beside"),
    [(900, 420, True), (400, 800, False), (500, 520, True), (330, 480, False)],
)
def test_panels_are_square_and_beside_or_above_each_other(
    width: int, height: int, beside: bool
) -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    first, second = boxes(figure, width, height)
    for left, bottom, right, top in (first, second):
        assert right - left == pytest.approx(top - bottom)
        assert min(left, bottom, width - right, height - top) >= 0
    if beside:
        assert first[1] == pytest.approx(second[1])
        assert second[0] >= first[2]
    else:
        assert first[0] == pytest.approx(second[0])
        assert first[1] >= second[3]  # the training cells above
    # The other way they would be smaller, or no larger.
    side = first[2] - first[0]
    other = min((width - 18) / 2, height - 6 - 40) if not beside else (height - 6) / 2 - 40
    assert side >= min(other, width - 12) - 1
    assert len(boxes(figure, 1, 1)) == len(boxes(figure, 3, 700)) == 2
    pixels(figure)


TITLES = [
    "training cells (n = 123,456)",
    "held-out 5-NN error 12.5 % (n = 12,345, 1,234 shown)",
]
AT_CHANCE = "held-out 5-NN error 63.1 % (n = 12,345)\nno better than chance (61.9 %)"


@pytest.mark.parametrize("titles", [TITLES, [TITLES[0], AT_CHANCE]], ids=["plain", "at chance"])
@pytest.mark.parametrize("size", [(330, 500), (360, 700), (480, 300), (640, 380), (1200, 700)])
def test_titles_fit(size: tuple[int, int], titles: list[str]) -> None:
    figure = make_figure(*size)
    figure.show(make_scene(titles=titles), COLORS)
    panels = boxes(figure, *size)
    pixels(figure)
    texts = [ax.title.get_window_extent() for ax in figure.axes]
    for ax, title, text, panel in zip(figure.axes, titles, texts, panels, strict=True):
        assert ax.title.get_text().replace("\n", " ") == title.replace("\n", " ")
        assert text.x0 >= 0
        assert text.x1 <= size[0]
        assert text.y1 <= size[1]
        assert text.y0 >= panel[3]
    below = panels[1][3] < panels[0][1]
    assert texts[1].y1 <= panels[0][1] if below else texts[0].x1 <= texts[1].x0


def test_a_title_with_room_has_one_line() -> None:
    figure = make_figure(1200, 600)
    figure.show(make_scene(titles=TITLES), COLORS)
    boxes(figure, 1200, 600)
    assert [ax.title.get_text() for ax in figure.axes] == TITLES
    boxes(figure, 330, 600)
    assert "\n" in figure.axes[1].title.get_text()
    boxes(figure, 1200, 600)
    assert [ax.title.get_text() for ax in figure.axes] == TITLES


def test_dollars_in_a_title_are_dollars() -> None:
    figure = make_figure()
    figure.show(make_scene(titles=["$x$ (n = 1)", "$"]), COLORS)
    pixels(figure)
    assert figure.axes[0].title.get_parse_math() is False


def test_one_panel_and_two_by_turns() -> None:
    figure = make_figure()
    for panels in ([[0, 1]], [[0], [1, 2]], [[2]]):
        figure.show(make_scene(panels=panels), COLORS)
        assert [drawn(figure, i) for i in range(len(figure.axes))] == [rows_of(*p) for p in panels]
        assert len(figure.figure.axes) == len(panels)


def test_a_cleared_figure_is_empty_and_can_be_used_again() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.select(np.ones(6, dtype=bool))
    figure.clear()
    assert figure.scene is None
    assert figure.axes == []
    assert len(np.unique(pixels(figure).reshape(-1, 3), axis=0)) == 1
    # Nothing of this has anything to act upon.
    figure.home()
    figure.hover(None)
    figure.select(None)
    figure.draw_overlays()
    figure.arrange(300, 200)
    figure.set_style(Style())
    figure.set_colors([])
    figure.show(make_scene(), COLORS)
    assert overlay(figure, 0) == set()
    assert drawn(figure, 1) == rows_of(2, 3, 4)


def test_no_cells() -> None:
    figure = make_figure()
    nothing = np.empty(0, dtype=np.intp)
    figure.show(make_scene(np.empty((0, 2)), nothing, [nothing], n_classes=0), [])
    pixels(figure)
    assert drawn(figure, 0) == set()


def test_live_regions_end_as_those_of_the_result(embed: Embed) -> None:
    adata = embed(5, unlabeled=10, placement="bottleneck")
    result = read_result(adata, "ce")
    limits = panel_limits(result.embedding)
    train = (result.split == "train").to_numpy()
    live = center_regions(class_centers(result.embedding[train], result.codes[train], 5), limits)
    final = class_regions(adata, result, "voronoi", limits)
    for cell, other in zip(live, final, strict=True):
        np.testing.assert_allclose(cell, other, rtol=1e-3, atol=1e-3)


def test_live_regions_are_those_of_the_training_cells_alone() -> None:
    embedding = np.array([[2.0, 5], [8, 5], [8, 9], [9, 9], [1, 1]])
    codes = np.array([0, 2, 1, 0, -1])
    train = np.array([True, True, False, False, False])
    left, nobody, right = center_regions(class_centers(embedding[train], codes[train], 3), LIMITS)
    assert not len(nobody)
    assert left.max(axis=0)[0] == pytest.approx(5)
    assert right.min(axis=0)[0] == pytest.approx(5)


def test_regions_of_a_decoder_are_an_image() -> None:
    figure = make_figure()
    owners = np.zeros((50, 50), dtype=int)
    owners[:, 25:] = 1
    figure.show(make_scene(shapes=owners), COLORS)
    red, green = (color_at(figure, 0, at) for at in ((3, 5), (7, 5)))
    assert red[0] > max(red[1:]) + 30
    assert green[1] > max(green[0], green[2]) + 30
    figure.show(make_scene(), COLORS)
    assert color_at(figure, 0, (3, 5)) == rgb(Style().panel)


@pytest.mark.parametrize("width", [800, 300])
@pytest.mark.parametrize("at", [(0.01, 5), (9.99, 5), (5, 0.01), (5, 9.99)])
def test_names_at_the_rim_stay_in_the_panel(at: tuple[float, float], width: int) -> None:
    names = ("tumor", "W" * 90, "no more than a name of many words that nobody would write")
    centers = np.array([at, (5, 3), (6, 7)])
    figure = make_figure(width, 420)
    figure.show(replace(make_scene(), names=names, centers=centers), COLORS)
    for ax in figure.axes:
        frame = ax.get_window_extent()
        shown = [text for text in ax.texts if text.get_text()]
        for text in shown:
            box = text.get_window_extent()
            # Its halo is wider than the letters.
            assert frame.x0 + 2 <= box.x0 < box.x1 <= frame.x1 - 2
            assert frame.y0 + 2 <= box.y0 < box.y1 <= frame.y1 - 2
        short, long, words = (text.get_text() for text in shown)
        assert short == "tumor"
        # What is missing is told.
        assert ("…" in long) == (long.count("W") < 90)
        assert words.endswith("…") or words.replace("\n", " ") == names[2]
