"""Centroid-Encoder: a supervised, parametric embedding with honest errors."""

from importlib.metadata import version

import lazy_loader

__version__ = version("centroid-encoder")
# The stub lists the public names; they are imported on first use, since PyTorch is slow.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
