"""Check that comments, docstrings and Markdown pages are plain English.

It checks all files of the repository, or those that are named. CONTRIBUTING.md explains the rules.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

VERBS = "tells?|told|says?|said|knows?|knew|asks?|hears?|heard|wants?|learns? of|looks? at"
RULES = {
    "a thing acts like a person; name the cause or the result": (
        rf"\b(?:that|what|which|who|whoever|it|its \w+|nobody|nothing) (?:{VERBS})\b"
    ),
    "the sentence has no subject and verb, or they are inverted; begin with the subject": (
        r"(?:^|[.;:] )(?:Of (?!course)|Whoever|What (?:is|are|was|comes|came|goes|has)\b|Whatever)"
    ),
    "the clause is inverted; write two sentences": r"\b(?:of which|of whom)\b",
    "an idiom; state the fact": (
        r"\bas good as\b|\bby itself, \w+|\bfor want of\b|\bcomes of\b|\bbecomes? of\b"
        r"|\bto be mended\b|\bwhat is wrong with\b"
    ),
}


def main() -> None:
    """Print every line that breaks a rule; the exit status is 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="default: all")
    arguments = parser.parse_args()
    found = False
    for path in arguments.files or tracked():
        find = prose_of_markdown if path.suffix == ".md" else prose
        for line, text in find(path.read_text(encoding="utf-8")):
            for advice, pattern in RULES.items():
                if match := re.search(pattern, text, re.MULTILINE):
                    print(f"{path}:{line}: {match[0].strip()!r}: {advice}")
                    found = True
    sys.exit(found)


def tracked() -> list[Path]:
    """Return the Python and Markdown files of the repository."""
    command = ["git", "ls-files", "*.py", "*.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each comment and each line of a string of words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            for i, text in enumerate(token.string.strip('"').split("\n")):
                yield token.start[0] + i, text.strip()


def prose_of_markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line outside of code and tables."""
    in_code = False
    for i, line in enumerate(source.split("\n"), start=1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("|"):
            yield i, line


if __name__ == "__main__":
    main()
