"""The map as matplotlib draws it, with all settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.path import Path
from napari.utils.theme import get_theme
from numpy.typing import NDArray

from centroid_encoder.pl._colors import default_palette
from centroid_encoder.pl._regions import center_regions
from centroid_encoder.viewer.map.artists import Dots, Names
from centroid_encoder.viewer.map.figure import FADED, MapFigure
from centroid_encoder.viewer.map.scene import Scene, Style, blend, contrast
from tests.viewer.seen import names_on

COLORS = ["#ff0000", "#00ff00", "#0000ff"]
LIMITS = np.array([[0.0, 0.0], [10.0, 10.0]])
SQUARE = np.array([(0.0, 0.0), (5.0, 0.0), (5.0, 10.0), (0.0, 10.0)])
NOTHING = np.empty((0, 2))
# The fifth cell has no label, and the last one no position.
POINTS = np.array([[2, 2], [8, 2], [8, 8], [2, 8], [5, 5], [np.nan, np.nan]], dtype=float)
CODES = np.array([0, 1, 2, 0, -1, 1])


def make_figure(width: int = 800, height: int = 420) -> MapFigure:
    figure = Figure(figsize=(width / 96, height / 96), dpi=96)
    FigureCanvasAgg(figure)
    return MapFigure(figure)


def make_scene(
    points: Any = POINTS,
    codes: Any = CODES,
    names: Sequence[str] = ("A", "B", "C"),
    shapes: Sequence[Path] = (),
    centers: Any = None,
    rows: Iterable[int] | None = None,
) -> Scene:
    """A scene of three classes and all cells; without centers, no names are written."""
    centers = np.full((len(names), 2), np.nan) if centers is None else np.asarray(centers)
    points, codes = np.asarray(points), np.asarray(codes)
    shown = np.array(range(len(points)) if rows is None else rows, dtype=np.intp)
    return Scene(points, codes, shown, shapes, LIMITS, tuple(names), centers)


def dots(figure: MapFigure, layer: int = 1) -> Dots:
    """Points of reference cells (0), of cells (1), or of cells that are drawn larger (2)."""
    found = [artist for artist in figure.ax.artists if isinstance(artist, Dots)]
    return sorted(found, key=lambda artist: artist.get_zorder())[layer]


def drawn(figure: MapFigure) -> set[tuple[float, float]]:
    """Points of the cells."""
    return set(map(tuple, dots(figure).points))


def pixels(figure: MapFigure) -> NDArray[np.uint8]:
    canvas: Any = figure.figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[::-1, :, :3]


def color_at(figure: MapFigure, point: Any) -> tuple[int, ...]:
    x, y = figure.ax.transData.transform(point).astype(int)
    return tuple(pixels(figure)[y, x].tolist())


def rgb(color: str) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in to_rgb(color))


def rows_of(*points: int) -> set[tuple[float, float]]:
    return {tuple(POINTS[row]) for row in points}


# -- what is drawn -------------------------------------------------------------------------------


def test_every_cell_is_drawn_in_its_color() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    assert drawn(figure) == rows_of(0, 1, 2, 3, 4)
    for row, color in enumerate((*COLORS, COLORS[0], Style().unlabeled)):
        assert color_at(figure, POINTS[row]) == rgb(color)
    figure.show(make_scene(rows=[0, 4]), COLORS)
    assert drawn(figure) == rows_of(0, 4)
    assert color_at(figure, POINTS[1]) == rgb(Style().panel)


def test_dots_grow_with_a_large_map() -> None:
    points = np.random.default_rng(0).uniform(1, 9, (3000, 2))
    shares = []
    for side in (300, 540, 1000):
        figure = make_figure(side, side)
        figure.show(make_scene(points, np.zeros(3000, dtype=int)), COLORS)
        shares.append((pixels(figure) != rgb(Style().panel)).any(axis=-1).mean())
    # From a certain size on, the picture is the same, only larger.
    assert shares[0] > 1.5 * shares[1]
    assert shares[2] > 0.6 * shares[1]


def test_density_is_seen_in_a_class_of_many_cells() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal((3, 5), 0.5, (10_000, 2)), [[8, 8], [2, 9]]])
    codes = np.append(np.zeros(10_001, dtype=int), 1)
    figure = make_figure()
    figure.show(make_scene(points, codes), COLORS)
    dense, one, rare = (color_at(figure, at) for at in ((3, 5), (8, 8), (2, 9)))
    assert dense == pytest.approx(rgb(COLORS[0]), abs=30)
    assert rare == pytest.approx(rgb(COLORS[1]), abs=5)
    panel = np.array(rgb(Style().panel))
    assert 0.1 < np.abs(one - panel).max() / np.abs(dense - panel).max() < 0.5


def test_regions_are_below_the_points_and_optional() -> None:
    shapes = [Path(ring) for ring in (SQUARE, np.add(SQUARE, (5, 0)), NOTHING)]
    figure = make_figure()
    figure.show(make_scene(shapes=shapes), COLORS)
    red, green = (color_at(figure, at) for at in ((3, 5), (7, 5)))
    assert red[0] > max(red[1:]) + 30
    assert green[1] > max(green[0], green[2]) + 30
    assert color_at(figure, POINTS[0]) == rgb(COLORS[0])
    # Classes that are switched off keep their region.
    figure.hidden = frozenset("AB")
    figure.update()
    assert color_at(figure, (3, 5)) == red
    figure.show(make_scene(), COLORS)
    assert color_at(figure, (3, 5)) == rgb(Style().panel)


def test_no_class_lies_on_top_and_unlabeled_cells_lie_at_the_bottom() -> None:
    """At each of 81 places, there is a cell of two classes and a cell without a label."""
    places = np.stack(np.meshgrid(np.arange(1, 10), np.arange(1, 10)), axis=-1).reshape(-1, 2)
    figure = make_figure()
    scene = make_scene(np.tile(places, (3, 1)).astype(float), np.repeat([0, 1, -1], 81))
    figure.show(scene, COLORS)
    x, y = figure.ax.transData.transform(places).astype(int).T
    seen = [tuple(color) for color in pixels(figure)[y, x].tolist()]
    assert set(seen) == {rgb(COLORS[0]), rgb(COLORS[1])}
    assert 25 < seen.count(rgb(COLORS[0])) < 56
    for hidden, color in (("A", COLORS[1]), ("AB", Style().unlabeled)):
        figure.hidden = frozenset(hidden)
        figure.update()
        assert {tuple(one) for one in pixels(figure)[y, x].tolist()} == {rgb(color)}


def test_soft_regions_blend_at_the_border_and_stay_in_a_zoomed_view() -> None:
    centers = np.array([[2.0, 5.0], [8.0, 5.0], [5.0, 30.0]])
    scene = make_scene(shapes=center_regions(centers, LIMITS), centers=centers, rows=[])
    figure = make_figure()
    figure.set_named(False)
    plain, soft = [], []
    for found, is_soft in ((plain, False), (soft, True)):
        figure.show(replace(scene, soft=is_soft), COLORS)
        found += [np.array(color_at(figure, (x, 5))) for x in (2, 4.9, 5.1, 8)]
    for one, other in ((plain[0], soft[0]), (plain[3], soft[3])):
        assert np.abs(one - other).max() <= 4, "at its center, a class has its own colour"
    assert np.abs(plain[1] - plain[2]).max() > 30
    assert np.abs(soft[1] - soft[2]).max() < 12, "colours pass into each other"
    figure.look_at(np.array([[-3.0, -3.0], [13.0, 13.0]]))
    assert color_at(figure, (-2, 5)) != rgb(Style().panel)


def test_few_cells_with_a_class_are_drawn_larger_in_a_bold_scene() -> None:
    figure = make_figure()
    points = np.random.default_rng(0).uniform(0, 10, (5000, 2))
    codes = np.full(5000, -1)
    codes[[7, 9]] = 1
    plain = make_scene(points, codes)
    for scene, larger in ((plain, []), (replace(plain, bold=True), [7, 9])):
        figure.show(scene, COLORS)
        bold = dots(figure, layer=2)
        assert set(map(tuple, bold.points)) == set(map(tuple, points[larger]))
        fills = bold.palette[0][bold.codes]
        assert np.array_equal(fills, [[0, 255, 0]] * len(larger)) or not larger
        assert len(dots(figure).points) == 5000
    assert bold.size > 2 * dots(figure).size


def test_held_out_cells_are_rings() -> None:
    figure = make_figure()
    figure.show(replace(make_scene(), hollow=np.array([1, 3])), COLORS)
    image, radius = pixels(figure), round(dots(figure).size / 72 * 96 / 2)
    for row, color in ((0, COLORS[0]), (1, COLORS[1]), (3, COLORS[0])):
        x, y = figure.ax.transData.transform(POINTS[row]).astype(int)
        middle = color if row == 0 else Style().panel
        assert tuple(image[y, x].tolist()) == rgb(middle)
        around = image[y - radius : y + radius + 1, x - radius : x + radius + 1].reshape(-1, 3)
        hue = np.argmax(rgb(color))
        assert (around.argmax(axis=1)[np.ptp(around.astype(int), axis=1) > 60] == hue).all()
        assert (np.ptp(around.astype(int), axis=1) > 60).sum() > 8


def test_the_view_stays_while_the_limits_are_the_same() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.look_at(np.array([[1.0, 2.0], [3.0, 4.0]]))
    figure.show(make_scene(POINTS[::-1]), COLORS)
    assert figure.ax.get_xlim() == (1, 3)
    figure.show(replace(make_scene(), limits=2 * LIMITS), COLORS)
    assert figure.ax.get_xlim() == (0, 20)


def test_classes_switched_off_are_neither_drawn_nor_found() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    everything = Path([(-1, -1), (11, -1), (11, 11), (-1, 11)])
    for hidden, rows in (("A", [1, 2, 4]), ("", [0, 1, 2, 3, 4])):
        figure.hidden = frozenset(hidden)
        figure.update()
        assert drawn(figure) == rows_of(*rows)
        assert figure.within(everything).tolist() == rows
        at = figure.ax.transData.transform(POINTS[0])
        assert figure.nearest(*at, 1) == (None if hidden else 0)


def test_a_theme_colors_page_map_and_ink() -> None:
    figure = make_figure()
    dark = Style("#111111", "#222222", "#eeeeee", "#777777")
    light = Style("#eeeeee", "#ffffff", "#111111", "#999999")
    for style, is_dark in ((dark, True), (light, False)):
        assert style.dark is is_dark
        figure.style = style
        # Scenes that are shown later also have this style.
        figure.show(make_scene(), COLORS)
        assert tuple(pixels(figure)[0, 0].tolist()) == rgb(style.page)
        assert color_at(figure, (9, 9)) == rgb(style.panel)
        assert color_at(figure, POINTS[4]) == rgb(style.unlabeled)
        assert {line.get_markeredgecolor() for line in figure.ax.lines} == {style.ink}


# -- selection and hover -------------------------------------------------------------------------


def test_selected_cells_keep_their_colors_while_all_others_fade() -> None:
    figure = make_figure()
    figure.show(make_scene(centers=[(2, 5), (5, 2), (8, 5)]), COLORS)
    before = pixels(figure)
    figure.select(np.array([True, False, True, True, False, True]))
    for hidden, rows in (("", [0, 2, 3]), ("A", [2]), ("", [0, 2, 3])):
        figure.hidden = frozenset(hidden)
        figure.update()
        assert sorted(figure.selected) == rows
        for row in rows:
            assert color_at(figure, POINTS[row]) == rgb(COLORS[CODES[row]])
        faded = rgb(blend(Style().panel, COLORS[1], FADED))
        np.testing.assert_allclose(color_at(figure, POINTS[1]), faded, atol=2)
        # The names do not fade.
        assert (pixels(figure) > 230).all(axis=2).any()
    figure.select(None)
    assert np.array_equal(pixels(figure), before)
    # A scene with another number of cells removes the selection.
    figure.select(np.arange(6) == 2)
    for scene, rows in (
        (make_scene(POINTS + 1), [2]),
        (make_scene(POINTS[:5], CODES[:5]), []),
    ):
        figure.show(scene, COLORS)
        assert figure.selected.tolist() == rows


# -- points --------------------------------------------------------------------------------------


def style_of(theme: str) -> Style:
    """Style of the map in one of napari's themes, as the widget sets it."""
    colors = get_theme(theme)
    names = ("background", "canvas", "text", "highlight")
    return Style(*(getattr(colors, name).as_hex("long") for name in names))


