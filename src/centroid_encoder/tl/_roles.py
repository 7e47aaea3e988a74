"""Tell measurements from ids, images, positions, classes and results among columns of a table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import numpy as np
import pandas as pd

from centroid_encoder.errors import InputError, InputTypeError
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
OBJECT_WORDS = {
    "barcode", "branch", "cell", "entity", "event", "instance", "lineage", "module", "neighbor",
    "neighbour", "node", "nucleus", "object", "path", "roi", "root", "segment", "skeleton",
    "spot", "target", "track", "vertex",
}  # fmt: skip
"""Things that are numbered, such as the object of an "object number"."""
GROUP_WORDS = {
    "acquisition", "animal", "array", "batch", "block", "case", "ch", "channel", "chip", "cohort",
    "col", "column", "condition", "core", "dataset", "day", "donor", "experiment", "field", "file",
    "filename", "fov", "frame", "group", "ident", "image", "individual", "lane", "lapse", "library",
    "mask", "mouse", "particle", "pathname", "patient", "plane", "plate", "point", "region",
    "replicate", "roi", "row", "run", "sample", "scan", "section", "sector", "series", "site",
    "slice", "slide", "source", "specimen", "stack", "stage", "step", "study", "subject", "tag",
    "tile", "time", "timepoint",
    "timestep", "tma", "trajectory", "treatment", "visit", "well",
}  # fmt: skip
LEVEL_WORDS = {"bin", "layer", "level", "line", "tissue"}
"""Words that number cells as those of groups do, but name no origin of cells."""
TIMES = {
    "absolutetime", "birth", "death", "edgetime", "elapsed", "elapsedtime", "relativetime",
    "tbegin", "tend", "time", "timestamp", "trackstart", "trackstop",
}  # fmt: skip
CLASS_WORDS = {
    "annotation", "category", "celltype", "class", "classification", "classifier",
    "cluster", "clusters", "color", "colour", "gate", "labels", "leiden", "louvain",
    "metacluster", "phenotype", "population", "state", "states", "subset", "subtype", "type",
}  # fmt: skip
PLAIN_WORDS = ID_WORDS | {
    "analysis", "by", "camera", "first", "hours", "in", "key", "kmeans", "last", "main", "manual",
    "meta", "metadata", "ms", "my", "name", "of", "orig", "original", "predicted", "s", "sec",
    "seurat", "sub", "the", "unique",
}  # fmt: skip
"""Words that do not change what a column of groups or classes holds."""
OUTPUT_WORDS = {"classify", "confidence", "predicted", "prediction", "prob", "probability"}
"""First words of the names of what a classifier writes."""
EMBEDDINGS = {"umap", "tsne", "phate", "isomap", "pca"}
MEASURE_WORDS = {
    "area", "children", "count", "counts", "delta", "displacement", "distance", "dots", "duration",
    "foci", "gap", "gaps", "height", "intensity", "length", "max", "mean", "median", "min", "n",
    "neighbors", "num", "number", "puncta", "size", "spots", "sum", "total", "transcripts",
    "volume", "width",
}  # fmt: skip
"""A column of whole numbers with one of these words is a measurement, however regular."""
PLACE_WORDS = {
    "bounds", "center", "centre", "centroid", "coord", "coordinate", "location", "pos", "position",
    "pxl",
}  # fmt: skip
"""The name of an axis beside one of these words is a position, whatever else the name says."""
UNITS = {"micron", "microns", "mm", "pixel", "pixels", "px", "um", "µm", "μm"}
WORDS_BEFORE_NUMBERS = PLACE_WORDS | {"axis", "bbox", "box", "maximum", "minimum", "spatial"}
POSITION_WORDS = WORDS_BEFORE_NUMBERS | UNITS | {
    "absolute", "bounding", "cell", "convex", "dst", "edge", "ellipse", "end", "feret", "fov",
    "geometry", "global", "hull", "image", "level", "local", "mass", "max", "min", "nd", "object",
    "of", "slide", "spot", "src", "stage", "start", "the", "tile", "track", "weighted",
}  # fmt: skip
"""Words in the names of columns of positions, in addition to the axis."""
AXES = {"x": "x", "y": "y", "z": "z", "row": "y", "col": "x", "column": "x"}
AXES |= {"left": "x", "right": "x", "top": "y", "bottom": "y"}
AXES |= {a + unit: a for a in "xyz" for unit in ("abs", "px")}
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


def names_group(name: object) -> bool:
    """Return whether a column has the name of donors, images or other origins of cells."""
    found = {re.sub("(id|name|nb)?s?$", "", word) for word in words(name)}
    return bool(found & GROUP_WORDS) and not {*found, *words(name)} & (MEASURE_WORDS | {"score"})


def axis(name: object) -> str | None:
    """Return the axis of a column of positions: x, y, z, t or a number; None for other columns."""
    parts = words(name)
    if parts in (["xm"], ["ym"], ["bx"], ["by"]):  # ImageJ's centers of mass, and corners.
        return parts[0].strip("bm")
    if parts[:1] in (["cx"], ["cy"], ["cz"]) and parts[1:] in (["pix"], ["unit"]):
        return parts[0][1]
    is_length = not {"length", "width", "height"}.isdisjoint(parts)
    for before, word, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
        is_place = {before, after} & PLACE_WORDS or before == "mass"
        is_place = is_place or ({"location", "box", "bbox"} & set(parts) and not is_length)
        has_unit = after in UNITS and after == parts[-1] and not MEASURE_WORDS & set(parts)
        if word in AXES and (is_place or (has_unit and word in "xyz") or before == "cell"):
            return AXES[word]
    rest = [word for word in parts if word not in POSITION_WORDS]
    if len(rest) == 2 and re.fullmatch(r"\d\d?", rest[1]) and not str(name)[1:].isdigit():
        rest.pop()  # As in "X_0" or "ELLIPSE_X0"; "X1" is a number in R, and X-12345 a metabolite.
    if len(rest) != 1:
        return None
    is_number = rest[0].isdigit() and bool(WORDS_BEFORE_NUMBERS & set(parts))
    # T is a gene.
    return rest[0] if is_number or (rest[0] in ("x", "y", "z", "t") and name != "T") else None


def column_roles(table: pd.DataFrame, chosen: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return a table with the "column", "role", "reason" and "doubt" of each column of a table.

    A role is found by the name and the values together. Values alone decide only in a column
    unlike the others, so that no gene of a count matrix is lost. A column in doubt stays a feature.
    `chosen` are roles that are given, by column.

    Raises an InputError if `chosen` names no column or no role, or makes a feature of a column
    without numbers.
    """
    columns = {str(name): table.iloc[:, i] for i, name in enumerate(table.columns)}
    ours = _our_results(columns)
    found = {name: _by_name(name, column) for name, column in columns.items()}
    found |= dict.fromkeys(ours, ("result", "a result of a map"))
    doubts = _by_values(columns, found)
    if not any(role in ("", "feature") for role, _ in found.values()):
        # Positions are the only measurements of some tables.
        doubts |= {name for name, (role, _) in found.items() if role == "position"}
    found |= {name: ("feature", found[name][1]) for name in doubts}
    if not isinstance(chosen, Mapping | None):
        text = f"roles must map columns to roles, as {{'Class': 'class'}}; got {chosen!r}"
        raise InputTypeError(text, "roles")
    for name, role in (chosen or {}).items():
        if str(name) not in columns:
            raise InputError(f"there is no column {name!r} to choose a role for")
        if role not in get_args(Role):
            raise InputError(f"{role!r} is no role; choose one of {', '.join(get_args(Role))}")
        if role == "feature" and not is_number(columns[str(name)]):
            raise InputError(f"column {name!r} holds no numbers, and cannot be a feature")
        found[str(name)] = role, CHOSEN
        doubts.discard(str(name))
    rows = [(name, role or "feature", why, name in doubts) for name, (role, why) in found.items()]
    return pd.DataFrame(rows, columns=["column", "role", "reason", "doubt"])


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
    if pd.api.types.is_integer_dtype(column):
        return True
    values = _values(column)
    values = values[~np.isnan(values)]
    return bool(len(values) and (values[:100] % 1 == 0).all() and (values % 1 == 0).all())


