"""The napari plugin: train, watch, link image and map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from centroid_encoder._lazy import lazy

if TYPE_CHECKING:
    from centroid_encoder.viewer._widget import CentroidEncoderWidget, open

__all__ = ["CentroidEncoderWidget", "open"]
_get, __dir__ = lazy(__name__, {"CentroidEncoderWidget": "_widget", "open": "_widget"})


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        if error.name not in ("napari", "psygnal", "qtpy", "superqt", "magicgui"):
            raise
        raise ModuleNotFoundError(
            f"the viewer needs {error.name}: pip install 'centroid-encoder[all]'", name=error.name
        ) from error
