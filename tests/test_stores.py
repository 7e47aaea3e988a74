"""Whole zarr stores or none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from centroid_encoder.stores import check_store_target, replacing_folder

WRITE = """
import os, sys
from pathlib import Path
from centroid_encoder.stores import replacing_folder
with replacing_folder(Path(sys.argv[1]), Path(sys.argv[1]).parent) as beside:
    beside.mkdir()
    if sys.argv[2] == "old":
        beside.with_name("old").mkdir()
    os._exit(9)
"""


def test_what_a_killed_process_left_is_removed_but_for_the_only_copy(tmp_path: Path) -> None:
    for kind in ("new", "old"):
        command = [sys.executable, "-c", WRITE, str(tmp_path / "cells.zarr"), kind]
        assert subprocess.run(command).returncode == 9
    # The second process has removed what the first one left.
    (left,) = os.listdir(tmp_path)
    with replacing_folder(tmp_path / "cells.zarr", tmp_path) as beside:
        beside.mkdir()
        (beside / "a").write_text("whole")
    assert set(os.listdir(tmp_path)) == {left, "cells.zarr"}
    assert (tmp_path / left / "old").is_dir()
    assert (tmp_path / "cells.zarr" / "a").read_text() == "whole"


def test_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "cells.zarr").mkdir()
    (tmp_path / "cells.zarr" / "a").write_text("old")

    def fail() -> None:
        with replacing_folder(tmp_path / "cells.zarr", tmp_path) as beside:
            beside.mkdir()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
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
def test_what_may_not_be_written(name: str, error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / "folder.zarr").mkdir()
    with pytest.raises(error):
        check_store_target(tmp_path / name)
