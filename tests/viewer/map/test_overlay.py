"""What a layer shows of its cells, and that nothing of it is left in the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from matplotlib.colors import to_hex, to_rgba
from napari import Viewer
from napari.components import ViewerModel
from napari.layers import Labels, Layer, Points, Shapes
from napari.layers.labels._labels_utils import get_contours
from napari.utils.colormaps import DirectLabelColormap
from numpy.typing import NDArray
from qtpy.QtCore import QPoint, Qt
from qtpy.QtTest import QTest

from centroid_encoder.viewer.data.join import Link
from centroid_encoder.viewer.data.tables import Table, is_drawn
from centroid_encoder.viewer.map import overlay
from centroid_encoder.viewer.map.lent_colors import CLEAR as CLEAR_ENOUGH
from centroid_encoder.viewer.map.overlay import HIGHLIGHT, LayerLink

COLORS = ["#ff0000", "#00ff00", "#0000ff"]
CLEAR = (0.0, 0.0, 0.0, 0.0)

# Rows are shuffled, ids have gaps; the cell 8 is not in the image, 3 in the image is no cell.
IDS = [55, 7, 8, 20, 4]
CODES = np.array([0, 1, 2, -1, 2])
SEEN = {55: COLORS[0], 7: COLORS[1], 4: COLORS[2]}
IMAGE = np.array([[0, 4, 4, 0, 7], [3, 3, 0, 0, 7], [0, 55, 55, 20, 20]])

Picked = list[list[int]]


def table(ids: Any) -> AnnData:
    index = pd.Index([f"c{i}" for i in range(len(ids))])
    return AnnData(obs=pd.DataFrame({"cell_id": np.asarray(ids)}, index=index))


def link_to(viewer: Any, layer: Any, ids: Any = IDS, picked: Picked | None = None) -> LayerLink:
    """Link of cells with these ids, or keys of points, to a layer that comes into the viewer."""
    if layer not in viewer.layers:
        viewer.add_layer(layer)
    join = Link(Table(table(ids), "cells"), None, layer, "cell_id").make()
    link = LayerLink(viewer, layer, join)
    if picked is not None:
        link.picked.connect(lambda rows: picked.append(rows.tolist()))
    return link


def points(**options: Any) -> Points:
    """Points whose keys are 4, 7, 3, 55, 20: the cell 8 is not among them."""
    keys = [4, 7, 3, 55, 20]
    features = {"cell_id": keys, "kind": list("abacb"), "score": [0.1, 0.5, 0.2, 0.9, 0.7]}
    positions = np.arange(10.0).reshape(5, 2) ** 2
    return Points(positions, features=features, **options)


def shapes(**options: Any) -> Shapes:
    """Polygons for these points."""
    of = points()
    corners = np.array([[-0.4, -0.4], [-0.4, 0.4], [0.4, 0.4], [0.4, -0.4]])
    outlines = [place + corners for place in of.data]
    return Shapes(outlines, shape_type="polygon", features=of.features, **options)


def seen(layer: Labels, image: Any = None) -> NDArray[np.floating]:
    """Colour of each pixel, premultiplied: what is transparent has none."""
    data = layer.data[0] if layer.multiscale else layer.data
    colors = layer.colormap.map(np.asarray(data if image is None else image))
    return colors * colors[..., 3:]


def wanted(image: NDArray[np.integer], colors: dict[int, str]) -> NDArray[np.floating]:
    out = np.zeros((*image.shape, 4))
    for label, color in colors.items():
        out[image == label] = to_rgba(color)
    return out


@pytest.fixture(params=["direct", "above"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of colouring labels, of which the number of cells decides."""
    if request.param == "above":
        monkeypatch.setattr(overlay, "DIRECT", 0)
    return str(request.param)


def shown(viewer: Any, layer: Labels) -> NDArray[np.floating]:
    """Colour of each pixel of labels that are coloured in either way."""
    above = [other for other in viewer.layers if is_drawn(other)]
    beneath = seen(layer)
    if not above:
        return beneath
    assert not beneath.any(), "the labels shine through"
    assert viewer.layers.index(above[0]) == viewer.layers.index(layer) + 1
    assert above[0].opacity == layer.opacity
    return seen(above[0])


# -- colours of labels ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64", "uint64"])
def test_joined_cells_have_their_colors_and_nothing_else_has_one(way: str, dtype: str) -> None:
    viewer = ViewerModel()
    layer = Labels(IMAGE.astype(dtype))
    link_to(viewer, layer).color("label", CODES, COLORS)
    np.testing.assert_array_equal(shown(viewer, layer), wanted(IMAGE, SEEN))


def test_the_greatest_label_of_a_type_has_a_color(way: str) -> None:
    viewer = ViewerModel()
    layer = Labels(np.array([[0, 255, 254]], dtype=np.uint8))
    link_to(viewer, layer, [255]).color("label", np.array([1]), COLORS)
    np.testing.assert_array_equal(shown(viewer, layer), [[CLEAR, to_rgba(COLORS[1]), CLEAR]])


