"""Whole files or none: what may be written to, and writing that replaces or leaves alone."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import h5py

ABANDONED = re.compile(r"\.centroid-encoder\.([0-9a-f]{8})\.(\d+)\.[0-9a-f]{8}")
"""Names of temporary folders: the machine, the process, and a random number."""


def check_target(path: str | os.PathLike[str], *suffixes: str) -> Path:
    """Check what can be checked before any work begins.

    Parameters
    ----------
    path
        File to write; it need not exist, but its folder must.
    suffixes
        What its name may end in, in lower case.

    Raises
    ------
    ValueError
        If its name ends in something else.
    OSError
        If there is no such folder, if the name is too long or a link to itself, or if what has that
        name may not be replaced: anything but a file (a folder, a device, a pipe), a file that is
        write-protected, or one of several hard links.
    """
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"the name must end in {' or '.join(suffixes)}; got {path.name!r}")
    target = Path(os.path.realpath(path))
    if not (path.parent.is_dir() and target.parent.is_dir()):
        folder = target.parent if path.parent.is_dir() else path.parent
        raise FileNotFoundError(f"there is no folder {folder}; choose another, or make it")
    found = _replaceable(path)
    # An administrator may write to anything; who protected the file did not mean that.
    if found is not None and not (found.st_mode & 0o222 and os.access(path, os.W_OK)):
        raise PermissionError(f"{path} is write-protected; choose another name")
    return path


def check_distinct(
    outputs: Iterable[str | os.PathLike[str]], inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Check that each output is a file of its own, under whichever names and links.

    Raises
    ------
    ValueError
        If two outputs are one file, or if one of them is an input.
    """
    read = {_identity(path) for path in inputs}
    written: dict[object, str] = {}
    for path in outputs:
        identity = _identity(path)
        if identity in read:
            raise ValueError(f"{path} is an input; name another file")
        if identity in written:
            raise ValueError(f"{path} and {written[identity]} are one file; name another one")
        written[identity] = str(path)


def _identity(path: str | os.PathLike[str]) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return os.path.normcase(os.path.realpath(path))
    return found.st_dev, found.st_ino


