"""Parameters of public functions, from which the command line and the widget's forms are made.

They are read from the source, because PyTorch, which the functions import, is slow.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from docstring_parser import parse

PACKAGES = Path(__file__).parents[1]
SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z`\d])")


@cache
def parameters(name: str) -> dict[str, tuple[list[str], Any, str]]:
    """Return the types, the default and the help of each parameter of a public function.

    `name` is ``"tl.ingest"``, for example. Types are texts, in which names of this package are
    replaced; the default is ``...`` if there is none. The help is the entry of the docstring, with
    markup. "As in `other`." in it is replaced by the entry of the function `other` of the same
    package, or by its first sentence if more text follows.
    """
    module, function = _function(name)
    docs = {
        one: " ".join((entry.description or "").split())
        for entry in parse(ast.get_docstring(function) or "").params
        for one in entry.arg_name.split(", ")
    }
    arguments = [*function.args.args, *function.args.kwonlyargs]
    values: list[Any] = [*function.args.defaults, *function.args.kw_defaults]
    # Parameters without a default come first.
    values = [None] * (len(arguments) - len(values)) + values
    found = {}
    for argument, value in zip(arguments, values, strict=True):
        if isinstance(value, ast.Name):
            value = _find(module, value.id)[1]
        default = ... if value is None else ast.literal_eval(value)
        doc = docs.get(argument.arg, "")
        if same := re.match(r"(?:A|[\w ]+, a)s in `(\w+)`\. ?", doc):
            theirs = parameters(f"{name.partition('.')[0]}.{same[1]}")[argument.arg][2]
            own = doc[same.end() :]
            doc = f"{SENTENCE_END.split(theirs)[0]} {own}" if own else theirs
        found[argument.arg] = _kinds(module, argument.annotation), default, doc
    return found


def description(name: str) -> str:
    """Return the docstring of a public function up to the parameters, without markup."""
    doc = ast.get_docstring(_function(name)[1]) or ""
    return plain(doc.partition("\n\nParameters\n")[0])


def plain(doc: str) -> str:
    """Return a text without markup."""
    doc = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`| ?\[\d+\]_", r"\1", doc)
    return re.sub(r"`+(.+?)`+", r"\1", doc)


@cache
def _function(name: str) -> tuple[str, ast.FunctionDef]:
    """Return the module and the definition of a public function, with its docstring alone."""
    package, own = name.split(".")
    module, source = _find(f"centroid_encoder.{package}", own)
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    return module, function


def _find(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines a name, and the source; none if it is of another package.

    Whole modules are not parsed, which would be slow.
    """
    text = _text(module)
    if found := re.search(rf'^def {name}\(.*?""".*?"""|^{name} = (.+?)$', text, re.M | re.S):
        return module, found[1] or found[0]
    imported = rf"^from (centroid_encoder)?(\.[\w.]+) import (\([^)]*|.*)\b{name}\b"
    if found := re.search(imported, text, re.M):
        return _find((found[1] or module) + found[2], name)
    return module, ""


@cache
def _text(module: str) -> str:
    """Return the text of a module; that of the stub if it is a package."""
    path = PACKAGES.joinpath(*module.split("."))
    path = path / "__init__.pyi" if path.is_dir() else path.with_suffix(".py")
    return path.read_text(encoding="utf-8")


def _kinds(module: str, annotation: Any) -> list[str]:
    """Return the parts of a union as texts; names of this package are replaced by their values."""
    if isinstance(annotation, ast.BinOp):
        return [*_kinds(module, annotation.left), *_kinds(module, annotation.right)]
    text = ast.unparse(annotation)
    module, source = _find(module, text) if text.isidentifier() else (module, "")
    return _kinds(module, ast.parse(source, mode="eval").body) if source else [text]
