"""Read delimited text as programs and spreadsheets write it."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
from anndata.utils import make_index_unique

from centroid_encoder.errors import InputError, check

SEPARATORS = "\t;,|"
"""Possible separators; where two fit equally well, the first one is taken, and a space if none."""
UNPACK: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
N_ROWS = 100
"""Number of the first rows that decide on separator, header and decimal mark."""
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>"]
NO_VALUE = re.compile(
    r"\W+|#.*|(?i:n\.?[ad]\.?|nil|none|missing|empty|err(or)?|(no|missing) (data|value)"
    r"|not (available|detected|determined|measured)|over|under|(over|under)flow|out of range)"
)
"""What stands in the place of a number that does not exist."""
UNIT = re.compile(r"(?<=[\d.])\s*(%|[pnµμumck]?m\S*|px\S*|pixels?\S*)$")
"""A unit behind a number in a cell."""
MAX_CLASSES = 50
"""A column of at most so many whole numbers and words, most of them repeated, is text."""
LARGEST = 2**53
"""The largest whole number up to which floats hold each one."""
GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([.,]\d{3})+")
"""A number that may have marks between thousands."""
NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")
TOO_LONG = "line {} has {} fields, but the header has {}"


def read_text(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a table of delimited text; return it, and sentences on what was not plain.

    Encoding, separator, decimal mark and header are detected. Lines above the header, empty rows
    and columns, and rows of units below the header are left out. If rows have one field more than
    the header, the first one is the name of the row.

    Raises an InputError if there is no header, no row, or a row that is longer than the header.
    """
    try:
        with UNPACK.get(path.suffix.lower(), open)(path, "rb") as file:
            is_utf16 = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        try:
            return _read_as(path, "utf-16" if is_utf16 else "utf-8-sig")
        except UnicodeDecodeError:
            frame, notices = _read_as(path, "cp1252")
            return frame, ["it is no UTF-8, and was read as Windows text (cp1252)", *notices]
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if path.suffix.lower() not in UNPACK or getattr(error, "errno", None):
            raise  # It is missing or locked, for example.
        raise InputError(f"it cannot be unpacked: {error}") from error


def _read_as(path: Path, encoding: str) -> tuple[pd.DataFrame, list[str]]:
    """Read a table in an encoding; pandas reads the file, and decides on types, in parts."""

    def opened() -> io.TextIOWrapper:
        file = UNPACK.get(path.suffix.lower(), open)(path, "rb")
        # Windows has no letters for a few bytes.
        return io.TextIOWrapper(file, encoding, "replace" if encoding == "cp1252" else "strict")

    with opened() as stream:
        head, notices = _head(stream), list[str]()
    check("\0" not in head, "it is no text, or in no known encoding; save it as CSV in UTF-8")
    head = _without_comment(head)
    separator = _separator(head)
    names, body, header_end = _layout(_rows(head, separator), notices)
    decimal = _decimal(body, separator)
    # pandas takes 1.234 for a fraction, also beside 850.
    columns = enumerate(zip_longest(*body, fillvalue=""))
    grouped = [i for i, cells in columns if not decimal and _has_thousands(cells, ".")]

    def read(texts: Sequence[int]) -> pd.DataFrame:
        with opened() as stream:
            for _ in range(header_end):
                stream.readline()
            return pd.read_csv(
                stream,
                sep=separator,
                header=None,
                names=range(len(names)),
                decimal=decimal or ".",
                dtype=dict.fromkeys(texts, str),
                keep_default_na=False,
                na_values=MISSING,
            )

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            frame = read(grouped)
        if texts := [i for i in frame if _is_text(frame[i])]:
            del frame
            frame = read([*grouped, *texts])
    except pd.errors.ParserError as error:
        found = re.search(r"in line (\d+), saw (\d+)", str(error))
        if not found:
            raise InputError("a quotation mark in it is never closed") from error
        line = header_end + int(found[1])
        raise InputError(TOO_LONG.format(line, found[2], len(names))) from error
    frame = _named(frame, names)
    _convert(frame, decimal, notices)
    return frame, notices


