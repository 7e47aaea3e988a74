"""The map as matplotlib draws it, with all settings."""

from __future__ import annotations

from collections.abc import Sequence
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
from centroid_encoder.viewer.map.figure import MapFigure
from centroid_encoder.viewer.map.scene import Panel, Scene, Style, contrast
from tests.viewer.seen import names_on, title_of

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
    panels: Sequence[Sequence[int]] = ((0, 1, 4, 5), (2, 3, 4)),
    titles: Sequence[str] = ("training cells (n = 3)", "held-out 5-NN error 12.5 % (n = 2)"),
    names: Sequence[str] = ("A", "B", "C"),
    shapes: Sequence[Path] = (),
    centers: Any = None,
) -> Scene:
    """A scene of three classes; without centers, no names are written."""
    shown = tuple(Panel(title, np.array(rows)) for title, rows in zip(titles, panels, strict=False))
    centers = np.full((len(names), 2), np.nan) if centers is None else np.asarray(centers)
    points, codes = np.asarray(points), np.asarray(codes)
    return Scene(points, codes, shown, shapes, LIMITS, tuple(names), centers)


def dots(figure: MapFigure, panel: int, layer: int = 1) -> Dots:
    """Points of a panel: reference cells (0), cells (1), or cells that are drawn larger (2)."""
    found = [artist for artist in figure.axes[panel].artists if isinstance(artist, Dots)]
    return sorted(found, key=lambda artist: artist.get_zorder())[layer]


def drawn(figure: MapFigure, panel: int) -> set[tuple[float, float]]:
    """Points of the cells of a panel."""
    return set(map(tuple, dots(figure, panel).points))


def overlay(figure: MapFigure, panel: int, which: int = 0) -> set[tuple[float, float]]:
    """Points with a ring: the selected ones (0), or the one under the mouse (1)."""
    line = figure.axes[panel].lines[which]
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


def test_regions_are_below_the_points_and_optional() -> None:
    shapes = [Path(ring) for ring in (SQUARE, np.add(SQUARE, (5, 0)), NOTHING)]
    figure = make_figure()
    figure.show(make_scene(shapes=shapes), COLORS)
    red, green = (color_at(figure, 0, at) for at in ((3, 5), (7, 5)))
    assert red[0] > max(red[1:]) + 30
    assert green[1] > max(green[0], green[2]) + 30
    assert color_at(figure, 0, POINTS[0]) == rgb(COLORS[0])
    # Classes that are switched off keep their region.
    figure.hidden = frozenset("AB")
    figure.update()
    assert color_at(figure, 0, (3, 5)) == red
    figure.show(make_scene(), COLORS)
    assert color_at(figure, 0, (3, 5)) == rgb(Style().panel)


def test_the_smallest_class_lies_on_top_and_unlabeled_cells_at_the_bottom() -> None:
    codes = np.array([-1] * 5 + [0] * 2 + [1] * 3 + [2])
    points = np.full((len(codes), 2), 5.0)
    figure = make_figure()
    figure.show(make_scene(points, codes, [range(len(codes))]), COLORS)
    assert color_at(figure, 0, (5, 5)) == rgb(COLORS[2])
    for hidden, color in (("C", COLORS[0]), ("AC", COLORS[1]), ("ABC", Style().unlabeled)):
        figure.hidden = frozenset(hidden)
        figure.update()
        assert color_at(figure, 0, (5, 5)) == rgb(color)


def test_few_cells_with_a_class_are_drawn_larger_in_a_bold_scene() -> None:
    figure = make_figure()
    points = np.random.default_rng(0).uniform(0, 10, (5000, 2))
    codes = np.full(5000, -1)
    codes[[7, 9]] = 1
    plain = make_scene(points, codes, panels=[range(5000)], titles=["live map"])
    for scene, larger in ((plain, []), (replace(plain, bold=True), [7, 9])):
        figure.show(scene, COLORS)
        bold = dots(figure, 0, layer=2)
        assert set(map(tuple, bold.points)) == set(map(tuple, points[larger]))
        fills = bold.palette[0][bold.codes]
        assert np.array_equal(fills, [[0, 255, 0]] * len(larger)) or not larger
        assert len(dots(figure, 0).points) == 5000
    assert bold.size > 2 * dots(figure, 0).size