@pytest.mark.parametrize("n", [300, 100_000])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_points_stand_out_from_their_own_region(theme: str, n: int) -> None:
    """Draw each class in the middle of its square, beside the same scene without points."""
    at = np.arange(36)
    centers = np.column_stack([at % 6, at // 6]) * 10 / 6 + 5 / 6
    codes = np.arange(n) % 36
    regions = center_regions(centers, LIMITS)
    scene = make_scene(centers[codes], codes, tuple(map(str, at)), regions)
    figure = make_figure(800, 420)
    figure.style = style_of(theme)

    def hexes(image: Any, dx: int, dy: int) -> list[str]:
        x, y = figure.ax.transData.transform(centers).T.astype(int)
        return ["#" + image[j + dy, i + dx].tobytes().hex() for i, j in zip(x, y, strict=True)]

    figure.show(replace(scene, rows=np.empty(0, dtype=np.intp)), default_palette(36))
    grounds = hexes(pixels(figure), 0, 0)
    figure.show(scene, default_palette(36))
    image = pixels(figure)
    near = [hexes(image, dx, dy) for dx in range(-5, 6) for dy in range(-5, 6)]
    best = [
        max(contrast(point, ground) for point in points)
        for points, ground in zip(zip(*near, strict=True), grounds, strict=True)
    ]
    assert min(best) >= 2.95  # colours of pixels are whole numbers


def test_points_at_the_rim_are_seen_and_those_beyond_are_not() -> None:
    figure = make_figure()
    figure.show(make_scene([[0, 5], [-50, 5], [5, 60]], [0, 1, 1]), COLORS)
    assert color_at(figure, (0.05, 5)) == rgb(COLORS[0])
    seen = {tuple(color) for color in pixels(figure).reshape(-1, 3).tolist()}
    assert rgb(COLORS[1]) not in seen


# -- views and layout ----------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(900, 420), (400, 800), (330, 480), (1, 1), (3, 70)])
def test_the_map_is_the_largest_square_in_the_middle(width: int, height: int) -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.figure.set_size_inches(width / 96, height / 96)
    pixels(figure)
    left, bottom, right, top = figure.ax.get_position().extents * ([width, height] * 2)
    np.testing.assert_allclose([right - left, top - bottom], min(width, height))
    np.testing.assert_allclose([left + right, bottom + top], [width, height])


@pytest.mark.parametrize("width", [800, 300])
def test_names_at_the_rim_stay_in_the_map(width: int) -> None:
    names = ("tumor", "w" * 50, "a name of many words that fills several lines")
    figure = make_figure(width, 420)
    for at in [(0.01, 5), (9.99, 5), (5, 0.01), (5, 9.99)]:
        figure.show(make_scene(names=names, centers=[at, (5, 3), (6, 7)]), COLORS)
        frame, written = figure.ax.get_window_extent(), names_on(figure.ax)
        assert written[0].text == "tumor"
        for _, _, box in written:
            assert frame.x0 <= box.x0 < box.x1 <= frame.x1
            assert frame.y0 <= box.y0 < box.y1 <= frame.y1


def test_names_that_were_moved_have_lines_to_their_centers() -> None:
    figure = make_figure()
    figure.show(make_scene(centers=[(5, 5), (5, 5), (0.1, 2)]), COLORS)
    (names,) = (artist for artist in figure.ax.artists if isinstance(artist, Names))
    written, lines = names.written_names()
    (first, second, rim) = (box for *_, box in written)
    assert not first.overlaps(second)
    assert rim.x0 > figure.ax.get_window_extent().x0
    at = figure.ax.transData.transform((5, 5))
    apart = [not box.contains(*at) for box in (first, second)]
    assert any(apart)
    assert len(lines) == sum(apart)
    np.testing.assert_allclose(lines[:, 0], [at] * len(lines))
