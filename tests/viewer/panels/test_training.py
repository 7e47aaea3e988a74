"""Running jobs are cancelled or end with their window, and change nothing."""

from pathlib import Path

import pytest

from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.job import TaskRow
from centroid_encoder.viewer.panels.measure import MeasureDialog

OTHERS = {"cancel": ("check", "measure"), "dock": ("ingest", "read"), "viewer": ("check",)}


def begin(widget: CentroidEncoderWidget, what: str, path: Path) -> TaskRow:
    """Start a long job; return the row that shows its progress."""
    widget.form.max_epochs.value = 100_000
    data = widget.data
    if what == "measure":
        data.measure_action.trigger()
        data.findChild(MeasureDialog).accept()
    elif what == "read":
        data.read(path, path)
    else:
        trainer, panel = widget.training_panel, widget.new_data
        acts = {"train": trainer.train_button.click, "check": trainer.check_action.trigger}
        acts.get(what, panel.map_button.click)()
    rows = {"measure": data.measuring, "read": data.opening, "ingest": widget.new_data.progress}
    return rows.get(what, widget.training_panel.progress)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "how"),
    [
        *((what, "cancel") for what in ("train", "ingest", "read")),
        *((what, "dock") for what in ("train", "measure")),
        *((what, "viewer") for what in ("train", "read")),
        *(
            pytest.param(what, how, marks=pytest.mark.slow)
            for how, several in OTHERS.items()
            for what in several
        ),
    ],
)
def test_cancelling_or_closing_while_a_job_runs(
    viewer, open_widget, image_of, make_cells, embed, qtbot, unchanged, tmp_path, what, how
):
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
        drawn = ["nuclei · label"] * (how == "cancel")
        assert [layer.name for layer in viewer.layers] == ["nuclei", *drawn]


@pytest.mark.slow
def test_warnings_of_a_table_that_is_not_shown_begin_with_its_name(open_widget, make_cells, qtbot):
    cells, others = make_cells(), make_cells(n_obs=60)
    cells.obs["donor"] = [f"donor {i // 20}" for i in range(120)]
    widget = open_widget()
    panel = widget.training_panel
    for is_other in (False, True):
        widget.show_table(cells, name="first", label_key="cell_type")
        widget.train()
        if is_other:
            widget.show_table(others, name="second", label_key="cell_type")
        qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
        assert "donor" in panel.message.text()
        assert panel.message.text().startswith("first: ") == is_other
        # The button would train the table that is shown.
        assert panel.cures.isHidden() == is_other
