"""Errors about arguments and data, and the warning that users may filter."""

from __future__ import annotations

import sys
import warnings
from typing import Any


class _NamesParameter(Exception):
    """Error with the name of the wrong parameter. The widget marks its field."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class InputError(_NamesParameter, ValueError):
    """A value that cannot be used."""


class UnreadableError(InputError, OSError):
    """A file that is damaged, of another kind, or contains a link."""


class InputTypeError(_NamesParameter, TypeError):
    """A value of a type that cannot be used."""


class MissingKeyError(_NamesParameter, KeyError):
    """A key that does not exist. Its text is not in quotes, unlike that of a KeyError."""

    def __str__(self) -> str:
        return str(self.args[0])


class DivergedError(_NamesParameter, FloatingPointError):
    """A training whose loss is not finite."""


class CentroidEncoderWarning(UserWarning):
    """A warning about data or results; nothing failed."""


def issue_warning(text: str, stacklevel: int) -> None:
    """Issue a `CentroidEncoderWarning`, unless ``scanpy.settings.verbosity`` is 0.

    The `stacklevel` is that of `warnings.warn` in the calling function. scanpy is not imported.
    """
    scanpy = sys.modules.get("scanpy")
    if scanpy is None or scanpy.settings.verbosity > 0:
        warnings.warn(text, CentroidEncoderWarning, stacklevel=stacklevel + 1)


def check(
    fits: object, text: str, parameter: str | None = None, kind: type[_NamesParameter] = InputError
) -> None:
    """Raise an error with a text and the name of the wrong parameter unless `fits`."""
    if not fits:
        raise kind(text, parameter)


def check_name(value: object, parameter: str, what: str, kind: Any = str) -> None:
    """Raise an InputTypeError if the name of `what` is no string, for example a Series."""
    text = f"{parameter} must be the name of {what}, a string; got {type(value).__name__}"
    check(isinstance(value, kind), text, parameter, InputTypeError)
