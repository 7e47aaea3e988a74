"""Send new cells through a map."""

from __future__ import annotations

import json
import logging
import numbers
import os
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from centroid_encoder.core.map import FittedMap
from centroid_encoder.errors import Call, InputError, Message, Setting
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import read_matrix
from centroid_encoder.tl._dask import has_own_chunks, where_chunks_are
from centroid_encoder.tl._judge import Found, Judge
from centroid_encoder.tl._lazy import LazyMatrix, is_lazy
from centroid_encoder.tl._names import check_free
from centroid_encoder.tl._new_cells import MissingFeatures, NewCells, match_features
from centroid_encoder.tl._reference import Reference, read_reference
from centroid_encoder.tl._run import Callback, Job, Results, from_job, result_key
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

SHIFTED = 0.5
"""Lower quartile of novelty above which a query is shifted as a whole."""
LEAST_CELLS = 20
"""Cells of which a quartile says something."""

logger = logging.getLogger("centroid_encoder")


@from_job
def ingest(
    adata: AnnData,
    reference: AnnData | CentroidEncoder | str | os.PathLike[str],
    *,
    key: str = "ce",
    layer: str | None = None,
    use_rep: str | None = None,
    use_raw: bool = False,
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

    The cells go through in chunks: sparse data never become dense as a whole, and files never come
    into memory as a whole. Chunks of dask arrays are judged where they are, under the scheduler
    that dask has been told, such as on the workers of a cluster; only what is found comes back.

    Parameters
    ----------
    adata
        Annotated data of the new cells, the query: normalised like the reference.
    reference
        What carries the map: an AnnData after `centroid_encoder`, a fitted `CentroidEncoder`, or
        the path of a ``.safetensors`` or ``.h5ad`` file, or of a ``.zarr`` store.
    key
        Name of the map in the reference, as given to `key_added`.
    layer
        Key of ``adata.layers`` with the query's values. Default: where the reference had them.
    use_rep
        Key of ``adata.obsm`` with the query's values, or ``"X"``. Default: where the reference had
        them.
    use_raw
        Take the query's values from ``adata.raw``; by default where the reference had them.
    missing
        What to do about genes that the map looks at and the query lacks, and about NaN: raise an
        error, or put the mean of the training cells in their place (``"mean"``).
    max_missing
        With ``"mean"``, the share of the map's genes that may be missing, in [0, 1]: of the query,
        else it is refused; and of a cell, NaN included, else the cell is ``"unassigned"`` and its
        place, confidence and novelty are NaN. A cell without any value is so in any case.
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
            Predicted class; ``"unassigned"`` beyond a threshold or `max_missing`.
        ``adata.obs["ce_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Probability of the predicted class.
        ``adata.obs["ce_novelty"]`` : :class:`pandas.Series` (dtype ``float32``)
            Share of the training cells that are less novel, in [0, 1]; NaN for a map that has not
            learned it (see `CentroidEncoder.fit_novelty`).
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"query"``.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``, with the origin of the map as ``ingested_from`` and ``novelty_quartile``,
            the novelty that three in four cells exceed (0.25 for cells like the training cells);
            ``classes``, ``centers`` and ``model`` of the reference: the query carries the map, too.
        ``adata.uns["ce_label_colors"]`` : :class:`list`
            Colours of the classes, where the reference has some.

    Raises
    ------
    KeyError
        If the reference has no map under that key, or if a layer or representation is missing.
    OSError
        If there is no such file, or if a folder is no zarr store of an AnnData or contains a link.
    InvalidStateError
        If what is stored is not a complete map.
    ValueError
        If a file is damaged, if genes are missing (the message says how many, and which), if the
        query looks like raw counts and the training data were no whole numbers, or if values
        cannot be used. `adata` is then as it was.
    RuntimeError
        If workers of a dask cluster died again and again.

    Notes
    -----
    Genes are matched by name, in any order, and where that fails without regard to case. Genes
    that the map does not know are left aside; genes it knows but does not look at (of weight 0)
    may be missing. A map without names, as of a representation, needs as many columns.

    A cell's results depend on that cell and on the genes that the whole query lacks, not on other
    cells, their order or chunks. Novelty is counted on the genes that the query has.
    In 22 of 27 queries without a warning of a shift, ``max_novelty=0.92`` flagged at most 10 % of
    the known cells; in the others, up to 15 %. It flagged at least 80 % of the unknown cells in all
    14 of them where some threshold could at that price (``python -m benchmarks.doubts``).

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
    if missing == "error" and max_missing != 0.2:
        settings = Setting("max_missing", max_missing), Setting("missing", missing)
        raise InputError("{} has no effect with {}", *settings)
    for name, share in (
        ("max_missing", max_missing),
        ("min_confidence", min_confidence),
        ("max_novelty", max_novelty),
    ):
        if not isinstance(share, numbers.Real) or not 0 <= float(share) <= 1:
            raise InputError("{} must be a number in [0, 1]; got {!r}", Setting(name), share)
    key_added = key if key_added is None else result_key(key_added)
    check_free(adata, key_added)
    if not adata.n_obs:
        raise InputError("adata has no cells")
    known = read_reference(reference, key, device)
    logger.info("ingesting %d cells into the map of %s", adata.n_obs, known.origin)
    chosen = use_rep is not None or layer is not None or use_raw
    X, where, names = read_matrix(
        adata,
        use_rep=use_rep if chosen else known.setting("use_rep"),
        layer=layer if chosen else known.setting("layer"),
        use_raw=use_raw if chosen else known.setting("use_raw") is not None,
    )
    index, n_missing, notices = match_features(
        known.model, X.shape[1], names, where, missing, float(max_missing)
    )
    own = StoredMap.read(adata, key_added)
    if own is not None and own.ingested_from is None:
        text = (
            "the result {!r}, which was trained on these cells, is replaced; pass another {} to "
            "keep both"
        )
        notices.insert(0, Message(text, key_added, Setting("key_added")))
    return Ingestion(
        NewCells(
            X=X if has_own_chunks(X) or not is_lazy(X) else LazyMatrix.of(X, where),
            obs_names=adata.obs_names,
            where=where,
            missing=missing,
            max_missing=float(max_missing),
            index=index,
            n_missing=n_missing,
        ),
        known,
        key_added,
        notices=notices,
        min_confidence=float(min_confidence),
        max_novelty=float(max_novelty),
    )


class Ingestion(Job):
    """Sending new cells through the map `known`; other parameters are those of `ingest`.

    Attributes
    ----------
    origin
        What the reference is called, for ``uns[key]["params"]["ingested_from"]``; may be changed
        before the first of the `steps`.
    """

    _cells: NewCells

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
        super().__init__(cells, key, notices)
        if max_novelty < 1 and not known.model.knows_novelty:
            raise InputError(
                "{} needs a map that has learned what is usual: train it with {}, or call its "
                "fit_novelty",
                Setting("max_novelty"),
                Call("tl.centroid_encoder"),
            )
        self.origin, self._known = known.origin, known
        self._min_confidence, self._max_novelty = min_confidence, max_novelty

    def _compute(self, callback: Callback) -> Results:
        """Send the cells through the map, a chunk at a time."""
        model, cells = self._known.model, self._cells
        map_ = model.fitted_map
        novelty = map_.novelty
        if novelty is not None and cells.present is not None:
            novelty = novelty.restricted(cells.present)
        judge = Judge(cells, model, map_, novelty)
        notices: list[Message] = []
        if has_own_chunks(cells.X):
            found = where_chunks_are(judge, callback, notices)
        else:
            found = judge.one_by_one(callback, notices)
        self.notices += map(str, notices)
        self._warn(found)
        return self._found(map_, found)

    def _warn(self, found: Found) -> None:
        """Warn of cells that lack too much, and of a query that is novel as a whole."""
        n_unusable = int(np.isnan(found["confidence"]).sum())
        if n_unusable:
            text = "{} cells lack more of the map's features than {} allows: they are unassigned"
            allowed = Setting("max_missing", self._cells.max_missing)
            self.notices.append(str(Message(text, n_unusable, allowed)))
        novelty = found["novelty"][np.isfinite(found["novelty"])]
        if len(novelty) < LEAST_CELLS or not np.quantile(novelty, 0.25) > SHIFTED:
            return
        text = (
            "the query is shifted as a whole: three in four of its cells are more novel than "
            "{:.0f} % of the training cells. That can be another protocol, depth or "
            "normalisation, or a kind of cells that the map lacks: labels and novelty mean less "
            "then. Check that the query was normalised like the training cells; to remove the "
            "difference of batches, integrate both before training (Harmony, scVI, scANVI)"
        )
        self.notices.append(text.format(100 * float(np.quantile(novelty, 0.25))))

    def _found(self, map_: FittedMap, found: Found) -> Results:
        known, key, classes = self._known, self.key, self._known.classes
        embedding, predicted, confidence, novelty = (
            np.ascontiguousarray(found[name]) for name in found.dtype.names or ()
        )
        assigned = confidence >= self._min_confidence
        if self._max_novelty < 1:
            assigned &= novelty <= self._max_novelty
        logger.info(
            "    %d of %d cells are assigned to a class", int(assigned.sum()), len(assigned)
        )
        codes, categories = np.where(assigned, predicted, -1), classes
        some_may_be = self._min_confidence > 0 or self._max_novelty < 1 or not assigned.all()
        if some_may_be and isinstance(classes[0], str) and UNASSIGNED not in classes:
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
            "n_missing": self._cells.n_missing,
            "min_confidence": self._min_confidence,
            "max_novelty": self._max_novelty,
        }
        if np.isfinite(novelty).any():
            params["novelty_quartile"] = float(np.nanquantile(novelty, 0.25))
        if len(categories) > len(classes):
            params["unlabeled_category"] = UNASSIGNED
        for name in ("label_key", "use_rep", "layer", "use_raw"):
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
