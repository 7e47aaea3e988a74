"""What `tl` and `pl` say to those who write Python, for those who type options."""

from __future__ import annotations

import re
import shlex

COMMANDS = {
    "tl.centroid_encoder": "fit",
    "tl.cross_validate": "cross-validate",
    "tl.ingest": "ingest",
}
QUOTES = "'\""
VALUE = r"""'[^']*'|"[^"]*"|\w[\w.]*(?<!\.)"""
CALL = re.compile(rf"ce\.((?:tl|pl)\.\w+)(?:\(adata((?:,\s*(?:\w+=)?(?:{VALUE}))*)\))?")
ARGUMENT = re.compile(rf"(?:(\w+)=)?({VALUE})")
NAMES = (
    "group_key|key_added|mask_var|max_missing|max_novelty|max_own|min_confidence|n_components|n_folds"
    "|n_permutations|n_repeats|test_size|unlabeled_category|use_rep"
)
KEYWORD = re.compile(rf"\b({NAMES}|layer|missing)=({VALUE})")
# In quotes it is a column of that name.
NAME = re.compile(rf"""(?<!['"\w-])({NAMES})(?!['"\w])""")


def in_words(error: BaseException) -> str:
    """What an exception says, in one line; KeyError quotes its message."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(as_options(text).split()) or type(error).__name__


def as_options(text: str) -> str:
    """Turn calls into commands and keyword arguments into options."""
    text = KEYWORD.sub(lambda match: _option(*match.groups()), CALL.sub(_command, text))
    return NAME.sub(lambda match: f"--{match[0].replace('_', '-')}", text)


def _command(match: re.Match[str]) -> str:
    name, given = match.groups()
    command = COMMANDS.get(name)
    if command is None:
        if not name.startswith("pl."):
            return match[0]
        command = "plot " + name.removeprefix("pl.").replace("_", "-")
    # A label_key that is only spoken of is not worth a word.
    options = [
        _option(keyword or "label_key", value)
        for keyword, value in ARGUMENT.findall(given or "")
        if value != "label_key"
    ]
    return " ".join(["centroid-encoder", command, *options])


def _option(name: str, value: str) -> str:
    option = name.replace("_", "-")
    if value == "None":
        return f"--no-{option}"
    return f"--{option} {shlex.quote(value.strip(QUOTES))}"
