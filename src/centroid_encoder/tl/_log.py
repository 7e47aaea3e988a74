"""The package's log, shown where scanpy shows its own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("centroid_encoder")
# Without a handler, Python would print each warning a second time.
logger.addHandler(logging.NullHandler())


@contextmanager
def shown_as_scanpy() -> Iterator[None]:
    """Show messages if ``scanpy.settings.verbosity`` is 3 or more.

    They go to the handlers of Python's logging, or else to ``scanpy.settings.logfile``.
    """
    scanpy: Any = sys.modules.get("scanpy")
    if scanpy is None or logger.isEnabledFor(logging.INFO) or int(scanpy.settings.verbosity) < 3:
        yield
        return
    own = not logging.root.handlers
    handler = logging.StreamHandler(scanpy.settings.logfile) if own else logging.NullHandler()
    # Python shows the warnings.
    handler.addFilter(lambda record: record.levelno < logging.WARNING)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
