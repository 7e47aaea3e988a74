"""Tell measurements from ids, images, positions, classes and results among columns of a table."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    "absolutetime", "acqtime", "acquisitiontime", "birth", "capturetime", "death", "edgetime",
    "elapsed", "elapsedtime", "relativetime",
    "tbegin", "tend", "time", "timestamp", "trackstart", "trackstop",
}  # fmt: skip
CLASS_WORDS = {
    "annotation", "assignments", "category", "celltype", "class", "classification", "classifier",
    "cluster", "clusters", "color", "colour", "gate", "kmeans", "labels", "leiden", "louvain",
    "metacluster", "phenograph", "phenotype", "population", "state", "states", "subset", "subtype",
    "type",
}  # fmt: skip
PLAIN_WORDS = ID_WORDS | {
    "analysis", "by", "camera", "first", "hours", "in", "key", "last", "main", "manual",
    "meta", "metadata", "ms", "my", "name", "of", "orig", "original", "predicted", "s", "sec",
    "seurat", "sub", "the", "unique",
}  # fmt: skip
"""Words that do not change what a column of groups or classes holds."""
SURENESS = {"confidence", "prob", "proba", "probability"}
OUTPUT_WORDS = SURENESS | {"classify", "logit", "pred", "predicted", "prediction", "softmax"}
"""First words of the names of what a classifier writes."""
MEASURE_WORDS = {
    "area", "children", "copies", "count", "counts", "delta", "displacement", "distance", "dots",
    "duration", "foci", "gap", "gaps", "height", "intensity", "length", "max", "mean", "median",
    "min", "n", "neighbors", "num", "number", "puncta", "score", "size", "spots", "sum", "total",
    "transcripts", "volume", "width",
}  # fmt: skip
"""A column with one of these words is a measurement, unless its values number the rows."""
MOTION_WORDS = {
    "acc", "acceleration", "angle", "axis", "deviation", "diameter", "direction", "drift", "flow",
    "force", "fwhm", "gradient", "gyro", "moment", "moments", "normal", "orientation", "polarity",
    "radius", "scale", "sd", "shift", "sigma", "skewness", "speed", "std", "strain", "uncertainty",
    "var", "variance", "velocity",
}  # fmt: skip
"""Measurements that have an axis, and are no positions."""
PLACE_WORDS = {
    "bounds", "center", "centre", "centroid", "coord", "coordinate", "location", "pos", "position",
    "pxl",
}  # fmt: skip
"""The name of an axis beside one of these words is a position, whatever else the name says."""
UNITS = {"micron", "microns", "mm", "pixel", "pixels", "px", "um", "µm", "μm"}
SURE = re.compile(
    r"cent(er|re|roid)|coord|locati|positi|bound|bbox|stage|pxl|pixel|px|micron|[uµμm]m\b|level"
)
"""A position with such a word in its name may stand alone; others come in pairs, as x and y."""
WORDS_BEFORE_NUMBERS = PLACE_WORDS | {"axis", "bbox", "box", "spatial"}
WORDS_BEFORE_NUMBERS |= {"maximum", "minimum"}
POSITION_WORDS = WORDS_BEFORE_NUMBERS | UNITS | {
    "abs", "absolute", "bounding", "capture", "cell", "cg", "cm", "convex", "dim", "dst", "edge",
    "ellipse", "end", "feret", "fov", "general", "geometry", "global", "hull", "image", "inner",
    "level", "loc", "local", "mass", "max", "med", "min", "nd", "nuc", "object", "of", "pix",
    "points", "slide", "spot", "src", "stage", "start", "the", "tile", "track", "unit", "weighted",
}  # fmt: skip
"""Words in the names of columns of positions, in addition to the axis."""
AXES = {"x": "x", "y": "y", "z": "z", "row": "y", "col": "x", "column": "x"}
AXES |= {"left": "x", "right": "x", "top": "y", "bottom": "y"}
"""The words that are axes, and the axis of each."""
PAIRS = {"x", "y"}, {"top", "left"}, {"lat", "lon"}
"""Axes that belong together."""
UNSURE = {"top", "left", "bottom", "right", "lat", "lon"}
"""Axes that are positions in pairs only; LAT, for example, is a gene."""
ALONE = {"x", "y", "z", "t"} | UNSURE
"""Axes that need no other word."""
GLUED = re.compile(r"([xyz])(abs|px|pix|min|max|pos|loc|m|start|end)|(pos|b|c)([xyz])")
"""An axis and a word of positions without a space between them."""
WHOLE_WORDS = {"m": "mass", "b": "bounding", "c": "cg"}
"""Meanings of letters beside an axis, as in XM, BX and CX."""
EMBEDDINGS = "umap|t.?sne|visne|phate|isomap|pacmap|trimap|draw.graph"
"""Names of methods whose results are no measurements."""
COMPONENTS = ("pc", "pca", "ld", "dc", "ic", "ica", "mds", "nmds", "pco", "fa", "fdl", "ce")
"""Names of numbered components; a lone one, such as PCA3, is a gene or a measurement."""
NO_GENES = {
    "barcode", "batch", "celltype", "cluster", "condition", "donor", "fov", "group", "image",
    "leiden", "louvain", "patient", "phenotype", "plate", "sample", "treatment", "well",
}  # fmt: skip
"""Words that are in names of codes, and in no name of a gene."""
SEVERAL = {
    "branch", "module", "neighbor", "neighbour", "node", "nucleus", "path", "root", "segment",
    "skeleton", "spot", "vertex",
}  # fmt: skip
"""One cell may have several of these things, so that their number may be a count."""
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
    found, _, is_known = _place(name)
    return found if is_known else None


def _place(name: object) -> tuple[str, tuple[str, ...], bool]:
    """Return the axis in a name, or "", the other words of it, and whether these are of positions.

    T is no axis, since it is a gene.
    """
    parts: list[str] = []
    for word in words(name):
        glued = GLUED.fullmatch(word)
        parts += [WHOLE_WORDS.get(x, x) for x in glued.groups() if x] if glued else [word]

    def others(i: int) -> tuple[str, ...]:
        return (*parts[:i], "", *parts[i + 1 :])

    is_length = not {"length", "width", "height"}.isdisjoint(parts)
    for i, (before, word, after) in enumerate(
        zip(["", *parts], parts, [*parts[1:], ""], strict=False)
    ):
        is_place = {before, after} & PLACE_WORDS or before == "mass"
        is_place = is_place or ({"location", "box", "bbox"} & set(parts) and not is_length)
        has_unit = after in UNITS and after == parts[-1] and not MEASURE_WORDS & set(parts)
        if word in AXES and (is_place or (has_unit and word in "xyz") or before == "cell"):
            return AXES[word], others(i), True
    rest = [i for i, word in enumerate(parts) if word not in POSITION_WORDS]
    if len(rest) == 2 and re.fullmatch(r"\d\d?", parts[rest[1]]) and not str(name)[1:].isdigit():
        rest.pop()  # As in "X_0" or "ELLIPSE_X0"; "X1" is a number in R, and X-12345 a metabolite.
    if len(rest) == 1 and name != "T":
        word = parts[rest[0]]
        if word in ALONE or (word.isdigit() and (WORDS_BEFORE_NUMBERS - {"pxl"}) & set(parts)):
            return word, others(rest[0]), True
    letters = [i for i, word in enumerate(parts) if word in ("x", "y")]
    is_other = "by" in words(name) or (MEASURE_WORDS | MOTION_WORDS) & set(parts)
    if len(letters) == 1 and not is_other:
        return parts[letters[0]], others(letters[0]), False
    return "", (), False


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
    # Text has no axis, whatever its name; a doubt on an axis does not change another role.
    numbers = [name for name, column in columns.items() if found[name][0] != "text"]
    for name, (role, why) in _by_pairs({name: columns[name] for name in numbers}).items():
        if role != "?" or not found[name][0]:
            found[name] = role, why
    found |= dict.fromkeys(ours, ("result", "a result of a map"))
    doubts = {name for name, (role, _) in found.items() if role == "?"}
    found |= {name: ("", found[name][1]) for name in doubts}
    doubts |= _by_values(columns, found)
    doubts = {name for name in doubts if not found[name][0]}
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
    """Return the role and the reason, which are empty for other names; "?" is a doubt."""
    parts, plain = words(name), re.sub(r"[\W_]", "", name).lower()
    bare = [word for word in parts if word not in PLAIN_WORDS]
    if not column.notna().any():
        return "text", "empty"
    if not is_number(column):
        is_class = bare[-1:] and bare[-1] in CLASS_WORDS
        return ("class", "") if is_class else ("text", "no numbers")
    if "".join(bare) in TIMES:
        return "image", "a time by its name"
    is_embedded = re.search(rf"({EMBEDDINGS})\w*[ _.-]?(\d+|[xy])$", name.lower())
    if is_embedded or (re.search(EMBEDDINGS, name.lower()) and parts[1:]):
        return "result", "a place in an embedding by its name"
    if "pseudotime" in plain or plain.endswith("latenttime"):
        return "result", "an order of cells by its name"
    is_call = "positive" in parts and not MEASURE_WORDS & set(parts) and column.isin([0, 1]).all()
    is_output = OUTPUT_WORDS & set(parts[:1]) or SURENESS & set(parts[-1:])
    is_output = is_output or {"posterior", "doublet", "proba"} & set(parts)
    if is_call or is_output or re.match(r"P ?\(.+=", name):
        values, most = _values(column), 100 if SURENESS & set(parts) else 1
        is_share = np.nanmin(values) >= 0 and np.nanmax(values) <= most
        role = "class" if is_share or is_whole(column) else "?"
        return role, "the output of a classifier by its name"
    if plain.endswith("numberobjectnumber"):  # CellProfiler writes means of it, too.
        return "id", "an id by its name"
    # The other words are in names of measurements and genes, too, such as TMA7.
    if not is_whole(column):
        return "", ""
    if plain in ID_NAMES or parts[:1] == ["unnamed"] or (bare == parts and plain in OBJECT_WORDS):
        return "id", "an id by its name"
    if "metadata" in parts[:2] or (bare and set(bare) <= GROUP_WORDS | LEVEL_WORDS):
        return "image", "an image or a group by its name"
    named = [word for word in bare if not word.isdigit()]
    if named and named[-1] == "clusters" and {"n", "num", "number", "nb"} & set(parts):
        return "", ""
    if named and (named[-1] in CLASS_WORDS or bare[0] == "class" or {"snn", "res"} <= set(parts)):
        return "class", "a class by its name"
    is_other = {"parent", "label"} & set(parts) and not MEASURE_WORDS & set(parts)
    if is_other or parts[:2] == ["id", "of"]:
        return "id", "an id by its name"
    if parts and set(parts) <= ID_WORDS | {"n", "numéro", "nº"}:
        return "?", "an id by its name"
    for before, word in itertools.pairwise(parts):
        if word not in ID_WORDS or "numberof" in plain or "skeletonnumber" in plain:
            continue
        if before in GROUP_WORDS | LEVEL_WORDS:
            return "image", "an image or a group by its name"
        if before in OBJECT_WORDS or word in ("id", "ids", "oid", "uid", "uuid"):
            may_be_count = before in SEVERAL and word.startswith("n")
            is_doubt = may_be_count and column.nunique() <= len(column) / 5
            return "?" if is_doubt else "id", "an id by its name"
    return "", ""


def _by_pairs(columns: Mapping[str, pd.Series]) -> dict[str, tuple[str, str]]:
    """Return roles and reasons of positions and components, which come in pairs such as x and y.

    The role "?" is a doubt.
    """
    found: dict[str, tuple[str, str]] = {}
    places = {name: _place(name) for name, column in columns.items() if is_number(column)}
    places = {name: place for name, place in places.items() if place[0]}
    axes: defaultdict[tuple[tuple[str, ...], bool], set[str]] = defaultdict(set)
    for own, others, is_known in places.values():
        axes[others, is_known].add(own)
    paired = {name for name, (own, *_) in places.items() if _is_paired(own, axes[places[name][1:]])}
    # pandas adds x and y to many names when it merges tables.
    is_merged = len({places[name][1] for name in paired if not places[name][2]}) > 3
    sure = {
        name
        for name, (own, _, is_known) in places.items()
        if is_known and (name in paired or (own not in UNSURE and SURE.search(name.lower())))
    }
    for name, (own, others, is_known) in places.items():
        is_pair = name in paired
        is_bare, ends = len(others) == 1, name[-1].isdigit()
        if own == "t" and not (is_pair or {"nd", "position"} & set(others)):
            continue
        # Beside x and y, the name of another axis is no measurement, unless it is one letter.
        is_other = own not in UNSURE and not (is_bare or ends) and (sure or own == "t")
        is_sure = name in sure or (is_known and is_other)
        if is_sure and own in ("x", "y") and _has_few(columns[name]):
            found[name] = "?", "few positions"
        elif is_sure:
            what = ("image", "a time") if own == "t" else ("position", "a position")
            found[name] = what[0], f"{what[1]} by its name"
        elif (is_pair and not is_merged) or (is_known and not ends and own not in UNSURE):
            found[name] = "?", "an axis by its name"
    for start in COMPONENTS:
        matches = {x: re.fullmatch(rf"(?:.*_)?{start}[ _.-]?(\d\d?)", x.lower()) for x in columns}
        numbered = {name: int(match[1]) for name, match in matches.items() if match}
        numbers = {*numbered.values()}
        if 1 in numbers:
            role = "result" if 2 in numbers else "?"
            found |= dict.fromkeys(numbered, (role, "a place in an embedding by its name"))
    return found


def _is_paired(own: str, axes: set[str]) -> bool:
    """Return whether an axis is one of those that belong together, such as x and y."""
    if own.isdigit():
        return sum(map(str.isdigit, axes)) > 1
    return any(pair <= axes for pair in PAIRS if own in pair | {"z", "t"})


def _has_few(column: pd.Series) -> bool:
    """Return whether a column has up to twenty whole numbers, each of them in many cells."""
    return 1 < column.nunique() <= min(20, len(column) / 10) and is_whole(column)


def _by_values(columns: Mapping[str, pd.Series], found: dict[str, tuple[str, str]]) -> set[str]:
    """Add roles that are found by values to `found`; return the names of columns in doubt."""
    n, doubts = max(map(len, columns.values()), default=0), set()
    limit = min(MAX_GROUPS, n / 5)
    left = [name for name, (role, _) in found.items() if not role]
    whole = {name for name in left if is_whole(columns[name])}
    from_zero = {name for name in left if columns[name].min() == 0}
    # The columns of counts of genes are alike: many cells have none of a gene.
    is_matrix = len(left) > 4 and 2 * len(from_zero) > len(left)
    n_short = sum(re.search(r"[\s_]", name) is None for name in left)
    is_matrix = is_matrix or (len(left) > 100 and n_short > 0.9 * len(left))
    is_counts = is_matrix and 2 * len(whole) > len(left)
    if is_matrix:
        genes = _like_the_rest([x for x, (role, _) in found.items() if role], left, columns)
        found |= dict.fromkeys(genes, ("", "like the other columns by its values"))
        doubts |= genes
    groups: dict[str, np.ndarray] = {}
    for name, (role, _) in found.items():
        if role not in ("", "position"):
            codes = pd.factorize(columns[name])[0]
            groups |= {name: codes} if 0 < codes.max(initial=0) < limit else {}
    places = [name for name, (role, _) in found.items() if role == "position"]
    typical = np.median([columns[name].nunique() for name in left]) if left else 0
    for name in left:
        values = _values(columns[name])
        steps, is_measure = np.diff(values), bool(MEASURE_WORDS & set(words(name)))
        # A number of the row may begin anew in each image; seconds may be fractions.
        numbered = name in whole and n >= 10 and (steps == 1).mean() > 0.9
        is_even = n >= 20 and steps[0] != 0 and np.allclose(steps, steps[0])
        if numbered or (is_even and not is_measure):
            found[name] = "id", "numbers the rows"
            continue
        if name in whole and columns[name].dtype.kind in "iu" and columns[name].min() > 2**53:
            found[name] = "id", "whole numbers that are larger than measurements"
            continue
        codes = pd.factorize(values)[0]
        sizes = np.bincount(codes[codes >= 0])
        few = 1 + is_counts < len(sizes) <= limit
        runs = n >= 20 and len(sizes) > 1 and bool((steps >= 0).all() or (steps <= 0).all())
        twin = next((other for other in groups if few and _same(codes, groups[other])), None)
        if twin is None and name not in whole and n >= 20:
            with np.errstate(invalid="ignore", divide="ignore"):
                like = [abs(columns[name].corr(columns[place])) > 0.9999 for place in places]
            twin = next(itertools.compress(places, like), None)
        # A rare gene may be found in the last cells alone.
        runs = runs and bool(sizes.min() >= 3 if name in whole else len(sizes) > is_matrix * n / 2)
        unlike = few and len(sizes) < typical / 2 and not (is_counts and len(left) >= 20)
        is_unique = len(sizes) == n >= 20 and name in whole
        # Sums of intensities are unique, too, and lie far from each other.
        is_dense = is_unique and bool(np.ptp(values) < 10 * n or values.min() > 2**31)
        is_unique = is_dense and (not is_measure or bool(np.ptp(values) == n - 1))
        rises = n >= 20 and name in whole and bool((steps > 0).mean() > 0.9)
        # Cells of one embryo, for example, stand together.
        stays = few and n >= 20 and bool((steps == 0).mean() > max(0.8, sizes.max() / n + 0.2))
        if twin is not None and not is_measure:
            role = found[twin][0]
            role = role if role in ("id", "image", "position") else "class"
            found[name] = role, f"says the same as {twin!r}"
        elif runs and few and name in whole and not (is_counts or is_measure):
            found[name] = "image", "whole numbers that run with the rows"
        elif runs or rises or twin is not None:
            found[name] = "", f"equals {twin!r}" if twin else "numbers that run with the rows"
            doubts.add(name)
        elif name in whole and ((unlike and not is_measure) or is_unique or stays):
            found[name] = "", f"{'unique' if is_unique else 'few'} whole numbers"
            doubts.add(name)
    return {name for name in doubts if not found[name][0]}


def _like_the_rest(
    names: Iterable[str], others: Sequence[str], columns: Mapping[str, pd.Series]
) -> set[str]:
    """Return the names that a gene may have, of columns with values as in the other columns."""
    styles = Counter(_style(name) for name in others)
    sample = [columns[name] for name in others[:200]]
    zeros = np.median([(column == 0).mean() for column in sample])
    is_rest_whole = np.mean([is_whole(column) for column in sample]) > 0.5
    low, high = min(x.quantile(0.1) for x in sample), max(x.quantile(0.9) for x in sample)
    margin = (high - low) / 5
    found = set()
    for name in names:
        column = columns[name]
        is_code = not (name.isupper() or axis(name))
        if not is_number(column) or is_whole(column) != is_rest_whole:
            continue
        if is_code and (NO_GENES & set(words(name)) or styles[_style(name)] < len(others) / 10):
            continue
        is_like = column.quantile(0.1) >= low - margin and column.quantile(0.9) <= high + margin
        if zeros > 0.05:
            is_like = (column == 0).mean() > 0.05
        if is_like and bool((np.diff(_values(column)) < 0).any()):
            found.add(name)
    return found


def _style(name: str) -> str:
    """Return whether a name is in upper case, in lower case, or in both."""
    return "upper" if name.isupper() else "lower" if name.islower() else "mixed"


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two columns of codes divide the rows in the same way."""
    n = one.max() + 1
    return n == other.max() + 1 and len(np.unique(one * (n + 1) + other)) == len(np.unique(one))
