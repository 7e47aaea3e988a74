"""What runs is cancelled, or ends with its window, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from anndata import AnnData

import centroid_encoder as ce

if TYPE_CHECKING:
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget
    from centroid_encoder.viewer.panels.progress import TaskRow


def begin(widget: CentroidEncoderWidget, what: str, path: Path) -> TaskRow:
    """Begin what takes a while; return the row that shows it."""
    widget.form.max_epochs.value = 100_000
    if what == "train":
        widget.trainer.train_button.click()
    elif what == "check":
        widget.trainer.check_button.click()
    elif what == "ingest":
        widget.new_data.map_button.click()
    elif what == "measure":
        widget.data.measure_button.click()
        widget.data._dialog.accept()
        return widget.data.measuring
    else:
        widget.data.opening.read(path, path)
        return widget.data.opening
    return widget.new_data.progress if what == "ingest" else widget.trainer.progress


@pytest.mark.parametrize(
    ("what", "how"),
    [
        *((what, "cancel") for what in ("train", "check", "ingest", "measure", "read")),
        *((what, "dock") for what in ("train", "ingest", "measure", "read")),
        *((what, "viewer") for what in ("train", "check", "read")),
    ],
)
def test_closing_while_something_runs(
    viewer: Viewer,
    open_widget: Callable[[], CentroidEncoderWidget],
    image_of: Callable[..., Any],
    make_cells: Callable[..., AnnData],
    embed: Callable[..., AnnData],
    qtbot: QtBot,
    unchanged: Any,
    tmp_path: Path,
    what: str,
    how: str,
) -> None:
    cells, others = embed(), make_cells(n_obs=600)
    others.write_h5ad(tmp_path / "others.h5ad")
    viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    widget = open_widget()
    widget.show_table(others, name="others")
    widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is cells))
    tables = list(widget.catalog.tables)
    with unchanged(cells), unchanged(others):
        row = begin(widget, what, tmp_path / "others.h5ad")
        task = row.task
        assert task is not None
        if how == "cancel":
            row._cancel.click()
            assert row.task is None
            assert row.isHidden()
        elif how == "dock":
            (dock,) = viewer.window._wrapped_dock_widgets.values()
            viewer.window.remove_dock_widget(dock)
        else:
            viewer.close()
        qtbot.waitUntil(lambda: not task.is_running, timeout=60_000)
        qtbot.wait(50)
    if how != "viewer":
        assert widget.catalog.tables == tables
        assert [layer.name for layer in viewer.layers] == ["nuclei"]


def test_training_again_writes_where_the_map_is(
    open_widget: Callable[[], CentroidEncoderWidget],
    make_cells: Callable[..., AnnData],
    embed: Callable[..., AnnData],
) -> None:
    widget, cells, new = open_widget(), embed(), make_cells(n_obs=60)
    ce.tl.ingest(new, cells, key_added="mine", progress=False)
    widget.show_table(cells)
    widget.show_table(new, name="new")
    assert widget.session.key == "mine"
    # The other table has no result of this name.
    widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is cells))
    assert widget.session.key == "ce"
    assert widget.result is not None
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])