def test_cells_that_were_not_judged_are_hollow() -> None:
    figure = make_figure()
    scene = replace(make_scene(), hollow=np.array([1]))
    figure.show(scene, ["#ff0000", "#00ff00", "#0000ff"])
    cells = dots(figure, 0)
    found = dict(zip(map(tuple, cells.points), cells.palette[0][cells.codes], strict=True))
    assert np.array_equal(found[2.0, 2.0], [255, 0, 0])
    panel = np.rint(255 * np.array(to_rgb(figure.style.panel)))
    assert np.array_equal(found[8.0, 2.0], panel)


def test_the_view_stays_while_the_limits_are_the_same() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.look_at(np.array([[1.0, 2.0], [3.0, 4.0]]))
    figure.show(make_scene(POINTS[::-1]), COLORS)
    assert figure.axes[0].get_xlim() == (1, 3)
    figure.show(replace(make_scene(), limits=2 * LIMITS), COLORS)
    assert figure.axes[0].get_xlim() == (0, 20)


def test_classes_switched_off_are_neither_drawn_nor_found() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    everything = Path([(-1, -1), (11, -1), (11, 11), (-1, 11)])
    for hidden, found in (("A", ([1, 4], [2, 4])), ("", ([0, 1, 4], [2, 3, 4]))):
        figure.hidden = frozenset(hidden)
        figure.update()
        for panel, rows in enumerate(found):
            assert drawn(figure, panel) == rows_of(*rows)
            assert figure.within(figure.axes[panel], everything).tolist() == rows
        at = figure.axes[0].transData.transform(POINTS[0])
        assert figure.nearest(figure.axes[0], *at, 1) == (None if hidden else 0)


def test_a_theme_colors_page_panel_and_ink() -> None:
    figure = make_figure()
    dark = Style("#111111", "#222222", "#eeeeee", "#777777")
    light = Style("#eeeeee", "#ffffff", "#111111", "#999999")
    for style, is_dark, panels in ((dark, True, [range(6)]), (light, False, [range(6)] * 2)):
        assert style.dark is is_dark
        figure.style = style
        # Scenes that are shown later also have this style.
        figure.show(make_scene(panels=panels), COLORS)
        assert tuple(pixels(figure)[0, 0].tolist()) == rgb(style.page)
        assert color_at(figure, 0, (9, 9)) == rgb(style.panel)
        assert color_at(figure, 0, POINTS[4]) == rgb(style.unlabeled)
        lines = [line for ax in figure.axes for line in ax.lines]
        assert {line.get_markeredgecolor() for line in lines} == {style.ink}


# -- selection and hover -------------------------------------------------------------------------


def test_selected_cells_have_rings_in_their_panels() -> None:
    figure = make_figure()
    figure.show(make_scene(), COLORS)
    figure.select(np.array([True, False, True, True, False, True]))
    for hidden, ringed in (("", [{0}, {2, 3}]), ("A", [set(), {2}]), ("", [{0}, {2, 3}])):
        figure.hidden = frozenset(hidden)
        figure.update()
        assert [overlay(figure, panel) for panel in (0, 1)] == [rows_of(*r) for r in ringed]
    # A scene with another number of cells removes the selection.
    for scene, points in (
        (make_scene(POINTS + 1), {(3, 3)}),
        (make_scene(panels=[range(6)]), rows_of(0, 2, 3)),
        (make_scene(POINTS[:5], CODES[:5], [range(5)]), set()),
    ):
        figure.show(scene, COLORS)
        assert overlay(figure, 0) == points


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
    rows = np.arange(n)
    scene = make_scene(
        centers[codes], codes, [rows, rows[:0]], ["", ""], tuple(map(str, at)), regions
    )
    figure = make_figure(800, 420)
    figure.style = style_of(theme)
    figure.show(scene, default_palette(36))
    image = pixels(figure)
    x, y = figure.axes[0].transData.transform(centers).T.astype(int)
    shift = int(figure.axes[1].bbox.x0 - figure.axes[0].bbox.x0)

    def hexes(dx: int, dy: int) -> list[str]:
        return ["#" + image[j + dy, i + dx].tobytes().hex() for i, j in zip(x, y, strict=True)]

    grounds = hexes(shift, 0)
    near = [hexes(dx, dy) for dx in range(-5, 6) for dy in range(-5, 6)]
    best = [
        max(contrast(point, ground) for point in points)
        for points, ground in zip(zip(*near, strict=True), grounds, strict=True)
    ]
    assert min(best) >= 2.95  # colours of pixels are whole numbers


