"""Files to write: refused before the work, replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from centroid_encoder.files import check_target, readable, replacing


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


def test_the_new_file_is_there_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        assert beside.parent == tmp_path
        assert beside.name.startswith(".")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_alone(
    error: BaseException, removed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as beside:
            beside.write_text("half")
            if removed:
                beside.unlink()
            raise error

    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions and links")
def test_permissions_and_links_are_kept(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.touch()
    path.chmod(0o640)
    link.symlink_to("file")

    with replacing(link) as beside:
        beside.write_text("new")

    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "none" / "a.txt"):
        pass
    assert caught.value.filename == str(tmp_path / "none")
