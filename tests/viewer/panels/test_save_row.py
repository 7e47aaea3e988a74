"""What can be saved and where; no napari window is needed."""

from pathlib import Path

import anndata as ad
import pandas as pd
import pytest
from pytestqt.qtbot import QtBot

from centroid_encoder.viewer.data.reader import read_table
from centroid_encoder.viewer.panels.save import SaveRow
from centroid_encoder.viewer.session.session import Session


@pytest.fixture
def row(qtbot) -> SaveRow:
    row = SaveRow(Session())
    qtbot.addWidget(row)
    return row


def finish(row: SaveRow, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: row.task is None, timeout=60_000)


def test_a_table_is_written_back_into_its_zarr_store(cells, tmp_path, qtbot, row):
    cells.write_zarr(tmp_path / "cells.zarr")
    catalog = row._session.catalog
    assert not row.update_action.isVisible()
    path = tmp_path / "cells.zarr"
    table = catalog.add(read_table(path)[0], path.name, path=path)
    catalog.choose(table)
    assert row.update_action.text() == "Update the table in cells.zarr"
    table.adata.obs["note"] = "new"
    row.update_action.trigger()
    # The thread writes the table without later changes.
    table.adata.obs["later"] = "not yet"
    assert not row.save_button.isEnabled()
    finish(row, qtbot)
    assert row.save_button.isEnabled()
    assert row.message.text() == "Saved cells.zarr."
    saved = ad.read_zarr(tmp_path / "cells.zarr")
    assert set(saved.obs["note"]) == {"new"}
    assert "later" not in saved.obs
    row.save_table(tmp_path / "cells.h5ad")
    finish(row, qtbot)
    assert not row.update_action.isVisible()


def test_the_opened_file_is_not_proposed_as_a_name(cells, tmp_path, qtbot, row):
    catalog = row._session.catalog
    for name in ("cells.h5ad", "cells_ce.h5ad"):
        cells.write_h5ad(tmp_path / name)
        catalog.choose(catalog.add(read_table(tmp_path / name)[0], name, path=tmp_path / name))
        assert row.proposal == str(tmp_path / f"{Path(name).stem}_ce.h5ad")
    row.save_table(tmp_path / "mine.h5ad")
    finish(row, qtbot)
    assert row.proposal == str(tmp_path / "mine.h5ad")
    row.save_table(tmp_path / "mine.csv")
    finish(row, qtbot)
    assert row.proposal == str(tmp_path / "mine.h5ad")
    assert list(pd.read_csv(tmp_path / "mine.csv", index_col=0)) == [*cells.obs, *cells.var_names]


def test_what_a_file_cannot_hold_is_said_at_opening_and_left_out_by_a_button(
    cells, tmp_path, qtbot, row
):
    catalog = row._session.catalog
    cells.uns["steps"], cells.uns["more"] = [{"a": 1}], [{"b": 2}]
    catalog.choose(catalog.add(cells, "notebook"))
    qtbot.waitUntil(lambda: row.message.kind == "warning")
    assert "cannot be saved as it is: entry 'steps' (uns) is a list" in row.message.text()
    assert row.without_button.isHidden()
    row.save_table(path := tmp_path / "cells.h5ad")
    for name in ("steps", "more"):
        finish(row, qtbot)
        assert not path.exists()
        assert row.without_button.text() == f"Save without entry '{name}' (uns)"
        row.without_button.click()
    finish(row, qtbot)
    assert row.message.text() == "Saved cells.h5ad."
    assert row.without_button.isHidden()
    assert not {"steps", "more"} & set(ad.read_h5ad(path).uns)
    assert cells.uns["steps"] == [{"a": 1}]