@pytest.mark.parametrize(
    ("points", "codes", "at", "on_top", "hidden"),
    [
        ([[5, 5], [5.1, 5], [5.2, 5]], [0, 0, 1], (5.2, 5), 1, 2),
        ([[0, 5], [-50, 5], [5, 60]], [0, 1, 1], (0.05, 5), 0, 1),
    ],
    ids=["overlapping", "at the rim and beyond"],
)
def test_which_points_are_seen(points: Any, codes: Any, at: Any, on_top: int, hidden: int) -> None:
    figure = make_figure()
    figure.show(make_scene(points, codes, [range(3)]), COLORS)
    assert color_at(figure, 0, at) == rgb(COLORS[on_top])
    seen = {tuple(color) for color in pixels(figure).reshape(-1, 3).tolist()}
    assert rgb(COLORS[hidden]) not in seen
    assert {rgb(COLORS[code]) for code in codes} - {rgb(COLORS[hidden])} <= seen


# -- views and layout ----------------------------------------------------------------------------


def boxes(figure: MapFigure, width: int, height: int) -> list[NDArray[np.floating]]:
    """Left, bottom, right and top of each panel in pixels."""
    figure.figure.set_size_inches(width / 96, height / 96)
    figure.arrange()
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
    # The other arrangement would not give larger panels.
    side = first[2] - first[0]
    other = min((width - 18) / 2, height - 6 - 40) if not beside else (height - 6) / 2 - 40
    assert side >= min(other, width - 12) - 1
    assert len(boxes(figure, 1, 1)) == len(boxes(figure, 3, 700)) == 2
    pixels(figure)


TITLES = [
    "training cells (n = 123,456)",
    "held-out 5-NN error 12.5 % (n = 12,345, 1,234 shown)",
    "held-out 5-NN error 63.1 % (n = 12,345)\nno better than chance (61.9 %)",
]


@pytest.mark.parametrize("size", [(330, 500), (360, 700), (480, 300), (1200, 700)])
@pytest.mark.parametrize("held_out", TITLES[1:], ids=["plain", "at chance"])
def test_titles_fit(size: tuple[int, int], held_out: str) -> None:
    titles = [TITLES[0], held_out]
    figure = make_figure(*size)
    figure.show(make_scene(titles=titles), COLORS)
    panels = boxes(figure, *size)
    pixels(figure)
    shown = [title_of(ax) for ax in figure.axes]
    for title, text, panel in zip(titles, shown, panels, strict=True):
        box = text.get_window_extent()
        assert text.get_text().replace("\n", " ") == title.replace("\n", " ")
        assert box.x0 >= 0
        assert box.x1 <= size[0]
        assert box.y1 <= size[1]
        assert box.y0 >= panel[3] - 1e-6
    first, second = (text.get_window_extent() for text in shown)
    below = panels[1][3] < panels[0][1]
    assert second.y1 <= panels[0][1] if below else first.x1 <= second.x0


@pytest.mark.parametrize("width", [800, 300])
def test_names_at_the_rim_stay_in_the_panel(width: int) -> None:
    names = ("tumor", "w" * 50, "a name of many words that fills several lines")
    figure = make_figure(width, 420)
    for at in [(0.01, 5), (9.99, 5), (5, 0.01), (5, 9.99)]:
        figure.show(make_scene(names=names, centers=[at, (5, 3), (6, 7)]), COLORS)
        for ax in figure.axes:
            frame, written = ax.get_window_extent(), names_on(ax)
            assert written[0].text == "tumor"
            for _, _, box in written:
                assert frame.x0 <= box.x0 < box.x1 <= frame.x1
                assert frame.y0 <= box.y0 < box.y1 <= frame.y1


def test_names_that_were_moved_have_lines_to_their_centers() -> None:
    figure = make_figure()
    figure.show(make_scene(centers=[(5, 5), (5, 5), (0.1, 2)]), COLORS)
    (names,) = (artist for artist in figure.axes[0].artists if isinstance(artist, Names))
    written, lines = names.written_names()
    (first, second, rim) = (box for *_, box in written)
    assert not first.overlaps(second)
    assert rim.x0 > figure.axes[0].get_window_extent().x0
    at = figure.axes[0].transData.transform((5, 5))
    apart = [not box.contains(*at) for box in (first, second)]
    assert any(apart)
    assert len(lines) == sum(apart)
    np.testing.assert_allclose(lines[:, 0], [at] * len(lines))
