"""Print the section of a version in CHANGELOG.md: ``python packaging/notes.py 0.1.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(version: str) -> str:
    """Return the section of ``version``, without its heading."""
    sections = re.split(r"^## ", CHANGELOG.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for section in sections:
        heading, _, text = section.partition("\n")
        if heading.split(" ")[0] == version and text.strip():
            return text.strip()
    raise SystemExit(f"CHANGELOG.md has no section {version!r} with something in it")


if __name__ == "__main__":
    print(notes(sys.argv[1]))
