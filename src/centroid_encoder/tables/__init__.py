"""Other people's files and tables: what a table holds, how it is read, and what can be written."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
