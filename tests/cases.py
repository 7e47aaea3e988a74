"""How many cases the tests draw that take as many as they are given."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("CE_CASES", "1"))
"""Of the cases of a long test; the environment variable ``CE_CASES`` says how large."""


def cases(n: int) -> int:
    """Return how many of n cases are to be run: at least one."""
    return max(1, round(n * SHARE))