def _replaceable(path: Path) -> os.stat_result | None:
    """Return what is at a path, behind its links; None if a file may be made there.

    OSError if it is anything that a new file must not or cannot take the place of.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        reasons = {
            errno.ELOOP: f"{path} is a link that leads to itself; choose another name",
            errno.ENAMETOOLONG: f"the name {path.name[:30]!r}… is too long; choose a shorter one",
        }
        raise OSError(reasons.get(error.errno or 0, f"{path}: {error.strerror}")) from error
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{path} is a folder; choose another name")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is a device, a pipe or a socket, not a file; choose another name")
    if found.st_nlink > 1:
        raise OSError(
            f"{path} is one of {found.st_nlink} hard links to a file, of which a new one would be "
            "none; choose another name, or remove it first"
        )
    return found


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise an error of writing `path` as an OSError of one line; HDF5's errors fill a page."""
    try:
        yield
    except PermissionError as error:
        text = f"{path.parent} may not be written to; choose another folder"
        raise PermissionError(text) from error
    except (OSError, RuntimeError) as error:  # h5py, closing a file on a full disk
        in_hdf5 = re.search(r"error message = '([^']+)'", str(error))
        reason = in_hdf5[1] if in_hdf5 else getattr(error, "strerror", None) or str(error)
        raise OSError(f"{path} was not written: {reason}") from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty file to write to; it takes the place of `path` at the end.

    The name `path` always leads to a whole file; all else is as for `replacing_all`.
    """
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        # Otherwise the error names the temporary folder.
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))
    with replacing_all([path]) as (new,):
        # Python's own errors and the permissions of any new file, which others' writers lack.
        new.touch()
        yield new
        flush(new)


@contextmanager
def replacing_all(
    paths: Iterable[str | os.PathLike[str]], within: Path | None = None
) -> Iterator[list[Path]]:
    """Yield names for new files or folders, which take the places of `paths` at the end.

    All of them do, the first one last, or none: after a failure `paths` are as they were, and
    nothing is left beside them. The next process removes what a killed one left, except an old
    folder. A new file or folder keeps the permissions of the old one, and its owner and extended
    attributes as far as the system allows. Behind a link, its target is replaced.

    Parameters
    ----------
    paths
        Files or folders.
    within
        Folder in which they are written; by default that of each path.

    Raises
    ------
    OSError
        If the old one of a new file is anything but a file with one name.
    """
    places = [Path(os.path.realpath(path)) for path in paths]
    pairs = [(place, _temporary_name(within or place.parent)) for place in places]
    try:
        for _, folder in pairs:
            folder.mkdir(mode=0o700)
        yield [folder / "new" for _, folder in pairs]
        for place, folder in pairs:
            new = folder / "new"
            if new.is_file():
                _replaceable(place)
            if place.exists():
                if new.is_file() and place != places[0]:
                    shutil.copyfile(place, folder / "copy")
                for path in folder.iterdir():
                    with suppress(AttributeError, PermissionError):  # Windows, and who is not root
                        os.chown(path, place.stat().st_uid, place.stat().st_gid)
                    shutil.copystat(place, path)
                os.utime(new)
        _rename(pairs)
    finally:
        for place, folder in pairs:
            # Never together with the only copy there is.
            if place.exists() or not (folder / "old").exists():
                shutil.rmtree(folder, ignore_errors=True)


def _rename(pairs: list[tuple[Path, Path]]) -> None:
    """Rename ``new`` in each folder to its place, the first one last; all of them or none."""
    try:
        for place, folder in reversed(pairs):
            # A folder cannot be overwritten.
            if (folder / "new").is_dir() and place.exists():
                os.rename(place, folder / "old")
            os.replace(folder / "new", place)
    except BaseException:
        # A signal may arrive when all are in their places.
        if any((folder / "new").exists() for _, folder in pairs):
            for place, folder in pairs:
                if not (folder / "new").exists():
                    os.replace(place, folder / "new")
                for old in (folder / "old", folder / "copy"):
                    if old.exists() and not place.exists():
                        os.rename(old, place)
        raise


def _temporary_name(folder: Path) -> Path:
    """Name a new temporary folder; those of processes that have ended are removed."""
    _remove_abandoned(folder)
    return folder / f".centroid-encoder.{_here()}.{os.getpid()}.{secrets.token_hex(4)}"


def flush(path: Path) -> None:
    """Put a file, or all files of a folder, on the disk: no power cut can halve them then."""
    for name in filter(Path.is_file, [path, *path.rglob("*")]):
        with name.open("rb+") as file:
            os.fsync(file.fileno())


@contextmanager
def hdf5(path: Path, mode: Literal["w", "r+"]) -> Iterator[h5py.File]:
    """Open an HDF5 file to write to, so that a full disk is an OSError.

    HDF5's own way of writing to files cannot close a file that it failed to write, and ends the
    process with a segmentation fault when it ends.
    """
    import h5py

    with _Sink(path, "w+" if mode == "w" else "r+") as sink:
        try:
            with h5py.File(sink, mode) as file:
                yield file
        # What HDF5 makes of a file that could not be written follows from the first error.
        except Exception:
            if sink.error is None:
                raise
        if sink.error is not None:
            raise sink.error


class _Sink(io.FileIO):
    """A file that takes everything once it could not be written, and remembers why.

    HDF5 reads what it has written, and ends the process where something else is there: what did not
    get into the file stays in memory until the file is closed.
    """

    error: OSError | None = None

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._kept: list[tuple[int, bytes]] = []
        self._end = 0

    def write(self, data: Any) -> int:
        view, start, done = memoryview(data).cast("B"), self.tell(), 0
        try:
            while self.error is None and done < len(view):
                done += super().write(view[done:]) or 0
        except OSError as error:
            self._fail(error)
        if done < len(view):
            self._kept.append((start + done, bytes(view[done:])))
            self._end = max(self._end, start + len(view))
            self.seek(start + len(view))
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view, start = memoryview(buffer).cast("B"), self.tell()
        n = super().readinto(view) or 0
        if self.error is None:
            return n
        view[n:] = bytes(len(view) - n)
        for offset, data in self._kept:
            first, last = max(offset, start), min(offset + len(data), start + len(view))
            if first < last:
                view[first - start : last - start] = data[first - offset : last - offset]
        self.seek(start + len(view))
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self.error is not None and whence == os.SEEK_END:
            offset, whence = self._end + offset, os.SEEK_SET
        return super().seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        try:
            if self.error is None:
                return super().truncate(size)
        except OSError as error:
            self._fail(error)
        self._end = max(self._end, size or 0)
        return size or 0

    def _fail(self, error: OSError) -> None:
        self.error, self._end = error, os.fstat(self.fileno()).st_size


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary folders of processes of this machine that have ended."""
    with suppress(OSError):
        for name in os.listdir(folder):
            written = ABANDONED.fullmatch(name)
            is_left = written and written[1] == _here() and not _lives(int(written[2]))
            # The old store may be in it, and be the only one there is.
            if is_left and not (folder / name / "old").exists():
                shutil.rmtree(folder / name, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        # On Windows, this would end the process.
        if os.name != "nt":
            os.kill(pid, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)
    return True


def _here() -> str:
    """Tell machines, and containers within one, apart: each counts its processes by itself."""
    machine = socket.gethostname()
    with suppress(OSError):
        machine += os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(machine.encode()).hexdigest()[:8]
