"""New cells through a map, in a worker thread."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from qtpy.QtCore import QObject, Signal
from superqt.utils import create_worker

from centroid_encoder import tl
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tl._task import write_results
from centroid_encoder.viewer._training import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("centroid_encoder")


class Ingestion(QObject):
    """One call of `tl.ingest`: what the thread works on is nobody else's, but for the matrix.

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
        self._adata = _cells_of(adata)
        self._origin = origin
        self.key = str(arguments.get("key_added") or key)
        self._heard = True
        worker: Any = create_worker(
            _work,
            self._adata,
            _map_of(reference, key),
            {"key": key, "progress": False, **arguments},
            _start_thread=False,
            _ignore_errors=True,
        )
        # Bound methods of a QObject: Qt drops the connection with the object.
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
        """Forget it: the thread ends by itself, unheard."""
        self._heard = False

    def write(self, adata: AnnData) -> None:
        """Write the results into the AnnData of the new cells.

        Raises
        ------
        ValueError
            If it no longer has the cells that were sent through the map.
        """
        done, key = self._adata, self.key
        if not adata.obs_names.equals(done.obs_names):
            raise ValueError(
                "the cells of the table have changed since they were sent through the map: the "
                "results, which belong to the cells that were there, are not written"
            )
        done.uns[key]["params"]["ingested_from"] = self._origin
        obsm_key = "X_ce" if key == "ce" else key
        write_results(
            adata,
            {
                "obs": {str(name): done.obs[name].array for name in done.obs},
                "obsm": {obsm_key: done.obsm[obsm_key]},
                "uns": dict(done.uns),
            },
        )

    def _finish(self, outcome: list[str] | Failure) -> None:
        if not self._heard:
            return
        self._heard = False
        if isinstance(outcome, Failure):
            self.failed.emit(outcome.error)
        else:
            self.finished.emit(outcome)


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


def _work(adata: AnnData, reference: AnnData, arguments: dict[str, Any]) -> list[str] | Failure:
    """Send the cells through the map; runs in the thread. Returns the warnings."""
    warnings = _Warnings()
    logger.addHandler(warnings)
    try:
        tl.ingest(adata, reference, **arguments)
    except Exception as error:
        return Failure(error)
    finally:
        logger.removeHandler(warnings)
    return warnings.texts


class _Warnings(logging.Handler):
    """What is warned of in the thread that makes this."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.texts.append(record.getMessage())
