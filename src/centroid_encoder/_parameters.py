"""The parameters of our public functions, read from their source: nothing is imported for it.

The command line and the widget's forms take names, defaults, types and help from here, so that an
option is written once: in the signature and the docstring of its function.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REQUIRED = inspect.Parameter.empty
"""Default of a parameter that has none."""
TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}

Function = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function."""

    name: str
    default: Any
    """`REQUIRED` if there is none."""
    types: tuple[type, ...]
    """Those of `TYPES` that the annotation allows, in its order."""
    choices: tuple[str, ...]
    """Strings that the annotation lists."""
    optional: bool
    """Whether it may be None."""
    doc: str
    """Its entry in the docstring, as it is written there."""

    @property
    def brief(self) -> str:
        """The first sentence of `doc`, with its markup."""
        return _sentences(self.doc)[0]

    @property
    def default_words(self) -> str | None:
        """What the docstring says of the default, as far as the first semicolon."""
        found = [text for text in _sentences(self.doc) if text.startswith("Default: ")]
        return found[0][len("Default: ") :].rstrip(".").partition(";")[0] if found else None


def parameters(function: Callable[..., Any] | str) -> dict[str, Parameter]:
    """Read the parameters of a function, or of a class's ``__init__``.

    Parameters
    ----------
    function
        One of ours, or its public name: ``"tl.ingest"`` needs no import.

    Returns
    -------
    dict[str, Parameter]
        In the order of the signature. "As in `name`." in the docstring stands for the entry of
        the function `name` beside it; of that the first sentence, if something else is added.
    """
    return _read(*_place(function))


def summary(function: Callable[..., Any] | str) -> str:
    """Return the first line of a function's docstring; the parameter is that of `parameters`."""
    return (ast.get_docstring(_definition(*_place(function))) or "").partition("\n\n")[0]


def plain(doc: str, name: Callable[[str], str] = str) -> str:
    """Return a docstring's text without markup.

    Parameters
    ----------
    doc
        Text with roles, literals, names in single backticks and references.
    name
        How to write what stands in single backticks: names of parameters and functions.
    """
    doc = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`| ?\[\d+\]_", r"\1", doc)
    return re.sub(
        r"``(.+?)``|`(.+?)`",
        lambda match: match[1] if match[1] is not None else name(match[2]),
        doc,
    )


def _place(function: Callable[..., Any] | str) -> tuple[str, str]:
    """Module and name."""
    if isinstance(function, str):
        package, _, name = function.rpartition(".")
        return f"{__package__}.{package}._{name}", name
    return function.__module__, function.__name__


def _definition(module: str, name: str) -> Function:
    """Parse one definition alone: whole modules would take too long for ``--help``."""
    # It ends where a line begins with anything but the bracket that closes its parameters.
    found = re.search(rf"^(?:def|class) {name}\b.*?(?=^[^\s)]|\Z)", _source(module), re.M | re.S)
    if found is None:
        raise AttributeError(f"{module} defines no {name}")
    [node] = ast.parse(found[0]).body
    assert isinstance(node, Function)
    return node


@cache
def _read(module: str, name: str) -> dict[str, Parameter]:
    node = _definition(module, name)
    docs = dict(_entries(ast.get_docstring(node) or ""))
    if isinstance(node, ast.ClassDef):
        [node] = (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += [*arguments.defaults, *arguments.kw_defaults]
    found = {}
    for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        if argument.arg == "self":
            continue
        parts = [] if argument.annotation is None else list(_parts(argument.annotation, module))
        doc = docs.get(argument.arg, "")
        if same := re.match(r"As in `(\w+)`\. ?", doc):
            theirs = _read(f"{module.rpartition('.')[0]}._{same[1]}", same[1])[argument.arg]
            own = doc[same.end() :]
            doc = f"{theirs.brief} {own}" if own else theirs.doc
        found[argument.arg] = Parameter(
            name=argument.arg,
            default=REQUIRED if default is None else ast.literal_eval(default),
            types=tuple(part for part in parts if isinstance(part, type)),
            choices=tuple(part for part in parts if isinstance(part, str)),
            optional=None in parts,
            doc=doc,
        )
    return found


@cache
def _source(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no source of {module}")
    return Path(spec.origin).read_text("utf-8")


def _parts(annotation: ast.expr, module: str) -> Iterator[type | str | None]:
    """Types, strings and None that an annotation allows; what is anything else is left out."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            yield from _parts(left, module)
            yield from _parts(right, module)
        case ast.Constant(value=None):
            yield None
        case ast.Subscript(value=ast.Name(id="Literal"), slice=listed):
            for item in listed.elts if isinstance(listed, ast.Tuple) else [listed]:
                value = ast.literal_eval(item)
                if value is None or isinstance(value, str):
                    yield value
        case ast.Name(id=name) if name in TYPES:
            yield TYPES[name]
        case ast.Name(id=name):
            yield from _alias(name, module)


def _alias(name: str, module: str) -> Iterator[type | str | None]:
    """The same of a name, in the module of ours that defines it in one line."""
    source = _source(module)
    if alias := re.search(rf"^{name}(?:: \w+)? = (.+)$", source, re.M):
        yield from _parts(ast.parse(alias[1], mode="eval").body, module)
        return
    for found in re.finditer(r"^ *from (\S+) import (\([^)]*\)|.*)$", source, re.M):
        if name in re.findall(r"\w+", found[2]) and found[1].startswith(f"{__package__}."):
            yield from _alias(name, found[1])


def _entries(docstring: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the section "Parameters" of a numpydoc docstring."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n\w+\n-+\n|\Z)", docstring, re.M | re.S)
    if section is None:
        return
    for entry in re.split(r"\n(?=\S)", section[1]):
        names, _, text = entry.partition("\n")
        for name in names.partition(" : ")[0].split(", "):
            yield name, " ".join(text.split())


def _sentences(doc: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z`\d])", doc)
