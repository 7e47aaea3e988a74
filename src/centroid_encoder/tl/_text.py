"""Read delimited text as programs and spreadsheets write it."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import locale
import lzma
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pandas as pd

from centroid_encoder.errors import InputError

SEPARATORS = "\t;,|"
"""Possible separators; where two fit equally well, the first one is taken."""
UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
N_ROWS = 200
"""Number of the first rows that decide on separator, header and decimal mark."""
MISSING = ["", "NA", "NaN", "nan", "NULL", "null", "None", "<NA>"]
MISSING_TEXT = [*MISSING, "N/A", "n/a", "#N/A", "-"]
"""Text that stands for a missing value, in columns of numbers and in columns of text."""
MAX_CLASSES = 50
"""A column of at most so many whole numbers and words, most of them repeated, is text."""
NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")


def read_text(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a table of delimited text; return it, and sentences on what was not plain.

    Encoding, separator, decimal mark and header are detected. Lines above the header, empty
    columns after a separator at the end of a row, and rows of units below the header are left
    out. If rows have one field more than the header, the first one is the name of the row.

    Raises an InputError if there is no header or if a row is longer than the header.
    """
    text, notices = _decoded(path)
    separator = _separator(text)
    rows = list(islice(_rows(text, separator), N_ROWS))
    n_fields = _typical(len(row) for _, row in rows)
    # R's `write.table` gives no name to the column of row names.
    start = next(i for i, (_, row) in enumerate(rows) if n_fields - len(row) in (0, 1))
    if start:
        notices.append(f"{start} line{'s' * (start > 1)} above the header were left out")
    names, n_header = _header([row for _, row in rows[start:]])
    body = rows[start + n_header :]
    named, last = n_fields == len(names), [row[n_fields - 1] for _, row in body]
    if not named and not any(last):
        names, named = [*names, ""], True
    names = names if named else ["", *names]
    for line, n in _lengths(text, separator):
        if line > rows[start][0] and n > n_fields:
            raise InputError(f"line {line} has {n} fields, but the header has {len(names)}")
    cells = [cell for _, row in body for cell in row]
    by_comma = sum(bool(re.fullmatch(r"[-+]?\d*,\d+", cell)) for cell in cells)
    by_point = sum(bool(re.fullmatch(r"[-+]?\d*\.\d+", cell)) for cell in cells)
    frame = pd.read_csv(
        io.StringIO(text),
        sep=separator,
        header=None,
        names=range(n_fields),
        skiprows=rows[start + n_header - 1][0],
        decimal="," if by_comma > by_point and separator != "," else ".",
        keep_default_na=False,
        na_values=MISSING,
        low_memory=False,
    )
    empty = [i for i, name in enumerate(names) if not name and frame[i].isna().all()]
    frame.columns = pd.Index(_unique(names))
    frame = frame.drop(columns=frame.columns[empty])
    return _converted(frame, notices), notices


def _decoded(path: Path) -> tuple[str, list[str]]:
    """Return the text of a file, which may be compressed."""
    raw = path.read_bytes()
    if path.suffix in UNPACK:
        raw = UNPACK[path.suffix](raw)
    head = raw[:1000]
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encodings = ["utf-16"]
    elif head[1::2].count(0) > len(head) / 4:
        encodings = ["utf-16-le"]
    elif head[::2].count(0) > len(head) / 4:
        encodings = ["utf-16-be"]
    else:
        encodings = ["utf-8-sig", locale.getpreferredencoding(False), "cp1252"]
    for encoding in encodings:
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        notices = []
        if encoding == encodings[-1] == "cp1252":
            notices.append("it is no UTF-8, and was read as Windows text (cp1252)")
        return text, notices
    raise InputError("its text is in no known encoding; save it as UTF-8")


def _separator(text: str) -> str:
    declared = re.match(r'"?sep=(.)"?[\r\n]', text)
    if declared:
        return declared[1]
    fits: list[float] = []
    for separator in SEPARATORS:
        lengths = [len(row) for _, row in islice(_rows(text, separator), N_ROWS)]
        n = _typical(lengths)
        share = sum(n - length in (0, 1) for length in lengths) / len(lengths)
        fits.append(share if n > 1 else 0)
    if not max(fits):
        raise InputError("it has one column only, or separators other than tab ; , |")
    return SEPARATORS[fits.index(max(fits))]


def _typical(lengths: Iterator[int] | Sequence[int]) -> int:
    counts = Counter(lengths)
    if not counts:
        raise InputError("it is empty")
    return max(counts, key=lambda n: (counts[n], n))


