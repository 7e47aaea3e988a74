"""Tell measurements from ids, images, positions, classes and results among columns of a table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import numpy as np
import pandas as pd

from centroid_encoder.errors import InputError
from centroid_encoder.tl._result import keys_in

Role = Literal["feature", "id", "image", "position", "class", "result", "text"]
"""What a column holds; "image" stands for any group of cells, such as a well or a donor."""

ID_NAMES = (
    "instanceid", "cellid", "label", "index", "objectnumber", "labelid", "objectid", "cellnumber",
    "cellnb", "nucleusid", "segmentid", "object", "cell", "id",
)  # fmt: skip
"""Names of columns of ids of cells, in lower case without punctuation; the likeliest is first."""
IMAGE_NAMES = (
    "region", "libraryid", "fov", "fovname", "image", "imageid", "imagename", "imagenumber",
    "imagefilename", "slide", "slideid", "sample", "sampleid", "roi",
)  # fmt: skip
"""Names of columns of images, in the same form."""
ID_WORDS = {"id", "ids", "oid", "uid", "uuid", "nb", "no", "num", "nr", "number", "index", "idx"}
"""Words that number things; a column whose last word is one of them is no measurement."""
OBJECT_WORDS = {
    "cell", "cells", "object", "objects", "label", "instance", "nucleus", "nuclei", "segment",
    "track", "parent", "event", "spot", "row", "entity", "barcode", "node", "lineage", "root",
    "generation", "skeleton", "path", "vertex", "unnamed", "roi", "target",
}  # fmt: skip
GROUP_WORDS = {
    "acquisition", "animal", "batch", "block", "case", "cohort", "column", "condition", "core",
    "dataset", "day", "donor", "experiment", "field", "file", "filename", "fov", "frame", "group",
    "ident", "image", "lane", "library", "mouse", "pathname", "patient", "plane", "plate",
    "point", "region", "replicate", "roi", "row", "run", "sample", "scan", "section", "series",
    "site", "slice", "slide", "source", "specimen", "stage", "step", "study", "subject",
    "tag", "tile", "time", "timepoint", "timestep", "tma", "treatment", "visit", "well",
}  # fmt: skip
CLASS_WORDS = {
    "annotation", "category", "celltype", "class", "classification", "classifier", "cluster",
    "clusters", "color", "colour", "gate", "leiden", "louvain", "metacluster", "phenotype",
    "population", "subset", "subtype", "type",
}  # fmt: skip
PLAIN_WORDS = ID_WORDS | {
    "analysis", "by", "in", "key", "kmeans", "main", "manual", "meta", "metadata", "my", "name",
    "of", "orig", "original", "predicted", "seurat", "sub", "the", "tissue", "unique",
}  # fmt: skip
"""Words that do not change what a column of groups or classes holds."""
COUNT_WORDS = {
    "area", "children", "count", "counts", "dots", "foci", "n", "neighbors", "num", "number",
    "puncta", "spots", "volume",
}  # fmt: skip
"""A column of whole numbers with one of these words is a measurement, however regular."""
EMBEDDINGS = {"umap", "tsne", "phate"}
WORDS_BEFORE_NUMBERS = {
    "axis", "bbox", "box", "center", "centre", "centroid", "coord", "maximum", "minimum",
}  # fmt: skip
POSITION_WORDS = WORDS_BEFORE_NUMBERS | {
    "bounding", "cell", "center", "centre", "coordinate", "dst", "edge", "end", "feret",
    "global", "image", "local", "location", "max", "maximum", "micron", "microns", "min",
    "minimum", "object", "of", "pixel", "pixels", "pos", "position", "px", "spatial", "src",
    "spot", "start", "the", "tile", "track", "um", "weighted", "µm", "μm",
}  # fmt: skip
"""Words in the names of columns of positions, in addition to the axis."""
SHORT_POSITIONS = {"xm", "ym", "bx", "by"}
"""Names that ImageJ gives to centers of mass and corners of boxes."""
CHOSEN = "chosen"
"""Reason of a role that the user gave."""
MAX_GROUPS = 1000
"""A column of more values is not taken for groups or classes."""


def words(name: object) -> list[str]:
    """Return the words and numbers of a name in lower case: ``CenterX_px`` is center, x, px."""
    found = re.findall(r"\d+|[A-Z]+(?![a-zµμ])|[A-Z]?[^\W\d_A-Z]+", str(name))
    found = [word.lower() for word in found]
    half = len(found) // 2
    # Some programs write a name twice: "cell_id:cell_id", "X.X".
    return found[:half] if half and found[:half] == found[half:] else found


def axis(name: object) -> str | None:
    """Return the axis of a column of positions: x, y, z, t or a number; None for other columns."""
    parts = words(name)
    for i in range(len(parts) - 1):
        if parts[i : i + 2] == ["area", "shape"]:  # Before it CellProfiler may write the object.
            parts = parts[i + 2 :]
    if "location" in parts:  # CellProfiler adds the name of the image.
        return next((word for word in parts if word in ("x", "y", "z")), None)
    if len(parts) == 1 and parts[0] in SHORT_POSITIONS:
        return parts[0].strip("bm")
    rest = [word for word in parts if word not in POSITION_WORDS]
    if len(rest) == 2 and rest[0] in ("x", "y", "z") and rest[1].isdigit():
        return rest[0]
    if len(rest) != 1:
        return None
    numbered = rest[0].isdigit() and bool(WORDS_BEFORE_NUMBERS & set(parts))
    # T is a gene.
    return rest[0] if (rest[0] in ("x", "y", "z", "t") and name != "T") or numbered else None


def column_roles(table: pd.DataFrame, chosen: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the role of each column of a table, and the reason.

    A role is found by the name and the values together. Values alone decide only in a column of
    whole numbers beside columns of fractions, so that no gene of a count matrix is lost. A column
    in doubt stays a feature.

    Parameters
    ----------
    table
        One row per cell.
    chosen
        Roles that are given, by column.

    Returns
    -------
    DataFrame
        Columns ``"column"``, ``"role"`` (see `Role`), ``"reason"`` (empty for a plain
        measurement) and ``"doubt"`` (bool), with a row for each column of the table.

    Raises
    ------
    InputError
        If `chosen` names no column or no role, or makes a feature of a column without numbers.
    """
    found = pd.DataFrame(
        {"column": list(map(str, table.columns)), "role": "", "reason": "", "doubt": False}
    )
    found = found.set_index(table.columns)
    ours = _our_results(map(str, table.columns))
    for name in table:
        found.loc[name, ["role", "reason"]] = _by_name(name, table[name], ours)
    _by_values(table, found)
    found.loc[found["role"] == "", "role"] = "feature"
    if (found["role"] != "feature").all():
        # Positions are the only measurements of some tables.
        found.loc[found["role"] == "position", "role"] = "feature"
    for name, role in (chosen or {}).items():
        rows = found["column"] == str(name)
        if not rows.any():
            raise InputError(f"there is no column {name!r} to choose a role for")
        if role not in get_args(Role):
            raise InputError(f"{role!r} is no role; choose one of {', '.join(get_args(Role))}")
        if role == "feature" and not all(map(is_number, (table[x] for x in found.index[rows]))):
            raise InputError(f"column {name!r} holds no numbers, and cannot be a feature")
        found.loc[rows, ["role", "reason", "doubt"]] = role, CHOSEN, False
    return found.reset_index(drop=True)


