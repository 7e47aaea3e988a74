from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

RIVALS = {"cebra", "minisom", "openTSNE", "pacmap", "pytorch_metric_learning", "skactiveml"}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    """Skip a test whose rival is absent: only the group ``dev`` includes the group ``rivals``."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if error.name not in RIVALS:
            raise
        pytest.skip(f"needs {error.name}")
