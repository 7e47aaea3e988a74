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
    """Write messages to ``scanpy.settings.logfile`` if ``scanpy.settings.verbosity`` is 3 or more.

    Nothing changes where Python's logging is configured to show them already.
    """
    scanpy: Any = sys.modules.get("scanpy")
    if scanpy is None or logger.isEnabledFor(logging.INFO) or int(scanpy.settings.verbosity) < 3:
        yield
        return
    handler = logging.StreamHandler(scanpy.settings.logfile)
    handler.addFilter(lambda record: record.levelno < logging.WARNING or _pass_on(record))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Other handlers get only the warnings.
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = True


def _pass_on(record: logging.LogRecord) -> bool:
    """Hand a record to the handlers of the root logger, and keep it from this one."""
    if logging.root.handlers:
        logging.root.handle(record)
    return False
