"""Peaks of memory, of real processes that train on real files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory

BESIDE = 120e6
"""Bytes beside the data that grow with the number of cells: their places along the axes of the
networks, with noise and without."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Files of cells sorted by class; the second has 260 MB more.

    Up to ten thousand cells, what is looked at of them grows as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "FOLDER", tmp_path_factory.mktemp("memory"))
        yield [memory.file_of(n) for n in (12_000, 45_000)]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("what", "whole", "kept"), [("train", 0, 1.25), ("train_loaded", 1.25, 0)])
def test_peaks_grow_with_what_has_to_be_in_memory(
    what: str, whole: float, kept: float, files: list[Path]
) -> None:
    few, many = (memory.measured(what, file) for file in files)
    more = {name: many[name] - few[name] for name in many}
    assert more["data"] > 200e6
    assert more["peak"] < whole * more["data"] + kept * more["kept"] + BESIDE