def _our_results(names: Iterable[str]) -> set[str]:
    """Return the columns that a map wrote: ``k_split``, ``k_label``, … for any key k."""
    names = list(names)
    # A cross-validation may stand alone.
    pairs = ((name, name.removesuffix("_cv_label")) for name in names)
    keys = {*keys_in(names), *(key for name, key in pairs if key != name)}
    starts = tuple(f"{key}_" for key in keys)
    axes = {f"{'CE' if key == 'ce' else key}{i}" for key in keys for i in (1, 2, 3)}
    return {name for name in names if name.startswith(starts or ("\0",)) or name in axes}


def is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def is_whole(column: pd.Series) -> bool:
    return bool((column.dropna() % 1 == 0).all()) and bool(column.notna().any())


def _by_name(name: object, column: pd.Series, ours: set[str]) -> tuple[str, str]:
    if str(name) in ours:
        return "result", "a result of a map"
    parts, plain = words(name), re.sub(r"[\W_]", "", str(name)).lower()
    number = is_number(column)
    if not column.notna().any():
        return "text", "empty"
    # A number may belong to a gene, such as TMA7.
    bare = [word for word in parts if word not in PLAIN_WORDS]
    if not number:
        is_class = bool(bare) and bare[-1] in CLASS_WORDS
        return ("class", "") if is_class else ("text", "no numbers")
    place = axis(name)
    if place == "t" or bare == ["time"]:
        return "image", "a time by its name"
    if place is not None:
        return "position", "a position by its name"
    if EMBEDDINGS & set(parts) or "tsne" in plain:
        return "result", "a place in an embedding by its name"
    if parts and parts[0] in ("probability", "prob"):
        return "class", "the output of a classifier by its name"
    if not is_whole(column):
        return "", ""
    if parts[:1] == ["metadata"] or (bare and set(bare) <= GROUP_WORDS):
        return "image", "an image or a group by its name"
    if (bare and bare[-1] in CLASS_WORDS) or {"snn", "res"} <= set(parts):
        return "class", "a class by its name"
    is_track = parts[:3] == ["track", "objects", "label"]
    if plain in ID_NAMES or parts[:1] in (["parent"], ["unnamed"]) or is_track:
        return "id", "an id by its name"
    for before, word in itertools.pairwise(parts):
        if word not in ID_WORDS or "number of" in " ".join(parts):
            continue
        if before in GROUP_WORDS:
            return "image", "an image or a group by its name"
        if before in OBJECT_WORDS or word in ("id", "ids", "oid", "uid", "uuid"):
            return "id", "an id by its name"
    return "", ""


