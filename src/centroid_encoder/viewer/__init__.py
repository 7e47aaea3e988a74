"""The napari plugin: train, watch, link image and map."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from centroid_encoder.viewer._open import open
    from centroid_encoder.viewer._widget import CentroidEncoderWidget

__all__ = ["CentroidEncoderWidget", "open"]

_HOMES = {"CentroidEncoderWidget": "_widget", "open": "_open"}


# npe2 imports this package to see what it offers: no Qt until asked.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("napari", "qtpy", "superqt", "magicgui"):
            raise
        raise ModuleNotFoundError(
            f"the viewer needs {error.name}: pip install 'centroid-encoder[all]'", name=error.name
        ) from error


def __dir__() -> list[str]:
    return [*globals(), *__all__]
