"""Tell measurements from ids, images, positions, classes and results among columns of a table."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.errors import InputError, InputTypeError
from centroid_encoder.tables._keys import result_columns

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
SEVERAL = {
    "branch", "module", "neighbor", "neighbour", "node", "nucleus", "path", "root", "segment",
    "skeleton", "spot", "vertex",
}  # fmt: skip
"""One cell may have several of these things, so that their number may be a count."""
OBJECT_WORDS = SEVERAL | {"barcode", "cell", "entity", "event", "instance", "lineage", "object"}
OBJECT_WORDS |= {"roi", "target", "track"}
"""Things that are numbered, such as the object of an "object number"."""
GROUP_WORDS = {
    "acquisition", "animal", "array", "batch", "block", "case", "ch", "channel", "chip", "cohort",
    "col", "column", "condition", "core", "dataset", "day", "donor", "experiment", "field", "file",
    "filename", "fov", "frame", "group", "ident", "image", "individual", "lane", "lapse", "library",
    "mask", "mouse", "particle", "pathname", "patient", "plane", "plate", "point", "region",
    "replicate", "roi", "row", "run", "sample", "scan", "section", "sector", "series", "site",
    "slice", "slide", "source", "specimen", "stack", "stage", "step", "study", "subject", "tag",
    "tile", "time", "timepoint", "timestep", "tma", "trajectory", "treatment", "visit", "well",
}  # fmt: skip
LEVEL_WORDS = {"bin", "layer", "level", "line", "tissue"}
"""Words that number cells as those of groups do, but name no origin of cells."""
TIME = re.compile(
    r"(absolute|acq(uisition)?|capture|edge|elapsed|relative)?time|elapsed|timestamp|birth|death"
    r"|(nd|position)?t|t(begin|end)|track(start|stop)"
)
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
AVERAGES = {"max", "mean", "median", "min"}
SIZES = {"delta", "displacement", "distance", "height", "length", "width"}
MEASURE_WORDS = AVERAGES | SIZES | {
    "area", "children", "copies", "count", "counts", "dots", "duration", "foci", "gap", "gaps",
    "intensity", "n", "neighbors", "num", "number", "puncta", "score", "size", "spots", "sum",
    "total", "transcripts", "volume",
}  # fmt: skip
"""A column with one of these words is a measurement, unless its values number the rows."""
MOTION_WORDS = {
    "acc", "acceleration", "angle", "axis", "deviation", "diameter", "direction", "drift", "flow",
    "force", "fwhm", "gradient", "gyro", "moment", "moments", "normal", "orientation", "polarity",
    "radius", "scale", "sd", "shift", "sigma", "skewness", "speed", "std", "strain", "uncertainty",
    "var", "variance", "velocity",
}  # fmt: skip
"""Measurements that have an axis, and are no positions."""
PAIRS = ["x y z", "col row", "column row", "left top", "right bottom", "lon lat"]
PAIRS += ["longitude latitude", "horizontal vertical"]
"""Words for axes that belong together, in the order x, y, z."""
AXES = [(word, "xyz"[i], pair) for pair in PAIRS for i, word in enumerate(pair.split())]
PLACE = re.compile(r"cent(er|re|roid)|coord|locat|position|pos$|bbox$|bound|spatial")
"""Begin of words beside which the name of an axis is a position, whatever else the name says."""
UNIT = re.compile(r"microns?|[cmuµμ]m|px|pxl|pix(els?)?|stage|level")
"""Words beside which the name of an axis is a position, unless it is a measurement."""
EMBEDDINGS = "umap|t.?sne|visne|phate|isomap|pacmap|trimap|draw.graph"
"""Names of methods whose results are no measurements."""
COMPONENTS = ("pc", "pca", "ld", "dc", "ic", "ica", "mds", "nmds", "pco", "fa", "fdl", "ce")
"""Names of numbered components; a lone one, such as PCA3, is a gene or a measurement."""
NO_GENES = {
    "barcode", "batch", "celltype", "cluster", "condition", "donor", "fov", "group", "image",
    "leiden", "louvain", "patient", "phenotype", "plate", "sample", "treatment", "well",
}  # fmt: skip
"""Words that are in names of codes, and in no name of a gene."""
CHOSEN = "chosen"
"""Reason of a role that the user gave."""
MAX_GROUPS = 1000
"""A column of more values is not taken for groups or classes."""
MAX_FITTED = 1000
"""Number of cells whose values are compared with known places."""


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
    """Return the axis of a column of positions: x, y, z or a number; None for other columns."""
    return next((own for own, _, sureness in _axes(name) if sureness), None)


def _axes(name: object) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield the axes in a name, the name without the axis, and the sureness of each.

    The sureness is 2 for a name of a position, 1 for a name of one of two positions, and 0 for
    others. Two names that differ only in the axis are equal without it.
    """
    parts = words(name)
    is_size = not (MOTION_WORDS | SIZES).isdisjoint(parts)
    is_measure = is_size or not (MEASURE_WORDS - AVERAGES).isdisjoint(parts)
    for i, part in enumerate(parts):
        rest = {*parts[:i], *parts[i + 1 :]}
        is_place = not is_size and any(map(PLACE.match, rest))
        if part.isdigit() and is_place:
            yield part, (), 2
        for word, own, pair in AXES:
            for before, after in {(part.removesuffix(word), ""), ("", part.removeprefix(word))}:
                if part not in (before, after) and (is_place or not is_measure):
                    key = (pair, *parts[:i], before, "", after, *parts[i + 1 :])
                    glued = before + after
                    is_sure = is_place or any(map(UNIT.fullmatch, rest))
                    is_sure = bool(PLACE.match(glued)) if glued else is_sure
                    is_half = pair == PAIRS[0] and {*rest, glued} <= {"", "max", "min"}
                    yield own, key, 2 if is_sure else int(is_half)


