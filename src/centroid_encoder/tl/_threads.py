"""On how many threads something is computed."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

import torch
from joblib import parallel_config
from threadpoolctl import ThreadpoolController

Step = TypeVar("Step")
Ended = TypeVar("Ended")


def on_threads(steps: Generator[Step, None, Ended], n_threads: int) -> Generator[Step, None, Ended]:
    """Take steps on so many threads; between them, there are as many as before."""
    controller = ThreadpoolController()
    while True:
        n_before = torch.get_num_threads()
        torch.set_num_threads(n_threads)
        try:
            # scikit-learn asks joblib, too; what is asked within a training stays within it.
            with controller.limit(limits=n_threads), parallel_config("sequential"):
                step = next(steps)
        except StopIteration as end:
            return cast(Ended, end.value)
        finally:
            torch.set_num_threads(n_before)
        yield step
