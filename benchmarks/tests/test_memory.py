"""Peaks of memory of processes that train on files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory

BESIDE = 120e6
"""Bytes that are allowed for other results of the additional cells."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two files of cells, sorted by class; the second is 260 MB larger.

    With fewer than ten thousand cells, other parts of the memory grow as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "FOLDER", tmp_path_factory.mktemp("memory"))
        yield [memory.file_of(n) for n in (12_000, 45_000)]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("what", "whole"), [("train", 0), ("train_loaded", 1.25)])
def test_peaks_grow_with_the_data_that_must_be_in_memory(
    what: str, whole: float, files: list[Path]
) -> None:
    few, many = (memory.measured(what, file) for file in files)
    more = {name: many[name] - few[name] for name in many}
    assert more["data"] > 200e6
    assert more["peak"] < whole * more["data"] + 1.25 * more["inputs"] + BESIDE
