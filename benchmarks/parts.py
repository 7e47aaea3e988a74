"""Helpers of the benchmarks: the command line of one that has parts, and peaks of memory."""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Callable


def run_named(description: str | None, *parts: Callable[[], None]) -> None:
    """Run the parts that are named on the command line, in its order."""
    by_name = {part.__name__: part for part in parts}
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=by_name)
    for name in parser.parse_args().parts:
        by_name[name]()


def peak_memory() -> float:
    """Largest resident memory of this process so far, in GB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if sys.platform == "darwin" else 1024) / 1e9
