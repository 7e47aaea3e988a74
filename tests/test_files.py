"""Files to write: refused before the work, replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from centroid_encoder import CentroidEncoder
from centroid_encoder.files import (
    ABANDONED,
    check_distinct,
    check_target,
    hdf5,
    replacing,
    writing,
)

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")


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
    kind = PermissionError if isinstance(error, PermissionError) else OSError
    with pytest.raises(kind, match=said), writing(Path("there", "a.csv")):
        raise error


def test_the_new_file_is_there_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        assert beside.parent.parent == tmp_path
        assert beside.parent.name.startswith(".")
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


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    try:
        # Paths of sockets must be short.
        os.chdir(path.parent)
        listening.bind(path.name)
    finally:
        os.chdir(here)
        listening.close()


def make_fifo_behind_a_link(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def make_loop(path: Path) -> None:
    path.symlink_to("other.safetensors")
    path.with_name("other.safetensors").symlink_to(path.name)


def make_hard_link(path: Path) -> None:
    path.touch()
    os.link(path, path.with_name("twin"))


@posix
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_fifo, "is a device, a pipe or a socket, not a file; choose another name"),
        (make_socket, "is a device, a pipe or a socket, not a file"),
        (make_fifo_behind_a_link, "is a device, a pipe or a socket, not a file"),
        (make_loop, "is a link that leads to itself; choose another name"),
        (make_hard_link, "is one of 2 hard links to a file"),
        (Path.mkdir, "is a folder; choose another name"),
    ],
)
def test_only_files_of_one_name_are_replaced(make: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    make(path)
    before = {name: os.lstat(tmp_path / name)[:4] for name in os.listdir(tmp_path)}
    model = CentroidEncoder(hidden=(2,), max_epochs=1, device="cpu").fit(
        [[0.0], [1]] * 4, [0, 1] * 4
    )

    with pytest.raises(OSError, match=said):
        check_target(path, ".safetensors")
    with pytest.raises(OSError, match=said):
        model.save(path)

    assert {name: os.lstat(tmp_path / name)[:4] for name in os.listdir(tmp_path)} == before


@posix
def test_a_device_behind_a_link_is_not_replaced(device: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.safetensors"
    path.symlink_to(device)

    with pytest.raises(OSError, match="is a device, a pipe or a socket, not a file"):
        check_target(path, ".safetensors")


@posix
def test_a_link_into_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to(tmp_path / "gone" / "a.csv")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*gone; choose another"):
        check_target(tmp_path / "a.csv", ".csv")


@posix
@pytest.mark.parametrize("length", [230, 249, 255])
def test_the_longest_names_are_written(length: int, tmp_path: Path) -> None:
    path = tmp_path / ("a" * (length - 4) + ".csv")
    with replacing(check_target(path, ".csv")) as beside:
        beside.write_text("new")
    assert path.read_text() == "new"


@posix
def test_a_longer_name_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is too long; choose a shorter one"):
        check_target(tmp_path / ("a" * 252 + ".csv"), ".csv")


@posix
def test_attributes_and_owner_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    try:
        os.setxattr(path, "user.origin", b"slide 7")
    except (AttributeError, OSError):
        pytest.skip("no extended attributes here")
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    path.chmod(0o604)
    os.utime(path, (0, 0))
    before = path.stat()

    with replacing(path) as beside:
        assert stat.S_IMODE(beside.parent.stat().st_mode) == 0o700
        beside.write_text("new")

    after = path.stat()
    assert os.getxattr(path, "user.origin") == b"slide 7"
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_mtime > 1e9


class TestDistinct:
    """Each output of a command is a file of its own."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        for name in ("in", "old"):
            Path(name).touch()
        Path("link").symlink_to("in")
        Path("later").symlink_to("new")
        os.link("old", "twin")
        return tmp_path

    @posix
    @pytest.mark.parametrize(
        ("outputs", "said"),
        [
            (["in"], "in is an input"),
            (["new", "link"], "link is an input"),
            (["new", "new"], "new and new are one file"),
            (["new", "./new"], "are one file"),
            (["new", "later"], "later and new are one file"),
            (["old", "twin"], "twin and old are one file"),
        ],
    )
    def test_one_file_twice_is_refused(self, outputs: list[str], said: str, folder: Path) -> None:
        with pytest.raises(ValueError, match=said):
            check_distinct(outputs, ["in"])

    @posix
    def test_others_are_not(self, folder: Path) -> None:
        check_distinct(["new", "old", "newer"], ["in", "in"])


WRITE = """
import os, signal, sys
from centroid_encoder.files import replacing
with replacing(sys.argv[1]) as beside:
    beside.write_text("half")
    print(beside.parent.name, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
"""


@posix
def test_what_a_killed_process_left_is_removed_by_the_next_one_and_nothing_else(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def start(how: str) -> subprocess.Popen:
        command = [sys.executable, "-c", WRITE, str(path), how]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    killed, writing = start("killed"), start("writing")
    assert killed.stdout is not None
    assert writing.stdout is not None
    left, living = (process.stdout.readline().strip() for process in (killed, writing))
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert {left, living} <= set(os.listdir(tmp_path))
    # Of another machine; of nobody.
    fields = ABANDONED.fullmatch(living)
    assert fields is not None
    foreign = left.replace(fields[1], "0" * 8)
    for name in (foreign, ".centroid-encoder.mine"):
        (tmp_path / name).mkdir()

    with replacing(path) as beside:
        beside.write_text("new")

    assert set(os.listdir(tmp_path)) == {"file", living, foreign, ".centroid-encoder.mine"}
    writing.communicate()
    assert set(os.listdir(tmp_path)) == {"file", foreign, ".centroid-encoder.mine"}
    assert path.read_text() == "half"


FULL = """
import sys
import numpy as np
from pathlib import Path
from anndata.io import write_elem
from centroid_encoder.files import hdf5, replacing
with replacing(sys.argv[1]) as beside, hdf5(beside, "w") as file:
    for i in range(40):
        write_elem(file, str(i), {"numbers": np.arange(300.0), "texts": np.array(["a", "b"])})
"""


@posix
def test_hdf5_on_a_full_disk_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    path.write_text("old")

    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (22_000, 22_000))

    # Coverage would write a file of its own, which is larger, and Python halves of what it
    # compiles, on which all who import it later would stumble.
    env = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)],
        env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "OSError: [Errno 27] File too large"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.h5"]


def test_hdf5_is_written_where_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with replacing(path) as beside, hdf5(beside, "w") as file:
        file["one"] = np.arange(5)
    with replacing(path) as beside:
        shutil.copyfile(path, beside)
        with hdf5(beside, "r+") as file:
            file["two"] = np.arange(5)
    with h5py.File(path) as file:
        assert sorted(file) == ["one", "two"]
        assert file["one"][()].tolist() == [0, 1, 2, 3, 4]


def test_an_error_of_who_writes_hdf5_is_his_own(tmp_path: Path) -> None:
    (tmp_path / "file.h5").touch()
    with pytest.raises(KeyError), hdf5(tmp_path / "file.h5", "w") as file:
        file["nothing"]
