"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
