"""Long arrays that are put together piece by piece: in memory or, of more, in a temporary file."""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

PIECE = 2**26
"""Bytes of the pieces that an array is put together from: each goes back to the system when it is
in."""


class Stored:
    """A long array in a temporary file, of which parts are read.

    By reading, since a system that maps a file may count megabytes as memory of the process for
    each row that is asked for. What was read stays in memory as long as nobody else needs that.
    """

    def __init__(self, file: Any, dtype: type[np.generic]) -> None:
        self._file, self.dtype, self._one = file, np.dtype(dtype), Lock()
        self._n = int(file.seek(0, os.SEEK_END)) // int(self.dtype.itemsize)
        weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self._n * int(self.dtype.itemsize)

    def read(self, first: NDArray[np.integer], last: NDArray[np.integer]) -> NDArray[Any]:
        """Return the elements from each of (n,) numbers `first` up to `last`, in their order."""
        size = self.dtype.itemsize
        found = np.empty(int((last - first).sum()), self.dtype)
        into, done = memoryview(cast(Any, found.view(np.uint8))), 0
        parts = list(zip((size * first).tolist(), (size * last).tolist(), strict=True))
        if len(parts) > 1 and hasattr(os, "posix_fadvise"):
            # A disk does many at once, if it knows of them.
            for start, stop in parts:
                os.posix_fadvise(self._file.fileno(), start, stop - start, os.POSIX_FADV_WILLNEED)
        # A file is at one place, whichever thread reads.
        with self._one:
            for start, stop in parts:
                self._file.seek(start)
                end = done + stop - start
                while done < end:
                    n = self._file.readinto(into[done:end])
                    if not n:
                        raise OSError("a temporary file has become shorter")
                    done += n
        return found


class Pieces:
    """A long array whose length is known at last: there are never two copies of it.

    Parameters
    ----------
    dtype
        Of the array.
    limit
        Elements up to which it is in memory. Of more, all is in a file.
    """

    def __init__(self, dtype: type[np.generic], limit: float = math.inf) -> None:
        self._dtype, self._limit, self._pieces = dtype, limit, [np.empty(0, dtype)]
        self._parts: list[NDArray[Any]] = []
        self._n_bytes, self._n_all = 0, 0
        self._file: Any = None

    def add(self, part: NDArray[Any]) -> None:
        """Put what comes next."""
        part = np.ascontiguousarray(part, self._dtype).reshape(-1)
        self._n_all += len(part)
        if self._n_all > self._limit and self._file is None:
            # Without a name: the system removes it when nothing reads it any more.
            self._file = tempfile.TemporaryFile(prefix="centroid-encoder-", buffering=0)  # noqa: SIM115
            for piece in [*self._pieces, *self._parts]:
                self._write(piece)
            self._pieces, self._parts, self._n_bytes = [], [], 0
        if self._file is not None:
            self._write(part)
            return
        self._parts.append(part)
        self._n_bytes += part.nbytes
        if self._n_bytes > PIECE:
            self._pieces.append(np.concatenate(self._parts))
            self._parts, self._n_bytes = [], 0

    def _write(self, part: NDArray[Any]) -> None:
        view = memoryview(cast(Any, part.view(np.uint8)))
        while len(view):
            view = view[self._file.write(view) :]

    def joined(self) -> NDArray[Any] | Stored:
        """Return the array, or what reads it from a file."""
        if self._file is not None:
            return Stored(self._file, self._dtype)
        pieces = [*self._pieces, *self._parts]
        self._pieces, self._parts = [], []
        joined, done = np.empty(sum(map(len, pieces)), self._dtype), 0
        for i, piece in enumerate(pieces):
            joined[done : done + len(piece)] = piece
            done += len(piece)
            pieces[i] = piece[:0].copy()
        return joined
