"""Tell measurements from ids, images, positions, classes and results among columns of a table."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.errors import InputTypeError, check
from centroid_encoder.tables._keys import result_columns

Role = Literal["feature", "id", "image", "position", "class", "result", "text"]
"""What a column holds; "image" stands for any group of cells, such as a well or a donor."""
Found = tuple[str, str, bool]
"""Role of a column, the reason, and whether it is in doubt; the role "" is that of a feature."""
NOTHING: Found = ("", "", False)
Columns = Mapping[str, pd.Series]
Roles = Mapping[str, Found]

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
AVERAGES = {"max", "mean", "median", "min"}
SIZES = {"delta", "displacement", "distance", "height", "length", "width"}
MEASURES = AVERAGES | SIZES | {
    "area", "children", "copies", "count", "counts", "dots", "duration", "foci", "gap", "gaps",
    "intensity", "n", "neighbors", "num", "number", "puncta", "score", "size", "spots", "sum",
    "total", "transcripts", "volume",
}  # fmt: skip
"""A column with one of these words is a measurement, unless its values number the rows."""
MOTIONS = SIZES | {
    "acceleration", "angle", "axis", "deviation", "diameter", "direction", "drift", "force",
    "gradient", "gyro", "moment", "moments", "orientation", "polarity", "radius", "shift", "sigma",
    "speed", "std", "strain", "velocity",
}  # fmt: skip
"""Measurements that have an axis, and are no positions."""
GROUP = (
    "acquisition|animal|array|batch|block|case|ch|channel|chip|cohort|col|column|condition|core|"
    "dataset|day|donor|experiment|field|file|fov|frame|group|ident|image|individual|lane|library|"
    "mouse|patient|plane|plate|point|region|replicate|roi|row|run|sample|scan|section|sector|"
    "series|site|slice|slide|source|specimen|stack|stage|step|study|subject|tag|tile|time|"
    "timepoint|timestep|tma|treatment|visit|well"
)
LEVEL = "bin|layer|level|line|tissue"
"""Words that number cells as those of groups do, but name no origin of cells."""
CLASS = (
    "annotation|category|celltype|class|classification|classifier|clusters?|colou?r|gate|kmeans|"
    "labels|leiden|louvain|metacluster|phenograph|phenotype|population|state|subset|subtype|type"
)
OBJECT = "barcode|cell|entity|event|instance|lineage|object|target|track"
ID, NUMBER = "ids?|oid|u?uid", r"(idx|index|nb|no|nr|num|number)( \d+)*"
TIME = (
    "((absolute|acq|acquisition|capture|edge|elapsed|relative) ?)?time( index)?|elapsed|timestamp|"
    "birth|death|((nd|position) ?)?t|t ?(begin|end)|track ?(start|stop)"
)
EMBEDDING = "umap|t ?sne|vi ?sne|phate|isomap|pacmap|trimap|draw graph"
SURE = "confidence|prob|proba|probability"
OUTPUT = (
    rf"({SURE}|classify|logit|pred|predicted|prediction|softmax|p class)\b.*|.* ({SURE})|"
    r"(.* )?(posterior|doublet|proba)\b.*"
)
RULES = [
    ("image", np.inf, TIME),
    ("result", np.inf, rf"(?=.* ).*({EMBEDDING}).*|.*(pseudo|latent) ?time.*"),
    ("class", 100, rf"(?=.*\b({SURE})\b)({OUTPUT})"),
    ("class", 1, OUTPUT),
    ("", np.inf, OUTPUT),
    # CellProfiler writes means of ids, too.
    ("id", np.inf, ".*number object number"),
    ("id", 0, "|".join(ID_NAMES) + "|unnamed.*"),
    ("image", 0, r"(\w+ )?metadata .*"),
    # The number of a cell is an id, a number of cells is a count.
    ("image", 0, rf"(.* )?({GROUP}|{LEVEL}) (({ID})\b.*|{NUMBER})"),
    ("class", 0, rf"(.* )?({CLASS}) (({ID})\b.*|{NUMBER})"),
    ("id", 0, rf".+ ({ID})\b.*|({ID}) of .*|(.* )?({OBJECT}) {NUMBER}|{OBJECT}"),
    ("id", 0, rf"(?!.*\b({'|'.join(sorted(MEASURES))})\b)(.* )?(label|neighbou?r|parent|root)\b.*"),
    ("class", 0, rf"(?!.*\b(n|nb|num|number)\b)((.* )?({CLASS})( \d+)*|class .*|.*snn res.*)"),
    ("image", 0, rf"({GROUP}|{LEVEL})( ({GROUP}|{LEVEL}))*"),
]
"""Roles of columns of numbers by the words of their names, tried in order.

