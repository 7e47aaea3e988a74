"""How much memory a training may take for what it keeps of the data."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from centroid_encoder.constraints import Number

SHARE = 0.5
"""Of the memory that is free."""
UNKNOWN = 8e9
"""Bytes that are supposed to be free where the system does not say how many are."""


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


def free() -> float:
    """Bytes of memory that programs can still have; of a system that does not say, all there is."""
    with suppress(OSError, TypeError):
        told = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
        return 1024 * int(told[1])  # type: ignore[index]
    with suppress(AttributeError, OSError, ValueError):
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    return UNKNOWN
