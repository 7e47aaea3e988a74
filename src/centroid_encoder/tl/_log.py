"""What we log, shown where scanpy shows its own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("centroid_encoder")


@contextmanager
def shown_as_scanpy() -> Iterator[None]:
    """Show what is logged meanwhile if ``scanpy.settings.verbosity`` asks for such messages.

    They go to ``scanpy.settings.logfile``, without a word before them. Where Python's logging lets
    them through already, somebody has configured it, and nothing is changed. Warnings go their
    usual way in any case.
    """
    scanpy: Any = sys.modules.get("scanpy")
    if scanpy is None or logger.isEnabledFor(logging.INFO) or int(scanpy.settings.verbosity) < 3:
        yield
        return
    handler = _Beside(scanpy.settings.logfile)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Handlers of others, who asked for warnings only, are to get no more than these.
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _Beside(logging.StreamHandler[Any]):
    """Writes messages that are no warnings, and hands warnings on."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            super().emit(record)
        elif logger.parent is not None:
            logger.parent.handle(record)
