"""Send new cells through a map."""

from __future__ import annotations

import json
import logging
import numbers
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import gen_batches

from centroid_encoder.core.matrix import looks_like_counts, looks_whole
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.reports import StoppedTooEarly, never
from centroid_encoder.errors import InputError
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._jobs import Job, Progress, Results, from_job, result_key
from centroid_encoder.tl._lazy import LazyMatrix, check_row_chunks, in_memory, is_lazy
from centroid_encoder.tl._read import (
    Source,
    check_real,
    count_gaps,
    describe_gaps,
    listed,
    read_matrix,
)
from centroid_encoder.tl._reference import Reference, check_free, read_reference
from centroid_encoder.tl._stored import (
    QUERY,
    UNASSIGNED,
    StoredMap,
    colors_key,
    embedding_key,
    obs_key,
)

if TYPE_CHECKING:
    from anndata import AnnData

MissingFeatures = Literal["error", "mean"]

CHUNK = 4096
"""Cells that are placed together, at most."""
VALUES_AT_ONCE = 2**24
"""Values of the cells that are placed together, at most."""
BLOCKS = 64
"""Chunks of a dask array that are computed between two checks for Stop."""
SHIFTED = 0.5
"""Lower quartile of novelty above which a query is shifted as a whole."""
LEAST_CELLS = 20
"""Cells from which a quartile is taken, at least."""
TAKE_MEAN = 'pass missing="mean" to use the mean of the training cells instead'

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

    There are two kinds of doubt: between the classes of the map (confidence), and about cells
    unlike all training cells (novelty). A label is no proof of a class: batches differ, and a map
    labels cells of a class that it was not trained on as one of its own.

    The cells are placed in chunks: sparse data never become dense as a whole, and files never come
    into memory as a whole. Chunks of dask arrays are placed by dask's current scheduler, such as
    the workers of a cluster; only the results come back.

    Parameters
    ----------
    adata
        Annotated data of the new cells, the query: normalised like the reference.
    reference
        The map: an AnnData after `centroid_encoder`, a fitted `CentroidEncoder`, or
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
        How to treat genes that the map uses and the query lacks, and NaN: raise an error, or
        replace them by the mean of the training cells (``"mean"``).
    max_missing
        With ``"mean"``, the share of the map's genes that may be missing, in [0, 1]. A query that
        lacks more is an error. A cell that lacks more, NaN included, is ``"unassigned"``, and its
        place, confidence and novelty are NaN; so is a cell without any value in any case.
    min_confidence
        Cells of lower confidence are ``"unassigned"`` (missing, where classes are no strings). By
        default every cell gets the best guess.
    max_novelty
        Cells of higher novelty are ``"unassigned"`` as well.
    key_added
        Name for the results. Default: `key`. A map that was trained on the same cells is replaced,
        with a warning.
    device
        Where to compute: ``"auto"`` or a torch device. Default: ``"auto"``, or the device of a
        `CentroidEncoder`.
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
            Share of the training cells that are less novel, in [0, 1]; NaN for a map without
            novelty (see `CentroidEncoder.fit_novelty`).
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"query"``.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``, with the origin of the map as ``ingested_from`` and ``novelty_quartile``,
            the novelty that three in four cells exceed (0.25 for cells like the training cells);
            ``classes``, ``centers`` and ``model`` of the reference, so that the query carries the
            map as well.
        ``adata.uns["ce_label_colors"]`` : :class:`list`
            Colours of the classes, if the reference has some.

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

    Notes
    -----
    Genes are matched by name, in any order, and where that fails without regard to case. Other
    genes of the query are ignored; genes of weight 0 in the map may be missing. A map without
    names, such as one of a representation, needs the same number of columns.

    A cell's results depend on that cell and on the genes that the whole query lacks, not on other
    cells, their order or chunks. Novelty uses the genes that the query has.
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
    del progress, copy  # `from_job` uses them.
    if missing not in get_args(MissingFeatures):
        text = f"missing must be 'error' or 'mean'; got {missing!r}"
        raise InputError(text, parameter="missing")
    if missing == "error" and max_missing != 0.2:
        text = f'max_missing={max_missing!r} has no effect with missing="error"'
        raise InputError(text, parameter="max_missing")
    shares = {"max_missing": max_missing, "min_confidence": min_confidence}
    for name, share in (shares | {"max_novelty": max_novelty}).items():
        if not isinstance(share, numbers.Real) or not 0 <= float(share) <= 1:
            raise InputError(f"{name} must be a number in [0, 1]; got {share!r}", parameter=name)
    key_added = key if key_added is None else result_key(key_added)
    check_free(adata, key_added)
    if not adata.n_obs:
        raise InputError("adata has no cells")
    known = read_reference(reference, key, device)
    if max_novelty < 1 and not known.model.knows_novelty:
        raise InputError(
            "max_novelty needs a map with novelty: train it with ce.tl.centroid_encoder, or call "
            "its fit_novelty",
            parameter="max_novelty",
        )
    logger.info("ingesting %d cells into the map of %s", adata.n_obs, known.origin)
    if use_rep is None and layer is None and not use_raw:
        use_rep, layer = known.setting("use_rep"), known.setting("layer")
        use_raw = known.setting("use_raw") is not None
    X, where, names = read_matrix(adata, use_rep=use_rep, layer=layer, use_raw=use_raw)
    if is_lazy(X):
        check_row_chunks(X, where)
        X = X if hasattr(X, "dask") else LazyMatrix(X)
    else:
        X = in_memory(X)
    check_real(X, where)
    notices: list[str] = []
    own = StoredMap.read(adata, key_added)
    if own is not None and own.ingested_from is None:
        notices.append(
            f"the result {key_added!r}, which was trained on these cells, is replaced; pass "
            "another key_added to keep both"
        )
    share = float(max_missing)
    index, n_missing = _match_features(
        known.model, X.shape[1], names, where, missing, share, notices
    )
    cells = NewCells(
        X=X,
        obs_names=adata.obs_names,
        where=where,
        missing=missing,
        max_missing=share,
        index=index,
        model=known.model,
    )
    limits = {"min_confidence": float(min_confidence), "max_novelty": float(max_novelty)}
    return Ingestion(cells, known, key_added, notices, {"n_missing": n_missing} | limits)


