"""Message templates with parts, for modules that do not write f-strings yet.

This module goes when all modules do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from centroid_encoder import errors


class _Unset(Enum):
    """One value that stays itself in another process."""

    UNSET = "unset"


UNSET: Final = _Unset.UNSET
"""Value of a parameter that is named without one."""


@dataclass(frozen=True)
class Setting:
    """A parameter, with or without a value: ``missing`` or ``missing='drop'``."""

    name: str
    value: Any = UNSET
    effect: str = ""
    """What the value does, such as ``"to leave these cells out"``; a face whose own word for the
    value says it leaves it away."""

    def __str__(self) -> str:
        text = self.name if self.value is UNSET else f"{self.name}={self.value!r}"
        return f"{text} {self.effect}".rstrip()


@dataclass(frozen=True)
class Advice(Setting):
    """To set a parameter: ``pass missing='drop'``."""

    def __str__(self) -> str:
        return f"pass {super().__str__()}"


@dataclass(frozen=True)
class Value(Setting):
    """Another value of a parameter that the sentence has just named: ``'drop'``."""

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Call:
    """A function to call: ``ce.tl.cross_validate(adata, 'cell_type')``."""

    name: str
    """Name within the package, such as ``"tl.cross_validate"``."""
    arguments: tuple[Any, ...] = ()
    """What to pass after the AnnData: values, and settings for what is passed by name. A first
    argument ``Setting("label_key")`` stands for a value that is not known."""

    def __str__(self) -> str:
        if not self.arguments:
            return f"ce.{self.name}"
        given = [str(one) if isinstance(one, Setting) else repr(one) for one in self.arguments]
        return f"ce.{self.name}({', '.join(['adata', *given])})"


Part: TypeAlias = Setting | Advice | Value | Call
Face: TypeAlias = Callable[[Part], str]
"""How a face writes the parts that Python users know by other names than its own users."""


class Message:
    """A sentence with parts that each face writes in its own way.

    Parameters
    ----------
    template
        As for :meth:`str.format`, with a ``{}`` for each part.
    parts
        What to put there: parts, messages, or anything else that has a text.
    """

    def __init__(self, template: str, *parts: object) -> None:
        self.template = template
        self.parts = parts

    def __str__(self) -> str:
        return self.words(str)

    def __repr__(self) -> str:
        return f"Message({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.template, self.parts) == (
            other.template,
            other.parts,
        )

    def __hash__(self) -> int:
        return hash(self.template)

    def words(self, face: Face) -> str:
        """Return the sentence as a face writes it."""
        if not self.parts:
            return self.template

        def written(part: object) -> object:
            if isinstance(part, Message):
                return part.words(face)
            return face(part) if isinstance(part, Setting | Call) else part

        return self.template.format(*map(written, self.parts))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The parameters that are named, the one at fault first."""
        found: list[Setting] = []
        for part in self.parts:
            if isinstance(part, Setting):
                found.append(part)
            elif isinstance(part, Message):
                found += part.settings
        return tuple(found)


Problem = errors._NamesParameter


class WorkerError(Problem, RuntimeError):
    """A process that did a part of the work is dead."""


def _init(self: Problem, template: str, *parts: object, parameter: str | None = None) -> None:
    if len(parts) == 1 and isinstance(parts[0], str) and not re.search(r"\{(!r)?\}", template):
        parameter, parts = parts[0], ()
    message = Message(template, *parts)
    if parameter is None and message.settings:
        parameter = message.settings[0].name
    Exception.__init__(self, str(message))
    self.parameter = parameter


Problem.__init__ = _init  # type: ignore[method-assign, assignment]

__all__ = [
    "UNSET",
    "Advice",
    "Call",
    "Face",
    "Message",
    "Part",
    "Problem",
    "Setting",
    "Value",
    "WorkerError",
]