@pytest.mark.parametrize(
    ("ids", "dtype"),
    [
        ([65_535, 65_536, 70_000, 131_072], "int32"),
        ([1, 2, 3, 2**40], "int64"),
        ([2**40, 2**40 + 1, 2**40 + 2, 2**40 + 3], "int64"),
        # As floats, these would be one.
        ([2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3], "uint64"),
        ([-3, -2, 5, 6], "int16"),
    ],
)
def test_large_and_negative_ids(way: str, ids: list[int], dtype: str) -> None:
    viewer = ViewerModel()
    image = np.array([[0, *ids]], dtype=dtype)
    link = link_to(viewer, Labels(image), [ids[1], ids[3], ids[2]])
    link.color("label", np.array([0, 1, -1]), COLORS)
    expected = {ids[1]: COLORS[0], ids[3]: COLORS[1]}
    if way == "above" or max(ids) < 2**53:  # napari itself maps labels through floats
        np.testing.assert_array_equal(shown(viewer, link.layer), wanted(image, expected))


def pyramid() -> Labels:
    image = np.kron(IMAGE, np.ones((4, 4), dtype=int))
    return Labels([image, image[::2, ::2], image[::4, ::4]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Labels(np.stack([IMAGE, np.zeros_like(IMAGE), IMAGE[::-1]])),
        lambda: Labels(da.from_array(IMAGE, chunks=2)),
        lambda: Labels(da.from_array(np.stack([IMAGE] * 3), chunks=(1, 2, 2))),
        pyramid,
        lambda: Labels(IMAGE, scale=(2, 3), translate=(5, -7), rotate=30, affine=2 * np.eye(3)),
    ],
    ids=["3-D", "dask", "3-D dask", "multiscale", "transformed"],
)
def test_images_of_any_kind(way: str, make: Callable[[], Labels]) -> None:
    viewer = ViewerModel()
    layer = make()
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    link.highlight(np.array([0, 1, 2]))
    data = np.asarray(layer.data[0] if layer.multiscale else layer.data)
    marks = viewer.layers[HIGHLIGHT]
    marked = np.asarray(marks.data[0] if marks.multiscale else marks.data)
    assert viewer.layers[-1] is marks  # above the classes
    np.testing.assert_array_equal(marked != 0, np.isin(data, [55, 7]))
    for drawn in filter(is_drawn, viewer.layers):
        assert drawn.multiscale == layer.multiscale
        np.testing.assert_array_equal(drawn.extent.world, layer.extent.world)
        np.testing.assert_array_equal(drawn.data_to_world([1] * 2), layer.data_to_world([1] * 2))
        if layer.multiscale:
            assert [level.shape for level in drawn.data] == [level.shape for level in layer.data]
            np.testing.assert_array_equal(
                np.asarray(drawn.data[2]) > 0, drawn.data[0][::4, ::4] > 0
            )
    viewer.layers.remove(HIGHLIGHT)
    np.testing.assert_array_equal(shown(viewer, layer), wanted(data, SEEN))


def test_other_colors_replace_the_first(way: str) -> None:
    viewer = ViewerModel()
    layer = Labels(IMAGE, name="nuclei")
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    link.color("split", np.array([1, -1, 0, 0, 0]), ["#ffff00", "#00ffff"])
    yellow_and_cyan = {20: "#ffff00", 4: "#ffff00", 55: "#00ffff"}
    np.testing.assert_array_equal(shown(viewer, layer), wanted(IMAGE, yellow_and_cyan))
    assert [other.name for other in viewer.layers if is_drawn(other)] == (
        [] if way == "direct" else ["nuclei · split"]
    )


def test_no_cell_in_the_image(way: str) -> None:
    viewer = ViewerModel()
    layer = Labels(IMAGE)
    link = link_to(viewer, layer, [1000, 1001])
    link.color("label", np.array([0, 1]), COLORS)
    link.highlight(np.array([0, 1]))
    link.show(np.array([0, 1]))
    assert not shown(viewer, layer).any()


def test_labels_by_the_hundred_thousand() -> None:
    viewer = ViewerModel()
    ids = 1 + np.random.default_rng(0).permutation(500_000)[:250_000]
    image = np.kron(np.sort(ids).reshape(500, 500), np.ones((2, 2), dtype=np.int32))
    layer = Labels(image.astype(np.int32))
    link = link_to(viewer, layer, ids)
    codes = np.arange(250_000) % 3
    link.color("label", codes, COLORS)
    link.highlight(np.flatnonzero(codes == 1))

    lut = np.zeros(500_002, dtype=int)
    lut[ids] = codes
    classes = next(drawn for drawn in viewer.layers[1:] if drawn.name != HIGHLIGHT)
    np.testing.assert_array_equal(classes.data, 1 + lut[image])
    marks = viewer.layers[HIGHLIGHT]
    assert marks.contour == 0
    outlines = get_contours((lut[image] == 1).astype(np.uint8), overlay.OUTLINE, 0)
    np.testing.assert_array_equal(marks.data, outlines)
    link.close()
    assert list(viewer.layers) == [layer]


