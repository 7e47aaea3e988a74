"""The command line of a benchmark that has parts."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def run_named(description: str | None, *parts: Callable[[], None]) -> None:
    """Run the parts that the command line names, in its order."""
    by_name = {part.__name__: part for part in parts}
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=by_name)
    for name in parser.parse_args().parts:
        by_name[name]()
