"""How much memory is free, as systems say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from centroid_encoder.tl._memory import SHARE, UNKNOWN, free, limit_in_bytes

GIB = 2**30


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """Folder of a Linux with 16 GiB free, where no group has a limit."""
    written(tmp_path / "proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable:   16777216 kB\n")
    written(tmp_path / "proc/self/cgroup", "0::/user/job\n")
    return tmp_path


def written(file: Path, text: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def group(folder: Path, limit: object, used: int, inactive: int = 0) -> None:
    """A group of the second version."""
    written(folder / "memory.max", limit)
    written(folder / "memory.current", used)
    written(folder / "memory.stat", f"anon 5\ninactive_file {inactive}\nactive_file 7")


def test_what_linux_says_is_available_is_free(system: Path) -> None:
    assert free(system) == 16 * GIB
    group(system / "sys/fs/cgroup/user/job", "max", 3 * GIB)
    assert free(system) == 16 * GIB


@pytest.mark.parametrize("where", ["user/job", "user", ""])
def test_a_container_or_a_batch_system_leaves_less(system: Path, where: str) -> None:
    group(system / "sys/fs/cgroup" / where, 4 * GIB, 3 * GIB, inactive=GIB // 2)
    assert free(system) == 1.5 * GIB


def test_the_narrowest_group_counts(system: Path) -> None:
    group(system / "sys/fs/cgroup/user", 4 * GIB, 3 * GIB)
    group(system / "sys/fs/cgroup/user/job", 8 * GIB, 1 * GIB)
    assert free(system) == GIB
    group(system / "sys/fs/cgroup/user/job", 2 * GIB, 3 * GIB)
    assert free(system) == 0


def test_so_do_groups_of_the_first_version(system: Path) -> None:
    written(system / "proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n")
    folder = system / "sys/fs/cgroup/memory/job"
    written(folder / "memory.limit_in_bytes", 6 * GIB)
    written(folder / "memory.usage_in_bytes", 5 * GIB)
    written(folder / "memory.stat", f"inactive_file 3\ntotal_inactive_file {GIB}")
    assert free(system) == 2 * GIB


def test_this_system_says_something_sensible(tmp_path: Path) -> None:
    assert 2**26 < free() < 2**50
    assert free(tmp_path) >= min(UNKNOWN, 2**28)
    assert limit_in_bytes(None) == pytest.approx(SHARE * free(), rel=0.5)
    assert limit_in_bytes(2) == 2e9
    with pytest.raises(ValueError, match="memory_limit"):
        limit_in_bytes(-1)
