"""The queue of suggested cells: answered by keys, as napari dispatches them, and by the strip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pytest
from napari import Viewer
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt

from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.strip import N_THUMBNAILS

KEY = Qt.Key
COLUMN = "cell_type_by_hand"
Strike = Callable[[Any], None]


@pytest.fixture
def widget(
    viewer: Viewer,
    open_widget: Callable[[], CentroidEncoderWidget],
    table: ad.AnnData,
    image_of: Callable[..., Any],
) -> CentroidEncoderWidget:
    """The widget on the table in a layer of Labels over an image, with a class for each kind."""
    cells = image_of(table)
    viewer.add_image(cells.astype(np.float32), name="image")
    layer = viewer.add_labels(cells, name="cells")
    widget = open_widget()
    widget.show_table(table, layer=layer, instance_key="cell_id")
    widget.show_mode(widget.label)
    widget.label.start_button.click()
    for name in sorted(table.obs["truth"].unique()):
        widget.label.name_line.setText(name)
        widget.label.name_line.returnPressed.emit()
    viewer.layers.selection.active = layer
    return widget


@pytest.fixture
def strike(viewer: Viewer, qtbot: QtBot) -> Strike:
    """Press a key on the canvas of napari, which dispatches it."""
    return lambda key: qtbot.keyClick(viewer.window._qt_viewer.canvas.native, key)


@pytest.fixture
def settled(qtbot: QtBot, widget: CentroidEncoderWidget) -> Callable[[], None]:
    """Wait until the live map is trained and the queue is made."""

    def is_settled() -> bool:
        return not (widget.label.live.is_due or widget.queue.is_searching)

    return lambda: qtbot.waitUntil(is_settled, timeout=60_000)


def given(adata: ad.AnnData) -> dict[int, str]:
    labels = adata.obs[COLUMN].reset_index(drop=True).dropna().astype(str)
    return {int(row): name for row, name in labels.items()}


def current(widget: CentroidEncoderWidget) -> int:
    cell = widget.queue.queue.current
    assert cell is not None, widget.queue.text.text()
    return cell.row


def selected(widget: CentroidEncoderWidget) -> list[int]:
    return [int(row) for row in np.flatnonzero(widget.session.selected)]


def label_next(widget: CentroidEncoderWidget, strike: Strike, table: ad.AnnData) -> int:
    """Press the key of the true class of the suggested cell; return its row."""
    row = current(widget)
    strike(KEY(KEY.Key_1 + int(table.obs["truth"].iloc[row].removeprefix("type "))))
    return row


def test_a_queue_is_answered_by_keys(
    widget: CentroidEncoderWidget, strike: Strike, table: ad.AnnData, viewer: Viewer,
    settled: Callable[[], None], qtbot: QtBot,
) -> None:  # fmt: skip
    queue = widget.queue
    strike(KEY.Key_Return)
    assert not given(table)
    queue.suggest_button.click()
    settled()
    assert selected(widget) == [current(widget)]
    assert queue.text.text().startswith("1 of 20 · typical")
    # The cell is in the middle of the view.
    place = np.argwhere(viewer.layers["cells"].data == table.obs["cell_id"].iloc[current(widget)])
    middle = place.mean(axis=0)
    qtbot.waitUntil(lambda: np.allclose(viewer.scene.camera.center[1:], middle, atol=1))

    first = label_next(widget, strike, table)
    assert selected(widget) == [current(widget)]
    assert current(widget) != first
    skipped = current(widget)
    strike(KEY.Key_N)
    second = label_next(widget, strike, table)
    assert set(given(table)) == {first, second}
    strike(KEY.Key_Backspace)
    assert selected(widget) == [second]
    assert set(given(table)) == {first}
    strike(KEY.Key_Backspace)
    assert selected(widget) == [skipped]
    strike(KEY.Key_N)
    for _ in range(12):
        label_next(widget, strike, table)
    settled()
    assert widget.session.draft is not None
    assert not queue.queue.is_open([c.row for c in queue.queue.cells].index(skipped), queue._codes)

    # The live map proposes a class; Enter gives it.
    label_next(widget, strike, table)
    settled()
    cell = queue.queue.current
    assert cell is not None
    assert cell.label is not None
    # Its features are those of the live map.
    why = widget.cells.why
    qtbot.waitUntil(lambda: why.table is not None)
    assert why.table["class"].iloc[0] == cell.label
    strike(KEY.Key_Return)
    assert given(table)[cell.row] == cell.label
    assert skipped not in given(table)
    # Undo takes the answer back, too.
    widget.save_row.undo_button.click()
    assert cell.row not in given(table)
    assert selected(widget) == [cell.row]


def test_enter_labels_no_cell_that_is_not_shown(
    widget: CentroidEncoderWidget, strike: Strike, table: ad.AnnData, settled: Callable[[], None]
) -> None:
    widget.queue.suggest_button.click()
    settled()
    for _ in range(15):
        label_next(widget, strike, table)
    settled()
    label_next(widget, strike, table)
    settled()
    n, row = len(given(table)), current(widget)
    widget.select(np.array([row - 1 if row else 1]))
    strike(KEY.Key_Return)
    assert len(given(table)) == n
    assert selected(widget) == [row]
    strike(KEY.Key_Return)
    assert len(given(table)) == n + 1


def test_the_queue_goes_on_at_its_end(
    widget: CentroidEncoderWidget, strike: Strike, settled: Callable[[], None]
) -> None:
    widget.queue.suggest_button.click()
    settled()
    seen = set()
    for _ in range(20):
        seen.add(current(widget))
        strike(KEY.Key_N)
    settled()
    assert len(seen) == 20
    assert current(widget) not in seen
    assert widget.queue.text.text().startswith("21 of 40")


def test_a_strip_is_agreed_to_in_one_step(
    widget: CentroidEncoderWidget, strike: Strike, table: ad.AnnData, settled: Callable[[], None],
    qtbot: QtBot, viewer: Viewer,
) -> None:  # fmt: skip
    queue = widget.queue
    queue.suggest_button.click()
    settled()
    for _ in range(21):
        label_next(widget, strike, table)
        qtbot.waitUntil(lambda: queue.queue.current is not None)
    settled()
    strip = queue.strip
    assert strip.isVisible()
    qtbot.waitUntil(lambda: all(picture is not None for picture in strip.pictures))
    assert len(strip.pictures) == N_THUMBNAILS
    # The pictures follow the image.
    assert strip.pictures[0].pixels.any()
    viewer.layers["image"].contrast_limits = (1e5, 2e5)
    qtbot.waitUntil(lambda: not strip.pictures[0].pixels.any())
    page = queue.queue.page(N_THUMBNAILS)
    cells = [queue.queue.cells[place] for place in page]
    place = strip.visualItemRect(strip.item(6)).center()
    qtbot.mouseClick(strip.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert selected(widget) == [cells[6].row]
    by_key = label_next(widget, strike, table)
    before = given(table)
    assert before[by_key] == table.obs["truth"].iloc[by_key]
    # The page stays when the live map is trained anew.
    settled()
    assert [queue.queue.cells[place][:3] for place in page] == [cell[:3] for cell in cells]

    queue.agree_button.click()
    after = given(table)
    assert {cell.row for cell in cells} <= set(after)
    assert all(after[cell.row] == cell.label for cell in cells if cell.row not in before)
    widget.save_row.undo_button.click()
    assert given(table) == before


def test_without_an_image_there_is_no_strip(
    widget: CentroidEncoderWidget, viewer: Viewer, settled: Callable[[], None], qtbot: QtBot
) -> None:
    widget.queue.suggest_button.click()
    settled()
    assert widget.queue.strip.isVisible()
    viewer.layers.remove("image")
    qtbot.waitUntil(lambda: not widget.queue.strip.isVisible())
    assert current(widget) >= 0


def test_an_answer_for_another_table_is_dropped(
    widget: CentroidEncoderWidget, table: ad.AnnData, qtbot: QtBot
) -> None:
    widget.queue.suggest_button.click()
    assert widget.queue.is_searching
    other = table[:40].copy()
    widget.show_table(other, name="other")
    widget.label.start_button.click()
    assert not widget.queue.is_searching
    qtbot.wait(1500)
    assert widget.queue.queue.current is None
    assert not widget.session.selected.any()


def test_all_cells_get_the_labels_of_the_live_map(
    widget: CentroidEncoderWidget, strike: Strike, table: ad.AnnData, viewer: Viewer,
    settled: Callable[[], None],
) -> None:  # fmt: skip
    widget.queue.suggest_button.click()
    settled()
    assert not widget.queue.apply_button.isEnabled()
    for _ in range(12):
        label_next(widget, strike, table)
    settled()
    # Four labels for each class are few, which is said before anything is written.
    widget.queue.apply_button.click()
    assert "Fewer than 5 labels" in widget.message.text()
    assert f"{COLUMN}_predicted" not in table.obs
    widget.queue.apply_button.click()
    assert f"{COLUMN}_predicted" in widget.message.text()
    assert table.obs[f"{COLUMN}_predicted"].notna().all()
    assert f"cells · {COLUMN}_predicted" in viewer.layers
    assert f"{COLUMN}_predicted" in widget.form.label_key.choices
    assert widget.form.label_key.value == COLUMN