def _match_features(
    model: CentroidEncoder,
    n_columns: int,
    names: NDArray[np.object_] | None,
    where: str,
    missing: MissingFeatures,
    max_missing: float,
    notices: list[str],
) -> tuple[NDArray[np.intp] | None, int]:
    """Find the map's features among the columns of `where`, by name.

    Returns `NewCells.index` and the number of features that the map uses and the query lacks;
    warnings are added to `notices`.
    """
    wanted: NDArray[np.object_] | None = getattr(model, "feature_names_in_", None)
    if wanted is None or names is None:
        if n_columns != model.n_features_in_:
            raise InputError(
                f"{where} has {n_columns} columns, but the map was trained on "
                f"{model.n_features_in_}, and there are no names to match them"
            )
        if names is not None:
            notices.append(f"the map has no names: columns of {where} are taken in their order")
        return None, 0
    if np.array_equal(names, wanted):
        return None, 0
    have = pd.Index(names)
    twice = have[have.duplicated()].intersection(pd.Index(wanted))
    if len(twice):
        raise InputError(
            f"{where} has {twice[0]!r} more than once; call adata.var_names_make_unique() first"
        )
    index = pd.Series(np.arange(len(names)), have)[~have.duplicated()].reindex(
        wanted, fill_value=-1
    )
    index = index.to_numpy()
    # Without regard to case, one name alone must match.
    free = np.setdiff1d(np.arange(len(names)), index)
    others = pd.Series(free, have[free].str.casefold())
    others = others[~others.index.duplicated(keep=False)]
    lower = pd.Index(wanted[index < 0]).str.casefold()
    index[index < 0] = others.reindex(lower, fill_value=-1)
    if n_found := int(np.isin(index, free).sum()):
        logger.info("    %d features are matched without regard to case", n_found)

    used = model.feature_weights_ > 0
    absent = wanted[(index < 0) & used]
    if n_unused := int((index < 0).sum()) - len(absent):
        logger.info("    %d features of weight 0 in the map are missing", n_unused)
    if not len(absent):
        return index, 0
    share = len(absent) / used.sum()
    text = (
        f"{where} lacks {len(absent)} of the {used.sum()} features that the map uses: "
        f"{listed(pd.Index(absent))}"
    )
    if (index < 0).all():
        text = f"{text}. It has features like {names[0]!r}: are these names of another kind?"
        raise InputError(text)
    if missing == "error":
        also = f", and max_missing above {share:.2f}" if share > max_missing else ""
        raise InputError(f"{text}; {TAKE_MEAN}{also}", parameter="missing")
    if share > max_missing:
        raise InputError(f"{text}. That is more than {max_missing=}", parameter="max_missing")
    notices.append(f"{text}; the mean of the training cells is used instead")
    return index, len(absent)


