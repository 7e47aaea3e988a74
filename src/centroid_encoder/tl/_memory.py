"""How much memory a training may take for what it keeps of the data."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from centroid_encoder.constraints import Number

SHARE = 0.5
"""Of the memory that is free."""
UNKNOWN = 8e9
"""Bytes that are supposed to be free where the system does not say how many are."""
GROUP_FILES = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Where Linux says how much a control group may have and has, of the second version and of the
first."""


def limit_in_bytes(gigabytes: float | None) -> float:
    """Return a limit in bytes; None stands for a share of what is free now.

    Raises
    ------
    ValueError
        If it is no number of at least 0.
    """
    if gigabytes is None:
        return SHARE * free()
    Number(0).check("memory_limit", gigabytes)
    return float(gigabytes) * 1e9


def free(root: Path = Path("/")) -> float:
    """Bytes of memory that programs can still have; of a system that does not say, all there is.

    Parameters
    ----------
    root
        Folder below which Linux says it.
    """
    return min(_of_machine(root), *_of_groups(root), math.inf)


def _of_machine(root: Path) -> float:
    with suppress(OSError, TypeError):
        told = re.search(r"^MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text(), re.M)
        return 1024 * int(told[1])  # type: ignore[index]
    with suppress(AttributeError, OSError, ValueError):
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    return UNKNOWN


def _of_groups(root: Path) -> Iterator[float]:
    """What is left of the limits that a container or a batch system sets: control groups."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            mounted = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            limit, used = GROUP_FILES["memory" if controllers else ""]
            own = mounted / path.lstrip("/")
            # In a container, its own group may be what is mounted.
            for group in {own, mounted, *(one for one in own.parents if mounted in one.parents)}:
                with suppress(OSError, ValueError):
                    left = int((group / limit).read_text()) - int((group / used).read_text())
                    yield max(left + _reclaimed(group), 0)


def _reclaimed(group: Path) -> int:
    """Bytes of files that were read, which count as used until somebody needs them."""
    # The first version tells of the group alone, and of those within it too.
    told = re.findall(r"^(?:total_)?inactive_file (\d+)", (group / "memory.stat").read_text(), re.M)
    return max(map(int, told), default=0)
