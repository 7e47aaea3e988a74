"""Values of the cells that give points their colours: columns of ``obs``, and variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.colors import Normalize
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from centroid_encoder.errors import InputError, MissingKeyError
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tl._read import near_matches, obs_column

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
    def norm(self) -> Normalize:
        """Scale from the smallest to the largest number."""
        known = self.values[self.known]
        return Normalize(known.min(), known.max()) if len(known) else Normalize(0, 1)


def read_values(adata: AnnData, name: str, *, layer: str | None, use_raw: bool | None) -> Values:
    """Read a column of ``adata.obs`` or a variable, as scanpy's plots do.

    `layer` and `use_raw` are as in `voronoi`. A KeyError is raised if there is neither.
    """
    if name in adata.obs:
        column = obs_column(adata, name)
        if is_numeric_dtype(column) and not is_bool_dtype(column):
            return Values(name, column.to_numpy(np.float64, na_value=np.nan), None)
        colors, column = label_colors(adata, name), column.astype(object)
        # The `MAX_CATEGORIES` categories with the most cells have colours.
        counts = column.value_counts().reindex(list(colors), fill_value=0)
        most = counts.nlargest(MAX_CATEGORIES).index
        kept = {category: color for category, color in colors.items() if category in most}
        grey = [f"… and {len(colors) - len(kept)} more"] if len(kept) < len(colors) else []
        grey += ["none"] if column.isna().any() else []
        return Values(name, pd.Index(list(kept)).get_indexer(column), kept, grey)
    source = variable_source(adata, layer=layer, use_raw=use_raw)
    where = "var_names" if source is adata else "raw.var_names"
    places = np.flatnonzero(source.var_names == name)
    if not len(places):
        known = [*map(str, adata.obs.columns), *map(str, source.var_names)]
        text = f"neither obs nor {where} has {name!r}{near_matches(name, known)}"
        raise MissingKeyError(text, "color")
    if len(places) > 1:
        text = f"{where} has {name!r} {len(places)} times; call adata.var_names_make_unique() first"
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
    if use_raw and layer is not None:
        raise InputError("use_raw and layer exclude each other", "use_raw")
    if layer is not None and layer not in adata.layers:
        text = f"layers has no {layer!r}{near_matches(layer, adata.layers)}"
        raise MissingKeyError(text, "layer")
    takes_raw = layer is None and use_raw is not False and adata.raw is not None
    return adata.raw if takes_raw else adata
