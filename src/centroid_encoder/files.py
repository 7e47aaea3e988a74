"""Checks of files before they are written, and writing that replaces whole files or none."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from centroid_encoder.errors import check


def check_target(path: str | os.PathLike[str], *suffixes: str) -> Path:
    """Return the path of a file, after checks of its ending, folder and permissions."""
    path = Path(path)
    text = f"the name must end in {' or '.join(suffixes)}; got {path.name!r}"
    check(path.suffix.lower() in suffixes, text)
    for place in (path, Path(os.path.realpath(path))):
        _check_place(place)
    # The permission bits are read as well, because os.access is always true for root.
    if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise PermissionError(f"{path} is write-protected; choose another name")
    return path


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; choose another, or make it")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; choose another name")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is a device, a pipe or a socket, not a file; choose another name")


def check_distinct(
    outputs: Iterable[str | os.PathLike[str]], inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Raise a ValueError if two outputs are one file, or an output is an input, also by links."""
    read = {os.path.normcase(os.path.realpath(path)) for path in inputs}
    written: dict[str, str] = {}
    for path in outputs:
        place = os.path.normcase(os.path.realpath(path))
        check(place not in read, f"{path} is an input; name another file")
        if place in written:
            raise ValueError(f"{path} and {written[place]} are one file; name another one")
        written[place] = str(path)


def check_space(folder: Path, n_bytes: int) -> None:
    """Raise an OSError if a folder has no room for a file.

    Without space, HDF5 can crash, also in a file that Python has opened (h5py 3.16). A scratch
    file of this size is allocated, because a quota or a limit of the size of files can be less than
    the free space of the disk.
    """
    text = f"the disk is too full: about {n_bytes / 1e6:,.1f} MB are needed, and"
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(errno.ENOSPC, f"{text} {free / 1e6:,.1f} MB are free")
    if n_bytes and hasattr(os, "posix_fallocate"):
        with tempfile.TemporaryFile(dir=folder) as scratch:
            try:
                os.posix_fallocate(scratch.fileno(), 0, n_bytes)
            except OSError as error:
                # Other errors come from file systems that cannot allocate.
                if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                    raise OSError(error.errno, f"{text} a quota or limit allows less") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Add the name of a file to the error if writing it fails."""
    try:
        yield
    except PermissionError as error:
        text = f"{path.parent} may not be written to; choose another folder"
        raise PermissionError(text) from error
    except (OSError, RuntimeError) as error:  # h5py raises RuntimeError on a full disk
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(f"{path} was not written: {reason}") from error


@contextmanager
def replacing(path: str | os.PathLike[str], n_bytes: int = 0) -> Iterator[Path]:
    """Yield an empty file to write about `n_bytes` to; it is renamed to `path` at the end.

    The rename is atomic, so that `path` is either the old or the new file at any time.
    """
    place = Path(os.path.realpath(path))
    _check_place(place)
    check_space(place.parent, n_bytes)
    with replacing_all([place]) as (new,):
        new.touch()  # It gets the permissions of a new file.
        yield new


@contextmanager
def replacing_all(
    paths: Iterable[str | os.PathLike[str]], within: Path | None = None
) -> Iterator[list[Path]]:
    """Yield names for new files or folders, which are renamed to `paths` at the end.

    After an error, `paths` are as they were. A new file gets the permissions of the old one. If a
    path is a link, its target is replaced. The first path is renamed last. Until then, the new
    files are in the folder `within`, by default the folder of each path.
    """
    pairs: list[tuple[Path, Path]] = []
    renamed: list[Path] = []
    try:
        for place in (Path(os.path.realpath(path)) for path in paths):
            beside = tempfile.mkdtemp(prefix=".centroid-encoder.", dir=within or place.parent)
            pairs.append((place, Path(beside)))
        yield [folder / "new" for _, folder in pairs]
        for place, folder in pairs:
            # The content is on the disk before the rename.
            for name in filter(Path.is_file, [folder / "new", *(folder / "new").rglob("*")]):
                with name.open("rb+") as file:
                    os.fsync(file.fileno())
            if place.exists():
                shutil.copymode(place, folder / "new")
        for place, folder in reversed(pairs):
            # The last rename overwrites a file, so that no copy is needed. It cannot do so with a
            # folder.
            if place.is_dir() or (place.exists() and folder != pairs[0][1]):
                os.rename(place, folder / "old")
            os.replace(folder / "new", place)
            renamed.append(place)
    finally:
        for place, folder in pairs:
            if place in renamed and len(renamed) < len(pairs):
                os.replace(place, folder / "new")
            if (folder / "old").exists() and not place.exists():
                os.rename(folder / "old", place)
            shutil.rmtree(folder, ignore_errors=True)
