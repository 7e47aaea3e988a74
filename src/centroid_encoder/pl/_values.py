"""Values of the cells that give points their colours: columns of ``obs``, and variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.colors import Normalize, TwoSlopeNorm
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from centroid_encoder.errors import InputError, MissingKeyError, check
from centroid_encoder.pl._colors import Palette, label_colors
from centroid_encoder.tl._check import near_matches, obs_column

Bound = float | str | Callable[[NDArray[np.floating]], float] | None
"""An end of a colour scale, as in scanpy's plots."""
MAX_CATEGORIES = 100  # categories with a colour; the colours of more cannot be distinguished


@dataclass(frozen=True)
class Values:
    """Values of a column or variable, and the colours of its categories."""

    name: str
    values: NDArray[Any]
    """(n_obs,) numbers, NaN if missing; or indices into `colors`, −1 for grey cells."""
    colors: dict[object, str] | None
    """Colour of each category in order; None for numbers."""
    grey: Sequence[str] = ()
    """Entries of a legend for the grey cells."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n_obs,) mask of the cells that are not grey."""
        return np.asarray(np.isfinite(self.values) if self.colors is None else self.values >= 0)

    @property
    def names(self) -> dict[str, object]:
        """The categories by their texts."""
        return {str(name): name for name in self.colors or ()}

    def checked(self, drawn: NDArray[np.bool_]) -> Values:
        """Return the values; raise an InputError if no cell that is drawn has one."""
        text = f"no cell of the map has a value of {self.name!r}"
        check((self.known & drawn).any(), text, "color")
        return self

    def of_groups(self, groups: Sequence[object]) -> Values:
        """Return the values with grey for the cells of all categories but some."""
        if self.colors is None:
            raise InputError(f"groups are categories, but {self.name!r} holds numbers", "groups")
        names = self.names
        if absent := [str(name) for name in groups if str(name) not in names]:
            known = near_matches(absent[0], names)
            raise InputError(f"{self.name!r} has no category {absent[0]!r}{known}", "groups")
        wanted = {names[str(group)] for group in groups}
        kept = {name: color for name, color in self.colors.items() if name in wanted}
        codes = pd.Index(list(kept)).get_indexer(list(self.colors))
        return Values(self.name, np.append(codes, -1)[self.values], kept, ["other", *self.grey])

    def norm(self, vmin: Bound = None, vmax: Bound = None, vcenter: Bound = None) -> Normalize:
        """Return the scale of the numbers, by default from the smallest to the largest one."""
        known = self.values[self.known]
        low, middle, high = given = [_bound(bound, known) for bound in (vmin, vcenter, vmax)]
        rising = [bound for bound in given if bound is not None]
        if rising != sorted(rising) or (middle is not None and len(set(rising)) < len(rising)):
            text = f"vmin, vcenter and vmax must rise; got {vmin}, {vcenter} and {vmax}"
            raise InputError(text, "vmin")
        # An end that is not given is beyond those that are.
        low = min([known.min(), *rising]) if low is None else low
        high = max([known.max(), *rising]) if high is None else high
        if middle is None:
            return Normalize(low, high)
        width = max(high - low, 1e-9)
        return TwoSlopeNorm(
            middle, min(low, middle - 1e-3 * width), max(high, middle + 1e-3 * width)
        )


def _bound(bound: Bound, values: NDArray[np.floating]) -> float | None:
    """Return an end of a scale, which may be a percentile such as "p99", or a function."""
    if isinstance(bound, str) and re.fullmatch(r"p(100|\d\d?(\.\d+)?)", bound):
        return float(np.percentile(values, float(bound[1:])))
    if bound is None or isinstance(bound, Real):
        return None if bound is None else float(bound)
    if callable(bound):
        return float(bound(values))
    raise InputError(
        f"an end of the scale must be a number, a text such as 'p99' or a function; got {bound!r}",
        "vmin",
    )


def read_values(
    adata: AnnData,
    name: str,
    *,
    layer: str | None = None,
    use_raw: bool | None = None,
    gene_symbols: str | None = None,
    palette: Palette | None = None,
) -> Values:
    """Read a column of ``adata.obs`` or a variable, as scanpy's plots do.

    The other arguments are as in `voronoi`. A KeyError is raised if there is neither.
    """
    if name in adata.obs:
        column = obs_column(adata, name)
        if is_numeric_dtype(column) and not is_bool_dtype(column):
            return Values(name, column.to_numpy(np.float64, na_value=np.nan), None)
        colors, column = label_colors(adata, name, palette), column.astype(object)
        # The `MAX_CATEGORIES` categories with the most cells have colours.
        counts = column.value_counts().reindex(list(colors), fill_value=0)
        most = counts.nlargest(MAX_CATEGORIES).index
        kept = {category: color for category, color in colors.items() if category in most}
        grey = [f"… and {len(colors) - len(kept)} more"] if len(kept) < len(colors) else []
        grey += ["none"] if column.isna().any() else []
        return Values(name, pd.Index(list(kept)).get_indexer(column), kept, grey)
    source = variable_source(adata, layer=layer, use_raw=use_raw)
    names, where = source.var_names, "var_names" if gene_symbols is None else gene_symbols
    if gene_symbols is not None:
        if gene_symbols not in source.var:
            text = f"var has no column {gene_symbols!r}{near_matches(gene_symbols, source.var)}"
            raise MissingKeyError(text, "gene_symbols")
        names = pd.Index(source.var[gene_symbols].astype(str))
    where = where if source is adata else f"raw.{where}"
    places = np.flatnonzero(names == name)
    if not len(places):
        known = [*map(str, adata.obs.columns), *map(str, names)]
        text = f"neither obs nor {where} has {name!r}{near_matches(name, known)}"
        raise MissingKeyError(text, "color")
    if len(places) > 1:
        text = f"{where} has {name!r} {len(places)} times"
        text += "; call adata.var_names_make_unique() first" if gene_symbols is None else ""
        raise InputError(text, "color")
    # With an integer index, only one column of a matrix on disk is read.
    values = (source.X if layer is None else source.layers[layer])[:, int(places[0])]
    values = values.toarray() if hasattr(values, "toarray") else values
    return Values(name, np.asarray(values, dtype=np.float64).ravel(), None)


def variable_source(
    adata: AnnData, *, layer: str | None = None, use_raw: bool | None = None
) -> Any:
    """Return the object with the variables: as in scanpy, ``adata.raw`` if there is one.

    With a `layer` or ``use_raw=False`` it is `adata`.
    """
    if use_raw and adata.raw is None:
        raise InputError("use_raw=True needs adata.raw, and there is none", "use_raw")
    check(not use_raw or layer is None, "use_raw and layer exclude each other", "use_raw")
    if layer is not None and layer not in adata.layers:
        text = f"layers has no {layer!r}{near_matches(layer, adata.layers)}"
        raise MissingKeyError(text, "layer")
    takes_raw = layer is None and use_raw is not False and adata.raw is not None
    return adata.raw if takes_raw else adata
