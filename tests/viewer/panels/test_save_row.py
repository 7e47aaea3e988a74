"""What can be saved, and where to, without a napari window."""

from __future__ import annotations

from pathlib import Path

import anndata as ad
from pytestqt.qtbot import QtBot

from centroid_encoder.viewer.panels.save import SaveRow
from centroid_encoder.viewer.session.session import Session


def test_a_table_of_a_zarr_goes_back_into_it(
    cells: ad.AnnData, tmp_path: Path, qtbot: QtBot
) -> None:
    cells.write_zarr(tmp_path / "cells.zarr")
    session = Session()
    qtbot.addWidget(row := SaveRow(session))
    assert not row.update_action.isVisible()
    table = session.catalog.open(tmp_path / "cells.zarr")
    session.catalog.choose(table)
    assert row.update_action.isVisible()
    assert row.update_action.text() == "Table into cells.zarr"
    table.adata.obs["note"] = "new"
    row.update_action.trigger()
    assert row.message.text() == "Saved cells.zarr."
    assert set(ad.read_zarr(tmp_path / "cells.zarr").obs["note"]) == {"new"}
    # What was saved as a file goes there from now on.
    row.save_table(tmp_path / "cells.h5ad")
    assert not row.update_action.isVisible()
