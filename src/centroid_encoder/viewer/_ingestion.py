"""New cells through a map, in a worker thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from qtpy.QtCore import QObject, Signal
from superqt.utils import create_worker

from centroid_encoder import tl
from centroid_encoder.core.training import StoppedTooEarly
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tl._jobs import Job
from centroid_encoder.viewer._worker import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("centroid_encoder")


class Ingestion(QObject):
    """A `Job` in a worker thread: what it works on is nobody else's, but for the matrix.

    Every signal comes in the GUI thread. After `finished`, `failed` or `cancel` there are none.

    Parameters
    ----------
    adata
        The new cells.
    reference, key
        What carries the map, and which of its maps.
    origin
        What the reference is called.
    arguments
        Keyword arguments of `tl.ingest`.
    """

    reported = Signal(int)
    """So many cells are through the map."""
    finished = Signal(object)
    """The results can be written; with them come the warnings."""
    failed = Signal(object)
    """The exception that ended it."""

    def __init__(
        self,
        adata: AnnData,
        reference: AnnData,
        key: str,
        origin: str,
        arguments: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.key = str(arguments.get("key_added") or key)
        known = _map_of(reference, key)
        self._query: Job | None = None
        self._stop = Event()
        worker: Any = create_worker(
            _work,
            _cells_of(adata),
            known,
            {"key": key, **arguments},
            origin,
            self._stop.is_set,
            _start_thread=False,
            _ignore_errors=True,
        )
        # Bound methods of a QObject: Qt drops the connection with the object.
        worker.yielded.connect(self._pass_on)
        worker.returned.connect(self._finish)
        self._worker = worker

    @property
    def alive(self) -> bool:
        """Whether the thread is still at work, be it unheard."""
        return bool(self._worker.is_running)

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def cancel(self) -> None:
        """Forget it: the thread ends after the cells it is at, unheard."""
        self._stop.set()

    def write(self, adata: AnnData) -> None:
        """Write the results into the AnnData of the new cells.

        Raises
        ------
        RuntimeError
            If there are none yet.
        ValueError
            If it no longer has the cells that were sent through the map.
        """
        if self._query is None:
            raise RuntimeError("nothing to write: not all cells are through the map")
        self._query.write(adata)

    def _pass_on(self, n_done: int) -> None:
        if not self._stop.is_set():
            self.reported.emit(n_done)

    def _finish(self, outcome: tuple[Job, list[str]] | Failure | None) -> None:
        if self._stop.is_set() or outcome is None:
            return
        self._stop.set()
        if isinstance(outcome, Failure):
            self.failed.emit(outcome.error)
        else:
            self._query, warnings = outcome
            self.finished.emit(warnings)


def _cells_of(adata: AnnData) -> AnnData:
    """Cells with all that they may be told by, without what is said of them."""
    if adata.isbacked:
        adata = adata.to_memory()
    return AnnData(
        adata.X,
        obs=pd.DataFrame(index=adata.obs_names),
        var=pd.DataFrame(index=adata.var_names),
        layers=dict(adata.layers),
        obsm=dict(adata.obsm),
    )


def _map_of(reference: AnnData, key: str) -> AnnData:
    """What `tl.ingest` asks of a reference: the map, the labels and their colours on the screen."""
    stored = reference.uns[key]
    uns, label_key = {key: stored}, str(stored["params"]["label_key"])
    obs = pd.DataFrame(index=reference.obs_names)
    if label_key in reference.obs:
        obs[label_key] = reference.obs[label_key]
        uns[f"{label_key}_colors"] = np.array(list(label_colors(reference, label_key).values()))
    return AnnData(obs=obs, uns=uns)


def _work(
    adata: AnnData,
    known: AnnData,
    arguments: dict[str, Any],
    origin: str,
    stop: Callable[[], bool],
) -> Generator[int, None, tuple[Job, list[str]] | Failure | None]:
    """Send the cells through the map; runs in the thread. Returns the results and the warnings."""
    warnings = _Warnings()
    logger.addHandler(warnings)
    try:
        query = tl.ingest.job(adata, known, **arguments)
        query.origin = origin
        for step in query.steps(stop=stop):
            yield step.n_done
        warnings.texts += map(str, query.notices)
    except StoppedTooEarly:
        return None
    except Exception as error:  # Whatever it is, the GUI thread has to say it.
        return Failure(error)
    finally:
        logger.removeHandler(warnings)
    return query, warnings.texts


class _Warnings(logging.Handler):
    """What is warned of in the thread that makes this."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.texts.append(record.getMessage())
