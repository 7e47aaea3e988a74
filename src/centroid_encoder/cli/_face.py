"""Messages in the words of those who type options."""

from __future__ import annotations

import shlex
from functools import cache

from centroid_encoder import pl
from centroid_encoder._parameters import parameters
from centroid_encoder.cli._options import LEFT_TO_PYTHON, option_names
from centroid_encoder.errors import UNSET, Advice, Call, Part, Problem, Setting, Value

COMMANDS = {
    "tl.centroid_encoder": "fit",
    "tl.cross_validate": "cross-validate",
    "tl.ingest": "ingest",
    "tl.measure": "measure",
    **{f"pl.{name}": f"plot {name.replace('_', '-')}" for name in pl.__all__},
}


def face(part: Part) -> str:
    """Write a parameter as an option and a function as a command, where there is one."""
    if isinstance(part, Call):
        if part.name not in COMMANDS:
            return str(part)
        first, *others = part.arguments or (Setting("label_key"),)
        given = [first if isinstance(first, Setting) else Setting("label_key", first), *others]
        # A parameter without a value is only mentioned.
        options = [face(one) for one in given if one.value is not UNSET]
        return " ".join(["centroid-encoder", COMMANDS[part.name], *options])
    if part.name not in _options():
        return str(part)
    if isinstance(part, Value):
        return str(part.value)
    text = f"{_option(part)} {part.effect}".rstrip()
    return f"pass {text}" if isinstance(part, Advice) else text


def words(error: BaseException) -> str:
    """What an exception says, in one line."""
    if isinstance(error, Problem):
        text = error.message.words(face)
    else:
        # A KeyError quotes its message.
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


def _option(setting: Setting) -> str:
    option = option_names(setting.name)[0]
    if setting.value is UNSET or setting.value is True:
        return option
    if setting.value is None or setting.value is False:
        return option.replace("--", "--no-", 1)
    return f"{option} {shlex.quote(str(setting.value))}"


@cache
def _options() -> set[str]:
    """Names of the parameters that are options of a command."""
    return {name for function in COMMANDS for name in parameters(function)} - LEFT_TO_PYTHON
