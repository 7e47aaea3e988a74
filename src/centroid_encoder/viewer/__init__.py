"""The napari plugin: train, watch, link image and map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
    from centroid_encoder.viewer._widget import CentroidEncoderWidget, open

__all__ = ["CentroidEncoderWidget", "open"]
_get, __dir__, _ = lazy_loader.attach(__name__, submod_attrs={"_widget": __all__})


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        if error.name not in ("napari", "psygnal", "qtpy", "superqt", "magicgui"):
            raise
        raise ModuleNotFoundError(
            f"the viewer needs {error.name}: pip install 'centroid-encoder[all]'", name=error.name
        ) from error
