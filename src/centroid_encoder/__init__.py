"""Centroid-Encoder: a supervised, parametric embedding you can believe."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from centroid_encoder import pl, tl, viewer
    from centroid_encoder.estimator import CentroidEncoder, load

__version__ = version("centroid-encoder")
__all__ = ["CentroidEncoder", "load", "pl", "tl", "viewer"]


# torch alone takes longer to import than most scripts take to run: nothing heavy until asked.
def __getattr__(name: str) -> Any:
    if name in ("pl", "tl", "viewer"):
        return import_module(f"{__name__}.{name}")
    if name in ("CentroidEncoder", "load"):
        return getattr(import_module(f"{__name__}.estimator"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