def _rows(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows with the number of their last line, without comments and empty rows."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    for row in reader:
        is_remark = row and re.match(r"# |##|sep=.?$", row[0])
        if any(row) and not is_remark:
            yield reader.line_num, [cell.strip() for cell in row]


def _lengths(text: str, separator: str) -> Iterator[tuple[int, int]]:
    """Yield the number and the length of each row."""
    if '"' in text:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        yield from ((reader.line_num, len(row)) for row in reader)
    else:
        for number, line in enumerate(io.StringIO(text), start=1):
            yield number, line.count(separator) + 1


def _header(rows: Sequence[Sequence[str]]) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of rows that they and their units take."""
    numeric = [{i for i, cell in enumerate(row) if NUMBER.fullmatch(cell)} for row in rows]
    first = list(rows[0])
    filled = [cell for cell in first if cell]
    if len(numeric[0]) == len(filled) and not (
        len(set(filled)) == len(filled) and all(cell.isdigit() for cell in filled)
    ):
        raise InputError("it has no header: its first line holds numbers")
    columns = {i for i in range(len(first)) if sum(i in found for found in numeric) > len(rows) / 2}
    n = 1
    # Rows of units or descriptions have text in the columns of numbers.
    while columns and n < len(rows) and not numeric[n]:
        if sum(bool(rows[n][i]) for i in columns if i < len(rows[n])) <= len(columns) / 2:
            break
        n += 1
    if n > 1 and len(set(first)) < len(set(rows[1])):
        # CellProfiler writes the names of the objects above those of the measurements.
        first = ["_".join(filter(None, pair)) for pair in zip(first, rows[1], strict=True)]
    return first, n


def _unique(names: Sequence[str]) -> list[str]:
    """Return names like those of pandas: ``Unnamed: 0`` for an empty one, ``x.1`` for a second."""
    seen: Counter[str] = Counter()
    unique = []
    for name in (name or f"Unnamed: {i}" for i, name in enumerate(names)):
        unique.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return unique


def _converted(frame: pd.DataFrame, notices: list[str]) -> pd.DataFrame:
    """Return the table with numbers for texts that are numbers in another notation."""
    wrong, commas = {}, []
    columns = {}
    for name, column in frame.items():
        if column.dtype == object:
            texts = column.dropna().astype(str).str.strip()
            found, has_commas = numbers(texts)
            if found is None:
                column = column.mask(column.isin(MISSING_TEXT))
            else:
                bad = texts[found.isna() & ~texts.isin(MISSING_TEXT)]
                if len(bad):
                    wrong[name] = bad
                if has_commas:
                    commas.append(name)
                column = found.reindex(column.index)
        columns[name] = column
    if wrong:
        n = sum(map(len, wrong.values()))
        name, bad = next(iter(wrong.items()))
        others = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        notices.append(
            f"{n} value{'s' * (n > 1)} became missing, since they are no numbers: such as "
            f"{bad.iloc[0]!r} in {name!r}{others}"
        )
    if commas:
        notices.append(f"a comma is the decimal mark in {', '.join(map(repr, commas))}")
    return pd.DataFrame(columns, index=frame.index)


def numbers(texts: pd.Series) -> tuple[pd.Series | None, bool]:
    """Return the numbers that texts are, and whether commas are decimal marks.

    Returns None if most texts are no numbers, or if they seem to be classes.
    """
    if not len(texts):
        return None, False
    # Thousands are separated by spaces, apostrophes, points or commas.
    plain = texts.str.replace(r"(?<=\d)[\s'’](?=\d{3})|\s*%$", "", regex=True)
    groups = plain.str.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
    point = pd.to_numeric(plain.mask(groups, plain.str.replace(",", "")), errors="coerce")
    groups = plain.str.fullmatch(r"[-+]?[1-9]\d{0,2}(\.\d{3})+,\d*")
    comma = plain.mask(groups, plain.str.replace(".", "")).str.replace(",", ".")
    comma = pd.to_numeric(comma, errors="coerce")
    has_commas = bool(texts.str.contains(",").any() and comma.count() >= point.count())
    found = comma if has_commas else point
    words = texts[found.isna() & ~texts.isin(MISSING_TEXT) & ~texts.str.match("[#<>]")]
    whole = bool((found.dropna() % 1 == 0).all())
    if found.count() <= len(texts) / 2 or (whole and len(words) and _are_classes(texts)):
        return None, False
    return found, has_commas


def _are_classes(texts: pd.Series) -> bool:
    return bool(texts.nunique() <= min(MAX_CLASSES, len(texts) / 2))
