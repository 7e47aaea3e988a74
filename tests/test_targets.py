"""Files to write: refused before the work, or excused in one line."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from centroid_encoder.targets import check_target, readable


@pytest.mark.parametrize("name", ["new.csv", "old.csv", "new.CSV", "new.tsv"])
def test_a_file_that_may_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "old.csv").touch()
    assert check_target(str(tmp_path / name), ".csv", ".tsv") == tmp_path / name
    assert os.listdir(tmp_path) == ["old.csv"]


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("new.txt", ValueError, "the name must end in .csv or .tsv; got 'new.txt'"),
        ("nowhere/new.csv", FileNotFoundError, "there is no folder .*nowhere; choose another"),
        ("folder.csv", IsADirectoryError, "folder.csv is a folder; choose another name"),
    ],
)
def test_a_file_that_may_not(name: str, error: type[Exception], said: str, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(error, match=said):
        check_target(tmp_path / name, ".csv", ".tsv")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "there may not be written to; choose"),
        (OSError(errno.ENOSPC, "No space left on device"), "a.csv was not written: No space left"),
        (OSError("Can't write (error message = 'Disk full', buf = 0x1)"), "written: Disk full$"),
        (RuntimeError("no reason"), "a.csv was not written: no reason$"),
    ],
)
def test_why_it_was_not_written(error: OSError | RuntimeError, said: str) -> None:
    found = readable(error, Path("there", "a.csv"))
    assert re.search(said, str(found))
    assert isinstance(found, type(error)) or not isinstance(error, PermissionError)