def test_outlines_are_those_of_napari_where_cells_are_large() -> None:
    image = np.kron(np.random.default_rng(0).integers(0, 9, (20, 25)), np.ones((9, 9), dtype=int))
    viewer = ViewerModel()
    link = link_to(viewer, Labels(image), range(1, 9))
    link.highlight(np.array([0, 2, 5]))
    drawn = viewer.layers[HIGHLIGHT].data
    np.testing.assert_array_equal(
        drawn, get_contours(np.isin(image, [1, 3, 6]).astype(np.uint8), overlay.OUTLINE, 0)
    )
    assert 0 < drawn.sum() < 0.9 * np.isin(image, [1, 3, 6]).sum()
    link.highlight(np.array([1]))
    np.testing.assert_array_equal(
        drawn := viewer.layers[HIGHLIGHT].data,
        get_contours((image == 2).astype(np.uint8), overlay.OUTLINE, 0),
    )
    assert drawn.any()


def test_of_three_dimensions_napari_outlines_the_plane_that_is_seen() -> None:
    image = np.kron(np.arange(8).reshape(2, 2, 2), np.ones((9, 9, 9), dtype=int))
    viewer = ViewerModel()
    link = link_to(viewer, Labels(image), range(1, 8))
    link.highlight(np.array([6]))
    marks = viewer.layers[HIGHLIGHT]
    assert marks.contour == overlay.OUTLINE
    np.testing.assert_array_equal(marks.data, image == 7)


