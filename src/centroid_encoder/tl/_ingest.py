"""Send new cells through a map."""

from __future__ import annotations

import copy as copying
import json
import logging
import numbers
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import gen_batches

from centroid_encoder.core.rows import looks_like_counts, looks_whole
from centroid_encoder.core.training import StoppedTooEarly, never
from centroid_encoder.errors import Message, Setting
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import in_memory, raise_not_finite, read_matrix
from centroid_encoder.tl._features import Columns, MissingFeatures, match_features
from centroid_encoder.tl._jobs import Progress, check_key, from_job, write_results
from centroid_encoder.tl._reference import Reference, read_reference
from centroid_encoder.tl._run import decisions
from centroid_encoder.tl._stored import QUERY, UNASSIGNED, embedding_key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from anndata import AnnData

    from centroid_encoder.core.rows import Matrix

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
) -> Query:
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
    return Query(
        adata,
        read_reference(reference, key, device),
        key=key,
        layer=layer,
        use_rep=use_rep,
        missing=missing,
        max_missing=max_missing,
        min_confidence=min_confidence,
        max_novelty=max_novelty,
        key_added=key_added,
    )


class Query:
    """New cells on their way through a map: three steps, of which the second may run in a thread.

    Making it reads and checks; `steps` computes, and reads the matrix of the AnnData chunk by
    chunk; `write` puts the results in. The parameters are those of `ingest`.

    Attributes
    ----------
    origin
        What the reference is called, for ``uns[key]["params"]["ingested_from"]``; may be changed
        before `write`.
    """

    def __init__(
        self,
        adata: AnnData,
        known: Reference,
        *,
        key: str = "ce",
        layer: str | None = None,
        use_rep: str | None = None,
        missing: MissingFeatures = "error",
        max_missing: float = 0.2,
        min_confidence: float = 0.0,
        max_novelty: float = 1.0,
        key_added: str | None = None,
    ) -> None:
        if missing not in get_args(MissingFeatures):
            raise ValueError(f"missing must be 'error' or 'mean'; got {missing!r}")
        for name, share in (
            ("max_missing", max_missing),
            ("min_confidence", min_confidence),
            ("max_novelty", max_novelty),
        ):
            if not isinstance(share, numbers.Real) or not 0 <= float(share) <= 1:
                raise ValueError(f"{name} must be a number in [0, 1]; got {share!r}")
        check_key(key_added)
        if not adata.n_obs:
            raise ValueError("adata has no cells")
        if max_novelty < 1 and not known.model.knows_novelty:
            raise ValueError(
                "max_novelty needs a map that has learned what is usual: train it with "
                "ce.tl.centroid_encoder, or call its fit_novelty"
            )
        logger.info("ingesting %d cells into the map of %s", adata.n_obs, known.origin)
        self.notices: list[Message] = []
        self.key = key_added or key
        self.origin = known.origin
        stored = adata.uns.get(self.key)
        params = stored.get("params") if isinstance(stored, Mapping) else None
        if isinstance(params, Mapping) and "ingested_from" not in params:
            self.notices.append(
                Message(
                    "the result {!r}, which was trained on these cells, is replaced; pass another "
                    "{} to keep both",
                    self.key,
                    Setting("key_added"),
                )
            )
        self._known = known
        self._missing: MissingFeatures = missing
        self._min_confidence, self._max_novelty = float(min_confidence), float(max_novelty)
        self.obs_names = adata.obs_names
        self._X, self._where, names = read_matrix(
            adata,
            use_rep=use_rep or (None if layer else known.setting("use_rep")),
            layer=layer or (None if use_rep else known.setting("layer")),
        )
        self._columns = match_features(
            known.model,
            self._X.shape[1],
            names,
            self._where,
            missing,
            float(max_missing),
            self.notices,
        )
        n = len(self.obs_names)
        self._n_done = 0
        self._embedding = np.empty((n, known.model.centers_.shape[1]), dtype=np.float32)
        self._predicted = np.empty(n, dtype=np.intp)
        self._confidence = np.empty(n, dtype=np.float32)
        self._novelty = np.full(n, np.nan, dtype=np.float32)

    def detach(self) -> None:
        """See `Job`."""
        on_disk = hasattr(self._X, "compute") or hasattr(self._X, "to_memory")
        self._X = in_memory(self._X) if on_disk else self._X.copy()

    def steps(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Progress, None, None]:
        """Send the cells through the map, a chunk at a time; see `Job`."""
        del snapshot
        # Without names: they have been seen to.
        model = copying.copy(self._known.model)
        names = model.__dict__.pop("feature_names_in_", None)
        n = len(self.obs_names)
        order = self._known.classes.get_indexer(model.classes_)
        for part in gen_batches(n, max(1, min(CHUNK, VALUES_AT_ONCE // model.n_features_in_))):
            if stop():
                raise StoppedTooEarly
            x = in_memory(self._X[part])
            if part.start == 0:
                index = self._columns.index
                own = x if index is None else x[:, index[index >= 0]]
                self._check_counts(own)
            x = _arranged(x, self._columns, model, self._missing)
            if self._missing == "error":
                chunk = (
                    "" if part == slice(0, n) else f" (cells {part.start:,} to {part.stop - 1:,})"
                )
                _refuse_gaps(x, self._where + chunk, self.obs_names[part], names)
            embedding = model.transform(x)
            self._embedding[part] = embedding
            predicted, self._confidence[part] = decisions(model, embedding)
            self._predicted[part] = order[predicted]
            if model.knows_novelty:
                self._novelty[part] = model.novelty(x)
            self._n_done = part.stop
            yield Progress(part.stop, n)
        n_novel = int((self._novelty > 0.99).sum())
        if n_novel > n / 2:
            self.notices.append(
                Message(
                    "most cells are unlike anything in training (novelty above 0.99 in {} of {}): "
                    "is the preprocessing the same, down to the normalisation?",
                    n_novel,
                    n,
                )
            )

    def _check_counts(self, x: Matrix) -> None:
        counts = self._known.model.trained_on_counts_
        if looks_like_counts(x) and not counts:
            raise ValueError(
                f"{self._where} looks like raw counts, but the map was trained on other values; do "
                "to it what was done to the training data (sc.pp.normalize_total, sc.pp.log1p), or "
                "name the layer where that is"
            )
        if counts and not looks_whole(x):
            self.notices.append(
                Message(
                    "the map was trained on whole numbers, like counts; {} holds others",
                    self._where,
                )
            )

    def write(self, adata: AnnData) -> None:
        """Write all results into `adata`, or, if anything fails, nothing.

        Raises
        ------
        RuntimeError
            If not all cells are through the map.
        ValueError
            If `adata` no longer has the cells that were read.
        """
        if self._n_done < len(self.obs_names):
            raise RuntimeError("nothing to write: not all cells are through the map")
        if not adata.obs_names.equals(self.obs_names):
            raise ValueError(
                "the cells of adata have changed since they were sent through the map: the "
                "results, which belong to the cells that were there, are not written"
            )
        known, key, classes = self._known, self.key, self._known.classes
        assigned = self._confidence >= self._min_confidence
        if self._max_novelty < 1:
            assigned &= self._novelty <= self._max_novelty
        codes = np.where(assigned, self._predicted, -1)
        categories = classes
        thresholds = self._min_confidence > 0 or self._max_novelty < 1
        if thresholds and isinstance(classes[0], str) and UNASSIGNED not in classes:
            categories = classes.append(pd.Index([UNASSIGNED]))
            codes = np.where(assigned, codes, len(classes))
        params: dict[str, Any] = {
            "ingested_from": self.origin,
            "label_key": f"{key}_label",
            "n_missing": self._columns.n_missing,
            "min_confidence": self._min_confidence,
            "max_novelty": self._max_novelty,
        }
        if len(categories) > len(classes):
            params["unlabeled_category"] = UNASSIGNED
        for name in ("label_key", "use_rep", "layer"):
            if (value := known.setting(name)) is not None:
                params[f"reference_{name}"] = value
        config, arrays = known.model.to_state()
        centers = np.empty_like(known.model.centers_)
        centers[classes.get_indexer(known.model.classes_)] = known.model.centers_
        uns: dict[str, Any] = {
            key: {
                "params": params,
                "classes": np.asarray(classes.tolist()),
                "centers": centers,
                "model": {"config": json.dumps(config), "arrays": arrays},
            }
        }
        if known.colors is not None:
            gray = ["#bebebe"] * (len(categories) - len(classes))
            uns[f"{key}_label_colors"] = [*known.colors, *gray]
        write_results(
            adata,
            {
                "obs": {
                    f"{key}_label": pd.Categorical.from_codes(codes, categories),
                    f"{key}_confidence": self._confidence,
                    f"{key}_novelty": self._novelty,
                    f"{key}_split": pd.Categorical.from_codes(np.zeros(len(codes), int), [QUERY]),
                },
                "obsm": {embedding_key(key): self._embedding},
                "uns": uns,
            },
        )
        logger.info(
            "    %d of %d cells are assigned to a class", int(assigned.sum()), len(assigned)
        )


def _refuse_gaps(
    x: Matrix, where: str, obs_names: pd.Index, names: NDArray[np.object_] | None
) -> None:
    try:
        raise_not_finite(x, where, obs_names, names)
    except ValueError as error:
        raise ValueError(
            f"{error}. Pass missing='mean' to put the mean of the training cells in their place"
        ) from None


def _arranged(
    x: Matrix, columns: Columns, model: CentroidEncoder, missing: MissingFeatures
) -> Matrix:
    """(n, d) values in the order of the map's features, gaps filled where that is wanted."""
    absent = np.empty(0, dtype=np.intp)
    if columns.index is not None:
        absent = np.flatnonzero(columns.index < 0)
        x = x[:, np.maximum(columns.index, 0)]
    values = x.data if sparse.issparse(x) else x
    gaps = missing == "mean" and values.dtype.kind == "f" and not np.isfinite(values).all()
    if not (len(absent) or gaps):
        return x
    dense = np.array(x.toarray() if sparse.issparse(x) else x, dtype=np.float64)
    dense[:, absent] = model.feature_means_[absent]
    if gaps:
        row, column = np.nonzero(~np.isfinite(dense))
        dense[row, column] = model.feature_means_[column]
    return dense
