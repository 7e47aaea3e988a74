"""Files to write: what can go wrong with them, found early and said in one line."""

from __future__ import annotations

import os
import re
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
