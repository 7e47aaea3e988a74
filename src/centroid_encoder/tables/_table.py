"""Make an AnnData of a table of cells that another program wrote."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.utils import make_index_unique

from centroid_encoder.errors import InputError, check, issue_warning
from centroid_encoder.tables._roles import (
    CHOSEN,
    MAX_GROUPS,
    Role,
    column_roles,
    is_number,
    is_whole,
)
from centroid_encoder.tables._text import UNPACK, read_text

ROLES = "column_roles"
"""Key in ``uns`` of the roles of the columns that the table had."""
TEXT, PARQUET = (".csv", ".tsv", ".txt", ".tab"), ".parquet"
ADVICE = {
    ("fov", "cell_ID"): "CosMx writes counts and metadata: squidpy.read.nanostring joins them",
    ("cell", "Blank-1"): "MERSCOPE writes counts and metadata: squidpy.read.vizgen joins them",
    ("fov", "volume", "center_x"): "the counts are in cell_by_gene: squidpy.read.vizgen joins them",
    ("cell_id", "transcript_counts"): "the counts of genes are in another file of Xenium: "
    "spatialdata_io.xenium reads both",
    ("ImageNumber", "Group_Index"): "it has one row per image; cells are in CellProfiler's others",
}
"""Sentences on files of an exporter that are not the whole table of cells, by their columns."""


def read_table(path: str | PathLike[str], *, roles: Mapping[str, Role] | None = None) -> AnnData:
    """Read a table with one row per cell, as other programs and spreadsheets write it.

    Columns of measurements become ``X``; ids, images, positions, classes, results of a map, and
    text become columns of ``obs``. A warning names the columns in doubt: these are measurements,
    but two columns whose names differ only in the axis are positions.

    Parameters
    ----------
    path
        A ``.csv``, ``.tsv`` or ``.txt`` file, which may be compressed (``.gz``, ``.bz2``,
        ``.xz``), or a ``.parquet`` file (needs pyarrow). Separator, encoding, decimal mark and
        header of text are detected.
    roles
        Roles of columns that are read otherwise, such as ``{"Time": "feature"}``. A role is
        ``"feature"``, ``"id"``, ``"image"`` (or another group of cells), ``"position"``,
        ``"class"``, ``"result"`` or ``"text"``.

    Returns
    -------
    AnnData
        ``X`` of shape (n_cells, n_features), float64. ``uns["column_roles"]`` is a DataFrame with
        the role of each column and the reason. If the first column has unique texts, they are
        the names of the cells.

    Raises
    ------
    InputError
        If there is no header or no measurement, if a row is longer than the header, or if
        `roles` names no column or no role.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> adata = ce.read_table("cells.csv", roles={"Class": "class"})  # doctest: +SKIP
    """
    try:
        adata, notices = read_with_notices(Path(path), roles)
    except InputError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    for notice in notices:
        issue_warning(notice, stacklevel=2)
    return adata


def unpacked(path: Path) -> Path:
    """Return the name of a file without the suffix of its package, such as ``.gz``."""
    return path.with_suffix("") if path.suffix.lower() in UNPACK else path


def is_table(path: Path) -> bool:
    """Return whether `read_table` can read a file of this name."""
    return unpacked(path).suffix.lower() in TEXT or path.suffix.lower() == PARQUET


def read_with_notices(
    path: Path, roles: Mapping[str, Role] | None = None
) -> tuple[AnnData, list[str]]:
    """Return the table in a file as `read_table` does, and sentences on what was not plain."""
    is_text = path.suffix.lower() != PARQUET
    frame, notices = read_text(path) if is_text else (_read_parquet(path), [])
    for columns, advice in ADVICE.items():
        if frame.columns.isin(columns).sum() == len(columns):
            notices.append(advice)
    adata = frame_to_anndata(frame, roles)
    check(adata.n_vars, "the table has no column with measurements")
    return adata, [*(f"{path.name}: {notice}" for notice in notices), *doubts(adata)]


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise InputError(
            "a .parquet file needs pyarrow: pip install 'centroid-encoder[parquet]'"
        ) from error
    except ValueError as error:
        raise InputError(f"it is no .parquet file, or damaged: {error}") from error
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index(allow_duplicates=True)
    if isinstance(frame.columns, pd.MultiIndex):
        frame.columns = ["_".join(filter(None, map(str, name))) for name in frame.columns]
    return frame.apply(_plain)


def _plain(column: pd.Series) -> pd.Series:
    """Return text for bytes, as in ids of Xenium, and for lists; numbers for decimal numbers."""
    kind = pd.api.types.infer_dtype(column) if column.dtype == object else ""
    if kind == "bytes":
        return column.map(lambda x: x.decode(errors="replace"), na_action="ignore")
    if kind == "decimal":
        return column.astype(float)
    return column.astype(str).where(column.notna()) if kind.startswith("mixed") else column


def frame_to_anndata(
    frame: pd.DataFrame, roles: Mapping[str, Role] | None = None, *, names: bool = True
) -> AnnData:
    """Return a table as an AnnData; see `read_table`.

    Whole numbers beside fractions are in ``obs`` as well, since they may be classes. `names` says
    whether unique texts in the first column are the names of the cells.

    Raises an InputError for wrong `roles`.
    """
    frame = frame.copy(deep=False)
    frame.columns = make_index_unique(frame.columns.astype(str), join=".")
    first = frame.iloc[:, 0] if len(frame.columns) else pd.Series()
    index = pd.RangeIndex(len(frame)).astype(str)
    if names and not is_number(first) and first.notna().all() and first.is_unique:
        index = pd.Index(first.astype(str)).rename(None)
        del frame[first.name]
    found = column_roles(frame, roles)
    features = np.flatnonzero(found["role"] == "feature")
    others = [i for i, role in enumerate(found["role"]) if role != "feature"]
    whole = [i for i, name in enumerate(frame) if i not in others and is_whole(frame.iloc[:, i])]
    if len(whole) <= len(features) / 2:
        others += [i for i in whole if frame.iloc[:, i].nunique() <= MAX_GROUPS]
    obs = {str(frame.columns[i]): as_obs(frame.iloc[:, i]).array for i in sorted(others)}
    is_single = (frame.dtypes.iloc[features] == np.float32).all()
    X = np.empty((len(frame), len(features)), np.float32 if is_single else np.float64)
    for j, i in enumerate(features):  # by columns, without a copy of the table
        X[:, j] = frame.iloc[:, i].to_numpy(X.dtype, na_value=np.nan)
    return AnnData(
        X,
        obs=pd.DataFrame(obs, index=index),
        var=pd.DataFrame(index=frame.columns[features].astype(str)),
        uns={ROLES: found.set_axis(found.index.astype(str))},
    )


def as_obs(column: pd.Series) -> pd.Series:
    """Return numbers, booleans and categories as they are, and all else as categories of text."""
    column = column.infer_objects()
    if column.dtype.kind in "biuf" or isinstance(column.dtype, pd.CategoricalDtype):
        return column
    # Dates, for example, cannot be saved in an AnnData.
    return column.astype(str).where(column.notna()).astype("category")


def with_roles(adata: AnnData, roles: Mapping[str, Role]) -> AnnData:
    """Return a table as if these roles had been chosen when it was read; all results are kept.

    Raises an InputError for a wrong role, or if no measurement is left.
    """
    found = adata.uns[ROLES]
    kept = found[found["column"].isin([*adata.obs, *adata.var_names])]
    chosen = kept[kept["reason"] == CHOSEN].set_index("column")["role"].to_dict()
    names = kept["column"]
    features = adata.to_df()
    columns = {x: (adata.obs if x in adata.obs else features)[x].array for x in names}
    new = frame_to_anndata(pd.DataFrame(columns), chosen | roles, names=False)
    check(new.n_vars, "no feature is left: a table needs at least one")
    new.obs_names = adata.obs_names
    new.obs = new.obs.join(adata.obs[adata.obs.columns.difference(names, sort=False)])
    new.uns = {**adata.uns, **new.uns}
    for part in ("obsm", "obsp"):
        getattr(new, part).update(getattr(adata, part))
    return new


def counted(adata: AnnData) -> str:
    """Return a sentence on how many columns of a table are features, and what the others are."""
    sizes = adata.uns[ROLES]["role"].value_counts()
    others = [f"{n} {role}" for role, n in sizes.items() if role != "feature"]
    left_out = f"; not {', '.join(others)}" if others else ""
    return f"{adata.n_vars} of {sizes.sum()} columns are features{left_out}"


def doubts(adata: AnnData) -> list[str]:
    """Return sentences that name the columns in doubt of a table, if there are any."""
    found, texts = adata.uns[ROLES], []
    for role, text in [
        ("position", "perhaps positions, so no features: {}; if measurements, choose roles={}"),
        ("feature", "perhaps no measurements, but features: {}; if so, choose other roles"),
    ]:
        names = found["column"][found["doubt"] & (found["role"] == role)].tolist()
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        shown = ", ".join(map(repr, names[:5])) + more
        texts += [text.format(shown, dict.fromkeys(names[:2], "feature"))] if names else []
    return texts
