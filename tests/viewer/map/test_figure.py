"""The map as matplotlib draws it, with all settings."""

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
    return np.array(canvas.buffer_rgba())[::-1, :, :3]


def color_at(figure: MapFigure, point: Any) -> tuple[int, ...]:
    x, y = figure.ax.transData.transform(point).astype(int)
    return tuple(pixels(figure)[y, x].tolist())


def rgb(color: str) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in to_rgb(color))


def rows_of(*points: int) -> set[tuple[float, float]]:
    return {tuple(POINTS[row]) for row in points}


def test_every_cell_is_drawn_in_its_color():
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    assert drawn(figure) == rows_of(0, 1, 2, 3, 4)
    for row, color in enumerate((*COLORS, COLORS[0], Style().unlabeled)):
        assert color_at(figure, POINTS[row]) == rgb(color)
    figure.show(make_scene(rows=[0, 4]), COLORS)
    assert drawn(figure) == rows_of(0, 4)
    assert color_at(figure, POINTS[1]) == rgb(Style().panel)


def test_density_is_seen_in_a_class_of_many_cells():
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


def test_regions_are_below_the_points_and_optional():
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


def test_no_class_lies_on_top_and_unlabeled_cells_lie_at_the_bottom():
    """At each of 81 places, there is a cell of two classes and a cell without a label."""
    places = np.stack(np.meshgrid(np.arange(1, 10), np.arange(1, 10)), axis=-1).reshape(-1, 2)
    figure = make_figure()
    scene = make_scene(np.tile(places, (3, 1)).astype(float), np.repeat([0, 1, -1], 81))
    figure.show(scene, COLORS)
    x, y = figure.ax.transData.transform(places).astype(int).T
    seen = [tuple(color) for color in pixels(figure)[y, x].tolist()]
    assert set(seen) == {rgb(COLORS[0]), rgb(COLORS[1])}
    assert 25 < seen.count(rgb(COLORS[0])) < 56
    # Classes that are switched off are neither drawn nor found.
    everything = Path([(-1, -1), (11, -1), (11, 11), (-1, 11)])
    for hidden, color, n in (("A", COLORS[1], 162), ("AB", Style().unlabeled, 81)):
        figure.hidden = frozenset(hidden)
        figure.update()
        assert {tuple(one) for one in pixels(figure)[y, x].tolist()} == {rgb(color)}
        assert len(figure.within(everything)) == n
        assert figure.nearest(x[0], y[0], 1) >= 243 - n


def test_soft_regions_blend_at_the_border_and_stay_in_a_zoomed_view():
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


def test_held_out_cells_are_rings():
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


def test_selected_cells_keep_their_colors_while_all_others_fade():
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
    # A scene with another number of cells removes the selection.
    for n, rows in ((6, [0, 2, 3]), (5, [])):
        figure.show(make_scene(POINTS[:n], CODES[:n], centers=[(2, 5), (5, 2), (8, 5)]), COLORS)
        assert sorted(figure.selected) == rows
    assert np.array_equal(pixels(figure), before)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_points_stand_out_from_their_own_region(theme):
    """Draw each class in the middle of its square, beside the same scene without points."""
    at = np.arange(36)
    centers = np.column_stack([at % 6, at // 6]) * 10 / 6 + 5 / 6
    codes = np.arange(300) % 36
    regions = center_regions(centers, LIMITS)
    scene = make_scene(centers[codes], codes, tuple(map(str, at)), regions)
    figure, names = make_figure(), ("background", "canvas", "text", "highlight")
    # As the widget sets it.
    figure.style = Style(*(getattr(get_theme(theme), name).as_hex("long") for name in names))
    figure.show(replace(scene, rows=np.empty(0, dtype=np.intp)), default_palette(36))
    ground = pixels(figure)
    figure.show(scene, default_palette(36))
    image = pixels(figure)
    for x, y in figure.ax.transData.transform(centers).astype(int):
        seen = np.unique(image[y - 5 : y + 6, x - 5 : x + 6].reshape(-1, 3), axis=0)
        below = "#" + ground[y, x].tobytes().hex()
        best = max(contrast("#" + color.tobytes().hex(), below) for color in seen)
        assert best >= 2.95  # colours of pixels are whole numbers


def test_names_do_not_overlap_and_stay_in_the_map_with_lines_to_their_centers():
    figure = make_figure()
    names = ("tumor", "w" * 50, "a name of many words that fills several lines")
    figure.show(make_scene(names=names, centers=[(5, 5), (5, 5), (0.1, 2)]), COLORS)
    (names,) = (artist for artist in figure.ax.artists if isinstance(artist, Names))
    written, lines = names.written_names()
    (first, second, rim) = (box for *_, box in written)
    assert not first.overlaps(second)
    assert rim.x0 > figure.ax.get_window_extent().x0
    at = figure.ax.transData.transform((5, 5))
    apart = [not box.contains(*at) for box in (first, second)]
    assert any(apart)
    np.testing.assert_allclose(lines[: sum(apart), 0], [at] * sum(apart))