@dataclass(frozen=True, kw_only=True)
class NewCells(Source):
    """The cells of a query, and the map that places them."""

    where: str
    """Name of the matrix."""
    missing: MissingFeatures
    max_missing: float
    index: NDArray[np.intp] | None
    """(d,) columns of the map's features, −1 for a missing one; None for all columns in order."""
    model: CentroidEncoder

    @property
    def n_at_once(self) -> int:
        """Cells that are placed together."""
        return max(1, min(CHUNK, VALUES_AT_ONCE // int(self.model.n_features_in_)))

    @property
    def n_values(self) -> int:
        """Values that `place` returns for each cell."""
        return int(self.model.fitted_map.centers.shape[1]) + 3

    def place(self, x: Any, start: int, novelty: Novelty | None) -> NDArray[np.float32]:
        """Place `x`, the (n, n_columns) rows of the matrix from `start` on.

        Columns of the result are the embedding, the index of the class, confidence and novelty.
        """
        x, unusable = self._prepared(x, start)
        n, map_ = x.shape[0], self.model.fitted_map
        placed = np.empty((n, self.n_values), np.float32)
        placed[:, :-3], placed[:, -3], placed[:, -2] = map_.decide(map_.judge(x), n)
        placed[:, -1] = np.nan if novelty is None else novelty.quantiles(x, map_.standardizer)
        placed[np.ix_(unusable, np.arange(self.n_values) != self.n_values - 3)] = np.nan
        return placed

    def _prepared(self, x: Any, start: int) -> tuple[Any, NDArray[np.bool_]]:
        """Return finite values of the map's features, and which cells lack too many of them."""
        unusable = np.zeros(x.shape[0], dtype=bool)
        absent = np.empty(0, dtype=np.intp)
        if self.index is not None:
            x, absent = x[:, np.maximum(self.index, 0)], np.flatnonzero(self.index < 0)
        n_gaps = count_gaps(x)
        if self.missing == "error" and n_gaps.any():
            stop = start + len(n_gaps)
            names = getattr(self.model, "feature_names_in_", None)
            where = f"{self.where} (cells {start:,} to {stop - 1:,})"
            text = describe_gaps(x, n_gaps, where, self.obs_names[start:stop], names)
            raise InputError(f"{text}; {TAKE_MEAN}", parameter="missing")
        if n_gaps.any() or len(absent):
            used = self.model.feature_weights_ > 0
            dense = np.array(x.toarray() if sparse.issparse(x) else x, dtype=np.float64)
            gaps = ~np.isfinite(dense)
            gaps[:, absent] = True
            if self.missing == "mean":
                unusable = (gaps[:, used].mean(axis=1) > self.max_missing) | gaps.all(axis=1)
            x = np.where(gaps, self.model.feature_means_, dense)
        return x, unusable


def _place_block(
    block: Any, cells: NewCells, novelty: Novelty | None, block_info: Any = None
) -> NDArray[np.float32]:
    """Place the cells of a chunk of a dask array."""
    block, start = in_memory(block), block_info[0]["array-location"][0][0]
    placed = np.empty((block.shape[0], cells.n_values), np.float32)
    for part in gen_batches(block.shape[0], cells.n_at_once):
        placed[part] = cells.place(block[part], start + part.start, novelty)
    return placed


def _placed_parts(
    cells: NewCells, novelty: Novelty | None
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Place all cells, in parts."""
    X, n = cells.X, len(cells.obs_names)
    if not hasattr(X, "dask"):
        for rows in gen_batches(n, cells.n_at_once):
            yield rows, cells.place(X[rows], rows.start, novelty)
        return
    from dask.delayed import delayed

    # Each chunk gets the map and neither the matrix nor the names of cells.
    alone = replace(cells, X=None, obs_names=pd.RangeIndex(n))
    placed = X.map_blocks(
        _place_block,
        delayed(alone, pure=False, traverse=False),
        delayed(novelty, pure=False, traverse=False),
        chunks=(X.chunks[0], (cells.n_values,)),
        meta=np.empty((0, 0), np.float32),
    )
    ends = np.cumsum([0, *X.chunks[0]])
    for blocks in gen_batches(len(X.chunks[0]), BLOCKS):
        yield slice(ends[blocks.start], ends[blocks.stop]), placed.blocks[blocks].compute()


class Ingestion(Job):
    """Sending new cells through the map `known`.

    Attributes
    ----------
    origin
        Name of the reference, for ``uns[key]["params"]["ingested_from"]``; may be changed before
        the job runs.
    """

    _cells: NewCells

    def __init__(
        self,
        cells: NewCells,
        known: Reference,
        key: str,
        notices: list[str],
        params: dict[str, Any],
    ) -> None:
        super().__init__(cells, key, notices)
        self.origin, self._known, self._params = known.origin, known, params

    def _compute(self, callback: Callable[[Progress], bool]) -> Results:
        """Send the cells through the map, a part at a time."""
        cells, n = self._cells, len(self.obs_names)
        self._check_counts(in_memory(cells.X[: cells.n_at_once]))
        novelty = cells.model.fitted_map.novelty
        if novelty is not None and cells.index is not None:
            novelty = novelty.restricted(cells.index >= 0)
        placed = np.empty((n, cells.n_values), np.float32)
        for rows, part in _placed_parts(cells, novelty):
            placed[rows] = part
            if callback(Progress(rows.stop, n)) and rows.stop < n:
                raise StoppedTooEarly
        self._warn(placed)
        return self._results_of(placed)

    def _check_counts(self, x: Any) -> None:
        """Compare the first cells with the training cells: raw counts, or other values."""
        index, where = self._cells.index, self._cells.where
        x = x if index is None else x[:, index[index >= 0]]
        counts = self._cells.model.trained_on_counts_
        if looks_like_counts(x) and not counts:
            raise InputError(
                f"{where} looks like raw counts, but the map was trained on other values; process "
                "it like the training data (sc.pp.normalize_total, sc.pp.log1p), or choose the "
                "values that were processed so (layer)",
                parameter="layer",
            )
        if counts and not looks_whole(x):
            text = f"the map was trained on whole numbers, like counts; {where} holds others"
            self.notices.append(text)

    def _warn(self, placed: NDArray[np.float32]) -> None:
        """Warn of cells that lack too much, and of a query that is novel as a whole."""
        confidence, novelty = placed[:, -2], placed[:, -1]
        if n_unusable := int(np.isnan(confidence).sum()):
            allowed = f"max_missing={self._cells.max_missing}"
            self.notices.append(
                f"{n_unusable} cells lack more of the map's features than {allowed} allows: they "
                "are unassigned"
            )
        novelty = novelty[np.isfinite(novelty)]
        if len(novelty) < LEAST_CELLS or not np.quantile(novelty, 0.25) > SHIFTED:
            return
        self.notices.append(
            "the query is shifted as a whole: three in four of its cells are more novel than "
            f"{100 * np.quantile(novelty, 0.25):.0f} % of the training cells. The reason may be "
            "another protocol, depth or normalisation, or cells of kinds that the map lacks: "
            "labels and novelty are less reliable. Check that the query was normalised like the "
            "training cells; to remove the difference of batches, integrate both before training "
            "(Harmony, scVI, scANVI)"
        )

    def _results_of(self, placed: NDArray[np.float32]) -> Results:
        known, key, classes = self._known, self.key, self._known.classes
        confidence, novelty = placed[:, -2].copy(), placed[:, -1].copy()
        assigned = confidence >= self._params["min_confidence"]
        if self._params["max_novelty"] < 1:
            assigned &= novelty <= self._params["max_novelty"]
        logger.info("    %d of %d cells are assigned to a class", assigned.sum(), len(assigned))
        codes = np.where(assigned, placed[:, -3], -1).astype(np.intp)
        label = pd.Categorical.from_codes(codes, classes).set_categories(known.categories)
        params = self._params | {
            "ingested_from": self.origin,
            "label_key": obs_key(key, "label"),
        }
        colors = known.colors
        doubted = params["min_confidence"] > 0 or params["max_novelty"] < 1 or not assigned.all()
        if doubted and isinstance(classes[0], str) and UNASSIGNED not in classes:
            label = label.add_categories([UNASSIGNED]).fillna(UNASSIGNED)
            params["unlabeled_category"] = UNASSIGNED
            colors = None if colors is None else [*colors, "#bebebe"]
        if np.isfinite(novelty).any():
            params["novelty_quartile"] = float(np.nanquantile(novelty, 0.25))
        for name in ("label_key", "use_rep", "layer", "use_raw"):
            if (value := known.setting(name)) is not None:
                params[f"reference_{name}"] = value
        config, arrays = known.model.to_state()
        model = {"config": json.dumps(config), "arrays": arrays}
        stored = StoredMap(params, classes, known.model.fitted_map.centers, model=model)
        uns: dict[str, Any] = {key: stored.to_uns()}
        if colors is not None:
            uns[colors_key(obs_key(key, "label"))] = colors
        return {
            "obs": {
                obs_key(key, "label"): label,
                obs_key(key, "confidence"): confidence,
                obs_key(key, "novelty"): novelty,
                obs_key(key, "split"): pd.Categorical([QUERY] * len(label)),
            },
            "obsm": {embedding_key(key): np.ascontiguousarray(placed[:, :-3])},
            "uns": uns,
        }

    def steps(self, *, stop: Any = never, snapshot: Any = never) -> Any:  # removed at the merge
        done: list[Progress] = []
        self._results = self._compute(lambda report: done.append(report) or stop())
        yield from done