def column_roles(table: pd.DataFrame, chosen: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return a table with the "column", "role", "reason" and "doubt" of each column of a table.

    A role is found by the name and the values together. Values alone decide only in a column
    unlike the others, so that no gene of a count matrix is lost. A column in doubt stays a feature,
    unless it and another one are named like the axes of a place. `chosen` are roles that are given,
    by column.

    Raises an InputError if `chosen` names no column or no role, or makes a feature of a column
    without numbers.
    """
    columns = {str(name): table.iloc[:, i] for i, name in enumerate(table.columns)}
    found = {name: _by_name(name, column) for name, column in columns.items()}
    # Text has no axis, whatever its name; a doubt on an axis does not change another role.
    numbers = [name for name, column in columns.items() if found[name][0] != "text"]
    for name, (role, why) in _by_pairs({name: columns[name] for name in numbers}).items():
        if role[-1:] != "?" or not found[name][0]:
            found[name] = role, why
    found |= dict.fromkeys(result_columns(columns), ("result", "a result of a map"))
    doubts = {name for name, (role, _) in found.items() if role[-1:] == "?"}
    found |= {name: (found[name][0][:-1], found[name][1]) for name in doubts}
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
    _by_values(columns, found, doubts)
    if not any(role in ("", "feature") for role, _ in found.values()):
        # Positions are the only measurements of some tables.
        rest = {name for name, (role, why) in found.items() if role == "position" and why != CHOSEN}
        doubts |= rest
        found |= {name: ("", found[name][1]) for name in rest}
    rows = [(name, role or "feature", why, name in doubts) for name, (role, why) in found.items()]
    return pd.DataFrame(rows, columns=["column", "role", "reason", "doubt"])


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
    if TIME.fullmatch("".join(bare)) and name != "T":
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

    The role "?" is a doubt, and "position?" one of two columns whose names differ in the axis only.
    """
    found: dict[str, tuple[str, str]] = {}
    axes = {name: [*_axes(name)] for name, column in columns.items() if is_number(column)}
    alike: defaultdict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for name, known in axes.items():
        for own, key, _ in known:
            alike[key].setdefault(own, name)
    pairs = {key: names for key, names in alike.items() if {"x", "y"} <= names.keys()}
    for key, names in pairs.items():
        role = _role_of_pair(key, [columns[name] for name in names.values()])
        reason = f"named like the axes of a place: {', '.join(map(repr, names.values()))}"
        found |= dict.fromkeys(names.values() if role else (), (role, reason))
    for name, known in axes.items():
        sureness = max((sure for _, _, sure in known), default=0)
        if sureness == 2 or (sureness and any(key in pairs for _, key, _ in known)):
            found[name] = "position", "a position by its name"
        elif sureness:
            found[name] = "?", "an axis by its name"
    # pandas adds _x and _y to the names of all columns that two tables share.
    merged = [x for x, (role, _) in found.items() if x.endswith(("_x", "_y")) and role[-1:] == "?"]
    if len(merged) > 6 and any(found[name][0] == "?" for name in merged):
        found = {name: role for name, role in found.items() if name not in merged}
    for start in COMPONENTS:
        matches = {x: re.fullmatch(rf"(?:.*_)?{start}[ _.-]?(\d\d?)", x.lower()) for x in columns}
        numbered = {name: int(match[1]) for name, match in matches.items() if match}
        if 1 in numbered.values():
            role = "result" if 2 in numbered.values() else "?"
            found |= dict.fromkeys(numbered, (role, "a place in an embedding by its name"))
    return found


def _role_of_pair(name: tuple[str, ...], columns: Sequence[pd.Series]) -> str:
    """Return the role of columns whose names differ in the axis only; `name` is the rest of it."""
    most = [column.value_counts().max() / max(10, column.count()) for column in columns]
    if max(most) > 0.1:
        return ""  # Few cells share a coordinate; many have none of a gene.
    with np.errstate(invalid="ignore", divide="ignore"):
        is_twin = abs(columns[0].corr(columns[1])) > 0.9
    # CD3_x and CD3_y are one marker in two tables, DDX3X and DDX3Y are two genes.
    is_numbered = any(map(str.isdigit, name[: name.index("")]))
    is_few = any(x.nunique() <= min(20, len(x) / 10) and is_whole(x) for x in columns)
    return "?" if is_twin or is_numbered or is_few else "position?"


def _by_values(
    columns: Mapping[str, pd.Series], found: dict[str, tuple[str, str]], doubts: set[str]
) -> None:
    """Add roles that are found by values to `found`, and columns in doubt to `doubts`."""
    n = max(map(len, columns.values()), default=0)
    limit = min(MAX_GROUPS, n / 5)
    left = [name for name, (role, _) in found.items() if not role]
    whole = {name for name in left if is_whole(columns[name])}
    # The columns of counts of genes are alike: many cells have none of a gene.
    shares = {name: (columns[name] == 0).mean() for name in left}
    zeros = np.median([*shares.values()]) if left else 0
    n_short = sum(re.search(r"[\s_]", name) is None for name in left)
    is_matrix = len(left) > 4 and (zeros > 0.05 or (len(left) > 100 and n_short > 0.9 * len(left)))
    is_counts = is_matrix and 2 * len(whole) > len(left)
    if is_matrix:
        others = [name for name, (role, why) in found.items() if role and why != CHOSEN]
        genes = _like_the_rest(others, left, columns)
        found |= dict.fromkeys(genes, ("", "like the other columns by its values"))
        doubts |= genes
    groups: dict[str, np.ndarray] = {}
    for name, (role, _) in found.items():
        if role not in ("", "position"):
            codes = pd.factorize(columns[name])[0]
            groups |= {name: codes} if 0 < codes.max(initial=0) < limit else {}
    positions = [name for name, (role, _) in found.items() if role == "position"]
    places = [name for name in positions if name not in doubts] or positions
    unclear = [x for x in [*left, *positions] if x not in places and shares.get(x, 0) < 0.5]
    images = [x for name, x in groups.items() if found[name][0] == "image" or names_group(name)]
    follows = _following(columns, unclear, places, images)
    by_values = "position", f"a position by its values, like {', '.join(map(repr, places[:3]))}"
    found |= dict.fromkeys(follows & {*positions}, by_values)
    doubts -= follows
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
        if name in follows:
            is_named = (MEASURE_WORDS - AVERAGES) & set(words(name))
            found[name] = ("", f"runs with the position {places[0]!r}") if is_named else by_values
            doubts |= {name} if is_named or places[0] in doubts else set()
        elif twin is not None and not is_measure:
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
    doubts -= {name for name in left if found[name][0] not in ("", "position")}


def _following(
    columns: Mapping[str, pd.Series], names: list[str], places: list[str], images: list[np.ndarray]
) -> set[str]:
    """Return the names of columns that are positions by their values, or so in each image."""
    if not names or not places:
        return set()
    # One column for each axis: boxes and centers are nearly the same.
    known = {axis(name) or name: name for name in places[::-1]}.values()
    found = np.zeros(len(names), bool)
    for codes in [np.zeros(len(columns[names[0]]), int), *images]:
        rows = _sampled_rows(codes)
        values, at = (
            np.stack([_values(columns[name].iloc[rows]) for name in some], axis=1)
            for some in (names, known)
        )
        found |= are_places(values, at, codes[rows])
    return {*itertools.compress(names, found)}


def _sampled_rows(images: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return the rows of up to `MAX_FITTED` cells: of few images, if these have many cells."""
    rows = np.random.default_rng(0).permutation(len(images))
    return rows[np.argsort(images[rows], kind="stable")][:MAX_FITTED]


def are_places(
    values: NDArray[np.floating],
    places: NDArray[np.floating],
    images: NDArray[np.integer] | None = None,
) -> NDArray[np.bool_]:
    """Return which (n, p) columns of values are positions of cells at (n, d) known places.

    They are affine functions of the places, in any unit and direction, but for a small part of
    their spread: corners of cells are positions, a measurement with a gradient is none. `images`
    are (n,) codes, if the origin of the values or of the places differs between images.
    """
    codes = np.zeros(len(places), int) if images is None else images
    rows = _sampled_rows(codes)
    rows = rows[np.isfinite(places[rows]).all(axis=1)]
    codes, found = np.unique(codes[rows], return_inverse=True)[1], np.zeros(values.shape[1], bool)
    for i, column in enumerate(values[rows].T):
        known = np.isfinite(column)
        sizes = np.bincount(codes[known])
        if known.sum() - (sizes > 0).sum() < max(15, 5 * places.shape[1]):
            continue
        own, *at = (
            x - (np.bincount(codes[known], x) / sizes.clip(1))[codes[known]]
            for x in (column[known], *places[rows[known]].T)
        )
        spread = np.median(np.abs(own - np.median(own)))
        # Rounding alone makes a spread in a constant column.
        if spread > 1e-9 * np.abs(column[known]).max():
            apart = np.abs(affine_residuals(own[:, None], np.stack(at, axis=1)))
            found[i] = np.median(apart) < 0.08 * spread  # R² is about 0.99.
    return found


def affine_residuals(
    values: NDArray[np.floating], places: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Return the (n, p) differences of values from the affine function of places that fits best.

    The second and third fit leave out the worst half, so that a few wrong rows do not matter.
    """
    # Centered: large coordinates with small differences would make the fit inexact.
    with_one = np.column_stack([places - places.mean(axis=0), np.ones(len(places))])
    rows = np.arange(len(places))
    for _ in range(3):
        affine = np.linalg.lstsq(with_one[rows], values[rows], rcond=None)[0]
        apart = values - with_one @ affine
        distance = np.linalg.norm(apart, axis=1)
        rows = np.flatnonzero(distance <= np.median(distance))
    return np.asarray(apart)


def _like_the_rest(
    names: Iterable[str], others: Sequence[str], columns: Mapping[str, pd.Series]
) -> set[str]:
    """Return the names that a gene may have, of columns with values as in the other columns."""
    styles = Counter((name.isupper(), name.islower()) for name in others)
    sample = [columns[name] for name in others[:200]]
    zeros = np.median([(column == 0).mean() for column in sample])
    is_rest_whole = np.mean([is_whole(column) for column in sample]) > 0.5
    low, high = min(x.quantile(0.1) for x in sample), max(x.quantile(0.9) for x in sample)
    margin = (high - low) / 5
    found = set()
    for name in names:
        column, style = columns[name], (name.isupper(), name.islower())
        own = axis(name)
        is_code = not (name.isupper() or own)
        if not is_number(column) or is_whole(column) != is_rest_whole:
            continue
        if is_code and (NO_GENES & set(words(name)) or styles[style] < len(others) / 10):
            continue
        if zeros > 0.05:
            is_like = (column == 0).mean() > 0.05
        else:  # A cell has its own position and id, which may be in the range of measurements.
            is_like = own not in ("x", "y") and not (is_rest_whole and column.is_unique)
            is_like &= column.quantile(0.1) >= low - margin
            is_like &= column.quantile(0.9) <= high + margin
        if is_like and bool((np.diff(_values(column)) < 0).any()):
            found.add(name)
    return found


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two columns of codes divide the rows in the same way."""
    n = one.max() + 1
    return n == other.max() + 1 and len(np.unique(one * (n + 1) + other)) == len(np.unique(one))