def _values(column: pd.Series) -> np.ndarray:
    values = column.to_numpy(float, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def _by_name(name: str, column: pd.Series) -> tuple[str, str]:
    """Return the role and the reason, which are empty where the name says nothing."""
    parts, plain = words(name), re.sub(r"[\W_]", "", name).lower()
    bare = [word for word in parts if word not in PLAIN_WORDS]
    if not column.notna().any():
        return "text", "empty"
    if not is_number(column):
        is_class = bare[-1:] and bare[-1] in CLASS_WORDS
        return ("class", "") if is_class else ("text", "no numbers")
    place = axis(name)
    if place == "t" or "".join(bare) in TIMES:
        return "image", "a time by its name"
    if place is not None:
        return "position", "a position by its name"
    # PC 34:1 is a lipid.
    if (
        EMBEDDINGS & set(parts)
        or "tsne" in plain
        or re.fullmatch(r"(?i)pc[ _.-]?\d+|visne\d", name)
    ):
        return "result", "a place in an embedding by its name"
    is_call = "positive" in parts and not MEASURE_WORDS & set(parts) and column.isin([0, 1]).all()
    is_output = OUTPUT_WORDS & set(parts[:1]) or {"posterior", "doublet"} & set(parts)
    if is_call or is_output or re.match(r"P ?\(.+=", name):
        return "class", "the output of a classifier by its name"
    if plain.endswith("numberobjectnumber"):  # CellProfiler writes means of it, too.
        return "id", "an id by its name"
    # The other words are in names of measurements and genes, too, such as TMA7.
    if not is_whole(column):
        return "", ""
    if plain in ID_NAMES or parts[:1] == ["unnamed"] or (bare == parts and plain in OBJECT_WORDS):
        return "id", "an id by its name"
    if "metadata" in parts[:2] or (bare and set(bare) <= GROUP_WORDS | LEVEL_WORDS):
        return "image", "an image or a group by its name"
    if bare and (bare[-1] in CLASS_WORDS or bare[0] == "class" or {"snn", "res"} <= set(parts)):
        return "class", "a class by its name"
    is_other = {"parent", "label"} & set(parts) and not MEASURE_WORDS & set(parts)
    if is_other or parts[:2] == ["id", "of"]:
        return "id", "an id by its name"
    for before, word in itertools.pairwise(parts):
        if word not in ID_WORDS or "numberof" in plain or "skeletonnumber" in plain:
            continue
        if before in GROUP_WORDS | LEVEL_WORDS:
            return "image", "an image or a group by its name"
        if before in OBJECT_WORDS or word in ("id", "ids", "oid", "uid", "uuid"):
            return "id", "an id by its name"
    return "", ""


def _by_values(columns: Mapping[str, pd.Series], found: dict[str, tuple[str, str]]) -> set[str]:
    """Add roles that are found by values to `found`; return the names of columns in doubt."""
    n, doubts = max(map(len, columns.values()), default=0), set()
    limit = min(MAX_GROUPS, n / 5)
    left = [name for name, (role, _) in found.items() if not role]
    whole = {name for name in left if is_whole(columns[name])}
    # Whole numbers are normal in a count matrix, and a gene may have any name.
    is_matrix = len(whole) > len(left) / 2
    groups: dict[str, np.ndarray] = {}
    for name, (role, _) in found.items():
        may_be_gene = is_matrix and name.isupper()
        # Genes of flies are called x, y, z, t and by.
        may_be_gene = may_be_gene or (len(columns) > 100 and len(words(name)) == 1)
        if may_be_gene and role in ("position", "image") and _has_zeros(columns[name]):
            found[name] = "", "counts, by its values"
            doubts.add(name)
        elif role not in ("", "position"):
            codes = pd.factorize(columns[name])[0]
            groups |= {name: codes} if 0 < codes.max(initial=0) < limit else {}
    places = [name for name, (role, _) in found.items() if role == "position"]
    for name in left:
        values = _values(columns[name])
        steps = np.diff(values)
        # A number of the row may begin anew in each image; seconds may be fractions.
        numbered = name in whole and n >= 10 and (steps == 1).mean() > 0.9
        numbered = numbered or (n >= 20 and steps[0] != 0 and np.allclose(steps, steps[0]))
        if numbered and not (MEASURE_WORDS - ID_WORDS) & set(words(name)):
            found[name] = "id", "numbers the rows"
            continue
        if MEASURE_WORDS & set(words(name)):
            continue
        codes = pd.factorize(values)[0]
        sizes = np.bincount(codes[codes >= 0])
        few = 1 + is_matrix < len(sizes) <= limit
        runs = n >= 20 and len(sizes) > 1 and bool((steps >= 0).all() or (steps <= 0).all())
        twin = next((other for other in groups if few and _same(codes, groups[other])), None)
        if twin is None and name not in whole and n >= 20:
            with np.errstate(invalid="ignore", divide="ignore"):
                like = [abs(columns[name].corr(columns[place])) > 0.9999 for place in places]
            twin = next(itertools.compress(places, like), None)
        if twin is not None:
            role = found[twin][0]
            role = role if role in ("id", "image", "position") else "class"
            found[name] = role, f"says the same as {twin!r}"
        elif is_matrix and not (
            name in whole and ((runs and sizes.min() >= 3) or len(sizes) == n >= 20)
        ):
            continue
        elif runs and few and not is_matrix and name in whole and sizes.min() >= 3:
            found[name] = "image", "whole numbers that run with the rows"
        elif runs or (name in whole and (few or len(sizes) == n >= 20)):
            kind = "few" if few else "unique"
            found[name] = "", "numbers that run with the rows" if runs else f"{kind} whole numbers"
            doubts.add(name)
    return {name for name in doubts if not found[name][0]}


def _has_zeros(column: pd.Series) -> bool:
    """Return whether values are zero in some cells, in no order of the rows, as those of genes."""
    values = _values(column)
    return (values == 0).mean() > 0.05 and bool((np.diff(values) < 0).any())


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two columns of codes divide the rows in the same way."""
    n = one.max() + 1
    return n == other.max() + 1 and len(np.unique(one * (n + 1) + other)) == len(np.unique(one))
