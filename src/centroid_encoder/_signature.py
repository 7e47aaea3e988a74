"""Names, defaults, types and help of the parameters of public functions.

The forms of the widget are built from them, so that an option is written once: in the signature and
the docstring of its function.
"""

from __future__ import annotations

import inspect
import re
import sys
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from docstring_parser import parse

import centroid_encoder


class Parameter(NamedTuple):
    """A parameter of a function."""

    name: str
    default: Any
    hints: list[Any]
    """Types of the annotation, with None as ``NoneType``, and the strings of a Literal."""
    doc: str
    """Its entry in the docstring, with markup."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The strings of a Literal."""
        return tuple(hint for hint in self.hints if isinstance(hint, str))


@cache
def parameters(name: str) -> dict[str, Parameter]:
    """Return the parameters of a public function such as ``"tl.ingest"``.

    "As in `other`." in a docstring is replaced by the entry of the function `other` of the same
    package, or by its first sentence if more text follows.
    """
    function = attrgetter(name)(centroid_encoder)
    entries = {
        one: " ".join((entry.description or "").split())
        for entry in parse(function.__doc__).params
        for one in entry.arg_name.split(", ")
    }
    found = {}
    for one, parameter in inspect.signature(function).parameters.items():
        doc = entries.get(one, "")
        if same := re.match(r"As in `(\w+)`\. ?", doc):
            theirs, own = parameters(f"{name.partition('.')[0]}.{same[1]}")[one], doc[same.end() :]
            first = re.split(r"(?<=\.) (?=[A-Z`\d])", theirs.doc)[0]
            doc = f"{first} {own}" if own else theirs.doc
        hints = _hints(parameter.annotation, vars(sys.modules[function.__module__]))
        found[one] = Parameter(one, parameter.default, hints, doc)
    return found


def plain(doc: str) -> str:
    """Return a text without markup."""
    doc = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`| ?\[\d+\]_", r"\1", doc)
    return re.sub(r"`+(.+?)`+", r"\1", doc)


def _hints(annotation: Any, names: dict[str, Any]) -> list[Any]:
    """Return the types of a union or the strings of a Literal, or a list of the one type."""
    try:
        hint = eval(annotation, names) if isinstance(annotation, str) else annotation
    except NameError:  # a class that is imported for type checkers only
        return []
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    is_union = get_origin(hint) in (Union, UnionType)
    return [part for one in get_args(hint) for part in _hints(one, names)] if is_union else [hint]
