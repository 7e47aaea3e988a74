"""What has been found of cells, in a file: a run that is ended leaves it, and the next goes on."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"centroid-encoder ingest, unfinished\n"
"""What such a file begins with."""


class Journal:
    """Records of cells, a part of them after the other and in order.

    Parameters
    ----------
    path
        The file. It is there from the first part that is written until it is removed.
    of
        All that the records depend on: those of anything else are not read.

    Attributes
    ----------
    path
        The file.
    is_of_others
        Whether there is what was found of other cells, by another map or with other options.

    Raises
    ------
    FileExistsError
        If there is something of that name which is nothing of this kind.
    """

    def __init__(self, path: Path, of: Iterable[bytes]) -> None:
        self.path, self._end = path, 0
        told = hashlib.sha256()
        for one in of:
            told.update(hashlib.sha256(one).digest())
        self._head = MAGIC + told.digest()
        head = self._head
        if path.exists():
            head = b""
            if path.is_file():
                with path.open("rb") as file:
                    head = file.read(len(self._head))
            if not head.startswith(MAGIC):
                raise FileExistsError(
                    f"{path} is in the way: what is found is kept there until all is done; rename "
                    "it, or choose another output"
                )
        self.is_of_others = head != self._head

    def read(self, found: NDArray[Any], n_at_once: int) -> int:
        """Read the first of the (n,) records, `n_at_once` in a part; return how many there are."""
        if self.is_of_others or not self.path.exists():
            return 0
        start = 0
        with self.path.open("rb") as file:
            file.seek(len(self._head))
            while len(part := found[start : start + n_at_once]):
                data = file.read(part.nbytes)
                # What was being written when the process or the machine ended is not whole.
                if len(data) < part.nbytes or file.read(4) != _sum(data, start):
                    break
                part[:] = np.frombuffer(data, found.dtype)
                start += len(part)
                self._end = file.tell()
        return start

    def add(self, start: int, part: NDArray[Any]) -> None:
        """Write the records of a part of the cells, from number `start` on."""
        data = part.tobytes()
        with self.path.open("r+b" if self._end else "wb") as file:
            file.seek(self._end)
            file.write((b"" if self._end else self._head) + data + _sum(data, start))
            file.truncate()
            self._end = file.tell()

    def remove(self) -> None:
        """Remove the file: all is done, or never will be."""
        self.path.unlink(missing_ok=True)


def _sum(data: bytes, start: int) -> bytes:
    return zlib.crc32(data, start & 0xFFFFFFFF).to_bytes(4, "little")
