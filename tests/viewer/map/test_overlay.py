"""Colour, mark and show the cells of a layer; `close` restores the layer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from matplotlib.colors import to_rgba
from napari.components import ViewerModel
from napari.layers import Labels, Points, Shapes
from napari.layers.labels._labels_utils import get_contours
from numpy.typing import NDArray

from centroid_encoder.viewer.data import ids
from centroid_encoder.viewer.data.ids import pixels, read_ids
from centroid_encoder.viewer.data.join import Link
from centroid_encoder.viewer.data.tables import Table, is_drawn
from centroid_encoder.viewer.map.camera import look_at
from centroid_encoder.viewer.map.overlay import HIGHLIGHT, MIN_OPACITY, ItemsLink, LabelsLink
from tests.viewer.seen import outlined

COLORS = ["#ff0000", "#00ff00", "#0000ff"]
CLEAR = (0.0, 0.0, 0.0, 0.0)

# Ids are not sorted and have gaps. The cell 8 is not in the image; the label 3 has no cell.
IDS = [55, 7, 8, 20, 4]
CODES = np.array([0, 1, 2, -1, 2])
SEEN = {55: COLORS[0], 7: COLORS[1], 4: COLORS[2]}
IMAGE = np.array([[0, 4, 4, 0, 7], [3, 3, 0, 0, 7], [0, 55, 55, 20, 20]])
NONE = np.empty(0, dtype=np.intp)


def link_to(viewer: Any, layer: Any, ids: Any = IDS, pick: Any = list) -> LabelsLink | ItemsLink:
    """Add a layer to the viewer, and link cells with these ids to it."""
    if layer not in viewer.layers:
        viewer.add_layer(layer)
    index = pd.Index([f"c{i}" for i in range(len(ids))])
    adata = AnnData(obs=pd.DataFrame({"cell_id": np.asarray(ids)}, index=index))
    link = Link(Table(adata, "cells"), None, layer, "cell_id")
    join = link.make(read_ids(layer))
    if isinstance(layer, Labels):
        return LabelsLink(viewer, layer, join)
    return ItemsLink(layer, join, pick)


def show(viewer: Any, link: LabelsLink | ItemsLink, rows: Any, *, steady: bool = False) -> None:
    """Move the camera to cells."""
    look_at(viewer, link.layer, link.join, np.array(rows, dtype=np.intp), steady=steady)


def points(**options: Any) -> Points:
    """Points with the ids 4, 7, 3, 55 and 20; the cell 8 is missing."""
    keys = [4, 7, 3, 55, 20]
    features = {"cell_id": keys, "kind": list("abacb"), "score": [0.1, 0.5, 0.2, 0.9, 0.7]}
    positions = np.arange(10.0).reshape(5, 2) ** 2
    return Points(positions, features=features, **options)


def shapes(**options: Any) -> Shapes:
    """Squares around these points."""
    of = points()
    corners = np.array([[-0.4, -0.4], [-0.4, 0.4], [0.4, 0.4], [0.4, -0.4]])
    outlines = [place + corners for place in of.data]
    return Shapes(outlines, shape_type="polygon", features=of.features, **options)


def seen(layer: Labels) -> NDArray[np.floating]:
    """Colour of each pixel, multiplied by its opacity."""
    data = layer.data[0] if layer.multiscale else layer.data
    colors = layer.colormap.map(np.asarray(data))
    return colors * colors[..., 3:]


def wanted(image: NDArray[np.integer], colors: dict[int, str]) -> NDArray[np.floating]:
    out = np.zeros((*image.shape, 4))
    for label, color in colors.items():
        out[image == label] = to_rgba(color)
    return out


def shown(viewer: Any, layer: Labels) -> NDArray[np.floating]:
    """Colour of each pixel of coloured labels."""
    assert layer.opacity == 0, "the labels shine through"
    above = viewer.layers[viewer.layers.index(layer) + 1]
    assert is_drawn(above)
    assert above.opacity >= MIN_OPACITY
    return seen(above)


@pytest.mark.parametrize(
    ("ids", "dtype"),
    [
        ([252, 253, 254, 255], "uint8"),
        ([65_535, 65_536, 70_000, 131_072], "int32"),
        ([1, 2, 3, 2**40], "int64"),
        ([2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3], "uint64"),  # as floats, these would be one
        ([-3, -2, 5, 6], "int16"),
    ],
)
def test_ids_of_any_type_and_size(ids, dtype):
    viewer = ViewerModel()
    image = np.array([[0, *ids]], dtype=dtype)
    link = link_to(viewer, Labels(image), [ids[1], ids[3], ids[2]])
    link.color("label", np.array([0, 1, -1]), COLORS)
    expected = {ids[1]: COLORS[0], ids[3]: COLORS[1]}
    np.testing.assert_array_equal(shown(viewer, link.layer), wanted(image, expected))


def pyramid() -> Labels:
    image = np.kron(IMAGE, np.ones((4, 4), dtype=int))
    return Labels([image, image[::2, ::2], image[::4, ::4]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Labels(IMAGE),
        lambda: Labels(np.stack([IMAGE, np.zeros_like(IMAGE), IMAGE[::-1]])),
        lambda: Labels(da.from_array(IMAGE, chunks=2)),
        lambda: Labels(da.from_array(np.stack([IMAGE] * 3), chunks=(1, 2, 2))),
        pyramid,
        lambda: Labels(IMAGE, scale=(2, 3), translate=(5, -7), rotate=30, affine=2 * np.eye(3)),
    ],
    ids=["2-D", "3-D", "dask", "3-D dask", "multiscale", "transformed"],
)
def test_images_of_any_kind(make):
    viewer = ViewerModel()
    layer = make()
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    link.highlight(np.array([0, 1, 2]))
    data = np.asarray(layer.data[0] if layer.multiscale else layer.data)
    marks = viewer.layers[HIGHLIGHT]
    assert viewer.layers[-1] is marks  # above the classes
    marked, is_cell = outlined(viewer, layer) != 0, np.isin(data, [55, 7])
    assert not marked[~is_cell].any()
    assert np.isin([55, 7], data[marked]).all()
    viewer.layers.remove(HIGHLIGHT)
    (drawn,) = filter(is_drawn, viewer.layers)
    assert drawn.multiscale == layer.multiscale
    np.testing.assert_allclose(drawn.extent.world, layer.extent.world)
    np.testing.assert_allclose(drawn.data_to_world([1] * 2), layer.data_to_world([1] * 2))
    np.testing.assert_array_equal(shown(viewer, layer), wanted(data, SEEN))
    # Other colours replace the first.
    link.color("split", np.array([1, -1, 0, 0, 0]), ["#ffff00", "#00ffff"])
    yellow_and_cyan = {20: "#ffff00", 4: "#ffff00", 55: "#00ffff"}
    np.testing.assert_array_equal(shown(viewer, layer), wanted(data, yellow_and_cyan))
    assert [drawn.name for drawn in viewer.layers if is_drawn(drawn)] == [f"{layer.name} · split"]


@pytest.mark.parametrize("make", [lambda: Labels(IMAGE), pyramid], ids=["2-D", "multiscale"])
def test_colors_and_outlines_follow_the_layer_when_it_is_moved(make):
    viewer, layer = ViewerModel(), make()
    link = link_to(viewer, layer)
    for codes, rows in ((CODES, [0, 1]), (CODES[::-1], [1])):
        link.color("label", codes, COLORS)
        link.highlight(np.array(rows))
        for change in (
            {"scale": (2, 3), "translate": (30, 0)},
            {"rotate": 20, "shear": [0.5]},
            {"affine": [[0, 3, 7], [2, 0, -9], [0, 0, 1]], "units": ("um", "um")},
        ):
            for name, value in change.items():
                setattr(layer, name, value)
            assert len(viewer.layers) == 3
            for pixel in ([0, 0], [1, 2]):
                np.testing.assert_allclose(
                    viewer.layers[1].data_to_world(pixel), layer.data_to_world(pixel)
                )
            is_cell = np.isin(pixels(layer), [IDS[row] for row in rows])
            assert (outlined(viewer, layer)[is_cell] > 0).any()
            assert not outlined(viewer, layer)[~is_cell].any()
            # Pixels of the outlines have the size and direction of those of the layer.
            steps = [viewer.layers[HIGHLIGHT].data_to_world(at) for at in ([0, 0], [1, 2])]
            own = [layer.data_to_world(at) for at in ([0, 0], [1, 2])]
            np.testing.assert_allclose(np.subtract(*steps), np.subtract(*own))
        layer.scale = (1, 1)


def test_painting_shows_the_labels_and_the_grid_hides_what_is_drawn():
    viewer, layer = ViewerModel(), Labels(IMAGE)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    link.highlight(np.array([0]))
    colors, marks = (x for x in viewer.layers if is_drawn(x))
    viewer.layers.selection.active = layer
    for mode in ("paint", "erase", "fill", "polygon"):
        layer.mode = mode
        assert (layer.opacity, colors.visible, marks.visible) == (0.7, False, True)
        link.color("label", CODES[::-1], COLORS)
        assert layer.opacity == 0.7
        layer.mode = "pan_zoom"
        assert (layer.opacity, colors.visible) == (0, True)
    layer.mode, layer.opacity = "paint", 0.5
    viewer.layers.selection.active = marks
    assert (layer.opacity, colors.visible) == (0, True)
    shape = viewer.canvas.grid.actual_shape([layer])
    before = layer.colormap
    viewer.canvas.grid.enabled = True
    assert viewer.canvas.grid.actual_shape(viewer.layers) == shape
    assert layer.opacity == 0.5
    # The labels themselves have the colours there, but not while the user edits them.
    for codes in (CODES, CODES[[4, 1, 2, 3, 0]]):
        link.color("label", codes, COLORS)
        for i, code in zip(IDS, codes, strict=True):
            expected = CLEAR if code < 0 else to_rgba(COLORS[code])
            assert i == 8 or tuple(layer.colormap.map(i)) == expected
        assert tuple(layer.colormap.map(3)) == CLEAR
    viewer.layers.selection.active = layer
    assert layer.colormap is before
    viewer.layers.selection.active = marks
    viewer.canvas.grid.enabled = False
    assert layer.colormap is before
    assert (layer.opacity, colors.visible, marks.visible) == (0, True, True)
    # The drawn layers are hidden with it.
    layer.visible = False
    assert [other.visible for other in viewer.layers] == [False] * 3
    layer.opacity = 0.2
    link.close()
    assert layer.opacity == 0.2


def test_the_colors_have_the_opacity_that_the_user_chooses_for_the_labels():
    viewer, layer = ViewerModel(), Labels(IMAGE, opacity=0.8)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    colors = viewer.layers[1]
    for opacity in (0.5, 0.8, 0.3):
        layer.opacity = opacity
        # The labels do not shine through.
        assert (layer.opacity, colors.opacity) == (0, opacity)
    # Other colours keep it.
    link.color("label", CODES[::-1], COLORS)
    assert colors.opacity == 0.3
    layer.visible = False
    layer.visible = True
    assert (layer.opacity, colors.opacity) == (0, 0.3)
    # So do the labels themselves.
    viewer.layers.selection.active, layer.mode = layer, "paint"
    assert (layer.opacity, colors.visible) == (0.3, False)
    layer.mode = "pan_zoom"
    link.close()
    assert layer.opacity == 0.3


def test_unlabelled_cells_are_outlined_and_not_filled():
    image = np.kron(IMAGE, np.ones((5, 5), dtype=int))
    for data in (image, da.from_array(image, chunks=image.shape)):
        viewer = ViewerModel()
        link = link_to(viewer, Labels(data))
        link.color("label", CODES, COLORS, hollow=2)
        found = seen(viewer.layers[1])[..., 3] > 0
        for cell in (7, 20, 4, 55):
            around = get_contours((image == cell).astype(np.uint8), 1, 0) > 0
            wanted = {55: image == 55, 7: image == 7, 4: around, 20: False & around}[cell]
            np.testing.assert_array_equal(found & (image == cell), wanted)


def test_few_cells_with_other_colors_are_painted_into_the_same_image():
    ids = np.arange(1, 65)
    image = np.kron(ids.reshape(8, 8), np.ones((7, 7), dtype=int))
    codes = ids % 4 - 1
    viewer = ViewerModel()
    link = link_to(viewer, Labels(image), ids)
    link.color("label", codes, COLORS, hollow=2)
    painted = viewer.layers[1].data
    for rows, code in (([3], 2), ([4, 5], 0), ([20], -1), ([3], 1), ([63], 2)):
        codes = codes.copy()
        codes[rows] = code
        link.color("label", codes, COLORS, hollow=2)
        assert viewer.layers[1].data is painted
        again = ViewerModel()
        link_to(again, Labels(image), ids).color("label", codes, COLORS, hollow=2)
        np.testing.assert_array_equal(seen(viewer.layers[1]), seen(again.layers[1]))


def state(viewer: Any, layer: Any) -> dict[str, Any]:
    """Everything that colouring and marking can change."""
    names = ["opacity", "visible", "blending", "mode"]
    if isinstance(layer, Labels):
        names.append("colormap")
    else:
        names += ["face_color_mode", "current_face_color", "face_colormap", "face_contrast_limits"]
    return {
        "layers": list(viewer.layers),
        "selection": set(viewer.layers.selection),
        "face": None if isinstance(layer, Labels) else layer.face_color.tolist(),
        **{name: getattr(layer, name) for name in names},
    }


ITEMS: dict[str, Callable[[], Any]] = {
    "one color": lambda: points(face_color="pink"),
    "own colors": lambda: points(face_color=np.linspace(0.1, 1, 20).reshape(5, 4)),
    "cycle": lambda: points(face_color="kind", face_color_cycle=["cyan", "tan", "navy"]),
    "colormap": lambda: points(
        face_color="score", face_colormap="magma", face_contrast_limits=(0.2, 0.8)
    ),
    "shapes": lambda: shapes(face_color="kind", face_color_cycle=["cyan", "tan", "navy"]),
}
LAYERS: dict[str, Callable[[], Any]] = {
    "labels": lambda: Labels(IMAGE),
    "pale labels": lambda: Labels(IMAGE, opacity=0.4),
    "pyramid": pyramid,
    **ITEMS,
}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_look_of_the_layer_is_restored(kind):
    viewer = ViewerModel()
    layer = viewer.add_layer(LAYERS[kind]())
    viewer.layers.selection = {viewer.add_labels(IMAGE)}
    before = state(viewer, layer)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    link.highlight(np.array([0, 1]))
    assert viewer.layers.selection == before["selection"]
    link.color("split", CODES[::-1], COLORS)
    link.uncolor()
    link.uncolor()
    link.color("label", CODES, COLORS)
    link.close()
    assert state(viewer, layer) == before


def test_the_user_can_delete_the_layers_above():
    viewer = ViewerModel()
    layer = viewer.add_labels(IMAGE)
    before = state(viewer, layer)
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    del viewer.layers[1]
    assert layer.opacity == before["opacity"]
    link.color("label", CODES, COLORS)
    np.testing.assert_array_equal(shown(viewer, layer), wanted(IMAGE, SEEN))
    link.highlight(np.array([0]))
    viewer.layers.remove(HIGHLIGHT)
    link.highlight(np.array([1]))
    np.testing.assert_array_equal(outlined(viewer, layer) > 0, IMAGE == 7)
    viewer.layers.remove(HIGHLIGHT)
    link.close()
    assert state(viewer, layer) == before


@pytest.mark.parametrize("kind", ITEMS)
def test_points_and_shapes_are_colored(kind):
    viewer = ViewerModel()
    layer = ITEMS[kind]()
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    keys = layer.features["cell_id"]
    expected = [to_rgba(SEEN[key]) if key in SEEN else CLEAR for key in keys]
    np.testing.assert_allclose(layer.face_color, expected)
    # The user adds two items and removes others.
    before = len(layer.data)
    layer.add(layer.data[:2])
    link.color("label", CODES, COLORS)
    np.testing.assert_allclose(layer.face_color[before:], 0)
    layer.selected_data = {2, 4, 5, 6}
    layer.remove_selected()
    link.color("label", CODES, COLORS)
    link.highlight(np.arange(5))
    assert max(layer.selected_data) < len(layer.data) == 3
    link.close()
    # The colours by a feature return to the items that are left.
    if kind != "own colors":
        wanted_colors = ITEMS[kind]().face_color[[0, 1, 3]]
        np.testing.assert_allclose(layer.face_color, wanted_colors, atol=1e-6)


@pytest.mark.parametrize(("side", "width", "sign"), [(9, 1, 1), (20, 2, 1), (20, 2, -1)])
@pytest.mark.parametrize("n_planes", [0, 2])
def test_outlines_are_those_of_napari_for_each_cell_and_plane(side, width, sign, n_planes):
    """A rim of one pixel inside is seen where the outline is as bright as the image."""
    ids = sign * np.arange(1, 13)
    flat = np.kron(ids.reshape(3, 4), np.ones((side, side), dtype=int))
    image = np.stack([np.roll(flat, i, axis=0) for i in range(n_planes)]) if n_planes else flat
    viewer = ViewerModel()
    link = link_to(viewer, Labels(image), ids)
    for rows in ([0, 2, 5, 6], [1]):
        link.highlight(np.array(rows))
        drawn = outlined(viewer, link.layer)
        assert set(image[drawn > 0]) == set(ids[rows])
        for plane, seen in zip(np.atleast_3d(image.T).T, np.atleast_3d(drawn.T).T, strict=True):
            for cell in ids[rows]:
                alone = (plane == cell).astype(np.uint8)
                outline, with_rim = (get_contours(alone, n, 0) for n in (width, width + 1))
                np.testing.assert_array_equal((seen == 1)[plane == cell], outline[plane == cell])
                np.testing.assert_array_equal((seen > 0)[plane == cell], with_rim[plane == cell])


TILE = np.kron(np.arange(1, 5).reshape(2, 2), np.ones((20, 20), dtype=int))
LARGE = np.tile(TILE, (55, 55))


def counting(read: list[int]) -> da.Array:
    """A large lazy image; the numbers of pixels that are read are added to the list."""

    def load(block: Any) -> Any:
        read.append(block.size)
        return block

    return da.from_array(LARGE, chunks=300).map_blocks(load, dtype=int)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2**21, 2**24])
def test_of_a_large_lazy_image_only_the_part_that_is_seen_is_read(monkeypatch, limit):
    monkeypatch.setattr(ids, "MAX_OVERVIEW", limit)
    read: list[int] = []
    viewer = ViewerModel()
    layer = Labels(counting(read), multiscale=False)
    read.clear()
    link = link_to(viewer, layer, range(1, 5))
    assert sum(read) <= LARGE.size
    read.clear()
    codes = np.array([0, 1, 2, -1])
    for _ in range(2):
        link.color("label", codes, COLORS)
        link.highlight(np.arange(4))
        codes = codes[::-1]
    assert not read
    drawn, marks = viewer.layers[1], viewer.layers[HIGHLIGHT]
    levels = drawn.data if drawn.multiscale else [drawn.data]
    colors = {2: COLORS[2], 3: COLORS[1], 4: COLORS[0]}
    for level in levels:
        step = round(len(LARGE) / len(level))
        part = drawn.colormap.map(np.asarray(level[: 60 // step, : 60 // step]))
        image = LARGE[:60:step, :60:step][: len(part), : len(part)]
        np.testing.assert_array_equal(part, wanted(image, colors))
    part = np.asarray(marks.data[0][:60, :60])
    for cell in range(1, 5):
        outline = get_contours((LARGE[:60, :60] == cell).astype(np.uint8), 2, 0)[:40, :40]
        np.testing.assert_array_equal((part == 1)[:40, :40] & (cell == TILE), outline)
    assert sum(read) <= 2 * 300**2
    # Other selections are shown in the same layer, since napari takes long to remove one.
    link.highlight(np.array([1]))
    assert viewer.layers[HIGHLIGHT] is marks
    assert set(LARGE[outlined(viewer, layer) > 0].tolist()) == {2}


@pytest.mark.parametrize("make", [points, shapes])
def test_points_and_shapes_are_marked_and_picked_by_selection(make):
    viewer, layer, picked = ViewerModel(), make(), []
    link = link_to(viewer, layer, pick=lambda rows: picked.append(sorted(rows.tolist())))
    link.highlight(np.array([0, 2, 4]))
    assert layer.selected_data == {3, 0}
    link.highlight(NONE)
    assert not layer.selected_data
    assert not picked
    layer.selected_data = {0, 3}
    assert picked[-1] == [0, 4]
    layer.selected_data = {2}  # no cell
    assert picked.pop() == []
    n = len(picked)
    link.close()
    layer.selected_data = {1}
    assert len(picked) == n


def in_view(viewer: Any, position: Any) -> bool:
    """Return whether a position in the world is visible on the canvas and in the slice."""
    position, dims = np.asarray(position), viewer.dims
    displayed = list(dims.displayed)
    center = np.asarray(viewer.scene.camera.center)[-2:]
    half = np.array(viewer.canvas.size) / viewer.scene.camera.zoom / 2
    hidden = list(dims.not_displayed)
    here = np.abs(position[hidden] - np.asarray(dims.point)[hidden]) <= 0.5
    return bool((np.abs(position[displayed] - center) <= half).all() and here.all())


def big(shape: tuple[int, ...], cells: dict[int, tuple[int, ...]], **options: Any) -> Labels:
    """Image of cells with 3 pixels along each axis."""
    image = np.zeros(shape, dtype=np.int32)
    for label, corner in cells.items():
        image[tuple(slice(at, at + 3) for at in corner)] = label
    return Labels(image, **options)


CELLS = {4: (10, 12), 7: (200, 310), 20: (60, 5), 55: (215, 300)}
VIEWED: dict[str, Callable[[Any], Labels]] = {
    "scaled": lambda image: Labels(image, scale=(0.5, 2.0), translate=(-40.0, 1000.0)),
    "rotated": lambda image: Labels(image, rotate=45),
    "affine": lambda image: Labels(image, affine=[[0, 3, 7], [2, 0, -9], [0, 0, 1]]),
    "multiscale": lambda image: Labels([image, image[::2, ::2]]),
    "dask": lambda image: Labels(da.from_array(image, chunks=64)),
}


@pytest.mark.parametrize("kind", VIEWED)
def test_the_camera_shows_the_cells(kind):
    viewer = ViewerModel()
    layer = VIEWED[kind](big((240, 320), CELLS).data)
    link = link_to(viewer, layer)
    for rows in ([0], [4, 3], [0, 1, 3, 4], [0, 1]):
        viewer.scene.camera.zoom = 1000
        show(viewer, link, rows)
        for row in rows:
            for corner in ([0, 0], [0, 2], [2, 0], [2, 2]):
                assert in_view(viewer, layer.data_to_world(np.add(CELLS[IDS[row]], corner)))
    # The view is the neighbourhood of the cells, not the whole image.
    extent = np.ptp(layer.extent.world, axis=0)
    assert viewer.scene.camera.zoom > 1.5 * min(np.array(viewer.canvas.size) / extent)


@pytest.mark.parametrize("make", [partial(points, size=1), shapes])
def test_the_camera_shows_points_and_shapes(make):
    viewer = ViewerModel()
    layer = make(scale=(3, 0.5), translate=(100, -4))
    show(viewer, link_to(viewer, layer), [4, 1, 3])
    for at in [list(layer.features["cell_id"]).index(IDS[row]) for row in (4, 1, 3)]:
        for corner in np.atleast_2d(layer.data[at]):
            assert in_view(viewer, layer.data_to_world(corner))


def test_cells_that_are_missing_or_were_erased_are_not_shown():
    viewer = ViewerModel()
    layer = Labels(IMAGE.copy())
    link = link_to(viewer, layer)
    link.color("label", CODES, COLORS)
    layer.data[layer.data == 7] = 0
    before = viewer.scene.camera.center, viewer.scene.camera.zoom
    for rows in ([2], []):
        show(viewer, link, rows)
        assert (viewer.scene.camera.center, viewer.scene.camera.zoom) == before
    link.highlight(np.array([0, 1]))
    np.testing.assert_array_equal(outlined(viewer, layer) > 0, layer.data == 55)
    # No cell has a label in this image.
    link = link_to(viewer, Labels(IMAGE), [1000, 1001])
    link.color("label", np.array([0, 1]), COLORS)
    show(viewer, link, [0, 1])
    assert not shown(viewer, link.layer).any()


STACK = {4: (2, 10, 12), 7: (20, 100, 150), 55: (30, 60, 5), 20: (30, 10, 150)}


def test_a_steady_camera_keeps_its_zoom_while_it_shows_the_cell():
    viewer = ViewerModel()
    link = link_to(viewer, Labels(np.kron(IMAGE, np.ones((9, 9), dtype=int))))
    show(viewer, link, [0])
    zoom = viewer.scene.camera.zoom
    for factor, kept in ((2, True), (0.5, True), (10, False), (0.1, False)):
        viewer.scene.camera.zoom = factor * zoom
        show(viewer, link, [0], steady=True)
        assert viewer.scene.camera.zoom == pytest.approx(factor * zoom if kept else zoom)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_in_a_stack_a_slice_with_a_cell_is_shown(order):
    viewer = ViewerModel()
    layer = big((40, 120, 160), STACK, scale=(4, 0.5, 0.5), translate=(7, 8, 9))
    link = link_to(viewer, layer)
    viewer.dims.order = order
    axis = order[0]
    # The slice is that of a cell, not one half-way between two cells.
    for rows in ([0], [1], [3], [4], [0, 4]):
        viewer.scene.camera.zoom = 1000
        show(viewer, link, rows)
        at = np.rint(layer.world_to_data(viewer.dims.point)).astype(int)
        in_slice = layer.data.take(at[axis], axis=axis)
        assert np.isin(in_slice, [IDS[row] for row in rows]).any()
        if len(rows) == 1:
            assert in_view(viewer, layer.data_to_world(np.array(STACK[IDS[rows[0]]]) + 1))


def test_an_image_with_fewer_dimensions_than_the_viewer():
    viewer = ViewerModel()
    viewer.add_image(np.zeros((9, 240, 320)))
    link = link_to(viewer, big((240, 320), CELLS))
    viewer.dims.set_point(0, 7)
    show(viewer, link, [0])
    assert viewer.dims.point[0] == 7
    assert in_view(viewer, [7, *CELLS[55]])
    viewer.dims.ndisplay = 3
    show(viewer, link, [1])
    np.testing.assert_allclose(viewer.scene.camera.center[-2:], np.array(CELLS[7]) + 1)
    assert 3 * viewer.scene.camera.zoom < min(viewer.canvas.size)