The number is the largest value, if there are fractions; 0 stands for whole numbers only.
"""
PLAIN_WORDS = {
    "by", "camera", "first", "hours", "in", "key", "last", "main", "manual", "ms", "name", "of",
    "orig", "original", "s", "sec", "the",
}  # fmt: skip
"""Words that do not change what a column holds."""
PAIRS = ["x y z", "col row", "column row", "left top", "right bottom", "lon lat"]
PAIRS += ["longitude latitude", "horizontal vertical"]
"""Words for axes that belong together, in the order x, y, z."""
AXES = [(word, "xyz"[i], pair) for pair in PAIRS for i, word in enumerate(pair.split())]
PLACE = re.compile(r"cent(er|re|roid)|coord|locat|position|pos$|bbox$|bound|spatial")
"""Begin of words beside which the name of an axis is a position, whatever else the name says."""
UNIT = re.compile(r"microns?|[cmuµμ]m|px|pxl|pix(els?)?|stage|level")
"""Words beside which the name of an axis is a position, unless it is a measurement."""
COMPONENT = re.compile(r"(?:.*_)?(pca?|ld|dc|ica?|n?mds|pco|fa|fdl|ce)[ _.-]?0?(\d\d?)")
"""A numbered component; a lone one, such as PCA3, is a gene or a measurement."""
ROWS, RUNS = "numbers the rows", "numbers that run with the rows"
PARTS = "runs or stays the same in parts of the rows"
"""How the values of a column stand in the rows."""
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
    parts = words(name)
    found = [re.sub("(id|name|nb)?s?$", "", word) for word in parts]
    is_group = any(re.fullmatch(GROUP, word) for word in found)
    return is_group and MEASURES.isdisjoint([*found, *parts])


def axis(name: object, *, in_doubt: bool = False) -> str | None:
    """Return the axis of a column of positions: x, y, z or a number; None for other columns.

    With `in_doubt`, a name that has an axis is enough, at best as a word of its own.
    """
    parts, axes = words(name), [(word, own) for word, own, _ in AXES]
    found = [(own, sureness) for own, _, sureness in _axes(parts)]
    sure = next((own for own, sureness in found if sureness), None)
    if sure is not None or not in_doubt:
        return sure
    alone = [own for part in parts for word, own in axes if part == word]
    return next(iter([*alone, *(own for own, _ in found)]), None)


def _axes(parts: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield the axes in the words of a name, the name without the axis, and the sureness of each.

    The sureness is 2 for a name of a position, 1 for a name of one of two positions, and 0 for
    others. Two names that differ only in the axis are equal without it.
    """
    is_motion = not MOTIONS.isdisjoint(parts)
    is_measure = is_motion or not (MEASURES - AVERAGES).isdisjoint(parts)
    for i, part in enumerate(parts):
        rest = {*parts[:i], *parts[i + 1 :]}
        is_place = not is_motion and any(map(PLACE.match, rest))
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

    A role is found by the name, and by the values where these number the rows, equal another
    column, or follow positions. A column in doubt stays a feature, unless it and another one are
    named like the axes of a place. In a matrix of counts, columns with the values of genes are
    features. `chosen` are roles that are given, by column.

    Raises an InputError if `chosen` names no column or no role, or makes a feature of a column
    without numbers.
    """
    columns = {str(name): table.iloc[:, i] for i, name in enumerate(table.columns)}
    found = {name: _by_name(name, column) for name, column in columns.items()}
    # Text has no axis, whatever its name; a doubt on an axis does not change another role.
    numbers = [x for x, column in columns.items() if is_number(column) and found[x][0] != "text"]
    for name, new in _by_pairs({name: columns[name] for name in numbers}).items():
        if not (new[2] and any(found[name])):
            found[name] = new
    found |= dict.fromkeys(result_columns(columns), ("result", "a result of a map", False))
    found |= _as_chosen(columns, {} if chosen is None else chosen)
    left = [name for name, (role, *_) in found.items() if not role]
    genes = _genes(columns, found, left)
    found |= dict.fromkeys(genes or (), ("", "like the other columns by its values", True))
    _by_values(columns, found, left, is_matrix=genes is not None)
    if not any(role in ("", "feature") for role, *_ in found.values()):
        # Positions are the only measurements of some tables.
        for name, (role, why, _) in found.items():
            if role == "position" and why != CHOSEN:
                found[name] = "", why, True
    rows = [(name, role or "feature", *others) for name, (role, *others) in found.items()]
    return pd.DataFrame(rows, columns=["column", "role", "reason", "doubt"])


def _as_chosen(columns: Columns, chosen: Mapping[str, str]) -> dict[str, Found]:
    """Check the roles that the user gave, and return them."""
    text = f"roles must map columns to roles, as {{'Class': 'class'}}; got {chosen!r}"
    check(isinstance(chosen, Mapping), text, "roles", InputTypeError)
    for name, role in chosen.items():
        check(str(name) in columns, f"there is no column {name!r} to choose a role for")
        text = f"{role!r} is no role; choose one of {', '.join(get_args(Role))}"
        check(role in get_args(Role), text)
        fits = role != "feature" or is_number(columns[str(name)])
        check(fits, f"column {name!r} holds no numbers, and cannot be a feature")
    return {str(name): (role, CHOSEN, False) for name, role in chosen.items()}


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


def _by_name(name: str, column: pd.Series) -> Found:
    """Return the role of a column by the first rule that holds for its name."""
    parts = words(name)
    bare = " ".join(word for word in parts if word not in PLAIN_WORDS)
    if not column.notna().any():
        return "text", "empty", False
    if not is_number(column):
        is_class = re.fullmatch(rf"(.* )?({CLASS})( ({ID}|{NUMBER}))?", bare)
        return ("class", "", False) if is_class else ("text", "no numbers", False)
    if "positive" in parts and MEASURES.isdisjoint(parts) and column.isin([0, 1]).all():
        return "class", "class by its name", False
    for role, most, rule in RULES if name != "T" else ():
        if any(re.fullmatch(rule, text) for text in {" ".join(parts), bare, "".join(parts)}):
            values = _values(column)
            is_share = np.fmin.reduce(values) >= 0 and np.fmax.reduce(values) <= most
            if most == np.inf or is_share or is_whole(column):
                return role, f"{role or 'no measurement'} by its name", not role
    return NOTHING


def _by_pairs(columns: Columns) -> dict[str, Found]:
    """Return the roles of positions and components, which come in pairs such as x and y."""
    found: dict[str, Found] = {}
    axes = {name: [*_axes(words(name))] for name in columns}
    alike: defaultdict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for name, known in axes.items():
        for own, key, _ in known:
            alike[key].setdefault(own, name)
    pairs = {key: names for key, names in alike.items() if {"x", "y"} <= names.keys()}
    for key, names in pairs.items():
        some = [columns[name] for name in names.values()]
        # Few cells share a coordinate; many have none of a gene.
        if max(x.value_counts().max() / max(10, x.count()) for x in some) <= 0.1:
            reason = f"named like the axes of a place: {', '.join(map(repr, names.values()))}"
            found |= dict.fromkeys(names.values(), (_role_of_pair(key, some), reason, True))
    for name, known in axes.items():
        sureness = max((sure for _, _, sure in known), default=0)
        if sureness == 2 or (sureness and any(key in pairs for _, key, _ in known)):
            found[name] = "position", "a position by its name", False
        elif sureness:
            found[name] = "", "an axis by its name", True
    # pandas adds _x and _y to the names of all columns that two tables share.
    merged = {x for x, (_, _, doubt) in found.items() if doubt and x.endswith(("_x", "_y"))}
    if len(merged) > 6 and any(not found[name][0] for name in merged):
        found = {name: new for name, new in found.items() if name not in merged}
    components = {x: match.groups() for x in columns if (match := COMPONENT.fullmatch(x.lower()))}
    numbered = set(components.values())
    for name, (start, _) in components.items():
        if (start, "1") in numbered:
            role = "result" if (start, "2") in numbered else ""
            found[name] = role, "a place in an embedding by its name", not role
    return found


def _role_of_pair(name: tuple[str, ...], columns: Sequence[pd.Series]) -> str:
    """Return the role of columns whose names differ in the axis only; `name` is the rest of it."""
    with np.errstate(invalid="ignore", divide="ignore"):
        is_twin = abs(columns[0].corr(columns[1])) > 0.9
    # CD3_x and CD3_y are one marker in two tables, DDX3X and DDX3Y are two genes.
    is_numbered = any(map(str.isdigit, name[: name.index("")]))
    is_few = any(x.nunique() <= min(20, len(x) / 10) and is_whole(x) for x in columns)
    return "" if is_twin or is_numbered or is_few else "position"


def _genes(columns: Columns, found: Roles, left: Sequence[str]) -> set[str] | None:
    """Return the columns of a matrix that are genes in spite of their names; None if it is none.

    Most columns `left` without a role by name have zeros then, or are many with short names.
    """
    zeros = np.median([(columns[name].to_numpy() == 0).mean() for name in left]) if left else 0
    n_short = sum(re.search(r"[\s_]", name) is None for name in left)
    if len(left) < 5 or not (zeros > 0.05 or (len(left) > 100 and n_short > 0.9 * len(left))):
        return None
    styles = Counter((name.isupper(), name.islower()) for name in left)
    sample = [columns[name] for name in left[:200]]
    middles = [column.median() for column in sample]
    is_rest_whole = np.mean([is_whole(column) for column in sample]) > 0.5
    genes = set()
    for name, (role, why, _) in found.items():
        if role in ("", "text") or why == CHOSEN or not is_number(columns[name]):
            continue
        column, own = columns[name], axis(name)
        # Genes have short names in the style of the others.
        is_rare = styles[name.isupper(), name.islower()] < len(left) / 10
        is_long = any(
            len(word) > 5 and re.fullmatch(f"{GROUP}|{CLASS}|{OBJECT}", word)
            for word in words(name)
        )
        is_name = name.isupper() or own or not (is_rare or is_long)
        # A cell has its own position and id, which may be in the range of measurements.
        is_own = own in ("x", "y") or (is_rest_whole and column.is_unique)
        is_near = not is_own and min(middles) <= column.median() <= max(middles)
        is_like = (column == 0).mean() > 0.05 if zeros > 0.05 else is_near
        is_like = is_like and is_whole(column) == is_rest_whole
        if is_name and is_like and (np.diff(_values(column)) < 0).any():
            genes.add(name)
    return genes


def _by_values(
    columns: Columns, found: dict[str, Found], left: Sequence[str], is_matrix: bool
) -> None:
    """Find roles and doubts by values; `left` are the columns without a role by their names."""
    most = min(MAX_GROUPS, max(map(len, columns.values()), default=0) / 5)
    groups: dict[str, NDArray[np.intp]] = {}
    for name, (role, *_) in found.items():
        if role not in ("", "position"):
            codes = pd.factorize(columns[name])[0]
            groups |= {name: codes} if 0 < codes.max(initial=0) < most else {}
    follow = _following(columns, found, left, groups)
    found |= follow
    integers = {name for name in left if is_whole(columns[name])}
    is_counts = is_matrix and 2 * len(integers) > len(left)
    typical = np.median([columns[name].nunique() for name in left]) if left else 0
    # Few cells express a rare gene, which has few counts, too.
    typical = 0 if is_counts and len(left) >= 20 else typical
    for name in (name for name in left if name not in follow):
        values, whole, parts = _values(columns[name]), name in integers, words(name)
        # "Branch number" may be an id.
        is_measure = not MEASURES.isdisjoint(parts[:-1] if parts[-1:] == ["number"] else parts)
        codes = pd.factorize(values)[0]
        sizes = np.bincount(codes[codes >= 0])
        may_group = 1 < len(sizes) <= most
        few = may_group and not (is_counts and len(sizes) == 2)
        twin = next((other for other in groups if may_group and _same(codes, groups[other])), "")
        same = found.get(twin, NOTHING)[0]
        same = same if same in ("id", "image") else "class"
        order = _order(values, sizes, whole, is_matrix)
        is_group = few and whole and sizes.min() > 2 and not (is_matrix or is_measure)
        n, low = len(values), np.fmin.reduce(values)
        # Sums of intensities are unique, too, and lie far from each other.
        spread = np.fmax.reduce(values) - low
        is_dense = spread < n or (not is_measure and (spread < 10 * n or low > 2**31))
        is_large = low > 2**53 and columns[name].dtype.kind in "iu"
        rules: list[tuple[object, str, str]] = [
            (order == ROWS and (whole or not is_measure), "id", ROWS),
            (whole and is_large, "id", "larger than measurements"),
            (twin and few and not is_measure, same, f"says the same as {twin!r}"),
            (twin, "", f"equals {twin!r}"),
            (order == RUNS and is_group, "image", RUNS),
            (order, "", order),
            (whole and is_dense and len(sizes) == n >= 20, "", "unique whole numbers"),
            (whole and few and len(sizes) < typical / 2 and not is_measure, "", "few values"),
        ]
        first = ((role, why, not role) for holds, role, why in rules if holds)
        found[name] = next(first, found[name])


def _order(values: NDArray[np.floating], sizes: NDArray[np.intp], whole: bool, rare: bool) -> str:
    """Return how values stand in the rows; `sizes` are the numbers of equal ones.

    Where genes are `rare`, one may be found in the last cells alone.
    """
    n, steps = len(values), np.diff(values)
    # A number of the row may begin anew in each image; seconds may be fractions.
    if whole and n >= 10 and (steps == 1).mean() > 0.9:
        return ROWS
    if n < 20 or len(sizes) < 2:
        return ""
    if (np.abs(steps - steps[0]) <= 1e-5 * abs(steps[0])).all():
        return ROWS
    if (steps >= 0).all() or (steps <= 0).all():
        return "" if rare and sizes.min() < 3 and len(sizes) <= n / 2 else RUNS
    is_block = (steps == 0).mean() > max(0.8, sizes.max() / n + 0.2)
    return PARTS if whole and (is_block or (steps > 0).mean() > 0.9) else ""


def _following(
    columns: Columns,
    found: Roles,
    left: Sequence[str],
    groups: Mapping[str, NDArray[np.intp]],
) -> dict[str, Found]:
    """Return the roles of columns that are positions by their values, or so in each image."""
    positions = [name for name, (role, *_) in found.items() if role == "position"]
    sure = [name for name in positions if not found[name][2]]
    places = sure or positions
    names = [name for name in [*left, *positions] if places and name not in places]
    names = [name for name in names if (columns[name] == 0).mean() < 0.5]
    if not names:
        return {}
    # One column for each axis: boxes and centers are nearly the same.
    known = [*{axis(name) or name: name for name in places[::-1]}.values()]
    follows = np.zeros(len(names), bool)
    images = [x for name, x in groups.items() if found[name][0] == "image" or names_group(name)]
    for codes in [np.zeros(len(columns[names[0]]), int), *images]:
        rows = _sampled_rows(codes)
        values, at = (
            np.stack([_values(columns[name].iloc[rows]) for name in some], axis=1)
            for some in (names, known)
        )
        follows |= are_places(values, at, codes[rows])
    like = f"a position by its values, like {', '.join(map(repr, places[:3]))}"
    new: dict[str, Found] = {}
    for name in itertools.compress(names, follows):
        is_measure = name in left and not (MEASURES - AVERAGES).isdisjoint(words(name))
        doubt = "", f"runs with the position {places[0]!r}", True
        new[name] = doubt if is_measure else ("position", like, not sure)
    return new


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


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two columns of codes divide the rows in the same way."""
    n = one.max() + 1
    return n == other.max() + 1 and len(np.unique(one * (n + 1) + other)) == len(np.unique(one))
