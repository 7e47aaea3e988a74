"""Whole files or none: what may be written to, and writing that replaces or leaves alone."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def check_target(path: str | os.PathLike[str], *suffixes: str) -> Path:
    """Check what can be checked before any work begins.

    Parameters
    ----------
    path
        File to write; it need not exist, but its folder must.
    suffixes
        Endings that its name may have, in lower case.

    Raises
    ------
    ValueError
        If its name ends in something else.
    OSError
        If there is no such folder, or if there is a folder or a write-protected file of that name.
    """
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"the name must end in {' or '.join(suffixes)}; got {path.name!r}")
    for folder in (path.parent, Path(os.path.realpath(path)).parent):
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}; choose another, or make it")
    _check_file(path)
    # os.access is always true for root; its read-only bit counts as well.
    if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise PermissionError(f"{path} is write-protected; choose another name")
    return path


def check_distinct(
    outputs: Iterable[str | os.PathLike[str]], inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Check that each output is a file of its own, behind links.

    Raises
    ------
    ValueError
        If two outputs are one file, or if one of them is an input.
    """
    read = {os.path.normcase(os.path.realpath(path)) for path in inputs}
    written: dict[str, str] = {}
    for path in outputs:
        place = os.path.normcase(os.path.realpath(path))
        if place in read:
            raise ValueError(f"{path} is an input; name another file")
        if place in written:
            raise ValueError(f"{path} and {written[place]} are one file; name another one")
        written[place] = str(path)


def check_space(folder: Path, n_bytes: int) -> None:
    """Check that a disk has room for a file; HDF5 may end the process on a full disk.

    Raises
    ------
    OSError
        If there is too little free space.
    """
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(
            errno.ENOSPC,
            f"the disk is too full: about {n_bytes / 1e6:,.1f} MB are needed, and {free / 1e6:,.1f}"
            " MB are free",
        )


def _check_file(path: Path) -> None:
    """Check that a new file may take the place of what is at a path, if anything is there."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; choose another name")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is a device, a pipe or a socket, not a file; choose another name")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise an error of writing `path` as an OSError of one line; HDF5's errors fill a page."""
    try:
        yield
    except PermissionError as error:
        text = f"{path.parent} may not be written to; choose another folder"
        raise PermissionError(text) from error
    except (OSError, RuntimeError) as error:  # h5py raises RuntimeError on a full disk
        in_hdf5 = re.search(r"error message = '([^']+)'", str(error))
        reason = in_hdf5[1] if in_hdf5 else getattr(error, "strerror", None) or str(error)
        raise OSError(f"{path} was not written: {reason}") from error


@contextmanager
def replacing(path: str | os.PathLike[str], n_bytes: int = 0) -> Iterator[Path]:
    """Yield an empty file to write to; it takes the place of `path` at the end.

    The name `path` always leads to a whole file; all else is as for `replacing_all`. `n_bytes` is
    about the size of the file.
    """
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        # Otherwise the error names the temporary folder.
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))
    check_space(folder, n_bytes)
    with replacing_all([path]) as (new,):
        # Python's own errors, and the permissions of any new file: other writers lack them.
        new.touch()
        yield new
        flush(new)


@contextmanager
def replacing_all(
    paths: Iterable[str | os.PathLike[str]], within: Path | None = None
) -> Iterator[list[Path]]:
    """Yield names for new files or folders, which take the places of `paths` at the end.

    All of them do, the first one last, or none: after a failure `paths` are as they were, and
    nothing is left beside them. A process that is killed leaves a hidden folder beside them. A new
    file or folder keeps the permissions of the old one, and its owner and extended attributes as
    far as the system allows. Behind a link, its target is replaced.

    Parameters
    ----------
    paths
        Files or folders.
    within
        Folder in which they are written; by default that of each path.
    """
    places = [Path(os.path.realpath(path)) for path in paths]
    pairs: list[tuple[Path, Path]] = []
    try:
        for place in places:
            beside = tempfile.mkdtemp(prefix=".centroid-encoder.", dir=within or place.parent)
            pairs.append((place, Path(beside)))
        yield [folder / "new" for _, folder in pairs]
        for place, folder in pairs:
            new = folder / "new"
            if new.is_file():
                _check_file(place)
            if place.exists():
                if new.is_file() and place != places[0]:
                    shutil.copyfile(place, folder / "copy")
                for path in folder.iterdir():
                    with suppress(AttributeError, PermissionError):  # Windows, and users but root
                        os.chown(path, place.stat().st_uid, place.stat().st_gid)
                    shutil.copystat(place, path)
                os.utime(new)
        _rename(pairs)
    finally:
        for place, folder in pairs:
            # The old folder in it may be the only copy.
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


def flush(path: Path) -> None:
    """Put a file, or all files of a folder, on the disk, so that a power cut cannot halve them."""
    for name in filter(Path.is_file, [path, *path.rglob("*")]):
        with name.open("rb+") as file:
            os.fsync(file.fileno())