def _is_text(column: pd.Series) -> bool:
    """Whether words are beside numbers, or long ids beside a missing value.

    pandas reads parts of the rows, whose types may differ, and floats round long ids.
    """
    if column.dtype.kind == "f":
        return bool(max(column.max(), -column.min()) > LARGEST)
    return str(pd.api.types.infer_dtype(column)).startswith("mixed")


def _named(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Name the columns, and leave out empty rows, and empty columns without a name."""
    kept = [i for i, name in enumerate(names) if name or frame[i].notna().any()]
    frame = frame[kept] if len(kept) < len(names) else frame
    if (is_empty := frame.isna().all(axis=1)).any():
        frame = frame[~is_empty].reset_index(drop=True)
    found = [names[i] or f"Unnamed: {i}" for i in kept]
    frame.columns = make_index_unique(pd.Index(found), join=".")
    return frame


def _head(stream: io.TextIOWrapper) -> str:
    """Return the first lines of a text: some that may be rows, and all comments above."""
    lines, n = [], 0
    for line in stream:
        lines.append(line)
        n += bool(line.strip()) and not line.startswith("#")
        if n == 2 * N_ROWS:
            break
    return "".join(lines)


def _without_comment(head: str) -> str:
    """Return a text whose header is a comment with as many words as numbers follow as plain rows.

    The comments above the header become empty lines.
    """
    match = re.match(r"(?:#.*\n)*?# +(.*)\n(?=(?!#)(.*))", head)
    if match is None:
        return head
    for separator in SEPARATORS + " ":
        names, first = ([x.strip() for x in line.split(separator)] for line in match.groups())
        is_header = len(names) == len(first) > 1 and not any(map(NUMBER.fullmatch, names))
        if is_header and any(map(NUMBER.fullmatch, first)):
            start = match.start(1)
            return "\n" * head.count("\n", 0, start) + head[start:]
    return head


def _separator(head: str) -> str:
    """Return the separator with which the rows have a header and most have as many fields.

    Rows that lack one field count, too, unless another separator divides as many rows.
    """
    fits: list[tuple[float, ...]] = []
    for separator in SEPARATORS:
        rows = [row for row, _ in _rows(head, separator)]
        n_fields = _typical(rows)
        start = next(i for i, row in enumerate(rows) if len(row) == n_fields)
        has_header = not start or not any(map(NUMBER.fullmatch, rows[start]))
        has_header |= len(rows[start - 1]) == n_fields - 1 != 1
        lacks = [n_fields - len(row) for row in rows]
        shares = [sum(lack in kind for lack in lacks) / len(rows) for kind in ((0, 1), (0,))]
        # A text in each row may hold another separator, which the header does not hold.
        fits.append((has_header, *shares) if n_fields > 1 else (0, 0, 0))
    return SEPARATORS[fits.index(max(fits))] if max(fits)[1] else " "


def _typical(rows: Sequence[Sequence[str]]) -> int:
    check(rows, "it is empty")
    counts = Counter(map(len, rows))
    return max(counts, key=lambda n: (counts[n], n))


def _rows(head: str, separator: str) -> list[tuple[list[str], int]]:
    """Return the first rows but comments and empty ones, each with its last line."""
    reader, rows = csv.reader(io.StringIO(head), delimiter=separator), []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and not re.match(r"# |##|sep=.?$", cells[0]):
                rows.append((cells, reader.line_num))
            if len(rows) == N_ROWS:
                break
    except csv.Error as error:
        text = f"line {reader.line_num} cannot be read: {error}; leave out its column"
        raise InputError(text) from error
    return rows


def _layout(
    sample: Sequence[tuple[list[str], int]], notices: list[str]
) -> tuple[list[str], list[list[str]], int]:
    """Return the names of all columns, the rows below them, and the last line of the header."""
    rows = [row for row, _ in sample]
    n_fields = _typical(rows)
    start = next(i for i, row in enumerate(rows) if len(row) == n_fields)
    if start and any(map(NUMBER.fullmatch, rows[start])):
        # R's `write.table` gives no name to the column of row names.
        n_names = len(rows[start - 1])
        text = TOO_LONG.format(sample[start][1], n_fields, n_names)
        check(n_names == n_fields - 1 != 1, text)
        start -= 1
    if start:
        notices.append(f"lines above the header were left out: {start}")
    names, n_header = _header(rows[start:])
    body = sample[start + n_header :]
    for row, line in body:
        check(len(row) <= n_fields, TOO_LONG.format(line, len(row), len(names)))
    check(body, "it has a header and no rows")
    if len(names) < n_fields:
        is_first = any(row[n_fields - 1 :] != [""] for row, _ in body)
        names = ["", *names] if is_first else [*names, ""]
    return names, [row for row, _ in body], sample[start + n_header - 1][1]


def _header(rows: Sequence[list[str]]) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of rows that they and their units take."""
    first, rows = rows[0], rows[:20]
    filled = [cell for cell in first if cell]
    found = [float(cell.replace(",", ".")) for cell in filled if NUMBER.fullmatch(cell)]
    # The names may be numbers, such as masses or, beside a word, ids of genes.
    are_masses = len(found) > 2 and found == sorted(set(found))
    are_ids = len({x for x in found if x % 1 == 0}) == len(found) < len(filled)
    text = "it has no header: its first line holds numbers"
    check(len(found) <= len(filled) / 2 or are_masses or are_ids, text)
    numeric = [{i for i, cell in enumerate(row) if NUMBER.fullmatch(cell)} for row in rows]
    counts = Counter(i for found in numeric for i in found)
    columns = [i for i, count in counts.items() if count >= len(rows) / 2]
    n = 1
    # Rows of units or descriptions have text in the columns of numbers.
    while columns and n < len(rows) and not numeric[n]:
        cells = [rows[n][i] for i in columns if i < len(rows[n])]
        if sum(not _is_value(cell) for cell in cells) <= len(columns) / 2:
            break
        n += 1
    if n > 1 and len(rows[1]) == len(first) and len(set(first)) <= 0.75 * len(first):
        # CellProfiler writes the names of the objects above those of the measurements.
        first = ["_".join(filter(None, pair)) for pair in zip(first, rows[1], strict=True)]
    return first, n


def _is_value(cell: str) -> bool:
    """Return whether a cell holds a number in any notation, or stands for a missing one."""
    is_gap = NO_VALUE.fullmatch(cell) and not re.search(r"[%\[(]", cell)
    is_gap = is_gap or cell in MISSING or cell[0] in "#<>"
    return bool(is_gap) or numbers(pd.Series([cell]), "")[0] is not None


def _decimal(rows: Sequence[Sequence[str]], separator: str) -> str:
    """Return the decimal mark of the file, or an empty text if no number shows it."""
    cells = pd.Series([x for row in rows for x in row if "," in x or "." in x], dtype=str)
    n_more = _read(cells, ".", ",").count() - _read(cells, ",", ".").count()
    return "," if n_more > 0 else "." if n_more < 0 or separator == "," else ""


def _has_thousands(cells: Sequence[str], mark: str) -> bool:
    """Return whether cells are whole numbers such as 850 and 1.234, with marks between thousands.

    Most numbers without a mark have three digits then; 3 and 4.125 are fractions.
    """
    plain = [cell for cell in cells if re.fullmatch(r"[-+]?\d{1,3}", cell)]
    others = [cell for cell in cells if cell and cell not in plain]
    is_whole = all(mark in cell and GROUPED.fullmatch(cell) for cell in others)
    n_long = sum(len(cell.lstrip("-+")) == 3 for cell in plain)
    return is_whole and len(others) > 1 and n_long * 2 >= max(len(plain), 1)


def _convert(frame: pd.DataFrame, decimal: str, notices: list[str]) -> None:
    """Replace texts that are numbers in another notation by these."""
    wrong = []
    for name, column in list(frame.items()):
        if pd.api.types.is_numeric_dtype(column):
            continue
        texts = column.dropna().astype(str).str.strip()
        found, doubt = numbers(texts, decimal)
        if doubt:
            notices.append(f"column {name!r} {doubt}")
        if found is not None:
            wrong += [f"{text!r} in {name!r}" for text in texts[found.isna()]]
            found = found.astype("Int64") if found.dtype.kind == "i" else found
        frame[name] = (texts if found is None else found).reindex(column.index)
    if wrong:
        verb = "values became" if wrong[1:] else "value became"
        notices.append(f"{len(wrong)} {verb} missing, since no number: such as {wrong[0]}")


def numbers(texts: pd.Series, decimal: str) -> tuple[pd.Series | None, str]:
    """Return the numbers that texts are, or None, and what a reader should know, if anything.

    Texts are no numbers if most of them are words, if they have several units, or if they are
    classes.
    """
    texts = texts.str.replace("^[\N{MINUS SIGN}\N{EN DASH}](?=[0-9.,])", "-", regex=True)
    units = texts.str.extract(UNIT, expand=False).dropna().unique()
    plain = texts.str.replace(UNIT, "", regex=True)
    suffixes = texts.str.extract(r"^[-+]?\d[\d.,]*\s*([^\d\s.,:;_-].*)$", expand=False)
    # A few texts such as "24 h" are names of classes.
    if suffixes.notna().all() and suffixes.nunique() == 1 and texts.nunique() > MAX_CLASSES:
        plain = texts.str.removesuffix(suffixes.iloc[0]).str.strip()
    plain = plain.str.replace(r"(?<=\d)[\s'’](?=\d{3})", "", regex=True)
    point, comma = _read(plain, ",", "."), _read(plain, ".", ",")
    n_more, doubt = comma.count() - point.count(), ""
    # Thousands are below 1,000 in some cells, as a rule.
    is_doubt = not decimal or (decimal == "." and plain.str.fullmatch(r"[-+]?\d+,\d{3}").all())
    if n_more == 0 and is_doubt and not point.equals(comma):
        mark, other = ",." if plain.str.contains(",").any() else ".,"
        decimal = other if _has_thousands(plain.tolist(), mark) else mark
        example = plain[plain.str.contains(mark, regex=False)].iloc[0]
        doubt = f"has no plain decimal mark, and {example!r} in it was read as "
        doubt += re.sub(r"\D", "", example) if decimal == other else example.replace(",", ".")
    found = comma if n_more > 0 or (n_more == 0 and decimal == ",") else point
    is_word = found.isna() & ~texts.str.fullmatch(NO_VALUE) & ~texts.str.match("[<>]")
    if found.count() <= is_word.sum():
        return None, ""
    if len(units) > 1:
        return None, f"is text, since its units differ: {', '.join(units[:3])}"
    is_class = is_word.any() and texts.nunique() <= min(MAX_CLASSES, len(texts) / 2)
    if is_class and (found.dropna() % 1 == 0).all():
        word = texts[is_word].iloc[0]
        return None, f"is text, since it holds words, such as {word!r}, beside numbers"
    return found, doubt


def _read(texts: pd.Series, thousands: str, mark: str) -> pd.Series:
    """Return the numbers in a notation, NaN for other texts."""
    grouped = texts.str.fullmatch(rf"[-+]?[1-9]\d{{0,2}}(\{thousands}\d{{3}})+(\{mark}\d*)?")
    plain = texts.mask(grouped, texts.str.replace(thousands, "", regex=False))
    plain = plain.mask(plain.str.contains(thousands, regex=False))
    return pd.to_numeric(plain.str.replace(mark, ".", regex=False), errors="coerce")