def _by_values(table: pd.DataFrame, found: pd.DataFrame) -> None:
    """Find more columns that are no measurements, by their values."""
    left = [name for name in found.index if found["role"][name] == ""]
    whole = [name for name in left if is_whole(table[name])]
    n = len(table)
    for name in whole:
        values = table[name]
        if n >= 10 and values.notna().all() and (np.diff(values.to_numpy(float)) == 1).all():
            found.loc[name, ["role", "reason"]] = "id", "numbers the rows"
    whole = [name for name in whole if found["role"][name] == ""]
    # Whole numbers are normal in a count matrix.
    is_matrix = len(whole) > len(left) / 2
    others = [name for name in found.index if found["role"][name] not in ("", "position")]
    codes = {name: pd.factorize(table[name])[0] for name in others}
    for name in whole:
        own, sizes = pd.factorize(table[name])[0], table[name].value_counts()
        few = 1 + is_matrix < len(sizes) <= min(MAX_GROUPS, n / 5)
        if COUNT_WORDS & set(words(name)):
            continue
        twin = next((x for x in others if few and _same(own, codes[x])), None)
        runs = few and sizes.min() >= 3 and n >= 20 and table[name].is_monotonic_increasing
        if twin is not None:
            role = found["role"][twin] if found["role"][twin] in ("image", "id") else "class"
            found.loc[name, ["role", "reason"]] = role, f"says the same as {twin!r}"
        elif is_matrix:
            continue
        elif runs:
            found.loc[name, ["role", "reason"]] = "image", "whole numbers that run with the rows"
        elif few or (table[name].is_unique and n >= 20):
            found.loc[name, "doubt"] = True
            found.loc[name, "reason"] = "few whole numbers" if few else "unique whole numbers"
    left = [name for name in left if found["role"][name] == "" and name not in whole]
    places = [name for name in found.index if found["role"][name] == "position"]
    if left and places and n >= 20:
        values = table[places + left].astype(float).fillna(table[places + left].median())
        with np.errstate(invalid="ignore", divide="ignore"):
            alike = np.abs(np.corrcoef(values.T)[len(places) :, : len(places)]) > 0.9999
        for name, row in zip(left, alike, strict=True):
            if row.any():
                text = f"says the same as {places[int(np.argmax(row))]!r}"
                found.loc[name, ["role", "reason"]] = "position", text


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two columns of codes divide the rows in the same way."""
    pairs = len(np.unique(np.stack([one, other]), axis=1).T)
    return pairs == len(np.unique(one)) == len(np.unique(other))
