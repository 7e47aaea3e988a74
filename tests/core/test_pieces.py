"""Long arrays in memory and in files: the same values, and little of a file in memory at a time."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from centroid_encoder.core.kept import Entries
from centroid_encoder.core.pieces import Pieces, Stored
from centroid_encoder.core.rows import CSRRows, StoredCSRRows
from centroid_encoder.core.standardization import CPU, Standardizer


@pytest.mark.parametrize("limit", [0, 750, 1_000, 1e9])
def test_pieces_are_joined(limit, monkeypatch):
    monkeypatch.setattr("centroid_encoder.core.pieces.PIECE", 500)
    parts = [np.arange(100 * i, 100 * i + 100, dtype=np.int64) for i in range(10)]
    pieces = Pieces(np.int32, limit)
    for part in parts:
        pieces.add(part)
    joined = pieces.joined()
    assert isinstance(joined, Stored) == (limit < 1_000)
    assert joined.dtype == np.int32
    if isinstance(joined, Stored):
        found = joined.read(np.array([990, 0, 7]), np.array([1_000, 5, 7]))
        assert_array_equal(found, [*range(990, 1_000), *range(5)])
        joined = joined.read(np.array([0]), np.array([1_000]))
    assert_array_equal(joined, np.arange(1_000))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_of_a_file_little_is_in_memory():
    n_rows, n_of_row, n_columns = 40_000, 500, 1_000
    columns, rng = np.arange(0, n_columns, 2), np.random.default_rng(0)
    before = resident()
    indices, data = Pieces(np.int32, 0), Pieces(np.float32, 0)
    values = rng.random((n_rows, 1), np.float32)
    for part in np.split(values, 10):
        indices.add(np.tile(columns, len(part)))
        data.add(np.repeat(part, n_of_row))
    entries = Entries(np.arange(n_rows + 1) * n_of_row, indices.joined(), data.joined())
    one, most = np.ones(n_columns), 0
    rows = StoredCSRRows(entries, Standardizer(0 * one, one, one, np.inf))
    for index in torch.from_numpy(rng.permutation(n_rows)).split(256):
        found = rows.gather(index).numpy()
        assert (found[:, ::2] == values[index]).all()
        assert not found[:, 1::2].any()
        most = max(most, resident() - before)
    assert rows.gather(index[:0]).shape == (0, n_columns)
    # A device that has room for all takes them from the file.
    there = CSRRows(entries, Standardizer(0 * one, one, one, np.inf), CPU)
    assert torch.equal(there.gather(index), rows.gather(index))
    # All would be 160 MB.
    assert most < 8e7


def resident() -> int:
    """Bytes of memory that this process has, pages of files among them."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def test_a_full_disk_is_an_error(monkeypatch):
    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(OSError, match="No space left"):
        Pieces(np.int32, 0).add(np.arange(9))
