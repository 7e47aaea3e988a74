"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from centroid_encoder.core.atomic import replacing


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
