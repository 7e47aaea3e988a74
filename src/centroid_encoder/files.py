"""Whole files or none: what may be written to, and writing that replaces or leaves alone."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
        If there is no such folder, or if a folder or a write-protected file has that name.
    """
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"the name must end in {' or '.join(suffixes)}; got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; choose another, or make it")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; choose another name")
    # An administrator may write to anything; who protected the file did not mean that.
    if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise PermissionError(f"{path} is write-protected; choose another name")
    return path


def readable(error: OSError | RuntimeError, path: Path) -> OSError:
    """Say in one line why `path` was not written; HDF5 says it in a page."""
    if isinstance(error, PermissionError):
        return PermissionError(f"{path.parent} may not be written to; choose another folder")
    in_hdf5 = re.search(r"error message = '([^']+)'", str(error))
    reason = in_hdf5[1] if in_hdf5 else getattr(error, "strerror", None) or str(error)
    return OSError(f"{path} was not written: {reason}")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty file beside `path` to write to; it takes the place of `path` at the end.

    If anything fails, `path` stays as it was and nothing is left beside it. A new file has the
    permissions of any new file, a replaced one keeps its own; behind a link, its target is
    replaced.
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    if not path.parent.is_dir():
        # Else it would be said of the name of the file beside it.
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    # Python's own errors and the permissions of any new file, which others' writers lack.
    beside.touch(exist_ok=False)
    try:
        yield beside
        flush(beside)
        if path.exists():
            shutil.copymode(path, beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Put a file on the disk, so that no power cut after the renaming can halve it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
