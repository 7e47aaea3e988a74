"""Place new cells in a map that was trained on other cells."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.checks import are_shares
from centroid_encoder.core import matrix
from centroid_encoder.core.arrays import Codes, Floats, Mask, Singles
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.core.splits import at_most
from centroid_encoder.core.threads import one_thread
from centroid_encoder.core.transfer import changed_by_recentring
from centroid_encoder.errors import InputError, check
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tables import Column, colors_key, obs_key, plain_key
from centroid_encoder.tl import _result, _run
from centroid_encoder.tl._cells import (
    MAX_MISSING,
    NewCells,
    Placed,
    Source,
    placed_chunks,
    read_new_cells,
)
from centroid_encoder.tl._check import check_choice, listed, logger, obs_column
from centroid_encoder.tl._matrix import LazyMatrix, in_memory
from centroid_encoder.tl._parents import Hierarchy, mixed_colors, read_parents
from centroid_encoder.tl._reference import categories_of, check_space, read_reference
from centroid_encoder.tl._summary import CLUSTERING, LEAST_EXPECTED, compared_words

MissingFeatures = Literal["error", "drop", "estimate"]
SHIFTED = 0.5
"""Lower quartile of the novelty of a query above which it counts as shifted as a whole."""
LEAST_CELLS = 20
"""Least number of cells for a warning that they are shifted."""
SHIFT = (
    "the query is shifted as a whole: three in four of its cells are more novel than {:.0%} of the "
    "training cells. The reason may be another protocol, depth or normalisation, or cells of kinds "
    "that the map lacks. Novelty is less reliable; this does not measure how many labels are wrong"
)
N_JUDGED, N_VALUES = 10_000, 2 * 10**7
"""Largest number of cells from which an error is expected, and of their values in memory."""
N_RUNS = 20
"""Runs of consecutive cells of a file, from which an error is expected."""
TOO_MANY = 0.15
"""Least expected error for a warning."""
WRONG = "about {:.0%} of the labels may be wrong, by a rough estimate: {}"
MOVED = (
    "so many would change if the mean difference between the query and the training cells were "
    "removed. Check that the query was normalised like the training cells; to remove the "
    "difference of batches, integrate both before training (Harmony, scVI, scANVI). It can be a "
    "false alarm if the query has few of the classes"
)
DOUBTED = (
    "the mean confidence is {:.2f}. min_confidence leaves doubtful cells unassigned, and parents "
    "gives them a coarser class"
)


@_run.from_job
def ingest(
    adata: AnnData,
    reference: AnnData | CentroidEncoder | str | os.PathLike[str],
    *,
    key: str = "ce",
    layer: str | None = None,
    use_rep: str | None = None,
    use_raw: bool = False,
    missing: MissingFeatures = "error",
    max_missing: float = MAX_MISSING,
    min_confidence: float = 0.0,
    max_novelty: float = 1.0,
    parents: str | Mapping[str, str] | Sequence[str | Mapping[str, str]] | None = None,
    label_key: str | None = None,
    probabilities: bool = False,
    key_added: str | None = None,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> Ingestion:
    """Embed and label new cells by a map that was trained on others. Nothing is trained.

    A predicted label can be wrong for two reasons: several classes of the map are probable (low
    confidence), or the cell is unlike all training cells (high novelty), such as a cell of another
    batch, or of a class that the map was not trained on.

    The cells are placed in chunks: sparse data never become dense as a whole, and files are never
    in memory as a whole. Chunks of dask arrays are placed by dask's current scheduler, such as the
    workers of a cluster; only the results are returned.

    Parameters
    ----------
    adata
        Annotated data of the new cells (the query), normalised like the reference.
    reference
        The map: an AnnData after `centroid_encoder`, a fitted `CentroidEncoder`, or the path of a
        ``.safetensors`` file, an ``.h5ad`` file or a ``.zarr`` store.
    key
        Name of the map in the reference, as given to `key_added`.
    layer
        Key of ``adata.layers`` with the query's values. Default: where the reference had them.
    use_rep
        Key of ``adata.obsm`` with the query's values, or ``"X"``. Default: where the reference had
        them. If its columns have no names, pass it to confirm that its axes are those of the
        reference, see the notes.
    use_raw
        Take the query's values from ``adata.raw``; by default where the reference had them.
    missing
        What to do about NaN, and about genes that the map uses and the query lacks: raise an error
        (``"error"``), or estimate them from the other values of the cell (``"estimate"``).
        ``"drop"`` leaves out cells with NaN: they are ``"unassigned"``, and their place, confidence
        and novelty are NaN.
    max_missing
        With ``missing="estimate"``, the share of the map's genes that may be missing, in [0, 1]. If
        the query lacks more, an error is raised. If a cell lacks more, NaN included, or has no
        value at all, it is ``"unassigned"``, and its place, confidence and novelty are NaN.
    min_confidence
        Cells of lower confidence are ``"unassigned"`` (missing, if the classes are not strings). By
        default, every cell gets a class.
    max_novelty
        Cells of higher novelty are ``"unassigned"`` as well.
    parents
        Coarser classes: a mapping from classes to parents, which may have parents, too; a column of
        the reference's ``obs`` with the parent of each cell; or a list of these, from fine to
        coarse. A cell of lower confidence than `min_confidence` gets the lowest parent whose
        probability, the sum over its classes, reaches it.
    label_key
        Column of ``adata.obs`` with labels of these cells, which are compared with the predicted
        classes. Default: the label column of the reference, if the query has it and at least half
        of the cells have a class of the map there.
    probabilities
        Whether to store the probabilities of all classes.
    key_added
        Name for the results. Default: `key`. A map of that name that was trained on these cells is
        replaced, with a warning.
    device
        Where to compute: ``"auto"`` or a torch device. Default: ``"auto"``, or the device of a
        `CentroidEncoder`.
    progress, copy
        As in `centroid_encoder`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obsm["X_ce"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            The embedding, n_obs × n_components, among the cells of the reference.
        ``adata.obs["ce_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Predicted class, or its parent; ``"unassigned"`` beyond a threshold or `max_missing`.
        ``adata.obs["ce_level"]`` : :class:`pandas.Series` (dtype ``int8``)
            With `parents`: 0 for a class, 1 for a parent of classes, 2 for a parent of parents and
            so on; −1 for unassigned cells.
        ``adata.obs["ce_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Probability of the predicted class.
        ``adata.obs["ce_novelty"]`` : :class:`pandas.Series` (dtype ``float32``)
            Share of the training cells that are less novel, in [0, 1]; NaN for a map without
            novelty (see `CentroidEncoder.fit_novelty`).
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"query"``.
        ``adata.obsm["ce_probabilities"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            With `probabilities`: n_obs × n_classes, in the order of ``uns["ce"]["classes"]``.
        ``adata.obs["ce_map"]`` : :class:`pandas.Series` (dtype ``category``)
            The ``id`` of the map, as in the reference. Both can be in one table:
            ``ad.concat([reference, query], join="outer", uns_merge="first")``.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``, with the name of the reference as ``ingested_from``;
            ``expected_error``, a rough estimate of the share of wrong labels, and
            ``changed_by_recentring``, see the notes; and ``novelty_quartile``, the novelty that
            three in four cells exceed (0.25 for cells like the training cells); ``classes``,
            ``centers`` and ``model`` of the reference, so that the query can be a reference as
            well. If labels are compared, ``compared`` has the number of cells of each class,
            and of those that got another class, or a parent of others; ``compared_with`` among the
            ``params`` is their column. `misplaced` lists the cells that got another class. With
            `parents`, ``parents`` has the pairs of ``child`` and ``parent``.
        ``adata.uns["ce_label_colors"]`` : :class:`list`
            Colours of the classes, if the reference has some; others are deleted.

    Raises
    ------
    KeyError
        If the reference has no map under that key, or if a layer or representation is missing.
    OSError
        If there is no such file, or if a folder is not a zarr store of an AnnData, or has a link.
    InvalidStateError
        If what is stored is not a complete map.
    ValueError
        If a file is damaged, if genes are missing (the message says how many, and which), if the
        query looks like raw counts but the training data did not, or if values cannot be used.
        `adata` then stays as it was.

    Notes
    -----
    Genes are matched by name, in any order; if some are not found, without regard to case, with a
    warning. Other genes of the query are ignored; genes of weight 0 in the map may be missing. For
    a map without names, such as one of a representation, the query must have the same number of
    columns.

    Columns of a representation mean the same only if one PCA or one model made those of both
    tables. A PCA or scVI model of the query alone has other axes: labels are then wrong at high
    confidence. The loadings of two PCAs are compared (``varm["PCs"]``), and an error is raised if
    they differ; for everything else, `use_rep` is your confirmation. This projects a query by the
    PCA of the reference::

        ours = query[:, reference.var_names].X - reference.X.mean(axis=0)
        query.obsm["X_pca"] = np.asarray(ours @ reference.varm["PCs"])
        ce.tl.ingest(query, reference, use_rep="X_pca")

    If the query has loadings of its own, delete them first (``del query.varm["PCs"]``).

    The expected error, of the cells that got a class, is the larger of two shares: one minus the
    mean confidence, and the share of labels that re-centring would change. Re-centring subtracts
    the mean of the classes' mean residuals from at most 10,000 of the query's cells, in three
    rounds; cells of high confidence count more, and classes of few cells less. Labels and places
    stay as they are. From 0.15 on, with 50 cells or more, a warning reports it. A query of one or
    two classes can cause a false alarm.

    The results of a cell depend on that cell and on the genes that the whole query lacks, not on
    other cells, their order or the chunks. An estimated value is the expectation under
    probabilistic principal component analysis (Tipping & Bishop 1999) of the training cells, with
    up to 20 components. The odds of the classes, which decide on the class and the place, and the
    confidence are means over eight draws around the estimates. In a map by the bottleneck, the
    expectation decides, and only the confidence is a mean. A map without novelty has no components:
    its estimates are the means of the training cells, and the confidence does not allow for them.

    By default there is no threshold: without cells of unknown classes, it loses cells, and the
    other labels do not get better. The page "When not to believe it" of the documentation has
    tests of thresholds, of estimates and of the expected error.

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
    limits = {"min_confidence": min_confidence, "max_novelty": max_novelty}
    allowed = _allowed(missing, max_missing, limits)
    text = "parents has no effect with min_confidence=0: every cell gets a class"
    check(parents is None or min_confidence > 0, text, "parents")
    key_added = plain_key(key) if key_added is None else _run.result_key(key_added)
    _result.check_free(adata, key_added, levels=parents is not None)
    check(adata.n_obs, "adata has no cells")
    model, origin, known = read_reference(reference, key, device)
    text = "max_novelty needs a map with novelty: train it with ce.tl.centroid_encoder, or call its"
    fits = max_novelty == 1 or model.fitted_map.novelty is not None
    check(fits, f"{text} fit_novelty", "max_novelty")
    logger.info("ingesting %d cells into the map of %s", adata.n_obs, origin)
    chosen, given, trained_on = Source(use_rep, layer, use_raw), {}, None
    source = chosen
    classes, colors = pd.Index(model.classes_.tolist()), None
    categories = classes
    if known is not None:
        stored = _result.read_map(known, key)
        categories, colors = categories_of(known, stored.label_key, classes)
        # The labels of ingested cells are predictions of a map that was trained on other labels.
        trained_on = stored.label_key
        label_of_map = stored.params.get("reference_label_key", trained_on)
        given = {"label_key": label_of_map, **vars(stored.source)}
        source = stored.source if source == Source() else source
    cells, notices = read_new_cells(adata, model, source, allowed)
    is_named = cells.names is not None and hasattr(model, "feature_names_in_")
    if known is not None and source.is_rep and not is_named:
        of_both = adata, str(source.use_rep), known, given["use_rep"]
        check_space(*of_both, is_chosen=use_rep is not None)
    own = _result.StoredMap.read(adata, key_added)
    if own is not None and own.ingested_from is None:
        text = f"the map {key_added!r}, which was trained on these cells, is replaced"
        notices.append(f"{text}; pass another key_added to keep both")
    column = obs_key(key_added, "label")
    compared, own_labels = _own_labels(adata, label_key, given.get("label_key"), column, categories)
    params = {
        "label_key": column,
        "missing": missing,
        "compared_with": compared,
        "n_missing": int((cells.absent & (model.feature_weights_ > 0)).sum()),
        **{name: float(limit) for name, limit in limits.items()},
        **{f"reference_{name}": str(value) for name, value in given.items() if value},
        **{name: value for name, value in vars(chosen).items() if value},
        "max_missing": allowed if missing == "estimate" else None,
    }
    params = {name: value for name, value in params.items() if value is not None}
    obs = None if known is None else known.obs
    hierarchy = read_parents(parents, classes, obs, trained_on)
    cells = replace(cells, all_classes=probabilities or hierarchy is not None)
    more = categories, colors, own_labels, hierarchy, probabilities
    return Ingestion(cells, key_added, notices, origin, params, *more)


def _allowed(
    missing: MissingFeatures, max_missing: float, limits: Mapping[str, float]
) -> float | None:
    """Check the options; return the share of genes that may be missing, None if none may be."""
    check_choice("missing", missing, MissingFeatures)
    text = f'max_missing={max_missing!r} has no effect with missing="{missing}"'
    check(missing == "estimate" or max_missing == MAX_MISSING, text, "max_missing")
    for name, share in {"max_missing": max_missing, **limits}.items():
        fits = np.ndim(share) == 0 and are_shares(share)
        check(fits, f"{name} must be a number in [0, 1]; got {share!r}", name)
    return {"error": None, "drop": 0.0, "estimate": float(max_missing)}[missing]


def _own_labels(
    adata: AnnData, label_key: str | None, of_map: str | None, written: str, categories: pd.Index
) -> tuple[str | None, Codes | None]:
    """Return the column of labels to compare, and (n_obs,) indices of its classes; None if none.

    By default it is the label column of the map, unless the results are `written` there.
    """
    column = of_map if label_key is None else label_key
    if label_key is not None:
        _run.check_not_replaced(label_key, written)
    elif column not in adata.obs or column == written:
        return None, None
    labels = obs_column(adata, str(column)).astype(object)
    found = categories.get_indexer(labels)
    if label_key is not None and not (found >= 0).any():
        text = f"obs[{label_key!r}] has no class of the map, such as {listed(categories[:1])}"
        if labels.astype(str).isin(categories.astype(str)).any():
            kinds = map(pd.api.types.infer_dtype, (labels, categories))
            text += ": its labels are of type {}, and the classes of type {}".format(*kinds)
        raise InputError(text, "label_key")
    # Two clusterings have the same names, and have nothing to do with each other.
    is_known = 2 * (found >= 0).sum() >= adata.n_obs and not CLUSTERING.search(str(column))
    return (None, None) if label_key is None and not is_known else (column, found)


@dataclass(eq=False)
class Ingestion(_run.Job):
    """A job that places new cells in a map.

    `origin` is the name of the reference, ``uns[key]["params"]["ingested_from"]``; it may be
    changed before the job runs.
    """

    _cells: NewCells
    origin: str
    _params: dict[str, Any]
    _categories: pd.Index
    """Classes in the order of the label column of the reference."""
    _colors: list[str] | None
    """Their colours."""
    _own_labels: Codes | None
    """(n_obs,) index into these classes of the cells' own labels, if they are compared; or −1."""
    _hierarchy: Hierarchy | None
    _probabilities: bool

    @property
    def kept(self) -> Mask:
        """(n_obs,) mask of the cells that have enough values; this reads all of them."""
        return self._cells.have_values()

    def _compute(self, callback: _run.Callback) -> _run.Results:
        cells, n = self._cells, len(self.obs_names)
        is_dask = isinstance(cells.X, LazyMatrix) and hasattr(cells.X.X, "dask")
        X = cells.X.X if is_dask else cells.X
        x, counts = in_memory(X[:1000]), cells.model.trained_on_counts_
        x = x[:, cells.index[~cells.absent]]
        text = (
            f"{cells.where} looks like raw counts, but the map was trained on other values; process"
            " it like the training data (sc.pp.normalize_total, sc.pp.log1p), or pass the layer "
            "with such values"
        )
        check(counts or not matrix.looks_whole(x, above=20), text, "layer")
        if counts and not matrix.looks_whole(x):
            text = f"the map was trained on whole numbers, like counts; {cells.where} holds others"
            self.notices.append(text)
        placed, n_done = list[Placed](), 0
        with one_thread() as n_threads:
            parts = placed_chunks(cells, X) if is_dask else cells.placed(X, n_threads=n_threads)
        for part in parts:
            placed.append(part)
            n_done += len(part[0])
            if callback(_run.Progress(n_done, n)) and n_done < n:
                raise StoppedTooEarly
        return self._results_of(*map(np.concatenate, zip(*placed, strict=True)))

    def _expect(self, confidence: Floats, assigned: Mask) -> None:
        """Estimate how many of the classes in a mask are wrong; warn if they are many."""
        cells, map_ = self._cells, self._cells.model.fitted_map
        usable = np.flatnonzero(np.isfinite(confidence))
        if not assigned.any():
            return
        n = min(N_JUDGED, N_VALUES // len(map_.standardizer.kept))
        rows = at_most(n, usable)
        if isinstance(cells.X, matrix.Lazy) and n < len(usable):
            # Random cells would be in all parts of a file.
            starts = np.linspace(0, len(usable) - n // N_RUNS, N_RUNS).astype(int)
            rows = usable[np.unique(starts[:, None] + np.arange(n // N_RUNS))]
        chunks = (in_memory(chunk) for _, chunk in matrix.row_chunks(cells.X, rows))
        values = (cells.imputed(chunk).expected() for chunk in chunks)
        z = torch.cat([map_.standardizer(chunk, map_.device) for chunk in values])
        among = changed_by_recentring(map_, z)[assigned[rows]]
        changed = float(among.mean()) if len(among) else 0.0
        doubt = 1 - float(confidence[assigned].mean())
        expected = max(changed, doubt)
        self._params |= {"expected_error": expected, "changed_by_recentring": changed}
        if assigned.sum() >= LEAST_EXPECTED:
            logger.info("    about %.0f %% of the labels may be wrong", 100 * expected)
            if expected >= TOO_MANY:
                reason = MOVED if changed > doubt else DOUBTED.format(1 - doubt)
                self.notices.append(WRONG.format(expected, reason))

    def _results_of(self, predicted: Codes, *of_cells: Singles) -> _run.Results:
        places, confidence, novelty, of_classes = of_cells
        key, model, colors = self.key, self._cells.model, self._colors
        classes, params = pd.Index(model.classes_.tolist()), self._params
        self._check_usable(np.isfinite(confidence))
        assigned = confidence >= params["min_confidence"]
        if params["max_novelty"] < 1:
            assigned &= novelty <= params["max_novelty"]
        logger.info(
            "    %d of %d cells are assigned to a class", int(assigned.sum()), len(predicted)
        )
        self._expect(confidence, assigned)
        params = {"ingested_from": self.origin, **self._params}
        codes = np.where(assigned, predicted, -1)
        label = pd.Categorical.from_codes(codes, classes).set_categories(self._categories)
        level = parents = None
        if (hierarchy := self._hierarchy) is not None:
            pairs = hierarchy.parent_of.items()
            parents = pd.DataFrame(pairs, columns=["child", "parent"], dtype=str)
            is_known = (novelty <= params["max_novelty"]) | (params["max_novelty"] == 1)
            may = ~assigned & is_known & np.isfinite(confidence)
            label, level = self._coarse(label, may, of_classes, confidence)
            if colors is not None:
                names = label.categories[len(self._categories) :]
                colors = [*colors, *mixed_colors(hierarchy, names, self._categories, colors)]
        compared = self._compared(label)
        has_limits = params["min_confidence"] > 0 or params["max_novelty"] < 1
        is_text = isinstance(classes[0], str) and _result.UNASSIGNED not in classes
        if is_text and (has_limits or not assigned.all()):
            label = label.add_categories([_result.UNASSIGNED]).fillna(_result.UNASSIGNED)
            params["unlabeled_category"] = _result.UNASSIGNED
            colors = None if colors is None else [*colors, "#bebebe"]
        if len(finite := novelty[np.isfinite(novelty)]):
            quartile = params["novelty_quartile"] = float(np.quantile(finite, 0.25))
            if len(finite) >= LEAST_CELLS and quartile > SHIFTED:
                self.notices.append(SHIFT.format(quartile))
        config, arrays = model.to_state()
        stored = _result.StoredMap(
            params,
            classes,
            model.fitted_map.centers,
            model={"config": json.dumps(config), "arrays": arrays},
            compared=compared,
            parents=parents,
            id=_result.id_of(arrays),
        )
        columns: dict[Column, Any] = {
            "label": label,
            "level": level,
            "confidence": confidence,
            "novelty": novelty,
            "split": pd.Categorical([_result.QUERY] * len(label)),
        }
        of_all = of_classes if self._probabilities else None
        results = _run.results_of(key, stored, columns, places, of_all)
        results["uns"][colors_key(obs_key(key, "label"))] = colors
        return results

    def _check_usable(self, usable: Mask) -> None:
        """Add a notice on cells that have no place."""
        n_unusable, n = int((~usable).sum()), len(usable)
        if n_unusable and self._params["missing"] == "drop":
            self.notices.append(f"{n_unusable:,} of {n:,} cells are left out: values are missing")
        elif n_unusable:
            self.notices.append(
                f"{n_unusable} cells are unassigned: they lack more of the map's features than "
                f"max_missing={self._cells.max_missing} allows, or have no value"
            )

    def _coarse(
        self, label: pd.Categorical, may: Mask, of_classes: Singles, confidence: Floats
    ) -> tuple[pd.Categorical, NDArray[np.int8]]:
        """Give the cells in a mask the lowest parent that is sure, and its probability.

        Returns the (n_obs,) labels and their levels; the (n_obs,) `confidence` is changed.
        """
        hierarchy, rows = self._hierarchy, np.flatnonzero(may)
        assert hierarchy is not None
        level = np.where(label.codes >= 0, 0, -1).astype(np.int8)
        above = hierarchy.lowest(of_classes[rows], self._params["min_confidence"])
        rows, above = rows[above >= 0], above[above >= 0]
        logger.info("    %d of %d cells are assigned to a parent", len(rows), len(may))
        names = [name for name in hierarchy.ancestors if name not in label.categories]
        label = label.add_categories(names)
        label[rows] = np.array(hierarchy.ancestors, dtype=object)[above]
        level[rows] = hierarchy.levels[above]
        confidence[rows] = (of_classes[rows] * hierarchy.members.T[above]).sum(axis=1)
        return label, level

    def _compared(self, label: pd.Categorical) -> pd.DataFrame | None:
        """Count the cells of each class that have a label, and those that got another class.

        A parent is another class unless it is one of the own class.
        """
        own, n = self._own_labels, len(self._categories)
        if own is None:
            return None
        is_right = np.eye(n, len(label.categories), dtype=bool)
        if (hierarchy := self._hierarchy) is not None:
            below = hierarchy.members[hierarchy.classes.get_indexer(self._categories)]
            is_right[:, label.categories.get_indexer(hierarchy.ancestors)] |= below
        rows = np.flatnonzero((own >= 0) & (label.codes >= 0))
        differs = ~is_right[own[rows], label.codes[rows]]
        names = [str(name) for name in self._categories]
        counts = [np.bincount(own[rows[part]], minlength=n) for part in (differs | True, differs)]
        table = pd.DataFrame({"class": names, "n": counts[0], "n_differing": counts[1]})
        logger.info("    %s", compared_words(self._params, table))
        return table
