"""Names, defaults, types and help of the parameters of public functions.

The widget's forms take their fields from here, so that an option is written once: in the signature
and the docstring of its function.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from docstring_parser import parse

import centroid_encoder


class Parameter(NamedTuple):
    """A parameter of a function; `doc` is its entry in the docstring, with markup."""

    name: str
    default: Any
    hints: list[Any]
    """Types that the annotation allows, with None as ``NoneType``, and the strings of a Literal."""
    doc: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The strings of a Literal."""
        return tuple(hint for hint in self.hints if isinstance(hint, str))


@cache
def parameters(name: str) -> dict[str, Parameter]:
    """Return the parameters of a public function such as ``"tl.ingest"``.

    "As in `other`." in a docstring stands for the entry of the function `other` of the same
    package, or for its first sentence if more text follows.
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


def plain(doc: str, name: Callable[[str], str] = str) -> str:
    """Return a docstring's text without markup; `name` renames what is in single backticks."""
    doc = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`| ?\[\d+\]_", r"\1", doc)
    return re.sub(r"``(.+?)``|`(.+?)`", lambda found: found[1] or name(found[2]), doc)


def _hints(annotation: Any, names: dict[str, Any]) -> list[Any]:
    """Return the parts of a union or a Literal."""
    try:
        hint = eval(annotation, names) if isinstance(annotation, str) else annotation
    except NameError:  # a class that only type checkers import
        return []
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    is_union = get_origin(hint) in (Union, UnionType)
    return [part for one in get_args(hint) for part in _hints(one, names)] if is_union else [hint]