def test_on_the_screen_both_ways_look_alike(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A picture beneath, as the nuclei are in practice; other colours than black show through.
    viewer.add_image(np.full((60, 60), 0.5), contrast_limits=(0, 1))
    layer = viewer.add_labels(np.kron(IMAGE[:, :5], np.ones((12, 12), dtype=int)), opacity=0.6)
    link = link_to(viewer, layer)
    viewer.reset_view()
    before = viewer.screenshot(flash=False)
    link.color("label", CODES, COLORS)
    direct = viewer.screenshot(flash=False)
    link.uncolor()
    monkeypatch.setattr(overlay, "DIRECT", 0)
    link.color("label", CODES, COLORS)
    assert len(viewer.layers) == 3
    above = viewer.screenshot(flash=False)
    link.uncolor()
    after = viewer.screenshot(flash=False)
    assert (before != direct).mean() > 0.05
    # A pixel at the edge may be drawn or not.
    assert (direct != above).mean() < 1e-5
    assert (before != after).mean() < 1e-5


# -- undone --------------------------------------------------------------------------------------


def state(viewer: Any, layer: Any) -> dict[str, Any]:
    """All that colouring and marking might change."""
    now: dict[str, Any] = {
        "layers": list(viewer.layers),
        "selection": set(viewer.layers.selection),
        "active": viewer.layers.selection.active,
        "mouse": list(viewer.mouse_drag_callbacks),
        "removed": len(viewer.layers.events.removed.callbacks),
        "features": layer.features.copy(),
        "metadata": dict(layer.metadata),
        "look": [layer.opacity, layer.visible, str(layer.blending), str(layer.mode)],
    }
    if isinstance(layer, Labels):
        now["colormaps"] = layer.colormap, layer._direct_colormap, layer._random_colormap
        now["alone"] = layer.colormap.use_selection, layer.colormap.selection
    else:
        now["mode"] = str(layer.face_color_mode)
        now["face"] = layer.face_color.tolist()
        now["current"] = layer.current_face_color
        now["continuous"] = layer.face_colormap, layer.face_contrast_limits
        if isinstance(layer, Points):
            face = layer._face
            now["cycle"] = {k: v.tolist() for k, v in face.categorical_colormap.colormap.items()}
            now["property"] = face.color_properties and face.color_properties.name
        else:
            now["cycle"] = layer.face_color_cycle.tolist()
            now["property"] = layer._face_color_property
        now["callbacks"] = len(layer.selected_data.events.items_changed)
    return now


def assert_same(after: dict[str, Any], before: dict[str, Any]) -> None:
    pd.testing.assert_frame_equal(after.pop("features"), before.pop("features"))
    for name, value in before.items():
        assert after[name] == value, name


def with_user_colors(layer: Labels) -> Labels:
    layer.colormap = DirectLabelColormap(color_dict={None: "grey", 0: "black", 4: "pink"})
    return layer


def shuffled(layer: Labels) -> Labels:
    with_user_colors(layer)
    layer.new_colormap(3)
    return layer


def alone(layer: Labels) -> Labels:
    layer.show_selected_label, layer.selected_label = True, 7
    return layer


def cycled(make: Callable[..., Any]) -> Any:
    layer = make(face_color="score")
    layer.face_color_mode = "cycle"
    return layer


def reddened(layer: Any) -> Any:
    layer.face_color = "red"
    return layer


LABELS: dict[str, Callable[[], Labels]] = {
    "random": lambda: Labels(IMAGE, features={"index": [4, 7], "area": [1.5, 2.5]}),
    "user's": lambda: with_user_colors(Labels(IMAGE)),
    "shuffled": lambda: shuffled(Labels(IMAGE)),
    "alone": lambda: alone(Labels(IMAGE)),
    "multiscale": pyramid,
}


def ways_to_color(make: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    return {
        "one color": lambda: make(face_color="pink"),
        "own colors": lambda: make(face_color=np.linspace(0.1, 1, 20).reshape(5, 4)),
        "cycle": lambda: make(face_color="kind", face_color_cycle=["cyan", "tan", "navy"]),
        "colormap": lambda: make(
            face_color="score", face_colormap="magma", face_contrast_limits=(0.2, 0.8)
        ),
        "cycle of numbers": lambda: cycled(make),
        "direct after cycle": lambda: reddened(make(face_color="kind")),
    }


ITEMS = {
    f"{make.__name__}, {kind}": colored
    for make in (points, shapes)
    for kind, colored in ways_to_color(make).items()
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_as_they_were(way: str, kind: str) -> None:
    viewer = ViewerModel()
    layer = viewer.add_layer(LABELS[kind]())
    others = [viewer.add_labels(IMAGE), viewer.add_labels(IMAGE)]
    for selection in (set(others), {layer}, set()) if kind == "random" else ({layer},):
        viewer.layers.selection = selection
        before = state(viewer, layer)
        link = link_to(viewer, layer)
        link.color("label", CODES, COLORS)
        link.highlight(np.array([0, 1]))
        assert viewer.layers.selection == selection
        link.color("split", CODES[::-1], COLORS)
        link.uncolor()
        link.uncolor()
        link.color("label", CODES, COLORS)
        link.close()
        link.close()
        assert_same(state(viewer, layer), before)


@pytest.mark.parametrize("kind", ITEMS)
def test_points_and_shapes_are_as_they_were(kind: str) -> None:
    viewer = ViewerModel()
    layer = viewer.add_layer(ITEMS[kind]())
    before = state(viewer, layer)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    rows = [IDS.index(key) if key in IDS else 2 for key in layer.features["cell_id"]]
    expected = [to_rgba(SEEN[IDS[row]]) if IDS[row] in SEEN else CLEAR for row in rows]
    np.testing.assert_allclose(layer.face_color, expected)
    link.highlight(np.array([1]))
    assert layer.selected_data == {1}
    link.color("split", CODES[::-1], COLORS)
    link.uncolor()
    link.color("label", CODES, COLORS)
    link.close()
    link.close()
    assert_same(state(viewer, layer), before)


def close_in_turn(layer: Any, first: int, again: bool) -> None:
    viewer = ViewerModel()
    viewer.add_layer(layer)
    before = state(viewer, layer)
    links = [link_to(viewer, layer), link_to(viewer, layer)]
    links[0].color("label", CODES, COLORS)
    links[1].color("split", CODES[::-1], COLORS)
    if again:
        links[0].color("label", CODES, COLORS)
    links.pop(first).close()
    links.pop().close()
    assert_same(state(viewer, layer), before)


def test_pale_labels_are_clearer_while_they_are_colored(way: str) -> None:
    viewer = ViewerModel()
    layer = viewer.add_labels(IMAGE, opacity=0.4)
    clear = viewer.add_labels(IMAGE, opacity=0.9)
    links = link_to(viewer, layer), link_to(viewer, clear)
    for name in ("label", "split"):
        for link in links:
            link.color(name, CODES, COLORS)
        assert (layer.opacity, clear.opacity) == (CLEAR_ENOUGH, 0.9)
        assert {drawn.opacity for drawn in viewer.layers} == {CLEAR_ENOUGH, 0.9}
    for link in links:
        link.uncolor()
    assert (layer.opacity, clear.opacity) == (0.4, 0.9)


def test_an_opacity_that_the_user_chose_meanwhile_stays(way: str) -> None:
    viewer = ViewerModel()
    layer = viewer.add_labels(IMAGE, opacity=0.4)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    layer.opacity = 0.2
    link.color("split", CODES[::-1], COLORS)
    assert layer.opacity == 0.2
    link.close()
    assert layer.opacity == 0.2


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_of_two_links_any_may_go_first(way: str, first: int, again: bool) -> None:
    for kind in ("random", "user's"):
        close_in_turn(LABELS[kind](), first, again)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_of_two_links_to_points_or_shapes_any_may_go_first(first: int, again: bool) -> None:
    for make in ITEMS.values():
        close_in_turn(make(), first, again)


@pytest.mark.parametrize("kind", ["labels", "points"])
def test_the_colors_of_a_second_link_outlive_the_first(kind: str) -> None:
    viewer = ViewerModel()
    layer: Any = Labels(IMAGE) if kind == "labels" else points()
    first, second = link_to(viewer, layer), link_to(viewer, layer)
    first.color("label", CODES, COLORS)
    second.color("split", CODES[::-1], COLORS)
    now = layer.face_color.copy() if kind == "points" else layer.colormap
    first.close()
    np.testing.assert_array_equal(layer.face_color if kind == "points" else layer.colormap, now)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_a_color_map_that_the_user_chose_meanwhile_stays(
    way: str, again: bool, direct: bool
) -> None:
    viewer = ViewerModel()
    layer = Labels(IMAGE)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    with_user_colors(layer) if direct else layer.new_colormap(3)
    chosen = layer.colormap
    if again:
        link.color("label", CODES, COLORS)
        assert layer.colormap is not chosen
    link.close()
    assert layer.colormap is chosen
    assert list(viewer.layers) == [layer]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("choice", ["pink", "kind"])
def test_points_keep_the_color_that_the_user_chose_meanwhile(again: bool, choice: str) -> None:
    viewer = ViewerModel()
    layer = points(face_color="cyan")
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    layer.face_color = choice
    chosen = str(layer.face_color_mode), layer.face_color.tolist()
    if again:
        link.color("label", CODES, COLORS)
    link.close()
    assert (str(layer.face_color_mode), layer.face_color.tolist()) == chosen


def test_painting_a_few_points_does_not_keep_the_colors_of_the_others() -> None:
    viewer = ViewerModel()
    layer = points(face_color="cyan")
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    layer.selected_data = {0}
    layer.current_face_color = "white"
    link.close()
    np.testing.assert_allclose(layer.face_color, [to_rgba("cyan")] * 5)


def test_a_label_that_was_selected_meanwhile_is_the_one_that_is_alone() -> None:
    viewer = ViewerModel()
    layer = alone(Labels(IMAGE))
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    layer.selected_label = 55
    link.close()
    assert layer.colormap.use_selection
    assert layer.colormap.selection == 55


def test_the_user_deletes_the_image_of_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "DIRECT", 0)
    viewer = ViewerModel()
    layer = viewer.add_labels(IMAGE)
    before = state(viewer, layer)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    del viewer.layers[1]
    # Nothing is above the labels any more: they must not stay invisible.
    assert seen(layer)[IMAGE > 0].all(axis=1).any()
    link.color("label", CODES, COLORS)
    np.testing.assert_array_equal(shown(viewer, layer), wanted(IMAGE, SEEN))
    link.close()
    assert_same(state(viewer, layer), before)


def test_the_user_deletes_the_marks() -> None:
    viewer = ViewerModel()
    layer = viewer.add_labels(IMAGE)
    before = state(viewer, layer)
    link = link_to(viewer, layer)
    link.highlight(np.array([0]))
    viewer.layers.remove(HIGHLIGHT)
    link.highlight(np.array([1]))
    np.testing.assert_array_equal(viewer.layers[HIGHLIGHT].data, IMAGE == 7)
    viewer.layers.remove(HIGHLIGHT)
    link.close()
    assert_same(state(viewer, layer), before)


@pytest.mark.parametrize("kind", ["labels", "points"])
def test_the_layer_is_removed_before_the_link_is_closed(way: str, kind: str) -> None:
    viewer = ViewerModel()
    callbacks = list(viewer.mouse_drag_callbacks), len(viewer.layers.events.removed.callbacks)
    layer: Any = Labels(IMAGE) if kind == "labels" else points(face_color="cyan")
    before = layer.colormap if kind == "labels" else layer.face_color.tolist()
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    link.highlight(np.array([0, 1]))
    viewer.layers.remove(layer)
    link.color("label", CODES, COLORS)
    link.highlight(np.array([1]))
    link.show(np.array([1]))
    link.close()
    assert len(viewer.layers) == 0
    assert (layer.colormap if kind == "labels" else layer.face_color.tolist()) == before
    assert callbacks == (
        list(viewer.mouse_drag_callbacks),
        len(viewer.layers.events.removed.callbacks),
    )


def test_points_and_shapes_are_added_while_they_are_colored() -> None:
    viewer = ViewerModel()
    for kind, make in ITEMS.items():
        layer = viewer.add_layer(make())
        before = layer.face_color.copy(), str(layer.face_color_mode)
        link = link_to(viewer, layer)
        link.color("label", CODES, COLORS)
        layer.add(layer.data[:2])
        link.color("label", CODES, COLORS)
        np.testing.assert_allclose(layer.face_color[5:], 0)
        link.highlight(np.arange(5))
        link.show(np.arange(5))
        link.close()
        assert str(layer.face_color_mode) == before[1], kind
        assert len(layer.face_color) == 7
        np.testing.assert_allclose(layer.face_color[:5], before[0], err_msg=kind)


def test_points_and_shapes_are_removed_while_they_are_colored() -> None:
    viewer = ViewerModel()
    for kind, make in ITEMS.items():
        layer = viewer.add_layer(make())
        before = layer.face_color.copy(), str(layer.face_color_mode)
        link = link_to(viewer, layer)
        link.color("label", CODES, COLORS)
        layer.selected_data = {2, 4}
        layer.remove_selected()
        link.color("label", CODES, COLORS)
        link.highlight(np.arange(5))
        assert max(layer.selected_data) < 3
        link.show(np.arange(5))
        link.close()
        assert str(layer.face_color_mode) == before[1], kind
        if "own colors" not in kind:
            np.testing.assert_allclose(layer.face_color, before[0][[0, 1, 3]], err_msg=kind)
        assert layer.face_color[:, 3].all()


def test_the_feature_that_colored_points_is_gone_in_the_end() -> None:
    viewer = ViewerModel()
    layer = points(face_color="kind")
    before = layer.face_color.copy()
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    with pytest.warns(RuntimeWarning, match="property used for face_color dropped"):
        layer.features = layer.features.drop(columns="kind")
    link.close()
    np.testing.assert_array_equal(layer.face_color, before)


# -- marks ---------------------------------------------------------------------------------------


def test_marks_are_those_of_the_last_selection() -> None:
    viewer = ViewerModel()
    layer = Labels(IMAGE)
    link = link_to(viewer, layer)
    link.highlight(np.array([0, 4, 2]))
    link.highlight(np.array([1, 2]))  # the second one is not in the image
    (marks,) = filter(is_drawn, viewer.layers)
    np.testing.assert_array_equal(seen(marks) > 0, (IMAGE == 7)[..., None] & np.ones(4, bool))
    link.highlight(np.array([2]))
    assert list(viewer.layers) == [layer]


@pytest.mark.parametrize("make", [points, shapes])
def test_marked_points_and_shapes_are_selected_and_not_picked(make: Callable[..., Any]) -> None:
    viewer, picked = ViewerModel(), []
    layer = make()
    link = link_to(viewer, layer, picked=picked)
    link.highlight(np.array([0, 2, 4]))
    assert layer.selected_data == {3, 0}
    assert not picked
    link.highlight(np.empty(0, dtype=np.intp))
    assert not layer.selected_data


@pytest.mark.parametrize("make", [points, shapes])
def test_selected_points_and_shapes_are_picked(make: Callable[..., Any]) -> None:
    viewer, picked = ViewerModel(), []
    layer = make()
    link = link_to(viewer, layer, picked=picked)
    layer.selected_data = {0, 3}
    assert sorted(picked[-1]) == [0, 4]
    layer.selected_data = {2}  # no cell
    assert picked[-1] == []
    link.close()
    n = len(picked)
    layer.selected_data = {1}
    assert len(picked) == n


# -- camera --------------------------------------------------------------------------------------


def in_view(viewer: Any, position: Any) -> bool:
    """Whether a position in the world lies inside the canvas, and, in a stack, in the slice."""
    position, dims = np.asarray(position), viewer.dims
    displayed = list(dims.displayed)
    center = np.asarray(viewer.scene.camera.center)[-2:]
    half = np.array(viewer.canvas.size) / viewer.scene.camera.zoom / 2
    hidden = list(dims.not_displayed)
    here = np.abs(position[hidden] - np.asarray(dims.point)[hidden]) <= 0.5
    return bool((np.abs(position[displayed] - center) <= half).all() and here.all())


def big(shape: tuple[int, ...], cells: dict[int, tuple[int, ...]], **options: Any) -> Labels:
    """Image of cells of 3 pixels along each axis."""
    image = np.zeros(shape, dtype=np.int32)
    for label, corner in cells.items():
        image[tuple(slice(at, at + 3) for at in corner)] = label
    return Labels(image, **options)


CELLS = {4: (10, 12), 7: (200, 310), 20: (60, 5), 55: (215, 300)}
TRANSFORMS: list[dict[str, Any]] = [
    {},
    {"scale": (0.5, 2.0), "translate": (-40.0, 1000.0)},
    {"rotate": 45},
    {"affine": [[0, 3, 7], [2, 0, -9], [0, 0, 1]]},
]


@pytest.mark.parametrize("options", TRANSFORMS)
@pytest.mark.parametrize("rows", [[0], [0, 1], [4, 3], [0, 1, 3, 4]])
def test_the_camera_shows_the_cells(options: dict[str, Any], rows: list[int]) -> None:
    viewer = ViewerModel()
    layer = big((240, 320), CELLS, **options)
    link = link_to(viewer, layer)
    viewer.scene.camera.zoom = 1000
    link.show(np.array(rows))
    for row in rows:
        for corner in ([0, 0], [0, 2], [2, 0], [2, 2]):
            assert in_view(viewer, layer.data_to_world(np.add(CELLS[IDS[row]], corner)))
    if rows == [0, 1]:
        # Close enough to be seen, in their neighbourhood: not the whole image.
        assert viewer.scene.camera.zoom > 1.5 * min(
            np.array(viewer.canvas.size) / np.ptp(layer.extent.world, axis=0)
        )


def test_the_camera_shows_cells_in_multiscale_images_and_dask() -> None:
    image = big((240, 320), CELLS).data
    for data in ([image, image[::2, ::2]], da.from_array(image, chunks=64)):
        viewer = ViewerModel()
        link = link_to(viewer, Labels(data))
        viewer.scene.camera.zoom = 1000
        link.show(np.array([0, 1]))
        assert in_view(viewer, CELLS[55])
        assert in_view(viewer, CELLS[7])


def test_nothing_to_show_leaves_the_camera_alone() -> None:
    viewer = ViewerModel()
    link = link_to(viewer, Labels(IMAGE))
    before = viewer.scene.camera.center, viewer.scene.camera.zoom
    link.show(np.array([2]))
    link.show(np.empty(0, dtype=np.intp))
    assert (viewer.scene.camera.center, viewer.scene.camera.zoom) == before


def test_a_cell_that_was_erased_meanwhile() -> None:
    viewer = ViewerModel()
    layer = Labels(IMAGE.copy())
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    link.highlight(np.array([1]))
    layer.data[layer.data == 7] = 0
    before = viewer.scene.camera.center, viewer.scene.camera.zoom
    link.show(np.array([1]))
    assert (viewer.scene.camera.center, viewer.scene.camera.zoom) == before
    link.highlight(np.array([0, 1]))
    np.testing.assert_array_equal(viewer.layers[HIGHLIGHT].data, layer.data == 55)


STACK = {4: (2, 10, 12), 7: (20, 100, 150), 55: (30, 60, 5), 20: (30, 10, 150)}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("scale", [(1, 1, 1), (4, 0.5, 0.5)])
def test_in_a_stack_a_slice_with_a_cell_is_shown(
    order: tuple[int, ...], scale: tuple[float, ...]
) -> None:
    viewer = ViewerModel()
    layer = big((40, 120, 160), STACK, scale=scale, translate=(7, 8, 9))
    link = link_to(viewer, layer)
    viewer.dims.order = order
    for row in (0, 1, 3, 4):
        viewer.scene.camera.zoom = 1000
        link.show(np.array([row]))
        assert in_view(viewer, layer.data_to_world(np.array(STACK[IDS[row]]) + 1))
        at = np.rint(layer.world_to_data(viewer.dims.point)).astype(int)
        axis = viewer.dims.not_displayed[0]
        assert IDS[row] in layer.data.take(at[axis], axis=axis)
    # Nothing is half-way between two cells that are far apart.
    link.show(np.array([0, 4]))
    at = np.rint(layer.world_to_data(viewer.dims.point)).astype(int)
    axis = viewer.dims.not_displayed[0]
    assert np.isin(layer.data.take(at[axis], axis=axis), [4, 55]).any()


def test_an_image_with_fewer_dimensions_than_the_viewer() -> None:
    viewer = ViewerModel()
    viewer.add_image(np.zeros((9, 240, 320)))
    link = link_to(viewer, big((240, 320), CELLS))
    viewer.dims.set_point(0, 7)
    link.show(np.array([0]))
    assert viewer.dims.point[0] == 7
    assert in_view(viewer, [7, *CELLS[55]])
    viewer.dims.ndisplay = 3
    link.show(np.array([1]))
    np.testing.assert_allclose(viewer.scene.camera.center[-2:], np.array(CELLS[7]) + 1)


@pytest.mark.parametrize("make", [partial(points, size=1), shapes])
def test_the_camera_shows_points_and_shapes(make: Callable[..., Any]) -> None:
    viewer = ViewerModel()
    layer = make(scale=(3, 0.5), translate=(100, -4))
    link = link_to(viewer, layer)
    for rows in ([0], [0, 4], [4, 1, 3]):
        viewer.scene.camera.zoom = 1000
        link.show(np.array(rows))
        for row in rows:
            at = list(layer.features["cell_id"]).index(IDS[row])
            for corner in np.atleast_2d(layer.data[at]):
                assert in_view(viewer, layer.data_to_world(corner))


def test_three_dimensions_at_once() -> None:
    viewer = ViewerModel()
    layer = big((40, 120, 160), STACK)
    link = link_to(viewer, layer)
    viewer.dims.ndisplay = 3
    link.show(np.array([1]))
    np.testing.assert_allclose(viewer.scene.camera.center, np.array(STACK[7]) + 1)
    assert 3 * viewer.scene.camera.zoom < min(viewer.canvas.size)


# -- picking in a window -------------------------------------------------------------------------


class Mouse:
    """The mouse over napari's canvas, sent through Qt."""

    def __init__(self, viewer: Viewer, qtbot: Any) -> None:
        self.viewer = viewer
        self.native = viewer.window._qt_viewer.canvas.native
        qtbot.waitUntil(lambda: self.native.width() > 100)

    def at(self, position: Any) -> QPoint:
        """Where a position in the world is on the canvas; the reverse of napari's own map."""
        displayed = list(self.viewer.dims.displayed)
        camera = self.viewer.scene.camera
        offset = (np.asarray(position)[displayed] - np.asarray(camera.center)[-2:]) * camera.zoom
        y, x = offset + np.array(self.viewer.canvas.size) / 2
        return QPoint(round(x), round(y))

    def click(
        self,
        position: Any,
        button: Qt.MouseButton = Qt.MouseButton.LeftButton,
    ) -> None:
        QTest.mouseClick(self.native, button, Qt.KeyboardModifier.NoModifier, self.at(position))

    def drag(self, start: Any, end: Any) -> None:
        left, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        start, end = self.at(start), self.at(end)
        QTest.mousePress(self.native, left, none, start)
        for share in (0.2, 0.5, 0.8, 1):
            QTest.mouseMove(self.native, start + (end - start) * share)
            QTest.qWait(20)
        QTest.mouseRelease(self.native, left, none, end)


@pytest.fixture
def mouse(viewer: Viewer, qtbot: Any) -> Mouse:
    return Mouse(viewer, qtbot)


def test_a_click_picks_the_cell_and_nothing_else_does(viewer: Viewer, mouse: Mouse) -> None:
    picked: Picked = []
    layer = big((60, 80), {4: (10, 12), 7: (30, 60), 3: (50, 40), 55: (40, 10)}, scale=(2, 2))
    link = link_to(viewer, layer, picked=picked)
    viewer.reset_view()
    cell, other, stranger, background = (22, 26), (62, 122), (102, 82), (0, 150)

    mouse.click(cell)
    assert picked == [[4]]
    mouse.click(other)
    assert picked == [[4], [1]]
    # Neither a label that is no cell nor the background changes the selection.
    mouse.click(stranger)
    mouse.click(background)
    mouse.click(cell, Qt.MouseButton.RightButton)
    assert len(picked) == 2

    zoom = viewer.scene.camera.center
    mouse.drag(cell, other)
    assert viewer.scene.camera.center != zoom  # the drag has moved the image
    viewer.reset_view()
    assert len(picked) == 2

    # Another layer on top, active or not, takes nothing away, unless it is painted on.
    top = viewer.add_labels(np.zeros((120, 160), dtype=int))
    mouse.click(cell)
    assert picked.pop() == [4]
    for painted in (top, layer):
        viewer.layers.selection.active = painted
        for mode in ("paint", "erase", "fill"):
            painted.mode = mode
            mouse.click(other)
            assert len(picked) == 2, (painted, mode)
        painted.mode = "pan_zoom"
    layer.mode = "pick"
    mouse.click(cell)
    assert picked.pop() == [4]
    layer.mode = "pan_zoom"

    # Nor do the layers of the link itself.
    link.color("label", CODES, COLORS)
    link.highlight(np.array([4]))
    mouse.click(cell)
    assert picked.pop() == [4]

    layer.visible = False
    mouse.click(cell)
    layer.visible = True
    # A press that is released after the end is nobody's.
    none = Qt.KeyboardModifier.NoModifier
    QTest.mousePress(mouse.native, Qt.MouseButton.LeftButton, none, mouse.at(cell))
    link.close()
    QTest.mouseRelease(mouse.native, Qt.MouseButton.LeftButton, none, mouse.at(cell))
    mouse.click(cell)
    assert len(picked) == 2


def test_selected_shapes_are_white_while_they_are_coloured() -> None:
    viewer, layer = ViewerModel(), shapes(face_color="#33333355")
    own = layer.face_color.copy()
    link = link_to(viewer, layer)
    ids = layer.features["cell_id"].tolist()

    def white() -> list[int]:
        return [i for i, face in zip(ids, layer.face_color, strict=True) if (face == 1).all()]

    link.highlight(np.array([0, 4]))  # cells 55 and 4
    np.testing.assert_array_equal(layer.face_color, own)
    link.color("label", CODES, COLORS)
    assert white() == [4, 55]
    assert to_hex(layer.face_color[ids.index(7)]) == COLORS[1]
    link.highlight(np.array([1]))
    assert white() == [7]
    assert to_hex(layer.face_color[ids.index(55)]) == COLORS[0]
    link.color("other", CODES, COLORS[::-1])
    assert white() == [7]
    link.highlight(np.empty(0, dtype=np.intp))
    assert white() == []
    link.highlight(np.array([1]))
    link.uncolor()
    np.testing.assert_array_equal(layer.face_color, own)
    link.color("label", CODES, COLORS)
    link.close()
    np.testing.assert_array_equal(layer.face_color, own)


def test_a_click_picks_the_shape(viewer: Viewer, mouse: Mouse) -> None:
    picked: Picked = []
    layer = shapes(scale=(2, 2))
    link = link_to(viewer, layer, picked=picked)
    viewer.reset_view()
    places = dict(zip(layer.features["cell_id"], 2 * points().data, strict=True))
    mouse.click(places[4])  # the first of the shapes
    mouse.click(places[20])
    mouse.click(places[3])  # no cell
    mouse.click(places[20] + 20)
    assert picked == [[4], [3]]
    layer.mode = "select"
    mouse.click(places[55])
    assert picked[-1] == [0]
    layer.mode = "add_rectangle"
    n = len(picked)
    mouse.click(places[4])
    # To draw one is not to pick another; napari itself selects no longer what was selected.
    assert [4] not in picked[n:]
    link.close()
    layer.mode = "pan_zoom"
    n = len(picked)
    mouse.click(places[4])
    assert len(picked) == n


def test_a_click_picks_in_stacks_pyramids_and_space(viewer: Viewer, mouse: Mouse) -> None:
    picked: Picked = []
    stack = big((20, 60, 80), {4: (10, 10, 12), 7: (2, 10, 12)})
    link = link_to(viewer, stack, picked=picked)
    viewer.reset_view()
    viewer.dims.set_point(0, 11)
    mouse.click((11, 11, 13))
    viewer.dims.set_point(0, 3)
    mouse.click((3, 11, 13))
    viewer.dims.set_point(0, 7)
    mouse.click((7, 11, 13))
    assert picked == [[4], [1]]

    viewer.dims.ndisplay = 3
    viewer.scene.camera.angles = (0, 0, 90)  # looking along the first axis
    link.show(np.array([4]))
    QTest.mouseClick(
        mouse.native,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
        mouse.native.rect().center(),
    )
    assert picked[2:] in ([[4]], [[1]])
    link.close()
    viewer.dims.ndisplay = 2
    viewer.layers.clear()

    image = big((512, 512), {4: (100, 100), 7: (300, 400)}).data
    link = link_to(viewer, Labels([image, image[::4, ::4]]), picked=picked)
    viewer.reset_view()
    link.show(np.array([1]))
    QTest.qWait(50)
    mouse.click((301, 401))
    assert picked[-1] == [1]
    link.close()


def test_layers_of_a_link_are_known() -> None:
    viewer = ViewerModel()
    layer: Layer = Labels(IMAGE)
    link_to(viewer, layer).highlight(np.array([0]))
    assert [is_drawn(layer) for layer in viewer.layers] == [False, True]
