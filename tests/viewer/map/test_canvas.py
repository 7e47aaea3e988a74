"""The mouse on the map; all events are sent through Qt."""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.path import Path
from napari._qt.utils import QImg2array
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QPoint, QPointF, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QToolTip

from centroid_encoder.viewer.map.canvas import PICK_RADIUS, TOOLS, MapCanvas
from centroid_encoder.viewer.map.scene import Scene

COLORS = ["#ff0000", "#00ff00", "#0000ff"]
LIMITS = np.array([[0.0, 0.0], [10.0, 10.0]])
N = 400
PLACED = np.flatnonzero(np.arange(N) % 10)
"""Rows of the cells with a position."""
LEFT, RIGHT = Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton
PLAIN = Qt.KeyboardModifier.NoModifier
SHIFT, CTRL = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
KEYS = [(SHIFT, "add"), (CTRL, "remove"), (PLAIN, "replace")]

Corners = list[tuple[float, float]]


def make_scene(n: int = N) -> Scene:
    """Cells of three classes; some have no position, and some no label."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0.2, 9.8, (n, 2))
    points[::10] = np.nan
    codes = np.where(np.arange(n) % 7 == 0, -1, np.arange(n) % 3)
    return Scene(points, codes, np.arange(n), (), LIMITS, ("A", "B", "C"), np.full((3, 2), np.nan))


class Mouse:
    """The mouse on a map."""

    def __init__(self, canvas: MapCanvas) -> None:
        self.canvas = canvas
        self.path: list[QPoint] = []
        self.made: list[tuple[list[int], str]] = []
        canvas.select = lambda rows, how, _: self.made.append((sorted(rows), how))

    def at(self, point: Iterable[float]) -> QPoint:
        where = self.canvas.map.ax.transData.transform(tuple(point))
        x, y = where / self.canvas.canvas.device_pixel_ratio
        return QPoint(round(x), round(self.canvas.canvas.height() - y))

    def click(self, point: Iterable[float], keys: Any = PLAIN) -> None:
        QTest.mouseClick(self.canvas.canvas, LEFT, keys, self.at(point))

    def move(self, point: Iterable[float]) -> None:
        QTest.mouseMove(self.canvas.canvas, self.at(point))

    def drag(self, corners: Corners, keys: Any = PLAIN, button: Any = LEFT) -> None:
        where = [self.at(corner) for corner in corners]
        self.path = where[:1]
        for start, end in pairwise(where):
            self.path += [start + (end - start) * 0.5, end]
        QTest.mousePress(self.canvas.canvas, button, keys, where[0])
        for place in self.path[1:]:
            QTest.mouseMove(self.canvas.canvas, place)
        QTest.mouseRelease(self.canvas.canvas, button, keys, where[-1])

    def turn(self, point: Iterable[float], steps: int) -> None:
        at, none = self.at(point), Qt.MouseButton.NoButton
        there = QPointF(at), QPointF(self.canvas.canvas.mapToGlobal(at))
        turned = QPoint(), QPoint(0, 120 * steps)
        phase = Qt.ScrollPhase.NoScrollPhase
        event = QWheelEvent(*there, *turned, none, PLAIN, phase, False)
        QApplication.sendEvent(self.canvas.canvas, event)


@pytest.fixture
def canvas(qtbot) -> MapCanvas:
    canvas = MapCanvas(lambda *_: None, lambda row: f"cell number {row}")
    qtbot.addWidget(canvas)
    canvas.resize(760, 450)  # matplotlib 3.10 loses a pixel of some heights, such as 460
    with qtbot.waitExposed(canvas):
        canvas.show()
    canvas.map.show(make_scene(), COLORS)
    return canvas


@pytest.fixture
def mouse(canvas) -> Mouse:
    return Mouse(canvas)


def view(canvas: MapCanvas) -> list[float]:
    ax = canvas.map.ax
    return [*ax.get_xlim(), *ax.get_ylim()]


def pixels_of(canvas: MapCanvas, rows: NDArray[np.intp]) -> NDArray[np.floating]:
    points = canvas.map.scene.points[rows]
    where: NDArray[np.floating] = canvas.map.ax.transData.transform(points)
    return where / canvas.canvas.device_pixel_ratio


def inside(canvas: MapCanvas, path: list[QPoint]) -> list[int]:
    """Rows inside the path of the mouse, computed in pixels."""
    rows = PLACED
    outline = Path([(place.x(), canvas.canvas.height() - place.y()) for place in path])
    found: list[int] = rows[outline.contains_points(pixels_of(canvas, rows))].tolist()
    return found


def ringed(canvas: MapCanvas) -> set[tuple[float, float]]:
    """Points with a ring: the one under the mouse."""
    (line,) = canvas.map.ax.lines
    return set(map(tuple, line.get_xydata()))


def choose(canvas: MapCanvas, tool: str) -> None:
    """Choose a tool in the menu."""
    next(action for action in canvas.tools.actions() if action.data() == tool).trigger()


def test_lasso_and_rectangle_select_exactly_the_cells_inside(canvas, mouse):
    angles, radii = np.arange(10) * 2 * np.pi / 10, np.where(np.arange(10) % 2, 1.7, 4.7)
    star = 5 + np.column_stack([radii * np.cos(angles), radii * np.sin(angles)])
    for keys, how in KEYS:
        mouse.drag(star.tolist(), keys)
        rows = inside(canvas, mouse.path)
        assert mouse.made.pop() == (rows, how)
        assert 20 < len(rows) < 150
    choose(canvas, "rectangle")
    box = [mouse.at(corner) for corner in ((2, 3), (8, 3), (8, 7), (2, 7))]
    for start, end in (((2, 3), (8, 7)), ((2, 7), (8, 3))):
        mouse.drag([start, (5, 5), end])
        assert mouse.made.pop() == (inside(canvas, box), "replace")


def reference(canvas: MapCanvas, at: QPoint) -> int | None:
    """Nearest row within the radius, computed from all distances in pixels."""
    x, y = at.x(), canvas.canvas.height() - at.y()
    distances = np.linalg.norm(pixels_of(canvas, PLACED) - (x, y), axis=1)
    return int(PLACED[distances.argmin()]) if distances.min() < PICK_RADIUS else None


def test_a_click_picks_the_nearest_cell_within_the_radius(canvas, mouse):
    found = []
    for point in np.random.default_rng(1).uniform(0.5, 9.5, (25, 2)):
        for keys in (PLAIN, SHIFT):
            mouse.click(point, keys)
            row = reference(canvas, mouse.at(point))
            found.append(row)
            assert mouse.made.pop() == ([] if row is None else [row], "add" if keys else "replace")
    assert None in found
    assert len(set(found)) > 5


def test_the_cell_under_the_mouse_has_a_ring_and_a_description(canvas, mouse, qtbot):
    mouse.turn((4, 4), 3)
    mouse.drag([(5, 5), (4, 6)], button=RIGHT)
    (x0, x1, y0, y1), points = view(canvas), canvas.map.scene.points
    assert x1 - x0 < 6

    def described(point: Any, row: int | None) -> bool:
        mouse.move(point)
        if row is None:
            return ringed(canvas) == set()
        return ringed(canvas) == {tuple(points[row])} and QToolTip.text() == f"cell number {row}"

    seen = set()
    # Avoid the edge, where rounding decides.
    shares = np.random.default_rng(1).uniform(0.02, 0.98, (20, 2))
    for point in (x0, y0) + shares * (x1 - x0, y1 - y0):
        row = reference(canvas, mouse.at(point))
        # Repeat the move, since an event of the real mouse can come in between.
        qtbot.waitUntil(partial(described, point, row), timeout=2000)
        seen.add(row)
    assert len(seen) > 3
    QApplication.sendEvent(canvas.canvas, QEvent(QEvent.Type.Leave))
    qtbot.waitUntil(lambda: ringed(canvas) == set())


def test_the_wheel_zooms_around_the_mouse(canvas, mouse):
    at = mouse.at((3, 7))
    mouse.turn((3, 7), 2)
    x0, x1, y0, y1 = view(canvas)
    np.testing.assert_allclose([x1 - x0, y1 - y0], 10 / 1.25**2)
    now = mouse.at((3, 7))
    assert max(abs(now.x() - at.x()), abs(now.y() - at.y())) <= 2
    mouse.turn((3, 7), -2)
    np.testing.assert_allclose(view(canvas), [0, 10, 0, 10], atol=0.1)
    mouse.turn((15, 5), 2)  # beside the map
    np.testing.assert_allclose(view(canvas), [0, 10, 0, 10], atol=0.1)


def test_dragging_moves_the_map_or_zooms_into_a_rectangle(canvas, mouse):
    for tool, button in [*((tool, RIGHT) for tool in TOOLS), ("pan", LEFT)]:
        choose(canvas, tool)
        mouse.drag([(2, 2), (3, 5)], button=button)
        np.testing.assert_allclose(view(canvas), [-1, 9, -3, 7], atol=0.1)
        canvas.map.home()
        assert view(canvas) == [0, 10, 0, 10]
    choose(canvas, "zoom")
    mouse.drag([(2, 3), (4, 5), (6, 7)])
    np.testing.assert_allclose(view(canvas), [2, 6, 3, 7], atol=0.1)
    canvas.buttons["home"].click()
    assert view(canvas) == [0, 10, 0, 10]
    assert not mouse.made


def shot(canvas: MapCanvas, qtbot: Any) -> NDArray[np.uint8]:
    """Pixels of the screen."""
    qtbot.wait(20)
    image: NDArray[np.uint8] = QImg2array(canvas.canvas.grab().toImage())
    return image[..., :3]


def test_changes_are_drawn_at_once(canvas, mouse, qtbot):
    frames = [shot(canvas, qtbot)]

    def changed() -> bool:
        frames.append(shot(canvas, qtbot))
        return not np.array_equal(frames[-1], frames[-2])

    canvas.map.home()
    assert not changed()
    canvas.map.select(np.arange(N) % 5 == 1)
    assert changed()
    canvas.map.select(None)
    assert changed()
    assert np.array_equal(frames[-1], frames[0])
    canvas.map.hidden = frozenset("A")
    canvas.map.update()
    assert changed()
    QTest.mousePress(canvas.canvas, LEFT, PLAIN, mouse.at((2, 2)))
    QTest.mouseMove(canvas.canvas, mouse.at((8, 6)))
    assert changed()  # the outline of the lasso
    QTest.mouseRelease(canvas.canvas, LEFT, PLAIN, mouse.at((8, 6)))
    assert changed()


def test_a_map_can_be_cleared_or_replaced_during_a_drag(canvas, mouse):
    start, end = mouse.at((2, 2)), mouse.at((7, 8))
    for button in (LEFT, RIGHT):
        for scene_after, colors in ((Scene(), []), (make_scene(50), COLORS)):
            canvas.map.show(make_scene(), COLORS)
            QTest.mousePress(canvas.canvas, button, PLAIN, start)
            QTest.mouseMove(canvas.canvas, start + (end - start) * 0.5)
            canvas.map.show(scene_after, colors)
            QTest.mouseMove(canvas.canvas, end)
            QTest.mouseRelease(canvas.canvas, button, PLAIN, end)
    # An empty map accepts all events.
    canvas.map.show(Scene(), [])
    QTest.mouseClick(canvas.canvas, LEFT, PLAIN, end)
    canvas.map.home()
    QApplication.sendEvent(canvas.canvas, QEvent(QEvent.Type.Leave))
    # Only cells that are there can be selected.
    assert all(max(rows, default=0) < 50 for rows, _ in mouse.made)
