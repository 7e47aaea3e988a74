"""Features that differ between groups of cells, or that the map uses to tell its classes apart."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, ttest_ind, ttest_rel

from centroid_encoder.checks import Number
from centroid_encoder.core.arrays import Codes, Doubles, Mask
from centroid_encoder.core.effects import effects
from centroid_encoder.core.gaps import fill, is_gap
from centroid_encoder.core.inputs import class_sums
from centroid_encoder.core.matrix import looks_whole, row_chunks
from centroid_encoder.errors import check, check_name
from centroid_encoder.tables import is_key, result_columns
from centroid_encoder.tl import _result, _run
from centroid_encoder.tl._cells import MaskVar, Source, Values, read_new_cells
from centroid_encoder.tl._check import check_choice, check_key, check_known, listed, read_mask
from centroid_encoder.tl._composition import categorical
from centroid_encoder.tl._fitted_model import fitted_model

Method = Literal["auroc", "map"]
Groups = tuple[pd.Index, Codes, Codes, int | None]
"""Names of the groups that have cells; the (n_obs,) group of each cell, −1 for cells that take no
part; the groups that are ranked; the group with which they are compared, or None for the rest."""
Ranked = tuple[NDArray[np.object_], dict[str, Doubles], dict[str, Doubles]]
"""Names of the features, and the numbers and shares of `_records`."""

LEAST_CELLS = 10
"""Least number of cells of a donor or image on a side."""
LEAST_UNITS = 3
"""Least number of donors or images on a side for a p-value."""
LARGEST = 20
"""Larger means than this are no logarithms of counts."""


@_run.from_job
def rank_features(
    adata: AnnData,
    groupby: str,
    groups: Sequence[str] | Literal["all"] = "all",
    reference: str = "rest",
    *,
    method: Method = "auroc",
    subset: str | NDArray[np.bool_] | None = None,
    group_key: str | None = None,
    key: str = "ce",
    use_rep: str | None = None,
    layer: str | None = None,
    use_raw: bool | None = None,
    mask_var: MaskVar = None,
    n_features: int | None = None,
    key_added: str = "rank_features",
    progress: bool = True,
    copy: bool = False,
) -> Ranking:
    """Rank the features of each group of cells by how far they differ from those of other cells.

    The result has the layout of ``sc.tl.rank_genes_groups``, so that scanpy's functions read it:
    ``sc.get.rank_genes_groups_df(adata, None, key="rank_features")``,
    ``sc.pl.rank_genes_groups_dotplot(adata, key="rank_features")``.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts.
    groupby
        Column of ``adata.obs`` with the groups: classes, predicted classes, a selection, or a
        condition. Cells without a value are left out. Some plots of scanpy need a categorical
        column: ``adata.obs[c] = adata.obs[c].astype("category")``.
    groups
        Names of the groups to rank. The others still belong to the rest.
    reference
        Group with which each group is compared, or ``"rest"`` for all other cells.
    method
        ``"auroc"``: effect sizes of the data. ``"map"``: the features by which the networks of a
        map tell a class from the others; `groupby` is then the label column of the map. A feature
        that the map does not use is not irrelevant: another one may have the same information.
    subset
        Mask of the cells to compare, (n_obs,) boolean, or the name of such a column of
        ``adata.obs``: a condition within a class, for example. Only with ``"auroc"``.
    group_key
        Column of ``adata.obs`` with the donor or image of each cell. p-values are computed over
        these: cells of one donor are no replicates. Only with ``"auroc"``.
    key
        Name of the map for ``method="map"``.
    use_rep, layer, use_raw, mask_var
        Source of the values, as in `centroid_encoder`. By default the values are those of
        ``adata.raw`` if there is one, as in scanpy. With ``"map"`` they are those of the map.
    n_features
        Number of features that are stored for each group, best first; default: all.
    key_added
        Key of ``adata.uns`` for the result. An earlier ranking of this function is replaced.
    progress, copy
        As in `centroid_encoder`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. ``adata.uns[key_added]`` has

        ``names`` : record array
            Features of each group, by decreasing score. All record arrays have a field for each
            group and a row for each feature.
        ``scores`` : record array, dtype ``float32``
            With ``"auroc"``, 2 · AUROC − 1: the probability that a cell of the group has a larger
            value than one of the reference, minus that of a smaller one, in [−1, 1]. With
            ``"map"``, the mean contribution of the feature to the margin of the class, in logits;
            NaN for features that the map does not use, which come last.
        ``logfoldchanges`` : record array, dtype ``float32``
            As in scanpy; NaN unless the values are those of X or raw as ``sc.pp.log1p`` made them:
            not counts, scaled values, a layer or a representation.
        ``pvals``, ``pvals_adj`` : record array, dtype ``float64``
            Without `group_key` NaN; see Notes. Adjusted by Benjamini & Hochberg.
        ``mean_differences`` : record array, dtype ``float32``
            Difference of the means in pooled standard deviations (Cohen's d). With ``"map"``, there
            is ``deviations`` instead: the standard deviation of the contribution over the cells.
        ``pts``, ``pts_rest`` : DataFrame
            Share of the cells with a value above 0, of the features (rows) and groups (columns);
            ``pts_rest`` only if the reference is the rest. Only with ``"auroc"``, and not if no
            file can hold a table with the names of the groups, for example with a slash.
        ``params`` : dict
            The arguments, and with ``"map"`` the number of cells of each group, ``n_cells``, in the
            order of the fields.

        As in scanpy, no zarr store of format 2 can hold a field with a colon in its name.

    Raises
    ------
    KeyError
        If there is no such column, layer or map.
    ValueError
        If there are fewer than two groups; if a group has no cell, or with ``"map"`` none that was
        held out; or if an argument does not suit the method.

    Warns
    -----
    CentroidEncoderWarning
        If p-values cannot be computed, with the reason; with ``"map"``, if features of the map are
        missing.

    Notes
    -----
    **p-values.** The values are averaged over the cells of each donor or image (a pseudobulk, at
    least 10 cells), and the means compared by a t-test: paired if at least three donors have cells
    of both sides, else Welch's between the donors that have cells of one side only, if there are at
    least three a side; with fewer, p-values are NaN. They are NaN as well if the features made the
    groups, which would be circular: predictions of a map or a cross-validation, selections in a
    map, and clusterings by scanpy. Other columns of this kind cannot be recognised: do not use
    p-values for groups that were found in the same values.

    **Contributions.** Integrated gradients [1]_ of the margin, which is the logit of the class
    minus that of all others together (or of the reference), along the line from the mean of the
    training cells of the reference to each held-out cell of the class. The contributions of a cell
    add up to the change of the margin. No network has seen these cells.

    References
    ----------
    .. [1] Sundararajan, Taly & Yan (2017), Axiomatic attribution for deep networks. Proceedings of
       the 34th International Conference on Machine Learning.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.rank_features(adata, "bulk_labels", ["CD19+ B"], n_features=3, progress=False)
    >>> sc.get.rank_genes_groups_df(adata, "CD19+ B", key="rank_features")["names"].tolist()
    ['CD79A', 'CD79B', 'CD74']
    """
    del progress, copy  # `from_job` uses them.
    text = 'pass method="auroc", which has the order of the Wilcoxon test, instead of "wilcoxon"'
    check(str(method) != "wilcoxon", text, "method")
    check_choice("method", method, Method)
    check_name(key_added, "key_added", "a key of uns")
    check_key(key_added, "key_added")
    _result.check_free(adata, key_added, is_own=_is_ranking(adata.uns.get(key_added)))
    Number(1, integer=True, instead=(None,)).check("n_features", n_features)
    params: dict[str, Any] = {"groupby": groupby, "reference": reference, "method": method}
    source, chosen = Source(use_rep, layer, bool(use_raw), mask_var), np.ones(adata.n_obs, bool)
    notices: list[str] = []
    if method == "map":
        given = {"subset": subset, "group_key": group_key, **vars(source), "use_raw": use_raw}
        for name, value in given.items():
            check(value is None, f'{name} has no effect with method="map"', name)
        result = _result.read_result(adata, key, trained=True)
        text = f"groupby={groupby!r}: the classes of the map are those of {result.label_key!r}"
        check(groupby == result.label_key, f'{text}; pass method="auroc"', "groupby")
        source, chosen, params["key"] = result.stored.source, result.codes >= 0, key
    elif subset is not None:
        chosen = read_mask(adata.obs, "obs", subset, "subset")
    compared = _read_groups(adata, groupby, groups, reference, chosen)
    if use_raw is None and method == "auroc" and use_rep is layer is mask_var is None:
        source = Source(use_raw=adata.raw is not None)
    params |= {} if group_key is None else {"group_key": group_key}
    params["corr_method"] = "benjamini-hochberg"
    params |= {"use_raw": source.use_raw, "layer": source.layer}
    if method == "map":
        cells, notices = read_new_cells(adata, fitted_model(adata, key, device="cpu"), source)
        text = 'the features of the map have no names; pass method="auroc" to compare those of X'
        check(cells.names is not None, text, "method")
        rank: Any = partial(_by_map, split=result.split.to_numpy())
        return Ranking(cells, key_added, notices, compared, params, n_features, rank)
    values, units = source.read(adata), None
    check(values.names is not None, f"{values.where} has no names of its columns", "use_rep")
    if group_key is not None and (reason := _circular(adata, groupby)):
        notices.append(f"no p-values, which would be circular: {reason}")
    elif group_key is not None:
        units = np.asarray(categorical(adata, group_key, "group_key").codes)
    rank = partial(_by_data, adata=adata, units=units)
    return Ranking(values, key_added, notices, compared, params, n_features, rank)


def _is_ranking(stored: Any) -> bool:
    """Return whether an entry of ``uns`` is a result of `rank_features`, and none of scanpy."""
    params = stored.get("params") if isinstance(stored, Mapping) else None
    return isinstance(params, Mapping) and params.get("method") in get_args(Method)


def _read_groups(adata: AnnData, groupby: str, groups: Any, reference: str, chosen: Mask) -> Groups:
    column = categorical(adata, groupby, "groupby")
    column[~chosen] = np.nan
    column = column.remove_unused_categories()
    names, codes = column.categories.astype(str), column.codes.astype(np.intp)
    text = f"obs[{groupby!r}] has cells of {len(names)} group"
    check(len(names) > 1, f"{text} here; a comparison needs two", "groupby")
    text = f"obs[{groupby!r}] has groups with no name or with the same one, such as 1 and '1'"
    check(names.is_unique and "" not in names, f"{text}; rename them", "groupby")

    def index(name: object, parameter: str) -> int:
        text = f"{parameter}: no cell has {name!r} in obs[{groupby!r}]"
        check_known(str(name), names, text, parameter)
        return int(names.get_loc(str(name)))

    against = None if reference == "rest" else index(reference, "reference")
    groups = names if isinstance(groups, str) and groups == "all" else groups
    is_list = np.iterable(groups) and not isinstance(groups, str)
    check(is_list, f'groups must be "all" or a list; got {groups!r}', "groups")
    wanted = [index(name, "groups") for name in groups]
    ranked = np.array([j for j in dict.fromkeys(wanted) if j != against], dtype=np.intp)
    check(len(ranked), "groups has no group beside the reference", "groups")
    if against is not None:
        codes = np.where(np.isin(codes, [*ranked, against]), codes, -1)
    return names, codes, ranked, against


@dataclass(eq=False)
class Ranking(_run.Job):
    """A job that ranks the features of groups."""

    groups: Groups
    params: dict[str, Any]
    _n_features: int | None
    _rank: Callable[[Ranking, _run.Callback], Ranked]

    def _compute(self, callback: _run.Callback) -> _run.Results:
        names, _, ranked, _ = self.groups
        records = _records(names[ranked], self._n_features, *self._rank(self, callback))
        return {"uns": {self.key: {"params": self.params, **records}}}


def _by_data(job: Ranking, callback: _run.Callback, adata: AnnData, units: Codes | None) -> Ranked:
    """Rank by the effect sizes of the data; `units` are (n_obs,) donors or images."""
    (names, codes, ranked, against), values = job.groups, job._cells
    n_done = count(1)

    def step() -> None:
        _run.check_stop(callback, _run.Progress(next(n_done), len(values.names), "feature"))

    found = effects(values.X, codes, len(names), against, step)
    of_ranked = {name: of_groups[ranked] for name, of_groups in found.items()}
    nothing = np.full_like(of_ranked["auroc"], np.nan)
    numbers = {
        "scores": 2 * of_ranked["auroc"] - 1,
        "logfoldchanges": nothing,
        "mean_differences": of_ranked["difference"],
        "pvals": nothing,
    }
    if _is_log1p(adata, values, codes, found["mean"]):
        base = (adata.uns["log1p"] or {}).get("base")
        factor = 1.0 if base is None else np.log(base)
        mean, rest = (np.expm1(of_ranked[x] * factor) + 1e-9 for x in ("mean", "mean_rest"))
        numbers["logfoldchanges"] = np.log2(mean / rest)
    shares = {"pts": of_ranked["positive"]}
    if against is None:
        shares["pts_rest"] = of_ranked["positive_rest"]
    if units is not None:
        numbers["pvals"], few = _p_values(values.X, job.groups, units)
        if few.any():
            text = f"no p-values for {listed(names[ranked[few]])}: they need {LEAST_UNITS} values"
            where = f"obs[{job.params['group_key']!r}]"
            job.notices.append(f"{text} of {where} on each side, with {LEAST_CELLS} cells each")
    return values.names, numbers, shares


def _by_map(job: Ranking, callback: _run.Callback, split: NDArray[np.object_]) -> Ranked:
    """Rank by the contributions to the margins of a map; `split` is that of all cells."""
    import torch

    from centroid_encoder.core.attributions import attribute

    (names, codes, ranked, against), cells = job.groups, job._cells
    map_, features = cells.model.fitted_map, np.asarray(cells.model.feature_names_in_, object)
    at = pd.Index([str(name) for name in cells.model.classes_.tolist()]).get_indexer(names)
    kept = map_.standardizer.kept

    def inputs(group: int, part: str) -> Iterator[Any]:
        """Yield the standardised features of the cells of a group in a split."""
        for _, x in row_chunks(cells.X, np.flatnonzero((split == part) & (codes == group))):
            yield map_.standardizer(cells.imputed(x).expected())

    sums, sizes = np.zeros((len(names), len(kept))), np.zeros(len(names))
    for j in range(len(names)):
        for z in inputs(j, _result.TRAIN):
            sums[j] += np.asarray(z.double().sum(dim=0))
            sizes[j] += len(z)
    scores = np.full((len(ranked), len(features)), np.nan)
    deviations, n_cells = scores.copy(), np.zeros(len(scores), dtype=np.int64)
    for i, j in enumerate(ranked.tolist()):
        others = [k for k in range(len(names)) if k != j] if against is None else [against]
        text = "no cell of the reference was trained on; pass all cells of the map"
        check(sizes[others].any(), text, "adata")
        baseline = torch.from_numpy(sums[others].sum(axis=0) / sizes[others].sum()).float()
        total, squares = np.zeros((2, len(kept)))
        for z in inputs(j, _result.TEST):
            found = attribute(map_, z, baseline, int(at[j]), at[others].tolist()).astype(np.float64)
            n_cells[i] += len(found)
            total += found.sum(axis=0)
            squares += np.square(found).sum(axis=0)
        if n_cells[i]:
            scores[i, kept] = mean = total / n_cells[i]
            deviations[i, kept] = np.sqrt(np.maximum(squares / n_cells[i] - mean**2, 0))
        _run.check_stop(callback, _run.Progress(i + 1, len(ranked), "group"))
    text = "no cell of these groups was held out; train with a test_size"
    check(n_cells.any(), text, "groups")
    if not n_cells.all():
        unknown = listed(pd.Index(names[ranked[n_cells == 0]]))
        job.notices.append(f"no scores for {unknown}: none of their cells was held out")
    job.params["n_cells"] = n_cells
    nothing = np.full_like(scores, np.nan)
    numbers = {"scores": scores, "logfoldchanges": nothing, "deviations": deviations}
    return features, numbers | {"pvals": nothing}, {}


def _records(
    fields: pd.Index,
    n_features: int | None,
    features: NDArray[np.object_],
    numbers: dict[str, Doubles],
    shares: dict[str, Doubles],
) -> dict[str, Any]:
    """Return the entries of ``uns`` in the layout of scanpy.

    `numbers` holds the values of the record arrays, ``"scores"`` and ``"pvals"`` among them, and
    `shares` those of the tables: (G, d) arrays of the groups `fields`.
    """
    pvals = numbers["pvals"]
    order = np.argsort(-numbers["scores"], axis=1, kind="stable")[:, :n_features]
    adjusted = np.full_like(pvals, np.nan)
    for row, p in zip(adjusted, pvals, strict=True):
        row[~np.isnan(p)] = false_discovery_control(p[~np.isnan(p)])

    def records(values: NDArray[Any], dtype: str) -> Any:
        table = pd.DataFrame(np.take_along_axis(values, order, axis=1).T, columns=fields)
        return table.to_records(index=False, column_dtypes=dict.fromkeys(fields, dtype))

    found = {"names": records(np.broadcast_to(features, pvals.shape), "O")}
    for name, values in (numbers | {"pvals_adj": adjusted}).items():
        found[name] = records(values, "float64" if name.startswith("pvals") else "float32")
    is_table = all(map(is_key, fields)) and "_index" not in fields
    for name, values in shares.items() if is_table else ():
        found[name] = pd.DataFrame(values.T, index=features, columns=fields)
    return found


def _is_log1p(adata: AnnData, values: Values, codes: Codes, means: Doubles) -> bool:
    """Return whether values are those of X or raw as ``sc.pp.log1p`` made them.

    They may be counts, or may have been scaled since; `means` are those of the groups.
    """
    if values.where not in ("X", "raw.X") or "log1p" not in adata.uns:
        return False
    largest = np.nanmax(np.abs(means), initial=0)
    if (means < 0).any() or largest > LARGEST or looks_whole(values.X):
        return False
    features = pd.Index(values.names)
    if not {"mean", "std"} <= set(adata.var) or not features.isin(adata.var_names).all():
        return True
    # The moments that `sc.pp.scale` stores are those of X, or of a layer, before it was scaled.
    sizes = np.bincount(codes[codes >= 0], minlength=len(means))
    mean = sizes @ np.nan_to_num(means) / sizes.sum()
    before, deviation = adata.var.loc[features, ["mean", "std"]].to_numpy(float).T
    with np.errstate(divide="ignore", invalid="ignore"):
        away = [np.nanmedian(np.abs(mean - x)) for x in (before, before / deviation)]
    return bool(away[0] <= away[1])


def _circular(adata: AnnData, column: str) -> str:
    """Return how the features made the groups of a column, or an empty text if it is not known.

    Columns of a map, selections of the widget, and clusterings of scanpy are known.
    """
    if column in result_columns(adata.obs):
        return f"obs[{column!r}] holds results of a map, which used the features"
    how = (adata.uns.get(_result.SELECTIONS) or {}).get(column, {})
    if how.get("uses_features"):
        return f"the features made the selection {column!r} ({how['how']})"
    stored = adata.uns.get(column)
    settings = stored.get("params") if isinstance(stored, Mapping) else None
    if isinstance(settings, Mapping) and "resolution" in settings:
        return f"obs[{column!r}] holds clusters of the features"
    return ""


def _p_values(X: Any, groups: Groups, units: Codes) -> tuple[Doubles, Mask]:
    """(G, d) p-values of t-tests between means of `units`, donors or images.

    Returns also the (G,) mask of the groups that have too few of them.
    """
    names, codes, ranked, against = groups
    n_groups, n_units = len(names), int(units.max(initial=-1)) + 1
    shape = n_groups, n_units, X.shape[1]
    rows = np.flatnonzero((codes >= 0) & (units >= 0))
    places = codes[rows] * n_units + units[rows]
    sums, n = np.zeros((2, n_groups * n_units, X.shape[1]))
    for part, x in row_chunks(X, rows):
        sums += class_sums(fill(x, np.zeros(x.shape[1])), places[part], len(sums))
        n -= class_sums(is_gap(x), places[part], len(sums))
    n_cells = np.bincount(places, minlength=len(sums)).reshape(shape[:2])
    sums, n = sums.reshape(shape), n.reshape(shape) + n_cells[:, :, None]
    p, few = np.full((len(ranked), X.shape[1]), np.nan), np.zeros(len(ranked), dtype=bool)
    for i, j in enumerate(ranked):
        own = np.arange(n_groups) == j
        sides = [own, ~own if against is None else np.arange(n_groups) == against]
        one, other = (n_cells[side].sum(axis=0) >= LEAST_CELLS for side in sides)
        with np.errstate(invalid="ignore"):
            first, second = (sums[side].sum(axis=0) / n[side].sum(axis=0) for side in sides)
        both = one & other
        # The means of a donor on both sides are not independent.
        one, other = one & ~both, other & ~both
        if both.sum() >= LEAST_UNITS:
            p[i] = _t_test(first[both], second[both], paired=True)
        elif min(one.sum(), other.sum()) >= LEAST_UNITS:
            p[i] = _t_test(first[one], second[other], paired=False)
        else:
            few[i] = True
    return p, few


def _t_test(first: Doubles, other: Doubles, *, paired: bool) -> Doubles:
    """(d,) p-values; NaN for features whose (n, d) means differ by no more than rounding errors."""
    apart = first - other if paired else np.concatenate([first, other]) - first[0]
    is_same = np.abs(apart).max(axis=0) <= 1e-12 * np.abs(first).max(axis=0)
    with warnings.catch_warnings():
        # scipy warns of equal means.
        warnings.simplefilter("ignore")
        test = ttest_rel(first, other) if paired else ttest_ind(first, other, equal_var=False)
    return np.where(is_same, np.nan, test.pvalue)
