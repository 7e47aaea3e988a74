"""A zarr store is replaced completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from centroid_encoder.tables import check_store_target, replacing_folder


@pytest.mark.parametrize("fails", ["writing", "renaming"])
def test_after_a_failure_the_old_store_is_unchanged(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cells.zarr").mkdir()
    (tmp_path / "cells.zarr" / "a").write_text("old")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    def write() -> None:
        with replacing_folder(tmp_path / "cells.zarr", tmp_path) as beside:
            beside.mkdir()
            if fails == "writing":
                fail()
            monkeypatch.setattr(os, "replace", fail)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert os.listdir(tmp_path) == ["cells.zarr"]
    assert (tmp_path / "cells.zarr" / "a").read_text() == "old"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("cells.h5ad", ValueError),
        ("nowhere/cells.zarr", FileNotFoundError),
        ("folder.zarr", FileExistsError),
        ("n" * 300 + ".zarr", OSError),
    ],
)
def test_targets_that_cannot_be_stores_are_errors(
    name: str, error: type[Exception], tmp_path: Path
) -> None:
    (tmp_path / "folder.zarr").mkdir()
    with pytest.raises(error):
        check_store_target(tmp_path / name)
