"""Send new cells through a map."""

from __future__ import annotations

import json
import logging
import numbers
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from centroid_encoder.core.map import CodedMap
from centroid_encoder.core.rows import Matrix, looks_like_counts, looks_whole
from centroid_encoder.core.training import StoppedTooEarly, never
from centroid_encoder.errors import Advice, Call, InputError, Message, Setting
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import read_matrix
from centroid_encoder.tl._features import Features, MissingFeatures, match_features
from centroid_encoder.tl._jobs import Progress, Results, from_job, result_key, write_job
from centroid_encoder.tl._matrix import check_finite, check_real, in_memory, is_lazy
from centroid_encoder.tl._reference import Reference, read_reference
from centroid_encoder.tl._stored import (
    QUERY,
    UNASSIGNED,
    Column,
    StoredMap,
    colors_key,
    embedding_key,
    obs_key,
)

if TYPE_CHECKING:
    from anndata import AnnData

CHUNK = 4096
"""Cells that go through at once, at most."""
VALUES_AT_ONCE = 2**24
"""Values of these cells, at most."""

logger = logging.getLogger("centroid_encoder")


@from_job
def ingest(
    adata: AnnData,
    reference: AnnData | CentroidEncoder | str | os.PathLike[str],
    *,
    key: str = "ce",
    layer: str | None = None,
    use_rep: str | None = None,
    missing: MissingFeatures = "error",
    max_missing: float = 0.2,
    min_confidence: float = 0.0,
    max_novelty: float = 1.0,
    key_added: str | None = None,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> Ingestion:
    """Embed and label new cells by a map that was trained on others. Nothing is trained.

    Two kinds of doubt are told apart: between the classes of the map (confidence), and about
    cells unlike anything the map has seen (novelty). Of neither is a label a proof: batches differ,
    and a map has no word for a class that it does not know.

    The cells go through in chunks: sparse data never become dense as a whole, and files and dask
    arrays never come into memory as a whole.

    Parameters
    ----------
    adata
        Annotated data of the new cells, the query: normalised like the reference.
    reference
        What carries the map: an AnnData after `centroid_encoder`, a fitted `CentroidEncoder`, or
        the path of a ``.safetensors`` or ``.h5ad`` file.
    key
        Name of the map in the reference, as given to `key_added`.
    layer
        Key of ``adata.layers`` with the query's values. Default: where the reference had them.
    use_rep
        Key of ``adata.obsm`` with the query's values, or ``"X"``. Default: where the reference had
        them.
    missing
        What to do about genes that the map looks at and the query lacks, and about NaN: raise an
        error, or put the mean of the training cells in their place (``"mean"``).
    max_missing
        With ``"mean"``, the share of the map's genes that may be missing, in [0, 1].
    min_confidence
        Cells of less confidence are ``"unassigned"`` (missing, where classes are no strings). By
        default every cell gets the best guess.
    max_novelty
        Cells of more novelty are ``"unassigned"`` as well.
    key_added
        Name for the results. Default: `key`; this replaces a map that
        was trained on the same cells, and a warning says so.
    device
        Where to compute: ``"auto"`` or a torch device. Default: ``"auto"``; for a
        `CentroidEncoder`, where that is.
    progress
        Show a progress bar.
    copy
        Return a changed copy instead of changing `adata`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obsm["X_ce"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            The embedding, n_obs × n_components, among the cells of the reference.
        ``adata.obs["ce_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Predicted class; ``"unassigned"`` where a threshold says so.
        ``adata.obs["ce_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Probability of the predicted class.
        ``adata.obs["ce_novelty"]`` : :class:`pandas.Series` (dtype ``float32``)
            Share of the training cells that are less novel, in [0, 1]; NaN for a map that has not
            learned it (see `CentroidEncoder.fit_novelty`).
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"query"``.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``, with the origin of the map as ``ingested_from``; ``classes``, ``centers``
            and ``model`` of the reference: the query carries the map, too.
        ``adata.uns["ce_label_colors"]`` : :class:`list`
            Colours of the classes, where the reference has some.

    Raises
    ------
    KeyError
        If the reference has no map under that key, or if a layer or representation is missing.
    FileNotFoundError
        If there is no such file.
    InvalidStateError
        If what is stored is not a complete map.
    ValueError
        If a file is damaged, if genes are missing (the message says how many, and which), if the
        query looks like raw counts and the training data were no whole numbers, or if values
        cannot be used. `adata` is then as it was.

    Notes
    -----
    Genes are matched by name, in any order, and where that fails without regard to case. Genes
    that the map does not know are left aside; genes it knows but does not look at (of weight 0)
    may be missing. A map without names, as of a representation, needs as many columns.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> known, new = adata[:600].copy(), adata[600:].copy()
    >>> ce.tl.centroid_encoder(known, "bulk_labels", progress=False)
    >>> ce.tl.ingest(new, known, min_confidence=0.5, progress=False)
    >>> new.obsm["X_ce"].shape
    (100, 2)
    """
    del progress, copy  # of these `from_job` takes care
    if missing not in get_args(MissingFeatures):
        raise InputError("{} must be 'error' or 'mean'; got {!r}", Setting("missing"), missing)
    for name, share in (
        ("max_missing", max_missing),
        ("min_confidence", min_confidence),
        ("max_novelty", max_novelty),
    ):
        if not isinstance(share, numbers.Real) or not 0 <= float(share) <= 1:
            raise InputError("{} must be a number in [0, 1]; got {!r}", Setting(name), share)
    result_key(key_added)
    if not adata.n_obs:
        raise InputError("adata has no cells")
    known = read_reference(reference, key, device)
    logger.info("ingesting %d cells into the map of %s", adata.n_obs, known.origin)
    X, where, names = read_matrix(
        adata,
        use_rep=use_rep or (None if layer else known.setting("use_rep")),
        layer=layer or (None if use_rep else known.setting("layer")),
    )
    features, notices = match_features(
        known.model, X.shape[1], names, where, missing, float(max_missing)
    )
    own = StoredMap.read(adata, key_added or key)
    if own is not None and own.ingested_from is None:
        text = (
            "the result {!r}, which was trained on these cells, is replaced; pass another {} to "
            "keep both"
        )
        notices.insert(0, Message(text, key_added or key, Setting("key_added")))
    return Ingestion(
        NewCells(X, where, adata.obs_names, features, missing),
        known,
        key_added or key,
        notices=notices,
        min_confidence=float(min_confidence),
        max_novelty=float(max_novelty),
    )


@dataclass(frozen=True)
class NewCells:
    """The cells to be sent through a map."""

    X: Any
    """(n_obs, …) matrix as the AnnData has it: dense or sparse, in memory, on disk or dask."""
    where: str
    """What it is called."""
    obs_names: pd.Index
    features: Features
    """Which of its columns are the features of the map."""
    missing: MissingFeatures
    """What to do about gaps."""

    def detached(self) -> NewCells:
        """Return the same with a matrix of their own."""
        return replace(self, X=in_memory(self.X) if is_lazy(self.X) else self.X.copy())

    def read(self, part: slice, model: CentroidEncoder, notices: list[Message]) -> Matrix:
        """Read a part of the cells: (n, d) finite values in the order of the map's features."""
        x, where = in_memory(self.X[part]), self.where
        check_real(x, where)
        if part.start == 0:
            _check_counts(self.features.found(x), where, model, notices)
        x = self.features.arranged(x, model.feature_means_, fill=self.missing == "mean")
        if self.missing == "error":
            if part != slice(0, len(self.obs_names)):
                where += f" (cells {part.start:,} to {part.stop - 1:,})"
            advice = Message(
                "; {} to put the mean of the training cells in their place",
                Advice("missing", "mean"),
            )
            names = getattr(model, "feature_names_in_", None)
            check_finite(x, where, self.obs_names[part], names, advice)
        return x


def _check_counts(x: Matrix, where: str, model: CentroidEncoder, notices: list[Message]) -> None:
    counts = model.trained_on_counts_
    if looks_like_counts(x) and not counts:
        raise InputError(
            "{} looks like raw counts, but the map was trained on other values; do to it what "
            "was done to the training data (sc.pp.normalize_total, sc.pp.log1p), or choose the "
            "values to which that was done ({})",
            where,
            Setting("layer"),
        )
    if counts and not looks_whole(x):
        text = "the map was trained on whole numbers, like counts; {} holds others"
        notices.append(Message(text, where))


class Ingestion:
    """The `Job` of sending new cells through a map.

    Parameters
    ----------
    cells
        The new cells.
    known
        The map.
    key
        Name of the results.
    notices
        What to warn of already.
    min_confidence, max_novelty
        As in `ingest`.

    Attributes
    ----------
    origin
        What the reference is called, for ``uns[key]["params"]["ingested_from"]``; may be changed
        before the first of the `steps`.
    """

    def __init__(
        self,
        cells: NewCells,
        known: Reference,
        key: str,
        *,
        notices: list[Message],
        min_confidence: float,
        max_novelty: float,
    ) -> None:
        self._started = time.perf_counter()
        if max_novelty < 1 and not known.model.knows_novelty:
            raise InputError(
                "{} needs a map that has learned what is usual: train it with {}, or call its "
                "fit_novelty",
                Setting("max_novelty"),
                Call("tl.centroid_encoder"),
            )
        self.key, self.obs_names, self.notices = key, cells.obs_names, notices
        self.origin = known.origin
        self._cells, self._known = cells, known
        self._min_confidence, self._max_novelty = min_confidence, max_novelty
        self._results: Results | None = None

    def detach(self) -> None:
        """See `Job`."""
        self._cells = self._cells.detached()

    def steps(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Progress, None, None]:
        """Send the cells through the map, a chunk at a time; see `Job`."""
        del snapshot
        n, model = len(self.obs_names), self._known.model
        map_ = model.in_order(np.asarray(self._known.classes.tolist()))
        embedding = np.empty((n, map_.centers.shape[1]), dtype=np.float32)
        predicted = np.empty(n, dtype=np.intp)
        confidence = np.empty(n, dtype=np.float32)
        novelty = np.full(n, np.nan, dtype=np.float32)
        for part in gen_batches(n, max(1, min(CHUNK, VALUES_AT_ONCE // model.n_features_in_))):
            if stop():
                raise StoppedTooEarly
            x = self._cells.read(part, model, self.notices)
            embedding[part] = map_.embed(x)
            predicted[part], confidence[part] = map_.decide(embedding[part])
            if map_.knows_novelty:
                novelty[part] = map_.novelty(x)
            yield Progress(part.stop, n)
        n_novel = int((novelty > 0.99).sum())
        if n_novel > n / 2:
            text = (
                "most cells are unlike anything in training (novelty above 0.99 in {} of {}): is "
                "the preprocessing the same, down to the normalisation?"
            )
            self.notices.append(Message(text, n_novel, n))
        self._results = self._compute(map_, embedding, predicted, confidence, novelty)

    def write(self, adata: AnnData) -> None:
        """Write all results into `adata`, or nothing; see `Job`."""
        write_job(adata, self.obs_names, self._results, self._started)

    def _compute(
        self,
        map_: CodedMap,
        embedding: NDArray[np.float32],
        predicted: NDArray[np.intp],
        confidence: NDArray[np.float32],
        novelty: NDArray[np.float32],
    ) -> Results:
        known, key, classes = self._known, self.key, self._known.classes
        assigned = confidence >= self._min_confidence
        if self._max_novelty < 1:
            assigned &= novelty <= self._max_novelty
        logger.info(
            "    %d of %d cells are assigned to a class", int(assigned.sum()), len(assigned)
        )
        codes, categories = np.where(assigned, predicted, -1), classes
        thresholds = self._min_confidence > 0 or self._max_novelty < 1
        if thresholds and isinstance(classes[0], str) and UNASSIGNED not in classes:
            categories = classes.append(pd.Index([UNASSIGNED]))
            codes = np.where(assigned, codes, len(classes))
        columns: dict[Column, Any] = {
            "label": pd.Categorical.from_codes(codes, categories),
            "confidence": confidence,
            "novelty": novelty,
            "split": pd.Categorical.from_codes(np.zeros(len(codes), int), [QUERY]),
        }
        params: dict[str, Any] = {
            "ingested_from": self.origin,
            "label_key": obs_key(key, "label"),
            "n_missing": self._cells.features.n_missing,
            "min_confidence": self._min_confidence,
            "max_novelty": self._max_novelty,
        }
        if len(categories) > len(classes):
            params["unlabeled_category"] = UNASSIGNED
        for name in ("label_key", "use_rep", "layer"):
            if (value := known.setting(name)) is not None:
                params[f"reference_{name}"] = value
        config, arrays = known.model.to_state()
        model = {"config": json.dumps(config), "arrays": arrays}
        stored = StoredMap(params, classes, map_.centers, model=model)
        uns: dict[str, Any] = {key: stored.to_uns()}
        if known.colors is not None:
            gray = ["#bebebe"] * (len(categories) - len(classes))
            uns[colors_key(obs_key(key, "label"))] = [*known.colors, *gray]
        return {
            "obs": {obs_key(key, name): values for name, values in columns.items()},
            "obsm": {embedding_key(key): embedding},
            "uns": uns,
        }
