"""Peaks of memory, of real processes that train on real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import memory


@pytest.mark.slow
@pytest.mark.parametrize(("what", "limits"), [("train", ()), ("train_streamed", (0.001,))])
def test_a_file_is_never_in_memory_as_a_whole(
    what: str, limits: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "FOLDER", tmp_path)

    few, many = (memory.measured(what, memory.file_of(n), *limits) for n in (10_000, 60_000))

    # What is kept of the rows while networks learn from them: axes, once and with noise.
    beside = 100e6
    more = many["peak"] - few["peak"]
    assert more < 1.25 * (many["kept"] - few["kept"]) + beside
    assert more < 0.5 * (many["data"] - few["data"])
