"""Values of the cells that give points their colours: columns of ``obs``, and variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize, TwoSlopeNorm
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from centroid_encoder.errors import MissingKeyError, check
from centroid_encoder.pl._colors import Palette, label_colors
from centroid_encoder.tl._check import check_known, entry_of, obs_column

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
    scale: ScalarMappable | None = None
    """Colours of numbers; None for categories."""
    of_classes: bool = False
    """Whether the categories are the classes of the map."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n_obs,) mask of the cells that are not grey."""
        return np.asarray(np.isfinite(self.values) if self.colors is None else self.values >= 0)

    def of_groups(self, groups: Sequence[object], *, strict: bool) -> Values:
        """Return the values with grey for the cells of all categories but some.

        If not `strict`, groups of other columns are ignored.
        """
        colors, wanted = self.colors or {}, [*map(str, groups)]
        names = [*map(str, colors)]
        if strict:
            text = f"groups are categories, but {self.name!r} holds numbers"
            check(self.colors is not None or not wanted, text, "groups")
            for name in wanted:
                check_known(name, names, f"{self.name!r} has no category {name!r}", "groups")
        kept = {name: color for name, color in colors.items() if str(name) in wanted}
        if not kept:
            return self
        codes = pd.Index(list(kept)).get_indexer(list(colors))
        grey = ["other", *self.grey]
        return replace(self, values=np.append(codes, -1)[self.values], colors=kept, grey=grey)

    def on_scale(self, cmap: Colormap, vmin: Bound, vmax: Bound, vcenter: Bound) -> Values:
        """Return numbers with a scale, by default from the smallest to the largest one."""
        if self.colors is not None:
            return self
        known = self.values[self.known]
        low, middle, high = ends = [_end(bound, known) for bound in (vmin, vcenter, vmax)]
        given = [end for end in ends if end is not None]
        rises = given == sorted(given) and (middle is None or len({*given}) == len(given))
        text = f"vmin, vcenter and vmax must rise; got {vmin}, {vcenter} and {vmax}"
        check(rises, text, "vmin")
        norm = Normalize(low, high) if middle is None else TwoSlopeNorm(middle, low, high)
        # An end that is not given is beyond those that are.
        norm.autoscale_None(np.append(known, given))
        return replace(self, scale=ScalarMappable(norm, cmap))


def _end(bound: Bound, values: NDArray[np.floating]) -> float | None:
    """Return an end of a scale, which may be a percentile such as "p99", or a function."""
    if isinstance(bound, str) and re.fullmatch(r"p(100|\d\d?(\.\d+)?)", bound):
        return float(np.percentile(values, float(bound[1:])))
    if callable(bound):
        return float(bound(values))
    if isinstance(bound, Real):
        return float(bound)
    text = "an end of the scale must be a number, a text such as 'p99' or a function"
    check(bound is None, f"{text}; got {bound!r}", "vmin")
    return None


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
    where = where if source is adata else f"raw.{where}"
    if gene_symbols is not None:
        column = entry_of(source.var, gene_symbols, "var", "gene_symbols", "column ")
        names = pd.Index(column.astype(str))
    places = np.flatnonzero(names == name)
    known = [*map(str, adata.obs.columns), *map(str, names)]
    check_known(name, known, f"neither obs nor {where} has {name!r}", "color", MissingKeyError)
    advice = "" if gene_symbols else "; call adata.var_names_make_unique() first"
    check(len(places) == 1, f"{where} has {name!r} {len(places)} times{advice}", "color")
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
    text = "use_raw=True needs adata.raw, and there is none"
    check(not use_raw or adata.raw is not None, text, "use_raw")
    check(not use_raw or layer is None, "use_raw and layer exclude each other", "use_raw")
    if layer is not None:
        entry_of(adata.layers, layer, "layers", "layer")
    takes_raw = layer is None and use_raw is not False and adata.raw is not None
    return adata.raw if takes_raw else adata
