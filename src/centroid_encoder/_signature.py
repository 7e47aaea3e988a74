"""Help of the parameters of public functions, as in their docstrings; the widget shows it."""

from __future__ import annotations

import inspect
import re
from functools import cache
from operator import attrgetter

from docstring_parser import parse

import centroid_encoder


@cache
def parameters(name: str) -> dict[str, str]:
    """Return the parameters of a public function such as ``"tl.ingest"``, and the entry of each.

    "As in `other`." in a docstring is replaced by the entry of the function `other` of the same
    package, or by its first sentence if more text follows. Entries have markup.
    """
    function = attrgetter(name)(centroid_encoder)
    entries = {
        one: " ".join((entry.description or "").split())
        for entry in parse(function.__doc__).params
        for one in entry.arg_name.split(", ")
    }
    found = {}
    for one in inspect.signature(function).parameters:
        doc = entries.get(one, "")
        if same := re.match(r"As in `(\w+)`\. ?", doc):
            theirs, own = parameters(f"{name.partition('.')[0]}.{same[1]}")[one], doc[same.end() :]
            first = re.split(r"(?<=\.) (?=[A-Z`\d])", theirs)[0]
            doc = f"{first} {own}" if own else theirs
        found[one] = doc
    return found


def plain(doc: str) -> str:
    """Return a text without markup."""
    doc = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`| ?\[\d+\]_", r"\1", doc)
    return re.sub(r"`+(.+?)`+", r"\1", doc)
