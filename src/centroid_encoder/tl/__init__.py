"""Tools: functions that compute on an AnnData, or read what they wrote into it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
