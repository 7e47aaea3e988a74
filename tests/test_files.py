"""Files are checked before the work, and replaced completely or not at all."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from centroid_encoder.files import (
    check_distinct,
    check_space,
    check_target,
    replacing,
    replacing_all,
    writing,
)

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("new.txt", ValueError, "the name must end in .csv or .tsv; got 'new.txt'"),
        ("nowhere/new.csv", FileNotFoundError, "there is no folder .*nowhere; choose another"),
        ("folder.csv", IsADirectoryError, "folder.csv is a folder; choose another name"),
    ],
)
def test_targets_that_cannot_be_files_are_errors(
    name: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(error, match=message):
        check_target(tmp_path / name, ".csv", ".tsv")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "there may not be written to; choose"),
        (OSError(errno.ENOSPC, "No space left on device"), "a.csv was not written: No space left"),
        (RuntimeError("no reason"), "a.csv was not written: no reason$"),
    ],
)
def test_the_error_states_why_a_file_was_not_written(
    error: OSError | RuntimeError, message: str
) -> None:
    kind = PermissionError if isinstance(error, PermissionError) else OSError
    with pytest.raises(kind, match=message), writing(Path("there", "a.csv")):
        raise error


def test_the_new_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        assert beside.parent.parent == tmp_path
        assert beside.parent.name.startswith(".")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()])
def test_after_an_error_all_old_files_are_unchanged(error: BaseException, tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text("old")

    def write() -> None:
        with replacing_all([tmp_path / "one", tmp_path / "other"]) as (one, other):
            one.write_text("new")
            other.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {"one": "old", "other": "old"}


@pytest.mark.parametrize("exist", [["file", "store"], ["file"], ["store"], []])
@pytest.mark.parametrize("fails", ["file", "store"])
def test_if_a_rename_fails_all_old_files_are_restored(
    fails: str, exist: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, store, replace = tmp_path / "file", tmp_path / "store", os.replace
    if "file" in exist:
        file.write_text("old")
    if "store" in exist:
        store.mkdir()

    def fail(old: Path, new: Path) -> None:
        if new.name == fails:
            raise KeyboardInterrupt
        replace(old, new)

    def write() -> None:
        with replacing_all([file, store]) as (new_file, new_store):
            new_file.write_text("new")
            new_store.mkdir()
            (new_store / "new").touch()
            monkeypatch.setattr(os, "replace", fail)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert sorted(os.listdir(tmp_path)) == exist
    assert "file" not in exist or file.read_text() == "old"
    assert "store" not in exist or not os.listdir(store)


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


@posix
def test_a_device_behind_a_link_is_not_replaced(device: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    path.symlink_to(device)

    with pytest.raises(OSError, match="is a device, a pipe or a socket, not a file"):
        check_target(path, ".safetensors")


def test_too_little_space_is_an_error_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=3_000_000))
    message = r"the disk is too full: about 5\.0 MB are needed, and 3\.0 MB are free"
    with pytest.raises(OSError, match=message), replacing(path, 5_000_000):
        pytest.fail("there is too little space")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system lacks posix_fallocate")
@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EOPNOTSUPP])
def test_a_quota_is_an_error_before_writing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int, start: int, n_bytes: int) -> None:
        assert n_bytes == 5_000_000
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    message = r"the disk is too full: about 5\.0 MB are needed, and a quota or limit allows less"
    can_allocate = number != errno.EOPNOTSUPP
    with pytest.raises(OSError, match=message) if can_allocate else nullcontext():
        check_space(tmp_path, 5_000_000)
    assert not os.listdir(tmp_path)


@posix
@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["in"], "in is an input"),
        (["new", "link"], "link is an input"),
        (["new", "./new"], "are one file"),
        (["new", "newer"], None),
    ],
)
def test_outputs_must_be_different_files(
    outputs: list[str], message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").touch()
    Path("link").symlink_to("in")
    with nullcontext() if message is None else pytest.raises(ValueError, match=message):
        check_distinct(outputs, ["in"])
