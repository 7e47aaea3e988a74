"""The images of a table, and what shows each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from centroid_encoder.viewer.data.ids import named
from centroid_encoder.viewer.data.regions import MANY, REGION_KEYS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from centroid_encoder.viewer.data.join import Join, Link


@dataclass(frozen=True)
class TableImage:
    """One image of a table, or all of them, if one layer shows all of them."""

    region: object
    """Value in the column of regions; None for all."""
    n_cells: int
    link: Link | None = None
    """To the layer that shows it, if one does."""
    join: Join | None = None
    """None also where the link does not say which cell is which."""
    remark: str = ""
    """What is wrong with the link."""

    @property
    def name(self) -> str:
        """What the image is called in the table."""
        return "all images" if self.region is None else str(self.region)


def region_columns(obs: pd.DataFrame) -> list[str]:
    """Columns that may say which image a cell is in, those that are called so first."""
    likely = named(obs, REGION_KEYS)
    others = [name for name in obs if name not in likely and _may_be_names(obs[name])]
    return [str(name) for name in [*likely, *others] if 1 < obs[name].nunique() < MANY]


def region_column(obs: pd.DataFrame, declared: str | None = None) -> str | None:
    """Column that says which image a cell is in, by its name; None if all are in one image.

    Parameters
    ----------
    obs
    declared
        The column, if it is known.
    """
    names = [declared] if declared in obs else [str(name) for name in named(obs, REGION_KEYS)]
    return next((name for name in names if 1 < obs[name].nunique() < MANY), None)


def table_images(
    obs: pd.DataFrame,
    column: str,
    joins: Mapping[Link, Join],
    wrong: Mapping[Link, str],
) -> list[TableImage]:
    """List the images of a table in the order of their categories, or of their names.

    Parameters
    ----------
    obs, column
        Where they are.
    joins
        What is joined.
    wrong
        What is wrong with links, which need not be joined.
    """
    counts = obs[column].value_counts(sort=False)
    values = counts.index[counts > 0] if _is_categorical(obs[column]) else _sorted(obs[column])
    by_region: dict[str | None, Link] = {}
    for link in [*wrong, *joins]:
        if link.region is not None and link.region.column == column:
            value = link.region.value
            by_region[None if value is None else str(value)] = link

    def image(value: object, n_cells: int) -> TableImage:
        link = by_region.get(None if value is None else str(value))
        if link is None:
            return TableImage(value, n_cells)
        return TableImage(value, n_cells, link, joins.get(link), wrong.get(link, ""))

    whole = [image(None, int(counts.sum()))] if None in by_region else []
    return [*whole, *(image(value, int(counts[value])) for value in values)]


def unseen(
    obs: pd.DataFrame,
    rows: NDArray[np.intp],
    link: Link | None,
    joins: Mapping[Link, Join],
) -> str:
    """Return why none of these cells is in a layer; empty if one is, or if there are none.

    Cells of another image can be selected in the map, while no layer of it is open.
    """
    if not len(rows) or any(join.joined[rows].any() for join in joins.values()):
        return ""
    if link is None:
        return "No layer shows the cells of this table."
    region = link.region
    column = region_column(obs) if region is None else region.column
    if column in obs and (region is None or region.value is not None):
        shown = [str(other.region.value) for other in joins if other.region is not None]
        values = [str(value) for value in obs[column].iloc[rows].dropna().unique()]
        elsewhere = [value for value in values if value not in shown]
        if elsewhere:
            more = " …" if len(elsewhere) > 3 else ""
            verb = "is" if len(elsewhere) == 1 else "are"
            return f"In {', '.join(elsewhere[:3])}{more}, which {verb} not open."
    return f"Not in the layer {link.layer.name}."


def _is_categorical(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def _may_be_names(column: pd.Series) -> bool:
    floats, truths = pd.api.types.is_float_dtype(column.dtype), pd.api.types.is_bool_dtype(column)
    return not floats and not truths


def _sorted(column: pd.Series) -> Iterable[object]:
    """Values, 2 before 10 also in names."""

    def parts(value: object) -> list[tuple[bool, int, str]]:
        found = re.findall(r"\d+|\D+", str(value))
        return [
            (not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in found
        ]

    return sorted(pd.unique(column.dropna()), key=parts)
