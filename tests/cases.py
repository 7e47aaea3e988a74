"""Number of random cases in the long tests."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("CE_CASES", "1"))
"""Share of the cases of a long test that run, from the environment variable ``CE_CASES``."""


def cases(n: int) -> int:
    """Return the number of cases to run out of n, at least 1."""
    return max(1, round(n * SHARE))
