"""Several images with the same ids in one table."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari import Viewer
from napari.layers import Labels
from qtpy.QtCore import Qt

from centroid_encoder.viewer.data.tables import is_drawn
from tests.viewer.seen import marked, seen_colors


@pytest.fixture
def study(viewer, open_widget) -> Any:
    return SimpleNamespace(viewer=viewer, widget=open_widget())


def marked_mask(viewer: Viewer) -> dict[str, set[int]]:
    """Return the outlined labels of the one mask that is shown."""
    (layer,) = (x for x in viewer.layers if x.name.endswith("_mask") and x.visible)
    labels = marked(viewer, layer)
    return {layer.name: labels} if labels else {}


@pytest.fixture
def three(make_cells, image_of) -> tuple[Any, AnnData]:
    """Three images of different sizes with ids from 1, and one table."""
    masks, parts = {}, []
    for i, n in enumerate((80, 100, 60)):
        adata = make_cells(n_obs=n, distance=1.0)
        image = image_of(adata, i)
        numbers = np.zeros(int(image.max()) + 1, dtype=np.int32)
        numbers[np.sort(adata.obs["cell_id"])] = np.arange(1, n + 1)
        masks["ABC"[i]] = numbers[image]
        adata.obs["ImageName"] = f"{'ABC'[i]}"
        adata.obs["CellNb"] = numbers[adata.obs.pop("cell_id")]
        adata.obs_names = [f"{'ABC'[i]}{k}" for k in range(n)]
        parts.append(adata)
    whole = ad.concat(parts)
    order = np.random.default_rng(0).permutation(whole.n_obs)
    return masks, whole[order].copy()


def click(study: Any, layer: Labels, label: int) -> list[str]:
    """Click on a label, and return the names of the selected cells."""
    at = layer.data_to_world(np.argwhere(layer.data == label)[0])
    event = SimpleNamespace(
        position=tuple(at), pos=np.zeros(2), view_direction=None, dims_displayed=[0, 1],
        viewbox=(0, 0), type="mouse_press", button=1, modifiers=(),
    )  # fmt: skip
    study.widget.select(np.empty(0, dtype=np.intp))
    for callback in list(study.viewer.mouse_drag_callbacks):
        if getattr(callback, "__func__", None) is not None:
            list(callback(study.viewer, event) or ())
    session = study.widget.session
    return session.adata.obs_names[session.state.selected].tolist()


@pytest.mark.slow
def test_a_click_selects_the_cell_of_the_topmost_visible_layer(three, study):
    masks, cells = three
    viewer = study.viewer
    for name, mask in masks.items():
        viewer.add_image(np.ones(mask.shape), name=f"{name}_DAPI", blending="translucent")
        viewer.add_labels(mask, name=f"{name}_mask")
    study.widget.show_table(cells, label_key="cell_type")
    for name, visible in (("C", "ABC"), ("A", "A")):
        for layer in viewer.layers:
            layer.visible = layer.name[0] in visible
        looks = {x: x.visible for x in viewer.layers if not is_drawn(x)}
        is_cell = (cells.obs["ImageName"] == name) & (cells.obs["CellNb"] == 7)
        assert click(study, viewer.layers[f"{name}_mask"], 7) == cells.obs_names[is_cell].tolist()
        # No click hides or moves a layer.
        assert {x: x.visible for x in viewer.layers if not is_drawn(x)} == looks


def drawn(viewer: Viewer) -> list[str]:
    """Return the names of the layers that the widget has drawn."""
    return [layer.name for layer in viewer.layers if is_drawn(layer)]


def colors_are_right(viewer: Viewer, layer: Labels, cells: AnnData) -> bool:
    """Return whether the cells of an image have their place and the colour of their class."""
    own = cells.obs[cells.obs["ImageName"] == layer.name[0]]
    found = seen_colors(viewer, layer, own["CellNb"])
    above = viewer.layers[f"{layer.name} · label"]
    same_place = np.allclose(above.extent.world, layer.extent.world)
    pairs = pd.DataFrame(found).assign(code=own["cell_type"].cat.codes.to_numpy())
    return above.visible and same_place and len(pairs.drop_duplicates()) == 3


@pytest.mark.slow
def test_one_pair_of_drawn_layers_is_that_of_the_image_that_is_shown(three, study, qtbot):
    masks, cells = three
    viewer, widget = study.viewer, study.widget
    for i, (name, mask) in enumerate(masks.items()):
        viewer.add_labels(mask, name=f"{name}_mask", scale=(1 + i, 1), opacity=0.3 + i / 10)
    widget.show_table(cells, label_key="cell_type")
    names, numbers = cells.obs["ImageName"], cells.obs["CellNb"]
    for name in "ABCA":
        rows = np.flatnonzero(names == name)[5:9]
        widget.session.select(rows, zoom=True)
        qtbot.waitUntil(lambda name=name: viewer.layers[f"{name}_mask"].visible)
        assert drawn(viewer) == [f"{name}_mask · label", "selected cells"]
        assert marked_mask(viewer) == {f"{name}_mask": set(numbers.iloc[rows])}
        assert colors_are_right(viewer, viewer.layers[f"{name}_mask"], cells)
        for i, other in enumerate("ABC"):
            assert viewer.layers[f"{other}_mask"].opacity == (0 if other == name else 0.3 + i / 10)
    # An image that the user hides and shows again looks as before.
    for visible in (False, True):
        viewer.layers["A_mask"].visible = visible
        assert [viewer.layers[name].visible for name in drawn(viewer)] == [visible] * 2
    # Each of several images that the user shows has colours, and then one of them again.
    for name in "BC":
        viewer.layers[f"{name}_mask"].translate = (0, 99)
        viewer.layers[f"{name}_mask"].visible = True
    assert all(colors_are_right(viewer, viewer.layers[f"{x}_mask"], cells) for x in "ABC")
    widget.select(np.flatnonzero(names == "B")[:1])
    widget.cells.show_button.click()
    assert drawn(viewer) == ["B_mask · label", "selected cells"]
    assert colors_are_right(viewer, viewer.layers["B_mask"], cells)


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False], ids=["table first", "layers first"])
def test_of_images_at_one_place_the_first_is_shown(three, study, is_first, qtbot):
    masks, cells = three
    viewer, widget = study.viewer, study.widget
    if is_first:
        widget.show_table(cells, label_key="cell_type")
    for name, mask in masks.items():
        viewer.add_labels(mask, name=f"{name}_mask")
        viewer.add_image(np.ones(mask.shape), name=f"{name}.tiff")
    if not is_first:
        widget.show_table(cells, label_key="cell_type")

    def visible() -> list[str]:
        return [x.name for x in viewer.layers if x.visible and not is_drawn(x)]

    qtbot.waitUntil(lambda: visible() == ["A_mask", "A.tiff"])
    assert drawn(viewer) == ["A_mask · label"]
    # A tab of the image says so, and counts the selected cells.
    bar = widget.cells.images
    assert bar.isVisible()
    assert bar.tabText(bar.currentIndex()) == "A"
    n = (cells.obs["ImageName"] == "C").sum()
    widget.select(np.flatnonzero(cells.obs["ImageName"] == "C"))
    assert [bar.tabText(i) for i in range(bar.count())] == ["all", "A", "B", f"C: {n}"]
    qtbot.mouseClick(bar, Qt.MouseButton.LeftButton, pos=bar.tabRect(3).center())
    assert visible() == ["C_mask", "C.tiff"]
    assert bar.currentIndex() == 3
    qtbot.mouseClick(bar, Qt.MouseButton.LeftButton, pos=bar.tabRect(1).center())
    assert visible() == ["A_mask", "A.tiff"]
    # What the user shows later stays.
    viewer.layers["B_mask"].visible = True
    assert bar.currentIndex() == 0
    qtbot.wait(50)
    widget.catalog.refresh()
    assert visible() == ["A_mask", "A.tiff", "B_mask"]


@pytest.mark.slow
def test_the_picture_of_a_cell_has_the_pixels_of_its_own_image(three, study, qtbot):
    masks, cells = three
    viewer, widget = study.viewer, study.widget
    options = {"contrast_limits": (0, 1), "blending": "additive"}
    for (name, mask), color in zip(masks.items(), ("red", "green", "blue"), strict=True):
        viewer.add_image(np.ones(mask.shape), name=f"{name}.tiff", colormap=color, **options)
        viewer.add_labels(mask, name=f"{name}_mask")
    widget.show_table(cells, label_key="cell_type")

    def check(name: str, expected: list[bool]) -> None:
        """Check which colours the picture of a cell has, once it was read."""
        widget.select(np.flatnonzero(cells.obs["ImageName"] == name)[:1])
        why = widget.cells.why
        qtbot.waitUntil(lambda: why.thumbnail is not None)
        assert why.thumbnail.pixels.any(axis=(0, 1)).tolist() == expected

    for place, name in enumerate("ABC"):
        check(name, [i == place for i in range(3)])
    # The images that the widget hides have pictures of their cells, too.
    widget.cells.show_button.click()
    assert not viewer.layers["A.tiff"].visible
    widget.select(np.arange(0, len(cells), 10))
    some = widget.cells.some
    qtbot.waitUntil(lambda: None not in some.pictures)
    assert len({picture.pixels.any(axis=(0, 1)).tobytes() for picture in some.pictures}) == 3
    viewer.layers["A.tiff"].visible = viewer.layers["B.tiff"].visible = True
    # A layer that is named after no image counts for all.
    viewer.layers["C.tiff"].name = "overview"
    check("A", [True, False, True])


def test_classes_are_counted_by_image(three, study, tmp_path, qtbot):
    _, cells = three
    widget = study.widget

    def save_counts(path: Path) -> None:
        widget.save_row.save_counts(path)
        qtbot.waitUntil(lambda: widget.save_row.task is None)

    widget.show_table(cells, label_key="cell_type")
    classes = widget.classes
    assert [row.n for row in classes.rows] == [81, 80, 79]
    classes.count_in("B")
    counts = cells.obs.loc[cells.obs["ImageName"] == "B", "cell_type"].value_counts()
    assert {row.name: row.n for row in classes.rows} == counts.to_dict()
    save_counts(tmp_path / "counts.csv")
    table = pd.read_csv(tmp_path / "counts.csv", index_col=0)
    assert table.index.tolist() == list("ABC")
    assert table.loc["B"].to_dict() == counts.to_dict()
    # Cells whose label was corrected count for their new class.
    widget.select(np.flatnonzero(cells.obs["ImageName"] == "B")[:7])
    widget.session.label_selected("other")
    save_counts(tmp_path / "counts.csv")
    assert pd.read_csv(tmp_path / "counts.csv", index_col=0)["other"].tolist() == [0, 7, 0]
    save_counts(tmp_path / "nowhere" / "counts.csv")
    assert "nowhere" in widget.save_row.message.text()
    # The column of images is the first choice of what is held out whole.
    assert widget.form.group_key.choices[:2] == (None, "ImageName")


@pytest.mark.slow
def test_another_table_leaves_no_labels_of_the_first_over_its_image(
    viewer, open_widget, make_cells, image_of
):
    widget, tables = open_widget(), {}
    for i, name in enumerate("AB"):
        tables[name] = make_cells()
        mask = image_of(tables[name], i)
        viewer.add_image(np.ones(mask.shape), name=f"{name}_img")
        viewer.add_labels(mask, name=f"{name}_mask")
        del tables[name].obs["cell_id"]
        tables[name].obs["cell_id"] = np.sort(np.unique(mask)[1:])
    # These belong to no table.
    viewer.add_labels(np.zeros_like(mask), name="notes")
    for layer, name in ((x, n) for n in "AB" for x in [viewer.layers[f"{n}_mask"]]):
        widget.show_table(tables[name], name=name, layer=layer, label_key="cell_type")
    for name in "ABAB":
        widget.catalog.choose(next(x for x in widget.catalog.tables if x.name == name))
        shown = {x.name for x in viewer.layers if x.visible and not is_drawn(x)}
        assert shown == {f"{name}_mask", f"{name}_img", "notes"}
    # The layers of the other table are shown also where nothing lies over them any more.
    for name in ("B_mask", "B_img", "notes"):
        viewer.layers.remove(name)
    widget.catalog.choose(next(x for x in widget.catalog.tables if x.name == "A"))
    assert {x.name for x in viewer.layers if x.visible and not is_drawn(x)} == {"A_mask", "A_img"}


def test_labels_of_an_image_that_the_table_lacks_do_not_lie_over_another(three, study, qtbot):
    masks, cells = three
    viewer, widget = study.viewer, study.widget
    for name, mask in masks.items():
        viewer.add_image(np.ones(mask.shape), name=f"{name}.tiff")
        viewer.add_labels(mask, name=f"{name}_mask")
    some = cells[cells.obs["ImageName"] != "C"].copy()
    widget.show_table(some, label_key="cell_type")
    widget.select(np.flatnonzero(some.obs["ImageName"] == "B")[:1])
    widget.cells.show_button.click()
    shown = [x.name for x in viewer.layers if x.visible and not is_drawn(x)]
    assert shown == ["B.tiff", "B_mask"]
    # They are shown again when the dock is closed.
    viewer.window.remove_dock_widget("all")
    assert [layer.name for layer in viewer.layers] == [
        f"{x}{y}" for x in masks for y in (".tiff", "_mask")
    ]
    assert all(layer.visible and layer.opacity > 0 for layer in viewer.layers)
